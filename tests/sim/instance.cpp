// What all simulated processes have in common: start, end, and the ways to be bad at both.
#include "tests/sim/failure.hpp"
#include "tests/sim/instances.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

Instance::Instance(World& world, Node& node, core::Spawn spawn)
    : world_(world), node_(node), spawn_(std::move(spawn)), life_(node.life()) {
    for (const auto& [key, value] : spawn_.build.settings) {
        if (key == "misdeed") misdeed_ = value;
    }
}

void Instance::answer_later(Time delay, core::Event event) {
    node_.after(*this, delay, [this, event = std::move(event)] {
        progressed();
        node_.feed(event);
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
        Node& node = node_;
        node.later(1, [&node, handle] {
            core::Exited exited;
            exited.from = handle;
            exited.summary = "could not be started";
            exited.spawn_failed = true;
            node.feed(exited);
        });
        return;
    }
    if (misdeed_ == "never_greets") return;
    node_.after(*this, world_.dice.skewed(kMs, 60 * kMs), [this] {
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
    node_.feed(greeted);
    if (misdeed_ == "greets_twice") node_.feed(greeted);
}

void Instance::configure() {
    if (!answering() || misdeed_ == "never_ready") return;
    node_.after(*this, world_.dice.skewed(kMs, 60 * kMs), [this] {
        if (misdeed_ == "die_at_configure") return die("killed by signal 31", true, 0);
        core::ReadyIn ready;
        ready.from = spawn_.handle;
        ready.ok = misdeed_ != "refuses";
        if (!ready.ok) ready.error = "the settings are not to its taste";
        ready_ = ready.ok;
        node_.feed(ready);
    });
}

void Instance::shed(Time deadline) {
    (void)deadline;
    shedding_ = true;
    node_.after(*this, world_.dice.skewed(kMs, 100 * kMs), [this] { die("exit 0", false, 0); });
}

void Instance::stop() {
    shedding_ = true;
    if (!answering() || (world_.faults() && world_.dice.percent(10))) return;
    node_.after(*this, world_.dice.skewed(kMs, 20 * kMs), [this] { die("exit 0", false, 0); });
}

void Instance::kill() {
    // A killed process ends even when it hangs.
    Node& node = node_;
    const auto handle = spawn_.handle;
    node.later(world_.dice.skewed(1, 2 * kMs), [&node, handle] {
        if (Instance* found = node.find(handle)) found->die("killed by signal 9", false, 0);
    });
}

void Instance::ask_progress() {
    if (dead_) return;
    if (!stalled_) progressed();
    const auto counter = progress_;
    Node& node = node_;
    const auto handle = spawn_.handle;
    node.later(1, [&node, handle, counter] {
        node.feed(core::ProgressIs{handle, counter, false});
    });
}

void Instance::die(const std::string& summary, bool by_fault, core::OpId current) {
    if (dead_) return;
    dead_ = true;
    if (world_.tracing())
        node_.trace(std::string(core::kind_name(kind())) + " generation " +
                    std::to_string(handle().generation) + " dies: " + summary);
    world_.history.orphan({node_.number(), life_, handle().generation});
    world_.network.gateway_gone({node_.number(), life_, handle().generation});
    core::Exited exited;
    exited.from = spawn_.handle;
    exited.summary = summary;
    exited.by_fault = by_fault;
    exited.current = current;
    Node& node = node_;
    node.later(world_.dice.skewed(1, 5 * kMs), [&node, exited] { node.feed(exited); });
}

void Instance::stall() {
    stalled_ = true;
    if (world_.tracing())
        node_.trace(std::string(core::kind_name(kind())) + " generation " +
                    std::to_string(handle().generation) + " stalls");
}

void Instance::violate(const std::string& rule) {
    if (!answering()) return;
    mute_ = true;
    node_.feed(core::Violated{spawn_.handle, rule});
}

void Instance::crash() {
    const bool fault = world_.dice.percent(50);
    die(fault ? "killed by signal 11" : "killed by signal 9", fault, fault ? current() : 0);
}

std::unique_ptr<Instance> make_instance(World& world, Node& node, core::Spawn spawn) {
    switch (spawn.kind) {
        case core::Kind::Gateway:
            return std::make_unique<Gateway>(world, node, std::move(spawn));
        case core::Kind::Storage:
            return std::make_unique<Storage>(world, node, std::move(spawn));
        case core::Kind::Runtime:
            return std::make_unique<Runtime>(world, node, std::move(spawn));
        case core::Kind::Placement:
        case core::Kind::Drain:
            return std::make_unique<Policy>(world, node, std::move(spawn));
        case core::Kind::None:
            break;
    }
    broken("the core starts something of no kind");
}

}  // namespace hf::sim
