// What the core is told. The daemon makes these from links, processes, timers and operators; the simulator from a seed.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/handle.hpp"
#include "agent/core/actions.hpp"
#include "agent/core/attachment.hpp"
#include "agent/core/records.hpp"
#include "agent/core/types.hpp"

namespace hf::core {

// --- plugin life -----------------------------------------------------------------------------------------------------
struct Greeted {
    Handle from;
    Kind kind = Kind::None;
    std::string name;
    std::string version;
    std::vector<std::string> policies;
    std::uint16_t minor_min = 0;  // of the schema, as far as the plugin speaks it
    std::uint16_t minor_max = 0;
};
struct ReadyIn {
    Handle from;
    bool ok = false;
    std::string error;
};
// The process is gone and reaped, and what it had published was handed over before this.
struct Exited {
    Handle from;
    std::string summary;  // "killed by signal 9 (Killed)"
    bool by_fault =
        false;  // died of its own fault: SEGV, BUS, ABRT, SYS, OOM, or a broken ABI rule
    bool spawn_failed = false;
    bool on_its_own = false;  // it left by itself: neither a signal nor the supervisor ended it
    OpId current = 0;         // the request it had published as current, 0 = none
};
// The instance broke a rule of the link; the daemon hands over nothing more from it.
struct Violated {
    Handle from;
    std::string rule;
};
// Answer to AskProgress.
struct ProgressIs {
    Handle from;
    std::uint64_t counter = 0;  // its own claim
    bool unread = false;        // something that was sent to it has not been read
    bool knocking = false;      // gateway: clients wait to be let in
};
// Clients wait to be let in; told once, until the gateway was looked at.
struct Knocked {};

// --- gateway -----------------------------------------------------------------------------------------------------------
struct RequestIn {
    Handle from;
    std::uint64_t req_id = 0;
    std::string class_name;
    std::string name;
    Bytes event;
    Time deadline = 0;
    std::uint64_t trace = 0;
    bool later = false;  // the client is content with 202 (`Prefer: respond-async`)
    AttachmentRef attached =
        nullptr;  // the body, when it is large: event's last field is empty then
    std::optional<PeerOrigin> origin = std::nullopt;  // another node passed it on
};
// What became of a PeerCall.
enum class PeerOutcome : std::uint8_t {
    Answered,  // `reply` is what that node said
    NotSent,   // it did not happen and will not
    Unknown    // it may have happened
};
struct PeerRepliedIn {
    Handle from;
    OpId op = 0;
    PeerOutcome outcome = PeerOutcome::Unknown;
    ReplyOut reply;  // `to` and `req_id` are nobody's
};
// The large body that answered this request is not needed any more.
struct BodyReleasedIn {
    Handle from;
    std::uint64_t req_id = 0;
};
// A client wants a WebSocket. Answered by a Reply, 101 accepts.
struct SocketOpenedIn {
    Handle from;
    std::uint64_t req_id = 0;
    std::uint64_t connection = 0;  // the gateway's number
    std::string class_name;
    std::string name;
    Bytes event;
    Time deadline = 0;
    std::uint64_t trace = 0;
};
struct SocketMessageIn {
    Handle from;
    std::uint64_t req_id = 0;
    std::uint64_t connection = 0;
    bool binary = false;
    Bytes data;
    Time deadline = 0;
    std::uint64_t trace = 0;
};
struct SocketClosedIn {
    Handle from;
    std::uint64_t connection = 0;
    std::uint16_t code = 0;
    std::string reason;
};
// Answer to AskRoom.
struct GatewayRoomIn {
    Handle from;
};

// --- storage -----------------------------------------------------------------------------------------------------------
enum class Outcome : std::uint8_t { Applied, PreconditionFailed, NotFound, Refused, Unknown };
struct ObjectInfo {
    std::string key;
    std::uint64_t size = 0;
    std::string etag;
    std::int64_t modified_ms = 0;  // by the store's clock, Unix time; 0: not said
};
// One answer of the storage plugin, whatever the request; fields that do not apply stay empty.
struct StoreAnswer {
    Handle from;
    OpId op = 0;
    Outcome outcome = Outcome::Unknown;
    Bytes body;
    std::string etag;
    WriteId write_id;
    std::vector<ObjectInfo> objects;
    bool more = false;
    bool conditional_writes = false;
    std::string reason;
    std::int64_t store_time_ms = 0;  // List, Probe: the store's own clock, Unix time; 0: not said
};

// --- runtime -----------------------------------------------------------------------------------------------------------
enum class ActivateStatus : std::uint8_t { Ok, Full, Failed };
struct ActivatedIn {
    Handle from;
    OpId op = 0;
    std::uint64_t activation = 0;
    ActivateStatus status = ActivateStatus::Failed;
    std::string error;
    bool wants_stop = false;  // it wants to hear that it leaves memory
};
enum class DeliverStatus : std::uint8_t {
    Ok,
    NotResident,
    Failed,
    Trapped,
    CpuDeadline,
    WallDeadline,
    Limit,
    Calling
};
// What an event asked for besides its changes; nothing of it is done before the event is stored.
struct AlarmWish {
    std::int64_t due_ms = 0;
    bool clear = false;
};
struct MessageWish {
    std::string target;  // class/name
    std::string method;
    Bytes payload;
};
struct SocketWish {
    std::uint64_t connection = 0;  // the node's number
    bool close = false;
    std::uint16_t code = 0;
    bool binary = false;
    Bytes data;
    std::vector<std::uint64_t> also = {};  // further connections that the same message is for
};
// The event waits for this call.
struct CallWish {
    std::uint32_t n = 0;
    std::string target;
    std::string method;
    Bytes payload;
    Time timeout = 0;  // 0: none of its own
};
struct DeliveredIn {
    Handle from;
    OpId op = 0;
    std::uint64_t activation = 0;
    DeliverStatus status = DeliverStatus::Failed;
    std::string error;
    std::uint16_t reply_status = 0;
    Bytes reply_headers;
    Bytes reply_body;
    Bytes changes;
    std::optional<AlarmWish> alarm;
    std::vector<MessageWish> sends;
    std::vector<SocketWish> sockets;
    bool passivate = false;
    std::optional<CallWish> call;  // status Calling
    AttachmentRef reply_attached =
        nullptr;  // the reply's body, when it is large: reply_body is empty then
};
struct CheckpointedIn {
    Handle from;
    OpId op = 0;
    std::uint64_t activation = 0;
    bool ok = false;
    Bytes base;
    std::string error;
};
struct DroppedIn {
    Handle from;
    OpId op = 0;
};

// --- the journal -------------------------------------------------------------------------------------------------------
// What it holds, in order of n; before StartNode. `next` is above every number it ever gave.
struct JournalLoaded {
    std::string stream;
    std::uint64_t next = 1;
    std::vector<JournalItem> items;
};
struct JournalAppended {
    OpId op = 0;
    Outcome outcome = Outcome::Unknown;  // Applied, Refused (it is not in it), Unknown
    std::string reason;
};
struct JournalRemoved {
    OpId op = 0;
    bool ok = false;
};

// --- policies ----------------------------------------------------------------------------------------------------------
struct PlacedIn {
    Handle from;
    OpId op = 0;
    bool none = false;
    std::uint32_t choice = 0;
    std::string reason;
};
struct StepIn {
    Handle from;
    OpId op = 0;
    std::vector<std::uint32_t> hand_over;
    std::uint32_t wait_ms = 0;
    bool give_up = false;
    std::string reason;
};

// --- operators ---------------------------------------------------------------------------------------------------------
struct SwapCommand {
    std::uint64_t command = 0;  // echoed in CommandDone
    std::string slot;
    Build build;
    // It takes a swap back that is not to have happened: a roll-back goes to `previous` after it, as it did before.
    bool undo = false;
    std::optional<Build> previous = std::nullopt;
};
struct RollbackCommand {
    std::uint64_t command = 0;
    std::string slot;
};
struct ResetCommand {
    std::uint64_t command = 0;
    std::string slot;
};
// The key that asks `node` to give everything away is to be there, or not.
struct DrainCommand {
    std::uint64_t command = 0;
    std::string node;
    bool drain = true;
};
// Other bounds and other classes hold from now on; what was admitted under the old ones goes on.
struct ConfigChanged {
    Limits limits;
    std::vector<ClassSpec> classes;  // all that are served
    // What agent.toml says of slots now, by name, as far as that has changed.
    std::vector<std::pair<std::string, Build>> builds = {};
};
// First: start everything. Last: finish what runs, end every plugin, storage last.
// The wall clock as the host shows it: Unix time in ns = now + offset. Before StartNode, and whenever somebody sets the clock.
struct ClockIs {
    Time offset = 0;
};
// How long the host has been suspended since it started, in all: its CLOCK_BOOTTIME less its CLOCK_MONOTONIC. Before
// anything else of a step that is the first one after a suspend.
struct SleptIs {
    Time total = 0;
};
struct StartNode {};
struct StopNode {
    std::string reason;
};
struct Tick {};

using Event = std::variant<Tick,
                           RequestIn,
                           SocketOpenedIn,
                           SocketMessageIn,
                           SocketClosedIn,
                           GatewayRoomIn,
                           ClockIs,
                           DeliveredIn,
                           StoreAnswer,
                           ActivatedIn,
                           CheckpointedIn,
                           DroppedIn,
                           JournalLoaded,
                           JournalAppended,
                           JournalRemoved,
                           PlacedIn,
                           StepIn,
                           Greeted,
                           ReadyIn,
                           Exited,
                           Violated,
                           ProgressIs,
                           SwapCommand,
                           RollbackCommand,
                           ResetCommand,
                           StartNode,
                           StopNode,
                           BodyReleasedIn,
                           ConfigChanged,
                           Knocked,
                           PeerRepliedIn,
                           SleptIs,
                           DrainCommand>;

}  // namespace hf::core
