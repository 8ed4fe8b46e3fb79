// Between the core's plain structs and the tables on the links. Pure mapping: no state, no decision.
// What arrives was verified by the channel; strings and vectors that the schema leaves optional may still be absent.
#pragma once

#include <optional>
#include <string>

#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"
#include "agent/port/channel.hpp"

namespace hf::port {

// Each writes one record, and with a unit's state that no record holds a memory file beside it (large.hpp). Busy: the
// instance's private queue is full, nothing was sent.
Sent send(Channel& channel, const core::StoreRequest& action);
Sent send(Channel& channel, const core::Activate& action, const std::string& tenant);
Sent send(Channel& channel, const core::Deliver& action, std::int64_t wall_now_ms);
Sent send(Channel& channel, const core::Checkpoint& action);
Sent send(Channel& channel, const core::Drop& action);
Sent send(Channel& channel, const core::Place& action);
Sent send(Channel& channel, const core::NextStep& action);
Sent send(Channel& channel, const core::Resume& action);
Sent send(Channel& channel, const core::ReplyOut& action);
Sent send(Channel& channel, const core::SocketTaken& action);
Sent send(Channel& channel, const core::SocketSend& action);
Sent send(Channel& channel, const core::CloseSocket& action);
Sent send(Channel& channel, const core::PeerCall& action);
Sent send_shed(Channel& channel, core::Time deadline);
Sent send_stop(Channel& channel, const std::string& reason);

// What an instance said, as the core hears it; nothing for messages the daemon itself serves (Log, Query, Counters,
// Fault) and for advice the core does not take (Cancelled).
std::optional<core::Event> to_event(Handle from, const Received& record);

[[nodiscard]] core::Kind kind_of(abi::Kind kind);
[[nodiscard]] abi::Kind kind_of(core::Kind kind);

}  // namespace hf::port
