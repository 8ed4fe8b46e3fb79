// Slow is not dead: who makes progress lives, who hangs is found in bounded time, whatever else is going on.
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {
// Runtimes take events and never answer.
void silence_runtimes(Rig& rig) {
    rig.hook = [](const Action& action) { return std::holds_alternative<Deliver>(action); };
}
}  // namespace

TEST_CASE("a_runtime_without_answer_and_without_progress_is_dumped_and_restarted") {
    Rig rig;
    silence_runtimes(rig);
    const Handle runtime = rig.serving(Kind::Runtime);
    const Time asked = rig.now;
    const auto id = rig.ask("a", rig.now + 60 * kSecond);
    // wall limit 5 s + grace 2 s, then a second look one grace later.
    rig.run_to(asked + 9 * kSecond - 1);
    CHECK(rig.all<Kill>().empty());
    CHECK(rig.all<AskProgress>().size() == 1);
    rig.hook = nullptr;
    rig.run_to(asked + 9 * kSecond);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.to == runtime);
    CHECK(rig.all<Kill>()[0].second.dump);
    rig.run_for(kSecond);
    REQUIRE(rig.reply(id) != nullptr);  // run again by the successor
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    CHECK(rig.all<Deliver>().back().second.attempt == 2);
}

TEST_CASE("a_runtime_that_makes_progress_is_slow_and_stays") {
    Rig rig;
    rig.hook = [&](const Action& action) {
        if (std::holds_alternative<AskProgress>(action)) ++rig.progress;
        return std::holds_alternative<Deliver>(action);
    };
    const auto id = rig.ask("a", rig.now + 60 * kSecond);
    rig.run_for(60 * kSecond);
    CHECK(rig.all<Kill>().empty());
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Deadline);
}

TEST_CASE("a_runtime_that_only_claims_progress_is_ended_at_the_tenth_limit") {
    Rig rig;
    rig.hook = [&](const Action& action) {
        if (std::holds_alternative<AskProgress>(action)) ++rig.progress;
        return std::holds_alternative<Deliver>(action);
    };
    const Handle runtime = rig.serving(Kind::Runtime);
    rig.ask("a", rig.now + 60 * kSecond);
    rig.run_for(69 * kSecond);
    CHECK(rig.all<Kill>().empty());
    rig.run_for(4 * kSecond);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.to == runtime);
    CHECK(rig.all<Kill>()[0].second.dump);
}

TEST_CASE("a_runtime_that_never_answers_one_request_is_found_although_it_answers_others") {
    Config config = small_config();
    config.limits.runtime_inflight = 8;
    Rig rig(config);
    bool lose = true;
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        return deliver != nullptr && deliver->event == Bytes{66} && std::exchange(lose, false);
    };
    const Handle first = rig.serving(Kind::Runtime);
    const auto lost = rig.ask("a", rig.now + 3600 * kSecond, {66});
    // The limit of one is 7 s, and eight may stand before it.
    for (int second = 0; second < 50; ++second) {
        rig.ask("b", rig.now + kSecond);
        rig.run_for(kSecond);
    }
    CHECK(rig.serving(Kind::Runtime) == first);
    CHECK(rig.reply(lost) == nullptr);
    for (int second = 0; second < 20; ++second) {
        rig.ask("b", rig.now + kSecond);
        rig.run_for(kSecond);
    }
    CHECK(rig.serving(Kind::Runtime) != first);
    REQUIRE(rig.reply(lost) != nullptr);
    CHECK(rig.reply(lost)->reason == ReplyReason::Ok);
}

TEST_CASE("a_storage_that_hangs_is_found_although_it_answers_what_nobody_asked") {
    Rig rig;
    const Handle storage = rig.serving(Kind::Storage);
    rig.hook = [](const Action& action) { return std::holds_alternative<StoreRequest>(action); };
    rig.ask("a", rig.now + 100 * kSecond);
    StoreAnswer lie;
    lie.from = storage;
    lie.op = 123456;
    lie.outcome = Outcome::Applied;
    rig.feed(lie);
    rig.run_for(30 * kSecond);
    REQUIRE_FALSE(rig.all<Kill>().empty());
    CHECK(rig.all<Kill>()[0].second.to == storage);
}

TEST_CASE("a_hanging_runtime_is_found_also_when_its_successor_is_in_charge_already") {
    Rig rig;
    silence_runtimes(rig);
    const Handle old = rig.serving(Kind::Runtime);
    const auto id = rig.ask("a", rig.now + 100 * kSecond);
    Build build = rig.core.config().slots[2].build;
    build.binary_hash = "another";
    rig.feed(SwapCommand{1, "runtime", build});
    REQUIRE(rig.serving(Kind::Runtime) != old);
    rig.hook = nullptr;
    rig.run_for(10 * kSecond);
    REQUIRE_FALSE(rig.all<Kill>().empty());
    CHECK(rig.all<Kill>()[0].second.to == old);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
}

TEST_CASE("who_is_told_to_stop_and_stays_is_killed_after_2_s") {
    Rig rig;
    rig.hook = [](const Action& action) { return std::holds_alternative<SendStop>(action); };
    Build build = rig.core.config().slots[3].build;
    build.binary_hash = "another";
    const Handle old = rig.serving(Kind::Placement);
    rig.feed(SwapCommand{1, "placement", build});
    REQUIRE(rig.all<SendStop>().size() == 1);
    const Time told = rig.all<SendStop>()[0].first;
    rig.run_to(told + 2 * kSecond - 1);
    CHECK(rig.all<Kill>().empty());
    rig.run_to(told + 2 * kSecond);
    REQUIRE(rig.all<Kill>().size() == 1);
    CHECK(rig.all<Kill>()[0].second.to == old);
}

TEST_CASE("a_runtime_that_answers_with_another_requests_answer_is_ended") {
    for (const bool wrong_kind : {true, false}) {
        Rig rig;
        rig.hook = [&](const Action& action) {
            const auto* deliver = std::get_if<Deliver>(&action);
            if (deliver == nullptr || deliver->attempt > 1) return false;
            if (wrong_kind) {
                rig.feed(DroppedIn{deliver->to, deliver->op});
            } else {
                DeliveredIn lie = Rig::delivered(*deliver);
                ++lie.activation;
                rig.feed(lie);
            }
            return true;
        };
        const auto id = rig.ask("a", rig.now + 10 * kSecond);
        CHECK(rig.all<Kill>().size() == 1);
        rig.run_for(kSecond);
        REQUIRE(rig.reply(id) != nullptr);
        CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    }
}

TEST_CASE("a_gateway_that_lets_nobody_in_is_found_without_any_request_and_a_busy_one_is_not") {
    for (const bool hangs : {true, false}) {
        CAPTURE(hangs);
        Rig rig;
        rig.run_for(kSecond);
        const Handle gateway = rig.serving(Kind::Gateway);
        bool knocking = true;
        rig.hook = [&](const Action& action) {
            const auto* ask = std::get_if<AskProgress>(&action);
            if (ask == nullptr) return false;
            rig.feed(ProgressIs{ask->to, rig.progress += hangs ? 0U : 1U, false, knocking});
            return true;
        };
        CHECK(rig.core.supervision().knock_wanted());
        const Time knocked = rig.now;
        rig.feed(Knocked{});
        CHECK_FALSE(rig.core.supervision().knock_wanted());
        rig.run_to(knocked + 4 * kSecond - 1);
        CHECK(rig.all<Kill>().empty());
        rig.run_to(knocked + 20 * kSecond);
        CHECK(rig.all<Kill>().size() == (hangs ? 1U : 0U));
        CHECK((rig.serving(Kind::Gateway) == gateway) == !hangs);
        knocking = false;
        rig.run_for(3 * kSecond);
        CHECK(rig.core.supervision().knock_wanted());
    }
}

TEST_CASE("a_gateway_that_leaves_its_answers_unread_is_found_and_a_slow_or_idle_one_is_not") {
    enum class Case { Hangs, Slow, Idle };
    for (const Case one : {Case::Hangs, Case::Slow, Case::Idle}) {
        CAPTURE(static_cast<int>(one));
        Rig rig;
        rig.run_for(kSecond);
        const Handle gateway = rig.serving(Kind::Gateway);
        rig.unread = one != Case::Idle;
        rig.hook = [&](const Action& action) {
            if (one == Case::Slow && std::holds_alternative<AskProgress>(action)) ++rig.progress;
            return false;
        };
        const Time told = rig.now;
        rig.ask("a", rig.now + 20 * kSecond);
        rig.run_to(told + 4 * kSecond - 1);
        CHECK(rig.all<Kill>().empty());
        CHECK(rig.all<AskProgress>().size() == 1);
        rig.run_to(told + 60 * kSecond);
        CHECK(rig.all<Kill>().size() == (one == Case::Hangs ? 1U : 0U));
        CHECK((rig.serving(Kind::Gateway) == gateway) == (one != Case::Hangs));
        // One look for a burst of answers that were read, then silence.
        if (one == Case::Idle) CHECK(rig.all<AskProgress>().size() == 1);
    }
}
