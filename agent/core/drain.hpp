// A node that gives everything away (the wasmkeep drain): how many units are on their way at once, which ones are next, and
// when there is nothing left. How one unit is handed over is Units' business (hand_over.cpp).
//
// A draining node serves on: what it holds until that is handed over, and everything when nobody is there to take it (stuck).
// Pacing is continuous: as one hand-over ends the next begins, at most kInFlightMax at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/env.hpp"

namespace hf::core {

class Drain {
public:
    // The seed's bound of one pass; here of what is under way.
    static constexpr std::size_t kInFlightMax = 16;

    enum class State : std::uint8_t { Serving, Draining, Drained, Stuck };
    struct Left {
        std::size_t held = 0;     // units with a hold, those being released included
        std::size_t alarms = 0;   // that no other node has taken yet
        std::size_t journal = 0;  // requests accepted for later and not applied
        [[nodiscard]] bool nothing() const { return held == 0 && alarms == 0 && journal == 0; }
    };
    struct Hooks {
        // Units that may be handed over now, the least recently active first, `most` at most.
        std::function<std::vector<UnitId>(std::size_t most)> next;
        // Begins; ended() follows once.
        std::function<void(UnitId)> hand_over;
        // The node does not drain any more: what is under way and can be taken back is.
        std::function<void()> take_back;
        std::function<Left()> left;
        std::function<bool()> has_peer;
        std::function<void(State)> says;  // for the node's record
    };

    Drain(Env& env, Hooks hooks) : env_(env), hooks_(std::move(hooks)) {}

    // What control/ says; asked again with each of its news.
    void wanted(bool drain);
    void ended(UnitId unit);
    // The incarnation is over: nothing is under way.
    void forget() { under_way_.clear(); }
    void tick();
    [[nodiscard]] Time next_deadline() const { return on_ ? look_at_ : kNever; }

    [[nodiscard]] bool on() const { return on_; }
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] const Left& left() const { return left_; }
    [[nodiscard]] std::size_t under_way() const { return under_way_.size(); }
    [[nodiscard]] Time since() const { return since_; }

private:
    void go_on();
    void look();
    void set(State state);

    Env& env_;
    Hooks hooks_;
    std::set<UnitId> under_way_;
    Left left_;
    bool on_ = false;
    bool going_on_ = false;
    State state_ = State::Serving;
    Time since_ = 0;
    Time look_at_ = kNever;
};

[[nodiscard]] const char* drain_state_name(Drain::State state);

}  // namespace hf::core
