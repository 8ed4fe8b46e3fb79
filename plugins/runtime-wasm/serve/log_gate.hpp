// How many lines of guests reach the log. The supervisor folds and caps what a plugin says; without a gate here one loud
// actor would use up the plugin's whole share and silence the others.
#pragma once

#include <cstdint>

namespace hf::wasm {

class LogGate {
public:
    // Per second, all actors of the instance: the supervisor takes 20 a second and a burst of 100 from one source.
    static constexpr std::uint32_t kLinesPerSecond = 50;

    // True when a line may pass now. `now_ns` is CLOCK_MONOTONIC.
    bool pass(std::int64_t now_ns) {
        if (now_ns - window_ns_ >= 1'000'000'000) {
            window_ns_ = now_ns;
            passed_ = 0;
        }
        if (passed_ < kLinesPerSecond) {
            ++passed_;
            return true;
        }
        ++dropped_;
        return false;
    }
    void add_dropped(std::uint32_t lines) { dropped_ += lines; }
    // Lines held back since the last call.
    [[nodiscard]] std::uint64_t take_dropped() {
        const std::uint64_t lines = dropped_;
        dropped_ = 0;
        return lines;
    }

private:
    std::int64_t window_ns_ = 0;
    std::uint32_t passed_ = 0;
    std::uint64_t dropped_ = 0;
};

}  // namespace hf::wasm
