// Whether and how long to look for a record before blocking. Waking a sleeper on another CPU costs 2-50 us; a record that
// is about to arrive is worth waiting for about as long, and one that is not must cost nothing.
//   1. never when the peer last ran on this CPU: the spinner would keep it from running;
//   2. at most one wake cost, as measured at start;
//   3. a score of recent luck: at zero only every 64th wait tries; a preemption in mid-spin sets it to zero;
//   4. never with one CPU, or less than one and a half by quota.
#pragma once

#include <cstdint>

#include "abi/base/clock.hpp"

namespace hf::ring {

// Bounds of one spin. Below 2 us even a wake on the same CPU is not saved; above 50 us a wake is always cheaper.
inline constexpr std::uint32_t kSpinNsMin = 2'000;
inline constexpr std::uint32_t kSpinNsMax = 50'000;
// Assumed until the machine was measured: a typical wake on a virtual CPU.
inline constexpr std::uint32_t kSpinNsDefault = 20'000;
// A gap this long between two looks means that the thread did not run: ten times what an interrupt takes.
inline constexpr std::int64_t kPreemptedNs = 200'000;

// True when this process may use more than about one CPU (affinity, cgroup v1 and v2 quotas as far as they can be read).
[[nodiscard]] bool spin_allowed();
// Measures the wake of a thread that sleeps on another CPU, clamped to the bounds above. Starts two threads for about a
// millisecond: not for a loop thread. kSpinNsDefault when it cannot be measured.
[[nodiscard]] std::uint32_t measure_wake_ns();

class SpinPolicy {
public:
    SpinPolicy(std::uint32_t budget_ns, bool allowed);

    // Whether this wait should spin. `peer_cpu` is the peer's word: at worst a lie costs one budget.
    [[nodiscard]] bool wanted(std::uint32_t peer_cpu);
    void succeeded() {
        if (score_ < kScoreMax) ++score_;
    }
    void failed() {
        if (score_ > 0) --score_;
    }
    void preempted() { score_ = 0; }
    [[nodiscard]] std::uint32_t budget_ns() const { return budget_ns_; }

private:
    static constexpr std::uint32_t kScoreMax = 7;  // three bits: seven misses switch it off
    static constexpr std::uint32_t kProbeEvery =
        64;  // the price of noticing that luck is back: under 1 us a wait
    std::uint32_t budget_ns_;
    bool allowed_;
    std::uint32_t score_ = kScoreMax / 2;
    std::uint32_t waits_ = 0;
};

enum class Spun : std::uint8_t { Found, Nothing, Preempted };

// Looks at `ready` for at most budget_ns.
template <class Ready>
[[nodiscard]] Spun spin(std::uint32_t budget_ns, Ready ready) {
    constexpr int kLooksPerClock = 16;  // a clock costs 20 ns, a pause about as much
    std::int64_t last = monotonic_ns();
    const std::int64_t end = last + budget_ns;
    for (;;) {
        for (int i = 0; i < kLooksPerClock; ++i) {
            if (ready()) return Spun::Found;
            __builtin_ia32_pause();
        }
        const std::int64_t now = monotonic_ns();
        if (now - last > kPreemptedNs) return ready() ? Spun::Found : Spun::Preempted;
        if (now >= end) return Spun::Nothing;
        last = now;
    }
}

}  // namespace hf::ring
