// Durable messages from one actor to another: applied once, given up when they cannot be, bounded; their marks;
// and what an actor hears first after a restart.
#include <doctest/doctest.h>

#include <algorithm>

#include "agent/core/keys.hpp"
#include "agent/core/test_actors.hpp"

using namespace hf;
using namespace hf::core;
using testing::Actors;
using testing::is_alarm_key;
using testing::is_entry_of;
using testing::Rig;
using testing::small_config;

TEST_CASE("a_message_leaves_when_it_is_stored_and_is_applied_once_though_its_receiver_dies") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        for (std::uint8_t i = 0; i < 3; ++i) plain.sends.push_back({"counter/b", "add", Bytes{i}});
        return plain;
    });
    std::vector<Bytes> applied;
    bool die = true;
    actors.on("b", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        if (std::exchange(die, false)) {
            rig.die(deliver.to, false);
            return std::nullopt;
        }
        applied.push_back(deliver.event);
        return plain;
    });
    const auto sender = rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(5 * kSecond);
    CHECK(rig.reply(sender)->reason == ReplyReason::Ok);
    REQUIRE(applied.size() == 3);
    CHECK(applied[0].back() == 0);
    CHECK(applied[1].back() == 1);
    CHECK(applied[2].back() == 2);
    CHECK(rig.core.stats().messages_sent == 3);
    CHECK(rig.core.stats().messages_applied == 3);
    CHECK(rig.core.units().quiet());
    // The announcement of its outbox is gone again.
    std::size_t put = 0;
    std::size_t erased = 0;
    for (const StoreRequest& request : actors.requests) {
        put += request.verb == StoreVerb::Put && is_alarm_key(request.key) ? 1 : 0;
        erased += request.verb == StoreVerb::Delete && is_alarm_key(request.key) ? 1 : 0;
    }
    CHECK(put == 1);
    CHECK(erased == 1);
}

TEST_CASE("a_message_whose_handler_fails_holds_back_later_ones_and_is_given_up_at_last") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        plain.sends.push_back({"counter/b", "bad", {}});
        plain.sends.push_back({"counter/b", "good", {}});
        plain.sends.push_back({"nowhere/b", "lost", {}});
        return plain;
    });
    std::vector<std::pair<Time, bool>> tries;  // when, bad
    actors.on("b", [&](const Deliver& deliver, DeliveredIn plain) {
        const std::string text(deliver.event.begin(), deliver.event.end());
        const bool bad = text.find("bad") != std::string::npos;
        tries.emplace_back(rig.now, bad);
        if (bad) plain.status = DeliverStatus::Failed;
        return plain;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(3 * 3600 * kSecond);
    REQUIRE(tries.size() == 21);
    CHECK(tries[1].first - tries[0].first == 2 * kSecond);
    CHECK(std::count_if(tries.begin(), tries.end(), [](const auto& t) { return t.second; }) == 20);
    CHECK_FALSE(tries.back().second);
    CHECK(rig.core.stats().messages_dead == 2);
    CHECK(rig.core.units().quiet());
}

TEST_CASE(
    "a_message_that_ends_each_runtime_costs_three_each_5_min_and_is_given_up_the_fourth_time") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) {
        if (deliver.kind == EventKind::Alarm) return plain;
        plain.sends.push_back({"counter/b", "bad", {}});
        plain.sends.push_back({"counter/b", "good", {}});
        return plain;
    });
    std::vector<Time> deaths;
    bool good = false;
    actors.on("b", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        const std::string text(deliver.event.begin(), deliver.event.end());
        if (text.find("bad") == std::string::npos) {
            good = true;
            return plain;
        }
        deaths.push_back(rig.now);
        rig.die(deliver.to, true, deliver.op);
        return std::nullopt;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(2 * 3600 * kSecond);
    CHECK_FALSE(rig.core.supervision().failed(Kind::Runtime));
    REQUIRE(deaths.size() == 12);
    CHECK(deaths[3] - deaths[2] >= 300 * kSecond);
    CHECK(rig.core.stats().messages_dead == 1);
    CHECK(rig.core.stats().poisoned == 4);
    CHECK(good);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("an_alarm_that_ends_each_runtime_costs_three_each_5_min") {
    Rig rig;
    Actors actors(rig);
    int deaths = 0;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        if (deliver.kind == EventKind::Http) {
            plain.alarm = AlarmWish{rig.now / kMs + 1000, false};
            return plain;
        }
        ++deaths;
        rig.die(deliver.to, true, deliver.op);
        return std::nullopt;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(3500 * kSecond);
    CHECK(deaths == 36);
    CHECK_FALSE(rig.core.supervision().failed(Kind::Runtime));
}

TEST_CASE("a_message_to_a_class_that_is_not_deployed_waits_for_it_an_hour") {
    Rig rig;
    Actors actors(rig);
    std::string target = "second/b";
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        plain.sends.push_back({target, "add", {}});
        return plain;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(90 * kSecond);
    CHECK(actors.seen("b").empty());
    CHECK(rig.core.stats().messages_dead == 0);
    std::vector<ClassSpec> classes = rig.core.config().classes;
    classes.push_back({"second", kSecond, 1024});
    rig.feed(ConfigChanged{rig.core.config().limits, classes});
    CHECK(actors.seen("b").size() == 1);
    CHECK(rig.core.stats().messages_applied == 1);
    target = "third/b";
    rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(3590 * kSecond);
    CHECK(rig.core.stats().messages_dead == 0);
    rig.run_for(20 * kSecond);
    CHECK(rig.core.stats().messages_dead == 1);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("what_an_actor_has_sent_and_nobody_has_taken_is_bounded_by_bytes_too") {
    Config config = small_config();
    config.limits.outbox_bytes = 1000;
    Rig rig(config);
    Actors actors(rig);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        plain.sends.push_back({"second/b", "add", Bytes(400, 1)});
        return plain;
    });
    std::vector<ReplyReason> reasons;
    for (int i = 0; i < 3; ++i) {
        const auto id = rig.ask("a", rig.now + 10 * kSecond);
        REQUIRE(rig.reply(id) != nullptr);
        reasons.push_back(rig.reply(id)->reason);
        if (i == 2) CHECK(rig.reply(id)->text.find("limit outbox_bytes") != std::string::npos);
    }
    CHECK(reasons == std::vector{ReplyReason::Ok, ReplyReason::Ok, ReplyReason::ActorLimit});
    CHECK(rig.core.stats().messages_sent == 2);
}

TEST_CASE("marks_of_messages_that_are_done_do_not_come_back_with_a_load") {
    Config config = small_config();
    config.classes.front().evict_after = kSecond;
    Rig rig(config);
    Actors actors(rig);
    constexpr std::size_t kSenders = 40;
    for (std::size_t i = 0; i < kSenders; ++i)
        actors.on("s" + std::to_string(i), [](const Deliver&, DeliveredIn plain) {
            plain.sends.push_back({"counter/r", "add", {}});
            return plain;
        });
    const auto marks = [&] {
        const Unit* unit = rig.core.units().find("counter/r");
        REQUIRE(unit != nullptr);
        return unit->stored.applied.size();
    };
    for (std::size_t i = 0; i < kSenders; ++i)
        rig.ask("s" + std::to_string(i), rig.now + 10 * kSecond);
    CHECK(rig.core.stats().messages_applied == kSenders);
    CHECK(marks() == 0);
    rig.run_for(10 * kSecond);
    REQUIRE(rig.core.units().find("counter/r")->memory == Memory::Cold);
    rig.ask("r", rig.now + 10 * kSecond);
    CHECK(rig.core.stats().loads > kSenders);
    CHECK(marks() == 0);
    // What the log says by itself, to whoever reads it next.
    Fold fold;
    for (const StoreRequest& request : actors.requests) {
        if (!is_entry_of(request, "r")) continue;
        LogEntry entry = rig.codec.decode_entry(request.body).value();
        fold.add(entry);
    }
    CHECK(fold.applied.empty());
}

TEST_CASE("a_mark_that_has_moved_on_is_not_settled_with_the_one_before") {
    Fold fold;
    LogEntry first;
    first.applied = {{"s", 5}};
    fold.add(first);
    LogEntry second;
    second.applied = {{"s", 6}};
    second.settled = {{"s", 5}};
    fold.add(second);
    CHECK(fold.applied.at("s") == 6);
    LogEntry third;
    third.settled = {{"s", 6}, {"other", 1}};
    fold.add(third);
    CHECK(fold.applied.empty());
}

TEST_CASE("an_actor_hears_of_its_restart_before_anything_else_whatever_became_of_its_first_load") {
    const Config config = small_config();
    const std::string unit = actor_unit(config.tenant, "counter", "a").value();
    const std::string stale = key::alarm(config.app, unit, 5, 77);
    Rig rig(config, {}, [&](Rig& store) {
        HoldRecord hold;
        hold.epoch = 3;
        hold.state = HoldState::Held;
        hold.owner = "n1";
        store.put(key::hold(config.app, unit), store.codec.encode(hold));
        store.put(stale, {});
    });
    // A hint that names nothing is no reason to bring it into memory.
    rig.run_for(kSecond);
    CHECK(rig.core.units().alarms().visits() == 0);
    CHECK(rig.all<Activate>().empty());
    std::vector<Deliver> delivers;
    int broken = 2;
    rig.hook = [&](const Action& action) {
        if (const auto* activate = std::get_if<Activate>(&action)) {
            if (broken-- <= 0) return false;
            rig.feed(ActivatedIn{activate->to,
                                 activate->op,
                                 activate->activation,
                                 broken == 1 ? ActivateStatus::Full : ActivateStatus::Failed,
                                 "not now"});
            return true;
        }
        if (const auto* deliver = std::get_if<Deliver>(&action)) delivers.push_back(*deliver);
        return false;
    };
    for (int i = 0; i < 3; ++i) rig.ask("a", rig.now + 10 * kSecond);
    REQUIRE(delivers.size() == 2);
    CHECK(delivers[0].kind == EventKind::Restored);
    CHECK(delivers[1].kind == EventKind::Http);
    CHECK(rig.core.units().quiet());
}
