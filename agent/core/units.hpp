// Everything about units: admission, holds, loads, running events, the unit log and its output gate, deadlines.
//
// The rules, with their sources in docs/architecture.md ("what keeps a write"):
//  - a unit runs one event at a time and may run ahead of the store by a bound; one commit per unit is open;
//  - an output leaves in event order, once the changes of its own and of all earlier events are stored;
//  - only one Delivered of a live activation is accepted; a retired activation's messages are dropped;
//  - after a refused or fenced commit everything after the last stored entry is undone, clients hear 503;
//  - a runtime's death leaves the hold alone: settle, list, activate anew, run the open event again.
// One file per concern: admit.cpp, hold.cpp, load.cpp, run.cpp, commit.cpp.
#pragma once

#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/core/env.hpp"
#include "agent/core/events.hpp"
#include "agent/core/placer.hpp"
#include "agent/core/store_client.hpp"
#include "agent/core/supervision.hpp"
#include "agent/core/unit.hpp"

namespace hf::core {

class Units {
public:
    Units(Env& env, StoreClient& store, Supervision& supervision);

    // The node is known to the store under this incarnation: units may be acquired from now on.
    // Seals that fence an incarnation <= reaped may be compacted away.
    void open(std::uint64_t incarnation, std::uint64_t reaped);
    // Nothing new is admitted; what was accepted goes on.
    void close() { closing_ = true; }
    // Nothing accepted is unanswered and nothing executed is unstored.
    [[nodiscard]] bool quiet() const { return accepted_ == 0 && unsettled_ == 0; }

    void request(const RequestIn& request);
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

    void tick();
    [[nodiscard]] Time next_deadline() const;

    [[nodiscard]] std::size_t size() const { return units_.size(); }
    [[nodiscard]] std::size_t accepted_open() const { return accepted_; }
    [[nodiscard]] const std::unordered_map<UnitId, std::unique_ptr<Unit>>& all() const {
        return units_;
    }
    [[nodiscard]] std::uint32_t resident_on(Handle runtime) const;
    [[nodiscard]] const std::string& class_name(const Unit& unit) const {
        return env_.config.classes[unit.class_index].name;
    }
    void set_placer(Placer& placer) { placer_ = &placer; }

private:
    struct RuntimeLoad {
        std::uint32_t resident = 0;  // units placed there, those on their way included
        std::uint32_t inflight = 0;  // open Activate, Deliver, Checkpoint
        std::deque<UnitId> ready;    // units with something to send, waiting for a place in flight
        std::deque<std::uint64_t>
            drops;                   // activations that left, waiting likewise; at most one a unit
        std::uint32_t capacity = 0;  // units it may hold
        std::list<UnitId> order;     // those placed there, least recently active first
        bool retiring = false;
    };

    enum class RuntimeAsk : std::uint8_t { Activate, Deliver, Checkpoint, Drop };
    struct RuntimeOp {
        UnitId unit = 0;
        Handle runtime;
        RuntimeAsk ask = RuntimeAsk::Drop;
        std::uint64_t activation = 0;
    };

    // admit.cpp
    void refuse(const RequestIn& request,
                ReplyReason reason,
                std::string text,
                std::uint32_t retry_ms = 1000);
    Unit* find_or_make(std::size_t class_index, const std::string& key, const std::string& name);
    bool forget_one_idle();
    [[nodiscard]] bool at_rest(const Unit& unit) const;
    void forget(Unit& unit);
    void answer(Waiting& waiting, ReplyOut reply);
    void emit_reply(ReplyOut reply);
    void forget_waiting(Waiting& waiting);
    void arm_deadline(Unit& unit, Mail& mail);
    void deadline_passed(const DeadlineEntry& entry);
    void touch(Unit& unit);
    [[nodiscard]] Unit* unit_of(UnitId id);
    void refuse_waiting(Unit& unit, ReplyReason reason, const std::string& text);

    // The one driver: looks at what a unit has to do next and does it. Safe to call at any time.
    void pump(Unit& unit);

    // hold.cpp
    void acquire(Unit& unit);
    void hold_read(Unit& unit, StoreAnswer& answer);
    void hold_written(Unit& unit, StoreAnswer& answer);
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
    void want_place(Unit& unit);
    void make_room(RuntimeLoad& load, std::uint32_t resident_max);
    void queue_for_runtime(Unit& unit);
    void feed(Handle runtime);
    void send_drops(Handle runtime, RuntimeLoad& load);
    void send_next(Unit& unit);
    [[nodiscard]] OpId open_runtime_op(Unit& unit, RuntimeAsk ask);
    [[nodiscard]] Unit* close_runtime_op(OpId op,
                                         Handle from,
                                         RuntimeAsk ask,
                                         std::uint64_t activation);
    [[nodiscard]] bool end_runtime_op(
        OpId op, Handle from, RuntimeAsk ask, std::uint64_t activation, RuntimeOp& was);
    void leave_runtime(Unit& unit, bool tell_runtime);
    void go_cold(Unit& unit, bool tell_runtime);
    void put_output(Unit& unit, const Mail& mail, ReplyOut reply);
    void requeue_running(Unit& unit);

    // commit.cpp
    void append_changes(Unit& unit, Bytes changes);
    void append_base(Unit& unit, Bytes base);
    void commit(Unit& unit);
    void committed(Unit& unit, StoreAnswer& answer);
    void open_gate(Unit& unit);
    void undo(Unit& unit, const std::string& why);
    void compact(Unit& unit);

    Env& env_;
    StoreClient& store_;
    Supervision& supervision_;
    Placer* placer_ = nullptr;
    std::unordered_map<UnitId, std::unique_ptr<Unit>> units_;
    std::unordered_map<std::string, UnitId> by_key_;
    std::map<Handle, RuntimeLoad> runtimes_;
    std::unordered_map<OpId, RuntimeOp> runtime_ops_;
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
};

}  // namespace hf::core
