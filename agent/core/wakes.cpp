// Visits that the alarm index asks for: whether the alarm still stands, what becomes of its hint (part of Units).
//
// A hint is stored before the entry that sets its alarm, and deleted after the entry that clears or replaces it: an alarm
// without a hint cannot be, a hint without an alarm is stale and says so when its unit looks.
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

Alarms::Visit Units::visit(const Hint& hint) {
    const auto name = parse_unit(hint.unit);
    // Shards, other tenants' actors and classes that are not deployed now keep their hints for whoever has them.
    if (!name || name->kind != UnitName::Kind::Actor || name->tenant != env_.config.tenant)
        return Alarms::Visit::NotHere;
    Mail mail;
    mail.waiting.origin = FromAlarm{hint.due_ms, hint.nonce};
    mail.event = alarm_event(hint.nonce, hint.due_ms, hint.attempt);
    if (no_room_for(mail)) return Alarms::Visit::NodeFull;
    const auto refusal = admit(name->group, name->name, std::move(mail));
    if (!refusal) return Alarms::Visit::Taken;
    if (refusal->reason == ReplyReason::UnknownClass) return Alarms::Visit::NotHere;
    // Its own mailbox is full, or the node knows as many units as it may.
    return unit_named(hint.unit) != nullptr ? Alarms::Visit::NoRoom : Alarms::Visit::NodeFull;
}

// The shards of the index are divided among the nodes that live, without a word between them.
bool Units::shard_is_mine(std::uint32_t shard) const {
    if (env_.config.lease.none()) return true;
    const std::string subject = "alarms/" + std::to_string(shard);
    // One that gives everything away does not look for more, unless all do.
    std::vector<std::string> names = peers_.living();
    std::erase_if(names, [&](const std::string& node) { return control_.drains(node); });
    if (names.empty()) names = peers_.living();
    return rendezvous(subject, names) == env_.config.node_id;
}

void Units::visit_ended(Unit& unit, const FromAlarm& alarm, const ReplyOut& reply) {
    switch (reply.reason) {
        case ReplyReason::Ok:
            break;
        case ReplyReason::ActorFailed:
        case ReplyReason::ActorLimit:
            if (alarm.poison) return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Poisoned);
            return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Failed);
        default:
            return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Refused);
    }
    alarms_.ended(unit.key, alarm.nonce, Alarms::End::Done);
    // Its own hint went when its entry was stored (alarm_stored); one that names nothing goes now.
    const auto named = [&](const std::optional<EntryAlarm>& by) {
        return by && by->nonce == alarm.nonce;
    };
    if (named(unit.stored.alarm) || named(unit.alarm)) return;
    if (unit.outbox_hint && unit.outbox_hint->nonce == alarm.nonce) return;
    Hint seen{unit.key, alarm.due_ms, alarm.nonce, 1};
    if (unit.stored.outbox.empty() || unit.outbox_hint) return erase_hint(seen);
    replace_hint(unit, std::move(seen));
}

// One that stays after all is found stale by a later visit.
void Units::erase_hint(const Hint& hint) {
    alarms_.removed(hint);
    store_.erase({key::alarm(env_.config.app, hint.unit, hint.due_ms, hint.nonce)},
                 [](StoreAnswer&) {});
}

// The unit was found with an outbox, and nobody knows by which hint: this may be the one, or an alarm's whose deletion is
// under way. Another is put before it goes.
void Units::replace_hint(Unit& unit, Hint old) {
    const Hint fresh{unit.key, env_.wall_ms(), env_.random.next(), 1};
    store_.put(
        key::alarm(env_.config.app, fresh.unit, fresh.due_ms, fresh.nonce),
        {},
        Condition::None,
        "",
        WriteId{},
        [this, id = unit.id, epoch = unit.epoch, old = std::move(old), fresh](StoreAnswer& answer) {
            if (answer.outcome != Outcome::Applied) return;  // the old one stays
            Unit* found = unit_of(id);
            // Its hold was lost meanwhile: whether it has an outbox is not known here. Both stay; a visit finds out.
            const bool same =
                found != nullptr && found->hold == Hold::Serving && found->epoch == epoch;
            if (!env_.config.lease.none() && !same) return;
            if (found != nullptr && !found->stored.outbox.empty() && !found->outbox_hint) {
                found->outbox_hint = fresh;
            } else {
                erase_hint(fresh);
            }
            erase_hint(old);
        });
}

// An entry was stored: the alarm of before is named by nothing any more, and an empty outbox needs no announcement.
void Units::alarm_stored(Unit& unit, const std::optional<EntryAlarm>& before) {
    const std::optional<EntryAlarm>& now = unit.stored.alarm;
    if (before && (!now || now->nonce != before->nonce))
        erase_hint({unit.key, before->due_ms, before->nonce, 1});
    if (!unit.outbox_hint || !unit.stored.outbox.empty()) return;
    for (const PendingEntry& pending : unit.pending)
        if (!pending.entry.outbox.empty()) return;
    erase_hint(*std::exchange(unit.outbox_hint, std::nullopt));
}

// The first event under a new owner says so: what the actor wrote down of connections and the like is of before. Only before
// another one: nobody is brought into memory for it.
void Units::announce_restart(Unit& unit) {
    if (unit.mailbox.empty() || !std::exchange(unit.restored, false)) return;
    Mail& mail = unit.mailbox.emplace_front();
    mail.waiting.origin = FromRestart{};
    mail.waiting.event = ++last_event_;
    ++env_.stats.accepted;
    ++accepted_;
}

bool Units::front_needs_no_run(const Unit& unit) const {
    const Origin& origin = unit.mailbox.front().waiting.origin;
    if (const auto* alarm = std::get_if<FromAlarm>(&origin))
        return !unit.alarm || unit.alarm->nonce != alarm->nonce;
    const auto* message = std::get_if<FromMessage>(&origin);
    return message != nullptr &&
           (applied_already(unit, *message) || !room_for_mark(unit, *message));
}

// What needs no run of the actor is settled in its turn, as soon as the log is known: alarms that do not stand any more and
// messages that were applied before.
void Units::settle_stale(Unit& unit) {
    if (unit.hold != Hold::Serving || unit.running || unit.runtime_op != 0) return;
    if (unit.memory != Memory::Activating && unit.memory != Memory::Resident) return;
    bool settled = false;
    while (!unit.mailbox.empty() && front_needs_no_run(unit)) {
        Output output;
        output.needs = unit.last_ordinal;
        const auto* message = std::get_if<FromMessage>(&unit.mailbox.front().waiting.origin);
        if (message != nullptr && !applied_already(unit, *message))
            output.reply.reason = ReplyReason::Busy;
        Mail mail = std::move(unit.mailbox.front());
        unit.mailbox.pop_front();
        unit.mailbox_bytes -= mail.waiting.bytes;
        output.waiting = std::move(mail.waiting);
        unit.outputs.push_back(std::move(output));
        settled = true;
    }
    if (!settled) return;
    open_gate(unit);
    // Nothing is left that needs the actor: it need not come into memory.
    if (unit.memory == Memory::Activating && unit.activation == 0 && !unit.has_work())
        go_cold(unit, false);
}

}  // namespace hf::core
