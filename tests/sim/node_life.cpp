// How a node is configured, starts and ends, and what must hold of it when all is quiet (part of Node).
#include <algorithm>

#include "agent/records/records.hpp"
#include "tests/sim/failure.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {
// Of a node with a lease: its renewal, its look at the others, one at each part of the alarm index, and what these led to.
constexpr std::size_t kStoreOpenMax = 64 + 8;
}  // namespace

core::Config Node::config() {
    const Scenario& scenario = world_.scenario;
    core::Config config;
    config.node_id = name_.id;
    config.instance_id = name_.instance;
    config.http_address = name_.address;
    config.machine = "machine";
    config.boot = "boot";
    if (scenario.cluster()) {
        config.machine += " of " + name_.instance;
        config.lease = scenario.lease;
        config.peer_address = name_.address;
    }
    config.limits = scenario.limits;
    config.restart_intensity = scenario.restart_intensity;
    config.leftovers_reaped = scenario.leftovers_reaped;
    config.seed_hi = world_.dice.next();
    config.seed_lo = world_.dice.next();
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

void Node::start_life() {
    ++life_;
    exited_ = false;
    stopping_ = false;
    world_.watch.new_life(number());
    world_.node_watch.new_life(number());
    were_ready_.clear();
    if (world_.tracing()) trace("the node starts, life " + std::to_string(life_));
    core_ = std::make_unique<core::Core>(config(), records::codec(), bad_builds_);
    tick_at_ = core_->next_deadline();
    journal_free_ = world_.now();
    feed(journal_content());
    if (world_.scenario.cluster()) {
        feed(core::ClockIs{wall_offset_});
        feed(core::SleptIs{clock_.slept(world_.now())});
    }
    feed(core::StartNode{});
}

void Node::end_life() {
    if (!core_) return;
    world_.add_totals(core_->stats());
    world_.history.orphan_life(number(), life_);
    world_.network.life_gone(number(), life_);
    world_.life_ends(*this);
    places_.clear();
    stopped_.clear();
    backlog_.clear();
    frozen_.clear();
    held_ = Held::No;
    wall_offset_ += clock_.resume(world_.now());
    core_.reset();
    instances_.clear();
    ++life_;  // what the old processes had under way finds nobody
}

void Node::stop(const std::string& reason) {
    stopping_ = true;
    feed(core::StopNode{reason});
}

void Node::check_core() {
    const core::Units& units = core_->units();
    const std::string name = world_.scenario.cluster() ? name_.id + ": " : "";
    if (units.accepted_open() != 0)
        broken(name + "events are counted as open when all are answered");
    if (!units.quiet()) broken(name + "a unit is counted as unsettled when all is stored");
    if (units.journal().size() != 0) broken(name + "the journal is not empty when all is applied");
    if (!journal_.empty()) broken(name + "what was applied stays in the journal");
    if (units.bulk().count() != 0 || units.bulk().bytes() != 0)
        broken(name + "large bodies are counted as open when all are answered");
    if (core_->store().open() > (world_.scenario.cluster() ? kStoreOpenMax : 0))
        broken(name + "requests to the store are open when all is quiet");
    std::map<Handle, std::uint32_t> resident;
    for (const auto& [id, unit] : units.all()) {
        if (unit->runtime.valid()) ++resident[unit->runtime];
        if (!unit->in_idle_list) broken(name + unit->key + " is known and can never be forgotten");
    }
    for (const auto& [generation, instance] : instances_) {
        if (instance->kind() != core::Kind::Runtime || instance->dead()) continue;
        const auto counted = units.resident_on(instance->handle());
        if (counted != resident[instance->handle()])
            broken(name + "runtime generation " + std::to_string(generation) + " is counted with " +
                   std::to_string(counted) + " units and has " +
                   std::to_string(resident[instance->handle()]));
    }
    for (const auto& [generation, instance] : instances_) {
        // One that hangs with nothing to do is found when somebody asks it.
        if (!instance->serving() && !instance->stalled())
            broken(name + "an instance that serves nobody is kept alive");
    }
}

// Nothing ever went wrong: a least-loaded policy must have kept the two runtimes level.
void Node::check_balance() const {
    std::uint32_t low = UINT32_MAX;
    std::uint32_t high = 0;
    for (const auto& [generation, instance] : instances_) {
        if (instance->kind() != core::Kind::Runtime) continue;
        const auto count = core_->units().resident_on(instance->handle());
        low = std::min(low, count);
        high = std::max(high, count);
    }
    if (high - low > 1)
        broken("least-loaded left the runtimes with " + std::to_string(low) + " and " +
               std::to_string(high) + " units");
    const core::Stats& stats = core_->stats();
    if (stats.placed_by_default != 0 || stats.undone != 0 || stats.redelivered != 0 ||
        stats.stale_messages != 0 || stats.fenced != 0 || stats.restarts != 0)
        broken("the core counted trouble where there was none");
}

}  // namespace hf::sim
