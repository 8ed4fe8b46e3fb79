#include "tests/sim/network.hpp"

#include <algorithm>

#include "tests/sim/failure.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

using core::PeerAsk;
using core::PeerOutcome;

namespace {
constexpr Time kConnect = 1 * kSecond;    // as a gateway tries
constexpr Time kPatience = 30 * kSecond;  // for an answer to what has no deadline
}  // namespace

Time Network::delay() {
    return world_.dice.skewed(50'000, world_.faults() ? world_.scenario.link_delay_max : kMs);
}

bool Network::cut(const Node& from, const Node& to) const {
    const auto it = cuts_.find({from.number(), to.number()});
    return it != cuts_.end() && it->second > world_.now();
}

void Network::judge(const Node& from, const core::PeerCall& call) {
    const std::string name = "a question of " + from.name().id + " to " + call.target;
    if (!world_.scenario.cluster()) broken(name + ", and there is no other node");
    if (call.origin.node != from.name().id) broken(name + " says it is of " + call.origin.node);
    if (call.target == from.name().id) broken(name + " goes to itself");
    if (call.origin.ask != PeerAsk::Request) return;
    const auto event = unpack_event(call.event);
    if (!event) broken(name + " is a request that no client sent");
    if ((call.attached != nullptr) != comes_large(event->id))
        broken(name + " goes without its large body");
    world_.history.passing_on(event->id, from.number());
}

void Network::send(Node& from, Gateway& gateway, const core::PeerCall& call) {
    ++asked_;
    auto question = std::make_shared<Question>();
    question->from = &from;
    question->life = from.life();
    question->gateway = gateway.handle();
    question->call = call;
    if (call.origin.ask == PeerAsk::Request) question->request = unpack_event(call.event)->id;
    const Time left =
        call.deadline == 0 ? kPatience : std::max<Time>(0, call.deadline - from.now());
    // Whatever happens, the gateway waits no longer than that.
    lost(question, PeerOutcome::Unknown, left + kMs);
    if (call.address.empty()) return lost(question, PeerOutcome::NotSent, kMs);
    const Node* to = world_.node_at(call.address);
    // Nobody answers the handshake, or an old connection is used that still looks sound.
    const bool fresh = world_.dice.percent(50);
    const bool silent = to == nullptr || cut(from, *to) || to->stands_still();
    if (fresh && (silent || cut(*to, from))) return lost(question, PeerOutcome::NotSent, kConnect);
    if (silent && !(to != nullptr && to->stands_still())) return;
    world_.after(delay(), [this, question, left] { arrive(question, left); });
}

void Network::arrive(const Asking& question, Time left) {
    Node* to = world_.node_at(question->call.address);
    if (to == nullptr || cut(*question->from, *to)) return;
    if (to->stands_still())
        return to->when_it_goes_on([this, question, left] { arrive(question, left); });
    Gateway* gateway = to->up() ? to->ready_gateway() : nullptr;
    const bool reset = world_.faults() && world_.dice.permille(world_.scenario.link_lost);
    if (gateway == nullptr || (reset && world_.dice.percent(50))) {
        // Refused at the door, or cut off in the middle of it.
        const bool unknown = world_.dice.percent(50);
        return lost(question, unknown ? PeerOutcome::Unknown : PeerOutcome::NotSent, delay());
    }
    const core::PeerCall& call = question->call;
    if (to->name().id != call.target) {
        core::ReplyOut refusal;
        refusal.reason = core::ReplyReason::Unavailable;
        refusal.text = "this is another node";
        return answer(question, PeerOutcome::Answered, refusal, delay());
    }
    core::RequestIn request;
    request.from = gateway->handle();
    request.req_id = world_.next_request();
    request.class_name = call.class_name;
    request.name = call.name;
    request.event = call.event;
    request.deadline = to->now() + left;
    request.trace = call.trace;
    request.attached = call.attached;
    request.origin = call.origin;
    if (world_.tracing())
        to->trace("asked by " + call.origin.node + " req " + std::to_string(request.req_id) +
                  " kind " + std::to_string(static_cast<int>(call.origin.ask)) + " for " +
                  call.name);
    gateway->sent(request.req_id);
    const GatewayName name{to->number(), to->life(), gateway->handle().generation};
    open_.emplace(std::pair(name, request.req_id), Answering{question, request.deadline});
    if (reset) lost(question, PeerOutcome::Unknown, delay());
    to->feed(std::move(request));
}

bool Network::answered(Node& at, const core::ReplyOut& reply, const AnswerTime& time) {
    const GatewayName gateway{at.number(), at.life(), reply.to.generation};
    const auto it = open_.find(std::pair(gateway, reply.req_id));
    if (it == open_.end()) return cut_off_.contains(std::pair(gateway, reply.req_id));
    const Answering open = std::move(it->second);
    open_.erase(it);
    const std::string name = "the question of " + open.question->call.origin.node + " to " +
                             at.name().id + " about " + open.question->call.name;
    if (time.now > open.deadline + time.grain && open.deadline < time.held_since)
        broken(name + " is answered after its deadline");
    Gateway* from = static_cast<Gateway*>(at.find(reply.to));
    if (from == nullptr || !from->answering() || cut(at, *open.question->from)) return true;
    answer(open.question, PeerOutcome::Answered, reply, delay());
    return true;
}

void Network::answer(const Asking& question,
                     PeerOutcome outcome,
                     core::ReplyOut reply,
                     Time delay) {
    if (question->done || question->from->life() != question->life) return;
    core::PeerRepliedIn event;
    event.from = question->gateway;
    event.op = question->call.op;
    event.outcome = outcome;
    event.reply = std::move(reply);
    event.reply.to = {};
    event.reply.req_id = 0;
    question->from->after(question->gateway, delay, [this, question, event] {
        if (std::exchange(question->done, true)) return;
        if (event.outcome == PeerOutcome::Unknown) ++unknown_;
        if (question->request != 0) {
            Asked::Passed how = Asked::Passed::Answered;
            if (event.outcome == PeerOutcome::NotSent) how = Asked::Passed::NotSent;
            if (event.outcome == PeerOutcome::Unknown) how = Asked::Passed::Unknown;
            world_.history.passed_on(question->request, how);
        }
        Node& from = *question->from;
        static_cast<Gateway*>(from.find(question->gateway))->heard(event.op);
        if (world_.tracing())
            from.trace("op " + std::to_string(event.op) + " outcome " +
                       std::to_string(static_cast<int>(event.outcome)) + " " +
                       reason_name(event.reply.reason) + " " + event.reply.text);
        from.feed(event);
    });
}

void Network::lost(const Asking& question, PeerOutcome outcome, Time delay) {
    answer(question, outcome, {}, delay);
}

// Who asked sees its connection break.
void Network::gateway_gone(GatewayName gateway) {
    for (auto it = open_.begin(); it != open_.end();) {
        if (it->first.first != gateway) {
            ++it;
            continue;
        }
        lost(it->second.question, PeerOutcome::Unknown, delay());
        cut_off_.insert(it->first);
        it = open_.erase(it);
    }
}

void Network::life_gone(std::size_t node, std::uint64_t life) {
    for (auto it = open_.begin(); it != open_.end();) {
        if (it->first.first.node != node || it->first.first.life != life) {
            ++it;
            continue;
        }
        lost(it->second.question, PeerOutcome::Unknown, delay());
        it = open_.erase(it);
    }
}

}  // namespace hf::sim
