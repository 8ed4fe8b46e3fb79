#include "agent/core/drain.hpp"

#include <utility>

namespace hf::core {

namespace {
// How often what is left is counted: it is a walk over all units.
constexpr Time kLook = 500 * kMs;
}  // namespace

const char* drain_state_name(Drain::State state) {
    switch (state) {
        case Drain::State::Serving:
            return "serving";
        case Drain::State::Draining:
            return "draining";
        case Drain::State::Drained:
            return "drained";
        case Drain::State::Stuck:
            return "stuck";
    }
    return "?";
}

void Drain::set(State state) {
    if (std::exchange(state_, state) == state) return;
    env_.note(NoteLevel::Info,
              "drain",
              std::string(drain_state_name(state)) + ": " + std::to_string(left_.held) +
                  " actors, " + std::to_string(left_.alarms) + " alarms and " +
                  std::to_string(left_.journal) + " accepted requests are left");
    hooks_.says(state);
}

void Drain::wanted(bool drain) {
    if (drain == on_) {
        if (on_) go_on();
        return;
    }
    on_ = drain;
    if (!on_) {
        look_at_ = kNever;
        set(State::Serving);
        return hooks_.take_back();
    }
    since_ = env_.now;
    look();
}

// Fills what is free of kInFlightMax.
void Drain::go_on() {
    if (!on_ || std::exchange(going_on_, true)) return;
    while (under_way_.size() < kInFlightMax && hooks_.has_peer()) {
        const auto next = hooks_.next(kInFlightMax - under_way_.size());
        if (next.empty()) break;
        for (const UnitId unit : next) {
            under_way_.insert(unit);
            hooks_.hand_over(unit);  // may end at once
        }
    }
    going_on_ = false;
}

void Drain::ended(UnitId unit) {
    if (under_way_.erase(unit) != 0) go_on();
}

void Drain::look() {
    look_at_ = env_.now + kLook;
    go_on();
    left_ = hooks_.left();
    if (left_.nothing() && under_way_.empty()) return set(State::Drained);
    set(hooks_.has_peer() ? State::Draining : State::Stuck);
}

void Drain::tick() {
    if (on_ && look_at_ <= env_.now) look();
}

}  // namespace hf::core
