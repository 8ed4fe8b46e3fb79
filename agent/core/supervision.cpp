#include "agent/core/supervision.hpp"

#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"

namespace hf::core {

namespace {
constexpr Time kHealthy = 5 * kSecond;  // lived this long after Ready: a death restarts at once
constexpr Time kBackoffFirst = 100 * kMs;
constexpr Time kBackoffMax = 10 * kSecond;
constexpr Time kBackoffMaxStorage = 1 * kSecond;  // nothing works without it
constexpr Time kDeathWindow = 120 * kSecond;
constexpr std::size_t kDeathsMax = 10;
constexpr Time kBelievedLimits = 10;         // a minute for a runtime of the default limits
constexpr Time kStopPatience = 2 * kSecond;  // between being told to stop and being killed
}  // namespace

const char* phase_name(Phase phase) {
    switch (phase) {
        case Phase::Starting:
            return "starting";
        case Phase::Greeting:
            return "greeting";
        case Phase::Warming:
            return "warming";
        case Phase::Serving:
            return "serving";
        case Phase::Shedding:
            return "shedding";
    }
    return "gone";
}

Supervision::Supervision(Env& env, Listener& listener, BadBuilds bad_builds)
    : env_(env), listener_(listener), bad_(std::move(bad_builds)) {
    for (const SlotSpec& spec : env_.config.slots) {
        Slot slot;
        slot.spec = spec;
        slot.current = spec.build;
        slot.seats.resize(spec.instances);
        slots_.push_back(std::move(slot));
    }
}

void Supervision::start() {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        Slot& slot = slots_[i];
        if (const auto bad = bad_.find(slot.current.identity()); bad != bad_.end()) {
            fail_slot(slot,
                      "build " + slot.current.label() + " was ended before: " + bad->second.why);
            continue;
        }
        for (std::uint32_t seat = 0; seat < slot.seats.size(); ++seat) start_seat(i, seat);
    }
}

Supervision::Instance* Supervision::instance_of(Handle handle) {
    const auto it = instances_.find(handle.generation);
    return it == instances_.end() ? nullptr : &it->second;
}

const Supervision::Instance* Supervision::find(Handle handle) const {
    const auto it = instances_.find(handle.generation);
    return it == instances_.end() ? nullptr : &it->second;
}

Supervision::Slot* Supervision::slot_named(const std::string& name, std::size_t* number) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].spec.name != name) continue;
        if (number != nullptr) *number = i;
        return &slots_[i];
    }
    return nullptr;
}

Handle Supervision::spawn(std::size_t slot_no,
                          std::uint32_t seat,
                          const Build& build,
                          Instance::Part part) {
    Instance instance;
    instance.handle = Handle{static_cast<std::uint32_t>(slot_no * 64 + seat), ++last_generation_};
    instance.slot = slot_no;
    instance.seat = seat;
    instance.part = part;
    instance.build = build;
    instance.spawned = env_.now;
    const Handle handle = instance.handle;
    instances_.emplace(handle.generation, std::move(instance));
    const Slot& slot = slots_[slot_no];
    env_.emit(Spawn{handle, slot.spec.name, seat, slot.spec.kind, build});
    return handle;
}

void Supervision::start_seat(std::size_t slot_no, std::uint32_t seat_no) {
    Seat& seat = slots_[slot_no].seats[seat_no];
    HF_CHECK(!seat.main.valid(), "a seat has one main instance at a time");
    seat.start_at = kNever;
    seat.main = spawn(slot_no, seat_no, slots_[slot_no].current, Instance::Part::Main);
}

void Supervision::schedule(Slot& slot, Seat& seat, bool healthy) {
    if (ended(slot) || seat.failed) return;
    ++seat.restarts;
    ++env_.stats.restarts;
    if (!env_.config.restart_intensity || healthy) {
        seat.backoff = 0;
        seat.start_at = env_.now;
        return;
    }
    seat.short_lives.push_back(env_.now);
    while (!seat.short_lives.empty() && env_.now - seat.short_lives.front() > kDeathWindow)
        seat.short_lives.pop_front();
    if (seat.short_lives.size() >= kDeathsMax) {
        seat.failed = true;
        slot.reason = "failed: " + std::to_string(kDeathsMax) +
                      " short lives in 120 s, last: " + slot.last_exit +
                      "; `holdfast plugin reset " + slot.spec.name + "` starts it again";
        env_.note(NoteLevel::Error, "supervision", slot.spec.name + ": " + slot.reason);
        return;
    }
    const Time most = slot.spec.kind == Kind::Storage ? kBackoffMaxStorage : kBackoffMax;
    const Time base = std::min(kBackoffFirst << std::min(seat.backoff, 10U), most);
    ++seat.backoff;
    const Time jitter =
        static_cast<Time>(env_.random.below(static_cast<std::uint64_t>(base / 4 + 1)));
    seat.start_at = env_.now + base + jitter;
}

void Supervision::greeted(const Greeted& event) {
    Instance* instance = instance_of(event.from);
    if (instance == nullptr || instance->ending) return;
    Slot& slot = slots_[instance->slot];
    if (instance->phase != Phase::Starting) return violated({event.from, "Greet twice"});
    // A slip of the operator, told by name: either side of a policy binary is a good build for its own slot.
    const bool other_policy = is_policy(slot) &&
                              (event.kind == Kind::Placement || event.kind == Kind::Drain) &&
                              (event.kind != slot.spec.kind || event.policies.empty());
    if (other_policy) {
        instance->refused = true;
        instance->fault = std::string("offers no ") + kind_name(slot.spec.kind) + " policy";
        return kill(*instance, instance->fault, false);
    }
    if (event.kind != slot.spec.kind)
        return violated({event.from,
                         std::string("greets as ") + kind_name(event.kind) + ", configured as " +
                             kind_name(slot.spec.kind)});
    if (event.minor_max < kSchemaMinorMin || event.minor_min > kSchemaMinorMax) {
        instance->refused = true;
        instance->fault = "speaks schema minors " + std::to_string(event.minor_min) + " to " +
                          std::to_string(event.minor_max) + ", this node " +
                          std::to_string(kSchemaMinorMin) + " to " +
                          std::to_string(kSchemaMinorMax);
        return kill(*instance, instance->fault, false);
    }
    const std::string& policy = instance->build.policy;
    if (is_policy(slot) &&
        std::find(event.policies.begin(), event.policies.end(), policy) == event.policies.end()) {
        std::string known;
        for (const std::string& name : event.policies) known += (known.empty() ? "" : ", ") + name;
        instance->refused = true;
        instance->fault = "has no policy '" + policy + "'; it offers: " + known;
        return kill(*instance, instance->fault, false);
    }
    instance->phase = Phase::Warming;
    env_.emit(Configure{event.from});
}

void Supervision::ready(const ReadyIn& event) {
    Instance* instance = instance_of(event.from);
    if (instance == nullptr || instance->ending) return;
    if (instance->phase != Phase::Warming) return violated({event.from, "Ready out of turn"});
    Slot& slot = slots_[instance->slot];
    if (!event.ok) {
        instance->refused = true;
        instance->fault = "refused its configuration: " + event.error;
        return kill(*instance, instance->fault, false);
    }
    instance->phase = Phase::Serving;
    instance->ready = env_.now;
    if (instance->part == Instance::Part::Candidate) return candidate_ready(slot);
    listener_.on_serving(slot.spec.kind, event.from);
}

void Supervision::kill(Instance& instance, const std::string& why, bool dump) {
    if (instance.killed) return;
    instance.killed = true;
    instance.ending = true;
    env_.note(NoteLevel::Warn,
              "supervision",
              slots_[instance.slot].spec.name + "/" + std::to_string(instance.seat) +
                  " generation " + std::to_string(instance.handle.generation) +
                  " is ended: " + why);
    env_.emit(Kill{instance.handle, why, dump});
}

void Supervision::violated(const Violated& event) {
    Instance* instance = instance_of(event.from);
    if (instance == nullptr) return;
    if (!instance->fault.empty()) return;
    instance->fault = "broke the link's rules: " + event.rule;
    kill(*instance, instance->fault, false);
}

void Supervision::exited(const Exited& event) {
    const auto it = instances_.find(event.from.generation);
    if (it == instances_.end()) return;
    const Instance instance = it->second;
    instances_.erase(it);
    const std::size_t slot_no = instance.slot;
    Slot& slot = slots_[slot_no];
    const bool own_fault = event.by_fault || !instance.fault.empty();
    // Also one that leaves unasked, with whatever exit code, has only itself to thank; it blames no request, though.
    const bool own_end = own_fault || (event.on_its_own && !instance.ending);
    // Saying no to a name or a setting is what a good build does.
    const bool bad_build = own_end && !instance.refused;
    const std::string reason = instance.fault.empty() ? event.summary : instance.fault;
    // A gateway that has finished leaves by itself while the node stops.
    const bool finished = event.on_its_own && ended_kinds_.contains(slot.spec.kind);
    const bool expected = (instance.ending || finished) && instance.fault.empty();
    if (!expected) {
        slot.last_exit = reason;
        slot.last_exit_build = instance.build.described();
        env_.note(NoteLevel::Warn,
                  "supervision",
                  slot.spec.name + "/" + std::to_string(instance.seat) + " generation " +
                      std::to_string(event.from.generation) + " ended: " + reason);
    }
    // Recovery first, so that what its requests become is decided before a successor is looked for.
    listener_.on_gone(Gone{slot.spec.kind, event.from, own_fault, event.current, reason});

    if (instance.part == Instance::Part::Candidate) {
        if (slot.swap) {
            if (bad_build) brand(slot, instance.build, reason);
            roll_back(slot, reason);
        }
        return;
    }
    if (instance.part == Instance::Part::Retiring) return;
    Seat& seat = slot.seats[instance.seat];
    if (seat.main == event.from) seat.main = {};
    if (ended(slot)) return;
    if (slot.swap && slot.swap->stage == Stage::Full) {
        // The new build was in charge: its death rolls back, an outside SIGKILL brands nothing.
        if (bad_build) brand(slot, instance.build, reason);
        return roll_back(slot, reason);
    }
    if (bad_.contains(instance.build.identity()) &&
        instance.build.identity() == slot.current.identity())
        return revert_or_fail(slot_no, reason);
    const bool swapped_in = slot.current.identity() != slot.spec.build.identity();
    if (own_end && is_policy(slot) && (swapped_in || fallback(slot) != nullptr)) {
        if (bad_build) brand(slot, instance.build, reason);
        return revert_or_fail(slot_no, reason);
    }
    if (is_policy(slot) && instance.refused)
        return fail_slot(
            slot,
            instance.build.label() + " " + reason +
                "; it would say so again: mend agent.toml and restart the node, or swap");
    const bool healthy = instance.ready != 0 && env_.now - instance.ready >= kHealthy;
    schedule(slot, seat, healthy);
    if (seat.failed && own_end && is_policy(slot)) brand(slot, instance.build, reason);
}

void Supervision::answered_well(Handle handle) {
    Instance* instance = instance_of(handle);
    if (instance == nullptr) return;
    Slot& slot = slots_[instance->slot];
    if (!slot.swap || slot.swap->stage != Stage::Full || slot.seats[instance->seat].main != handle)
        return;
    if (++slot.swap->answers >= env_.config.limits.swap_answers && candidates_live(*slot.swap))
        finish_swap(slot);
}

void Supervision::answered_badly(Handle handle, const std::string& why, bool dump) {
    Instance* instance = instance_of(handle);
    if (instance == nullptr || !instance->fault.empty()) return;
    const Slot& slot = slots_[instance->slot];
    instance->fault = why;
    if (is_policy(slot)) brand(slot, instance->build, why);
    kill(*instance, why, dump || is_policy(slot));
}

void Supervision::retire(Instance& instance) {
    const Kind kind = slots_[instance.slot].spec.kind;
    instance.part = Instance::Part::Retiring;
    instance.phase = Phase::Shedding;
    instance.ending = true;
    // It may hang, or not want to go: what it still has to do is bounded as well.
    const Time shed_by = env_.now + env_.config.limits.shed_deadline;
    instance.end_by = shed_by + kStopPatience;
    listener_.on_retiring(kind, instance.handle);
    if (kind == Kind::Placement || kind == Kind::Drain) {
        retired_empty(instance.handle);
    } else if (kind != Kind::Runtime) {
        env_.emit(SendShed{instance.handle, shed_by});
    }
}

void Supervision::retired_empty(Handle handle) {
    Instance* instance = instance_of(handle);
    // Not ending: the swap is not decided yet, and its units may come back.
    if (instance == nullptr || instance->part != Instance::Part::Retiring || !instance->ending ||
        instance->killed)
        return;
    instance->end_by = std::min(instance->end_by, env_.now + kStopPatience);
    env_.emit(SendStop{handle, "swapped out"});
}

void Supervision::stop_unready(Kind kind) {
    for (auto& [generation, instance] : instances_) {
        if (slots_[instance.slot].spec.kind == kind && instance.phase < Phase::Serving)
            kill(instance, "the node stops", false);
    }
}

void Supervision::stop_kind(Kind kind) {
    stop_unready(kind);
    for (auto& [generation, instance] : instances_) {
        if (slots_[instance.slot].spec.kind != kind ||
            (instance.ending && instance.phase != Phase::Shedding))
            continue;
        instance.ending = true;
        instance.phase = Phase::Shedding;
        env_.emit(SendStop{instance.handle, "the node stops"});
    }
}

Handle Supervision::serving_one(Kind kind) const {
    for (const Slot& slot : slots_) {
        if (slot.spec.kind != kind) continue;
        for (const Seat& seat : slot.seats) {
            const Instance* instance = find(seat.main);
            if (instance != nullptr && instance->phase == Phase::Serving && !instance->ending)
                return seat.main;
        }
    }
    return {};
}

std::vector<Handle> Supervision::serving(Kind kind) const {
    std::vector<Handle> out;
    for (const Slot& slot : slots_) {
        if (slot.spec.kind != kind) continue;
        for (const Seat& seat : slot.seats) {
            const Instance* instance = find(seat.main);
            if (instance != nullptr && instance->phase == Phase::Serving && !instance->ending)
                out.push_back(seat.main);
        }
    }
    return out;
}

bool Supervision::failed(Kind kind) const {
    for (const Slot& slot : slots_) {
        if (slot.spec.kind != kind) continue;
        for (const Seat& seat : slot.seats) {
            if (!seat.failed) return false;
        }
    }
    return true;
}

bool Supervision::any_alive(Kind kind) const {
    return std::any_of(instances_.begin(), instances_.end(), [&](const auto& item) {
        return slots_[item.second.slot].spec.kind == kind;
    });
}

// --- watchdog -----------------------------------------------------------------------------------------------------------

void Supervision::opened(Handle handle) {
    Instance* instance = instance_of(handle);
    if (instance == nullptr) return;
    if (instance->open_requests++ == 0) instance->busy_since = instance->silent_since = env_.now;
}

void Supervision::closed(Handle handle) {
    Instance* instance = instance_of(handle);
    if (instance == nullptr || instance->open_requests == 0) return;
    --instance->open_requests;
    instance->busy_since = instance->silent_since = env_.now;
    instance->progress_asked = false;
}

void Supervision::told(Handle handle) {
    Instance* instance = instance_of(handle);
    if (instance != nullptr && instance->told_since == kNever) instance->told_since = env_.now;
}

void Supervision::knocked() {
    for (const Handle handle : serving(Kind::Gateway)) told(handle);
}

bool Supervision::knock_wanted() const {
    bool any = false;
    for (const Slot& slot : slots_) {
        if (slot.spec.kind != Kind::Gateway) continue;
        for (const Seat& seat : slot.seats) {
            const Instance* instance = find(seat.main);
            if (instance == nullptr || instance->phase != Phase::Serving || instance->ending)
                continue;
            if (instance->told_since != kNever) return false;
            any = true;
        }
    }
    return any;
}

Time Supervision::stall_limit(Kind kind) const {
    const Limits& limits = env_.config.limits;
    if (kind == Kind::Storage) return limits.storage_stall;
    Time wall = 0;
    for (const ClassSpec& spec : env_.config.classes) wall = std::max(wall, spec.wall_limit);
    return wall + limits.stall_grace;
}

// Slow is not dead: an instance without an answer for its limit is asked twice for its progress counter, stall_grace
// apart; only when that stood still as well is it a stall. Progress is what it says of itself, though: at the tenth limit
// without one answer it is no longer believed.
void Supervision::check_watchdog(Instance& instance) {
    const Kind kind = slots_[instance.slot].spec.kind;
    if (kind == Kind::Gateway) return check_reader(instance);
    if (instance.open_requests == 0 || instance.killed ||
        (kind != Kind::Storage && kind != Kind::Runtime))
        return;
    if (env_.now - instance.busy_since < stall_limit(kind)) return;
    if (env_.now - instance.silent_since >= kBelievedLimits * stall_limit(kind)) {
        instance.fault = "stalled: no answer, whatever progress it claims";
        return kill(instance, instance.fault, true);
    }
    if (!instance.progress_asked) {
        instance.progress_asked = true;
        instance.busy_since = env_.now - stall_limit(kind) + env_.config.limits.stall_grace;
        instance.progress = UINT64_MAX;
    }
    env_.emit(AskProgress{instance.handle});
    if (env_.now - instance.busy_since >= stall_limit(kind))
        instance.busy_since = env_.now - stall_limit(kind) + env_.config.limits.stall_grace;
}

// Nobody waits for a gateway's answer; one that hangs is known by answers that it does not read and by clients that it does
// not let in. The same two looks.
void Supervision::check_reader(Instance& instance) {
    if (instance.killed || instance.told_since == kNever ||
        env_.now - instance.told_since < env_.config.limits.stall_grace)
        return;
    instance.told_since = env_.now;
    env_.emit(AskProgress{instance.handle});
}

void Supervision::reader_is(Instance& instance, const ProgressIs& event) {
    // Who was asked to end lets nobody in; its successor does.
    const bool knocking = event.knocking && instance.phase == Phase::Serving && !instance.ending;
    if (!event.unread && !knocking) {
        instance.told_since = kNever;
        instance.progress_asked = false;
    } else if (instance.progress_asked && instance.progress == event.counter) {
        instance.fault = event.unread
                             ? "stalled: its answers lie unread and it makes no progress"
                             : "stalled: clients wait to be let in and it makes no progress";
        kill(instance, instance.fault, true);
    } else {
        instance.progress_asked = true;
        instance.progress = event.counter;
    }
}

void Supervision::progress_is(const ProgressIs& event) {
    Instance* instance = instance_of(event.from);
    if (instance == nullptr || instance->killed) return;
    if (slots_[instance->slot].spec.kind == Kind::Gateway) return reader_is(*instance, event);
    if (!instance->progress_asked) return;
    if (instance->progress == event.counter) {
        instance->fault = "stalled: no answer and no progress";
        return kill(*instance, instance->fault, true);
    }
    instance->progress = event.counter;
}

// A stage that owes an answer past its deadline does not end by its window: the answer or the stall decides.
Time Supervision::window_end(const Swap& swap) const {
    const Limits& limits = env_.config.limits;
    if (swap.test && env_.now - swap.test_sent >= limits.place_deadline) return kNever;
    return swap.since + limits.swap_window;
}

void Supervision::tick() {
    const Limits& limits = env_.config.limits;
    std::vector<Handle> late;
    for (auto& [generation, instance] : instances_) {
        if (!instance.ending && instance.phase < Phase::Serving &&
            env_.now - instance.spawned >= limits.ready_timeout)
            late.push_back(instance.handle);
        if (instance.end_by <= env_.now) {
            instance.end_by = kNever;
            kill(instance, "did not end in time", false);
        }
        check_watchdog(instance);
    }
    for (const Handle handle : late) {
        Instance* instance = instance_of(handle);
        instance->fault = std::string("not ready in time, stuck in ") + phase_name(instance->phase);
        kill(*instance, instance->fault, true);
    }
    for (std::size_t i = 0; i < slots_.size(); ++i) {
        for (std::uint32_t seat = 0; seat < slots_[i].seats.size(); ++seat) {
            if (slots_[i].seats[seat].start_at <= env_.now && !ended(slots_[i]))
                start_seat(i, seat);
        }
        Slot& slot = slots_[i];
        if (!slot.swap) continue;
        Swap& swap = *slot.swap;
        if (swap.test && env_.now - swap.test_sent >= limits.policy_stall) {
            test_result(slot, false, "stalled: no answer to a generated request");
        } else if (swap.stage == Stage::Full && env_.now >= window_end(swap) &&
                   candidates_live(swap)) {
            finish_swap(slot);
        }
    }
}

Time Supervision::next_deadline() const {
    const Limits& limits = env_.config.limits;
    Time soonest = kNever;
    for (const auto& [generation, instance] : instances_) {
        if (instance.killed) continue;
        soonest = std::min(soonest, instance.end_by);
        if (instance.phase < Phase::Serving && !instance.ending)
            soonest = std::min(soonest, instance.spawned + limits.ready_timeout);
        const Kind kind = slots_[instance.slot].spec.kind;
        if (instance.open_requests != 0 && (kind == Kind::Storage || kind == Kind::Runtime))
            soonest = std::min(soonest, instance.busy_since + stall_limit(kind));
        if (instance.told_since != kNever)
            soonest = std::min(soonest, instance.told_since + limits.stall_grace);
    }
    for (const Slot& slot : slots_) {
        if (!ended(slot)) {
            for (const Seat& seat : slot.seats) soonest = std::min(soonest, seat.start_at);
        }
        if (!slot.swap) continue;
        if (slot.swap->test)
            soonest = std::min(soonest, slot.swap->test_sent + limits.policy_stall);
        if (slot.swap->stage == Stage::Full && candidates_live(*slot.swap))
            soonest = std::min(soonest, window_end(*slot.swap));
    }
    return soonest;
}

}  // namespace hf::core
