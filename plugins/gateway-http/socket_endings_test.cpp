// How WebSockets of the whole plugin as a process end: closes of either side, vanished, deaf and silent clients, missing
// answers, shed. Whatever happens, the actor hears of the end once.
#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "abi/base/clock.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"
#include "plugins/gateway-http/test_wsclient.hpp"

namespace hf::gateway {

namespace {

using Seen = TestSupervisor::Seen;

TestSupervisor::Options options(std::vector<std::pair<std::string, std::string>> settings = {}) {
    TestSupervisor::Options out;
    out.binary = HF_GATEWAY_HTTP;
    out.settings = std::move(settings);
    return out;
}

std::uint64_t counter(const Seen& seen, const std::string& name) {
    const auto found = seen.counters.find(name);
    return found == seen.counters.end() ? 0 : found->second;
}

// The one socket of the test is told to be closed with `code`, and after everything has settled it still is once.
bool is_told_once(TestSupervisor& supervisor, unsigned code) {
    if (!supervisor.wait_until([](const Seen& seen) { return !seen.closed.empty(); })) return false;
    // The counters come at most a second after the last thing that happened.
    if (!supervisor.wait_until([](const Seen& seen) {
            return counter(seen, "http_sockets_closed") == 1 &&
                   counter(seen, "http_connections_closed") >= 1;
        }))
        return false;
    const Seen seen = supervisor.seen();
    INFO(seen.closed[0].code);
    CHECK(seen.closed[0].connection == 1);
    CHECK(seen.closed[0].code == code);
    return seen.closed.size() == 1 && seen.closed[0].code == code;
}

}  // namespace

TEST_CASE("the client closes") {
    for (const unsigned code : {0U, 1000U, 4321U}) {
        CAPTURE(code);
        TestSupervisor supervisor(options());
        WsClient client(supervisor.port(), "/actor/chat/a");
        client.text("one");
        client.send(frame(kClose, code == 0 ? "" : closing(code, "bye")));
        CHECK(client.next().payload == "one");
        const ServerFrame got = client.next();
        CHECK(got.opcode == kClose);
        CHECK(got.code() == code);
        // The server ends the connection first, as it should.
        CHECK(client.is_ended());
        client.close();
        CHECK(is_told_once(supervisor, code == 0 ? 1005 : code));
        CHECK(supervisor.seen().closed[0].reason == (code == 0 ? "" : "bye"));
        CHECK(counter(supervisor.seen(), "http_sockets_closed_by_client") == 1);
    }
}

TEST_CASE("the actor closes") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/chat/a");
    client.text("!close 4001 enough of this");
    const ServerFrame got = client.next();
    CHECK(got.code() == 4001);
    CHECK(got.payload.substr(2) == "enough of this");
    // What it says until it has read that is not heard.
    client.text("too late");
    client.send(frame(kClose, closing(4001)));
    CHECK(client.is_ended());
    client.close();
    CHECK(is_told_once(supervisor, 4001));
    CHECK(supervisor.seen().messages.size() == 1);
    CHECK(counter(supervisor.seen(), "http_sockets_closed_by_actor") == 1);
}

TEST_CASE("a message that is not taken closes with the actor's code") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/chat/a");
    client.text("!refuse 4002 not that");
    CHECK(client.is_closed_with(4002));
    client.send(frame(kClose, closing(4002)));
    CHECK(client.is_ended());
    client.close();
    CHECK(is_told_once(supervisor, 4002));
}

TEST_CASE("actor_closes_with_what_is_no_code_and_sends_what_is_no_text") {
    for (const char* order : {"!close 1006 x", "!close 99 x", "!refuse 5000 x", "!garbage"}) {
        CAPTURE(order);
        TestSupervisor supervisor(options());
        WsClient client(supervisor.port(), "/actor/chat/a");
        client.text(order);
        CHECK(client.is_closed_with(1011));
        client.close();
        CHECK(is_told_once(supervisor, 1011));
    }
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/chat/a");
    client.text("!close 0 without");
    const ServerFrame got = client.next();
    CHECK(got.opcode == kClose);
    CHECK(got.payload.empty());
    client.close();
    CHECK(is_told_once(supervisor, 1005));
}

TEST_CASE("both close at once") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/slow/a");
    client.text("slow");
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.open_messages == 1; }));
    supervisor.close(1, 4001, "mine");
    client.send(frame(kClose, closing(4002, "yours")));
    const unsigned heard = client.next().code();
    const bool one_of_both = heard == 4001 || heard == 4002;
    CHECK(one_of_both);
    CHECK(client.is_ended());
    client.close();
    supervisor.take();
    CHECK(is_told_once(supervisor, heard));
}

TEST_CASE("client_does_not_answer_a_close") {
    TestSupervisor supervisor(options({{"close_timeout", "200"}}));
    WsClient client(supervisor.port(), "/actor/chat/a");
    client.text("!close 4001 x");
    CHECK(client.is_closed_with(4001));
    CHECK(is_told_once(supervisor, 4001));
}

TEST_CASE("client_vanishes") {
    for (const bool by_reset : {false, true}) {
        for (const bool with_message : {false, true}) {
            CAPTURE(by_reset);
            CAPTURE(with_message);
            TestSupervisor supervisor(options());
            WsClient client(supervisor.port(), "/actor/slow/a");
            if (with_message) {
                client.text("slow");
                REQUIRE(supervisor.wait_until(
                    [](const Seen& seen) { return seen.open_messages == 1; }));
            }
            by_reset ? client.reset() : client.close();
            REQUIRE(supervisor.wait_until([](const Seen& seen) { return !seen.closed.empty(); }));
            // The answer to its message comes late, and so does a word for it: neither is for anybody.
            supervisor.take();
            supervisor.say(1, false, "hello?");
            supervisor.close(1, 4001, "x");
            CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
            CHECK(is_told_once(supervisor, 1006));
            CHECK(counter(supervisor.seen(), "http_sockets_broken") == 1);
            CHECK(supervisor.seen().fault.empty());
        }
    }
}

TEST_CASE("client_shuts_its_sending_side") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/chat/a");
    client.text("one");
    CHECK(client.next().payload == "one");
    client.shut_sending();
    CHECK(client.is_ended());
    CHECK(is_told_once(supervisor, 1006));
}

TEST_CASE("client_leaves_before_it_is_accepted") {
    for (const int way : {0, 1, 2}) {
        CAPTURE(way);
        TestSupervisor supervisor(options());
        WsClient client(supervisor.port());
        client.send(get("/actor/late/a", upgrade_fields()));
        REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.held == 1; }));
        if (way == 0) client.reset();
        if (way == 1) client.close();
        if (way == 2) client.shut_sending();
        REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.cancelled == 1; }));
        CHECK(supervisor.seen().closed.empty());
        supervisor.release();
        REQUIRE(supervisor.wait_until([](const Seen& seen) { return !seen.closed.empty(); }));
        CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
        const Seen seen = supervisor.seen();
        CHECK(seen.closed.size() == 1);
        CHECK(seen.closed[0].connection == 1);
        CHECK(seen.closed[0].code == 1006);
        if (way == 2) CHECK(client.is_ended());
    }
}

TEST_CASE("no answer to a handshake comes in time, and then it does") {
    TestSupervisor supervisor(options({{"request_timeout", "200"}, {"sockets_max", "1"}}));
    TestClient client(supervisor.port());
    client.send(get("/actor/late/a", upgrade_fields()));
    CHECK(client.answer().status == 504);
    // Its place is taken for as long as the actor may think that it is open.
    CHECK(client.ask(get("/actor/chat/b", upgrade_fields())).status == 503);
    supervisor.release();
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.closed.size() == 1; }));
    CHECK(supervisor.seen().closed[0].code == 1006);
    CHECK(client.ask(get("/actor/chat/b", upgrade_fields())).status == 101);
}

TEST_CASE("a message is not taken in time") {
    TestSupervisor supervisor(options({{"request_timeout", "200"}}));
    WsClient client(supervisor.port(), "/actor/slow/a");
    client.text("slow");
    CHECK(client.is_closed_with(1011));
    supervisor.take();
    client.close();
    CHECK(is_told_once(supervisor, 1011));
    CHECK(counter(supervisor.seen(), "http_sockets_unanswered") == 1);
    CHECK(supervisor.seen().fault.empty());
}

TEST_CASE("client_does_not_read_what_its_actor_says") {
    TestSupervisor supervisor(options({{"socket_buffer_max", "131072"}, {"close_timeout", "300"}}));
    WsClient deaf(supervisor.port(), "/actor/chat/deaf", 4096);
    WsClient other(supervisor.port(), "/actor/chat/other");
    std::uint64_t said = 0;
    const auto is_over = [](const Seen& seen) { return !seen.closed.empty(); };
    // The kernel takes a few MiB before it says no.
    for (int i = 0; i < 400 && supervisor.seen().closed.empty(); ++i) {
        for (int j = 0; j < 4; ++j) supervisor.say(1, true, std::string(30'000, 'x'));
        said += 4;
        other.text("in between");
        REQUIRE(other.next().payload == "in between");
    }
    REQUIRE(supervisor.wait_until(is_over));
    CHECK(supervisor.seen().closed[0].connection == 1);
    CHECK(supervisor.seen().closed[0].code == 1008);
    CHECK(supervisor.wait_until([&](const Seen& seen) {
        return counter(seen, "http_sockets_unread") == 1 &&
               counter(seen, "http_socket_messages_dropped") >= 1;
    }));
    CHECK(supervisor.keeps_less_than(60'000));
    other.text("afterwards");
    CHECK(other.next().payload == "afterwards");
    CHECK(supervisor.seen().closed.size() == 1);
}

TEST_CASE("all sockets together keep no more than their bound") {
    TestSupervisor supervisor(
        options({{"sockets_memory_max", "1048576"}, {"close_timeout", "300"}}));
    // Each sends most of a message and stops there.
    const std::string most = frame(kBinary, std::string(40'000, 'x'), {.fin = false});
    std::vector<std::unique_ptr<WsClient>> clients;
    for (int i = 0; i < 30; ++i) {
        clients.push_back(std::make_unique<WsClient>(supervisor.port(), "/actor/chat/a"));
        REQUIRE(clients.back()->send(most));
    }
    // 26 of them fit.
    CHECK(supervisor.wait_until(
        [](const Seen& seen) { return counter(seen, "http_sockets_unread") == 4; }));
    int turned_away = 0;
    for (const auto& client : clients) {
        client->send(frame(0, "end"));
        const ServerFrame got = client->next();
        turned_away += got.code() == 1013 ? 1 : 0;
    }
    CHECK(turned_away == 4);
}

TEST_CASE("client_is_silent") {
    TestSupervisor supervisor(options({{"ping_interval", "100"}, {"pong_timeout", "300"}}));
    WsClient dead(supervisor.port(), "/actor/chat/dead");
    CHECK(dead.next_raw().opcode == kPing);
    // A pong that answers nothing, and noise, do not count.
    dead.send(frame(kPong, "hello"));
    dead.text("noise");
    CHECK(dead.next_raw().payload == "noise");
    CHECK(dead.next_raw().code() == 1011);
    CHECK(dead.is_ended());
    dead.close();
    CHECK(is_told_once(supervisor, 1006));
    CHECK(supervisor.seen().closed[0].reason == "no pong within pong_timeout");
    CHECK(counter(supervisor.seen(), "http_sockets_no_pong") == 1);
}

TEST_CASE("a client that answers pings stays") {
    TestSupervisor supervisor(options({{"ping_interval", "50"}, {"pong_timeout", "2000"}}));
    WsClient client(supervisor.port(), "/actor/chat/a");
    for (int i = 0; i < 10; ++i) {
        const ServerFrame got = client.next_raw();
        REQUIRE(got.opcode == kPing);
        REQUIRE(client.send(frame(kPong, got.payload)));
    }
    client.text("still here");
    CHECK(client.next().payload == "still here");
    CHECK(supervisor.seen().closed.empty());
}

TEST_CASE("client_sends_a_message_that_does_not_end") {
    TestSupervisor supervisor(options({{"body_timeout", "100"}, {"ping_interval", "100"}}));
    WsClient client(supervisor.port(), "/actor/chat/a");
    client.send(frame(kText, "begun", {.fin = false}));
    ServerFrame got = client.next();
    CHECK(got.code() == 1008);
    CHECK(got.payload.find("body_timeout") != std::string::npos);
    client.close();
    CHECK(is_told_once(supervisor, 1008));
}

TEST_CASE("shed closes sockets with 1012, and the process ends before its deadline") {
    TestSupervisor supervisor(options());
    WsClient idle(supervisor.port(), "/actor/chat/idle");
    WsClient busy(supervisor.port(), "/actor/slow/busy");
    busy.text("slow");
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.open_messages == 1; }));
    WsClient late(supervisor.port());
    late.send(get("/actor/late/a", upgrade_fields()));
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.held == 1; }));
    TestClient keeps_alive(supervisor.port());
    CHECK(keeps_alive.ask(get("/actor/fixed/a")).status == 200);
    supervisor.shed(20'000);
    CHECK(idle.is_closed_with(1012));
    CHECK(busy.is_closed_with(1012));
    idle.send(frame(kClose, closing(1012)));
    busy.send(frame(kClose, closing(1012)));
    CHECK(idle.is_ended());
    CHECK(busy.is_ended());
    CHECK(keeps_alive.ask(get("/actor/chat/new", upgrade_fields())).status == 503);
    supervisor.release();
    CHECK(late.answer().status == 101);
    CHECK(late.is_closed_with(1012));
    late.send(frame(kClose, closing(1012)));
    for (TestClient* client : {static_cast<TestClient*>(&idle),
                               static_cast<TestClient*>(&busy),
                               static_cast<TestClient*>(&late),
                               &keeps_alive})
        client->close();
    CHECK(supervisor.exit_code() == 0);
    const Seen seen = supervisor.seen();
    CHECK(seen.closed.size() == 3);
    for (const auto& closed : seen.closed) CHECK(closed.code == 1012);
}

TEST_CASE("shed_deadline_passes_with_sockets_open") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/slow/a");
    client.text("slow");
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.open_messages == 1; }));
    supervisor.shed(600);
    CHECK(client.is_closed_with(1012));
    CHECK(supervisor.exit_code() == 0);
    CHECK(supervisor.seen().closed.size() == 1);
    CHECK(supervisor.seen().closed[0].code == 1012);
}

TEST_CASE("supervisor_takes_nothing_more") {
    // All credit is gone: messages and ends wait in order, and nothing hangs.
    TestSupervisor supervisor(options({{"requests_open_max", "2000"}}));
    WsClient talks(supervisor.port(), "/actor/chat/a");
    WsClient leaves(supervisor.port(), "/actor/chat/b");
    std::vector<TestClient> clients;
    for (int i = 0; i < 1100; ++i) {
        clients.emplace_back(supervisor.port());
        clients.back().send(get("/actor/hold/x"));
    }
    // All are there, and some of them wait already.
    REQUIRE(supervisor.wait_until([](const Seen& seen) {
        return seen.held >= 1024 && counter(seen, "http_requests") == 1102;
    }));
    talks.text("waits");
    talks.send(frame(kPing, "p"));
    CHECK(talks.next().opcode == kPong);
    leaves.text("last word");
    leaves.send(frame(kClose, closing(1000)));
    CHECK(leaves.is_closed_with(1000));
    CHECK(leaves.is_ended());
    CHECK(supervisor.seen().messages.empty());
    CHECK(supervisor.seen().closed.empty());
    supervisor.release();
    CHECK(talks.next().payload == "waits");
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.closed.size() == 1; }));
    // Its last word came before its end.
    CHECK(supervisor.seen().heard == std::vector<std::string>{"twaits", "tlast word", "c1000"});
    supervisor.release();
    CHECK(supervisor.seen().fault.empty());
}

}  // namespace hf::gateway
