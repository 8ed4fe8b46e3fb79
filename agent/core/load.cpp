// From a hold to a resident unit: list the log, seal it, fetch it, fold it, hand it to the runtime (part of Units).
#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kListPage = 256;
constexpr std::size_t kFetchesMax = 16;  // entries asked for at once by one unit
constexpr unsigned kSealTries =
    64;  // a ghost has one open commit; more than a few losses is a broken store
constexpr std::size_t kPieceBytes =
    40UL * 1024;  // of one Activate; the next blob may add 48 KiB only when alone
constexpr std::size_t kBlobOverhead = 64;
// Entries of one log. A base every 256 entries keeps a log a few hundred long, and seals are rare; a storage that lists
// for ever must not fill this process.
constexpr std::size_t kLogEntriesMax = 1U << 20U;
}  // namespace

void Units::start_load(Unit& unit) {
    HF_CHECK(unit.settled(), "a load with an undecided write of that unit would miss it");
    ++env_.stats.loads;
    unit.to_fetch.clear();
    unit.fetched.clear();
    unit.image.clear();
    unit.fetches_open = 0;
    ++unit.load;
    unit.list_after.clear();
    unit.load_bytes = 0;
    unit.seal_tries = 0;
    if (!unit.sealed && unit.epoch == 1) {
        // The record did not exist, so there is no log: the seal at slot 1 proves it.
        unit.next_seq = 1;
        return seal(unit);
    }
    unit.memory = Memory::Listing;
    list_more(unit);
}

void Units::list_more(Unit& unit) {
    unit.store_op = store_.list(key::log_prefix(env_.config.app, unit.key),
                                unit.list_after,
                                kListPage,
                                [this, id = unit.id](StoreAnswer& answer) {
                                    if (Unit* found = unit_of(id)) listed(*found, answer);
                                });
}

void Units::listed(Unit& unit, StoreAnswer& answer) {
    unit.store_op = 0;
    if (unit.memory != Memory::Listing) return;
    if (answer.outcome != Outcome::Applied)
        return load_failed(unit, "its log cannot be listed: " + answer.reason);
    for (const ObjectInfo& object : answer.objects) {
        const auto parsed = parse_entry_key(object.key);
        if (!parsed || parsed->unit != unit.key)
            return load_failed(unit, "its log holds a foreign key '" + object.key + "'");
        if (!unit.to_fetch.empty() && parsed->seq <= unit.to_fetch.back())
            return load_failed(unit, "its log was listed out of order");
        unit.to_fetch.push_back(parsed->seq);
        unit.list_after = object.key;
        unit.load_bytes += std::min<std::uint64_t>(object.size, kObjectBytesMax);
    }
    if (unit.to_fetch.size() > kLogEntriesMax)
        return load_failed(unit, "its log lists more entries than any node writes");
    if (answer.more) {
        if (answer.objects.empty())
            return load_failed(unit, "its log was listed as having more, and nothing came");
        return list_more(unit);
    }
    const std::uint64_t last = unit.to_fetch.empty() ? 0 : unit.to_fetch.back();
    if (unit.sealed) {
        if (unit.next_seq != 0 && last + 1 != unit.next_seq)
            return load_failed(unit,
                               "its log ends at " + std::to_string(last) + ", " +
                                   std::to_string(unit.next_seq - 1) +
                                   " was stored in this incarnation");
        unit.next_seq = last + 1;
        return fetch_more(unit);
    }
    unit.next_seq = last + 1;
    seal(unit);
}

void Units::seal(Unit& unit) {
    unit.memory = Memory::Sealing;
    LogEntry entry;
    entry.unit = unit.key;
    entry.epoch = unit.epoch;
    entry.seq = unit.next_seq;
    entry.write_id = env_.new_write_id();
    entry.kind = EntryKind::Seal;
    entry.sealed_incarnation = unit.prior_incarnation;
    entry.sealed_node = unit.prior_node;
    unit.store_op = store_.put(key::entry(env_.config.app, unit.key, entry.seq),
                               env_.codec.encode(entry),
                               Condition::IfAbsent,
                               "",
                               entry.write_id,
                               [this, id = unit.id](StoreAnswer& answer) {
                                   if (Unit* found = unit_of(id)) seal_answered(*found, answer);
                               });
}

void Units::seal_answered(Unit& unit, StoreAnswer& answer) {
    unit.store_op = 0;
    if (unit.memory != Memory::Sealing) return;
    if (answer.outcome == Outcome::PreconditionFailed) {
        // An earlier owner's last write got there first: it counts, the seal goes behind it.
        if (++unit.seal_tries >= kSealTries) return load_failed(unit, "its log cannot be sealed");
        unit.to_fetch.push_back(unit.next_seq++);
        return seal(unit);
    }
    if (answer.outcome != Outcome::Applied)
        return load_failed(unit, "its log cannot be sealed: " + answer.reason);
    unit.sealed = true;
    LogEntry own;
    own.epoch = unit.epoch;
    own.seq = unit.next_seq;
    own.kind = EntryKind::Seal;
    own.sealed_incarnation = unit.prior_incarnation;
    own.sealed_node = unit.prior_node;
    unit.fetched.emplace(unit.next_seq, std::move(own));
    ++unit.next_seq;
    fetch_more(unit);
}

void Units::fetch_more(Unit& unit) {
    unit.memory = Memory::Fetching;
    if (!room_for_state(unit, unit.load_bytes)) return;
    while (!unit.to_fetch.empty() && unit.fetches_open < kFetchesMax) {
        const std::uint64_t seq = unit.to_fetch.back();
        unit.to_fetch.pop_back();
        ++unit.fetches_open;
        const std::uint64_t load = unit.load;
        store_.get(key::entry(env_.config.app, unit.key, seq),
                   [this, id = unit.id, load, seq](StoreAnswer& answer) {
                       Unit* found = unit_of(id);
                       if (found != nullptr && found->load == load) fetched(*found, seq, answer);
                   });
    }
    if (unit.fetches_open == 0) fold(unit);
}

void Units::fetched(Unit& unit, std::uint64_t seq, StoreAnswer& answer) {
    --unit.fetches_open;
    if (unit.memory != Memory::Fetching) return;
    // One that a compaction of ours deletes meanwhile is covered by a base; any other absence is found as a hole.
    if (answer.outcome != Outcome::NotFound) {
        if (answer.outcome != Outcome::Applied)
            return load_failed(unit, "entry " + std::to_string(seq) + ": " + answer.reason);
        auto entry = env_.codec.decode_entry(answer.body);
        if (!entry)
            return load_failed(
                unit, "entry " + std::to_string(seq) + " is damaged: " + entry.error().message);
        if (entry->seq != seq || entry->unit != unit.key)
            return load_failed(unit,
                               "entry " + std::to_string(seq) + " belongs to " + entry->unit + " " +
                                   std::to_string(entry->seq));
        unit.fetched.emplace(seq, std::move(entry).value());
    }
    fetch_more(unit);
}

void Units::load_failed(Unit& unit, const std::string& why) {
    unit.memory = Memory::Cold;
    unit.to_fetch.clear();
    unit.fetched.clear();
    look_at_room(unit);
    env_.note(NoteLevel::Error, "units", unit.key + ": not loaded: " + why);
    if (unit.running) requeue_running(unit);
    refuse_waiting(unit, ReplyReason::Unavailable, "the actor could not be loaded: " + why);
}

// Which entries count: none of an epoch below an earlier seal's, none that the newest base covers; from that base on
// (or from 1) there may be no hole.
void Units::fold(Unit& unit) {
    std::uint64_t sealed_epoch = 0;
    std::uint64_t base = 0;
    for (auto it = unit.fetched.begin(); it != unit.fetched.end();) {
        LogEntry& entry = it->second;
        if (entry.epoch < sealed_epoch && entry.kind != EntryKind::Seal) {
            LogEntry silent;  // a ghost's: it keeps its slot and says nothing
            silent.epoch = entry.epoch;
            silent.seq = entry.seq;
            entry = std::move(silent);
        } else if (entry.kind == EntryKind::Seal) {
            sealed_epoch = std::max(sealed_epoch, entry.epoch);
        } else if (entry.kind == EntryKind::Base) {
            base = entry.seq;
        }
        ++it;
    }
    std::uint64_t expected = base == 0 ? 1 : base;
    for (auto it = unit.fetched.lower_bound(expected); it != unit.fetched.end(); ++it, ++expected) {
        if (it->first != expected) break;
    }
    if (expected != unit.next_seq)
        return load_failed(unit, "its log has a hole at " + std::to_string(expected));

    unit.slots.clear();
    unit.garbage.clear();
    unit.image.clear();
    unit.stored = {};
    unit.applied.clear();
    unit.base_seq = base;
    unit.compacted_to = 0;
    unit.entries_since_base = 0;
    unit.bytes_since_base = 0;
    unit.base_bytes = 0;
    for (auto& [seq, entry] : unit.fetched) {
        const bool is_seal = entry.kind == EntryKind::Seal;
        // What is reaped of this node says nothing of another's incarnation with that number.
        const bool others =
            entry.sealed_incarnation != 0 && entry.sealed_node != env_.config.node_id;
        unit.slots.push_back(
            {seq, is_seal, others ? Unit::kOthersIncarnation : entry.sealed_incarnation});
        if (seq < base) continue;
        // Seals count: an actor that is only ever read gets one with each owner, and a base lets them be deleted.
        if (seq != base) ++unit.entries_since_base;
        if (is_seal) continue;
        if (seq == base) unit.base_bytes = entry_cost(entry);
        bool first = entry.kind == EntryKind::Base;
        for (Bytes& changes : entry.changes) {
            if (seq != base) unit.bytes_since_base += changes.size();
            unit.image.push_back({seq, first, std::move(changes)});
            first = false;
        }
        unit.stored.add(entry);
    }
    for (const auto& [source, n] : unit.settled_marks) unit.stored.forget_mark(source, n);
    unit.alarm = unit.stored.alarm;
    // Whoever held it before knew of its alarm; this node may not.
    if (unit.alarm && !env_.config.lease.none())
        alarms_.known({unit.key, unit.alarm->due_ms, unit.alarm->nonce, 1});
    unit.fetched.clear();
    unit.memory = Memory::Activating;
    unit.activation = 0;
    unit.image_next = 0;
    unit.image_part = 0;
    pump(unit);
}

void Units::send_activation(Unit& unit) {
    if (unit.activation == 0) {
        unit.activation = ++last_activation_;
        unit.image_next = 0;
        unit.image_part = 0;
    }
    Activate activate;
    activate.to = unit.runtime;
    activate.op = open_runtime_op(unit, RuntimeAsk::Activate);
    activate.unit = unit.key;
    activate.class_name = class_name(unit);
    activate.name = unit.name;
    activate.activation = unit.activation;
    activate.epoch = unit.epoch;
    activate.part = unit.image_part++;
    std::size_t bytes = 0;
    while (unit.image_next < unit.image.size()) {
        const std::size_t size = unit.image[unit.image_next].changes.size() + kBlobOverhead;
        if (bytes != 0 && bytes + size > kPieceBytes) break;
        bytes += size;
        activate.entries.push_back(std::move(unit.image[unit.image_next++]));
    }
    activate.more = unit.image_next < unit.image.size();
    if (unit.alarm) activate.alarm_due_ms = unit.alarm->due_ms;
    env_.emit(std::move(activate));
}

void Units::activated(const ActivatedIn& event) {
    Unit* unit = close_runtime_op(event.op, event.from, RuntimeAsk::Activate, event.activation);
    if (unit == nullptr || unit->memory != Memory::Activating) return;
    if (event.status != ActivateStatus::Ok) {
        env_.note(NoteLevel::Warn, "units", unit->key + ": not activated: " + event.error);
        leave_runtime(*unit, true);
        unit->memory = Memory::Cold;
        const bool full = event.status == ActivateStatus::Full;
        // It holds less than the configuration says: room is made earlier from now on.
        if (const auto load = runtimes_.find(event.from); full && load != runtimes_.end())
            load->second.capacity =
                std::clamp<std::uint32_t>(load->second.resident, 1, load->second.capacity);
        return refuse_waiting(*unit,
                              full ? ReplyReason::Busy : ReplyReason::ActorFailed,
                              "the actor could not be started: " + event.error);
    }
    if (unit->image_next < unit->image.size()) return pump(*unit);
    unit->image.clear();
    unit->image.shrink_to_fit();
    unit->memory = Memory::Resident;
    unit->load_deaths = 0;
    unit->wants_stop = event.wants_stop;
    pump(*unit);
}

}  // namespace hf::core
