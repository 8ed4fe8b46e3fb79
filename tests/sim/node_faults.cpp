// What goes wrong with whole nodes and what lies between them and the bucket (part of World).
#include <algorithm>

#include "agent/core/keys.hpp"
#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {
constexpr Time kRestartMax = 2 * kSecond;  // until who ended by itself is started again
constexpr Time kClockStepMax = 20 * kSecond;
}  // namespace

// Some shorter than a lease, some longer than what others wait.
Time World::fault_lasts() {
    const core::LeaseSpec& lease = scenario.lease;
    if (dice.percent(40)) return dice.between(20 * kMs, lease.ttl);
    return dice.between(lease.ttl / 2, 2 * (lease.ttl + lease.grace));
}

void World::node_fault() {
    if (!faults_) return;
    Node& node = *nodes_[static_cast<std::size_t>(dice.below(scenario.nodes))];
    const Time lasts = fault_lasts();
    const auto tell = [&](const std::string& what) {
        if (tracing_) node.trace(what + " for " + std::to_string(lasts / kMs) + " ms");
    };
    switch (dice.below(13)) {
        case 0:
        case 1: {
            if (!node.up()) return;
            tell("the supervisor is killed, and is away");
            node.end_life();
            const Time away = dice.percent(50) ? dice.skewed(kMs, kRestartMax) : lasts;
            over_at(now_ + away);
            return start_after(node, away);
        }
        case 2:
            if (!node.up() || node.stopping()) return;
            if (tracing_) node.trace("an operator stops it");
            return node.stop("an operator wants it");
        case 3:
            tell("the supervisor is paused");
            return hold_up(node, Node::Held::Paused);
        case 4:
            tell("the machine is frozen");
            return hold_up(node, Node::Held::Frozen);
        case 5:
            tell("the machine is suspended");
            return hold_up(node, Node::Held::Suspended);
        case 6:
        case 7:
            tell("cut from the bucket");
            over_at(now_ + lasts + kSecond);
            return node.cut_from_bucket(std::max(node.bucket_cut_until(), now_ + lasts));
        case 8:
            tell("the way to the bucket is slow");
            // What was sent at the end of it is under way for long.
            over_at(now_ + lasts + 2 * (scenario.lease.ttl + scenario.lease.grace) + kSecond);
            return node.slow_to_bucket(std::max(node.bucket_slow_until(), now_ + lasts));
        case 9:
            return cut_links(node);
        case 10:
            return start_intruder(node);
        case 11:
            tell("an operator drains it");
            return drain(node, lasts);
        default: {
            const Time by = dice.between(-kClockStepMax, kClockStepMax);
            if (tracing_) node.trace("its clock is set by " + std::to_string(by / kMs) + " ms");
            return node.step_wall(by);
        }
    }
}

void World::hold_up(Node& node, Node::Held how) {
    if (!node.up() || node.held() != Node::Held::No) return;
    node.hold_up(how);
    const Time lasts = fault_lasts();
    over_at(now_ + lasts);
    after(lasts, [this, &node, life = node.life()] {
        if (node.life() != life) return;
        if (tracing_) node.trace("goes on");
        node.go_on();
    });
}

// Its actors go to others meanwhile. It notices the end at its second look.
void World::drain(const Node& node, Time lasts) {
    const auto ask = [this, &node](core::StoreVerb verb) {
        core::StoreRequest request;
        request.verb = verb;
        request.key = core::key::drain(node.name().id);
        core::StoreAnswer answer;
        bucket.serve(request, node.number(), false, answer);
    };
    ask(core::StoreVerb::Put);
    over_at(now_ + lasts + 3 * scenario.lease.renew + kSecond);
    after(lasts, [ask] { ask(core::StoreVerb::Delete); });
}

// With one or with all, both ways or one way.
void World::cut_links(Node& node) {
    const Time until = now_ + fault_lasts();
    over_at(until);
    const bool all = dice.percent(40);
    const auto one = static_cast<std::size_t>(dice.below(scenario.nodes));
    const auto way = dice.below(3);
    if (tracing_)
        node.trace("cut from " + (all ? "all" : nodes_[one]->name().id) + " way " +
                   std::to_string(way) + " for " + std::to_string((until - now_) / kMs) + " ms");
    for (const auto& other : nodes_) {
        if (other->number() == node.number() || (!all && other->number() != one)) continue;
        if (way != 1) network.cut(node.number(), other->number(), until);
        if (way != 2) network.cut(other->number(), node.number(), until);
    }
}

// A second one under its id, with a data directory of its own: it may have the id when the first is gone for good, and has to
// say so when it is not.
void World::start_intruder(const Node& like) {
    const core::LeaseSpec& lease = scenario.lease;
    const bool decides = dice.percent(70);
    const Time enough = (lease.ttl + lease.grace + lease.poll) * 102 / 100 + 3 * kSecond;
    const Time lasts = decides ? enough : fault_lasts();
    Node& other = add_node(like.name().id, true);
    if (tracing_) other.trace("another instance starts under this id");
    other.start_life();
    over_at(now_ + lasts + kRestartMax + kSecond);
    after(lasts, [this, &other, decides] {
        if (decides && scenario.only_nodes_fail && other.up() &&
            node_watch.displaced(other.number()))
            broken("a second " + other.name().id + " neither takes the id nor gives up");
        other.end_life();
    });
}

void World::exited(Node& node, bool refused) {
    if (refused) ++refused_;
    after(0, [this, &node, life = node.life()] {
        if (node.life() != life) return;
        node.end_life();
        if (!ending_ && !node.name().intruder) start_after(node, dice.skewed(kMs, kRestartMax));
    });
}

// What has begun ends in its own time; then every node is to run.
void World::end_faults() {
    if (now_ < last_fault_over_) run_until(last_fault_over_, [] { return false; });
    const auto stops = [this] {
        for (const Node* node : all_up())
            if (node->stopping()) return true;
        return false;
    };
    run_until(now_ + 120 * kSecond, [&] { return !stops(); });
    if (stops()) broken("a node that was told to stop does not");
    start_all();
    if (tracing_) trace("every node runs, nothing lies between them");
}

}  // namespace hf::sim
