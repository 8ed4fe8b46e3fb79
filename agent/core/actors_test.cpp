// What actors do beyond answering requests: calls, alarms, one-way messages, sockets; with perfect processes around.
#include <doctest/doctest.h>

#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/test_actors.hpp"

using namespace hf;
using namespace hf::core;
using testing::Actors;
using testing::is_alarm_key;
using testing::is_entry_of;
using testing::Rig;
using testing::small_config;

TEST_CASE("a_call_waits_for_earlier_writes_and_brings_the_answer_back") {
    Rig rig;
    Actors actors(rig);
    std::vector<StoreRequest> held;
    bool hold = false;
    actors.store = [&](const StoreRequest& request) {
        if (!hold || !is_entry_of(request, "a")) return false;
        held.push_back(request);
        return true;
    };
    int a_events = 0;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        return ++a_events == 1 ? plain : Actors::calls(deliver, "counter/b");
    });
    actors.on("b", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        CHECK(deliver.kind == EventKind::Call);
        CHECK(deliver.event == call_event({}, false, "counter/a", "ask", Bytes{7}));
        plain.reply_status = 0;
        plain.reply_body = {42};
        return plain;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    hold = true;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        return ++a_events == 2 ? plain : Actors::calls(deliver, "counter/b");
    });
    rig.ask("a", rig.now + 10 * kSecond);
    const auto caller = rig.ask("a", rig.now + 10 * kSecond);
    REQUIRE(held.size() == 1);
    CHECK(actors.seen("a").size() == 3);
    CHECK(actors.seen("b").empty());  // what came before the caller is not stored yet
    hold = false;
    StoreAnswer stored;
    stored.from = held[0].to;
    stored.op = held[0].op;
    stored.outcome = Outcome::Applied;
    rig.feed(stored);
    REQUIRE(actors.seen("b").size() == 1);
    REQUIRE(actors.resumed.size() == 1);
    CHECK(actors.resumed[0].code == 0);
    CHECK(actors.resumed[0].payload == Bytes{42});
    REQUIRE(rig.reply(caller) != nullptr);
    CHECK(rig.reply(caller)->reason == ReplyReason::Ok);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("who_would_wait_for_itself_is_told_at_once") {
    Rig rig;
    Actors actors(rig);
    SUBCASE("a ring of calls") {
        actors.on("a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/b"); });
        actors.on("b", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/c"); });
        actors.on("c", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/a"); });
        rig.ask("a", rig.now + 10 * kSecond);
        REQUIRE(actors.resumed.size() == 3);
        CHECK(actors.resumed[0].code == -4);  // c's, whose call closed the ring
        CHECK(actors.resumed[1].code == 0);
        CHECK(actors.resumed[2].code == 0);
    }
    SUBCASE("itself") {
        actors.on("a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/a"); });
        rig.ask("a", rig.now + 10 * kSecond);
        REQUIRE(actors.resumed.size() == 1);
        CHECK(actors.resumed[0].code == -4);
    }
    SUBCASE("two events that call each other's actor") {
        std::optional<Deliver> of_b;
        actors.on("b", [&](const Deliver& d, DeliveredIn plain) -> std::optional<DeliveredIn> {
            if (d.kind == EventKind::Call) return plain;
            of_b = d;  // it runs until told
            return std::nullopt;
        });
        actors.on("a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/b"); });
        rig.ask("b", rig.now + 10 * kSecond);
        rig.ask("a", rig.now + 10 * kSecond);  // waits in b's mailbox
        REQUIRE(of_b);
        CHECK(actors.resumed.empty());
        rig.feed(Actors::calls(*of_b, "counter/a"));
        REQUIRE(actors.resumed.size() == 2);
        CHECK(actors.resumed[0].code == -4);
        CHECK(actors.resumed[1].code == 0);
    }
    SUBCASE("names that are not there") {
        actors.on("a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "nothing/b"); });
        actors.on("b", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter"); });
        rig.ask("a", rig.now + 10 * kSecond);
        rig.ask("b", rig.now + 10 * kSecond);
        REQUIRE(actors.resumed.size() == 2);
        CHECK(actors.resumed[0].code == -1);
        CHECK(actors.resumed[1].code == -2);
    }
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_call_ends_at_its_deadline_and_its_late_answer_is_nobodys") {
    Rig rig;
    Actors actors(rig);
    std::optional<Deliver> of_b;
    actors.on("a", [](const Deliver& d, DeliveredIn) {
        DeliveredIn answer = Actors::calls(d, "counter/b");
        answer.call->timeout = kSecond;
        return answer;
    });
    actors.on("b", [&](const Deliver& d, DeliveredIn) -> std::optional<DeliveredIn> {
        of_b = d;
        return std::nullopt;
    });
    const auto caller = rig.ask("a", rig.now + 10 * kSecond);
    REQUIRE(of_b);
    rig.run_for(kSecond);
    REQUIRE(actors.resumed.size() == 1);
    CHECK(actors.resumed[0].code == -5);
    CHECK(rig.reply(caller)->reason == ReplyReason::Ok);
    rig.feed(Rig::delivered(*of_b));
    CHECK(actors.resumed.size() == 1);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_runtime_that_dies_under_a_waiting_event_runs_it_anew_and_the_old_call_is_over") {
    Config config = small_config();
    config.slots[2].instances = 1;
    Rig rig(config);
    Actors actors(rig);
    std::vector<Deliver> of_b;
    actors.on("a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/b"); });
    actors.on("b", [&](const Deliver& d, DeliveredIn) -> std::optional<DeliveredIn> {
        of_b.push_back(d);
        return std::nullopt;
    });
    const auto caller = rig.ask("a", rig.now + 10 * kSecond);
    REQUIRE(of_b.size() == 1);
    rig.die(of_b[0].to, false);
    rig.run_for(kSecond);
    REQUIRE(actors.seen("a").size() == 2);
    CHECK(actors.seen("a")[1].attempt == 2);
    REQUIRE(of_b.size() >= 2);
    CHECK(actors.resumed.empty());
    // The first call's event runs again too; its answer is not the second call's.
    DeliveredIn first = Rig::delivered(of_b[1]);
    first.reply_body = {1};
    rig.feed(first);
    REQUIRE(of_b.size() == 3);
    CHECK(actors.resumed.empty());
    DeliveredIn second = Rig::delivered(of_b[2]);
    second.reply_body = {2};
    rig.feed(second);
    REQUIRE(actors.resumed.size() == 1);
    CHECK(actors.resumed[0].payload == Bytes{2});
    CHECK(rig.reply(caller)->reason == ReplyReason::Ok);
}

TEST_CASE("an_alarm_is_in_the_index_before_its_entry_fires_once_and_leaves_no_trace") {
    Rig rig(small_config());
    Actors actors(rig);
    const std::int64_t due = rig.now / kMs + 3000;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        if (deliver.kind == EventKind::Http) plain.alarm = AlarmWish{due, false};
        return plain;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    std::size_t hint = 0;
    std::size_t entry = 0;
    for (std::size_t i = 0; i < actors.requests.size(); ++i) {
        const StoreRequest& request = actors.requests[i];
        if (request.verb == StoreVerb::Put && is_alarm_key(request.key)) hint = i;
        if (is_entry_of(request, "a")) entry = i;
    }
    CHECK(hint != 0);
    CHECK(entry > hint);
    CHECK(actors.seen("a").size() == 1);
    rig.run_for(3 * kSecond - kMs);
    CHECK(actors.seen("a").size() == 1);
    rig.run_for(2 * kMs);
    REQUIRE(actors.seen("a").size() == 2);
    const Deliver alarm = actors.seen("a")[1];
    CHECK(alarm.kind == EventKind::Alarm);
    const auto key = parse_alarm_key(actors.requests[hint].key);
    REQUIRE(key);
    CHECK(alarm.event == alarm_event(key->nonce, due, 1));
    rig.run_for(60 * kSecond);
    CHECK(actors.seen("a").size() == 2);
    const StoreRequest last = actors.requests.back();
    CHECK(last.verb == StoreVerb::Delete);
    CHECK(last.key == actors.requests[hint].key);
    CHECK(rig.core.units().quiet());
    CHECK(rig.core.stats().alarms_fired == 1);
}

TEST_CASE("a_handler_that_fails_is_tried_again_with_pauses_and_a_newer_alarm_is_not_lost_with_it") {
    Rig rig(small_config());
    Actors actors(rig);
    std::vector<std::pair<Time, Bytes>> fired;
    std::int64_t next_due = rig.now / kMs + 1000;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        if (deliver.kind == EventKind::Http) {
            plain.alarm = AlarmWish{next_due, false};
            return plain;
        }
        fired.emplace_back(rig.now, deliver.event);
        plain.status = DeliverStatus::Trapped;
        plain.changes.clear();
        return plain;
    });
    const Time start = rig.now;
    rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(8 * kSecond);
    REQUIRE(fired.size() == 3);
    CHECK(fired[0].first - start == kSecond);
    CHECK(fired[1].first - fired[0].first == 2 * kSecond);
    CHECK(fired[2].first - fired[1].first == 4 * kSecond);
    CHECK(fired[2].second[16] == 3);  // the attempt
    // Set anew while the old one waits for its next try: the old one is over, the new one fires at its own time.
    next_due = rig.now / kMs + 1000;
    const auto request = rig.ask("a", rig.now + 10 * kSecond);
    CHECK(rig.reply(request)->reason == ReplyReason::Ok);
    rig.run_for(kSecond);
    REQUIRE(fired.size() == 4);
    CHECK(fired[3].second[16] == 1);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        fired.emplace_back(rig.now, Bytes{});
        return plain;
    });
    rig.run_for(60 * kSecond);
    CHECK(fired.size() == 5);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("alarms_found_in_the_index_at_the_start_fire_and_what_is_stale_is_cleared") {
    std::string stale;
    Config config = small_config();
    const std::string unit_key = actor_unit(config.tenant, "counter", "a").value();
    Rig rig(config, {}, [&](Rig& empty) {
        stale = key::alarm(config.app, unit_key, 5, 77);
        empty.put(stale, {});
    });
    Actors actors(rig);
    // The visit began while the node started: it found nothing that stands.
    rig.run_for(kSecond);
    bool erased = false;
    for (const auto& [at, request] : rig.all<StoreRequest>())
        erased = erased || (request.verb == StoreVerb::Delete && request.key == stale);
    CHECK(erased);
    CHECK(actors.seen("a").empty());
    CHECK(rig.core.units().alarms().visits() == 0);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("an_alarm_set_while_the_index_is_being_read_is_not_overlooked") {
    Config config = small_config();
    const std::string unit = actor_unit(config.tenant, "counter", "a").value();
    std::vector<StoreRequest> held;
    Rig rig(config, {}, [&](Rig& empty) {
        empty.hook = [&](const Action& action) {
            const auto* request = std::get_if<StoreRequest>(&action);
            if (request == nullptr || request->verb != StoreVerb::List ||
                request->key != key::alarms_prefix(config.app, alarm_shard(unit)))
                return false;
            held.push_back(*request);
            return true;
        };
    });
    Actors actors(rig);
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) {
        if (deliver.kind == EventKind::Http) plain.alarm = AlarmWish{rig.now / kMs + 1000, false};
        return plain;
    });
    rig.ask("a", rig.now + 10 * kSecond);
    REQUIRE(held.size() == 1);
    // The listing looked before the hint was there.
    StoreAnswer empty;
    empty.from = held[0].to;
    empty.op = held[0].op;
    empty.outcome = Outcome::Applied;
    rig.feed(empty);
    rig.run_for(2 * kSecond);
    REQUIRE(actors.seen("a").size() == 2);
    CHECK(actors.seen("a")[1].kind == EventKind::Alarm);
}

TEST_CASE("an_alarm_is_not_delivered_once_the_event_before_it_set_another") {
    // One place at the runtime, and "b" has it when the request that stood before the alarm meets its deadline.
    Config config = small_config();
    config.limits.runtime_inflight = 1;
    Rig rig(config);
    Actors actors(rig);
    std::optional<Deliver> sets;
    std::optional<Deliver> of_b;
    int alarms = 0;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        alarms += deliver.kind == EventKind::Alarm ? 1 : 0;
        if (deliver.kind == EventKind::Http) plain.alarm = AlarmWish{rig.now / kMs + 1000, false};
        if (deliver.event != Bytes{2}) return plain;
        sets = deliver;
        return std::nullopt;
    });
    actors.on("b", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        if (deliver.event != Bytes{2}) return plain;
        of_b = deliver;
        return std::nullopt;
    });
    rig.ask("b", rig.now + 60 * kSecond);
    rig.ask("a", rig.now + 60 * kSecond);
    rig.ask("a", rig.now + 60 * kSecond, {2});
    const auto between = rig.ask("a", rig.now + 2 * kSecond);
    rig.run_for(kSecond);  // the alarm is due and stands behind that
    rig.ask("b", rig.now + 60 * kSecond, {2});
    REQUIRE(sets);
    CHECK_FALSE(of_b);
    DeliveredIn ended = Rig::delivered(*sets);
    ended.alarm = AlarmWish{rig.now / kMs + 30'000, false};
    rig.feed(std::move(ended));
    REQUIRE(of_b);
    rig.run_for(2 * kSecond);
    REQUIRE(rig.reply(between) != nullptr);
    CHECK(rig.reply(between)->reason == ReplyReason::Deadline);
    rig.feed(Rig::delivered(*of_b));
    CHECK(alarms == 0);
    rig.run_for(30 * kSecond);
    CHECK(alarms == 1);
}

TEST_CASE("an_event_undone_sends_nothing_and_sets_no_alarm") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        plain.sends.push_back({"counter/b", "add", {}});
        plain.alarm = AlarmWish{rig.now / kMs + 1000, false};
        return plain;
    });
    rig.ask("b", rig.now + 10 * kSecond);
    actors.store = [&](const StoreRequest& request) {
        if (!is_entry_of(request, "a") || request.key.ends_with("01")) return false;
        StoreAnswer refused;
        refused.from = request.to;
        refused.op = request.op;
        refused.outcome = Outcome::Refused;
        rig.feed(refused);
        return true;
    };
    const auto request = rig.ask("a", rig.now + 10 * kSecond);
    CHECK(rig.reply(request)->reason == ReplyReason::Unavailable);
    rig.run_for(60 * kSecond);
    CHECK(actors.seen("b").size() == 1);
    CHECK(actors.seen("a").size() == 1);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_socket_opens_carries_both_ways_and_stays_while_its_actor_leaves_memory") {
    Rig rig;
    Actors actors(rig);
    std::uint64_t connection = 0;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) {
        for (int i = 7; i >= 0; --i)
            connection = connection << 8U | deliver.event[static_cast<std::size_t>(i)];
        plain.reply_status = 0;
        if (deliver.kind == EventKind::WsMessage) {
            plain.sockets.push_back({connection, false, 0, false, Bytes{9}});
            plain.sockets.push_back({connection + 1, false, 0, false, Bytes{9}});  // not its own
            plain.passivate = true;
        }
        return plain;
    });
    SocketOpenedIn opened;
    opened.from = rig.serving(Kind::Gateway);
    opened.req_id = 1000;
    opened.connection = 5;
    opened.class_name = "counter";
    opened.name = "a";
    opened.event = {1};
    opened.deadline = rig.now + 10 * kSecond;
    rig.feed(opened);
    REQUIRE(rig.reply(1000) != nullptr);
    CHECK(rig.reply(1000)->status == 101);
    CHECK(actors.seen("a")[0].kind == EventKind::WsOpen);
    for (int i = 0; i < 2; ++i) {
        SocketMessageIn message;
        message.from = opened.from;
        message.req_id = 1001 + static_cast<std::uint64_t>(i);
        message.connection = 5;
        message.data = {8};
        rig.feed(message);
    }
    const auto taken = rig.all<SocketTaken>();
    REQUIRE(taken.size() == 2);
    CHECK(taken[0].second.ok);
    const auto sent = rig.all<SocketSend>();
    REQUIRE(sent.size() == 2);
    CHECK(sent[0].second.connections == std::vector<std::uint64_t>{5});
    CHECK(sent[0].second.data == Bytes{9});
    CHECK(rig.all<Activate>().size() == 2);  // it had left memory in between
    rig.feed(SocketClosedIn{opened.from, 5, 1000, "bye"});
    CHECK(actors.seen("a").back().kind == EventKind::WsClose);
    CHECK(rig.core.units().sockets() == 0);
    CHECK(rig.core.units().quiet());
}

TEST_CASE(
    "sockets_of_a_gateway_that_dies_are_closed_for_their_actors_and_foreign_numbers_are_refused") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) {
        plain.reply_status = deliver.kind == EventKind::WsOpen ? 403 : 0;
        return plain;
    });
    actors.on("b", [&](const Deliver&, DeliveredIn plain) {
        plain.reply_status = 0;
        return plain;
    });
    const Handle gateway = rig.serving(Kind::Gateway);
    std::uint64_t req = 1000;
    for (const char* name : {"a", "b"}) {
        SocketOpenedIn opened;
        opened.from = gateway;
        opened.req_id = ++req;
        opened.connection = req;
        opened.class_name = "counter";
        opened.name = name;
        rig.feed(opened);
    }
    CHECK(rig.reply(1001)->status == 403);
    CHECK(rig.core.units().sockets() == 1);
    SocketMessageIn foreign;
    foreign.from = gateway;
    foreign.req_id = 2000;
    foreign.connection = 1001;  // refused above
    rig.feed(foreign);
    REQUIRE(rig.all<SocketTaken>().size() == 1);
    CHECK_FALSE(rig.all<SocketTaken>()[0].second.ok);
    rig.die(gateway, false);
    rig.run_for(kSecond);
    REQUIRE(actors.seen("b").size() == 2);
    CHECK(actors.seen("b")[1].kind == EventKind::WsClose);
    CHECK(rig.core.units().sockets() == 0);
    CHECK(rig.core.units().quiet());
}
