// One unit: its hold, its log, its mailbox and where it lives. Plain data; the rules are in units.hpp.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/core/actions.hpp"
#include "agent/core/alarms.hpp"
#include "agent/core/bulk.hpp"
#include "agent/core/events.hpp"
#include "agent/core/fold.hpp"
#include "agent/core/records.hpp"
#include "agent/core/types.hpp"

namespace hf::core {

// The hold's life. Releasing ends a hold; Fenced ends it without a word to the store.
enum class Hold : std::uint8_t { Idle, Acquiring, Serving, Releasing, Fenced };
// Where the unit's state is while the hold is Serving. Only Resident runs events.
enum class Memory : std::uint8_t { Cold, Listing, Sealing, Fetching, Activating, Resident };
[[nodiscard]] const char* hold_name(Hold hold);
[[nodiscard]] const char* memory_name(Memory memory);

struct DeadlineEntry {
    Time at = 0;
    UnitId unit = 0;
    std::uint64_t event = 0;
};
using DeadlineList = std::list<DeadlineEntry>;

// Where an event came from, and so who hears how it ended.
struct FromRequest {
    Handle gateway;
    std::uint64_t req_id = 0;
};
struct FromSocketOpened {
    Handle gateway;
    std::uint64_t req_id = 0;
    std::uint64_t connection = 0;  // the node's number
};
struct FromSocketMessage {
    Handle gateway;
    std::uint64_t req_id = 0;
};
struct FromSocketClosed {
    std::uint64_t connection = 0;  // the node's number, which is nobody's any more
    std::uint16_t code = 0;
    std::string reason;
    unsigned tries = 0;  // that never came to run
};
// Another node's actor, or its client, asks for this one; the answer goes back through the gateway.
struct FromPeer {
    Handle gateway;
    std::uint64_t req_id = 0;
};
struct FromCall {
    UnitId caller = 0;
    std::uint64_t event = 0;    // of the caller, that waits
    std::uint16_t attempt = 0;  // and the run of it
    std::uint32_t n = 0;
};
struct FromMessage {
    EventKind kind = EventKind::Call;  // Http: a request out of the journal
    std::string source;                // the sending unit, or the journal's stream
    std::uint64_t n = 0;
    bool last = false;    // the last try: a handler that fails again has had its chance
    bool poison = false;  // this try ended kPoisonDeaths runtimes
    std::optional<FromPeer> peer = std::nullopt;  // the source is another node's
};
struct FromAlarm {
    std::int64_t due_ms = 0;
    std::uint64_t nonce = 0;
    bool poison = false;  // as above
};
// From nobody: the unit has a new owner, or its old one started again.
struct FromRestart {};
// A request whose client has heard 202 already.
struct FromBuffered {};
// From nobody: the unit is about to leave memory.
struct FromStop {
    StopReason reason = StopReason::Evict;
};
using Origin = std::variant<FromRequest,
                            FromSocketOpened,
                            FromSocketMessage,
                            FromSocketClosed,
                            FromCall,
                            FromMessage,
                            FromAlarm,
                            FromRestart,
                            FromBuffered,
                            FromStop,
                            FromPeer>;
[[nodiscard]] EventKind kind_of(const Origin& origin);

// Who waits for an event's answer. Answered exactly once, or not at all when its gateway died.
struct Waiting {
    std::uint64_t event = 0;  // the event id's counter
    Origin origin;
    bool answered = false;
    std::size_t bytes = 0;  // counted in accepted_bytes until answered and gone
    std::optional<DeadlineList::iterator> deadline;
};

struct Mail {
    Waiting waiting;
    Bytes event;
    Time deadline = 0;
    std::uint64_t trace = 0;
    std::uint16_t attempt = 1;
    std::uint8_t deaths = 0;    // runtimes that died of a fault with this as current
    // Escaped units that wait for this event, the first caller first; also those of other nodes.
    std::vector<std::string> chain;
    bool passed_on = false;  // another node asks: it is never passed on again
    AttachmentRef attached;     // a large body: kept until the event is decided, it may run again
    Bulk::Held held;
};

// The running event waits: first for everything before it to be stored, then for the answer.
struct Parked {
    CallWish wish;
    std::uint64_t needs = 0;  // the ordinal that must be stored before the call leaves
    bool sent = false;
    UnitId callee = 0;
};
// The answer is here; the runtime is to go on with it.
struct Answered {
    std::uint32_t n = 0;
    std::int32_t code = 0;
    Bytes payload;
};

// An answer held back until everything it may have seen is stored.
struct Output {
    Waiting waiting;
    std::uint64_t needs = 0;  // the ordinal of the last entry that must be stored first
    ReplyOut reply;
    std::vector<SocketWish> sockets;
    Bulk::Held held;  // reply's large body
};

// An entry not stored yet. `ordinal` counts the entries of this hold in memory; seq is given when it is sent.
struct PendingEntry {
    std::uint64_t ordinal = 0;
    LogEntry entry;
    std::size_t bytes = 0;
    std::size_t parts = 1;  // events merged into it
    bool hinted = false;    // its alarm is in the index
};

// On its way to another node (hand_over.cpp).
struct HandOver {
    bool job = false;  // its sockets have ended: what comes now waits behind
    Time by = 0;       // it stays for now when that has not ended by then
};

struct Unit {
    UnitId id = 0;
    std::string key;  // escaped
    std::size_t class_index = 0;
    std::string name;

    Hold hold = Hold::Idle;
    Memory memory = Memory::Cold;
    std::uint64_t epoch = 0;
    std::string hold_etag;
    HoldRecord record;
    WriteId hold_write;
    OpId store_op = 0;  // the one hold, list or seal request that is open, 0 = none
    unsigned seal_tries = 0;
    unsigned hold_tries = 0;
    bool awaits_peer = false;  // Acquiring: until it is known whether its owner lives
    std::string owner;         // another node, as it was found last
    Time owner_until = 0;      // until then it is not looked up again
    std::size_t peer_calls = 0;  // events that were passed on and are not answered

    // The log. next_seq is the slot of the next entry to be sent; 0: not known yet.
    std::uint64_t next_seq = 0;
    std::uint64_t base_seq = 0;
    std::uint64_t compacted_to = 0;  // the base whose cover was turned into garbage already
    std::size_t entries_since_base = 0;
    std::size_t bytes_since_base = 0;
    std::size_t base_bytes =
        0;  // of the newest base; what it may have grown to when a later one was put off
    bool sealed = false;
    std::uint64_t prior_incarnation = 0;  // the one our seal fences, 0 = none
    std::string prior_node;               // and whose
    // Above every incarnation that can be recorded as reaped.
    static constexpr std::uint64_t kOthersIncarnation = UINT64_MAX;
    struct Slot {
        std::uint64_t seq = 0;
        bool seal = false;
        std::uint64_t sealed_incarnation = 0;  // kOthersIncarnation: of a node we cannot speak for
    };
    std::deque<Slot> slots;             // keys present in the log, ascending
    std::deque<std::uint64_t> garbage;  // covered by a base, to be deleted
    bool deleting = false;              // one Delete at once: compaction is no reason to hurry
    Fold stored;                        // what the stored entries say; a base carries it
    // What those say that are not stored yet, for the decisions of later events.
    std::optional<EntryAlarm> alarm;               // as the last event left it
    std::map<std::string, std::uint64_t> applied;  // marks not stored yet
    // Marks that nobody asks for any more, while no stored entry says so: without that each load would bring them back, until
    // no new sender finds room. As many as there may be marks.
    std::map<std::string, std::uint64_t> settled_marks;
    std::optional<Hint> outbox_hint;  // announces the outbox to whoever starts next
    // By target the number of the message that is offered; one for each at once, so that they are applied in order. Over
    // once it is stored that it is done: until then Units::messages_ knows no more of it.
    std::map<std::string, std::uint64_t> offers;
    std::vector<std::pair<std::string, std::uint64_t>> done;  // applied, not in an entry yet

    std::deque<PendingEntry> pending;  // front is the open commit when commit_op != 0
    OpId commit_op = 0;
    std::uint64_t last_ordinal = 0;
    std::uint64_t stored_ordinal = 0;
    std::size_t pending_bytes = 0;

    // A load under way.
    std::vector<std::uint64_t> to_fetch;
    std::size_t fetches_open = 0;
    std::uint64_t load = 0;  // counts loads: answers of an abandoned one are dropped
    std::map<std::uint64_t, LogEntry> fetched;
    std::string list_after;
    std::size_t load_bytes = 0;        // of what was listed
    std::vector<StoredChanges> image;  // what Activate still has to carry
    std::size_t image_next = 0;
    std::uint32_t image_part = 0;

    // Where it lives.
    Handle runtime;
    std::list<UnitId>::iterator resident_position;  // in the runtime's order, while it has one
    bool placing = false;
    std::uint64_t activation = 0;
    OpId runtime_op = 0;  // the one open Activate, Deliver or Checkpoint
    bool checkpointing = false;
    bool in_state_room = false;  // in Units::states_, with room or in line
    bool queued_for_runtime = false;

    std::optional<Mail> running;
    std::optional<Parked> parked;      // running waits for a call
    std::optional<Answered> answered;  // its answer, not sent yet
    bool restored = false;             // it is to hear of its new owner first
    std::size_t sockets = 0;           // open ones, and those whose end waits to be told again
    std::deque<Mail> mailbox;
    std::size_t mailbox_bytes = 0;
    std::optional<HandOver> handing;
    std::deque<Mail> behind;  // came after its hand-over began, and goes where the hold goes
    Time hand_over_at = 0;    // not before
    std::deque<Output> outputs;
    bool gate_held = false;  // in Units::held_gates_

    // Leaving the runtime's memory (leave.cpp).
    std::optional<StopReason> leaving;  // at its next pause, after its Stop if it wants one
    bool wants_stop = false;            // as this activation said
    bool stop_over = false;             // its Stop has ended: this activation runs nothing more
    bool stop_counted = false;          // in Units::stops_open_
    bool release_after = false;         // hold_idle has passed while it was leaving
    std::uint8_t stop_deaths = 0;       // runtimes that died of a fault in its Stop
    // Runtimes that died of a fault while they loaded it, and while they wrote its base; kPoisonDeaths at most. Then it is not
    // loaded, or goes on without a base, until the times below.
    std::uint8_t load_deaths = 0;
    std::uint8_t base_deaths = 0;
    Time no_load_until = 0;
    Time no_base_until = 0;
    Time room_by = 0;  // until then a place is waited for that a Stop makes free; 0: it has one
    std::list<UnitId>::iterator warm_position;  // in Units::warm_, while it has a runtime
    Time warm_since = 0;

    std::list<UnitId>::iterator idle_position;
    bool in_idle_list = false;
    std::uint32_t pumping = 0;  // pump()s that it is in: it may not be forgotten
    Time last_active = 0;
    bool counted_unsettled = false;  // in Units::unsettled_

    [[nodiscard]] bool has_work() const { return running.has_value() || !mailbox.empty(); }
    [[nodiscard]] bool settled() const { return pending.empty() && commit_op == 0; }
};

}  // namespace hf::core
