// How long to wait before a handler that failed is run again: alarms and one-way messages keep the same pace.
#pragma once

#include <algorithm>
#include <cstdint>

#include "agent/core/types.hpp"

namespace hf::core {

inline constexpr Time kHandlerPauseMost = 300 * kSecond;

// After `failures` earlier ones: 2 s, doubling to kHandlerPauseMost.
[[nodiscard]] constexpr Time handler_pause(std::uint32_t failures) {
    constexpr Time kFirst = 2 * kSecond;
    constexpr std::uint32_t kDoublings = 8;  // 2 s x 2^8 is beyond kHandlerPauseMost
    return std::min(kFirst << std::min(failures, kDoublings), kHandlerPauseMost);
}

}  // namespace hf::core
