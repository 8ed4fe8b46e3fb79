// A request as an actor gets it: flat fields method, url, count, headers, body (abi/base/bytes.hpp). Responsible for what
// may not reach an actor: fields that concern one connection only, and those by which nodes talk among themselves.
#pragma once

#include <string_view>

#include "abi/base/bytes.hpp"
#include "plugins/gateway-http/http_parse.hpp"
#include "plugins/gateway-http/route.hpp"

namespace hf::gateway {

// A whole event: full body, full header. What is left of a record's 64 KiB is for names, envelope and table.
inline constexpr std::size_t kEventBytesMax = kPayloadBytesMax + kHeaderBytesMax;

// True for fields of one connection (Connection, Transfer-Encoding and so on). `name` is lower case.
[[nodiscard]] bool is_hop_by_hop(std::string_view name);
// True for fields that only nodes may send each other: a client could claim to be a peer with them.
[[nodiscard]] bool is_reserved(std::string_view name);
// True for the fields of a WebSocket's handshake that client and gateway settle between them. Any case.
[[nodiscard]] bool is_of_handshake(std::string_view name);

// Replaces `event` by all fields but the body's bytes: its length is there as zero. The body's bytes are then appended,
// and end_event is called.
void begin_event(Bytes& event, const Head& head, const TargetParts& parts, const Route& route);
// `head_bytes` is event's size as begin_event left it.
void end_event(Bytes& event, std::size_t head_bytes);

}  // namespace hf::gateway
