#include "tests/sim/history.hpp"

#include <algorithm>

#include "tests/sim/failure.hpp"

namespace hf::sim {

using core::ReplyReason;

const char* reason_name(ReplyReason reason) {
    static constexpr const char* kNames[] = {"OK",
                                             "unknown class",
                                             "bad name",
                                             "too large",
                                             "busy",
                                             "unavailable",
                                             "deadline",
                                             "actor failed",
                                             "actor limit",
                                             "internal"};
    return kNames[static_cast<std::size_t>(reason)];
}

std::uint64_t History::asked(Asked request) {
    request.id = asked_.size() + 1;
    request.floor = highest_[request.unit];
    by_req_.emplace(std::pair(request.gateway, request.req_id), request.id);
    ++open_;
    asked_.push_back(std::move(request));
    return asked_.back().id;
}

void History::answered(GatewayName gateway, const core::ReplyOut& reply, const AnswerTime& time) {
    const core::Time now = time.now;
    const auto found = by_req_.find(std::pair(gateway, reply.req_id));
    if (found == by_req_.end())
        broken("an answer for request " + std::to_string(reply.req_id) +
               " which that gateway never sent");
    Asked& request = asked_[found->second - 1];
    const std::string name = "#" + std::to_string(request.id);
    if (request.answered) broken(name + " is answered twice");
    request.answered = true;
    request.reason = reply.reason;
    request.answered_at = now;
    if (!request.orphaned) --open_;
    const core::Time by = std::max(request.deadline, request.sent);
    if (now > by + time.grain && by < time.held_since)
        broken(name + " is answered " + std::to_string(now - request.deadline) +
               " ns after its deadline");
    // Where a node may lose its lease or its answer from another one, that may be all there is to say.
    if (!several_ && reply.reason == ReplyReason::Deadline && now < request.deadline)
        broken(name + " hears 504 before its deadline");
    if (reply.reason != ReplyReason::Ok) return;
    if (request.later) {
        if (reply.status != 202) broken(name + " is content with 202 and hears something else");
        if (!journalled_.contains(request.id))
            broken(name + " hears 202 before it is in the journal");
        return;
    }
    const auto payload = unpack_reply(reply.body);
    if (!payload) broken(name + " is answered OK with something the actor did not say");
    request.reply = *payload;
    check_ok(request);
}

void History::check_ok(const Asked& request) {
    const std::string name = "#" + std::to_string(request.id) + " on " + request.unit;
    const std::uint64_t value = request.reply.value;
    if (request.op == Op::Fail || request.op == Op::Poison)
        broken(name + " must fail and is answered OK");
    const auto& stored = stored_[request.unit];
    if (request.op != Op::Read) {
        if (request.reply.last != request.id) broken(name + " got the answer of another request");
        if (!stored.contains(request.id)) broken(name + " is answered before it is stored");
        // Answers that come by another node may overtake each other.
        const std::uint64_t least =
            several_ ? request.floor : std::max(request.floor, last_add_[request.unit]);
        if (value <= least)
            broken(name + " adds up to " + std::to_string(value) + " after " +
                   std::to_string(least) + " was answered");
        last_add_[request.unit] = value;
    } else {
        if (value != 0 && !stored.contains(request.reply.last))
            broken(name + " reads #" + std::to_string(request.reply.last) + " which is not stored");
        if (value < request.floor)
            broken(name + " reads " + std::to_string(value) + " after " +
                   std::to_string(request.floor) + " was answered");
    }
    highest_[request.unit] = std::max(highest_[request.unit], value);
}

void History::orphan(GatewayName gateway) {
    for (Asked& request : asked_) {
        if (request.gateway != gateway || request.answered || request.orphaned) continue;
        request.orphaned = true;
        --open_;
    }
}

void History::orphan_life(std::size_t node, std::uint64_t life) {
    for (Asked& request : asked_) {
        if (request.gateway.node != node || request.gateway.life != life || request.answered ||
            request.orphaned)
            continue;
        request.orphaned = true;
        --open_;
    }
}

void History::passing_on(std::uint64_t k, std::size_t node) {
    Asked& request = asked_.at(k - 1);
    const std::string name = "#" + std::to_string(k);
    if (request.gateway.node != node) broken(name + " was passed on and is passed on again");
    if (request.answered) broken(name + " is passed on after its answer");
    if (request.later) broken(name + " is passed on, and was to be journalled");
    if (request.passed != Asked::Passed::Not && request.passed != Asked::Passed::NotSent)
        broken(name + " is passed on a second time, and the first may have come through");
    if (deliveries_.contains(k)) broken(name + " is passed on, and runs here");
    request.passed = Asked::Passed::Open;
}

void History::passed_on(std::uint64_t k, Asked::Passed how) {
    asked_.at(k - 1).passed = how;
}

void History::delivering(std::uint64_t id,
                         std::size_t node,
                         std::uint64_t incarnation,
                         std::uint64_t counter,
                         unsigned attempt) {
    const Asked& request = asked_.at(id - 1);
    const std::string name = "#" + std::to_string(id);
    // One out of the journal is a new event with each offer; its actor's mark keeps it from being applied twice.
    if (request.later) {
        if (!journalled_.contains(id)) broken(name + " is delivered before it is in the journal");
        return;
    }
    // Its own node cannot take one back that it has passed on, and says so by a 504.
    const bool on_its_way = request.passed != Asked::Passed::Not &&
                            request.passed != Asked::Passed::NotSent &&
                            request.reason == ReplyReason::Deadline;
    if (request.answered && !on_its_way) broken(name + " is delivered after its answer");
    auto [it, first] = deliveries_.try_emplace(id, Delivery{node, incarnation, counter, attempt});
    if (first) {
        if (attempt != 1) broken(name + " starts with attempt " + std::to_string(attempt));
        return;
    }
    if (it->second.node != node || it->second.incarnation != incarnation ||
        it->second.counter != counter)
        broken(name + " is delivered under another event id");
    if (attempt != it->second.attempt + 1)
        broken(name + " is delivered as attempt " + std::to_string(attempt) + " after " +
               std::to_string(it->second.attempt));
    it->second.attempt = attempt;
}

std::set<std::string> History::units() const {
    std::set<std::string> out;
    for (const Asked& request : asked_) {
        out.insert(request.unit);
        if (!request.target.empty()) out.insert(request.target);
    }
    return out;
}

bool History::sets_alarm(std::uint64_t id) const {
    return (id & kTags) == 0 && request(id).op == Op::Wake;
}

std::uint64_t History::stopping(const std::string& unit) {
    stops_.push_back(unit);
    return stops_.size() | kStopTag;
}

bool History::left(const std::string& unit, std::uint64_t id) {
    const auto stored = stored_.find(unit);
    if (stored == stored_.end() || !stored->second.contains(id)) return false;
    stops_kept_[unit].insert(id);
    return true;
}

// Whether an add of this id can be in the unit's state at all.
bool History::belongs(const std::string& unit, std::uint64_t id) const {
    const std::uint64_t k = id & ~kTags;
    if ((id & kStopTag) != 0) return k != 0 && k <= stops_.size() && stops_[k - 1] == unit;
    if (k == 0 || k > asked_.size()) return false;
    const Asked& by = request(k);
    if ((id & kMessageTag) != 0) return by.op == Op::Tell && by.target == unit;
    if ((id & kAlarmTag) != 0) return by.op == Op::Wake && by.unit == unit;
    return by.unit == unit && by.op != Op::Read && by.op != Op::Fail && by.op != Op::Poison;
}

void History::call_asked(std::uint64_t k, std::vector<std::uint64_t> ids) {
    asked_calls_[k] = std::move(ids);
}

void History::call_arrived(std::uint64_t k) const {
    const auto found = stored_.find(request(k).unit);
    for (const std::uint64_t id : asked_calls_.at(k)) {
        if (found == stored_.end() || !found->second.contains(id))
            broken("the call of #" + std::to_string(k) + " leaves before #" + std::to_string(id) +
                   " is stored");
    }
}

void History::call_read(std::uint64_t k, BytesView reply) const {
    const auto payload = unpack_reply(reply);
    if (!payload) broken("#" + std::to_string(k) + " is called back with something nobody said");
    const auto stored = stored_.find(request(k).target);
    if (payload->value != 0 && (stored == stored_.end() || !stored->second.contains(payload->last)))
        broken("#" + std::to_string(k) + " read #" + std::to_string(payload->last) +
               " by a call, which is not stored");
}

void History::journalled(std::uint64_t id, std::size_t node, std::uint64_t n) {
    for (const auto& [other, number] : journalled_)
        if (number == std::pair(node, n))
            broken("#" + std::to_string(id) + " is journalled under the number of #" +
                   std::to_string(other));
    journalled_.emplace(id, std::pair(node, n));
}

void History::unjournalled(std::uint64_t id) const {
    const auto stored = stored_.find(request(id).unit);
    const bool applied = stored != stored_.end() && stored->second.contains(id);
    if (!applied && !buried_.contains(id))
        broken("#" + std::to_string(id) + " leaves the journal before it is applied");
}

// Each in its actor's state, in the order in which a journal took them; exactly once is checked with all others.
void History::check_later(const std::map<std::string, UnitState>& states) const {
    for (const auto& [id, number] : journalled_) {
        const auto state = states.find(request(id).unit);
        const bool there = state != states.end() &&
                           std::find(state->second.ids.begin(), state->second.ids.end(), id) !=
                               state->second.ids.end();
        if (!there && !buried_.contains(id))
            broken("#" + std::to_string(id) + " was journalled and never applied");
    }
    for (const auto& [unit, state] : states) {
        std::map<std::size_t, std::uint64_t> last;
        for (const std::uint64_t id : state.ids) {
            const auto found = journalled_.find(id);
            if (found == journalled_.end()) continue;
            const auto [node, n] = found->second;
            if (n < last[node])
                broken("#" + std::to_string(id) + " on " + unit +
                       " is applied after one that was journalled later");
            last[node] = n;
        }
    }
}

void History::check_consequences(const std::map<std::string, UnitState>& states,
                                 bool settled) const {
    const auto has = [&](const std::string& unit, std::uint64_t id) {
        const auto found = states.find(unit);
        return found != states.end() &&
               std::find(found->second.ids.begin(), found->second.ids.end(), id) !=
                   found->second.ids.end();
    };
    if (settled) check_later(states);
    for (const auto& [unit, state] : states) {
        if (!settled) break;
        std::uint64_t last_alarm = 0;
        for (const std::uint64_t id : state.ids) {
            if (sets_alarm(id)) last_alarm = id;
            if ((id & kTags) == 0 && request(id).op == Op::Tell &&
                !has(request(id).target, id | kMessageTag))
                broken("the message of #" + std::to_string(id) + " never came to " +
                       request(id).target);
        }
        if (last_alarm != 0 && !has(unit, last_alarm | kAlarmTag))
            broken("the alarm of #" + std::to_string(last_alarm) + " on " + unit + " never fired");
    }
    for (const Asked& request : asked_) {
        if (request.op == Op::Tell && has(request.target, request.id | kMessageTag) &&
            !has(request.unit, request.id))
            broken("the message of #" + std::to_string(request.id) +
                   " came, and its sender knows nothing of it");
    }
}

void History::check_unit(const std::string& unit, const UnitState& state) const {
    if (!state.trouble.empty()) broken("the log of " + unit + ": " + state.trouble);
    std::map<std::uint64_t, std::uint64_t> place;  // id -> value
    for (std::size_t i = 0; i < state.ids.size(); ++i) {
        if (!place.emplace(state.ids[i], i + 1).second)
            broken("#" + std::to_string(state.ids[i]) + " on " + unit + " is applied twice");
    }
    for (const auto& [id, value] : place) {
        if (!belongs(unit, id))
            broken("#" + std::to_string(id) + " is in the state of " + unit + ", nobody added it");
    }
    if (const auto kept = stops_kept_.find(unit); kept != stops_kept_.end()) {
        for (const std::uint64_t id : kept->second)
            if (!place.contains(id))
                broken("what Stop " + std::to_string(id & ~kTags) + " of " + unit +
                       " wrote is not in its state");
    }
    for (const Asked& request : asked_) {
        if (request.unit != unit || !request.answered) continue;
        const std::string name = "#" + std::to_string(request.id) + " on " + unit;
        if (request.reason == ReplyReason::Ok) {
            const std::uint64_t value = request.reply.value;
            if (value > state.ids.size())
                broken(name + " was answered value " + std::to_string(value) +
                       ", the state ends at " + std::to_string(state.ids.size()));
            if (value != 0 && state.ids[value - 1] != request.reply.last)
                broken(name + " was told that #" + std::to_string(request.reply.last) +
                       " made value " + std::to_string(value) + ", the state says #" +
                       std::to_string(state.ids[value - 1]));
        } else if (request.reason != ReplyReason::Deadline && place.contains(request.id)) {
            broken(name + " was answered '" + reason_name(request.reason) +
                   "' and is in the state all the same");
        }
    }
}

}  // namespace hf::sim
