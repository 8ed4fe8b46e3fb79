// Calls between units: when they leave, whom they would wait for, how they come back (part of Units).
#include <algorithm>
#include <utility>

#include "abi/base/bytes.hpp"
#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// Units one after the other that wait for each other (protocol 4).
constexpr std::size_t kChainMax = 16;

// Results of guest ABI v1.
constexpr std::int32_t kAbsent = -1;
constexpr std::int32_t kArgument = -2;
constexpr std::int32_t kLimit = -3;
constexpr std::int32_t kBusy = -4;
constexpr std::int32_t kTimeout = -5;
constexpr std::int32_t kFailed = -6;

std::int32_t code_of(ReplyReason reason) {
    switch (reason) {
        case ReplyReason::Ok:
            return 0;
        case ReplyReason::UnknownClass:
            return kAbsent;
        case ReplyReason::BadName:
            return kArgument;
        case ReplyReason::TooLarge:
            return kLimit;
        case ReplyReason::Busy:
        case ReplyReason::Unavailable:
            return kBusy;
        case ReplyReason::Deadline:
            return kTimeout;
        case ReplyReason::ActorFailed:
        case ReplyReason::ActorLimit:
        case ReplyReason::Internal:
            break;
    }
    return kFailed;
}
}  // namespace

void Units::park(Unit& unit, CallWish wish) {
    unit.parked = Parked{std::move(wish), unit.last_ordinal};
    pump(unit);
}

bool Units::chain_is_closed(const Mail& mail, const std::string& target) {
    return mail.chain.size() > kChainMax ||
           std::find(mail.chain.begin(), mail.chain.end(), target) != mail.chain.end();
}

// Whether an event in the mailbox of `target` would wait for `caller`: what runs there waits for somebody, and so on.
bool Units::would_wait_for(const Unit& target, UnitId caller) const {
    const Unit* at = &target;
    // Each unit runs one event, which waits for one other: the walk is a line, and a ring in it would have been refused.
    for (std::size_t step = 0; at != nullptr && step <= units_.size(); ++step) {
        if (at->id == caller) return true;
        if (!at->parked || !at->parked->sent || at->answered) return false;
        const auto next = units_.find(at->parked->callee);
        at = next == units_.end() ? nullptr : next->second.get();
    }
    return false;
}

// Leaves once everything before its event is stored; its own event's changes are nobody's business yet.
void Units::send_call(Unit& unit) {
    if (!unit.parked || unit.parked->sent || unit.stored_ordinal < unit.parked->needs) return;
    HF_CHECK(unit.running.has_value(), "a parked event is one that runs");
    Parked& parked = *unit.parked;
    parked.sent = true;
    ++env_.stats.calls;
    const auto refuse = [&](std::int32_t code) {
        ++env_.stats.calls_refused;
        call_answered(unit, code, {});
    };
    const auto [class_name, name] = split_target(parked.wish.target);
    const Mail& running = *unit.running;
    Mail mail;
    mail.waiting.origin = FromCall{unit.id, running.waiting.event, running.attempt, parked.wish.n};
    mail.chain = running.chain;
    mail.chain.push_back(unit.key);
    mail.deadline = latest(running.deadline);
    if (parked.wish.timeout != 0)
        mail.deadline = std::min(mail.deadline, env_.now + parked.wish.timeout);
    mail.trace = running.trace;
    mail.event = call_event({}, false, full_name(unit), parked.wish.method, parked.wish.payload);
    const auto key = actor_unit(env_.config.tenant, class_name, name);
    if (!key) return refuse(kArgument);
    if (chain_is_closed(mail, *key)) return refuse(kBusy);
    if (const Unit* target = unit_named(*key);
        target != nullptr && would_wait_for(*target, unit.id))
        return refuse(kBusy);
    if (const auto refusal = admit(class_name, name, std::move(mail)))
        return refuse(code_of(refusal->reason));
    // It may be over already.
    if (unit.parked && unit.parked->sent && !unit.answered)
        unit.parked->callee = unit_named(*key)->id;
}

void Units::call_ended(const FromCall& call, ReplyOut& reply) {
    Unit* caller = unit_of(call.caller);
    // A caller that died, was undone or runs anew does not wait for this any more.
    if (caller == nullptr || !caller->running || !caller->parked || caller->answered ||
        caller->running->waiting.event != call.event || caller->running->attempt != call.attempt ||
        caller->parked->wish.n != call.n)
        return;
    if (reply.reason != ReplyReason::Ok) ++env_.stats.calls_refused;
    call_answered(*caller, code_of(reply.reason), std::move(reply.body));
}

void Units::call_answered(Unit& unit, std::int32_t code, Bytes payload) {
    unit.answered = Answered{unit.parked->wish.n, code, std::move(payload)};
    pump(unit);
}

}  // namespace hf::core
