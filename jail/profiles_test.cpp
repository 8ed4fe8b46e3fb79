#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "jail/profiles.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>

#include "abi/layout/seccomp_filter.hpp"

namespace hf::jail {
namespace {

using layout::Condition;
using layout::Rule;
using layout::Rules;

TEST_CASE("every rule has a reason and names a system call") {
    for (const Profile& profile : all_profiles()) {
        for (const auto* list : {&profile.allow, &profile.forbid}) {
            for (const Rules rules : *list) {
                for (const Rule& rule : rules) {
                    CAPTURE(profile.name);
                    CAPTURE(rule.call);
                    CHECK(std::string(rule.reason).size() >= 5);
                    CHECK(layout::syscall_known(rule.call));
                }
            }
        }
    }
}

bool contradict(const Condition& a, const Condition& b) {
    // Without a condition it covers every other rule of that call.
    return a == b || a.test == Condition::Test::Always || b.test == Condition::Test::Always;
}

TEST_CASE("no call is both allowed and forbidden") {
    for (const Profile& profile : all_profiles())
        for (const Rules allowed : profile.allow)
            for (const Rule& a : allowed)
                for (const Rules forbidden : profile.forbid)
                    for (const Rule& f : forbidden) {
                        CAPTURE(profile.name);
                        CAPTURE(a.call);
                        if (std::string(a.call) == f.call) CHECK_FALSE(contradict(a.when, f.when));
                    }
}

TEST_CASE("no rule is there twice") {
    for (const Profile& profile : all_profiles())
        for (const auto* list : {&profile.allow, &profile.forbid})
            for (const Rules rules : *list)
                for (const Rule& rule : rules) {
                    int same = 0;
                    for (const Rules others : *list)
                        for (const Rule& each : others)
                            if (std::string(each.call) == rule.call && each.when == rule.when)
                                ++same;
                    CAPTURE(profile.name);
                    CAPTURE(rule.call);
                    CHECK(same == 1);
                }
}

TEST_CASE("newer calls that libraries fall back from are in no list") {
    const std::set<std::string> newer = {"clone3", "faccessat2", "close_range", "futex_waitv"};
    for (const Profile& profile : all_profiles())
        for (const auto* list : {&profile.allow, &profile.forbid})
            for (const Rules rules : *list)
                for (const Rule& rule : rules) CHECK(newer.count(rule.call) == 0);
}

TEST_CASE("only the gateway and storage-s3 may make sockets, only the builder may start programs") {
    for (const Profile& profile : all_profiles()) {
        bool sockets = false;
        for (const Rules rules : profile.allow)
            for (const Rule& rule : rules) sockets = sockets || std::string(rule.call) == "socket";
        CHECK(sockets == (profile.name == "gateway-http" || profile.name == "storage-s3"));
        CHECK(profile.may_exec == (profile.name == "builder"));
    }
}

TEST_CASE("an unknown profile is not found") {
    CHECK(find_profile("gateway") == nullptr);
    CHECK(find_profile("unfiltered:placement") == nullptr);
    REQUIRE(find_profile("drain") != nullptr);
}

}  // namespace
}  // namespace hf::jail
