// How long to wait before a handler that failed is run again: alarms, one-way messages and journalled requests keep the same pace.
#pragma once

#include <algorithm>
#include <cstdint>

#include "agent/core/types.hpp"

namespace hf::core {

inline constexpr Time kHandlerPauseMost = 300 * kSecond;
// A message or journalled request that found no room at its receiver is offered again after this.
inline constexpr Time kNoRoomAgain = 500 * kMs;
// Handlers that failed before a message is given up: 2 s doubling to 5 min is an hour and a quarter. Alarms never are.
inline constexpr unsigned kHandlerTriesMax = 20;
// One that ended runtimes counts as so many that failed, and waits for the longest pause: the fourth time is the last one. Three
// processes each 5 min is what a node can bear of it; its own pace would use up their short lives (supervision.hpp).
inline constexpr unsigned kPoisonTries = 7;

// After `failures` earlier ones: 2 s, doubling to kHandlerPauseMost.
[[nodiscard]] constexpr Time handler_pause(std::uint32_t failures) {
    constexpr Time kFirst = 2 * kSecond;
    constexpr std::uint32_t kDoublings = 8;  // 2 s x 2^8 is beyond kHandlerPauseMost
    return std::min(kFirst << std::min(failures, kDoublings), kHandlerPauseMost);
}

}  // namespace hf::core
