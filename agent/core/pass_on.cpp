// Actors that another node holds: what comes for one is passed on to that node, once, and what other nodes ask for comes in
// (part of Units).
//
// Who holds an actor is read from its hold and remembered for a second. An event that was passed on once is not passed on
// again: the node that sent it asks anew. What became of one whose answer does not come is not known, so its client hears
// 504; one that did not leave this node did not happen.
#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr Time kOwnerHint = 1 * kSecond;
constexpr std::uint32_t kRetryAfterMs = 1000;
// How long a signed call may be under way (it is valid for 30 s each way, by clocks that differ): until then one that was
// taken for lost may still come, and the mark which makes it harmless stays.
constexpr Time kCallsSettle = 60 * kSecond;
// Marks that wait for that; those beyond it stay for good, within the bound of an actor's marks.
constexpr std::size_t kOldMarksMax = 65'536;
constexpr Time kSettledDeadline = 10 * kSecond;
// For what has no deadline of its own, and is offered again.
constexpr Time kMessageWait = 30 * kSecond;
constexpr std::uint16_t kCloseMoving = 1012;

ReplyOut unavailable(std::string text) {
    ReplyOut reply;
    reply.reason = ReplyReason::Unavailable;
    reply.retry_after_ms = kRetryAfterMs;
    reply.text = std::move(text);
    return reply;
}
}  // namespace

// --- out ---------------------------------------------------------------------------------------------------------------

bool Units::owner_known(const Unit& unit) const {
    return !unit.owner.empty() && unit.owner_until > env_.now;
}

// Looked up anew at the next event. Its name stays: marks there are still to be settled.
void Units::forget_owner(Unit& unit) {
    unit.owner_until = 0;
}

// Another node holds it, or is to take it: then nobody does, this node gives everything away, and it is not remembered,
// because the one that was chosen may not come to hold it.
void Units::elsewhere(Unit& unit, const std::string& node, To to) {
    unit.hold = Hold::Idle;
    unit.hold_tries = 0;
    unit.owner = node;
    unit.owner_until = to == To::Owner ? env_.now + kOwnerHint : 0;
    ++unit.pumping;
    pass_on(unit, to);
    --unit.pumping;
}

void Units::pass_on(Unit& unit, To to) {
    close_sockets(unit);
    // What ends here may come again at once: a mailbox is emptied once.
    std::deque<Mail> mails = std::exchange(unit.mailbox, {});
    unit.mailbox_bytes = 0;
    look_at_room(unit);
    const Handle gateway = peer_gateway();
    for (Mail& mail : mails) {
        if (settle_here(unit, mail, to)) continue;
        if (!gateway.valid()) {
            answer(unit,
                   mail.waiting,
                   unavailable("no gateway is here to ask the node that holds it"));
            forget_waiting(mail.waiting);
            continue;
        }
        ask_node(unit, std::move(mail), gateway, to);
    }
}

// What is not for the owner, or not to be passed on. True: it has ended.
bool Units::settle_here(Unit& unit, Mail& mail, To to) {
    const Origin& origin = mail.waiting.origin;
    ReplyOut reply;
    if (const auto* alarm = std::get_if<FromAlarm>(&origin)) {
        // Its owner knows of it: it was set there, or found there when the actor was taken over.
        const Hint hint{unit.key, alarm->due_ms, alarm->nonce, 1};
        alarms_.ended(unit.key, alarm->nonce, Alarms::End::Elsewhere);
        if (to == To::Chosen) hand_alarm(hint);
        mail.waiting.answered = true;
        ++env_.stats.answered;
        forget_waiting(mail.waiting);
        return true;
    }
    if (mail.passed_on) {
        reply = unavailable("the actor is held by node " + unit.owner);
    } else if (std::holds_alternative<FromSocketOpened>(origin) ||
               std::holds_alternative<FromSocketMessage>(origin)) {
        reply = unavailable("the actor is held by node " + unit.owner + ", connect there");
    } else if (!std::holds_alternative<FromSocketClosed>(origin) &&
               !std::holds_alternative<FromRestart>(origin)) {
        return false;
    }
    answer(unit, mail.waiting, std::move(reply));
    forget_waiting(mail.waiting);
    return true;
}

Handle Units::peer_gateway() {
    return supervision_.serving_one(Kind::Gateway);
}

PeerCall Units::call_of_peer(Handle gateway, const std::string& node) {
    PeerCall call;
    call.to = gateway;
    call.op = env_.new_op();
    call.address = peers_.address_of(node);
    call.target = node;
    call.origin.node = env_.config.node_id;
    return call;
}

Units::PeerOp Units::op_of_peer(Handle gateway, const std::string& node) const {
    PeerOp op;
    op.gateway = gateway;
    op.node = node;
    op.incarnation = peers_.incarnation_of(node);
    return op;
}

void Units::send_to_peer(PeerCall call, PeerOp op) {
    peer_ops_.emplace(call.op, std::move(op));
    supervision_.told(call.to);
    env_.emit(std::move(call));
}

void Units::ask_node(Unit& unit, Mail mail, Handle gateway, To to) {
    PeerCall call = call_of_peer(gateway, unit.owner);
    call.class_name = class_name(unit);
    call.name = unit.name;
    call.event = std::move(mail.event);
    call.deadline = mail.deadline == 0 ? env_.now + kMessageWait : mail.deadline;
    call.trace = mail.trace;
    call.attached = mail.attached;
    if (std::holds_alternative<FromCall>(mail.waiting.origin)) {
        call.origin.ask = PeerAsk::Call;
        call.origin.chain = std::move(mail.chain);
    } else if (const auto* message = std::get_if<FromMessage>(&mail.waiting.origin)) {
        call.origin.ask = PeerAsk::Message;
        call.origin.source = message->source;
        call.origin.n = message->n;
        call.origin.http = message->kind == EventKind::Http;
        call.origin.last = message->last;
    }
    PeerOp op = op_of_peer(gateway, unit.owner);
    op.unit = unit.id;
    op.waiting = std::move(mail.waiting);
    op.held = std::move(mail.held);
    op.chosen = to == To::Chosen;
    ++unit.peer_calls;
    ++env_.stats.passed_on;
    send_to_peer(std::move(call), std::move(op));
}

void Units::peer_replied(PeerRepliedIn& event) {
    const auto it = peer_ops_.find(event.op);
    if (it == peer_ops_.end() || it->second.gateway != event.from) {
        ++env_.stats.stale_messages;
        return;
    }
    PeerOp op = std::move(it->second);
    peer_ops_.erase(it);
    peer_ended(std::move(op), event.outcome, std::move(event.reply));
}

void Units::peers_of_gateway_gone(Handle gateway) {
    std::vector<OpId> ended;
    for (const auto& [id, op] : peer_ops_)
        if (op.gateway == gateway) ended.push_back(id);
    end_unknown(std::move(ended), "the gateway that asked it ended");
}

// A node that stands still takes connections and never answers: nobody waits for it longer than for its lease.
void Units::peers_of_dead_nodes_gone() {
    std::vector<OpId> ended;
    for (const auto& [id, op] : peer_ops_)
        if (peers_.standing(op.node, op.incarnation) == Peers::Standing::Gone) ended.push_back(id);
    end_unknown(std::move(ended), "its lease has run out");
}

void Units::end_unknown(std::vector<OpId> ids, const std::string& why) {
    std::sort(ids.begin(), ids.end());  // the map's order is nobody's business
    for (const OpId id : ids) {
        const auto it = peer_ops_.find(id);
        if (it == peer_ops_.end()) continue;  // the end of another one took it along
        PeerOp op = std::move(it->second);
        peer_ops_.erase(it);
        ReplyOut reply;
        reply.text = why;
        peer_ended(std::move(op), PeerOutcome::Unknown, std::move(reply));
    }
}

void Units::peer_ended(PeerOp op, PeerOutcome outcome, ReplyOut reply) {
    if (op.alarm) return alarm_handed(op, outcome, reply);
    if (op.unit == 0) return;
    Unit* unit = unit_of(op.unit);
    HF_CHECK(unit != nullptr, "a unit outlives what was passed on for it");
    --unit->peer_calls;
    if (outcome == PeerOutcome::NotSent) {
        ++env_.stats.passed_on_broken;
        reply = unavailable("node " + op.node +
                            ", which holds the actor, cannot be reached: " + reply.text);
    } else if (outcome == PeerOutcome::Unknown) {
        ++env_.stats.passed_on_broken;
        reply.reason = ReplyReason::Deadline;
        reply.text = "node " + op.node + ", which holds the actor, did not answer: " + reply.text;
    }
    const bool held_there = reply.reason != ReplyReason::Busy &&
                            reply.reason != ReplyReason::Unavailable &&
                            reply.reason != ReplyReason::Deadline;
    if (!held_there) forget_owner(*unit);
    if (outcome != PeerOutcome::Answered || (op.chosen && !held_there)) suspect(op.node);
    ++unit->pumping;
    answer(*unit, op.waiting, std::move(reply));
    forget_waiting(op.waiting);
    --unit->pumping;
    pump(*unit);
}

// True: it was that of an event which another node has; its answer will find that nobody waits.
bool Units::peer_deadline_passed(const DeadlineEntry& entry) {
    for (auto& [id, op] : peer_ops_) {
        if (op.unit != entry.unit || op.waiting.event != entry.event) continue;
        Unit* unit = unit_of(op.unit);
        ReplyOut reply;
        reply.reason = ReplyReason::Deadline;
        reply.text = "node " + op.node + ", which holds the actor, did not answer in time";
        forget_owner(*unit);
        answer(*unit, op.waiting, std::move(reply));
        return true;
    }
    return false;
}

// Connections end with the hold: their actor hears at its next owner that it was restored.
void Units::close_sockets(Unit& unit) {
    if (unit.sockets == 0) return;
    for (const std::uint64_t number : sockets_.of_unit(unit.id)) {
        const Socket socket = *sockets_.find(number);
        sockets_.remove(number);
        --unit.sockets;
        env_.emit(CloseSocket{
            socket.gateway, socket.theirs, kCloseMoving, "the actor is moving, connect again"});
    }
}

// --- in ----------------------------------------------------------------------------------------------------------------

void Units::answer_peer(const FromPeer& peer, ReplyOut reply) {
    reply.to = peer.gateway;
    reply.req_id = peer.req_id;
    emit_reply(std::move(reply));
}

void Units::peer_asks(const RequestIn& request) {
    const PeerOrigin& origin = *request.origin;
    const FromPeer from{request.from, request.req_id};
    const auto refuse_it = [&](ReplyReason reason, std::string text) {
        refuse(request.from, request.req_id, Refusal{reason, std::move(text)});
    };
    if (incarnation_ == 0)
        return refuse_it(ReplyReason::Unavailable, "this node holds no lease at the moment");
    const auto key = actor_unit(env_.config.tenant, request.class_name, request.name);
    if (!key) return refuse_it(ReplyReason::BadName, key.error().message);
    Mail mail;
    mail.event = request.event;
    mail.deadline = latest(request.deadline);
    mail.trace = request.trace;
    mail.attached = request.attached;
    mail.passed_on = true;
    switch (origin.ask) {
        case PeerAsk::Request:
            mail.waiting.origin = FromRequest{request.from, request.req_id};
            break;
        case PeerAsk::Call:
            mail.chain = origin.chain;
            if (chain_is_closed(mail, *key))
                return refuse_it(ReplyReason::Busy, "the call would wait for itself");
            mail.waiting.origin = from;
            break;
        case PeerAsk::Message:
            mail.waiting.origin = FromMessage{origin.http ? EventKind::Http : EventKind::Call,
                                              origin.source,
                                              origin.n,
                                              origin.last,
                                              false,
                                              from};
            break;
        case PeerAsk::Settled:
            drop_mark_later(*key, origin.source, origin.n);
            return answer_peer(from, {});
        case PeerAsk::Alarm:
            if (class_named(request.class_name) == nullptr)
                return refuse_it(ReplyReason::UnknownClass,
                                 "no class named '" + request.class_name + "' is deployed here");
            if (closing_ || drain_.on())
                return refuse_it(ReplyReason::Busy, "this node gives its own actors away");
            alarms_.handed({*key, origin.due_ms, origin.nonce, 1});
            return answer_peer(from, {});
    }
    if (auto refusal = admit(request.class_name, request.name, std::move(mail)))
        refuse(request.from, request.req_id, std::move(*refusal));
}

// --- marks of messages between nodes ---------------------------------------------------------------------------------------

void Units::drop_mark_later(const std::string& unit, const std::string& source, std::uint64_t n) {
    if (old_marks_.size() < kOldMarksMax)
        old_marks_.emplace(env_.now + kCallsSettle, OldMark{unit, source, n});
}

void Units::drop_marks_due() {
    while (!old_marks_.empty() && old_marks_.begin()->first <= env_.now) {
        const OldMark mark = std::move(old_marks_.begin()->second);
        old_marks_.erase(old_marks_.begin());
        if (Unit* unit = unit_named(mark.unit)) drop_mark_of(*unit, mark.source, mark.n);
    }
}

// Advice: a mark that stays costs a little room.
void Units::settle_at_owner(const Unit& receiver, const std::string& source, std::uint64_t n) {
    const Handle gateway = peer_gateway();
    if (!gateway.valid()) return;
    PeerCall call = call_of_peer(gateway, receiver.owner);
    call.class_name = class_name(receiver);
    call.name = receiver.name;
    call.deadline = env_.now + kSettledDeadline;
    call.origin.ask = PeerAsk::Settled;
    call.origin.source = source;
    call.origin.n = n;
    send_to_peer(std::move(call), op_of_peer(gateway, receiver.owner));
}

}  // namespace hf::core
