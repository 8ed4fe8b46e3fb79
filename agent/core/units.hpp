// Everything about units: admission, holds, loads, running events, the unit log and its output gate, deadlines.
//
// The rules, with their sources in docs/architecture.md ("what keeps a write"):
//  - a unit runs one event at a time and may run ahead of the store by a bound; one commit per unit is open;
//  - an output leaves in event order, once the changes of its own and of all earlier events are stored; one with messages to
//    sockets waits for its gateway's room as well;
//  - only one Delivered of a live activation is accepted; a retired activation's messages are dropped;
//  - after a refused or fenced commit everything after the last stored entry is undone, clients hear 503;
//  - a runtime's death leaves the hold alone: settle, list, activate anew, run the open event again.
//  - what another node holds is passed on to it, once; what a dead one held is taken, and sealed before anything else;
//   - a call leaves once what came before its event is stored; its event is parked, and its unit runs nothing else;
//  - a message to another unit leaves once it is stored with its sender, and is applied once by its number;
//  - a request for later is in the journal before its client hears so, and is applied once by its number;
//  - an alarm fires through the index; only the unit's own log says whether it still stands;
//  - who wants a Stop leaves memory after it, with what it wrote stored, and runs nothing else in that activation.
// One file per concern: admit.cpp, answers.cpp, hold.cpp, load.cpp, run.cpp, leave.cpp, commit.cpp, bases.cpp, calls.cpp, messages.cpp, later.cpp,
// wakes.cpp, socket_events.cpp, pass_on.cpp, hand_over.cpp.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/core/alarms.hpp"
#include "agent/core/bulk.hpp"
#include "agent/core/control.hpp"
#include "agent/core/drain.hpp"
#include "agent/core/env.hpp"
#include "agent/core/events.hpp"
#include "agent/core/journal.hpp"
#include "agent/core/offers.hpp"
#include "agent/core/peers.hpp"
#include "agent/core/placer.hpp"
#include "agent/core/ready_lines.hpp"
#include "agent/core/sockets.hpp"
#include "agent/core/state_room.hpp"
#include "agent/core/store_client.hpp"
#include "agent/core/supervision.hpp"
#include "agent/core/unit.hpp"

namespace hf::core {

// Runtimes that died of a fault on one event before it is failed.
inline constexpr std::uint8_t kPoisonDeaths = 3;

class Units {
public:
    // `says`: the node's state, for its record.
    Units(Env& env,
          StoreClient& store,
          Supervision& supervision,
          Peers& peers,
          Control& control,
          std::function<void(Drain::State)> says);

    // The node is known to the store under this incarnation: units may be acquired from now on.
    // Seals that fence an incarnation <= reaped may be compacted away.
    void open(std::uint64_t incarnation, std::uint64_t reaped);
    // The incarnation is over. Nothing is held, run or written from here on; what had not come to be stored is answered so,
    // and what nobody can know of as well. open() follows when the node has come back.
    void lease_lost(const std::string& why);
    // The standing of another node may have changed.
    void peers_changed();
    // What operators ask for has changed.
    void control_changed();
    void peer_replied(PeerRepliedIn& event);
    // Nothing new is admitted; what was accepted goes on.
    void close() {
        closing_ = true;
        alarms_.close();
        journal_.close();
    }
    // After close() and once quiet: every unit in memory that wants its Stop gets it, a bounded number at a time, each until
    // `by` at the latest. Asked again after every step; true when all have left.
    [[nodiscard]] bool stop_residents(Time by);
    // Nothing accepted is unanswered and nothing executed is unstored.
    [[nodiscard]] bool quiet() const {
        return accepted_ == 0 && unsettled_ == 0 && journal_.quiet();
    }

    // Limits or classes are others now.
    void config_changed();

    void request(const RequestIn& request);
    void journal_loaded(JournalLoaded& event) { journal_.loaded(std::move(event)); }
    void journal_appended(const JournalAppended& event) { journal_.appended(event); }
    void journal_removed(const JournalRemoved& event) { journal_.removed(event); }
    void socket_opened(const SocketOpenedIn& event);
    void socket_message(SocketMessageIn& event);
    void socket_closed(const SocketClosedIn& event);
    void gateway_room(const GatewayRoomIn& event);
    void gateway_gone(Handle gateway);
    void body_released(const BodyReleasedIn& event);
    void activated(const ActivatedIn& event);
    void delivered(DeliveredIn& event);
    void checkpointed(CheckpointedIn& event);
    void dropped(const DroppedIn& event);
    void placed(UnitId unit, std::optional<Handle> where, const std::string& why_not);
    // Where a unit may be placed now; a full runtime lets go of an idle unit for it.
    [[nodiscard]] std::vector<Candidate> offer();

    void runtime_serving(Handle runtime);
    void runtime_retiring(Handle runtime);
    void runtime_gone(const Gone& gone);
    void no_runtime_left();

    void tick();
    // To be called at the end of each step.
    void settle_rooms();
    [[nodiscard]] Time next_deadline() const;

    [[nodiscard]] std::size_t size() const { return units_.size(); }
    [[nodiscard]] std::size_t accepted_open() const { return accepted_; }
    [[nodiscard]] const Alarms& alarms() const { return alarms_; }
    [[nodiscard]] const Journal& journal() const { return journal_; }
    [[nodiscard]] const Bulk& bulk() const { return bulk_; }
    [[nodiscard]] const StateRoom& states() const { return states_; }
    [[nodiscard]] std::size_t sockets() const { return sockets_.size(); }
    [[nodiscard]] std::size_t passed_on_open() const { return peer_ops_.size(); }
    [[nodiscard]] const Drain& drain() const { return drain_; }
    [[nodiscard]] const std::unordered_map<UnitId, std::unique_ptr<Unit>>& all() const {
        return units_;
    }
    // By class/name; nullptr: not known here.
    [[nodiscard]] const Unit* find(const std::string& full) const;
    [[nodiscard]] std::uint32_t resident_on(Handle runtime) const;
    [[nodiscard]] const std::string& class_name(const Unit& unit) const {
        return env_.config.classes[unit.class_index].name;
    }
    // As a guest names it: class/name.
    [[nodiscard]] std::string full_name(const Unit& unit) const {
        return class_name(unit) + "/" + unit.name;
    }
    void set_placer(Placer& placer) { placer_ = &placer; }

private:
    struct RuntimeLoad {
        std::uint32_t resident = 0;  // units placed there, those on their way included
        std::uint32_t inflight = 0;  // open Activate, Deliver, Checkpoint
        ReadyLines ready;            // who waits for a place in flight
        std::deque<std::uint64_t>
            drops;                   // activations that left, waiting likewise; at most one a unit
        std::uint32_t capacity = 0;  // units it may hold
        std::list<UnitId> order;     // those placed there, least recently active first
        bool retiring = false;
        std::uint32_t stops = 0;  // of the resident, those that leave after their Stop
        std::list<UnitId>
            crowded;  // of the resident, those that wait for such a place; at most `stops`
    };

    enum class RuntimeAsk : std::uint8_t { Activate, Deliver, Checkpoint, Drop };
    struct RuntimeOp {
        UnitId unit = 0;
        Handle runtime;
        RuntimeAsk ask = RuntimeAsk::Drop;
        std::uint64_t activation = 0;
        std::size_t class_index = 0;  // but of a Drop, which is nobody's any more
        Time since = 0;
    };

    // An event that was passed on to the node that holds its actor.
    struct PeerOp {
        UnitId unit = 0;  // 0: nobody waits for the answer
        Waiting waiting;
        Bulk::Held held;  // its large body
        Handle gateway;
        std::string node;
        std::uint64_t incarnation = 0;  // of the node, as it was known
        bool chosen = false;  // it is not known to hold the unit: it was chosen to take it
        std::optional<Hint> alarm = std::nullopt;  // it is to arm this one
    };
    // An alarm of a unit that was given away, until another node has armed it.
    struct LeftAlarm {
        Hint hint;
        Time at = 0;  // of the next try
        OpId op = 0;  // the try that is open
    };

    // hand_over.cpp
    [[nodiscard]] std::vector<std::string> eligible_peers() const;
    [[nodiscard]] std::string chosen_peer(const std::string& unit) const;
    void suspect(const std::string& node);
    [[nodiscard]] std::vector<UnitId> next_to_hand_over(std::size_t most);
    void hand_over(UnitId id);
    void go_on_handing(Unit& unit);
    void hand_over_ended(Unit& unit, bool gone);
    void take_back_handed();
    void hand_over_tick();
    [[nodiscard]] Time hand_over_deadline() const;
    [[nodiscard]] Drain::Left left_to_drain() const;
    void hand_alarm(const Hint& hint);
    void alarm_handed(const PeerOp& op, PeerOutcome outcome, const ReplyOut& reply);

    // pass_on.cpp
    [[nodiscard]] bool owner_known(const Unit& unit) const;
    // Owner: it holds the unit. Chosen: it is to take it.
    enum class To : std::uint8_t { Owner, Chosen };
    void elsewhere(Unit& unit, const std::string& node, To to);
    void pass_on(Unit& unit, To to);
    [[nodiscard]] bool settle_here(Unit& unit, Mail& mail, To to);
    void ask_node(Unit& unit, Mail mail, Handle gateway, To to);
    [[nodiscard]] PeerCall call_of_peer(Handle gateway, const std::string& node);
    [[nodiscard]] Handle peer_gateway();
    void close_sockets(Unit& unit);
    void peer_ended(PeerOp op, PeerOutcome outcome, ReplyOut reply);
    void peers_of_gateway_gone(Handle gateway);
    void peers_of_dead_nodes_gone();
    void end_unknown(std::vector<OpId> ids, const std::string& why);
    void send_to_peer(PeerCall call, PeerOp op);
    [[nodiscard]] PeerOp op_of_peer(Handle gateway, const std::string& node) const;
    [[nodiscard]] bool peer_deadline_passed(const DeadlineEntry& entry);
    void peer_asks(const RequestIn& request);
    void answer_peer(const FromPeer& peer, ReplyOut reply);
    void forget_owner(Unit& unit);
    void settle_at_owner(const Unit& receiver, const std::string& source, std::uint64_t n);
    void drop_mark_later(const std::string& unit, const std::string& source, std::uint64_t n);
    void drop_marks_due();
    void drop_mark_of(Unit& receiver, const std::string& source, std::uint64_t n);
    [[nodiscard]] bool shard_is_mine(std::uint32_t shard) const;

    // admit.cpp
    [[nodiscard]] const ClassSpec* class_named(const std::string& name) const;
    void refuse(Handle gateway, std::uint64_t req_id, Refusal refusal);
    [[nodiscard]] Time latest(Time deadline) const;
    [[nodiscard]] std::optional<Refusal> no_room_for(const Mail& mail) const;
    // Into the mailbox of the actor named, or why not. `mail` has origin, event, deadline, trace and chain.
    [[nodiscard]] std::optional<Refusal> admit(const std::string& class_name,
                                               const std::string& name,
                                               Mail mail);
    [[nodiscard]] std::optional<Refusal> admit_to(Unit& unit, Mail mail);
    void push(Unit& unit, Mail mail);
    Unit* make_unit(std::size_t class_index, const std::string& key, const std::string& name);
    bool forget_one_idle();
    [[nodiscard]] bool at_rest(const Unit& unit) const;
    void forget(Unit& unit);
    void arm_deadline(Unit& unit, Mail& mail);
    void touch(Unit& unit);
    [[nodiscard]] Unit* unit_of(UnitId id);
    [[nodiscard]] Unit* unit_named(const std::string& key);

    // answers.cpp
    void answer(Unit& unit, Waiting& waiting, ReplyOut reply);
    [[nodiscard]] static std::string shortened(std::string text);
    void emit_reply(ReplyOut reply);
    void forget_waiting(Waiting& waiting);
    void deadline_passed(const DeadlineEntry& entry);
    void refuse_waiting(Unit& unit, ReplyReason reason, const std::string& text);

    // calls.cpp
    void park(Unit& unit, CallWish wish);
    void send_call(Unit& unit);
    void call_ended(const FromCall& call, ReplyOut& reply);
    void call_answered(Unit& unit, std::int32_t code, Bytes payload);
    [[nodiscard]] bool would_wait_for(const Unit& target, UnitId caller) const;
    // The target of `mail` waits in its chain already, or the chain is as long as may be.
    [[nodiscard]] static bool chain_is_closed(const Mail& mail, const std::string& target);

    // messages.cpp
    void offer_messages(Unit& unit);
    [[nodiscard]] Offered offer_message(UnitId sender,
                                        const std::string& target,
                                        const Chance& chance);
    void forget_offers(Unit& unit);
    void message_ended(Unit& receiver, const FromMessage& message, const ReplyOut& reply);
    [[nodiscard]] static OfferEnd offer_end(const FromMessage& message, const ReplyOut& reply);
    void message_done(Unit& sender, const std::string& target, std::uint64_t n);
    void put_done(Unit& unit);
    void messages_settled(Unit& sender, const LogEntry& stored);
    void drop_mark(const std::string& class_name,
                   const std::string& actor,
                   const std::string& source,
                   std::uint64_t n);
    void say_settled(const Unit& unit, LogEntry& entry) const;
    static void settled_stored(Unit& unit, LogEntry& stored);
    void put_settled(Unit& unit);
    [[nodiscard]] bool applied_already(const Unit& unit, const FromMessage& message) const;
    [[nodiscard]] bool room_for_mark(const Unit& unit, const FromMessage& message) const;
    void bury(DeadLetter letter);

    // later.cpp
    void accept_later(const RequestIn& request, const ClassSpec& spec);
    [[nodiscard]] Offered offer_journalled(const JournalItem& item, bool last);
    void journalled_ended(Unit& receiver, const FromMessage& message, const ReplyOut& reply);
    void journal_settled(const JournalItem& item);

    // wakes.cpp
    [[nodiscard]] Alarms::Visit visit(const Hint& hint);
    void visit_ended(Unit& unit, const FromAlarm& alarm, const ReplyOut& reply);
    void erase_hint(const Hint& hint);
    void replace_hint(Unit& unit, Hint old);
    void alarm_stored(Unit& unit, const std::optional<EntryAlarm>& before);
    [[nodiscard]] bool front_needs_no_run(const Unit& unit) const;
    void settle_stale(Unit& unit);
    void announce_restart(Unit& unit);

    // socket_events.cpp
    void open_answered(Unit& unit, const FromSocketOpened& from, ReplyOut reply);
    void opened_late(Unit& unit, const FromSocketOpened& from, const ReplyOut& reply);
    void close_event(Unit& unit, FromSocketClosed closed);
    void close_failed(Unit& unit, FromSocketClosed closed, const ReplyOut& reply);
    void retry_closes();
    void send_sockets(Unit& unit, std::vector<SocketWish>& wishes);
    void send_to_all(Unit& unit, SocketWish& wish);
    void count_sent(Handle gateway, std::size_t connections, std::size_t bytes);
    [[nodiscard]] const Socket* socket_of(const Unit& unit, std::uint64_t number);
    [[nodiscard]] bool waits_for_room(Unit& unit, const Output& output);
    void open_held_gates(Handle gateway);

    // The one driver: looks at what a unit has to do next and does it. Safe to call at any time.
    void pump(Unit& unit);
    void pump_held(Unit& unit);

    // hold.cpp
    void acquire(Unit& unit);
    void hold_read(Unit& unit, StoreAnswer& answer);
    void hold_written(Unit& unit, StoreAnswer& answer);
    [[nodiscard]] bool may_take(Unit& unit, const HoldRecord& record);
    void lose_hold(Unit& unit, const std::string& why);
    void forget_hold(Unit& unit);
    void released(Unit& unit, const StoreAnswer& answer);
    void acquire_failed(Unit& unit, const std::string& why);
    void fence(Unit& unit, const std::string& why);
    void release(Unit& unit);

    // load.cpp
    void start_load(Unit& unit);
    void list_more(Unit& unit);
    void listed(Unit& unit, StoreAnswer& answer);
    void seal(Unit& unit);
    void seal_answered(Unit& unit, StoreAnswer& answer);
    void fetch_more(Unit& unit);
    void fetched(Unit& unit, std::uint64_t seq, StoreAnswer& answer);
    void fold(Unit& unit);
    void load_failed(Unit& unit, const std::string& why);
    void send_activation(Unit& unit);

    // run.cpp
    [[nodiscard]] bool any_runtime_takes() const;
    void want_place(Unit& unit);
    void queue_for_runtime(Unit& unit);
    [[nodiscard]] std::uint32_t class_share() const;
    void feed(Handle runtime);
    void send_drops(Handle runtime, RuntimeLoad& load);
    void send_next(Unit& unit);
    void send_event(Unit& unit, Mail mail);
    [[nodiscard]] OpId open_runtime_op(Unit& unit, RuntimeAsk ask);
    [[nodiscard]] Unit* close_runtime_op(OpId op,
                                         Handle from,
                                         RuntimeAsk ask,
                                         std::uint64_t activation);
    [[nodiscard]] bool end_runtime_op(
        OpId op, Handle from, RuntimeAsk ask, std::uint64_t activation, RuntimeOp& was);
    void send_resume(Unit& unit);
    [[nodiscard]] std::string broken_bound(const Unit& unit, const DeliveredIn& event) const;
    [[nodiscard]] bool may_not_leave(Unit& unit, const Mail& mail, DeliveredIn& event);
    [[nodiscard]] std::string full_outbox(const Unit& unit, const DeliveredIn& event) const;
    [[nodiscard]] LogEntry entry_of(Unit& unit, const Mail& mail, DeliveredIn& event);
    [[nodiscard]] static ReplyOut reply_of(const Mail& mail, DeliveredIn& event);
    void give_up(Unit& unit, const Mail& mail, ReplyOut& reply);
    void mark_poison(Mail& mail);
    void blame(Unit& unit);
    void put_output(Unit& unit,
                    const Mail& mail,
                    ReplyOut reply,
                    std::vector<SocketWish> sockets = {});
    void requeue_running(Unit& unit);
    void watch_answers();

    // leave.cpp
    void leave_runtime(Unit& unit, bool tell_runtime);
    void lose_memory(Unit& unit, bool tell_runtime);
    void go_cold(Unit& unit, bool tell_runtime);
    [[nodiscard]] bool pausing(const Unit& unit) const;
    [[nodiscard]] bool hears_stop(const Unit& unit) const;
    [[nodiscard]] bool stop_begun(const Unit& unit) const;
    void mark_leaving(Unit& unit, StopReason reason);
    void ask_to_leave(Unit& unit, StopReason reason);
    void end_leaving(Unit& unit);
    void leave_when_due(Unit& unit);
    [[nodiscard]] bool stop_is_next(const Unit& unit) const;
    void send_stop(Unit& unit);
    void stop_ended(Unit& unit, Mail& mail);
    void stop_lost(Unit& unit, Mail& mail);
    void stop_late(Unit& unit);
    void make_room(RuntimeLoad& load, std::uint32_t resident_max);
    void settle_in(Unit& unit, RuntimeLoad& load);
    void give_room(RuntimeLoad& load);
    void refuse_crowded();
    [[nodiscard]] Time evict_after(std::size_t class_index) const;
    void evict_idle();

    // commit.cpp
    void append(Unit& unit, LogEntry part);
    void append_base(Unit& unit, Bytes base);
    void commit(Unit& unit);
    [[nodiscard]] bool put_hint(Unit& unit, PendingEntry& first);
    void committed(Unit& unit, StoreAnswer& answer);
    // With Room::Any what is stored leaves whether or not its gateway has room.
    enum class Room : std::uint8_t { Needed, Any };
    void open_gate(Unit& unit, Room room = Room::Needed);
    // What needs entry `in_doubt` may be stored all the same: its client hears that nobody knows. 0: nothing is in doubt.
    void undo(Unit& unit, const std::string& why, std::uint64_t in_doubt = 0);
    void compact(Unit& unit);

    // bases.cpp
    [[nodiscard]] bool base_due(const Unit& unit, std::size_t times) const;
    [[nodiscard]] bool base_overdue(const Unit& unit) const;
    [[nodiscard]] bool wants_base(Unit& unit);
    [[nodiscard]] static std::size_t base_bytes_at_most(const Unit& unit);
    void put_off_base(Unit& unit, const std::string& why);
    [[nodiscard]] bool room_for_state(Unit& unit, std::size_t bytes);
    void look_at_room(const Unit& unit);
    [[nodiscard]] bool needs_room(const Unit& unit) const;

    Env& env_;
    StoreClient& store_;
    Supervision& supervision_;
    Peers& peers_;
    Control& control_;
    Drain drain_;
    std::vector<UnitId> handing_;                      // units on their way to another node
    std::map<std::string, LeftAlarm> alarms_to_hand_;  // by unit
    std::map<std::string, Time> suspects_;  // nodes that failed to take something, until when
    Placer* placer_ = nullptr;
    Alarms alarms_;
    Journal journal_;
    Sockets sockets_;
    std::deque<UnitId>
        held_gates_;  // units whose next output waits for a gateway's room; each once
    Bulk bulk_;
    StateRoom states_;
    std::vector<UnitId> room_looks_;                   // units that may need their room no longer
    Offers<std::pair<UnitId, std::string>> messages_;  // by sender and target
    std::multimap<Time, std::pair<UnitId, FromSocketClosed>> closes_later_;
    std::unordered_map<OpId, PeerOp> peer_ops_;
    std::vector<UnitId> awaiting_peers_;  // units that wait for news of their owner
    // Marks whose source is done with them; while a call of before may still be on its way, they stay.
    struct OldMark {
        std::string unit;
        std::string source;
        std::uint64_t n = 0;
    };
    std::multimap<Time, OldMark> old_marks_;
    std::unordered_map<UnitId, std::unique_ptr<Unit>> units_;
    std::unordered_map<std::string, UnitId> by_key_;
    std::map<Handle, RuntimeLoad> runtimes_;
    std::unordered_map<OpId, RuntimeOp> runtime_ops_;
    Time answers_look_ = 0;   // the next one at the oldest of them
    std::list<UnitId> idle_;  // least recently active first
    DeadlineList deadlines_;  // ascending
    UnitId last_unit_ = 0;
    std::uint64_t last_event_ = 0;
    std::uint64_t last_activation_ = 0;
    std::uint64_t incarnation_ = 0;
    std::uint64_t reaped_ = 0;
    std::size_t accepted_ = 0;
    std::size_t accepted_bytes_ = 0;
    std::size_t unsettled_ = 0;  // units with a pending or open entry
    bool closing_ = false;
    bool lost_ = false;  // the lease; until open()
    // By class: the units that have a runtime, least recently active first.
    std::vector<std::list<UnitId>> warm_;
    std::size_t warm_count_ = 0;
    Time evict_next_ = kNever;      // nothing is idle for long enough before that
    bool evict_waiting_ = false;    // for the end of one of the Stops that are open
    std::uint32_t stops_open_ = 0;  // units that leave after their Stop
    std::deque<UnitId> to_stop_;    // of a node that stops: those not asked yet
    Time stop_by_ = kNever;
};

}  // namespace hf::core
