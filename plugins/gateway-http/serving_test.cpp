// The whole plugin as a process: requests, answers, refusals. The tests of endings are in endings_test.cpp.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "abi/base/limits.hpp"
#include "plugins/gateway-http/test_client.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"

namespace hf::gateway {

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

TestSupervisor::Options options(Settings settings = {}) {
    TestSupervisor::Options out;
    out.binary = HF_GATEWAY_HTTP;
    out.settings = std::move(settings);
    return out;
}

}  // namespace

TEST_CASE("a connection serves request after request") {
    TestSupervisor supervisor(options());
    REQUIRE(supervisor.ready());
    TestClient client(supervisor.port());
    const Answer answer = client.ask(get("/actor/fixed/one"));
    CHECK(answer.status == 200);
    CHECK(answer.body.size() == 100);
    CHECK(answer.fields.at("server") == "holdfast");
    CHECK(answer.fields.at("content-type") == "text/plain");
    CHECK(answer.fields.contains("date"));
    CHECK_FALSE(answer.fields.contains("connection"));
    CHECK(client.ask(post("/actor/echo/al%20ice/a?b", "hi", "X-Wasmkeep-Forwarded: me\r\nX: 1\r\n"))
              .body == "POST /a?b|host=h|content-length=2|x=1|hi");
    CHECK(client.ask(get("/metrics")).body == "metrics");
    CHECK(client.ask(post("/actor/body/b", std::string(2000, 'x'))).body == std::string(2000, 'x'));
    client.send("HEAD /actor/size/1000 HTTP/1.1\r\nHost: h\r\n\r\n");
    const Answer head = client.answer(true);
    CHECK(head.status == 200);
    CHECK(head.fields.at("content-length") == "1000");
    CHECK(client.ask(get("/actor/status/204")).status == 204);
    CHECK(client.ask(get("/actor/status/304")).status == 304);
    CHECK(client.ask(get("/healthz", "Connection: close\r\n")).fields.at("connection") == "close");
    CHECK(client.is_ended());
}

TEST_CASE("pipelined requests are answered in order") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    std::string all;
    for (int i = 0; i < 300; ++i)
        all += i % 3 == 0   ? get("/nothing/" + std::to_string(i))
               : i % 3 == 1 ? post("/actor/body/b", std::to_string(i))
                            : "POST /actor/body/b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                              "chunked\r\n\r\n1\r\n<\r\n3\r\n" +
                                  std::to_string(100 + i % 900) + "\r\n0\r\n\r\n";
    REQUIRE(client.send(all));
    for (int i = 0; i < 300; ++i) {
        CAPTURE(i);
        const Answer answer = client.answer();
        REQUIRE(answer.status == (i % 3 == 0 ? 404 : 200));
        if (i % 3 == 1) REQUIRE(answer.body == std::to_string(i));
        if (i % 3 == 2) REQUIRE(answer.body == "<" + std::to_string(100 + i % 900));
    }
}

TEST_CASE("a body is taken when it is wanted, and only then") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    const std::string expecting =
        "POST /actor/body/b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: "
        "5\r\n\r\n";
    CHECK(client.ask(expecting).status == 100);
    CHECK(client.ask("hello").body == "hello");
    // Without waiting.
    client.send(expecting + "again");
    Answer answer = client.answer();
    if (answer.status == 100) answer = client.answer();
    CHECK(answer.body == "again");
    // Refused: the client will not send it, so nothing else can follow on this connection.
    CHECK(client
              .ask("POST /nothing HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: "
                   "5\r\n\r\n")
              .status == 404);
    CHECK(client.is_ended());
    // Refused, but sent at once: thrown away, and the connection goes on.
    TestClient other(supervisor.port());
    CHECK(other.ask(post("/nothing", std::string(10'000, 'x'))).status == 404);
    CHECK(other.ask(get("/actor/fixed/one")).status == 200);
}

TEST_CASE("bodies up to the limit arrive intact both ways, larger ones are refused by name") {
    TestSupervisor supervisor(options());
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, kPayloadBytesMax - 1, kPayloadBytesMax}) {
        CAPTURE(size);
        TestClient client(supervisor.port());
        std::string body(size, '\0');
        for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<char>(i * 31 + i / 256);
        const Answer answer = client.ask(post("/actor/body/b", body));
        CHECK(answer.status == 200);
        CHECK(answer.body == body);
    }
    TestClient client(supervisor.port());
    const Answer answer = client.ask(post("/actor/body/b", std::string(kPayloadBytesMax + 1, 'x')));
    CHECK(answer.status == 413);
    CHECK(answer.body.find("body_bytes_max = 49152") != std::string::npos);
    CHECK(answer.fields.at("connection") == "close");
    // Told before a byte of the body is there.
    TestClient huge(supervisor.port());
    CHECK(huge.ask("POST /actor/body/b HTTP/1.1\r\nHost: h\r\nContent-Length: 5368709120\r\n\r\n")
              .status == 413);
    // A full body beside a full header and a long path is more than one event.
    TestClient event(supervisor.port());
    CHECK(event
              .ask(post("/actor/body/b/" + std::string(8000, 'p'),
                        std::string(kPayloadBytesMax, 'x'),
                        "X: " + std::string(11'000, 'h') + "\r\n"))
              .status == 413);
}

TEST_CASE("client_sends_all_of_a_refused_upload_before_it_reads") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    REQUIRE(
        client.send("POST /actor/body/b HTTP/1.1\r\nHost: h\r\nContent-Length: 67108864\r\n\r\n"));
    const std::string piece(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) REQUIRE(client.send(piece));
    CHECK(client.answer().status == 413);
    CHECK(client.is_ended());
}

TEST_CASE("headers and targets beyond their limits are refused by name") {
    TestSupervisor supervisor(options());
    TestClient header(supervisor.port());
    CHECK(header.ask(get("/", "X: " + std::string(13'000, 'x') + "\r\n")).status == 431);
    CHECK(header.is_ended());
    std::string many;
    for (int i = 0; i < 101; ++i) many += "X: y\r\n";
    CHECK(TestClient(supervisor.port()).ask(get("/", many)).status == 431);
    const Answer target = TestClient(supervisor.port()).ask(get("/" + std::string(8192, 'x')));
    CHECK(target.status == 414);
    CHECK(target.body.find("target_bytes_max = 8192") != std::string::npos);
    CHECK(supervisor.wait_until([](const TestSupervisor::Seen& seen) {
        const auto found = seen.counters.find("http_refused_header");
        return found != seen.counters.end() && found->second == 2 &&
               seen.counters.at("http_answers_4xx") == 3;
    }));
}

TEST_CASE("what became of a request decides the status") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    const int statuses[] = {0, 404, 400, 413, 503, 503, 504, 500, 507, 500};
    for (int reason = 1; reason < 10; ++reason) {
        CAPTURE(reason);
        const Answer answer = client.ask(get("/actor/reason/" + std::to_string(reason)));
        CHECK(answer.status == statuses[reason]);
        CHECK(answer.fields.at("content-type") == "application/json");
        CHECK(answer.body.find("\"error\":\"why: " + std::to_string(reason) + "\"") !=
              std::string::npos);
        CHECK(answer.fields.contains("retry-after") == (answer.status == 503));
        if (answer.status == 503) CHECK(answer.fields.at("retry-after") == "2");
    }
}

TEST_CASE("actor_answers_what_is_no_http") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    CHECK(client.ask(get("/actor/header/a%0D%0AX-Evil:%201")).status == 502);
    CHECK(client.ask(get("/actor/status/101")).status == 502);
    CHECK(client.ask(get("/actor/status/600")).status == 502);
    CHECK(client.ask(get("/actor/header/fine")).fields.at("x") == "fine");
}

TEST_CASE("more requests at once than there is credit for wait their turn") {
    constexpr std::uint64_t kClients = 1100;
    TestSupervisor supervisor(options({{"requests_open_max", "2000"}}));
    std::vector<TestClient> clients;
    for (std::uint64_t i = 0; i < kClients; ++i) {
        clients.emplace_back(supervisor.port());
        clients.back().send(get("/actor/hold/x"));
    }
    // The link gives credit for 1024 and a few, and those are all that the supervisor hears of.
    REQUIRE(
        supervisor.wait_until([](const TestSupervisor::Seen& seen) { return seen.held >= 1024; }));
    CHECK(supervisor.seen().held < kClients);
    CHECK(supervisor.seen().client == "127.0.0.1");
    for (std::uint64_t asked = supervisor.seen().requests; asked < kClients;
         asked = supervisor.seen().requests) {
        supervisor.release();
        REQUIRE(supervisor.wait_until(
            [&](const TestSupervisor::Seen& seen) { return seen.requests > asked; }));
    }
    supervisor.release();
    for (TestClient& client : clients) CHECK(client.answer().body == "released");
}

TEST_CASE("requests beyond requests_open_max are turned away without effect") {
    TestSupervisor supervisor(options({{"requests_open_max", "2"}}));
    TestClient one(supervisor.port());
    TestClient two(supervisor.port());
    TestClient three(supervisor.port());
    one.send(get("/actor/hold/x"));
    two.send(get("/actor/hold/x"));
    REQUIRE(supervisor.wait_until([](const TestSupervisor::Seen& seen) { return seen.held == 2; }));
    const Answer answer = three.ask(post("/actor/fixed/x", "body"));
    CHECK(answer.status == 503);
    CHECK(answer.fields.at("retry-after") == "1");
    CHECK(supervisor.seen().requests == 2);
    supervisor.release();
    CHECK(one.answer().status == 200);
    CHECK(three.ask(get("/actor/fixed/x")).status == 200);
}

TEST_CASE("a silent connection makes room for a new one, a busy one does not") {
    TestSupervisor supervisor(options({{"connections_max", "2"}}));
    TestClient silent(supervisor.port());
    CHECK(silent.ask(get("/actor/fixed/x")).status == 200);
    TestClient busy(supervisor.port());
    busy.send(get("/actor/hold/x"));
    REQUIRE(supervisor.wait_until([](const TestSupervisor::Seen& seen) { return seen.held == 1; }));
    TestClient third(supervisor.port());
    third.send(get("/actor/hold/x"));
    CHECK(silent.is_ended());
    REQUIRE(supervisor.wait_until([](const TestSupervisor::Seen& seen) { return seen.held == 2; }));
    TestClient fourth(supervisor.port());
    const Answer answer = fourth.answer();
    CHECK(answer.status == 503);
    CHECK(answer.body.find("connections_max") != std::string::npos);
    CHECK(fourth.is_ended());
}

TEST_CASE("garbage_from_many_clients") {
    TestSupervisor supervisor(options());
    std::uint64_t state = 1;
    const auto next = [&] {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<std::size_t>(state >> 33U);
    };
    const std::string pieces[] = {"GET ",
                                  "/actor/fixed/a",
                                  " HTTP/1.1\r\n",
                                  "Host: h\r\n",
                                  "\r\n",
                                  "\n",
                                  "\r",
                                  "Transfer-Encoding: chunked\r\n",
                                  "Content-Length: ",
                                  "5\r\n",
                                  "hello",
                                  "0\r\n\r\n",
                                  std::string("\0\x80\xFF", 3),
                                  "POST ",
                                  "Expect: 100-continue\r\n",
                                  ":",
                                  ";=\"",
                                  "ffff"};
    for (int i = 0; i < 300; ++i) {
        TestClient client(supervisor.port());
        std::string bytes;
        for (std::size_t n = next() % 20; n > 0; --n) bytes += pieces[next() % std::size(pieces)];
        client.send(bytes);
        if (i % 2 == 0) client.reset();
    }
    CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/one")).status == 200);
    CHECK(supervisor.seen().fault.empty());
}

TEST_CASE("a wrong setting keeps the plugin from starting") {
    TestSupervisor supervisor(options({{"body_bytes", "1"}}));
    CHECK_FALSE(supervisor.ready());
    CHECK(supervisor.error().find("unknown setting \"body_bytes\"") != std::string::npos);
    CHECK(supervisor.exit_code() == 1);
}

}  // namespace hf::gateway
