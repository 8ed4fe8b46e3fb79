// A suspended host: told once for each suspend, and never where there was none.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/daemon/slept.hpp"

#include <doctest/doctest.h>

using hf::daemon::SleptWatch;

namespace {
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1000 * kMs;
}  // namespace

TEST_CASE("the_first_look_tells_what_was_slept_before_the_start") {
    SleptWatch watch;
    CHECK_FALSE(watch.told());
    CHECK(watch.look(500 * kSecond, 100 * kSecond) == 400 * kSecond);
    CHECK(watch.told());
    CHECK_FALSE(watch.look(501 * kSecond, 101 * kSecond).has_value());
}

TEST_CASE("a_suspend_is_told_by_the_first_look_after_it_and_once") {
    SleptWatch watch;
    CHECK(watch.look(10 * kSecond, 10 * kSecond) == 0);
    CHECK(watch.look(75 * kSecond, 11 * kSecond) == 64 * kSecond);
    CHECK_FALSE(watch.look(76 * kSecond, 12 * kSecond).has_value());
    CHECK(watch.look(80 * kSecond + 2 * kMs, 16 * kSecond) == 64 * kSecond + 2 * kMs);
}

TEST_CASE("what_passes_between_the_two_readings_is_no_sleep") {
    SleptWatch watch;
    CHECK(watch.look(10 * kSecond, 10 * kSecond) == 0);
    // Stopped for 5 s between them: the clock that was read later stands later.
    CHECK_FALSE(watch.look(11 * kSecond, 16 * kSecond).has_value());
    CHECK_FALSE(watch.look(17 * kSecond, 17 * kSecond).has_value());
    CHECK_FALSE(watch.look(18 * kSecond + kMs, 18 * kSecond).has_value());
}
