// How units leave memory: idle, for room, with their runtime, with the node; and what those that want a Stop hear.
#include <doctest/doctest.h>

#include <algorithm>

#include "agent/core/guest_events.hpp"
#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {

Config quick_config(Time evict_after = 10 * kSecond) {
    Config config = small_config();
    config.classes[0].evict_after = evict_after;
    return config;
}

std::vector<Deliver> stops(const Rig& rig) {
    std::vector<Deliver> out;
    for (const auto& [at, deliver] : rig.all<Deliver>())
        if (deliver.kind == EventKind::Stop) out.push_back(deliver);
    return out;
}

const Unit* unit_named(const Rig& rig, const std::string& name) {
    for (const auto& [id, unit] : rig.core.units().all())
        if (unit->name == name) return unit.get();
    return nullptr;
}

Memory memory_of(const Rig& rig, const std::string& name) {
    const Unit* unit = unit_named(rig, name);
    REQUIRE(unit != nullptr);
    return unit->memory;
}

// Keeps each Stop from its handler until the test answers it.
std::vector<Deliver>& hold_stops(Rig& rig, std::vector<Deliver>& held) {
    rig.hook = [&held](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || deliver->kind != EventKind::Stop) return false;
        held.push_back(*deliver);
        return true;
    };
    return held;
}

ReplyReason asked(Rig& rig, const std::string& name) {
    const auto id = rig.ask(name, rig.now + 10 * kSecond);
    const ReplyOut* reply = rig.reply(id);
    REQUIRE(reply != nullptr);
    return reply->reason;
}

}  // namespace

TEST_CASE("an_idle_unit_leaves_memory_keeps_its_hold_and_wakes_nobody_any_more") {
    Rig rig(quick_config());
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    rig.run_for(5 * kSecond);
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    const Time last = rig.now;
    rig.run_for(10 * kSecond - 1);
    CHECK(memory_of(rig, "a") == Memory::Resident);
    rig.run_for(1);
    CHECK(memory_of(rig, "a") == Memory::Cold);
    CHECK(unit_named(rig, "a")->hold == Hold::Serving);
    CHECK(rig.all<Drop>().size() == 1);
    CHECK(stops(rig).empty());
    CHECK(rig.core.units().resident_on(rig.serving(Kind::Runtime)) == 0);
    CHECK(rig.core.next_deadline() == last + small_config().limits.hold_idle);
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    CHECK(rig.all<Activate>().size() == 2);
    CHECK(rig.core.stats().acquires == 1);
    CHECK(rig.core.stats().evicted == 1);
}

TEST_CASE("a_stop_is_heard_and_stored_before_its_unit_leaves_and_nothing_runs_after_it") {
    Rig rig(quick_config());
    rig.wants_stop = {"a"};
    std::vector<Deliver> held;
    hold_stops(rig, held);
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    rig.run_for(10 * kSecond);
    REQUIRE(held.size() == 1);
    CHECK(held[0].deadline == rig.now + 5 * kSecond);
    CHECK(held[0].event == stop_event(StopReason::Evict, held[0].deadline / kMs));
    const auto late = rig.ask("a", rig.now + 30 * kSecond);  // it waits for the next activation
    CHECK(rig.all<Drop>().empty());

    std::vector<StoreRequest> open;
    rig.hook = [&](const Action& action) {
        const auto* put = std::get_if<StoreRequest>(&action);
        if (put == nullptr || put->verb != StoreVerb::Put || !open.empty()) return false;
        open.push_back(*put);
        return true;
    };
    rig.feed(Rig::delivered(held[0]));
    REQUIRE(open.size() == 1);
    rig.run_for(20 * kSecond);  // the store takes its time, which is not the handler's
    CHECK(rig.all<Drop>().empty());
    CHECK(rig.all<Deliver>().size() == 2);
    CHECK(rig.reply(late) == nullptr);
    rig.put(open[0].key, open[0].body);
    StoreAnswer stored;
    stored.from = open[0].to;
    stored.op = open[0].op;
    stored.outcome = Outcome::Applied;
    rig.feed(stored);
    CHECK(rig.all<Drop>().size() == 1);
    CHECK(rig.core.stats().stops == 1);
    CHECK(rig.core.stats().stops_failed == 0);
    CHECK(rig.all<Activate>().size() == 2);
}

TEST_CASE("an_event_that_comes_before_the_stop_keeps_the_unit_in_memory") {
    Config config = quick_config();
    config.limits.runtime_inflight = 1;
    config.classes.push_back({"slow", 60 * kSecond, 1024});
    Rig rig(config);
    rig.wants_stop = {"a"};
    std::optional<Deliver> busy;
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    rig.run_for(9 * kSecond);
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || busy) return false;
        busy = *deliver;  // the one place in flight is taken
        return true;
    };
    rig.ask("b", rig.now + 30 * kSecond);
    REQUIRE(busy);
    rig.run_for(kSecond);
    CHECK(stops(rig).empty());
    const auto kept = rig.ask("a", rig.now + 30 * kSecond);
    rig.feed(Rig::delivered(*busy));
    REQUIRE(rig.reply(kept) != nullptr);
    CHECK(rig.reply(kept)->reason == ReplyReason::Ok);
    CHECK(stops(rig).empty());
    CHECK(memory_of(rig, "a") == Memory::Resident);
    rig.run_for(10 * kSecond);
    CHECK(stops(rig).size() == 1);
    CHECK(memory_of(rig, "a") == Memory::Cold);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_stop_that_fails_or_is_late_or_dies_leaves_all_the_same_and_nothing_of_it_is_kept") {
    Rig rig(quick_config());
    rig.wants_stop = {"a"};
    std::vector<Deliver> held;
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    hold_stops(rig, held);
    const auto commits = rig.core.stats().commits;
    rig.run_for(10 * kSecond);
    REQUIRE(held.size() == 1);
    SUBCASE("fails") {
        DeliveredIn answer = Rig::delivered(held[0]);
        answer.status = DeliverStatus::Trapped;
        rig.feed(answer);
        CHECK(rig.all<Drop>().size() == 1);
    }
    SUBCASE("is late") {
        rig.run_for(5 * kSecond - 1);
        CHECK(rig.all<Drop>().empty());
        rig.run_for(1);
        CHECK(rig.all<Drop>().size() == 1);
        rig.feed(Rig::delivered(held[0]));
        CHECK(rig.core.stats().deadline == 0);  // no client heard of it
    }
    SUBCASE("dies with its runtime") {
        rig.die(held[0].to, true, held[0].op);
        rig.run_for(kSecond);
        CHECK(held.size() == 1);  // no second one: that memory is gone
    }
    CHECK(memory_of(rig, "a") == Memory::Cold);
    CHECK(rig.core.stats().commits == commits);
    CHECK(rig.core.stats().stops == 0);
    CHECK(rig.core.stats().stops_failed == 1);
    CHECK(rig.core.units().quiet());
    rig.hook = nullptr;
    CHECK(asked(rig, "a") == ReplyReason::Ok);
}

TEST_CASE("who_kills_three_runtimes_in_its_stop_is_asked_no_more") {
    Rig rig(quick_config());
    rig.wants_stop = {"a"};
    std::vector<Deliver> held;
    hold_stops(rig, held);
    for (std::size_t round = 1; round <= 4; ++round) {
        CHECK(asked(rig, "a") == ReplyReason::Ok);
        rig.run_for(10 * kSecond);
        REQUIRE(held.size() == std::min<std::size_t>(round, 3));
        if (round < 4) rig.die(held.back().to, true, held.back().op);
        rig.run_for(20 * kSecond);
        CHECK(memory_of(rig, "a") == Memory::Cold);
    }
    CHECK(rig.core.stats().poisoned == 0);
}

TEST_CASE("an_actor_that_asks_to_leave_hears_its_stop_too") {
    Rig rig;
    rig.wants_stop = {"a"};
    bool asks = true;
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || deliver->kind == EventKind::Stop || !asks) return false;
        DeliveredIn answer = Rig::delivered(*deliver);
        answer.passivate = true;
        rig.feed(answer);
        return true;
    };
    for (const char* name : {"a", "b"}) CHECK(asked(rig, name) == ReplyReason::Ok);
    REQUIRE(stops(rig).size() == 1);
    CHECK(stops(rig)[0].event[0] == 3);
    CHECK(memory_of(rig, "a") == Memory::Cold);
    CHECK(memory_of(rig, "b") == Memory::Cold);
    CHECK(rig.all<Drop>().size() == 2);
}

TEST_CASE("a_runtime_that_retires_is_left_after_the_stop_and_what_waited_runs_in_the_next") {
    Rig rig;
    rig.wants_stop = {"a"};
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    const Handle before = rig.serving(Kind::Runtime);
    std::vector<Deliver> held;
    hold_stops(rig, held);
    SwapCommand swap;
    swap.command = 1;
    swap.slot = "runtime";
    swap.build.use = "runtime";
    swap.build.binary_hash = "another";
    rig.feed(swap);
    rig.run_for(kSecond);
    REQUIRE(held.size() == 1);
    CHECK(held[0].to == before);
    CHECK(held[0].event[0] == 1);
    const auto waits = rig.ask("a", rig.now + 10 * kSecond);
    CHECK(rig.reply(waits) == nullptr);
    rig.feed(Rig::delivered(held[0]));
    REQUIRE(rig.reply(waits) != nullptr);
    CHECK(rig.reply(waits)->reason == ReplyReason::Ok);
    CHECK(rig.all<Deliver>().back().second.to != before);
}

TEST_CASE("a_node_that_stops_tells_who_wants_it_64_at_a_time_after_the_clients_were_answered") {
    Rig rig;
    for (int i = 0; i < 100; ++i) rig.wants_stop.insert("a" + std::to_string(i));
    for (int i = 0; i < 120; ++i) CHECK(asked(rig, "a" + std::to_string(i)) == ReplyReason::Ok);
    std::vector<Deliver> held;
    std::optional<Deliver> running;
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr) return std::holds_alternative<SendShed>(action);
        if (deliver->kind == EventKind::Stop) {
            held.push_back(*deliver);
        } else {
            running = *deliver;
        }
        return true;
    };
    const Handle gateway = rig.serving(Kind::Gateway);
    rig.ask("a110", rig.now + 10 * kSecond);
    REQUIRE(running);
    rig.feed(StopNode{"SIGTERM"});
    rig.feed(Exited{.from = gateway, .summary = "exit 0"});
    CHECK(held.empty());  // a client waits
    rig.feed(Rig::delivered(*running));
    SUBCASE("all end") {
        CHECK(held.size() == 64);
        CHECK(held[0].event[0] == 2);
        std::size_t ended = 0;
        while (ended < held.size()) {
            rig.feed(Rig::delivered(held[ended++]));
            CHECK(held.size() - ended <= 64);
            if (ended < 100) CHECK(rig.all<SendStop>().empty());
        }
        CHECK(ended == 100);
        CHECK(rig.core.stats().stops == 100);
        CHECK_FALSE(rig.all<SendStop>().empty());
        CHECK(rig.all<ExitNode>().size() == 1);
    }
    SUBCASE("none ends, and the node does in its time") {
        const Time start = rig.now;
        rig.run_for(100 * kSecond);
        // The runtime that stands still is ended, and the others' memory with it.
        CHECK(held.size() == 64);
        for (const Deliver& stop : held) CHECK(stop.deadline <= start + 30 * kSecond);
        CHECK(rig.core.stats().stops_failed == 64);
        REQUIRE(rig.all<ExitNode>().size() == 1);
        CHECK(rig.all<ExitNode>()[0].first <= start + 40 * kSecond);
    }
}

TEST_CASE("room_is_made_first_by_who_leaves_without_a_word") {
    Config config = small_config();
    config.limits.resident_units_max = 2;
    Rig rig(config);
    rig.wants_stop = {"a"};
    for (const char* name : {"a", "b", "c"}) CHECK(asked(rig, name) == ReplyReason::Ok);
    CHECK(stops(rig).empty());
    CHECK(memory_of(rig, "a") == Memory::Resident);
    CHECK(memory_of(rig, "b") == Memory::Cold);
}

TEST_CASE(
    "who_comes_to_a_full_runtime_waits_for_a_stop_and_is_told_to_come_back_when_it_takes_long") {
    Config config = small_config();
    config.limits.resident_units_max = 2;
    Rig rig(config);
    rig.wants_stop = {"a", "b", "c", "d"};
    for (const char* name : {"a", "b"}) CHECK(asked(rig, name) == ReplyReason::Ok);
    std::vector<Deliver> held;
    hold_stops(rig, held);
    const Time start = rig.now;
    const auto comes = rig.ask("c", rig.now + 10 * kSecond);
    REQUIRE(held.size() == 1);
    CHECK(held[0].event[0] == 4);
    CHECK(rig.all<Activate>().size() == 2);
    SUBCASE("it ends in time") {
        rig.run_for(kSecond - 1);
        CHECK(rig.reply(comes) == nullptr);
        rig.feed(Rig::delivered(held[0]));
        REQUIRE(rig.reply(comes) != nullptr);
        CHECK(rig.reply(comes)->reason == ReplyReason::Ok);
        CHECK(rig.core.units().resident_on(rig.serving(Kind::Runtime)) == 2);
    }
    SUBCASE("it does not") {
        rig.run_for(2 * kSecond);
        REQUIRE(rig.reply(comes) != nullptr);
        CHECK(rig.replied_at(comes) == start + kSecond);
        CHECK(rig.reply(comes)->reason == ReplyReason::Busy);
        CHECK(rig.reply(comes)->retry_after_ms > 0);
        CHECK(rig.all<Activate>().size() == 2);
        rig.feed(Rig::delivered(held[0]));
        CHECK(asked(rig, "c") == ReplyReason::Ok);
    }
    SUBCASE("two come, and two are asked to leave") {
        const auto second = rig.ask("d", rig.now + 10 * kSecond);
        REQUIRE(held.size() == 2);
        rig.feed(Rig::delivered(held[1]));
        REQUIRE(rig.reply(comes) != nullptr);
        CHECK(rig.reply(second) == nullptr);
        rig.feed(Rig::delivered(held[0]));
        REQUIRE(rig.reply(second) != nullptr);
        CHECK(rig.reply(second)->reason == ReplyReason::Ok);
    }
    rig.run_for(10 * kSecond);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_thousand_units_idle_at_once_are_stopped_a_few_at_a_time") {
    Rig rig(quick_config());
    for (int i = 0; i < 100; ++i) rig.wants_stop.insert("a" + std::to_string(i));
    for (int i = 0; i < 100; ++i) CHECK(asked(rig, "a" + std::to_string(i)) == ReplyReason::Ok);
    std::vector<Deliver> held;
    hold_stops(rig, held);
    rig.run_for(10 * kSecond);
    CHECK(held.size() == 16);
    CHECK(rig.core.next_deadline() > rig.now);  // nothing to do but wait for them
    for (std::size_t ended = 0; ended < held.size(); ++ended) {
        rig.feed(Rig::delivered(held[ended]));
        rig.run_for(0);
        CHECK(held.size() - ended - 1 <= 16);
    }
    CHECK(held.size() == 100);
    CHECK(rig.core.units().resident_on(rig.serving(Kind::Runtime)) == 0);
}

TEST_CASE("neither_a_full_node_nor_hold_idle_lets_a_unit_go_without_its_stop") {
    Config config = quick_config(720 * 3600 * kSecond);
    config.limits.units_max = 1;
    Rig rig(config);
    rig.wants_stop = {"a"};
    CHECK(asked(rig, "a") == ReplyReason::Ok);
    SUBCASE("a full node") {
        CHECK(asked(rig, "b") == ReplyReason::Ok);
        REQUIRE(stops(rig).size() == 1);
        CHECK(asked(rig, "c") == ReplyReason::Ok);
        CHECK(rig.core.units().size() <= 2);
    }
    SUBCASE("hold_idle") {
        rig.run_for(config.limits.hold_idle);
        REQUIRE(stops(rig).size() == 1);
        CHECK(stops(rig)[0].event[0] == 4);
        CHECK(rig.core.units().size() == 0);  // released, and forgotten
    }
}
