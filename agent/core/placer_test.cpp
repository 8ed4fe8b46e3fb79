// A placement policy that is late, silent or wrong costs nobody an answer.
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

TEST_CASE("a_late_answer_uses_the_default_for_that_call_only") {
    Rig rig;
    std::vector<Place> asked;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place != nullptr) asked.push_back(*place);
        return place != nullptr;
    };
    const Time start = rig.now;
    const auto first = rig.ask("a", start + 10 * kSecond);
    REQUIRE(asked.size() == 1);
    rig.run_to(start + 50 * kMs - 1);
    CHECK(rig.reply(first) == nullptr);
    rig.run_to(start + 50 * kMs);
    REQUIRE(rig.reply(first) != nullptr);
    CHECK(rig.reply(first)->reason == ReplyReason::Ok);
    CHECK(rig.core.stats().place_late == 1);

    // It still owes an answer: nobody waits for it meanwhile.
    const auto second = rig.ask("b", start + 10 * kSecond);
    CHECK(asked.size() == 1);
    CHECK(rig.reply(second) != nullptr);

    rig.run_to(start + 900 * kMs);
    rig.feed(PlacedIn{asked[0].to, asked[0].op, false, asked[0].candidates[0].id, ""});
    const auto third = rig.ask("c", start + 10 * kSecond);
    REQUIRE(asked.size() == 2);
    rig.feed(PlacedIn{asked[1].to, asked[1].op, false, asked[1].candidates[0].id, ""});
    CHECK(rig.reply(third) != nullptr);
    rig.run_for(10 * kSecond);
    CHECK(rig.all<Kill>().empty());
    CHECK(rig.core.stats().placed_by_policy == 1);
    CHECK(rig.core.stats().placed_by_default == 2);
}

TEST_CASE("an_answer_that_never_comes_is_a_stall_after_1_s") {
    Rig rig;
    rig.hook = [](const Action& action) { return std::holds_alternative<Place>(action); };
    const Time start = rig.now;
    rig.ask("a", start + 10 * kSecond);
    rig.run_to(start + kSecond - 1);
    CHECK(rig.all<Kill>().empty());
    rig.run_to(start + kSecond);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.dump);
    CHECK(rig.core.supervision().bad_builds().size() == 1);
}

TEST_CASE("a_pause_of_the_node_itself_is_no_stall_of_the_policy") {
    Rig rig;
    std::vector<Place> asked;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place != nullptr) asked.push_back(*place);
        return place != nullptr;
    };
    const auto id = rig.ask("a", rig.now + 60 * kSecond);
    REQUIRE(asked.size() == 1);
    rig.now += 5 * kSecond;  // neither the node nor its policy ran
    const Time woken = rig.now;
    rig.feed(Tick{});
    CHECK(rig.all<Kill>().empty());
    REQUIRE(rig.reply(id) != nullptr);  // by the default, at once
    SUBCASE("it answers now and stays") {
        rig.feed(PlacedIn{asked[0].to, asked[0].op, false, asked[0].candidates[0].id, ""});
        rig.run_for(10 * kSecond);
        CHECK(rig.all<Kill>().empty());
    }
    SUBCASE("it does not answer: it gets one limit more") {
        rig.run_to(woken + kSecond - 1);
        CHECK(rig.all<Kill>().empty());
        rig.run_to(woken + kSecond);
        CHECK(rig.all<Kill>().size() == 1);
    }
}

TEST_CASE("a_lie_ends_the_policy_and_the_default_answers_the_same_request") {
    for (const bool nobody : {false, true}) {
        Rig rig;
        rig.hook = [&](const Action& action) {
            const auto* place = std::get_if<Place>(&action);
            if (place == nullptr) return false;
            rig.feed(PlacedIn{place->to, place->op, nobody, 4711, ""});
            return true;
        };
        const auto id = rig.ask("a", rig.now + kSecond);
        REQUIRE(rig.reply(id) != nullptr);
        CHECK(rig.reply(id)->reason == ReplyReason::Ok);
        CHECK(rig.all<Kill>().size() == 1);
        CHECK_FALSE(rig.serving(Kind::Placement).valid());
    }
}

TEST_CASE("nobody_with_a_reason_is_an_answer_and_reaches_the_client") {
    Rig rig;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr) return false;
        rig.feed(PlacedIn{place->to, place->op, true, 0, "all are on holiday"});
        return true;
    };
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Unavailable);
    CHECK(rig.reply(id)->text.find("all are on holiday") != std::string::npos);
    CHECK(rig.all<Kill>().empty());
}

TEST_CASE("a_policy_that_dies_with_the_question_leaves_it_to_the_default") {
    Rig rig;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr) return false;
        rig.die(place->to, false);
        return true;
    };
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
}

TEST_CASE("an_answer_of_somebody_who_was_not_asked_is_dropped") {
    Rig rig;
    OpId op = 0;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place != nullptr) op = place->op;
        return place != nullptr;
    };
    const auto id = rig.ask("a", rig.now + kSecond);
    rig.feed(PlacedIn{rig.serving(Kind::Drain), op, false, 4711, ""});
    CHECK(rig.all<Kill>().empty());
    CHECK(rig.reply(id) == nullptr);
    CHECK(rig.core.stats().stale_messages == 1);
}
