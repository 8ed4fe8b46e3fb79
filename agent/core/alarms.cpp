#include "agent/core/alarms.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/handler_pause.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kListPage = 256;
constexpr Time kRefusedAgain = 1 * kSecond;
constexpr Time kListAgain = 1 * kSecond;
// The wasmkeep drain, as amended from its simulation: a node that accepted an alarm looks again every second for 30 s, or for
// twice a lease if that is longer, whoever the unit's record names.
constexpr Time kHandedAgain = 1 * kSecond;
constexpr Time kHandedFor = 30 * kSecond;
constexpr std::size_t kHandedMax = 65'536;  // beyond it a sweep finds what was left
// How often a shared index is read again for what other nodes have left there.
constexpr Time kSweep = 10 * kSecond;
// Due times beyond this are never reached: year 2255, where nanoseconds since 1970 end.
constexpr std::int64_t kDueMsMost = 9'000'000'000'000;
}  // namespace

Alarms::Alarms(Env& env,
               StoreClient& store,
               std::function<Visit(const Hint&)> visit,
               std::function<bool(std::uint32_t shard)> mine)
    : env_(env), store_(store), visit_(std::move(visit)), mine_(std::move(mine)) {}

Time Alarms::when(std::int64_t due_ms) const {
    if (due_ms > kDueMsMost) return kNever;
    // Before 1970 is simply due, however long before.
    return std::max<Time>(0, std::max<std::int64_t>(0, due_ms) * kMs - env_.wall_offset);
}

void Alarms::open() {
    HF_CHECK(!open_, "the index is read once in an incarnation");
    open_ = true;
    ++life_;
    sweep();
}

void Alarms::forget() {
    open_ = false;
    shards_ = {};
    visits_.clear();
    later_.clear();
    later_names_.clear();
    handed_.clear();
    list_again_ = kNever;
    look_again_ = kNever;
    sweep_at_ = kNever;
    held_until_ = 0;
    soonest_ms_ = INT64_MAX;
}

// Of a shard that is another node's only this node's own hints are in memory.
void Alarms::sweep() {
    const bool shared = !env_.config.lease.none();
    sweep_at_ = shared ? env_.now + kSweep : kNever;
    for (std::uint32_t number = 0; number < kAlarmShards; ++number) {
        Shard& shard = shards_.at(number);
        if (shared && !mine_(number)) {
            shard.more = shard.listing;  // an own hint is kept wherever it lies
            continue;
        }
        shard.afresh = shared;
        list(number);
    }
}

void Alarms::list(std::uint32_t number) {
    Shard& shard = shards_.at(number);
    if (shard.listing || !(shard.more || shard.afresh)) return;
    if (std::exchange(shard.afresh, false)) shard.after.clear();
    shard.listing = true;
    shard.cut = false;
    shard.failed = false;
    store_.list(key::alarms_prefix(env_.config.app, number),
                shard.after,
                kListPage,
                [this, number, life = life_](StoreAnswer& answer) {
                    if (life == life_ && open_) listed(number, answer);
                });
}

void Alarms::listed(std::uint32_t number, StoreAnswer& answer) {
    Shard& shard = shards_.at(number);
    shard.listing = false;
    if (answer.outcome != Outcome::Applied || (answer.more && answer.objects.empty())) {
        env_.note(NoteLevel::Error,
                  "alarms",
                  "shard " + std::to_string(number) + " of the index cannot be listed: " +
                      (answer.reason.empty() ? "it has more, and nothing came" : answer.reason));
        shard.failed = true;
        list_again_ = env_.now + kListAgain;
        return;
    }
    for (const ObjectInfo& object : answer.objects) {
        if (!shard.cut) shard.after = object.key;
        auto parsed = parse_alarm_key(object.key);
        if (!parsed || parsed->shard != number) {
            env_.note(NoteLevel::Warn, "alarms", "the index holds a foreign key " + object.key);
            continue;
        }
        Hint hint{std::move(parsed->unit), parsed->due_ms, parsed->nonce};
        if (!in_hand(hint)) keep(shard, std::move(hint));
    }
    shard.more = answer.more || shard.cut;
    // What was stored meanwhile and lies beyond is listed in its turn: kept, it would stand for all that comes before it.
    while (shard.more && !shard.hints.empty() &&
           key_of(shard.hints.rbegin()->second) > shard.after) {
        shard.hints.erase(std::prev(shard.hints.end()));
    }
    find_soonest();
    if ((shard.hints.empty() && shard.more) || shard.afresh) return list(number);
    tick();
}

void Alarms::classes_changed() {
    if (!closed_) read_again(&Shard::passed_over);
}

// From its first key on, each part of the index that says so.
void Alarms::read_again(bool Shard::*why) {
    for (std::uint32_t number = 0; number < kAlarmShards; ++number) {
        Shard& shard = shards_.at(number);
        if (!std::exchange(shard.*why, false)) continue;
        shard.afresh = true;
        list(number);
    }
}

std::string Alarms::key_of(const Hint& hint) const {
    return key::alarm(env_.config.app, hint.unit, hint.due_ms, hint.nonce);
}

bool Alarms::in_hand(const Hint& hint) const {
    const auto name = std::pair(hint.unit, hint.nonce);
    return visits_.contains(name) || later_names_.contains(name);
}

void Alarms::keep(Shard& shard, Hint hint) {
    Name name(hint.due_ms, hint.unit, hint.nonce);
    shard.hints.emplace(std::move(name), std::move(hint));
    if (shard.hints.size() <= kWindowMax) return;
    // The last of the window goes back to the index, and is listed again when its turn comes.
    shard.hints.erase(std::prev(shard.hints.end()));
    shard.after = key_of(std::prev(shard.hints.end())->second);
    shard.more = true;
    shard.cut = true;
}

void Alarms::added(Hint hint) {
    Shard& shard = shards_.at(alarm_shard(hint.unit));
    // Beyond what is in memory: a later listing finds it. One that is under way may have looked already.
    if (shard.more && !shard.listing && key_of(hint) > shard.after) return;
    keep(shard, std::move(hint));
    find_soonest();
}

void Alarms::handed(Hint hint) {
    std::erase_if(handed_, [&](const auto& one) { return one.second <= env_.now; });
    const LeaseSpec& lease = env_.config.lease;
    if (handed_.size() < kHandedMax)
        handed_[{hint.unit, hint.nonce}] =
            std::max(env_.now, when(hint.due_ms)) +
            std::max(kHandedFor, 2 * lease.ttl + lease.grace);
    known(std::move(hint));
}

// A listing that is under way may bring it back; its visit then finds that nothing names it.
void Alarms::removed(const Hint& hint) {
    const std::uint32_t number = alarm_shard(hint.unit);
    Shard& shard = shards_.at(number);
    if (shard.hints.erase(Name(hint.due_ms, hint.unit, hint.nonce)) == 0) return;
    if (shard.hints.empty()) list(number);
    find_soonest();
}

void Alarms::find_soonest() {
    soonest_ms_ = INT64_MAX;
    for (const Shard& shard : shards_)
        if (!shard.hints.empty())
            soonest_ms_ = std::min(soonest_ms_, shard.hints.begin()->second.due_ms);
}

void Alarms::again(Hint hint, Time at) {
    later_names_.emplace(hint.unit, hint.nonce);
    later_.emplace(at, std::move(hint));
    if (later_.size() <= kLaterMax) return;
    const auto last = std::prev(later_.end());
    shards_.at(alarm_shard(last->second.unit)).forgotten = true;
    later_names_.erase({last->second.unit, last->second.nonce});
    later_.erase(last);
    look_again_ = std::min(look_again_, env_.now + kHandlerPauseMost);
}

void Alarms::ended(const std::string& unit, std::uint64_t nonce, End end) {
    const auto it = visits_.find({unit, nonce});
    if (it == visits_.end()) return;
    Hint hint = std::move(it->second);
    visits_.erase(it);
    if (end == End::Refused) {
        ++env_.stats.alarms_refused;
        return again(std::move(hint), env_.now + kRefusedAgain);
    }
    const auto handed = handed_.find({hint.unit, hint.nonce});
    if (end == End::Elsewhere && handed != handed_.end() && env_.now < handed->second)
        return again(std::move(hint), env_.now + kHandedAgain);
    // Elsewhere: one that its node leaves behind is found again by a sweep.
    if (end == End::Done || end == End::Elsewhere) {
        if (handed != handed_.end()) handed_.erase(handed);
        return;
    }
    ++env_.stats.alarms_failed;
    const Time pause = end == End::Poisoned ? kHandlerPauseMost : handler_pause(hint.attempt - 1);
    if (pause == kHandlerPauseMost)
        env_.note(NoteLevel::Error,
                  "alarms",
                  unit + ": the alarm's handler failed " + std::to_string(hint.attempt) +
                      " times; it is tried every 5 min");
    ++hint.attempt;
    again(std::move(hint), env_.now + pause);
}

void Alarms::tick() {
    if (!open_ || closed_) return;
    if (sweep_at_ <= env_.now) sweep();
    if (list_again_ <= env_.now) {
        list_again_ = kNever;
        for (std::uint32_t number = 0; number < kAlarmShards; ++number)
            if (shards_.at(number).failed) list(number);
    }
    if (look_again_ <= env_.now) {
        look_again_ = kNever;
        read_again(&Shard::forgotten);
    }
    while (may_visit() && !later_.empty() && later_.begin()->first <= env_.now) {
        Hint hint = std::move(later_.begin()->second);
        later_.erase(later_.begin());
        later_names_.erase({hint.unit, hint.nonce});
        start_visit(hint);
    }
    while (may_visit() && when(soonest_ms_) <= env_.now) {
        Shard* first = nullptr;
        for (Shard& shard : shards_)
            if (!shard.hints.empty() && shard.hints.begin()->second.due_ms == soonest_ms_)
                first = &shard;
        HF_CHECK(first != nullptr, "the soonest hint is in memory");
        Hint hint = std::move(first->hints.begin()->second);
        first->hints.erase(first->hints.begin());
        if (first->hints.empty()) list(alarm_shard(hint.unit));
        find_soonest();
        start_visit(hint);
    }
}

void Alarms::start_visit(const Hint& hint) {
    visits_.emplace(std::pair(hint.unit, hint.nonce), hint);
    switch (visit_(hint)) {
        case Visit::Taken:
            return;
        case Visit::NoRoom:
            return ended(hint.unit, hint.nonce, End::Refused);
        case Visit::NodeFull:
            held_until_ = env_.now + kRefusedAgain;
            return ended(hint.unit, hint.nonce, End::Refused);
        case Visit::NotHere:
            break;
    }
    // Once for each part of the index: there may be a thousand more.
    if (!std::exchange(shards_.at(alarm_shard(hint.unit)).passed_over, true))
        env_.note(NoteLevel::Warn,
                  "alarms",
                  hint.unit + ": an alarm is due, and nothing here runs it; it waits in the index");
    ended(hint.unit, hint.nonce, End::Done);
}

Time Alarms::next_deadline() const {
    if (!open_ || closed_) return kNever;
    const Time look = std::min({list_again_, look_again_, sweep_at_});
    // At the bound the end of a visit goes on.
    if (visits_.size() >= kVisitsMax) return look;
    Time visit = when(soonest_ms_);
    if (!later_.empty()) visit = std::min(visit, later_.begin()->first);
    return std::min(look, std::max(visit, held_until_));
}

}  // namespace hf::core
