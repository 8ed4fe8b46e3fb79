// Load, and what must hold when everything has calmed down (part of World).
#include <algorithm>

#include "agent/core/keys.hpp"
#include "agent/records/records.hpp"
#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {
// Stalls are found, ghosts land, back-offs end: an actor that has ended three runtimes rests for 5 min, and what was offered to it
// meanwhile for as long again.
constexpr Time kSettle = 650 * kSecond;
constexpr Time kSettleSound = 40 * kSecond;  // nothing hangs and nothing backs off
constexpr Time kFinalDeadline = 30 * kSecond;
constexpr Time kProbe = 5 * kSecond;
// A storage that hung unnoticed is found within 22 s, and who waits for a Stop meanwhile is told to come back each second.
constexpr int kFinalAttempts = 40;
}  // namespace

void World::schedule_clients() {
    // On a calm day nobody knocks before every process serves.
    if (scenario.calm) pass(scenario.cluster() ? 3 * kSecond : kSecond);
    for (int i = 0; i < scenario.requests; ++i) {
        after(dice.between(0, scenario.span), [this] {
            const bool hammer = dice.percent(scenario.hammer_percent);
            const std::uint64_t unit = hammer ? 0 : dice.below(scenario.units);
            Op op = Op::Add;
            if (dice.percent(scenario.read_percent)) {
                op = Op::Read;
            } else if (dice.permille(scenario.poison_permille)) {
                op = Op::Poison;
            } else if (dice.percent(scenario.fail_percent)) {
                op = Op::Fail;
            }
            if (op == Op::Add && scenario.actor_percent != 0 &&
                dice.percent(scenario.actor_percent))
                op = dice.pick(std::vector{Op::Tell, Op::Wake, Op::Ask});
            const bool later = op == Op::Add && scenario.later_percent != 0 &&
                               dice.percent(scenario.later_percent);
            const Time deadline = dice.between(scenario.deadline_min, scenario.deadline_max);
            send_request("unit " + std::to_string(unit), op, deadline, false, later);
        });
    }
}

Node* World::ready_node() {
    if (!scenario.cluster()) return nodes_.front().get();
    std::vector<Node*> there;
    for (Node* node : all_up())
        if (!node->name().intruder && !node->stands_still()) there.push_back(node);
    return there.empty() ? nullptr : dice.pick(there);
}

std::uint64_t World::send_request(
    const std::string& name, Op op, Time deadline, bool final_read, bool later, Node* at) {
    Node* node = at == nullptr ? ready_node() : at;
    Gateway* gateway = node == nullptr ? nullptr : node->ready_gateway();
    if (gateway == nullptr) {
        if (final_read) broken("no gateway serves when all trouble is over");
        return 0;
    }
    Asked asked;
    asked.unit = core::actor_unit("default", "counter", name).value();
    asked.op = op;
    asked.gateway = {node->number(), node->life(), gateway->handle().generation};
    asked.req_id = next_request();
    asked.sent = node->now();
    asked.deadline = asked.sent + deadline;
    asked.final_read = final_read;
    asked.later = later;
    EventPayload event;
    event.op = op;
    if (scenario.pad_bytes_max != 0)
        event.pad = static_cast<std::uint64_t>(dice.between(0, scenario.pad_bytes_max));
    if (op == Op::Tell || op == Op::Ask) {
        event.target = dice.below(scenario.units);
        asked.target =
            core::actor_unit("default", "counter", "unit " + std::to_string(event.target)).value();
    }
    if (op == Op::Wake) event.after = static_cast<std::uint64_t>(dice.between(0, 5000));
    event.id = history.asked(asked);
    if (tracing_)
        node->trace("client: #" + std::to_string(event.id) + " req " +
                    std::to_string(asked.req_id) + " op " + std::to_string(static_cast<int>(op)) +
                    " on " + asked.unit + " deadline in " + std::to_string(deadline / kMs) + " ms");
    gateway->sent(asked.req_id);
    core::RequestIn request;
    request.from = gateway->handle();
    request.req_id = asked.req_id;
    request.class_name = "counter";
    request.name = name;
    request.event = later ? pack_http(event) : pack(event);
    request.later = later;
    request.deadline = asked.deadline;
    if (!later && comes_large(event.id))
        request.attached = std::make_shared<const LargeBody>(event.id);
    node->feed(std::move(request));
    return event.id;
}

void World::quiesce() {
    faults_ = false;
    disk_full_ = false;
    if (tracing_) trace("from here on nothing goes wrong any more");
    if (scenario.cluster()) end_faults();
    if (scenario.only_nodes_fail) probe_all();
    // By whichever clock.
    const Time most = scenario.deadline_max + (scenario.cluster() ? scenario.deadline_max / 50 : 0);
    run_until(now_ + most + kMs, [this] { return history.open() == 0; });
    if (history.open() != 0) {
        for (const Asked& request : history.all()) {
            if (!request.answered && !request.orphaned)
                broken("#" + std::to_string(request.id) + " on " + request.unit +
                       " has no answer at its deadline");
        }
    }
    settle();
    final_reads();
    check_cores();
    if (scenario.calm) {
        for (const Node* node : all_up()) node->check_balance();
        for (const Asked& request : history.all()) {
            if (request.answered && request.reason != core::ReplyReason::Ok)
                broken("#" + std::to_string(request.id) + " was answered '" +
                       reason_name(request.reason) + "' on a day when nothing went wrong");
        }
    }
    stop_nodes();
}

// Who may be dead is known to be so after that, what it held is taken, and each node knows where to find it.
void World::probe_all() {
    const core::LeaseSpec& lease = scenario.lease;
    const Time bound = lease.ttl + lease.grace + lease.poll + 2 * kSecond;
    pass(bound + bound / 50);
    const Time own = history.open() == 0 ? kProbe : kFinalDeadline;
    if (tracing_) trace("each node is asked for each unit");
    std::vector<std::uint64_t> reads;
    for (const std::string& unit : history.units())
        for (Node* node : all_up())
            if (!node->name().intruder)
                reads.push_back(
                    send_request(core::parse_unit(unit)->name, Op::Read, own, true, false, node));
    pass(own + own / 50);
    for (const std::uint64_t id : reads) {
        const Asked& read = history.request(id);
        if (read.answered && read.reason == core::ReplyReason::Ok) continue;
        // One whose loading ended three runtimes is not tried again for 5 min, and says so.
        const bool rests = read.answered && read.reason == core::ReplyReason::ActorFailed;
        if (rests && !scenario.calm) continue;
        broken(nodes_[read.gateway.node]->name().id + " does not answer for " + read.unit + ", " +
               std::to_string(bound / kMs) + " ms after the last fault: " +
               (read.answered ? reason_name(read.reason) : "no answer"));
    }
}

void World::reset_failed(Node& node, bool& reset) {
    for (const char* slot : {"gateway", "storage", "runtime", "placement", "drain"}) {
        for (const auto& known : node.core()->supervision().slots()) {
            const bool failed = std::any_of(known.seats.begin(),
                                            known.seats.end(),
                                            [](const auto& seat) { return seat.failed; });
            if (known.spec.name != slot || !failed) continue;
            std::uint64_t id = 0;
            (void)new_command(node, id);
            node.feed(core::ResetCommand{id, slot});
            reset = true;
        }
    }
}

void World::settle() {
    // Its deploys may still end runtimes.
    const bool sound = scenario.only_nodes_fail && scenario.deploys == 0;
    pass(sound ? kSettleSound : kSettle);
    for (const auto& node : nodes_)
        if (!node->up() && !node->name().intruder) broken("the node does not start again");
    for (const auto& [id, command] : commands_) {
        if (!command.done)
            broken("command " + std::to_string(id) + " came neither to Full nor to RolledBack");
    }
    bool reset = false;
    for (Node* node : all_up()) reset_failed(*node, reset);
    if (reset) pass(20 * kSecond);
    for (const Node* node : all_up()) {
        const core::Core& core = *node->core();
        if (!core.ready()) broken("the node is not ready again: " + core.not_ready_because());
        for (const auto& [id, unit] : core.units().all()) {
            // One that waited for a store which is back only now was busy until then.
            if (!reset && unit->memory == core::Memory::Resident &&
                node->now() - unit->last_active > scenario.evict_after + 10 * kSecond)
                broken(unit->key + " has been idle for long and is still in memory");
        }
    }
    settled_ = true;
}

// A node at units_max answers busy while it gives another unit's hold back, a full runtime while a Stop is stored; not for
// ever, though.
void World::final_read(const std::string& unit, Node& at) {
    const std::string name = core::parse_unit(unit)->name;
    for (int attempt = 1;; ++attempt) {
        const std::uint64_t id = send_request(name, Op::Read, kFinalDeadline, true, false, &at);
        const Time most = kFinalDeadline + (scenario.cluster() ? kFinalDeadline / 50 : 0);
        run_until(now_ + most + kMs, [&] { return history.request(id).answered; });
        const Asked& read = history.request(id);
        // Its compaction ends, so that a node of few units can forget it.
        pass(200 * kMs);
        if (read.answered && read.reason == core::ReplyReason::Ok) return;
        const bool busy = read.answered && read.reason == core::ReplyReason::Busy;
        if (!busy || attempt == kFinalAttempts)
            broken(unit + " does not answer when all trouble is over: " +
                   (read.answered ? reason_name(read.reason) : "no answer"));
    }
}

void World::final_reads() {
    for (const std::string& unit : history.units())
        for (Node* node : all_up()) final_read(unit, *node);
    pass(5 * kSecond);
}

void World::check_cores() {
    for (Node* node : all_up()) node->check_core();
    if (network.open() != 0) broken("a question between nodes is open when all is quiet");
}

void World::stop_nodes() {
    ending_ = true;
    const std::vector<Node*> stopped = all_up();
    std::vector<const Node*> sound;
    for (Node* node : stopped) {
        if (node->core()->ready() && !faults_ && scenario.cluster()) sound.push_back(node);
        node->stop("the test is over");
    }
    run_until(now_ + 120 * kSecond, [&] {
        return std::all_of(stopped.begin(), stopped.end(), [](const Node* node) {
            return !node->up() || node->exited();
        });
    });
    for (Node* node : stopped) {
        if (node->up() && !node->exited()) broken("the node does not stop");
        node->end_life();
    }
    for (const Node* node : sound)
        if (!node_watch.gone(node->name().id, node_watch.record(node->name().id)->incarnation))
            broken(node->name().id + " stops and leaves its lease to run out");
    ending_ = false;
}

void World::check_states() {
    std::map<std::string, UnitState> states;
    for (const std::string& unit : history.units()) {
        states.emplace(unit, read_unit(bucket, records::codec(), "default", unit));
        history.check_unit(unit, states.at(unit));
    }
    history.check_consequences(states, settled_);
}

}  // namespace hf::sim
