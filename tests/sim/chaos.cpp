// What goes wrong with a node's processes, its supervisor and its disk (part of World).
#include <algorithm>

#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

void World::start_after(Node& node, Time pause) {
    after(pause, [this, &node] {
        if (!node.up() && !ending_) node.start_life();
    });
}

// The supervisor is killed; its processes die with it.
void World::kill_node(Node& node) {
    if (!node.up() || !faults_) return;
    if (tracing_) node.trace("the supervisor is killed");
    node.end_life();
    start_after(node, dice.skewed(kMs, 2 * kSecond));
}

void World::schedule_chaos() {
    for (int i = 0; i < scenario.node_restarts; ++i)
        after(dice.between(0, scenario.span), [this] { kill_node(*nodes_.front()); });
    const std::size_t all = nodes_.size();
    const auto some_node = [this, all]() -> Node& {
        return *nodes_[all == 1 ? 0 : static_cast<std::size_t>(dice.below(all))];
    };
    for (int i = 0; i < scenario.swaps; ++i)
        after(dice.between(0, scenario.span), [this, some_node] { send_command(some_node()); });
    for (int i = 0; i < scenario.deploys; ++i)
        after(dice.between(0, scenario.span), [this, some_node] { send_deploy(some_node()); });
    for (const auto& each : nodes_) {
        Node& node = *each;
        if (scenario.kill_every != 0)
            after(dice.between(0, scenario.kill_every), [this, &node] { kill_one(node); });
        if (scenario.stall_every != 0)
            after(dice.between(0, scenario.stall_every), [this, &node] { stall_one(node); });
    }
    if (scenario.disk_full_every != 0)
        after(dice.between(0, scenario.disk_full_every), [this] { disk_phase(); });
    for (int i = 0; i < scenario.node_faults; ++i)
        after(dice.between(0, scenario.span), [this] { node_fault(); });
}

void World::kill_one(Node& node) {
    if (!faults_) return;
    after(dice.between(1, 2 * scenario.kill_every), [this, &node] { kill_one(node); });
    const auto& instances = node.instances();
    if (instances.empty() || node.stands_still()) return;
    auto it =
        std::next(instances.begin(), static_cast<std::ptrdiff_t>(dice.below(instances.size())));
    if (it->second->dead()) return;
    if (dice.percent(10)) {
        it->second->violate("a record longer than its ring");
    } else {
        it->second->crash();
    }
}

// Gateways and drain policies owe the core no answer, so nobody would notice.
void World::stall_one(Node& node) {
    if (!faults_) return;
    after(dice.between(1, 2 * scenario.stall_every), [this, &node] { stall_one(node); });
    std::vector<Instance*> able;
    for (const auto& [generation, instance] : node.instances()) {
        const bool watched = instance->kind() == core::Kind::Storage ||
                             instance->kind() == core::Kind::Runtime ||
                             instance->kind() == core::Kind::Placement;
        if (instance->serving() && watched) able.push_back(instance.get());
    }
    if (!able.empty()) dice.pick(able)->stall();
}

void World::disk_phase() {
    if (!faults_) return;
    disk_full_ = !disk_full_;
    if (tracing_) trace(disk_full_ ? "the disk is full" : "the disk has room again");
    const Time mean = disk_full_ ? scenario.disk_full_for : scenario.disk_full_every;
    after(dice.between(1, 2 * mean), [this] { disk_phase(); });
}

World::Command& World::new_command(const Node& node, std::uint64_t& id) {
    id = commands_.size() + 1;
    Command& command = commands_[id];
    command.node = &node;
    command.life = node.life();
    return command;
}

void World::send_command(Node& node) {
    if (!node.up() || !faults_) return;
    static const std::vector<std::string> kSlots = {
        "placement", "placement", "placement", "runtime", "runtime", "storage", "gateway", "drain"};
    std::uint64_t id = 0;
    Command& command = new_command(node, id);
    const std::string slot = dice.pick(kSlots);
    const auto kind = dice.below(10);
    if (kind == 0) return node.feed(core::RollbackCommand{id, slot});
    if (kind == 1) return node.feed(core::ResetCommand{id, slot});
    const bool policy = slot == "placement" || slot == "drain";
    core::SwapCommand swap;
    swap.command = id;
    swap.slot = slot;
    swap.build.use = slot;
    swap.build.binary_hash = "hash-of-another-" + slot;
    if (slot == "drain") swap.build.policy = "paced";
    if (slot == "placement") {
        static const std::vector<std::string> kPolicies = {"rendezvous", "least-loaded", "random"};
        swap.build.policy = dice.pick(kPolicies);
    }
    swap.build.settings.emplace_back("version", std::to_string(++last_build_));
    if (dice.percent(50)) {
        std::vector<std::string> misdeeds = {"die_at_start",
                                             "never_greets",
                                             "wrong_kind",
                                             "refuses",
                                             "never_ready",
                                             "die_at_configure"};
        if (policy)
            misdeeds = {"die_at_start",
                        "refuses",
                        "no_policy",
                        "crash_in_test",
                        "stall_in_test",
                        "lie_in_test",
                        "crash_in_full",
                        "stall_in_full",
                        "lie_in_full"};
        swap.build.settings.emplace_back("misdeed", dice.pick(misdeeds));
        command.must_fail = true;
    }
    node.feed(swap);
}

// The same program with another table of modules; every second one is bad in some way.
void World::send_deploy(Node& node) {
    if (!node.up() || !faults_) return;
    std::uint64_t id = 0;
    Command& command = new_command(node, id);
    core::SwapCommand swap;
    swap.command = id;
    swap.slot = "runtime";
    swap.build.use = "runtime";
    swap.build.binary_hash = "hash-of-runtime";
    swap.build.modules = "table " + std::to_string(++last_build_);
    if (dice.percent(50)) {
        // What dies at its first activation may see none before it has lasted.
        static const std::vector<std::string> kMisdeeds = {
            "die_at_start", "refuses", "never_ready", "die_at_configure", "dies_at_activation"};
        const std::string& misdeed = dice.pick(kMisdeeds);
        swap.build.settings.emplace_back("misdeed", misdeed);
        command.must_fail = misdeed != "dies_at_activation";
    }
    node.feed(swap);
}

void World::command_done(const core::CommandDone& done) {
    const auto it = commands_.find(done.command);
    if (it == commands_.end()) broken("a command that nobody sent is done");
    Command& command = it->second;
    if (command.done) broken("command " + std::to_string(done.command) + " is done twice");
    command.done = true;
    if (done.ok && command.must_fail) broken("a bad build is in charge: " + done.text);
    if (done.text.empty()) broken("a command is done without a word");
}

}  // namespace hf::sim
