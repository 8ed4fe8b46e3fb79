// Holds: acquire, fence, release (part of Units). A hold changes only by conditional writes of its record; every
// transition to held is epoch + 1, and the record is never deleted.
#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/hex.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr unsigned kHoldTries =
    5;  // lost races in a row before the waiting events are told to come back

std::string text_of(const WriteId& id) {
    return hex(id.hi) + hex(id.lo);
}
}  // namespace

void Units::acquire(Unit& unit) {
    unit.hold = Hold::Acquiring;
    ++env_.stats.acquires;
    // Beside the look at its record, where it is sure to be ours.
    if (!unit.runtime.valid() && env_.config.lease.none()) want_place(unit);
    unit.store_op =
        store_.get(key::hold(env_.config.app, unit.key), [this, id = unit.id](StoreAnswer& answer) {
            if (Unit* found = unit_of(id)) hold_read(*found, answer);
        });
}

void Units::acquire_failed(Unit& unit, const std::string& why) {
    unit.hold = Hold::Idle;
    unit.store_op = 0;
    unit.hold_tries = 0;
    env_.note(NoteLevel::Warn, "units", unit.key + ": the hold was not acquired: " + why);
    refuse_waiting(
        unit, ReplyReason::Unavailable, "the actor's record could not be acquired: " + why);
}

void Units::hold_read(Unit& unit, StoreAnswer& answer) {
    unit.store_op = 0;
    if (unit.hold != Hold::Acquiring) return;
    HoldRecord record;
    Condition condition = Condition::IfAbsent;
    if (answer.outcome == Outcome::Applied) {
        auto decoded = env_.codec.decode_hold(answer.body);
        if (!decoded)
            return acquire_failed(unit, "its stored form is damaged: " + decoded.error().message);
        record = std::move(decoded).value();
        condition = Condition::IfMatch;
        const bool ours = record.owner == env_.config.node_id && record.incarnation == incarnation_;
        if (record.state == HoldState::Held && ours) {
            // Forgotten while idle; the seal of this epoch is in the log already.
            unit.record = record;
            unit.hold_etag = answer.etag;
            unit.epoch = record.epoch;
            unit.sealed = true;
            unit.next_seq = 0;
            unit.hold = Hold::Serving;
            unit.memory = Memory::Cold;
            return pump(unit);
        }
        if (record.state == HoldState::Held && !may_take(unit, record)) return;
        unit.prior_incarnation = record.incarnation;
        unit.prior_node = record.owner;
    } else if (answer.outcome != Outcome::NotFound) {
        return acquire_failed(unit, answer.reason);
    }
    const std::string peer = drain_.on() ? chosen_peer(unit.key) : std::string();
    if (!peer.empty()) return elsewhere(unit, peer, To::Chosen);
    ++record.epoch;
    record.state = HoldState::Held;
    record.owner = env_.config.node_id;
    record.incarnation = incarnation_;
    unit.hold_write = env_.new_write_id();
    record.nonce = text_of(unit.hold_write);
    unit.record = record;
    unit.store_op = store_.put(key::hold(env_.config.app, unit.key),
                               env_.codec.encode(record),
                               condition,
                               answer.etag,
                               unit.hold_write,
                               [this, id = unit.id](StoreAnswer& stored) {
                                   if (Unit* found = unit_of(id)) hold_written(*found, stored);
                               });
}

// Whether a hold of somebody else may be taken: only of a dead incarnation (R4). False: the unit waits, or is elsewhere.
bool Units::may_take(Unit& unit, const HoldRecord& record) {
    // With the store locked for this process alone, all others are dead; and so are our own older incarnations.
    if (env_.config.lease.none() || record.owner == env_.config.node_id) return true;
    switch (peers_.standing(record.owner, record.incarnation)) {
        case Peers::Standing::Gone:
            ++env_.stats.taken_over;
            return true;
        case Peers::Standing::Alive:
            elsewhere(unit, record.owner, To::Owner);
            return false;
        case Peers::Standing::Unknown:
            break;
    }
    if (++unit.hold_tries >= kHoldTries) {
        acquire_failed(unit, "nothing can be learned of node " + record.owner + ", which has it");
        return false;
    }
    unit.awaits_peer = true;
    awaiting_peers_.push_back(unit.id);
    peers_.look(record.owner, record.incarnation);
    return false;
}

void Units::peers_changed() {
    for (const UnitId id : std::exchange(awaiting_peers_, {})) {
        Unit* unit = unit_of(id);
        if (unit == nullptr || !std::exchange(unit->awaits_peer, false)) continue;
        if (unit->hold == Hold::Acquiring && unit->store_op == 0) acquire(*unit);
    }
    peers_of_dead_nodes_gone();
    control_changed();  // somebody may be there now who takes what this node gives away
}

void Units::hold_written(Unit& unit, StoreAnswer& answer) {
    unit.store_op = 0;
    if (answer.outcome == Outcome::PreconditionFailed && ++unit.hold_tries < kHoldTries)
        return acquire(unit);
    if (answer.outcome != Outcome::Applied)
        return acquire_failed(
            unit, answer.reason.empty() ? "the record changes all the time" : answer.reason);
    alarms_to_hand_.erase(unit.key);  // its alarm is its own again
    unit.hold_tries = 0;
    unit.hold_etag = answer.etag;
    unit.epoch = unit.record.epoch;
    unit.restored = unit.epoch > 1;
    unit.sealed = false;
    unit.next_seq = 0;
    unit.hold = Hold::Serving;
    unit.memory = Memory::Cold;
    // Whoever waited was told to come back meanwhile: a hold that nobody wants is given back, not kept unsealed.
    if (!unit.has_work()) return release(unit);
    pump(unit);
}

// The store knows another owner: stop at once, kill the context, write nothing more.
void Units::fence(Unit& unit, const std::string& why) {
    ++env_.stats.fenced;
    env_.note(NoteLevel::Error, "units", unit.key + ": fenced: " + why);
    unit.hold = Hold::Fenced;
    undo(unit, "the actor has another owner");
    forget_hold(unit);
    hand_over_ended(unit, true);
    refuse_waiting(unit, ReplyReason::Unavailable, "the actor has another owner");
    pump(unit);  // nothing is pending any more, which a stopping node waits for
}

// The lease on which it hung is gone. What is open at the store may be applied or not, and nobody is told.
void Units::lose_hold(Unit& unit, const std::string& why) {
    const bool entry_open =
        unit.commit_op != 0 && !unit.pending.empty() && !unit.pending.front().entry.write_id.none();
    const std::uint64_t in_doubt = entry_open ? unit.pending.front().ordinal : 0;
    store_.abandon(std::exchange(unit.store_op, 0));
    store_.abandon(std::exchange(unit.commit_op, 0));
    unit.awaits_peer = false;
    unit.hold_tries = 0;
    ++unit.load;  // fetches of a load under way are nobody's
    unit.fetches_open = 0;
    unit.fetched.clear();
    unit.to_fetch.clear();
    unit.hold = Hold::Fenced;
    undo(unit, why, in_doubt);
    forget_hold(unit);
    look_at_room(unit);
    hand_over_ended(unit, true);
    refuse_waiting(unit, ReplyReason::Unavailable, why);
    pump(unit);
}

// What a hold knew is the new owner's from here on.
void Units::forget_hold(Unit& unit) {
    unit.hold = Hold::Idle;
    unit.memory = Memory::Cold;
    unit.sealed = false;
    unit.restored = false;
    unit.next_seq = 0;
    unit.slots.clear();
    unit.garbage.clear();
    unit.stored = {};
    unit.alarm.reset();
    forget_offers(unit);
    unit.done.clear();
    unit.settled_marks.clear();
    unit.outbox_hint.reset();
}

void Units::released(Unit& unit, const StoreAnswer& answer) {
    unit.store_op = 0;
    if (answer.outcome == Outcome::Refused) {
        unit.record.state = HoldState::Held;
        unit.hold = Hold::Serving;
        if (unit.handing) return hand_over_ended(unit, false);
        return pump(unit);
    }
    if (answer.outcome != Outcome::Applied)
        env_.note(NoteLevel::Warn, "units", unit.key + ": superseded while it was being released");
    const auto alarm = unit.stored.alarm;
    forget_hold(unit);
    if (unit.handing) {
        const UnitId id = unit.id;
        const bool free = answer.outcome == Outcome::Applied;
        if (alarm && free) hand_alarm({unit.key, alarm->due_ms, alarm->nonce, 1});
        hand_over_ended(unit, true);
        if (unit_of(id) == nullptr) return;
    }
    if (unit.has_work()) return pump(unit);
    if (!unit.deleting && !unit.placing && unit.peer_calls == 0 && unit.pumping == 0) forget(unit);
}

void Units::control_changed() {
    drain_.wanted(control_.drains(env_.config.node_id));
}

void Units::lease_lost(const std::string& why) {
    lost_ = true;
    drain_.forget();
    alarms_to_hand_.clear();
    incarnation_ = 0;
    alarms_.forget();
    std::vector<UnitId> all;
    for (const auto& [id, unit] : units_) all.push_back(id);
    std::sort(all.begin(), all.end());  // the map's order is nobody's business
    for (const UnitId id : all) {
        Unit* unit = unit_of(id);
        if (unit == nullptr) continue;
        close_sockets(*unit);
        lose_hold(*unit, "the node lost its lease: " + why);
    }
}

void Units::release(Unit& unit) {
    HF_CHECK(unit.settled() && !unit.running,
             "release needs the proof of stop: nothing runs, nothing is open");
    unit.hold = Hold::Releasing;
    leave_runtime(unit, true);
    unit.memory = Memory::Cold;
    HoldRecord record = unit.record;
    record.state = HoldState::Free;
    record.nonce = text_of(unit.hold_write = env_.new_write_id());
    unit.record = record;
    unit.store_op = store_.put(key::hold(env_.config.app, unit.key),
                               env_.codec.encode(record),
                               Condition::IfMatch,
                               unit.hold_etag,
                               unit.hold_write,
                               [this, id = unit.id](StoreAnswer& answer) {
                                   if (Unit* found = unit_of(id)) released(*found, answer);
                               });
}

}  // namespace hf::core
