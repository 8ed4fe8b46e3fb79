#include "tests/sim/log_watch.hpp"

#include "agent/core/keys.hpp"
#include "tests/sim/failure.hpp"

namespace hf::sim {

using core::Outcome;
using core::StoreVerb;

LogWatch::LogWatch(Bucket& bucket, const core::Codec& codec, History& history, NodeWatch& nodes)
    : bucket_(bucket), codec_(codec), history_(history), nodes_(nodes) {
    bucket.watch({[this](const std::string& key, const Object& object, std::size_t by) {
                      written(key, object, by);
                  },
                  [this](const std::string& key, const Object& was) { deleted(key, was); }});
}

void LogWatch::asked(std::size_t node, const core::StoreRequest& request) {
    if (request.verb != StoreVerb::Put) return;
    const bool hint = core::parse_alarm_key(request.key) && request.body.empty();
    if (request.condition == core::Condition::None && !hint)
        broken("an unconditional write of " + request.key);
    OfNode& of = of_nodes_[node];
    const auto [it, first] = of.writes.try_emplace(request.op, Write{request, "", false});
    if (!first) {
        const core::StoreRequest& before = it->second.request;
        if (before.write_id != request.write_id || before.body != request.body ||
            before.key != request.key || before.condition != request.condition ||
            before.etag != request.etag)
            broken("the write of " + request.key + " is sent again as another write");
        it->second.uncertain = true;  // sent again: its first sending was undecided
        return;
    }
    const auto parsed = core::parse_entry_key(request.key);
    if (!parsed) return;
    it->second.unit = parsed->unit;
    if (!of.open_commit.try_emplace(parsed->unit, request.op).second)
        broken("a second commit of " + parsed->unit + " is open: " + request.key);
}

std::string LogWatch::told(std::size_t node, const core::StoreAnswer& answer) {
    OfNode& of = of_nodes_[node];
    const auto it = of.writes.find(answer.op);
    if (it == of.writes.end()) return {};
    if (answer.outcome == Outcome::Unknown) it->second.uncertain = true;
    const bool decided = answer.outcome == Outcome::Applied ||
                         answer.outcome == Outcome::PreconditionFailed ||
                         (answer.outcome == Outcome::Refused && !it->second.uncertain);
    if (!decided) return {};
    write_failed_ = write_failed_ || answer.outcome != Outcome::Applied;
    if (!it->second.unit.empty()) of.open_commit.erase(it->second.unit);
    const std::string key = it->second.request.key;
    of.writes.erase(it);
    const auto hold = core::parse_hold_key(key);
    return hold && answer.outcome == Outcome::Applied ? hold->unit : std::string();
}

void LogWatch::written(const std::string& key, const Object& object, std::size_t by) {
    if (const auto parsed = core::parse_entry_key(key)) {
        entry_written(parsed->unit, object);
    } else if (core::parse_hold_key(key)) {
        hold_written(key, object);
    } else {
        nodes_.written(key, object, by);
    }
}

void LogWatch::entry_written(const std::string& unit, const Object& object) {
    const auto entry = codec_.decode_entry(object.body);
    if (!entry) broken("an entry of " + unit + " does not decode: " + entry.error().message);
    const std::string name = unit + " " + std::to_string(entry->seq);
    auto& seals = seals_[unit];
    // A copy of a decided attempt may land when its slot was compacted away: harmless, a base covers it.
    const auto& covers = bases_[unit];
    const bool covered = covers.upper_bound(entry->seq) != covers.end();
    if (!covered && seals.upper_bound(entry->epoch) != seals.end())
        broken(name + " is of epoch " + std::to_string(entry->epoch) +
               ", and its log is sealed against that already");
    if (entry->kind == core::EntryKind::Seal) {
        const auto [seal, first] = seals.try_emplace(entry->epoch, entry->seq);
        if (!first && seal->second != entry->seq && !covered)
            broken(name + " seals its epoch a second time");
        return;
    }
    const auto seal = seals.find(entry->epoch);
    if (seal == seals.end() || seal->second >= entry->seq)
        broken(name + " is an entry of epoch " + std::to_string(entry->epoch) +
               ", which has no seal before it");
    if (entry->kind == core::EntryKind::Base) {
        bases_[unit].insert(entry->seq);
        return;
    }
    hints_before(name, *entry);
    for (const Bytes& blob : entry->changes) {
        const auto change = unpack_change(blob);
        if (!change) broken(name + " holds a change that no runtime made");
        history_.stored(unit, change->id);
    }
}

// Who starts after this moment must find what the entry wants done later.
void LogWatch::hints_before(const std::string& name, const core::LogEntry& entry) {
    // A copy of a decided attempt, landing where a compaction has cleared its slot: a base covers it.
    const auto& covers = bases_[entry.unit];
    if (covers.upper_bound(entry.seq) != covers.end()) return;
    core::LogEntry copy = entry;
    folds_[entry.unit].add(copy);
    const auto& objects = bucket_.objects();
    if (entry.alarm && !objects.contains(core::key::alarm(
                           "default", entry.unit, entry.alarm->due_ms, entry.alarm->nonce)))
        broken(name + " sets an alarm that is not in the index");
    if (!entry.outbox.empty() && !hinted(entry.unit))
        broken(name + " sends messages that are not announced");
}

bool LogWatch::hinted(const std::string& unit) const {
    const std::string prefix = core::key::alarms_prefix("default", core::alarm_shard(unit));
    const auto& objects = bucket_.objects();
    for (auto it = objects.lower_bound(prefix);
         it != objects.end() && it->first.starts_with(prefix);
         ++it) {
        const auto parsed = core::parse_alarm_key(it->first);
        if (parsed && parsed->unit == unit) return true;
    }
    return false;
}

void LogWatch::hint_deleted(const core::AlarmKey& key) const {
    const auto fold = folds_.find(key.unit);
    if (fold == folds_.end()) return;
    if (fold->second.alarm && fold->second.alarm->nonce == key.nonce)
        broken("the hint of an alarm that stands is deleted: " + key.unit);
    if (!fold->second.outbox.empty() && !hinted(key.unit))
        broken("the last announcement of an outbox is deleted: " + key.unit);
}

void LogWatch::hold_written(const std::string& key, const Object& object) {
    auto hold = codec_.decode_hold(object.body);
    if (!hold) broken("the hold " + key + " does not decode");
    const bool held = hold->state == core::HoldState::Held;
    const core::HoldRecord before = holds_[key];
    if (held && hold->epoch != before.epoch + 1)
        broken("the hold " + key + " turns to held with epoch " + std::to_string(hold->epoch) +
               " after " + std::to_string(before.epoch));
    if (!held && hold->epoch != before.epoch)
        broken("the hold " + key + " changes epoch when freed");
    const bool same = hold->owner == before.owner && hold->incarnation == before.incarnation;
    if (!held && !same) broken("the hold " + key + " is freed by another than its owner");
    if (held && before.state == core::HoldState::Held && !same &&
        !nodes_.gone(before.owner, before.incarnation))
        broken("the hold " + key + " is taken from " + before.owner + " incarnation " +
               std::to_string(before.incarnation) + ", which lives");
    if (held && !before.owner.empty() && hold->owner != before.owner) ++taken_;
    holds_[key] = std::move(hold).value();
}

void LogWatch::deleted(const std::string& key, const Object& was) {
    if (core::parse_drain_key(key)) return;  // an operator's
    if (const auto alarm = core::parse_alarm_key(key)) return hint_deleted(*alarm);
    const auto parsed = core::parse_entry_key(key);
    if (!parsed) broken(key + " is deleted");
    const auto entry = codec_.decode_entry(was.body);
    if (!entry) broken("a deleted entry does not decode");
    const auto& bases = bases_[parsed->unit];
    if (bases.upper_bound(parsed->seq) == bases.end())
        broken(key + " is deleted and no base covers it");
    if (entry->kind != core::EntryKind::Seal || entry->sealed_incarnation == 0) return;
    const core::NodeRecord* sealed = nodes_.record(entry->sealed_node);
    if (sealed == nullptr || entry->sealed_incarnation > sealed->reaped)
        broken(key + ", the seal against incarnation " + std::to_string(entry->sealed_incarnation) +
               " of " + entry->sealed_node + ", is deleted before that is reaped");
}

}  // namespace hf::sim
