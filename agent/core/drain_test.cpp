// A node that gives everything away: what goes where, in which order, and what it says of itself.
#include <doctest/doctest.h>

#include <map>

#include "agent/core/test_cluster.hpp"

using namespace hf;
using namespace hf::core;
using testing::Actors;
using testing::Pair;
using testing::reason;
using testing::Rig;

namespace {

void drain(Pair& pair, const std::string& node) {
    pair.bucket->put(key::drain(node), {});
}

std::size_t events_at(Pair& pair,
                      const std::string& node,
                      const std::string& actor,
                      EventKind kind) {
    std::size_t count = 0;
    for (const Deliver& deliver : pair.actors(node).seen(actor))
        count += deliver.kind == kind ? 1U : 0U;
    return count;
}

}  // namespace

TEST_CASE("a_drain_empties_a_node_and_its_actors_are_served_by_the_peer") {
    Pair pair;
    for (int i = 0; i < 40; ++i) pair.ask("n1", "a" + std::to_string(i));
    drain(pair, "n1");
    pair.run_for(3 * kSecond);
    CHECK(pair.record("n1").state == "drained");
    CHECK(pair.rig("n1").core.units().drain().state() == Drain::State::Drained);
    for (int i = 0; i < 40; ++i) {
        const std::string name = "a" + std::to_string(i);
        CHECK(pair.hold(name).state == HoldState::Free);
        CHECK(reason(pair, "n1", pair.ask("n1", name)) == ReplyReason::Ok);
        CHECK(pair.hold(name).owner == "n2");
        CHECK(events_at(pair, "n2", name, EventKind::Http) == 1);
    }
    CHECK(pair.rig("n1").core.lease().valid());
}

TEST_CASE("a_node_that_no_listing_has_shown_yet_can_be_drained_and_a_made_up_one_cannot") {
    Pair pair;
    NodeRecord fresh = pair.record("n2");
    fresh.id = "n3";
    pair.bucket->put(key::node("n3"), pair.codec.encode(fresh));
    pair.rig("n1").feed(DrainCommand{1, "n3", true});
    pair.rig("n1").feed(DrainCommand{2, "n4", true});
    pair.rig("n1").feed(DrainCommand{3, "../n2", true});
    pair.carry();
    const auto done = pair.rig("n1").all<CommandDone>();
    REQUIRE(done.size() == 3);
    std::map<std::uint64_t, CommandDone> by_id;
    for (const auto& [at, command] : done) by_id[command.command] = command;
    CHECK(by_id[1].ok);
    CHECK(pair.bucket->objects.contains(key::drain("n3")));
    CHECK_FALSE(by_id[2].ok);
    CHECK(by_id[2].text.find("there is no node 'n4'") != std::string::npos);
    CHECK_FALSE(by_id[3].ok);
    CHECK_FALSE(pair.bucket->objects.contains(key::drain("n4")));
}

TEST_CASE("no_more_than_sixteen_are_on_their_way_at_once") {
    Pair pair;
    for (int i = 0; i < 40; ++i) pair.ask("n1", "a" + std::to_string(i));
    std::size_t released = 0;
    pair.actors("n1").store = [&](const StoreRequest& request) {
        const bool release =
            request.verb == StoreVerb::Put && request.key.find("/holds/") != std::string::npos;
        released += release ? 1U : 0U;
        return release;  // it is not answered
    };
    drain(pair, "n1");
    pair.run_for(2 * kSecond);
    CHECK(released == 16);
    CHECK(pair.record("n1").state == "draining");
}

TEST_CASE("a_node_alone_is_stuck_and_serves_on") {
    Pair pair;
    pair.ask("n1", "a");
    pair.kill("n2");
    pair.run_for(6 * kSecond);
    drain(pair, "n1");
    pair.run_for(3 * kSecond);
    CHECK(pair.record("n1").state == "stuck");
    CHECK(reason(pair, "n1", pair.ask("n1", "a")) == ReplyReason::Ok);
    CHECK(reason(pair, "n1", pair.ask("n1", "new")) == ReplyReason::Ok);
    CHECK(pair.hold("new").owner == "n1");
}

TEST_CASE("an_older_peer_is_never_chosen") {
    Pair pair;
    pair.ask("n1", "a");
    pair.kill("n2");
    NodeRecord old = pair.record("n2");
    old.state.clear();  // it does not know of drains
    drain(pair, "n1");
    for (int i = 0; i < 4; ++i) {
        ++old.lease_seq;  // but it lives
        pair.bucket->put(key::node("n2"), pair.codec.encode(old));
        pair.run_for(kSecond);
    }
    CHECK(pair.record("n1").state == "stuck");
    CHECK(pair.hold("a").owner == "n1");
}

TEST_CASE("a_drain_outlives_failed_listings_and_ends_after_two_without_its_key") {
    Pair pair;
    drain(pair, "n1");
    pair.run_for(2 * kSecond);
    REQUIRE(pair.rig("n1").core.units().drain().on());
    pair.bucket->objects.erase(key::drain("n1"));
    bool broken = true;
    pair.actors("n1").store = [&](const StoreRequest& request) {
        if (!broken || request.verb != StoreVerb::List || request.key != key::control_prefix())
            return false;
        StoreAnswer answer;
        answer.from = request.to;
        answer.op = request.op;
        answer.outcome = Outcome::Refused;
        pair.rig("n1").feed(answer);
        return true;
    };
    pair.run_for(10 * kSecond);
    CHECK(pair.rig("n1").core.units().drain().on());
    broken = false;
    pair.run_for(1 * kSecond);
    CHECK(pair.rig("n1").core.units().drain().on());
    pair.run_for(2 * kSecond);
    CHECK_FALSE(pair.rig("n1").core.units().drain().on());
    CHECK(pair.record("n1").state == "serving");
    CHECK(reason(pair, "n1", pair.ask("n1", "a")) == ReplyReason::Ok);
    CHECK(pair.hold("a").owner == "n1");
}

TEST_CASE("an_alarm_of_a_drained_node_fires_on_the_peer_when_it_is_due") {
    Pair pair;
    pair.actors("n1").on("a", [&](const Deliver&, DeliveredIn plain) -> std::optional<DeliveredIn> {
        plain.alarm = AlarmWish{pair.now() / kMs + 20'000, false};
        return plain;
    });
    pair.ask("n1", "a");
    const Time set = pair.now();
    drain(pair, "n1");
    pair.run_for(5 * kSecond);
    CHECK(pair.record("n1").state == "drained");
    std::size_t handed = 0;
    for (const PeerCall& call : pair.calls) handed += call.origin.ask == PeerAsk::Alarm ? 1U : 0U;
    CHECK(handed == 1);
    CHECK(pair.hold("a").state == HoldState::Free);  // it was armed, not claimed
    pair.run_for(set + 20 * kSecond + 100 * kMs - pair.now());
    CHECK(events_at(pair, "n2", "a", EventKind::Alarm) == 1);
    CHECK(events_at(pair, "n1", "a", EventKind::Alarm) == 0);
}

TEST_CASE("an_alarm_that_the_peer_does_not_take_is_handed_again_and_else_run_here") {
    Pair pair;
    pair.actors("n1").on("a",
                         [&](const Deliver& d, DeliveredIn plain) -> std::optional<DeliveredIn> {
                             if (d.kind == EventKind::Http)
                                 plain.alarm = AlarmWish{pair.now() / kMs + 6000, false};
                             return plain;
                         });
    pair.ask("n1", "a");
    pair.network = Pair::Network::Down;
    drain(pair, "n1");
    pair.run_for(3 * kSecond);
    SUBCASE("the network comes back") {
        CHECK(pair.record("n1").state != "drained");
        pair.network = Pair::Network::Good;
        pair.run_for(20 * kSecond);
        CHECK(events_at(pair, "n2", "a", EventKind::Alarm) +
                  events_at(pair, "n1", "a", EventKind::Alarm) ==
              1);
    }
    SUBCASE("it does not") {
        pair.run_for(20 * kSecond);
        CHECK(events_at(pair, "n2", "a", EventKind::Alarm) +
                  events_at(pair, "n1", "a", EventKind::Alarm) ==
              1);
    }
}

TEST_CASE("a_handed_alarm_waits_for_the_senders_release") {
    Pair pair;
    pair.ask("n1", "a");
    // The peer is told of an alarm that is due while the record still names n1, which does not fire it.
    RequestIn handed;
    handed.from = pair.rig("n2").serving(Kind::Gateway);
    handed.req_id = 99;
    handed.class_name = "counter";
    handed.name = "a";
    handed.origin.emplace().node = "n1";
    handed.origin->ask = PeerAsk::Alarm;
    handed.origin->due_ms = pair.now() / kMs;
    handed.origin->nonce = 7;
    pair.rig("n2").feed(handed);
    CHECK(reason(pair, "n2", 99) == ReplyReason::Ok);
    pair.run_for(5 * kSecond);
    CHECK(pair.hold("a").owner == "n1");
    HoldRecord free = pair.hold("a");
    free.state = HoldState::Free;
    pair.bucket->put(key::hold("default", "actor/default/counter/a"), pair.codec.encode(free));
    pair.run_for(kSecond + 100 * kMs);
    CHECK(pair.hold("a").owner == "n2");  // it looked again, long before any sweep
}

TEST_CASE("connections_close_first_and_their_close_events_run_here") {
    Pair pair;
    Rig& n1 = pair.rig("n1");
    pair.actors("n1").on("a",
                         [](const Deliver& d, DeliveredIn plain) -> std::optional<DeliveredIn> {
                             if (d.kind == EventKind::WsOpen) plain.reply_status = 0;
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
    REQUIRE(n1.core.units().sockets() == 1);
    drain(pair, "n1");
    pair.run_for(2 * kSecond);
    REQUIRE(n1.all<CloseSocket>().size() == 1);
    CHECK(n1.all<CloseSocket>()[0].second.code == 1012);
    CHECK(pair.hold("a").state == HoldState::Held);  // its client has not closed yet
    n1.feed(SocketClosedIn{opened.from, 5, 1012, ""});
    pair.run_for(kSecond);
    CHECK(events_at(pair, "n1", "a", EventKind::WsClose) == 1);
    CHECK(pair.hold("a").state == HoldState::Free);
}

TEST_CASE("what_was_asked_before_runs_here_and_what_comes_later_runs_there") {
    Pair pair;
    pair.ask("n1", "a");
    std::optional<Deliver> running;
    pair.actors("n1").on("a", [&](const Deliver& d, DeliveredIn) -> std::optional<DeliveredIn> {
        running = d;
        return std::nullopt;
    });
    const auto before = pair.rig("n1").ask("a", pair.now() + 20 * kSecond);
    drain(pair, "n1");
    pair.run_for(2 * kSecond);
    const auto after = pair.rig("n1").ask("a", pair.now() + 20 * kSecond);
    REQUIRE(running);
    CHECK(pair.reply("n1", before) == nullptr);
    pair.actors("n1").on(
        "a", [](const Deliver&, DeliveredIn plain) -> std::optional<DeliveredIn> { return plain; });
    pair.rig("n1").feed(Rig::delivered(*running));
    pair.run_for(kSecond);
    CHECK(reason(pair, "n1", before) == ReplyReason::Ok);
    CHECK(reason(pair, "n1", after) == ReplyReason::Ok);
    CHECK(pair.actors("n2").seen("a").size() >= 1);
    CHECK(pair.hold("a").owner == "n2");
}

TEST_CASE("one_that_is_busy_for_long_is_left_for_the_next_pass") {
    Pair pair;
    pair.ask("n1", "a");
    pair.ask("n2", "b");
    pair.actors("n1").on(
        "a", [](const Deliver& d, DeliveredIn) { return Actors::calls(d, "counter/b"); });
    pair.network = Pair::Network::Silent;
    const auto busy = pair.rig("n1").ask("a", pair.now() + 55 * kSecond);  // waits for b
    drain(pair, "n1");
    pair.run_for(20 * kSecond);
    pair.actors("n1").on(
        "a", [](const Deliver&, DeliveredIn plain) -> std::optional<DeliveredIn> { return plain; });
    const auto behind = pair.rig("n1").ask("a", pair.now() + 55 * kSecond);
    pair.run_for(15 * kSecond);  // 30 s have passed
    CHECK(pair.hold("a").state == HoldState::Held);
    CHECK(pair.reply("n1", busy) == nullptr);
    pair.network = Pair::Network::Good;
    pair.run_for(10 * kSecond);
    CHECK(reason(pair, "n1", busy) == ReplyReason::Ok);
    CHECK(reason(pair, "n1", behind) == ReplyReason::Ok);
    CHECK(pair.record("n1").state == "drained");
}
