// Real processes through the real jail. As root; a case that needs root and has not got it says so.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/process/spawner.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>

#include "agent/process/test_jail.hpp"

namespace hf::process::testing {
namespace {

TEST_CASE("a plugin runs under the jail and its end is reported") {
    Room room;
    const Outcome outcome = room.run({.probe = {"exit", "7"}});
    CHECK(outcome.report.exit_code == 7);
    CHECK(outcome.report.signal == 0);
    CHECK(outcome.report.failure.empty());
    CHECK(outcome.report.pid > 0);
    CHECK(outcome.report.summary() == "exit code 7");
}

}  // namespace
}  // namespace hf::process::testing
