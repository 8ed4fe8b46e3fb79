// What one node asks of another, between the core's structs and the tables on a gateway's link. Private to this room.
#pragma once

#include <optional>

#include "agent/core/events.hpp"
#include "agent/port/channel.hpp"

namespace hf::port {

// Who asks, as a verified table says it; nothing when it asks for something that no version of this schema knows.
[[nodiscard]] std::optional<core::PeerOrigin> origin_from(const abi::PeerOrigin& table);
[[nodiscard]] flatbuffers::Offset<abi::PeerOrigin> origin_of(flatbuffers::FlatBufferBuilder& fbb,
                                                             const core::PeerOrigin& origin);

[[nodiscard]] core::Event peer_replied(Handle from, const Received& record);

}  // namespace hf::port
