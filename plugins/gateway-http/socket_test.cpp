// WebSockets of the whole plugin as a process: handshakes, messages, orders of the actor, hostile clients. How they end is
// in socket_endings_test.cpp.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "abi/base/limits.hpp"
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

const FrameShape kMore{.fin = false};

}  // namespace

TEST_CASE("a client and its actor talk") {
    TestSupervisor supervisor(options());
    REQUIRE(supervisor.ready());
    WsClient client(supervisor.port(), "/actor/chat/al%20ice/room?x=1");
    REQUIRE(client.handshake.status == 101);
    CHECK(client.handshake.fields.at("sec-websocket-accept") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    CHECK(client.handshake.fields.at("upgrade") == "websocket");
    CHECK(client.handshake.fields.at("connection") == "Upgrade");
    CHECK(client.handshake.fields.at("server") == "holdfast");
    CHECK_FALSE(client.handshake.fields.contains("content-length"));
    // The actor sees a request, without what concerns this connection only.
    CHECK(supervisor.seen().opened == "GET /room?x=1|host=h|");
    client.text("hello");
    ServerFrame got = client.next();
    CHECK(got.opcode == kText);
    CHECK(got.payload == "hello");
    client.send(frame(kBinary, std::string("\0\xFF", 2)));
    got = client.next();
    CHECK(got.opcode == kBinary);
    CHECK(got.payload == std::string("\0\xFF", 2));
    client.text("!empty");
    got = client.next();
    CHECK(got.opcode == kText);
    CHECK(got.payload.empty());
    client.send(frame(kPing, "are you there"));
    got = client.next();
    CHECK(got.opcode == kPong);
    CHECK(got.payload == "are you there");
    // The largest message there and back, in pieces.
    std::string large(kPayloadBytesMax, '\0');
    for (std::size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 31 + i / 256);
    client.send(frame(kBinary, large.substr(0, 20'000), kMore) +
                frame(0, large.substr(20'000, 1), kMore) + frame(0, large.substr(20'001)));
    CHECK(client.next().payload == large);
    CHECK(supervisor.wait_until([](const Seen& seen) {
        return counter(seen, "http_socket_messages_in") == 4 &&
               counter(seen, "http_socket_messages_out") == 4;
    }));
    CHECK(supervisor.seen().closed.empty());
}

TEST_CASE("many messages in one piece arrive in order, and byte by byte as well") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/chat/a");
    std::string all;
    for (int i = 0; i < 2000; ++i) all += frame(kText, std::to_string(i));
    REQUIRE(client.send(all));
    for (int i = 0; i < 2000; ++i) {
        CAPTURE(i);
        REQUIRE(client.next().payload == std::to_string(i));
    }
    const std::string drops =
        frame(kText, "drop by ", kMore) + frame(kPing, "p") + frame(0, "drop");
    for (const char byte : drops) REQUIRE(client.send({&byte, 1}));
    CHECK(client.next().opcode == kPong);
    CHECK(client.next().payload == "drop by drop");
}

TEST_CASE("client_speaks_before_it_is_accepted") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port());
    client.send(get("/actor/late/a", upgrade_fields()) + frame(kText, "early") + frame(kPing, "p"));
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.held == 1; }));
    supervisor.release();
    CHECK(client.answer().status == 101);
    CHECK(client.next().opcode == kPong);
    CHECK(supervisor.wait_until(
        [](const Seen& seen) { return seen.messages == std::vector<std::string>{"tearly"}; }));
}

TEST_CASE("the actor may speak first, and chooses the subprotocol") {
    TestSupervisor supervisor(options());
    WsClient eager(supervisor.port(), "/actor/chat/eager");
    CHECK(eager.handshake.status == 101);
    CHECK(eager.next().payload == "welcome");
    WsClient chooses(supervisor.port());
    const Answer answer = chooses.ask(
        get("/actor/choose/two", upgrade_fields() + "Sec-WebSocket-Protocol: one, two\r\n"));
    CHECK(answer.status == 101);
    CHECK(answer.fields.at("sec-websocket-protocol") == "two");
    CHECK(supervisor.seen().opened.find("|sec-websocket-protocol=one, two|") != std::string::npos);
    CHECK(supervisor.seen().opened.find("sec-websocket-key") == std::string::npos);
}

TEST_CASE("handshakes that are refused leave no socket, and the connection goes on") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    CHECK(
        client.ask(get("/actor/chat/a", "Connection: Upgrade\r\nUpgrade: websocket\r\n")).status ==
        426);
    CHECK(client
              .ask(get("/actor/chat/a",
                       "Connection: Upgrade\r\nUpgrade: websocket\r\n"
                       "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n"))
              .status == 400);
    CHECK(client.ask(get("/nothing", upgrade_fields())).status == 404);
    // The actor's own no, in its words.
    const Answer no = client.ask(get("/actor/status/403", upgrade_fields()));
    CHECK(no.status == 403);
    CHECK(no.body.size() == 100);
    CHECK(client.ask(get("/actor/status/200", upgrade_fields())).status == 200);
    CHECK(client.ask(get("/actor/reason/4", upgrade_fields())).status == 503);
    CHECK(client.ask(get("/actor/reason/1", upgrade_fields())).status == 404);
    // A page is a page, whatever it is asked for as.
    CHECK(client.ask(get("/healthz", upgrade_fields())).status == 200);
    CHECK(client.ask(get("/actor/fixed/a")).status == 200);
    CHECK(supervisor.wait_until(
        [](const Seen& seen) { return counter(seen, "http_sockets_refused") == 2; }));
    CHECK(supervisor.seen().closed.empty());
}

TEST_CASE("actor_accepts_with_a_header_that_is_none") {
    TestSupervisor supervisor(options());
    for (const char* path : {"/actor/extra/a%0D%0AX-Evil:%201", "/actor/choose/other"}) {
        WsClient client(supervisor.port(), path);
        CHECK(client.handshake.status == 502);
        CHECK(client.is_ended());
    }
    // The actor believes that they are open, and hears that they are not.
    CHECK(supervisor.wait_until([](const Seen& seen) { return seen.closed.size() == 2; }));
    CHECK(supervisor.seen().closed[0].code == 1011);
    CHECK(WsClient(supervisor.port(), "/actor/extra/fine").handshake.fields.at("x") == "fine");
}

TEST_CASE("one message at a time is at the actor, and what follows stays with the client") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/slow/a");
    client.text("slow 0");
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.open_messages == 1; }));
    client.text("slow 1");
    client.text("slow 2");
    // A ping between them is answered all the same; behind a message that waits it would not be.
    WsClient other(supervisor.port(), "/actor/slow/b");
    other.text("slow other");
    other.send(frame(kPing, "p"));
    CHECK(other.next().opcode == kPong);
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.open_messages == 2; }));
    // Everything that was sent has long been there to be taken.
    CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
    CHECK(supervisor.seen().messages.size() == 2);
    for (std::size_t more = 3; more <= 4; ++more) {
        supervisor.take();
        REQUIRE(
            supervisor.wait_until([&](const Seen& seen) { return seen.messages.size() == more; }));
    }
    supervisor.take();
    CHECK_FALSE(supervisor.seen().two_at_once);
    CHECK(supervisor.seen().messages ==
          std::vector<std::string>{"tslow 0", "tslow other", "tslow 1", "tslow 2"});
}

TEST_CASE("client_sends_without_end_while_its_message_is_open") {
    TestSupervisor supervisor(options());
    WsClient client(supervisor.port(), "/actor/slow/a");
    client.text("slow 0");
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.open_messages == 1; }));
    const std::uint64_t before_kib = supervisor.memory_kib();
    // More than every buffer on the way takes: the gateway does not read it.
    const std::string message = frame(kBinary, std::string(40'000, 'x'));
    std::size_t sent = 0;
    while (sent < (std::size_t{64} << 20U)) {
        const std::size_t taken = client.send_some(message);
        sent += taken;
        if (taken < message.size()) break;
    }
    CHECK(sent < (std::size_t{64} << 20U));
    CHECK(supervisor.seen().messages.size() == 1);
    CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
    // A message and a read of it, and what the allocator makes of that.
    CHECK(supervisor.keeps_less_than(before_kib + 2048));
}

TEST_CASE("hostile frames end their own connection only") {
    TestSupervisor supervisor(options({{"message_bytes_max", "1000"}}));
    WsClient witness(supervisor.port(), "/actor/chat/witness");
    const auto closes = [&](const std::string& bytes, unsigned code) {
        CAPTURE(code);
        WsClient client(supervisor.port(), "/actor/chat/a");
        client.send(bytes);
        CHECK(client.is_closed_with(code));
        CHECK(client.is_ended());
    };
    closes(frame(kText, "x", {.masked = false}), 1002);
    closes(frame(kBinary, "x", {.says_bytes = std::uint64_t{1} << 63U}), 1002);
    closes(frame(kBinary, "x", {.says_bytes = std::uint64_t{1} << 62U}), 1009);
    closes(frame(kBinary, std::string(1001, 'x')), 1009);
    closes(frame(kText, "\xC3("), 1007);
    closes(frame(kText, "x", {.rsv = 4}), 1002);
    closes(frame(kPing, std::string(126, 'x')), 1002);
    std::string endless = frame(kText, "", kMore);
    for (int i = 0; i < 3000; ++i) endless += frame(0, "", kMore);
    closes(endless, 1008);
    closes("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1002);
    CHECK(supervisor.wait_until([](const Seen& seen) {
        return counter(seen, "http_sockets_malformed") == 6 &&
               counter(seen, "http_sockets_too_large") == 2 &&
               counter(seen, "http_sockets_unread") == 1 && seen.closed.size() == 9;
    }));
    witness.text("still here");
    CHECK(witness.next().payload == "still here");
    CHECK(supervisor.seen().messages.size() == 1);
    CHECK(supervisor.seen().fault.empty());
}

TEST_CASE("a flood of pings costs a pong at a time") {
    TestSupervisor supervisor(options());
    WsClient flood(supervisor.port(), "/actor/chat/a", 4096);
    // It reads nothing: were each ping answered at once, the pongs would pile up.
    std::string pings;
    for (int i = 0; i < 500; ++i) pings += frame(kPing, std::string(125, 'p'));
    for (int i = 0; i < 400; ++i) REQUIRE(flood.send(pings));
    CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
    CHECK(supervisor.keeps_less_than(60'000));
    flood.text("after all that");
    ServerFrame got = flood.next();
    while (got.opcode == kPong) got = flood.next();
    CHECK(got.payload == "after all that");
}

TEST_CASE("limits: sockets, connections of one client") {
    TestSupervisor supervisor(options({{"sockets_max", "2"}}));
    {
        WsClient one(supervisor.port(), "/actor/chat/a");
        WsClient two(supervisor.port(), "/actor/chat/a");
        TestClient three(supervisor.port());
        const Answer no = three.ask(get("/actor/chat/a", upgrade_fields()));
        CHECK(no.status == 503);
        CHECK(no.body.find("sockets_max") != std::string::npos);
        CHECK(no.fields.at("retry-after") == "1");
        // Requests go on.
        CHECK(three.ask(get("/actor/fixed/a")).status == 200);
        CHECK(three.ask(get("/actor/status/403", upgrade_fields())).status == 503);
    }
    REQUIRE(supervisor.wait_until([](const Seen& seen) { return seen.closed.size() == 2; }));
    CHECK(WsClient(supervisor.port(), "/actor/chat/a").handshake.status == 101);

    TestSupervisor counting(options({{"connections_per_client_max", "2"}}));
    TestClient first(counting.port());
    TestClient second(counting.port());
    CHECK(first.ask(get("/actor/fixed/a")).status == 200);
    CHECK(second.ask(get("/actor/fixed/a")).status == 200);
    TestClient third(counting.port());
    const Answer answer = third.answer();
    CHECK(answer.status == 503);
    CHECK(answer.body.find("connections_per_client_max") != std::string::npos);
    CHECK(third.is_ended());
    first.close();
    third.close();
    REQUIRE(counting.wait_until([](const Seen& seen) {
        return counter(seen, "http_connections_closed") == 2 &&
               counter(seen, "http_clients_refused") == 1;
    }));
    CHECK(TestClient(counting.port()).ask(get("/actor/fixed/a")).status == 200);
}

TEST_CASE("reserved headers of a client reach nobody, and respond-async is passed on") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    CHECK(client
              .ask(get("/actor/echo/a",
                       "X-Wasmkeep-Forwarded: 1\r\nx-wasmkeep-alarm-handoff: 1\r\n"
                       "X-Holdfast-Peer: n2\r\nX-HOLDFAST-Anything: 1\r\nX-Other: 2\r\n"))
              .body == "GET /|host=h|x-other=2|");
    CHECK_FALSE(supervisor.seen().durable);
    const Answer answer =
        client.ask(post("/actor/status/202", "x", "Prefer: wait=5, Respond-Async\r\n"));
    CHECK(answer.status == 202);
    CHECK(answer.fields.at("preference-applied") == "respond-async");
    CHECK(supervisor.seen().durable);
    CHECK_FALSE(client.ask(post("/actor/status/202", "x")).fields.contains("preference-applied"));
    CHECK_FALSE(supervisor.seen().durable);
    WsClient socket(supervisor.port());
    CHECK(
        socket.ask(get("/actor/chat/a", upgrade_fields() + "X-Wasmkeep-Forwarded: 1\r\n")).status ==
        101);
    CHECK(supervisor.seen().opened == "GET /|host=h|");
}

}  // namespace hf::gateway
