// The clocks of one simulated machine. Its CLOCK_MONOTONIC starts anywhere, runs a little fast or slow, and stands still
// while the machine is suspended; its CLOCK_BOOTTIME goes on then; its wall clock is set by whoever likes to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "agent/core/types.hpp"

namespace hf::sim {

using core::kMs;
using core::kSecond;
using core::Time;

class Clock {
public:
    // `ppm`: how many millionths fast it runs, negative: slow. With 0 and `local` == `at` it is the world's own.
    void start(Time at, Time local, std::int64_t ppm) {
        began_ = at;
        base_ = local;
        ppm_ = ppm;
        slept_ = 0;
        stands_since_.reset();
    }

    [[nodiscard]] Time monotonic(Time at) const {
        return base_ + stretched(stands_since_.value_or(at) - began_);
    }
    [[nodiscard]] Time slept(Time at) const {
        return slept_ + (stands_since_ ? stretched(at - *stands_since_) : 0);
    }
    [[nodiscard]] Time boot(Time at) const { return monotonic(at) + slept(at); }
    // When monotonic() first says `local`; kNever when no run lasts that long.
    [[nodiscard]] Time when(Time local) const {
        const Time wanted = local - base_;
        if (local == core::kNever || wanted > kLongest) return core::kNever;
        if (wanted <= 0) return began_;
        Time guess = wanted * kMillion / (kMillion + ppm_);
        while (stretched(guess) < wanted) ++guess;
        while (guess > 0 && stretched(guess - 1) >= wanted) --guess;
        return began_ + guess;
    }

    void suspend(Time at) { stands_since_ = at; }
    // Answers for how long it was suspended.
    Time resume(Time at) {
        if (!stands_since_) return 0;
        const Time asleep = at - *stands_since_;
        slept_ += stretched(asleep);
        began_ += asleep;
        stands_since_.reset();
        return stretched(asleep);
    }

private:
    static constexpr std::int64_t kMillion = 1'000'000;
    static constexpr Time kLongest = 5000 * kSecond;  // its millionfold is still a number

    [[nodiscard]] Time stretched(Time span) const {
        return span + std::min(span, kLongest) * ppm_ / kMillion;
    }

    Time began_ = 0;  // less all suspensions that are over
    Time base_ = 0;
    std::int64_t ppm_ = 0;
    Time slept_ = 0;
    std::optional<Time> stands_since_;
};

}  // namespace hf::sim
