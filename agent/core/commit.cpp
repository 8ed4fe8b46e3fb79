// The unit log: one open commit, merged successors, the output gate, undo, compaction (part of Units).
#include <algorithm>

#include "abi/base/check.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr std::size_t kPartsPerEntry =
    64;  // events merged into one: the bound of an entry's tables
// Numbers of messages that one entry may use up; 64 events of 32 messages are half of it.
constexpr std::uint64_t kMessagesPerEntry = 4096;
static_assert(kLogSeqMost <= UINT64_MAX / kMessagesPerEntry);
}  // namespace

// Later events merge into the next entry, which is the last one that is not being written and is no base.
void Units::append(Unit& unit, LogEntry part) {
    const std::size_t bytes = entry_cost(part);
    unit.pending_bytes += bytes;
    const bool last_is_open = unit.commit_op != 0 && unit.pending.size() == 1;
    if (!unit.pending.empty() && !last_is_open) {
        PendingEntry& last = unit.pending.back();
        if (last.entry.kind == EntryKind::Changes &&
            last.bytes + bytes <= env_.config.limits.entry_bytes &&
            ++last.parts <= kPartsPerEntry) {
            last.bytes += bytes;
            return merge_entry(last.entry, std::move(part));
        }
    }
    PendingEntry next;
    next.ordinal = ++unit.last_ordinal;
    next.bytes = bytes;
    next.entry = std::move(part);
    unit.pending.push_back(std::move(next));
}

// A base is an entry of its own, behind every change it contains. It runs ahead of nothing: what it holds is stored before it.
void Units::append_base(Unit& unit, Bytes base) {
    PendingEntry next;
    next.ordinal = ++unit.last_ordinal;
    next.bytes = base.size();
    next.entry.kind = EntryKind::Base;
    next.entry.changes.push_back(std::move(base));
    unit.pending.push_back(std::move(next));
}

void Units::commit(Unit& unit) {
    if (unit.commit_op != 0 || unit.pending.empty() || unit.hold != Hold::Serving) return;
    HF_CHECK(unit.sealed && unit.next_seq != 0, "an epoch's first entry is its seal");
    PendingEntry& first = unit.pending.front();
    if (put_hint(unit, first)) return;
    LogEntry& entry = first.entry;
    entry.unit = unit.key;
    entry.epoch = unit.epoch;
    entry.seq = unit.next_seq;
    entry.write_id = env_.new_write_id();
    std::uint64_t n = entry.seq * kMessagesPerEntry;
    for (OutboxItem& item : entry.outbox) item.n = n++;
    if (entry.kind == EntryKind::Base) {
        // Everything before it is stored now, nothing behind it is: the fold of exactly what it covers.
        entry.base_seq = entry.seq - 1;
        unit.stored.give(entry);
    } else {
        say_settled(unit, entry);
    }
    Bytes body = env_.codec.encode(entry);
    if (entry.kind == EntryKind::Base) {
        entry.changes.clear();  // once is enough
        entry.settled.assign(unit.settled_marks.begin(), unit.settled_marks.end());
    }
    unit.commit_op = store_.put(key::entry(env_.config.app, unit.key, entry.seq),
                                std::move(body),
                                Condition::IfAbsent,
                                "",
                                entry.write_id,
                                [this, id = unit.id](StoreAnswer& answer) {
                                    if (Unit* found = unit_of(id)) committed(*found, answer);
                                });
}

// What the entry sets is announced in the index before the entry is sent. True: that is under way, and commit() follows.
bool Units::put_hint(Unit& unit, PendingEntry& first) {
    const LogEntry& entry = first.entry;
    Hint hint;
    hint.unit = unit.key;
    if (entry.kind != EntryKind::Changes) return false;
    const bool alarm = entry.alarm && !first.hinted;
    if (alarm) {
        hint.due_ms = entry.alarm->due_ms;
        hint.nonce = entry.alarm->nonce;
    } else if (!entry.outbox.empty() && !unit.outbox_hint) {
        hint.due_ms = env_.wall_ms();
        hint.nonce = env_.random.next();
    } else {
        return false;
    }
    unit.commit_op = store_.put(
        key::alarm(env_.config.app, unit.key, hint.due_ms, hint.nonce),
        {},
        Condition::None,
        "",
        WriteId{},
        [this, id = unit.id, hint, alarm](StoreAnswer& answer) {
            Unit* found = unit_of(id);
            if (found == nullptr) return;
            found->commit_op = 0;
            if (found->pending.empty() || found->hold != Hold::Serving) return pump(*found);
            if (answer.outcome != Outcome::Applied) {
                undo(*found,
                     answer.reason.empty() ? "the store refused to note its alarm" : answer.reason);
                return pump(*found);
            }
            if (alarm) {
                found->pending.front().hinted = true;
                alarms_.added(hint);
            } else {
                found->outbox_hint = hint;
            }
            pump(*found);
        });
    return true;
}

void Units::committed(Unit& unit, StoreAnswer& answer) {
    unit.commit_op = 0;
    if (answer.outcome == Outcome::PreconditionFailed)
        return fence(unit, "its next log entry is somebody else's");
    const bool base = unit.pending.front().entry.kind == EntryKind::Base;
    if (answer.outcome != Outcome::Applied && !base) {
        undo(unit, answer.reason.empty() ? "the store refused the write" : answer.reason);
        return pump(unit);
    }
    PendingEntry stored = std::move(unit.pending.front());
    unit.pending.pop_front();
    if (!base) unit.pending_bytes -= stored.bytes;
    unit.stored_ordinal = stored.ordinal;
    if (answer.outcome != Outcome::Applied) {
        // Everything in it is stored as it was before: the log goes on without a base, and nothing is undone.
        put_off_base(unit, "the store refused it: " + answer.reason);
        return pump(unit);
    }
    unit.slots.push_back({stored.entry.seq, false, 0});
    ++unit.next_seq;
    ++env_.stats.commits;
    settled_stored(unit, stored.entry);
    if (stored.entry.kind == EntryKind::Base) {
        ++env_.stats.bases;
        unit.base_seq = stored.entry.seq;
        unit.base_bytes = stored.bytes + entry_cost(stored.entry);
        unit.entries_since_base = 0;
        unit.bytes_since_base = 0;
        unit.checkpointing = false;
        unit.base_deaths = 0;
    } else {
        ++unit.entries_since_base;
        unit.bytes_since_base += stored.bytes;
        const std::optional<EntryAlarm> alarm_before = unit.stored.alarm;
        env_.stats.messages_sent += stored.entry.outbox.size();
        for (const auto& [source, n] : stored.entry.applied)
            if (const auto ahead = unit.applied.find(source);
                ahead != unit.applied.end() && ahead->second <= n)
                unit.applied.erase(ahead);
        unit.stored.add(stored.entry);
        alarm_stored(unit, alarm_before);
        messages_settled(unit, stored.entry);
    }
    pump(unit);
}

void Units::open_gate(Unit& unit, Room room) {
    while (!unit.outputs.empty() && unit.outputs.front().needs <= unit.stored_ordinal) {
        if (room == Room::Needed && waits_for_room(unit, unit.outputs.front())) return;
        Output output = std::move(unit.outputs.front());
        unit.outputs.pop_front();
        // A connection is accepted before anything is sent on it. Otherwise what is sent comes first: an answer may let the next
        // event in, and with it later outputs out.
        const bool opens = std::holds_alternative<FromSocketOpened>(output.waiting.origin);
        if (!opens) send_sockets(unit, output.sockets);
        answer(unit, output.waiting, std::move(output.reply));
        forget_waiting(output.waiting);
        if (opens) send_sockets(unit, output.sockets);
    }
}

// Everything after the last stored entry did not happen: its clients hear 503, the unit starts again from the store.
void Units::undo(Unit& unit, const std::string& why, std::uint64_t in_doubt) {
    unit.pending.clear();
    unit.pending_bytes = 0;
    unit.last_ordinal = unit.stored_ordinal;
    unit.alarm = unit.stored.alarm;
    unit.applied.clear();
    // What was to be stored as done is offered again, and found to be applied.
    std::erase_if(unit.offers, [&](const auto& offer) {
        return !messages_.contains({unit.id, offer.first});
    });
    unit.done.clear();
    open_gate(unit, Room::Any);  // what is stored did happen
    while (!unit.outputs.empty()) {
        Output output = std::move(unit.outputs.front());
        unit.outputs.pop_front();
        ReplyOut reply;
        const bool unknown = output.needs <= in_doubt;
        reply.reason = unknown ? ReplyReason::Deadline : ReplyReason::Unavailable;
        reply.retry_after_ms = 1000;
        reply.text = (unknown ? "whether the event is stored is not known: "
                              : "the event was undone: ") +
                     why;
        ++env_.stats.undone;
        answer(unit, output.waiting, std::move(reply));
        forget_waiting(output.waiting);
    }
    go_cold(unit, true);
}

// Deletes what a stored base covers. A seal stays until the incarnation it fenced is recorded as reaped: until then a
// ghost may still try the seal's slot.
void Units::compact(Unit& unit) {
    if (unit.compacted_to != unit.base_seq) {
        unit.compacted_to = unit.base_seq;
        std::deque<Unit::Slot> kept;
        for (const Unit::Slot& slot : unit.slots) {
            const bool covered =
                slot.seq < unit.base_seq && (!slot.seal || slot.sealed_incarnation <= reaped_);
            if (covered) {
                unit.garbage.push_back(slot.seq);
            } else {
                kept.push_back(slot);
            }
        }
        unit.slots = std::move(kept);
    }
    if (unit.garbage.empty() || unit.deleting) return;
    std::vector<std::string> keys;
    while (!unit.garbage.empty() && keys.size() < kEraseKeysMax) {
        keys.push_back(key::entry(env_.config.app, unit.key, unit.garbage.front()));
        unit.garbage.pop_front();
    }
    unit.deleting = true;
    // Those that were not deleted are covered still and are found again by the next load.
    store_.erase(std::move(keys), [this, id = unit.id](StoreAnswer&) {
        Unit* found = unit_of(id);
        if (found == nullptr) return;
        found->deleting = false;
        compact(*found);
    });
}

}  // namespace hf::core
