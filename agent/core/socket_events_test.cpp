// What an actor hears of connections that are gone when it could not listen.
#include <doctest/doctest.h>

#include "agent/core/test_actors.hpp"

using namespace hf;
using namespace hf::core;
using testing::Actors;
using testing::Rig;

namespace {

// A client's connection 5 for actor "a".
SocketOpenedIn opened_at_a(const Rig& rig) {
    SocketOpenedIn opened;
    opened.from = rig.serving(Kind::Gateway);
    opened.req_id = 1000;
    opened.connection = 5;
    opened.class_name = "counter";
    opened.name = "a";
    opened.event = {1};
    opened.deadline = rig.now + 10 * kSecond;
    return opened;
}

}  // namespace

TEST_CASE("an_actor_that_accepts_a_connection_too_late_hears_that_it_is_gone") {
    Rig rig;
    Actors actors(rig);
    std::optional<DeliveredIn> late;
    actors.on("a", [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
        plain.reply_status = 0;
        if (deliver.kind != EventKind::WsOpen) return plain;
        late = plain;
        return std::nullopt;
    });
    SocketOpenedIn opened;
    opened.from = rig.serving(Kind::Gateway);
    opened.req_id = 1000;
    opened.connection = 5;
    opened.class_name = "counter";
    opened.name = "a";
    opened.event = {1};
    opened.deadline = rig.now + kSecond;
    rig.feed(opened);
    rig.run_for(2 * kSecond);
    REQUIRE(rig.reply(1000) != nullptr);
    CHECK(rig.reply(1000)->reason == ReplyReason::Deadline);
    CHECK(rig.core.units().sockets() == 0);
    REQUIRE(late);
    rig.feed(*late);
    REQUIRE(actors.seen("a").size() == 2);
    CHECK(actors.seen("a")[1].kind == EventKind::WsClose);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_gateway_that_gives_a_reason_longer_than_a_close_has_is_cut_short") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        plain.reply_status = 0;
        return plain;
    });
    SocketOpenedIn opened = opened_at_a(rig);
    rig.feed(opened);
    rig.feed(SocketClosedIn{opened.from, 5, 1000, std::string(65'000, 'r')});
    REQUIRE(actors.seen("a").size() == 2);
    CHECK(actors.seen("a")[1].event.size() == 8 + 4 + 4 + 123);
}

TEST_CASE("an_actor_that_cannot_be_loaded_hears_later_that_its_connection_is_gone") {
    Rig rig;
    Actors actors(rig);
    actors.on("a", [&](const Deliver&, DeliveredIn plain) {
        plain.reply_status = 0;
        plain.passivate = true;
        return plain;
    });
    SocketOpenedIn opened = opened_at_a(rig);
    rig.feed(opened);
    REQUIRE(rig.reply(1000) != nullptr);
    bool broken = true;
    actors.store = [&](const StoreRequest& request) {
        if (!broken || request.verb != StoreVerb::List) return false;
        StoreAnswer answer;
        answer.from = request.to;
        answer.op = request.op;
        answer.outcome = Outcome::Refused;
        answer.reason = "no room";
        rig.feed(answer);
        return true;
    };
    rig.feed(SocketClosedIn{opened.from, 5, 1000, "bye"});
    CHECK(rig.core.units().sockets() == 0);
    rig.run_for(5 * kSecond);  // tried at once, after 2 s, and after 4 s more
    CHECK(actors.seen("a").size() == 1);
    broken = false;
    rig.run_for(60 * kSecond);
    REQUIRE(actors.seen("a").size() == 2);
    CHECK(actors.seen("a")[1].kind == EventKind::WsClose);
    CHECK(rig.core.units().quiet());
    // With nothing owed it is forgotten as any other; one that is never to be loaded is given up.
    rig.run_for(2 * 3600 * kSecond);
    CHECK(rig.core.units().size() == 0);
    opened.req_id = 1001;
    opened.connection = 6;
    opened.deadline = rig.now + 10 * kSecond;
    rig.feed(opened);
    REQUIRE(rig.reply(1001) != nullptr);
    const std::size_t heard = actors.seen("a").size();
    broken = true;
    rig.feed(SocketClosedIn{opened.from, 6, 1000, "bye"});
    rig.run_for(3 * 3600 * kSecond);
    CHECK(actors.seen("a").size() == heard);
    CHECK(rig.core.units().size() == 0);
}
