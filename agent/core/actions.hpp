// What the core wants done. The daemon does each, in order; nothing here waits for an answer except through events.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/handle.hpp"
#include "agent/core/attachment.hpp"
#include "agent/core/records.hpp"
#include "agent/core/types.hpp"

namespace hf::core {

// --- plugin life -----------------------------------------------------------------------------------------------------
struct Spawn {
    Handle handle;
    std::string slot;
    std::uint32_t seat = 0;  // 0..instances-1
    Kind kind = Kind::None;
    Build build;
};
struct Configure {
    Handle to;
};  // Welcome and Configure, from the build named at Spawn
struct Kill {
    Handle to;
    std::string reason;
    bool dump = false;  // write what /proc tells of it first
};
struct SendShed {
    Handle to;
    Time deadline = 0;
};
struct SendStop {
    Handle to;
    std::string reason;
};
struct AskProgress {
    Handle to;
};

// --- storage -----------------------------------------------------------------------------------------------------------
enum class StoreVerb : std::uint8_t { Get, Put, Delete, List, Probe };
enum class Condition : std::uint8_t { None, IfAbsent, IfMatch };
struct StoreRequest {
    Handle to;
    OpId op = 0;
    StoreVerb verb = StoreVerb::Get;
    std::string key;                // List: the prefix
    std::vector<std::string> also;  // Delete: more keys
    Bytes body;
    Condition condition = Condition::None;
    std::string etag;
    WriteId write_id;
    std::string after;        // List
    std::uint32_t limit = 0;  // List
};

// --- runtime -----------------------------------------------------------------------------------------------------------
struct StoredChanges {
    std::uint64_t seq = 0;
    bool base = false;
    Bytes changes;
};
struct Activate {
    Handle to;
    OpId op = 0;
    std::string unit;
    std::string class_name;
    std::string name;
    std::uint64_t activation = 0;
    std::uint64_t epoch = 0;
    std::uint32_t part = 0;
    bool more = false;
    std::vector<StoredChanges> entries;
    std::int64_t alarm_due_ms = 0;  // 0: none is set
};
// The kinds of guest ABI v1, with its numbers.
enum class EventKind : std::uint8_t {
    None = 0,
    Http = 1,
    Call = 2,
    Alarm = 3,
    WsOpen = 4,
    WsMessage = 5,
    WsClose = 6,
    Restored = 7,
    Stop = 8,
    Entity = 9
};
// Why a unit leaves memory, as guest ABI v1 numbers it.
enum class StopReason : std::uint32_t { Move = 1, Drain = 2, Passivate = 3, Evict = 4 };
struct Deliver {
    Handle to;
    OpId op = 0;
    std::uint64_t activation = 0;
    std::uint64_t event_incarnation = 0;
    std::uint64_t event_counter = 0;
    std::uint16_t attempt = 1;
    EventKind kind = EventKind::Http;
    Bytes event;  // a copy: the core keeps its own until the event is decided
    Time deadline = 0;
    std::uint64_t trace = 0;
    AttachmentRef attached = nullptr;  // what event's last, empty field stands for
};
// The event that waits for its call `n` goes on.
struct Resume {
    Handle to;
    OpId op = 0;
    std::uint64_t activation = 0;
    std::uint64_t event_incarnation = 0;
    std::uint64_t event_counter = 0;
    std::uint32_t n = 0;
    std::int32_t code = 0;  // 0, or a negative result of guest ABI v1
    Bytes payload;
    Time deadline = 0;
    std::uint64_t trace = 0;
};
struct Checkpoint {
    Handle to;
    OpId op = 0;
    std::uint64_t activation = 0;
};
struct Drop {
    Handle to;
    OpId op = 0;
    std::uint64_t activation = 0;
};

// --- policies ----------------------------------------------------------------------------------------------------------
struct Candidate {
    std::uint32_t id = 0;
    Handle handle;
    std::string node;
    std::uint32_t instance = 0;
    std::uint32_t resident = 0;
    std::uint32_t capacity = 0;
    std::uint32_t inflight = 0;
};
struct Place {
    Handle to;
    OpId op = 0;
    std::string subject;
    std::string class_name;
    std::vector<Candidate> candidates;
    std::uint64_t sequence = 0;
    Time deadline = 0;
};
struct NextStep {
    Handle to;
    OpId op = 0;
    std::vector<std::string> residents;  // ids are positions
    std::uint32_t in_flight = 0;
    std::uint32_t in_flight_max = 0;
    std::uint64_t sequence = 0;
};

// --- other nodes ---------------------------------------------------------------------------------------------------------
// What one node asks of another about one actor.
enum class PeerAsk : std::uint8_t {
    Request,  // a client's request, passed on once
    Call,     // an actor's call that waits for its answer
    Message,  // to be applied once, by its number
    Settled,  // its source has stored that it is done
    Alarm     // to be armed, not run
};
// Who asks, when another node does; of a PeerCall, this one. The gateway has checked the signature.
struct PeerOrigin {
    std::string node;
    PeerAsk ask = PeerAsk::Request;
    std::vector<std::string> chain;  // Call: escaped units that wait for it, the first caller first
    std::string source;              // Message, Settled
    std::uint64_t n = 0;             // Message, Settled
    bool http = false;               // Message: a request out of a journal
    bool last = false;               // Message: its last try
    std::int64_t due_ms = 0;         // Alarm
    std::uint64_t nonce = 0;         // Alarm
};
// To be asked of node `target` by a gateway, once; answered by PeerRepliedIn.
struct PeerCall {
    Handle to;
    OpId op = 0;
    std::string address;  // of the target, host:port
    std::string target;   // node id
    std::string class_name;
    std::string name;
    Bytes event;
    PeerOrigin origin;
    Time deadline = 0;
    std::uint64_t trace = 0;
    AttachmentRef attached = nullptr;  // a large body, as of RequestIn
};

// --- answers -----------------------------------------------------------------------------------------------------------
enum class ReplyReason : std::uint8_t {
    Ok,
    UnknownClass,
    BadName,
    TooLarge,
    Busy,
    Unavailable,
    Deadline,
    ActorFailed,
    ActorLimit,
    Internal
};
// Why something is not accepted; `text` is one sentence for whoever asked.
struct Refusal {
    ReplyReason reason = ReplyReason::Busy;
    std::string text;
};
struct ReplyOut {
    Handle to;
    std::uint64_t req_id = 0;
    ReplyReason reason = ReplyReason::Ok;
    std::uint16_t status = 0;
    std::uint32_t retry_after_ms = 0;
    Bytes headers;
    Bytes body;
    std::string text;
    AttachmentRef attached = nullptr;  // the body, when it is large
};
// Answers a SocketMessageIn.
struct SocketTaken {
    Handle to;
    std::uint64_t req_id = 0;
    bool ok = true;
    std::uint16_t code = 0;  // what to close with when it was not taken
    std::string text;
};
// One message to each of these, in their order.
struct SocketSend {
    Handle to;
    std::vector<std::uint64_t> connections;  // the gateway's numbers
    bool binary = false;
    Bytes data;
};
struct CloseSocket {
    Handle to;
    std::uint64_t connection = 0;
    std::uint16_t code = 0;
    std::string reason;
};

// Answered by GatewayRoomIn once all that was sent to this gateway before is in its ring.
struct AskRoom {
    Handle to;
};

// --- the journal (journal.hpp), which the daemon keeps on disk; it does these in order --------------------------------------
// A request that was accepted for later.
struct JournalItem {
    std::uint64_t n = 0;
    std::string class_name;
    std::string name;
    std::int64_t accepted_ms = 0;  // Unix
    Bytes event;                   // http, as guest ABI v1 lays it out
};
struct JournalAppend {
    OpId op = 0;
    JournalItem item;
};
struct JournalRemove {
    OpId op = 0;
    std::vector<std::uint64_t> numbers;
};
// A message that was given up.
struct DeadLetter {
    std::string source;  // the sending unit, or the journal's stream
    std::uint64_t n = 0;
    std::string target;  // class/name
    std::string method;  // empty for http
    Bytes payload;       // of http the whole event
    std::string why;
    std::int64_t at_ms = 0;  // Unix
};
// Kept as far as there is room; nobody waits for it, and what is not kept is told in the log.
struct JournalBury {
    DeadLetter letter;
};

// --- operators -----------------------------------------------------------------------------------------------------------
struct CommandDone {
    std::uint64_t command = 0;
    bool ok = false;
    std::string text;
};
struct CommandProgress {
    std::uint64_t command = 0;
    std::string text;
};
// Bad builds changed: the daemon keeps them across restarts.
struct RememberBadBuilds {
    BadBuilds builds;
};
enum class NoteLevel : std::uint8_t { Debug, Info, Warn, Error };
struct Note {
    NoteLevel level = NoteLevel::Info;
    std::string room;
    std::string text;
};
// The node cannot go on: say why and end with this code. After StopNode: everything ended, code 0.
struct ExitNode {
    int code = 0;
    std::string reason;
};

using Action = std::variant<ReplyOut,
                            Deliver,
                            StoreRequest,
                            Activate,
                            Resume,
                            Checkpoint,
                            Drop,
                            Place,
                            NextStep,
                            Spawn,
                            Configure,
                            Kill,
                            SendShed,
                            SendStop,
                            AskProgress,
                            SocketTaken,
                            SocketSend,
                            CloseSocket,
                            AskRoom,
                            PeerCall,
                            JournalAppend,
                            JournalRemove,
                            JournalBury,
                            CommandDone,
                            CommandProgress,
                            RememberBadBuilds,
                            Note,
                            ExitNode>;
using Actions = std::vector<Action>;

}  // namespace hf::core
