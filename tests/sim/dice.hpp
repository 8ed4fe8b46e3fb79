// The one source of chance in a simulated run: everything drawn from it follows from the seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/base/hash.hpp"

namespace hf::sim {

class Dice {
public:
    explicit Dice(std::uint64_t seed) : state_(mix64(seed ^ 0x5EEDULL)) {}

    std::uint64_t next() {
        state_ += 0x9E3779B97F4A7C15ULL;
        return mix64(state_);
    }
    // 0 <= result < bound; bound > 0.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }
    // low <= result <= high.
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
    }
    bool permille(unsigned chance) { return chance != 0 && below(1000) < chance; }
    bool percent(unsigned chance) { return permille(chance * 10); }
    // Skewed to the low end, as latencies are: most near `low`, few near `high`.
    std::int64_t skewed(std::int64_t low, std::int64_t high) {
        std::int64_t top = high;
        for (int i = 0; i < 3; ++i) top = between(low, top);
        return top;
    }
    template <class T>
    const T& pick(const std::vector<T>& from) {
        return from[static_cast<std::size_t>(below(from.size()))];
    }

private:
    std::uint64_t state_;
};

}  // namespace hf::sim
