// How a node ends: gateways first, storage last, nothing accepted without an answer.
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

TEST_CASE(
    "a_stop_sheds_gateways_settles_then_ends_runtimes_and_policies_then_storage_then_exits_0") {
    Rig rig;
    std::vector<Deliver> held;
    std::vector<Kind> ended;
    std::map<Handle, Kind> kinds;
    for (const auto& [at, spawn] : rig.all<Spawn>()) kinds[spawn.handle] = spawn.kind;
    rig.hook = [&](const Action& action) {
        if (const auto* deliver = std::get_if<Deliver>(&action)) {
            held.push_back(*deliver);
            return true;
        }
        if (const auto* shed = std::get_if<SendShed>(&action)) {
            ended.push_back(kinds[shed->to]);
            return true;  // it leaves when its requests are answered
        }
        if (const auto* stop = std::get_if<SendStop>(&action)) ended.push_back(kinds[stop->to]);
        return false;
    };
    const Handle gateway = rig.serving(Kind::Gateway);
    const auto open = rig.ask("a", rig.now + 10 * kSecond);
    rig.feed(StopNode{"SIGTERM"});
    CHECK(ended == std::vector<Kind>{Kind::Gateway});
    RequestIn late;
    late.from = gateway;
    late.req_id = 99;
    late.class_name = "counter";
    late.name = "b";
    late.deadline = rig.now + 10 * kSecond;
    rig.feed(late);
    REQUIRE(rig.reply(99) != nullptr);
    CHECK(rig.reply(99)->reason == ReplyReason::Unavailable);
    rig.run_for(kSecond);
    CHECK(ended.size() == 1);  // an accepted event is still open
    REQUIRE(held.size() == 1);
    rig.feed(Rig::delivered(held[0]));
    REQUIRE(rig.reply(open) != nullptr);
    CHECK(rig.reply(open)->reason == ReplyReason::Ok);
    rig.feed(Exited{.from = gateway, .summary = "exit 0"});
    REQUIRE(ended.size() == 5);
    CHECK(ended.back() == Kind::Storage);
    REQUIRE(rig.all<ExitNode>().size() == 1);
    CHECK(rig.all<ExitNode>()[0].second.code == 0);
    CHECK(rig.core.supervision().instances().empty());
}

TEST_CASE("a_stop_waits_no_longer_than_shed_deadline_and_the_steps_after_it") {
    Rig rig;
    rig.hook = [](const Action& action) {
        return std::holds_alternative<Deliver>(action) ||
               std::holds_alternative<SendShed>(action) ||
               std::holds_alternative<SendStop>(action);  // nobody does what it is told
    };
    const Time start = rig.now;
    rig.ask("a", start + 100 * kSecond);
    rig.feed(StopNode{"SIGTERM"});
    rig.run_to(start + 30 * kSecond - 1);
    CHECK(rig.all<SendStop>().empty());
    std::size_t ticks = 0;
    while (rig.all<ExitNode>().empty() && ticks < 100) {
        ++ticks;
        rig.now = std::max(rig.now, rig.core.next_deadline());
        rig.feed(Tick{});
    }
    REQUIRE(rig.all<ExitNode>().size() == 1);
    CHECK(rig.all<ExitNode>()[0].first <= start + 40 * kSecond);
    CHECK(ticks < 20);
}

TEST_CASE("a_stop_before_anything_serves_ends_as_well") {
    Config config = small_config();
    Rig rig(config);
    rig.die(rig.serving(Kind::Storage), true);
    rig.die(rig.serving(Kind::Gateway), true);
    rig.feed(StopNode{"SIGTERM"});
    rig.run_for(40 * kSecond);
    REQUIRE(rig.all<ExitNode>().size() == 1);
    CHECK(rig.all<ExitNode>()[0].second.code == 0);
}

TEST_CASE("a_stop_does_not_wait_for_what_is_still_starting") {
    for (const Kind kind : {Kind::Gateway, Kind::Storage, Kind::Runtime, Kind::Placement}) {
        Rig rig;
        rig.run_for(10 * kSecond);
        rig.hook = [](const Action& action) { return std::holds_alternative<Configure>(action); };
        rig.die(rig.serving(kind), false);
        rig.run_for(kSecond);
        REQUIRE_FALSE(rig.serving(kind).valid());
        const Time start = rig.now;
        rig.feed(StopNode{"SIGTERM"});
        rig.run_for(40 * kSecond);
        REQUIRE(rig.all<ExitNode>().size() == 1);
        CHECK(rig.all<ExitNode>()[0].first == start);
    }
}
