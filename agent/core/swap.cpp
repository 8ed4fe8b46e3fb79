// Swap, roll-back and the memory of bad builds of a slot (part of Supervision).
//
// Starting: candidates beside the old ones, nothing changes for anybody. SelfTest (policies): generated requests.
// Full: one assignment per seat puts the candidate in charge while the old instance waits; the stage ends after enough
// valid answers or its window. Any crash, stall or invalid answer puts the old one back and brands the build. A runtime has
// the same stages but for the self-test: its units move over one by one while the old instances wait, and move back when
// the new ones do not last. Its build names a table of modules, so a deploy is a swap. Between
// SelfTest and Full a shadow and a canary stage have their place: they differ only in which answer is used.
#include <algorithm>

#include "abi/base/check.hpp"
#include "agent/core/supervision.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kSelfTests =
    8;  // enough to see a constant lie, too few to delay an operator
constexpr std::uint32_t kTestCandidates = 4;

// As short as tells it apart from another build in the same sentence.
std::string named(const Build& build, const Build& beside) {
    return build.label() == beside.label() ? build.described() : build.label();
}
}  // namespace

std::string Supervision::no_slot(const std::string& name) const {
    for (const Kind kind : {Kind::Placement, Kind::Drain}) {
        if (name == kind_name(kind))
            return "this node has no [plugin." + name +
                   "] and the built-in policy decides; add the table to agent.toml and restart the "
                   "node";
    }
    constexpr std::size_t kNameShown = 64;
    std::string known;
    for (const Slot& slot : slots_) known += (known.empty() ? "" : ", ") + slot.spec.name;
    return "no plugin slot named '" + name.substr(0, kNameShown) + "'; this node has: " + known;
}

void Supervision::swap(const SwapCommand& command) {
    std::size_t slot_no = 0;
    const Slot* slot = slot_named(command.slot, &slot_no);
    if (slot == nullptr) {
        env_.emit(CommandDone{command.command, false, no_slot(command.slot)});
        return;
    }
    begin_swap(command.command, slot_no, command.build, command.undo);
    std::optional<Swap>& begun = slots_[slot_no].swap;
    if (!command.undo || !begun || begun->command != command.command) return;
    begun->undo = true;
    begun->previous = command.previous;
}

void Supervision::configured(const std::string& slot, const Build& build) {
    if (Slot* known = slot_named(slot)) known->spec.build = build;
}

void Supervision::rollback(const RollbackCommand& command) {
    std::size_t slot_no = 0;
    const Slot* slot = slot_named(command.slot, &slot_no);
    if (slot == nullptr) {
        env_.emit(CommandDone{command.command, false, no_slot(command.slot)});
    } else if (!slot->previous) {
        env_.emit(CommandDone{
            command.command, false, slot->spec.name + " has no earlier build to go back to"});
    } else {
        begin_swap(command.command, slot_no, *slot->previous, true);
    }
}

void Supervision::reset(const ResetCommand& command) {
    std::size_t slot_no = 0;
    Slot* slot = slot_named(command.slot, &slot_no);
    if (slot == nullptr) {
        env_.emit(CommandDone{command.command, false, no_slot(command.slot)});
        return;
    }
    // All that went wrong here, also those that are not in charge now.
    const std::size_t forgotten =
        std::erase_if(bad_, [&](const auto& item) { return item.second.slot == slot->spec.name; });
    if (forgotten != 0) env_.emit(RememberBadBuilds{bad_});
    slot->reason.clear();
    bool starts = false;
    for (Seat& seat : slot->seats) {
        seat.failed = false;
        seat.short_lives.clear();
        seat.backoff = 0;
        if (seat.main.valid()) continue;
        seat.start_at = env_.now;
        starts = true;
    }
    env_.emit(CommandDone{command.command,
                          true,
                          slot->spec.name + (starts ? " starts afresh with " : " goes on with ") +
                              slot->current.described() + "; " + std::to_string(forgotten) +
                              (forgotten == 1 ? " bad build" : " bad builds") + " forgotten"});
}

void Supervision::brand(const Slot& slot, const Build& build, const std::string& why) {
    if (!bad_.emplace(build.identity(), BadBuild{slot.spec.name, build.described(), why}).second)
        return;
    env_.note(NoteLevel::Error,
              "supervision",
              "build " + build.described() + " is remembered as bad: " + why);
    env_.emit(RememberBadBuilds{bad_});
}

const Build* Supervision::fallback(const Slot& slot) const {
    for (const Build* build : {slot.previous ? &*slot.previous : nullptr, &slot.spec.build}) {
        if (build != nullptr && build->identity() != slot.current.identity() &&
            !bad_.contains(build->identity()))
            return build;
    }
    return nullptr;
}

void Supervision::fail_slot(Slot& slot, const std::string& reason) {
    slot.reason = reason + "; `holdfast plugin reset " + slot.spec.name + "` tries it again";
    if (slot.spec.kind == Kind::Placement && env_.config.limits.place_required)
        slot.reason += ", what needs a place fails meanwhile";
    else if (is_policy(slot))
        slot.reason += ", the built-in policy decides meanwhile";
    env_.note(NoteLevel::Error, "supervision", slot.spec.name + ": " + slot.reason);
    for (Seat& seat : slot.seats) {
        if (!seat.main.valid()) seat.failed = true;
    }
}

void Supervision::revert_or_fail(std::size_t slot_no, const std::string& why) {
    Slot& slot = slots_[slot_no];
    const Build* const good = fallback(slot);
    if (good == nullptr)
        return fail_slot(slot, "build " + slot.current.label() + " was ended: " + why);
    const Build bad = slot.current;
    slot.current = Build(*good);  // which may lie in `previous`
    slot.previous.reset();
    slot.reason = "reverted from " + named(bad, slot.current) + " to " + named(slot.current, bad) +
                  ": " + why;
    env_.note(NoteLevel::Error, "supervision", slot.spec.name + ": " + slot.reason);
    for (Seat& seat : slot.seats) {
        if (seat.main.valid() || ended(slot)) continue;
        seat.backoff = 0;
        seat.start_at = env_.now;
    }
}

void Supervision::begin_swap(std::uint64_t command,
                             std::size_t slot_no,
                             const Build& build,
                             bool is_rollback) {
    Slot& slot = slots_[slot_no];
    if (ended(slot) || slot.swap) {
        env_.emit(CommandDone{
            command,
            false,
            ended(slot) ? "the node stops" : "a swap of " + slot.spec.name + " is under way"});
        return;
    }
    if (build.identity() == slot.current.identity() && slot.seats[0].main.valid()) {
        env_.emit(
            CommandDone{command, false, slot.spec.name + " already runs " + build.described()});
        return;
    }
    Swap swap;
    swap.command = command;
    swap.build = build;
    swap.since = env_.now;
    swap.is_rollback = is_rollback;
    slot.swap = std::move(swap);
    env_.emit(CommandProgress{command, "starting " + build.described()});
    for (std::uint32_t seat = 0; seat < slot.seats.size(); ++seat)
        slot.swap->candidates.push_back(spawn(slot_no, seat, build, Instance::Part::Candidate));
}

void Supervision::candidate_ready(Slot& slot) {
    HF_CHECK(slot.swap.has_value(), "a candidate exists only during a swap");
    if (++slot.swap->ready < slot.swap->candidates.size() || !candidates_live(*slot.swap)) return;
    if (!is_policy(slot)) {
        go_full(slot);
        if (slot.spec.kind != Kind::Runtime) finish_swap(slot);
        return;
    }
    slot.swap->stage = Stage::SelfTest;
    slot.swap->since = env_.now;
    env_.emit(CommandProgress{slot.swap->command, "self-test"});
    send_test(slot);
}

void Supervision::send_test(Slot& slot) {
    Swap& swap = *slot.swap;
    const OpId op = env_.new_op();
    swap.test = op;
    swap.test_sent = env_.now;
    tests_[op] = static_cast<std::size_t>(&slot - slots_.data());
    const Handle to = swap.candidates[0];
    if (slot.spec.kind == Kind::Drain) {
        NextStep next;
        next.to = to;
        next.op = op;
        for (std::uint32_t i = 0; i < kTestCandidates; ++i)
            next.residents.push_back("actor/self-test/generated/" +
                                     std::to_string(test_sequence_ + i));
        next.in_flight_max = 16;
        next.sequence = ++test_sequence_;
        env_.emit(std::move(next));
        return;
    }
    Place place;
    place.to = to;
    place.op = op;
    place.subject = "actor/self-test/generated/" + std::to_string(++test_sequence_);
    place.class_name = "generated";
    place.sequence = test_sequence_;
    place.deadline = env_.now + env_.config.limits.place_deadline;
    for (std::uint32_t i = 0; i < kTestCandidates; ++i) {
        Candidate candidate;
        candidate.id = i;
        candidate.node = env_.config.node_id;
        candidate.instance = i;
        candidate.resident = static_cast<std::uint32_t>(env_.random.below(100));
        place.candidates.push_back(std::move(candidate));
    }
    env_.emit(std::move(place));
}

bool Supervision::test_answered(const PlacedIn& answer) {
    const auto it = tests_.find(answer.op);
    if (it == tests_.end()) return false;
    Slot& slot = slots_[it->second];
    if (!slot.swap || slot.swap->test != answer.op) return tests_.erase(it), true;
    if (slot.swap->candidates[0] != answer.from) return false;  // it was not asked
    tests_.erase(it);
    const bool valid = answer.none ? !answer.reason.empty() : answer.choice < kTestCandidates;
    test_result(slot, valid, "answered a generated request with something that is no candidate");
    return true;
}

bool Supervision::test_answered(const StepIn& answer) {
    const auto it = tests_.find(answer.op);
    if (it == tests_.end()) return false;
    Slot& slot = slots_[it->second];
    if (!slot.swap || slot.swap->test != answer.op) return tests_.erase(it), true;
    if (slot.swap->candidates[0] != answer.from) return false;  // it was not asked
    tests_.erase(it);
    bool valid = !answer.give_up || !answer.reason.empty();
    std::set<std::uint32_t> seen;
    for (const std::uint32_t id : answer.hand_over)
        valid = valid && id < kTestCandidates && seen.insert(id).second;
    test_result(slot, valid, "answered a generated request with ids that were not offered");
    return true;
}

// False while one of them is being ended: its exit rolls the swap back, nothing else may finish it before that.
bool Supervision::candidates_live(const Swap& swap) const {
    return std::all_of(swap.candidates.begin(), swap.candidates.end(), [this](Handle handle) {
        const Instance* instance = find(handle);
        return instance != nullptr && !instance->ending;
    });
}

void Supervision::test_result(Slot& slot, bool valid, const std::string& why) {
    Swap& swap = *slot.swap;
    swap.test.reset();
    if (!candidates_live(swap)) return;
    if (!valid) {
        // The candidate's exit, or that of the main instance it became, rolls the swap back.
        answered_badly(swap.candidates[0], why, true);
        return;
    }
    ++swap.answers;
    if (swap.stage == Stage::SelfTest) {
        if (swap.answers < kSelfTests) return send_test(slot);
        go_full(slot);
        return;
    }
    if (swap.answers >= env_.config.limits.swap_answers) return finish_swap(slot);
    send_test(slot);
}

void Supervision::go_full(Slot& slot) {
    Swap& swap = *slot.swap;
    swap.stage = Stage::Full;
    swap.since = env_.now;
    swap.answers = 0;
    env_.emit(CommandProgress{swap.command, "full"});
    std::vector<Handle> waiting;
    for (std::uint32_t i = 0; i < slot.seats.size(); ++i) {
        Instance* candidate = instance_of(swap.candidates[i]);
        HF_CHECK(candidate != nullptr, "a candidate that went away ends the swap before this");
        const Handle old = slot.seats[i].main;
        candidate->part = Instance::Part::Main;
        slot.seats[i].main = candidate->handle;  // the route change
        slot.seats[i].start_at = kNever;
        // Until the swap ends the old instance of a policy or runtime waits beside; others retire in finish_swap.
        if (Instance* before = instance_of(old); before != nullptr) {
            before->part = Instance::Part::Retiring;
            waiting.push_back(old);
        }
        listener_.on_serving(slot.spec.kind, candidate->handle);
    }
    // After every successor is there: what leaves an old runtime goes to a new one, not to the next old one.
    if (slot.spec.kind == Kind::Runtime)
        for (const Handle old : waiting) listener_.on_retiring(slot.spec.kind, old);
    if (is_policy(slot)) send_test(slot);
}

void Supervision::finish_swap(Slot& slot) {
    const Swap swap = std::move(*slot.swap);
    slot.swap.reset();
    if (swap.test) tests_.erase(*swap.test);
    const std::string from = named(slot.current, swap.build);
    slot.previous = swap.undo ? swap.previous : std::optional(slot.current);
    slot.current = swap.build;
    // The operator asked for it and it did well.
    if (bad_.erase(swap.build.identity()) != 0) env_.emit(RememberBadBuilds{bad_});
    slot.reason = std::string(swap.is_rollback ? "rolled back" : "swapped") + " from " + from +
                  " to " + swap.build.described();
    for (Seat& seat : slot.seats) {
        seat.failed = false;
        seat.backoff = 0;
        seat.short_lives.clear();
    }
    for (auto& [generation, instance] : instances_) {
        if (&slots_[instance.slot] == &slot && instance.part == Instance::Part::Retiring &&
            !instance.ending)
            retire(instance);
    }
    env_.note(NoteLevel::Info, "supervision", slot.spec.name + ": " + slot.reason);
    env_.emit(CommandDone{swap.command, true, "Full: " + slot.reason});
}

void Supervision::roll_back(Slot& slot, const std::string& why) {
    const Swap swap = std::move(*slot.swap);
    slot.swap.reset();
    if (swap.test) tests_.erase(*swap.test);
    slot.reason = "RolledBack: " + named(swap.build, slot.current) + " was ended: " + why + "; " +
                  named(slot.current, swap.build) + " is in charge";
    for (std::uint32_t i = 0; i < slot.seats.size(); ++i) {
        Instance* candidate = instance_of(swap.candidates[i]);
        if (candidate != nullptr) {
            if (slot.seats[i].main == candidate->handle) slot.seats[i].main = {};
            candidate->part = Instance::Part::Retiring;
            kill(*candidate, "its swap is rolled back", false);
        }
    }
    for (auto& [generation, instance] : instances_) {
        if (&slots_[instance.slot] != &slot || instance.part != Instance::Part::Retiring ||
            instance.ending)
            continue;
        instance.part = Instance::Part::Main;
        slot.seats[instance.seat].main = instance.handle;
        listener_.on_serving(slot.spec.kind, instance.handle);
    }
    for (Seat& seat : slot.seats) {
        if (!seat.main.valid() && !seat.failed && !ended(slot)) seat.start_at = env_.now;
    }
    env_.note(NoteLevel::Error, "supervision", slot.spec.name + ": " + slot.reason);
    env_.emit(CommandDone{swap.command, false, slot.reason});
}

}  // namespace hf::core
