// Several nodes on one bucket: who holds what, what is passed on, and when a hold changes hands.
#include <doctest/doctest.h>

#include "agent/core/guest_events.hpp"
#include "agent/core/test_cluster.hpp"

using namespace hf;
using namespace hf::core;
using testing::Actors;
using testing::Pair;
using testing::reason;
using testing::Rig;

TEST_CASE("an_actor_is_held_by_one_node_and_others_ask_that_one") {
    Pair pair;
    CHECK(reason(pair, "n1", pair.ask("n1", "a")) == ReplyReason::Ok);
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
    CHECK(pair.hold("a").owner == "n1");
    CHECK(pair.hold("a").epoch == 1);
    REQUIRE(pair.calls.size() == 1);
    CHECK(pair.calls[0].target == "n1");
    CHECK(pair.calls[0].address == "n1.example:80");
    CHECK(pair.calls[0].origin.node == "n2");
    CHECK(pair.actors("n1").seen("a").size() == 2);
    CHECK(pair.actors("n2").seen("a").empty());
}

TEST_CASE("who_holds_it_is_remembered_for_a_second") {
    Pair pair;
    pair.ask("n1", "a");
    pair.ask("n2", "a");
    const auto reads = [&] {
        std::size_t count = 0;
        for (const StoreRequest& request : pair.actors("n2").requests)
            if (request.verb == StoreVerb::Get && request.key.find("/holds/") != std::string::npos)
                ++count;
        return count;
    };
    const std::size_t before = reads();
    pair.ask("n2", "a");
    CHECK(reads() == before);
    pair.run_for(kSecond + kMs);
    pair.ask("n2", "a");
    CHECK(reads() == before + 1);
}

TEST_CASE("what_was_passed_on_once_is_not_passed_on_again") {
    Pair pair;
    pair.ask("n1", "a");
    RequestIn request;
    request.from = pair.rig("n2").serving(Kind::Gateway);
    request.req_id = 77;
    request.class_name = "counter";
    request.name = "a";
    request.event = {1};
    request.origin.emplace().node = "n3";
    pair.rig("n2").feed(request);
    pair.carry();
    CHECK(reason(pair, "n2", 77) == ReplyReason::Unavailable);
    CHECK(pair.reply("n2", 77)->retry_after_ms == 1000);
    CHECK(pair.calls.empty());
}

TEST_CASE("a_dead_nodes_actors_are_served_elsewhere_once_its_lease_has_run_out_and_not_before") {
    Pair pair;
    pair.ask("n1", "a");
    pair.kill("n1");
    const Time died = pair.now();
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Unavailable);
    pair.run_for(2 * kSecond);
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Unavailable);
    CHECK_FALSE(pair.record("n1").dead);
    // ttl + grace + poll, from when its last renewal was seen.
    pair.run_for(3 * kSecond);
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
    CHECK(pair.now() - died <= 5 * kSecond);
    REQUIRE(pair.record("n1").dead);
    CHECK(*pair.record("n1").dead == 1);
    CHECK(pair.hold("a").owner == "n2");
    CHECK(pair.hold("a").epoch == 2);
    CHECK(pair.rig("n2").core.stats().taken_over == 1);
}

TEST_CASE("a_node_that_renews_keeps_what_it_holds") {
    Pair pair;
    pair.ask("n1", "a");
    pair.network = Pair::Network::Down;
    for (int i = 0; i < 30; ++i) {
        pair.run_for(kSecond);
        CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Unavailable);
    }
    CHECK(pair.hold("a").owner == "n1");
    pair.network = Pair::Network::Good;
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
}

TEST_CASE("a_node_that_stopped_leaves_its_actors_at_once") {
    Pair pair;
    pair.ask("n1", "a");
    pair.rig("n1").feed(StopNode{"test"});
    pair.run_for(kSecond);  // the next look at the nodes
    CHECK(pair.rig("n1").all<ExitNode>().size() == 1);
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
    CHECK(pair.hold("a").owner == "n2");
}

TEST_CASE("an_answer_that_does_not_come_is_unknown_and_one_that_was_not_asked_did_not_happen") {
    Pair pair;
    pair.ask("n1", "a");
    pair.network = Pair::Network::AnswersLost;
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Deadline);
    pair.network = Pair::Network::Down;
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Unavailable);
    CHECK(pair.actors("n1").seen("a").size() == 2);
}

TEST_CASE("a_gateway_that_ends_leaves_what_it_passed_on_unknown") {
    Pair pair;
    pair.ask("n1", "a");
    pair.actors("n1").on("a", [](const Deliver&, DeliveredIn) -> std::optional<DeliveredIn> {
        return std::nullopt;  // runs for ever
    });
    Rig& n2 = pair.rig("n2");
    const auto asked = n2.ask("a", n2.now + 10 * kSecond);
    pair.carry();
    REQUIRE(pair.calls.size() == 1);
    CHECK(n2.core.units().passed_on_open() == 1);
    pair.actors("n2").on(
        "b", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/a"); });
    n2.ask("b", n2.now + 10 * kSecond);
    n2.die(n2.serving(Kind::Gateway), false);
    CHECK(n2.core.units().passed_on_open() == 0);
    REQUIRE(pair.actors("n2").resumed.size() == 1);
    CHECK(pair.actors("n2").resumed[0].code == -5);
    (void)asked;  // its gateway is gone, nobody hears
}

TEST_CASE("nobody_waits_longer_for_a_node_that_stands_still_than_for_its_lease") {
    Pair pair;
    pair.ask("n1", "a");
    pair.network = Pair::Network::Silent;  // it takes the connection and never answers
    const auto asked = pair.rig("n2").ask("a", pair.now() + 60 * kSecond);
    pair.actors("n1").store = [](const StoreRequest&) { return true; };  // nor does it renew
    pair.run_for(6 * kSecond);
    CHECK(reason(pair, "n2", asked) == ReplyReason::Deadline);
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
}

TEST_CASE("an_event_that_waits_for_the_owner_meets_its_deadline") {
    Pair pair;
    pair.ask("n1", "a");
    pair.actors("n1").on("a", [](const Deliver&, DeliveredIn) -> std::optional<DeliveredIn> {
        return std::nullopt;
    });
    const auto asked = pair.rig("n2").ask("a", pair.now() + kSecond);
    pair.run_for(2 * kSecond);
    CHECK(reason(pair, "n2", asked) == ReplyReason::Deadline);
}

TEST_CASE("calls_go_to_the_node_that_holds_the_callee_and_a_ring_over_nodes_is_refused") {
    Pair pair;
    pair.ask("n1", "b");
    pair.actors("n2").on(
        "a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/b"); });
    SUBCASE("there and back") {
        pair.actors("n1").on("b",
                             [](const Deliver& d, DeliveredIn plain) -> std::optional<DeliveredIn> {
                                 CHECK(d.kind == EventKind::Call);
                                 plain.reply_status = 0;
                                 plain.reply_body = {42};
                                 return plain;
                             });
        CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
        REQUIRE(pair.actors("n2").resumed.size() == 1);
        CHECK(pair.actors("n2").resumed[0].code == 0);
        CHECK(pair.actors("n2").resumed[0].payload == Bytes{42});
    }
    SUBCASE("a ring") {
        pair.actors("n1").on(
            "b", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/a"); });
        CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
        REQUIRE(pair.actors("n1").resumed.size() == 1);
        CHECK(pair.actors("n1").resumed[0].code == -4);
        REQUIRE(pair.actors("n2").resumed.size() == 1);
        CHECK(pair.actors("n2").resumed[0].code == 0);
    }
}

TEST_CASE("a_message_to_another_nodes_actor_is_applied_once_though_its_answer_was_lost") {
    Pair pair;
    pair.ask("n1", "b");
    pair.actors("n2").on("a", [](const Deliver&, DeliveredIn plain) -> std::optional<DeliveredIn> {
        plain.sends.push_back({"counter/b", "add", {1}});
        return plain;
    });
    pair.network = Pair::Network::AnswersLost;
    CHECK(reason(pair, "n2", pair.ask("n2", "a")) == ReplyReason::Ok);
    pair.run_for(kSecond);
    pair.network = Pair::Network::Good;
    pair.run_for(5 * kSecond);
    std::size_t applied = 0;
    for (const Deliver& deliver : pair.actors("n1").seen("b"))
        applied += deliver.kind == EventKind::Call ? 1U : 0U;
    CHECK(applied == 1);
    CHECK(pair.rig("n2").core.stats().messages_applied == 1);
    std::size_t sent = 0;
    std::size_t settled = 0;
    for (const PeerCall& call : pair.calls) {
        sent += call.origin.ask == PeerAsk::Message ? 1U : 0U;
        settled += call.origin.ask == PeerAsk::Settled ? 1U : 0U;
    }
    CHECK(sent >= 2);
    CHECK(settled == 1);
}

TEST_CASE("a_request_for_later_is_journalled_where_it_came_and_applied_where_its_actor_is") {
    Pair pair;
    pair.ask("n1", "b");
    RequestIn request;
    request.from = pair.rig("n2").serving(Kind::Gateway);
    request.req_id = 77;
    request.class_name = "counter";
    request.name = "b";
    FlatWriter flat(request.event);
    flat.field("POST");
    flat.field("/");
    flat.u32(0);
    flat.field("body");
    request.deadline = pair.now() + kSecond;
    request.later = true;
    pair.rig("n2").feed(request);
    pair.run_for(kSecond);
    REQUIRE(pair.reply("n2", 77) != nullptr);
    CHECK(pair.reply("n2", 77)->status == 202);
    CHECK(pair.actors("n1").seen("b").size() == 2);
    CHECK(pair.rig("n2").core.units().journal().size() == 0);
}

TEST_CASE("an_alarm_set_on_a_node_that_died_fires_on_another") {
    Pair pair;
    pair.actors("n1").on("a", [&](const Deliver&, DeliveredIn plain) -> std::optional<DeliveredIn> {
        plain.alarm = AlarmWish{pair.now() / kMs + 8000, false};
        return plain;
    });
    pair.ask("n1", "a");
    pair.kill("n1");
    pair.run_for(8 * kSecond);
    CHECK(pair.actors("n2").seen("a").empty());
    pair.run_for(22 * kSecond);  // its lease, and two looks at the index
    REQUIRE(pair.actors("n2").seen("a").size() >= 1);
    bool fired = false;
    for (const Deliver& deliver : pair.actors("n2").seen("a"))
        fired = fired || deliver.kind == EventKind::Alarm;
    CHECK(fired);
    CHECK(pair.hold("a").owner == "n2");
}

TEST_CASE("connections_end_when_the_hold_on_their_actor_does") {
    Pair pair;
    Rig& n1 = pair.rig("n1");
    pair.actors("n1").on("a", [](const Deliver&, DeliveredIn plain) -> std::optional<DeliveredIn> {
        plain.reply_status = 0;
        return plain;
    });
    SocketOpenedIn opened;
    opened.from = n1.serving(Kind::Gateway);
    opened.req_id = 88;
    opened.connection = 5;
    opened.class_name = "counter";
    opened.name = "a";
    opened.event = {1};
    opened.deadline = n1.now + kSecond;
    n1.feed(opened);
    REQUIRE(n1.reply(88) != nullptr);
    CHECK(n1.core.units().sockets() == 1);
    n1.feed(SleptIs{60 * kSecond});
    n1.feed(Tick{});
    CHECK(n1.core.units().sockets() == 0);
    REQUIRE(n1.all<CloseSocket>().size() == 1);
    CHECK(n1.all<CloseSocket>()[0].second.code == 1012);
}

TEST_CASE("a_record_that_cannot_be_found_is_made_before_its_holds_are_taken") {
    Pair pair;
    HoldRecord orphan;
    orphan.epoch = 4;
    orphan.state = HoldState::Held;
    orphan.owner = "n9";
    orphan.incarnation = 7;
    pair.bucket->put(key::hold("default", "actor/default/counter/a"), pair.codec.encode(orphan));
    const auto asked = pair.ask("n2", "a");
    CHECK(reason(pair, "n2", asked) == ReplyReason::Ok);
    CHECK(pair.hold("a").epoch == 5);
    CHECK(pair.record("n9").incarnation == 7);
    REQUIRE(pair.record("n9").dead);
    CHECK(*pair.record("n9").dead == 7);
}
