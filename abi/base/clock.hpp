// The clocks of the product, in ns. Deadlines are CLOCK_MONOTONIC; leases count suspend too, which CLOCK_BOOTTIME does; wall
// time only for people and guests.
#pragma once

#include <cstdint>
#include <ctime>

namespace hf {

[[nodiscard]] inline std::int64_t monotonic_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_MONOTONIC, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

[[nodiscard]] inline std::int64_t boottime_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_BOOTTIME, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

[[nodiscard]] inline std::int64_t wall_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_REALTIME, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

[[nodiscard]] inline std::int64_t wall_ms() {
    return wall_ns() / 1'000'000;
}

}  // namespace hf
