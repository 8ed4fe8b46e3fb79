// What the core itself tells an actor, as guest ABI v1 lays it out (docs/guest-abi.md): little-endian numbers, and fields of
// u32 length and bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "abi/base/bytes.hpp"
#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"

namespace hf::core {

// "class/name" at its first '/'; an empty name when there is none.
[[nodiscard]] std::pair<std::string, std::string> split_target(std::string_view target);

// Names a one-way message for ever; (0, 0) for a call, which has no such name.
struct MessageId {
    std::uint64_t hi = 0;
    std::uint64_t lo = 0;
};
// `source` is the sending unit, or the node's journal.
[[nodiscard]] MessageId message_id(std::string_view source, std::uint64_t n);
// As clients and actors see it in text: two words of 16 hexadecimal digits.
[[nodiscard]] std::string message_id_text(MessageId id);
// By this header an actor knows a request that was accepted for later; a gateway takes it from nobody.
inline constexpr std::string_view kMessageIdHeader = "x-holdfast-message-id";
// What it adds to an event: two lengths, the name, 33 characters.
inline constexpr std::size_t kMessageIdHeaderBytes = 4 + kMessageIdHeader.size() + 4 + 33;
// The http event with one more header, or nothing when it is not laid out as one.
[[nodiscard]] std::optional<Bytes> with_header(BytesView http,
                                               std::string_view name,
                                               std::string_view value);

[[nodiscard]] Bytes call_event(MessageId id,
                               bool one_way,
                               std::string_view caller,
                               std::string_view method,
                               BytesView payload);
[[nodiscard]] Bytes alarm_event(std::uint64_t nonce, std::int64_t due_ms, std::uint32_t attempt);
// What the gateway sent of the handshake, behind the connection's number.
[[nodiscard]] Bytes socket_opened_event(std::uint64_t connection, BytesView http);
[[nodiscard]] Bytes socket_message_event(std::uint64_t connection, bool binary, BytesView data);
[[nodiscard]] Bytes socket_closed_event(std::uint64_t connection,
                                        std::uint16_t code,
                                        std::string_view reason);
[[nodiscard]] Bytes stop_event(StopReason reason, std::int64_t deadline_ms);

}  // namespace hf::core
