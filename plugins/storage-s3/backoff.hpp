// Pauses between tries, and how many tries all operations together may make. Pure: randomness comes from the caller.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hf::s3 {

// Full jitter: anywhere between nothing and a bound that doubles. Those who failed together do not come back together.
inline constexpr std::int64_t kPauseFirstMs = 50;
// A store that is back is noticed within this; the wait of one operation ends it earlier.
inline constexpr std::int64_t kPauseMaxMs = 2'000;

// The pause before try `tries` + 1 (from 1), of a random word.
[[nodiscard]] inline std::int64_t pause_ms(unsigned tries, std::uint64_t random) {
    const std::int64_t bound =
        std::min(kPauseMaxMs, kPauseFirstMs << std::min(tries == 0 ? 0U : tries - 1, 16U));
    return static_cast<std::int64_t>(random % static_cast<std::uint64_t>(bound + 1));
}

// Repetitions cost, first tries that succeed earn: a store that fails everything hears each operation about once instead of
// attempts_max times. The supervisor asks again by itself, with pauses of its own.
class RetryBudget {
public:
    // What may be repeated at once after a time of peace: a tenth of a second of a busy node.
    static constexpr unsigned kMost = 500;
    // Of a repetition, that one success earns: a store that fails one in ten never runs it down.
    static constexpr unsigned kSuccessesPerRetry = 5;

    void succeeded() { units_ = std::min(kMost * kSuccessesPerRetry, units_ + 1); }
    [[nodiscard]] bool take() {
        if (units_ < kSuccessesPerRetry) return false;
        units_ -= kSuccessesPerRetry;
        return true;
    }
    [[nodiscard]] unsigned left() const { return units_ / kSuccessesPerRetry; }

private:
    unsigned units_ = kMost * kSuccessesPerRetry;
};

}  // namespace hf::s3
