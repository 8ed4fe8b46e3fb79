// What all simulated processes have in common: start, end, and the ways to be bad at both.
#include "tests/sim/failure.hpp"
#include "tests/sim/instances.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

Instance::Instance(World& world, core::Spawn spawn)
    : world_(world), spawn_(std::move(spawn)), life_(world.life()) {
    for (const auto& [key, value] : spawn_.build.settings) {
        if (key == "misdeed") misdeed_ = value;
    }
}

void Instance::answer_later(Time delay, core::Event event) {
    world_.after(*this, delay, [this, event = std::move(event)] {
        progressed();
        world_.feed(event);
    });
}

void Instance::start() {
    const bool random_trouble =
        world_.faults() && misdeed_.empty() && world_.dice.permille(world_.scenario.bad_start);
    if (random_trouble) {
        static const std::vector<std::string> kTroubles = {"spawn",
                                                           "die_at_start",
                                                           "never_greets",
                                                           "wrong_kind",
                                                           "refuses",
                                                           "never_ready",
                                                           "die_at_configure",
                                                           "greets_twice"};
        misdeed_ = world_.dice.pick(kTroubles);
    }
    if (misdeed_ == "spawn") {
        dead_ = true;
        const auto handle = spawn_.handle;
        World& world = world_;
        const auto life = life_;
        world_.after(1, [&world, handle, life] {
            if (world.life() != life) return;
            core::Exited exited;
            exited.from = handle;
            exited.summary = "could not be started";
            exited.spawn_failed = true;
            world.feed(exited);
        });
        return;
    }
    if (misdeed_ == "never_greets") return;
    world_.after(*this, world_.dice.skewed(kMs, 60 * kMs), [this] {
        if (misdeed_ == "die_at_start") return die("killed by signal 11", true, 0);
        greet();
    });
}

void Instance::greet() {
    core::Greeted greeted;
    greeted.from = spawn_.handle;
    greeted.kind = spawn_.kind;
    if (misdeed_ == "wrong_kind") greeted.kind = core::Kind::None;
    greeted.name = spawn_.build.use;
    greeted.version = "1";
    if (misdeed_ != "no_policy")
        greeted.policies = {"rendezvous", "least-loaded", "random", "paced"};
    world_.feed(greeted);
    if (misdeed_ == "greets_twice") world_.feed(greeted);
}

void Instance::configure() {
    if (!answering() || misdeed_ == "never_ready") return;
    world_.after(*this, world_.dice.skewed(kMs, 60 * kMs), [this] {
        if (misdeed_ == "die_at_configure") return die("killed by signal 31", true, 0);
        core::ReadyIn ready;
        ready.from = spawn_.handle;
        ready.ok = misdeed_ != "refuses";
        if (!ready.ok) ready.error = "the settings are not to its taste";
        ready_ = ready.ok;
        world_.feed(ready);
    });
}

void Instance::shed(Time deadline) {
    (void)deadline;
    shedding_ = true;
    world_.after(*this, world_.dice.skewed(kMs, 100 * kMs), [this] { die("exit 0", false, 0); });
}

void Instance::stop() {
    shedding_ = true;
    if (!answering() || (world_.faults() && world_.dice.percent(10))) return;
    world_.after(*this, world_.dice.skewed(kMs, 20 * kMs), [this] { die("exit 0", false, 0); });
}

void Instance::kill() {
    // A killed process ends even when it hangs.
    World& world = world_;
    const auto life = life_;
    const auto handle = spawn_.handle;
    world_.after(world_.dice.skewed(1, 2 * kMs), [&world, life, handle] {
        if (world.life() != life) return;
        if (Instance* found = world.find(handle)) found->die("killed by signal 9", false, 0);
    });
}

void Instance::ask_progress() {
    if (dead_) return;
    if (!stalled_) progressed();
    const auto counter = progress_;
    World& world = world_;
    const auto life = life_;
    const auto handle = spawn_.handle;
    world_.after(1, [&world, life, handle, counter] {
        if (world.life() == life) world.feed(core::ProgressIs{handle, counter, false});
    });
}

void Instance::die(const std::string& summary, bool by_fault, core::OpId current) {
    if (dead_) return;
    dead_ = true;
    if (world_.tracing())
        world_.trace(std::string(core::kind_name(kind())) + " generation " +
                     std::to_string(handle().generation) + " dies: " + summary);
    world_.history.orphan({life_, handle().generation});
    core::Exited exited;
    exited.from = spawn_.handle;
    exited.summary = summary;
    exited.by_fault = by_fault;
    exited.current = current;
    World& world = world_;
    const auto life = life_;
    world_.after(world_.dice.skewed(1, 5 * kMs), [&world, life, exited] {
        if (world.life() == life) world.feed(exited);
    });
}

void Instance::stall() {
    stalled_ = true;
    if (world_.tracing())
        world_.trace(std::string(core::kind_name(kind())) + " generation " +
                     std::to_string(handle().generation) + " stalls");
}

void Instance::violate(const std::string& rule) {
    if (!answering()) return;
    mute_ = true;
    world_.feed(core::Violated{spawn_.handle, rule});
}

void Instance::crash() {
    const bool fault = world_.dice.percent(50);
    die(fault ? "killed by signal 11" : "killed by signal 9", fault, fault ? current() : 0);
}

std::unique_ptr<Instance> make_instance(World& world, core::Spawn spawn) {
    switch (spawn.kind) {
        case core::Kind::Gateway:
            return std::make_unique<Gateway>(world, std::move(spawn));
        case core::Kind::Storage:
            return std::make_unique<Storage>(world, std::move(spawn));
        case core::Kind::Runtime:
            return std::make_unique<Runtime>(world, std::move(spawn));
        case core::Kind::Placement:
        case core::Kind::Drain:
            return std::make_unique<Policy>(world, std::move(spawn));
        case core::Kind::None:
            break;
    }
    broken("the core starts something of no kind");
}

}  // namespace hf::sim
