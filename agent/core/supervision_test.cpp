// Who starts again, when, and who does not.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

TEST_CASE("short_lives_back_off_from_100_ms_to_10_s_and_the_tenth_is_the_last") {
    Rig rig;
    Time expected = 100 * kMs;
    for (int death = 1; death <= 10; ++death) {
        CAPTURE(death);
        const std::size_t before = rig.spawns("runtime").size();
        const Time died = rig.now;
        rig.die(rig.serving(Kind::Runtime), false);
        if (death == 10) break;
        rig.run_to(died + expected - 1);
        CHECK(rig.spawns("runtime").size() == before);
        rig.run_to(died + expected + expected / 4);
        REQUIRE(rig.spawns("runtime").size() == before + 1);
        expected = std::min(2 * expected, 10 * kSecond);
    }
    const std::size_t spawned = rig.spawns("runtime").size();
    rig.run_for(600 * kSecond);
    CHECK(rig.spawns("runtime").size() == spawned);
    CHECK(rig.core.supervision().failed(Kind::Runtime));
    CHECK(rig.core.not_ready_because() == "no runtime instance serves");

    rig.feed(ResetCommand{7, "runtime"});
    rig.run_for(0);
    CHECK(rig.spawns("runtime").size() == spawned + 1);
    CHECK(rig.core.ready());
    REQUIRE(rig.all<CommandDone>().size() == 1);
    CHECK(rig.all<CommandDone>()[0].second.ok);
}

TEST_CASE("ten_short_lives_spread_over_more_than_120_s_fail_nobody") {
    Rig rig;
    for (int death = 0; death < 30; ++death) {
        rig.die(rig.serving(Kind::Runtime), false);
        rig.run_for(14 * kSecond);
        if (!rig.serving(Kind::Runtime).valid()) rig.run_for(0);
        REQUIRE(rig.serving(Kind::Runtime).valid());
        // Lived long, then a short life again: kill it right after the next start.
        rig.die(rig.serving(Kind::Runtime), false);
        rig.run_for(0);
        REQUIRE(rig.serving(Kind::Runtime).valid());
    }
    CHECK_FALSE(rig.core.supervision().failed(Kind::Runtime));
}

TEST_CASE("after_5_s_of_health_a_death_restarts_at_once") {
    Rig rig;
    rig.run_for(5 * kSecond);
    const Time died = rig.now;
    rig.die(rig.serving(Kind::Runtime), true);
    rig.run_for(0);
    CHECK(rig.spawns("runtime").back() == died);
    CHECK(rig.serving(Kind::Runtime).valid());
}

TEST_CASE("storage_never_waits_longer_than_a_second_and_a_quarter") {
    Rig rig;
    for (int death = 1; death <= 9; ++death) {
        rig.die(rig.serving(Kind::Storage), false);
        rig.run_for(1250 * kMs);
        REQUIRE(rig.serving(Kind::Storage).valid());
    }
}

TEST_CASE("with_intensity_off_every_death_restarts_at_once_for_ever") {
    Config config = small_config();
    config.restart_intensity = false;
    Rig rig(config);
    for (int death = 1; death <= 50; ++death) {
        rig.die(rig.serving(Kind::Runtime), true);
        rig.run_for(0);
        REQUIRE(rig.serving(Kind::Runtime).valid());
    }
}

TEST_CASE("a_build_remembered_as_bad_is_not_started_until_it_is_reset") {
    const Config config = small_config();
    const std::string identity = config.slots[3].build.identity();
    Rig rig(config, {{identity, BadBuild{"placement", "placement/first", "chose nobody"}}});
    CHECK(rig.spawns("placement").empty());
    CHECK(rig.core.ready());  // the built-in policy decides
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    CHECK(rig.core.stats().placed_by_default == 1);

    rig.feed(ResetCommand{1, "placement"});
    rig.run_for(0);
    CHECK(rig.spawns("placement").size() == 1);
    REQUIRE(rig.all<RememberBadBuilds>().size() == 1);
    CHECK(rig.all<RememberBadBuilds>()[0].second.builds.empty());
}

TEST_CASE("a_configured_policy_that_refuses_its_settings_is_failed_at_once_and_not_to_blame") {
    bool refuse = true;
    Rig rig(small_config(), {}, [&](Rig& self) {
        self.hook = [&](const Action& action) {
            const auto* configure = std::get_if<Configure>(&action);
            if (configure == nullptr || !refuse || configure->to != self.last("placement"))
                return false;
            self.feed(ReadyIn{configure->to, false, "no setting \"fil\""});
            return true;
        };
    });
    rig.run_for(60 * kSecond);
    CHECK(rig.spawns("placement").size() == 1);
    CHECK(rig.core.supervision().failed(Kind::Placement));
    const std::string& reason = rig.core.supervision().slots()[3].reason;
    CHECK(reason.find("placement/first refused its configuration: no setting \"fil\"") == 0);
    CHECK(rig.core.supervision().bad_builds().empty());
    CHECK(rig.core.ready());
    refuse = false;
    rig.feed(ResetCommand{1, "placement"});
    rig.run_for(0);
    CHECK(rig.serving(Kind::Placement).valid());
}

TEST_CASE("the_tenth_short_life_of_a_configured_policy_is_remembered_when_it_was_its_own_fault") {
    for (const bool own_fault : {true, false}) {
        CAPTURE(own_fault);
        Rig rig;
        for (int death = 1; death <= 10; ++death) {
            REQUIRE(rig.serving(Kind::Placement).valid());
            rig.die(rig.serving(Kind::Placement), own_fault);
            const std::size_t before = rig.spawns("placement").size();
            // Comes back within its back-off and dies young again.
            while (death < 10 && rig.spawns("placement").size() == before)
                rig.run_to(rig.core.supervision().next_deadline());
        }
        CHECK(rig.core.supervision().failed(Kind::Placement));
        CHECK(rig.core.supervision().bad_builds().size() == (own_fault ? 1U : 0U));
    }
}

TEST_CASE("who_is_not_ready_in_10_s_is_killed_then_and_not_before") {
    Config config = small_config();
    Rig rig(config);
    rig.hook = [](const Action& action) {
        const auto* configure = std::get_if<Configure>(&action);
        return configure != nullptr;  // never ready
    };
    rig.run_for(5 * kSecond);
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(0);
    const Time spawned = rig.spawns("runtime").back();
    rig.run_to(spawned + 10 * kSecond - 1);
    CHECK(rig.all<Kill>().empty());
    rig.run_to(spawned + 10 * kSecond);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.dump);
}

TEST_CASE("an_instance_that_speaks_no_common_schema_minor_is_ended_with_both_ranges_named") {
    Rig rig;
    rig.run_for(5 * kSecond);
    rig.hook = [&](const Action& action) {
        const auto* spawn = std::get_if<Spawn>(&action);
        if (spawn == nullptr) return false;
        rig.feed(Greeted{spawn->handle, Kind::Runtime, "x", "1", {}, 3, 7});
        return true;
    };
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(0);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.to == rig.last("runtime"));
    CHECK(rig.all<Kill>()[0].second.reason == "speaks schema minors 3 to 7, this node 0 to 0");
}

TEST_CASE("an_instance_that_greets_as_another_kind_or_twice_is_ended") {
    Rig rig;
    rig.run_for(5 * kSecond);
    rig.hook = [&](const Action& action) {
        const auto* spawn = std::get_if<Spawn>(&action);
        if (spawn == nullptr) return false;
        rig.feed(Greeted{spawn->handle, Kind::Gateway, "x", "1", {}});
        return true;
    };
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(0);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.to == rig.last("runtime"));
    rig.hook = nullptr;
    rig.feed(Greeted{rig.serving(Kind::Storage), Kind::Storage, "x", "1", {}});
    CHECK(rig.all<Kill>().size() == 2);
}
