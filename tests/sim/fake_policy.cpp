// Placement and drain policies: three honest strategies, and the ways a policy can be late, silent or wrong.
#include <algorithm>

#include "abi/base/hash.hpp"
#include "tests/sim/instances.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

void Policy::take(const core::Action& action) {
    if (!answering()) return;
    if (const auto* place_ask = std::get_if<core::Place>(&action)) place(*place_ask);
    if (const auto* step_ask = std::get_if<core::NextStep>(&action)) step(*step_ask);
}

bool Policy::misbehave(bool test) {
    ++asked_;
    if (!test) ++asked_live_;
    if (misdeed() == "crash_in_test" && asked_ == 3) {
        die("killed by signal 11", true, 0);
        return true;
    }
    if (misdeed() == "stall_in_test" && asked_ == 3) {
        stall();
        return true;
    }
    if (misdeed() == "crash_in_full" && asked_ >= 12) {
        die("killed by signal 6", true, 0);
        return true;
    }
    if (misdeed() == "stall_in_full" && asked_ >= 12) {
        stall();
        return true;
    }
    return false;
}

void Policy::place(const core::Place& ask) {
    World& w = world_;
    const Scenario& s = w.scenario;
    const bool test = ask.subject.find("/self-test/") != std::string::npos;
    if (misbehave(test)) return;
    core::PlacedIn answer;
    answer.from = spawn_.handle;
    answer.op = ask.op;
    const std::string& policy = spawn_.build.policy;
    if (policy == "least-loaded") {
        answer.choice =
            std::min_element(ask.candidates.begin(),
                             ask.candidates.end(),
                             [](const auto& a, const auto& b) { return a.resident < b.resident; })
                ->id;
    } else if (policy == "random") {
        answer.choice = w.dice.pick(ask.candidates).id;
    } else {
        answer.choice = ask.candidates[fnv1a64(ask.subject) % ask.candidates.size()].id;
    }
    if (misdeed() == "lie_in_test" || (misdeed() == "lie_in_full" && asked_ >= 12)) {
        answer.choice = 77;
        return answer_later(1000, answer);
    }
    Time delay = w.dice.skewed(5000, 2 * kMs);
    if (w.faults() && !test) {
        if (w.dice.permille(s.place_dies)) return crash();
        if (w.dice.permille(s.place_stalls)) return stall();
        if (w.dice.permille(s.place_late)) delay = w.dice.between(40, 900) * kMs;
        if (w.dice.permille(s.place_none)) {
            answer.none = true;
            answer.reason = "nobody is good enough";
        } else if (w.dice.permille(s.place_lies)) {
            answer.none = w.dice.percent(30);
            answer.choice = static_cast<std::uint32_t>(w.dice.between(64, 5000));
        }
    }
    answer_later(delay, answer);
}

void Policy::step(const core::NextStep& ask) {
    if (misbehave(true)) return;
    core::StepIn answer;
    answer.from = spawn_.handle;
    answer.op = ask.op;
    if (!ask.residents.empty()) answer.hand_over.push_back(0);
    if (misdeed() == "lie_in_test" || (misdeed() == "lie_in_full" && asked_ >= 12))
        answer.hand_over = {0, 0};
    answer_later(world_.dice.skewed(5000, 2 * kMs), answer);
}

}  // namespace hf::sim
