// Holds: acquire, fence, release (part of Units). A hold changes only by conditional writes of its record; every
// transition to held is epoch + 1, and the record is never deleted.
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
    if (!unit.runtime.valid()) want_place(unit);
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
        // Held by an older incarnation, or by another id: with the store locked for this process alone, both are dead.
        unit.prior_incarnation = record.incarnation;
        unit.prior_node = record.owner;
    } else if (answer.outcome != Outcome::NotFound) {
        return acquire_failed(unit, answer.reason);
    }
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

void Units::hold_written(Unit& unit, StoreAnswer& answer) {
    unit.store_op = 0;
    if (answer.outcome == Outcome::PreconditionFailed && ++unit.hold_tries < kHoldTries)
        return acquire(unit);
    if (answer.outcome != Outcome::Applied)
        return acquire_failed(
            unit, answer.reason.empty() ? "the record changes all the time" : answer.reason);
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
    unit.hold = Hold::Idle;
    unit.sealed = false;
    unit.next_seq = 0;
    unit.slots.clear();
    unit.garbage.clear();
    // The new owner's from here on.
    unit.stored = {};
    unit.alarm.reset();
    forget_offers(unit);
    unit.done.clear();
    unit.outbox_hint.reset();
    refuse_waiting(unit, ReplyReason::Unavailable, "the actor has another owner");
    pump(unit);  // nothing is pending any more, which a stopping node waits for
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
    unit.store_op =
        store_.put(key::hold(env_.config.app, unit.key),
                   env_.codec.encode(record),
                   Condition::IfMatch,
                   unit.hold_etag,
                   unit.hold_write,
                   [this, id = unit.id](StoreAnswer& answer) {
                       Unit* found = unit_of(id);
                       if (found == nullptr) return;
                       found->store_op = 0;
                       if (answer.outcome == Outcome::Refused) {
                           found->record.state = HoldState::Held;
                           found->hold = Hold::Serving;
                           return pump(*found);
                       }
                       if (answer.outcome != Outcome::Applied)
                           env_.note(NoteLevel::Warn,
                                     "units",
                                     found->key + ": superseded while it was being released");
                       found->hold = Hold::Idle;
                       found->sealed = false;
                       found->slots.clear();
                       if (found->has_work()) return pump(*found);
                       if (!found->deleting && !found->placing) forget(*found);
                   });
}

}  // namespace hf::core
