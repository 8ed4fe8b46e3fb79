// What one node's gateway says to another's beside an answer: what became of the call, as the supervisor said it. Both ends,
// pure. An answer without that word says nothing that may be believed but that it came.
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/bytes.hpp"
#include "plugins/gateway-http/http_write.hpp"
#include "plugins/http-client/http.hpp"

namespace hf::gateway {

// A sentence of another node that is handed on: longer ones are cut.
inline constexpr std::size_t kPeerTextMax = 1024;

// The header lines for an answer of the supervisor, and for one of the gateway itself.
[[nodiscard]] std::string lines_of(const abi::Reply& reply);
[[nodiscard]] std::string lines_of(const LocalAnswer& answer);
// The status line's number: that of the answer to a client's request; anything else has its own in the lines, and a body
// that no status may take away.
[[nodiscard]] std::uint16_t status_of(const abi::Reply& reply, abi::PeerAsk ask);

// As PeerReplied says it, but for the body.
struct PeerAnswer {
    std::uint16_t status = 0;
    abi::ReplyReason reason = abi::ReplyReason::Internal;
    std::uint32_t retry_after_ms = 0;
    Bytes headers;  // flat
    std::string text;
};
// `head_only`: the request was HEAD, whose answer's length is the actor's word.
[[nodiscard]] PeerAnswer read_peer_answer(const web::HttpAnswer& answer, bool head_only);

}  // namespace hf::gateway
