// One unit to another node: sockets first, then everything it was asked before, then its hold, then its alarm (part of Units).
//
// What comes for the unit from the job on waits behind it (Unit::behind) and goes wherever the hold went. Nobody is told to
// take it: the peer that is chosen by all nodes alike claims it when it is asked, or when its alarm is due.
#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// Until their close events have run (the wasmkeep drain: step 1 and 2 of handing over one actor).
constexpr Time kSocketsWait = 5 * kSecond;
constexpr Time kBusyWait = 30 * kSecond;
// One that could not be handed over is tried again then.
constexpr Time kNextPass = 3 * kSecond;
constexpr Time kSuspect = 10 * kSecond;
constexpr Time kAlarmAgain = 500 * kMs;
constexpr Time kAlarmHandDeadline = 10 * kSecond;
constexpr std::uint16_t kCloseMoving = 1012;
}  // namespace

// --- who may take it ---------------------------------------------------------------------------------------------------

// Nodes that live, serve this app, know of drains, can be reached, do not drain and have not failed us lately.
std::vector<std::string> Units::eligible_peers() const {
    std::vector<std::string> out;
    for (const auto& [id, peer] : peers_.all()) {
        const NodeRecord& record = peer.record;
        const bool dead = record.dead && *record.dead >= record.incarnation;
        const auto suspect = suspects_.find(id);
        if (!peer.readable || dead || record.app != env_.config.app ||
            record.tenant != env_.config.tenant || record.state.empty() ||
            record.peer_address().empty() || control_.drains(id) || peers_.is_silent(id) ||
            (suspect != suspects_.end() && suspect->second > env_.now))
            continue;
        out.push_back(id);
    }
    return out;
}

std::string Units::chosen_peer(const std::string& unit) const {
    return rendezvous(unit, eligible_peers());
}

void Units::suspect(const std::string& node) {
    suspects_[node] = env_.now + kSuspect;
    std::erase_if(suspects_, [&](const auto& one) { return one.second <= env_.now; });
}

// --- one unit ------------------------------------------------------------------------------------------------------------

std::vector<UnitId> Units::next_to_hand_over(std::size_t most) {
    std::vector<UnitId> out;
    if (lost_ || closing_) return out;
    for (const UnitId id : idle_) {
        const Unit& unit = *unit_of(id);
        if (unit.hold != Hold::Serving || unit.handing || unit.hand_over_at > env_.now) continue;
        out.push_back(id);
        if (out.size() == most) break;
    }
    return out;
}

void Units::hand_over(UnitId id) {
    Unit* unit = unit_of(id);
    HF_CHECK(unit != nullptr && unit->hold == Hold::Serving && !unit->handing,
             "only what is held is handed over, once at a time");
    unit->handing = HandOver{false, env_.now + kSocketsWait};
    handing_.push_back(id);
    for (const std::uint64_t number : sockets_.of_unit(id)) {
        const Socket* socket = sockets_.find(number);
        env_.emit(CloseSocket{
            socket->gateway, socket->theirs, kCloseMoving, "the actor is moving, connect again"});
    }
    go_on_handing(*unit);
}

// Looked at whenever the unit is.
void Units::go_on_handing(Unit& unit) {
    if (!unit.handing || unit.hold != Hold::Serving) return;
    HandOver& handing = *unit.handing;
    if (!handing.job) {
        if (unit.sockets != 0) return;
        handing.job = true;
        handing.by = env_.now + kBusyWait;
    }
    if (unit.sockets != 0) return hand_over_ended(unit, false);  // accepted since
    unit.release_after = true;
    if (!unit.leaving) ask_to_leave(unit, StopReason::Drain);
}

// It is free, or stays for now. What waited behind goes where it belongs.
void Units::hand_over_ended(Unit& unit, bool gone) {
    if (!std::exchange(unit.handing, std::nullopt)) return;
    unit.hand_over_at = gone ? 0 : env_.now + kNextPass;
    unit.release_after = false;
    if (!gone && unit.leaving && !stop_begun(unit)) end_leaving(unit);
    for (Mail& mail : std::exchange(unit.behind, {})) {
        unit.mailbox_bytes += mail.waiting.bytes;
        unit.mailbox.push_back(std::move(mail));
    }
    drain_.ended(unit.id);
    pump(unit);
}

void Units::take_back_handed() {
    for (const UnitId id : std::exchange(handing_, {})) {
        Unit* unit = unit_of(id);
        if (unit == nullptr || !unit->handing) continue;
        if (unit->hold == Hold::Serving)
            hand_over_ended(*unit, false);
        else
            handing_.push_back(id);  // its release is under way
    }
}

// Those whose time is up are left for the next pass.
void Units::hand_over_tick() {
    std::vector<UnitId> on;
    for (const UnitId id : std::exchange(handing_, {})) {
        Unit* unit = unit_of(id);
        if (unit == nullptr || !unit->handing) continue;
        if (unit->hold == Hold::Serving && unit->handing->by <= env_.now)
            hand_over_ended(*unit, false);
        else
            on.push_back(id);
    }
    handing_.insert(handing_.end(), on.begin(), on.end());
    const auto due = std::exchange(alarms_to_hand_, {});
    for (const auto& [key, left] : due) {
        if (left.at > env_.now || left.op != 0)
            alarms_to_hand_.emplace(key, left);
        else
            hand_alarm(left.hint);
    }
}

Time Units::hand_over_deadline() const {
    Time soonest = kNever;
    for (const UnitId id : handing_) {
        const auto it = units_.find(id);
        if (it != units_.end() && it->second->handing)
            soonest = std::min(soonest, it->second->handing->by);
    }
    for (const auto& [key, left] : alarms_to_hand_)
        if (left.op == 0) soonest = std::min(soonest, left.at);
    return soonest;
}

Drain::Left Units::left_to_drain() const {
    Drain::Left left;
    for (const auto& [id, unit] : units_)
        if (unit->hold != Hold::Idle) ++left.held;
    left.alarms = alarms_to_hand_.size();
    left.journal = journal_.size();
    return left;
}

// --- its alarm -----------------------------------------------------------------------------------------------------------

// The peer arms it; it does not claim the unit before it is due.
void Units::hand_alarm(const Hint& hint) {
    alarms_to_hand_.erase(hint.unit);
    const auto name = parse_unit(hint.unit);
    if (!name || !drain_.on()) return alarms_.known(hint);
    const std::string peer = chosen_peer(hint.unit);
    const Handle gateway = peer_gateway();
    LeftAlarm left{hint, env_.now + kAlarmAgain, 0};
    if (peer.empty() || !gateway.valid()) {
        // Nobody is there to take it: when it is due before somebody is, this node claims its unit.
        alarms_.known(hint);
        alarms_to_hand_.insert_or_assign(hint.unit, std::move(left));
        return;
    }
    PeerCall call = call_of_peer(gateway, peer);
    call.class_name = name->group;
    call.name = name->name;
    call.deadline = env_.now + kAlarmHandDeadline;
    call.origin.ask = PeerAsk::Alarm;
    call.origin.due_ms = hint.due_ms;
    call.origin.nonce = hint.nonce;
    left.op = call.op;
    PeerOp op = op_of_peer(gateway, peer);
    op.alarm = hint;
    alarms_to_hand_.insert_or_assign(hint.unit, std::move(left));
    send_to_peer(std::move(call), std::move(op));
}

void Units::alarm_handed(const PeerOp& op, PeerOutcome outcome, const ReplyOut& reply) {
    const Hint& hint = *op.alarm;
    const auto left = alarms_to_hand_.find(hint.unit);
    if (left == alarms_to_hand_.end() || left->second.hint.nonce != hint.nonce) return;
    if (outcome == PeerOutcome::Answered && reply.reason == ReplyReason::Ok) {
        alarms_.removed(hint);  // from memory: the index keeps it for whoever comes
        alarms_to_hand_.erase(left);
        return;
    }
    suspect(op.node);
    left->second.op = 0;
    left->second.at = env_.now + kAlarmAgain;
}

}  // namespace hf::core
