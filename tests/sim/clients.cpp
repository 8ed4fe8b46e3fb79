// Load, and what must hold when everything has calmed down (part of World).
#include <algorithm>

#include "agent/core/keys.hpp"
#include "agent/records/records.hpp"
#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {
// Stalls are found, ghosts land, back-offs end: the longest, after what has ended three runtimes, is 5 min.
constexpr Time kSettle = 400 * kSecond;
constexpr Time kFinalDeadline = 30 * kSecond;
// A storage that hung unnoticed is found within 22 s, and who waits for a Stop meanwhile is told to come back each second.
constexpr int kFinalAttempts = 40;
}  // namespace

void World::schedule_clients() {
    // On a calm day nobody knocks before every process serves.
    if (scenario.calm) run_until(now_ + kSecond, [] { return false; });
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

Gateway* World::ready_gateway() {
    std::vector<Gateway*> ready;
    for (auto& [generation, instance] : instances_) {
        if (instance->kind() == core::Kind::Gateway && instance->serving())
            ready.push_back(static_cast<Gateway*>(instance.get()));
    }
    return ready.empty() ? nullptr : dice.pick(ready);
}

void World::send_request(
    const std::string& name, Op op, Time deadline, bool final_read, bool later) {
    Gateway* gateway = ready_gateway();
    if (gateway == nullptr) {
        if (final_read) broken("no gateway serves when all trouble is over");
        return;
    }
    Asked asked;
    asked.unit = core::actor_unit("default", "counter", name).value();
    asked.op = op;
    asked.gateway = {life_, gateway->handle().generation};
    asked.req_id = ++last_req_;
    asked.sent = now_;
    asked.deadline = now_ + deadline;
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
        trace("client: #" + std::to_string(event.id) + " req " + std::to_string(asked.req_id) +
              " op " + std::to_string(static_cast<int>(op)) + " on " + asked.unit +
              " deadline in " + std::to_string(deadline / kMs) + " ms");
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
    feed(std::move(request));
}

void World::quiesce() {
    faults_ = false;
    disk_full_ = false;
    if (tracing_) trace("from here on nothing goes wrong any more");
    run_until(now_ + scenario.deadline_max + kMs, [this] { return history.open() == 0; });
    if (history.open() != 0) {
        for (const Asked& request : history.all()) {
            if (!request.answered && !request.orphaned)
                broken("#" + std::to_string(request.id) + " on " + request.unit +
                       " has no answer at its deadline");
        }
    }
    settle();
    final_reads();
    check_core();
    if (scenario.calm) check_balance();
    stop_node();
}

void World::settle() {
    run_until(now_ + kSettle, [] { return false; });
    if (!core_) broken("the node does not start again");
    for (const auto& [id, command] : commands_) {
        if (!command.done)
            broken("command " + std::to_string(id) + " came neither to Full nor to RolledBack");
    }
    bool reset = false;
    for (const char* slot : {"gateway", "storage", "runtime", "placement", "drain"}) {
        for (const auto& known : core_->supervision().slots()) {
            const bool failed = std::any_of(known.seats.begin(),
                                            known.seats.end(),
                                            [](const auto& seat) { return seat.failed; });
            if (known.spec.name != slot || !failed) continue;
            const std::uint64_t id = commands_.size() + 1;
            commands_[id] = Command{now_, life_, false, false};
            feed(core::ResetCommand{id, slot});
            reset = true;
        }
    }
    if (reset) run_until(now_ + 20 * kSecond, [] { return false; });
    if (!core_->ready()) broken("the node is not ready again: " + core_->not_ready_because());
    for (const auto& [id, unit] : core_->units().all()) {
        if (unit->memory == core::Memory::Resident &&
            now_ - unit->last_active > scenario.evict_after + 10 * kSecond)
            broken(unit->key + " has been idle for long and is still in memory");
    }
    settled_ = true;
}

void World::final_reads() {
    for (const std::string& unit : history.units()) {
        const std::string name = core::parse_unit(unit)->name;
        // A node at units_max answers busy while it gives another unit's hold back, a full runtime while a Stop is stored; not
        // for ever, though.
        for (int attempt = 1;; ++attempt) {
            send_request(name, Op::Read, kFinalDeadline, true);
            const std::uint64_t id = history.all().size();
            run_until(now_ + kFinalDeadline + kMs, [&] { return history.request(id).answered; });
            const Asked& read = history.request(id);
            // Its compaction ends, so that a node of few units can forget it.
            run_until(now_ + 200 * kMs, [] { return false; });
            if (read.answered && read.reason == core::ReplyReason::Ok) break;
            const bool busy = read.answered && read.reason == core::ReplyReason::Busy;
            if (!busy || attempt == kFinalAttempts)
                broken(unit + " does not answer when all trouble is over: " +
                       (read.answered ? reason_name(read.reason) : "no answer"));
        }
    }
    run_until(now_ + 5 * kSecond, [] { return false; });
}

void World::check_core() {
    const core::Units& units = core_->units();
    if (units.accepted_open() != 0) broken("events are counted as open when all are answered");
    if (!units.quiet()) broken("a unit is counted as unsettled when all is stored");
    if (units.journal().size() != 0) broken("the journal is not empty when all is applied");
    if (!journal_.empty()) broken("what was applied stays in the journal");
    if (units.bulk().count() != 0 || units.bulk().bytes() != 0)
        broken("large bodies are counted as open when all are answered");
    if (core_->store().open() != 0) broken("requests to the store are open when all is quiet");
    std::map<Handle, std::uint32_t> resident;
    for (const auto& [id, unit] : units.all()) {
        if (unit->runtime.valid()) ++resident[unit->runtime];
        if (!unit->in_idle_list) broken(unit->key + " is known and can never be forgotten");
    }
    for (const auto& [generation, instance] : instances_) {
        if (instance->kind() != core::Kind::Runtime || instance->dead()) continue;
        const auto counted = units.resident_on(instance->handle());
        if (counted != resident[instance->handle()])
            broken("runtime generation " + std::to_string(generation) + " is counted with " +
                   std::to_string(counted) + " units and has " +
                   std::to_string(resident[instance->handle()]));
    }
    for (const auto& [generation, instance] : instances_) {
        // One that hangs with nothing to do is found when somebody asks it.
        if (!instance->serving() && !instance->stalled())
            broken("an instance that serves nobody is kept alive");
    }
}

// Nothing ever went wrong: a least-loaded policy must have kept the two runtimes level.
void World::check_balance() {
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
    for (const Asked& request : history.all()) {
        if (request.answered && request.reason != core::ReplyReason::Ok)
            broken("#" + std::to_string(request.id) + " was answered '" +
                   reason_name(request.reason) + "' on a day when nothing went wrong");
    }
}

void World::stop_node() {
    stopping_ = true;
    feed(core::StopNode{"the test is over"});
    run_until(now_ + 120 * kSecond, [this] { return exited_; });
    if (!exited_) broken("the node does not stop");
    if (!core_->supervision().instances().empty()) broken("the node exits before its processes");
    end_life();
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
