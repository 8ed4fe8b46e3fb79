#include "agent/core/placer.hpp"

#include <algorithm>

#include "abi/base/hash.hpp"

namespace hf::core {

namespace {
// A timer that fires so late was not late by itself: the machine was paused, or this process got no processor.
// Excused once a question, so a threshold that a busy machine reaches now and then does no harm.
constexpr Time kStoodStill = 50 * kMs;
}  // namespace

std::optional<std::size_t> place_by_default(const std::string& subject,
                                            const std::vector<Candidate>& candidates) {
    std::optional<std::size_t> best;
    std::uint64_t best_score = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
        const Candidate& candidate = candidates[i];
        if (candidate.capacity != 0 && candidate.resident >= candidate.capacity) continue;
        const std::uint64_t score = mix64(fnv1a64(candidate.node, fnv1a64(subject)) ^
                                          mix64(std::uint64_t{candidate.instance} + 1));
        if (!best || score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}

void Placer::ask(UnitId unit, std::string subject, std::string class_name) {
    waiting_.push_back({unit, std::move(subject), std::move(class_name)});
    next();
}

void Placer::decide_by_default(const Question& question, const std::vector<Candidate>& candidates) {
    if (env_.config.limits.place_required)
        return done_(question.unit,
                     std::nullopt,
                     "the placement policy " + policy_label() + " did not answer and is required");
    ++env_.stats.placed_by_default;
    const auto choice = place_by_default(question.subject, candidates);
    if (!choice) return done_(question.unit, std::nullopt, "every runtime instance is full");
    done_(question.unit, candidates[*choice].handle, "");
}

std::string Placer::policy_label() const {
    for (const auto& slot : supervision_.slots())
        if (slot.spec.kind == Kind::Placement) return slot.current.label();
    return "(none)";
}

void Placer::next() {
    if (busy_) return;  // a done_() that asks again is served by the loop below
    busy_ = true;
    while (!waiting_.empty() && (!open_ || open_->decided)) {
        Question question = std::move(waiting_.front());
        waiting_.pop_front();
        std::vector<Candidate> candidates = offer_();
        if (candidates.empty()) {
            done_(question.unit, std::nullopt, "no runtime instance serves");
            continue;
        }
        const Handle policy = supervision_.serving_one(Kind::Placement);
        // While a policy still owes a late answer it gets no more questions: the default decides at once.
        if (!policy.valid() || (open_ && open_->policy == policy)) {
            decide_by_default(question, candidates);
            continue;
        }
        Place place;
        place.to = policy;
        place.op = env_.new_op();
        place.subject = question.subject;
        place.class_name = question.class_name;
        place.candidates = candidates;
        place.sequence = ++sequence_;
        place.deadline = env_.now + env_.config.limits.place_deadline;
        open_ = Open{place.op,
                     policy,
                     std::move(question),
                     std::move(candidates),
                     env_.now,
                     false,
                     false,
                     env_.now + env_.config.limits.policy_stall};
        env_.emit(std::move(place));
    }
    busy_ = false;
}

bool Placer::answered(const PlacedIn& answer) {
    if (!open_ || open_->op != answer.op || open_->policy != answer.from) return false;
    const Open open = std::move(*open_);
    open_.reset();
    const auto chosen = std::find_if(
        open.candidates.begin(), open.candidates.end(), [&](const Candidate& candidate) {
            return candidate.id == answer.choice;
        });
    const bool valid = answer.none ? !answer.reason.empty() : chosen != open.candidates.end();
    if (!valid) {
        ++env_.stats.place_invalid;
        supervision_.answered_badly(
            open.policy,
            answer.none ? "chose nobody without a reason"
                        : "chose " + std::to_string(answer.choice) + ", which is no candidate",
            false);
    } else {
        supervision_.answered_well(open.policy);
    }
    if (!open.decided) {
        if (!valid) {
            decide_by_default(open.question, open.candidates);
        } else if (answer.none) {
            ++env_.stats.placed_by_policy;
            done_(open.question.unit, std::nullopt, answer.reason);
        } else {
            ++env_.stats.placed_by_policy;
            done_(open.question.unit, chosen->handle, "");
        }
    }
    next();
    return true;
}

void Placer::policy_gone(Handle policy) {
    if (!open_ || open_->policy != policy) return;
    const Open open = std::move(*open_);
    open_.reset();
    if (!open.decided)
        waiting_.push_front(open.question);  // asked again: of a successor, or of the default
    next();
}

void Placer::tick() {
    if (!open_) return;
    if (const Time due = next_deadline(); env_.now - due > kStoodStill && !open_->excused) {
        open_->excused = true;
        open_->stall_at = env_.now + env_.config.limits.policy_stall;
    }
    if (!open_->decided && env_.now - open_->asked >= env_.config.limits.place_deadline) {
        open_->decided = true;
        ++env_.stats.place_late;
        const Question question = open_->question;
        const std::vector<Candidate> candidates = offer_();
        if (candidates.empty()) {
            done_(question.unit, std::nullopt, "no runtime instance serves");
        } else {
            decide_by_default(question, candidates);
        }
        next();
    }
    if (open_ && open_->decided && env_.now >= open_->stall_at) {
        const Handle policy = open_->policy;
        open_.reset();
        supervision_.answered_badly(policy, "stalled: a question stayed unanswered", true);
        next();
    }
}

Time Placer::next_deadline() const {
    if (!open_) return kNever;
    return open_->decided ? open_->stall_at : open_->asked + env_.config.limits.place_deadline;
}

}  // namespace hf::core
