// The node's lives and the chaos around them (part of World).
#include <algorithm>

#include "agent/records/records.hpp"
#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

core::Config World::node_config() {
    core::Config config;
    config.node_id = "n1";
    config.instance_id = "the-data-directory";
    config.http_address = "127.0.0.1:1";
    config.machine = "machine";
    config.boot = "boot";
    config.limits = scenario.limits;
    config.restart_intensity = scenario.restart_intensity;
    config.leftovers_reaped = scenario.leftovers_reaped;
    config.seed_hi = dice.next();
    config.seed_lo = dice.next();
    const auto slot = [&](const char* name, core::Kind kind, std::uint32_t count) {
        core::SlotSpec spec;
        spec.name = name;
        spec.kind = kind;
        spec.instances = count;
        spec.build.use = name;
        spec.build.binary_hash = std::string("hash-of-") + name;
        if (kind == core::Kind::Placement) spec.build.policy = scenario.placement;
        if (kind == core::Kind::Drain) spec.build.policy = "paced";
        config.slots.push_back(spec);
    };
    slot("gateway", core::Kind::Gateway, scenario.gateways);
    slot("storage", core::Kind::Storage, 1);
    slot("runtime", core::Kind::Runtime, scenario.runtimes);
    slot("placement", core::Kind::Placement, 1);
    slot("drain", core::Kind::Drain, 1);
    core::ClassSpec counter;
    counter.name = "counter";
    counter.wall_limit = 1 * kSecond;
    counter.body_bytes_max = 1U << 20U;
    counter.evict_after = scenario.evict_after;
    config.classes.push_back(counter);
    return config;
}

void World::start_life() {
    ++life_;
    exited_ = false;
    stopping_ = false;
    watch.new_life();
    were_ready_.clear();
    if (tracing_) trace("the node starts, life " + std::to_string(life_));
    core_ = std::make_unique<core::Core>(node_config(), records::codec(), bad_builds_);
    journal_free_ = now_;
    feed(journal_content());
    feed(core::StartNode{});
}

void World::end_life() {
    if (!core_) return;
    const core::Stats& stats = core_->stats();
    totals_.accepted += stats.accepted;
    totals_.commits += stats.commits;
    totals_.commit_unknown += stats.commit_unknown;
    totals_.undone += stats.undone;
    totals_.redelivered += stats.redelivered;
    totals_.bases += stats.bases;
    totals_.loads += stats.loads;
    totals_.fenced += stats.fenced;
    totals_.restarts += stats.restarts;
    totals_.stale_messages += stats.stale_messages;
    totals_.place_invalid += stats.place_invalid;
    totals_.place_late += stats.place_late;
    totals_.poisoned += stats.poisoned;
    totals_.deadline += stats.deadline;
    totals_.evicted += stats.evicted;
    totals_.stops += stats.stops;
    totals_.stops_failed += stats.stops_failed;
    history.orphan_life(life_);
    places_.clear();
    stopped_.clear();
    for (auto& [id, command] : commands_) {
        if (command.life == life_) command.done = true;
    }
    core_.reset();
    instances_.clear();
    ++life_;  // what the old processes had under way finds nobody
}

// The supervisor is killed; its processes die with it.
void World::restart_node() {
    if (!core_ || !faults_) return;
    if (tracing_) trace("the supervisor is killed");
    end_life();
    after(dice.skewed(kMs, 2 * kSecond), [this] {
        if (!core_) start_life();
    });
}

void World::schedule_chaos() {
    for (int i = 0; i < scenario.node_restarts; ++i)
        after(dice.between(0, scenario.span), [this] { restart_node(); });
    for (int i = 0; i < scenario.swaps; ++i)
        after(dice.between(0, scenario.span), [this] { send_command(); });
    for (int i = 0; i < scenario.deploys; ++i)
        after(dice.between(0, scenario.span), [this] { send_deploy(); });
    if (scenario.kill_every != 0)
        after(dice.between(0, scenario.kill_every), [this] { kill_one(); });
    if (scenario.stall_every != 0)
        after(dice.between(0, scenario.stall_every), [this] { stall_one(); });
    if (scenario.disk_full_every != 0)
        after(dice.between(0, scenario.disk_full_every), [this] { disk_phase(); });
}

void World::kill_one() {
    if (!faults_) return;
    after(dice.between(1, 2 * scenario.kill_every), [this] { kill_one(); });
    if (instances_.empty()) return;
    auto it =
        std::next(instances_.begin(), static_cast<std::ptrdiff_t>(dice.below(instances_.size())));
    if (it->second->dead()) return;
    if (dice.percent(10)) {
        it->second->violate("a record longer than its ring");
    } else {
        it->second->crash();
    }
}

// Gateways and drain policies owe the core no answer, so nobody would notice.
void World::stall_one() {
    if (!faults_) return;
    after(dice.between(1, 2 * scenario.stall_every), [this] { stall_one(); });
    std::vector<Instance*> able;
    for (auto& [generation, instance] : instances_) {
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

void World::send_command() {
    if (!core_ || !faults_) return;
    static const std::vector<std::string> kSlots = {
        "placement", "placement", "placement", "runtime", "runtime", "storage", "gateway", "drain"};
    const std::uint64_t id = commands_.size() + 1;
    Command& command = commands_[id];
    command.sent = now_;
    command.life = life_;
    const std::string slot = dice.pick(kSlots);
    const auto kind = dice.below(10);
    if (kind == 0) return feed(core::RollbackCommand{id, slot});
    if (kind == 1) return feed(core::ResetCommand{id, slot});
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
    feed(swap);
}

// The same program with another table of modules; every second one is bad in some way.
void World::send_deploy() {
    if (!core_ || !faults_) return;
    const std::uint64_t id = commands_.size() + 1;
    Command& command = commands_[id];
    command.sent = now_;
    command.life = life_;
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
    feed(swap);
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
