// Bodies that are too large for a record, both ways: intact, bounded, and given back however their clients leave.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "abi/base/limits.hpp"
#include "plugins/gateway-http/test_client.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"

namespace hf::gateway {

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;

TestSupervisor::Options options(std::vector<std::pair<std::string, std::string>> settings = {}) {
    TestSupervisor::Options out;
    out.binary = HF_GATEWAY_HTTP;
    out.settings = {{"body_bytes_max", std::to_string(64 * kMiB)}};
    out.settings.insert(out.settings.end(), settings.begin(), settings.end());
    return out;
}

std::string some(std::size_t bytes) {
    std::string out(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i * 31 + i / 4096);
    return out;
}

bool is_pattern(const std::string& body) {
    for (std::size_t i = 0; i < body.size(); ++i)
        if (body[i] != pattern(i)) return false;
    return true;
}

std::string chunked(std::string_view body, std::size_t piece) {
    std::string out;
    char line[32];
    for (std::size_t at = 0; at < body.size(); at += piece) {
        const std::string_view part = body.substr(at, piece);
        (void)std::snprintf(line, sizeof(line), "%zx\r\n", part.size());
        out.append(line).append(part).append("\r\n");
    }
    return out + "0\r\n\r\n";
}

std::string head_of(std::string_view fields, std::string_view path = "/actor/body/b") {
    return "POST " + std::string(path) + " HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}

std::string length(std::uint64_t bytes) {
    return "Content-Length: " + std::to_string(bytes) + "\r\n";
}

}  // namespace

TEST_CASE("large bodies go up and come down intact, by length and in chunks") {
    TestSupervisor supervisor(options());
    REQUIRE(supervisor.ready());
    TestClient client(supervisor.port());
    std::size_t files = 0;
    for (const std::size_t size : {kPayloadBytesMax, kPayloadBytesMax + 1, kMiB, 5 * kMiB + 3}) {
        CAPTURE(size);
        const std::string body = some(size);
        files += size > kPayloadBytesMax ? 2 : 0;
        const Answer answer = client.ask(post("/actor/body/b", body));
        REQUIRE(answer.status == 200);
        CHECK(answer.body == body);
        const Answer again =
            client.ask(head_of("Transfer-Encoding: chunked\r\n") + chunked(body, 10'000));
        REQUIRE(again.status == 200);
        CHECK(again.body == body);
    }
    CHECK(supervisor.seen().bodies.size() == files);
    CHECK(supervisor.wait_until([&](const auto& seen) { return seen.released == files; }));
    // The connection goes on, also with what was sent ahead.
    client.send(get("/actor/large/300000") + get("/actor/fixed/one") + get("/actor/large/70000"));
    CHECK(is_pattern(client.answer().body));
    CHECK(client.answer().body.size() == 100);
    CHECK(client.answer().body.size() == 70'000);
}

TEST_CASE("a large answer is announced to HEAD, and ends a connection that is to be closed") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    client.send("HEAD /actor/large/1000000 HTTP/1.1\r\nHost: h\r\n\r\n");
    const Answer head = client.answer(true);
    CHECK(head.status == 200);
    CHECK(head.fields.at("content-length") == "1000000");
    CHECK(supervisor.wait_until([](const auto& seen) { return seen.released == 1; }));
    const Answer last = client.ask(get("/actor/large/1000000", "Connection: close\r\n"));
    CHECK(last.body.size() == 1'000'000);
    CHECK(is_pattern(last.body));
    CHECK(client.is_ended());
    CHECK(supervisor.wait_until([](const auto& seen) { return seen.released == 2; }));
}

TEST_CASE("what is above the limit is refused before it is read") {
    TestSupervisor supervisor(options());
    for (const std::uint64_t size : {64 * kMiB + 1, 5 * 1024 * kMiB}) {
        CAPTURE(size);
        TestClient client(supervisor.port());
        const Answer answer = client.ask(head_of(length(size)));
        CHECK(answer.status == 413);
        CHECK(answer.body.find("body_bytes_max = 67108864") != std::string::npos);
    }
    TestSupervisor small(options({{"body_bytes_max", "100000"}}));
    TestClient client(small.port());
    client.send(head_of("Transfer-Encoding: chunked\r\n") + chunked(some(100'001), 50'000));
    CHECK(client.answer().status == 413);
    CHECK(supervisor.seen().bodies.empty());
}

TEST_CASE("a durable request has a body of a record, whatever else is taken") {
    TestSupervisor supervisor(options());
    const std::string prefers = "Prefer: respond-async\r\n";
    TestClient client(supervisor.port());
    CHECK(client.ask(post("/actor/body/b", some(kPayloadBytesMax), prefers)).status == 200);
    const Answer answer = client.ask(post("/actor/body/b", some(kPayloadBytesMax + 1), prefers));
    CHECK(answer.status == 413);
    CHECK(answer.body.find("49152") != std::string::npos);
    TestClient other(supervisor.port());
    const Answer chunks = other.ask(head_of(prefers + "Transfer-Encoding: chunked\r\n") +
                                    chunked(some(200'000), 30'000));
    CHECK(chunks.status == 413);
    CHECK(other.ask(get("/actor/fixed/one")).status == 200);
    CHECK(supervisor.seen().bodies.empty());
}

TEST_CASE("uploads together have a bound, and what is answered makes room") {
    TestSupervisor supervisor(options({{"bodies_memory_max", std::to_string(2 * kMiB)}}));
    TestClient first(supervisor.port());
    TestClient second(supervisor.port());
    first.send(post("/actor/hold/a", some(kMiB + kMiB / 2)));
    REQUIRE(supervisor.wait_until([](const auto& seen) { return seen.held == 1; }));
    const Answer refused = second.ask(post("/actor/body/b", some(kMiB)));
    CHECK(refused.status == 503);
    CHECK(refused.body.find("bodies_memory_max") != std::string::npos);
    CHECK(refused.fields.contains("retry-after"));
    // In chunks nobody knows before: the rest is thrown away, and the connection goes on.
    const Answer chunks =
        second.ask(head_of("Transfer-Encoding: chunked\r\n") + chunked(some(kMiB), 30'000));
    CHECK(chunks.status == 503);
    CHECK(second.ask(post("/actor/body/b", some(kMiB / 4))).status == 200);
    supervisor.release();
    CHECK(first.answer().status == 200);
    CHECK(second.ask(post("/actor/body/b", some(kMiB))).status == 200);
}

TEST_CASE("who is one too many with a large body is told that, and not of the memory") {
    TestSupervisor supervisor(options());
    std::vector<std::unique_ptr<TestClient>> clients;
    for (int i = 0; i < 256; ++i) {
        clients.push_back(std::make_unique<TestClient>(supervisor.port()));
        clients.back()->send(head_of(length(kMiB)));
    }
    REQUIRE(supervisor.wait_until([](const auto& seen) {
        const auto requests = seen.counters.find("http_requests");
        return requests != seen.counters.end() && requests->second == 256;
    }));
    TestClient late(supervisor.port());
    const Answer refused = late.ask(head_of(length(kMiB)));
    CHECK(refused.status == 503);
    CHECK(refused.body.find("256 large bodies") != std::string::npos);
    CHECK(refused.body.find("bodies_memory_max") == std::string::npos);
    clients.pop_back();
    REQUIRE(supervisor.wait_until([](const auto& seen) {
        const auto closed = seen.counters.find("http_connections_closed");
        return closed != seen.counters.end() && closed->second >= 1;
    }));
    TestClient again(supervisor.port());
    CHECK(again.ask(post("/actor/body/b", some(kMiB))).status == 200);
}

TEST_CASE("a client that leaves in the middle of an upload leaves nothing") {
    TestSupervisor supervisor(options({{"bodies_memory_max", std::to_string(2 * kMiB)}}));
    for (int i = 0; i < 4; ++i) {
        TestClient client(supervisor.port());
        client.send(head_of(length(2 * kMiB)) + some(kMiB));
        if (i % 2 == 0) client.reset();
    }
    CHECK(supervisor.wait_until([](const auto& seen) {
        const auto closed = seen.counters.find("http_connections_closed");
        return closed != seen.counters.end() && closed->second == 4;
    }));
    TestClient client(supervisor.port());
    CHECK(client.ask(post("/actor/body/b", some(2 * kMiB))).status == 200);
    CHECK(supervisor.seen().bodies.size() == 1);
}

TEST_CASE("a client that leaves in the middle of a download, or before it, gives it back") {
    TestSupervisor supervisor(options());
    for (int i = 0; i < 4; ++i) {
        TestClient client(supervisor.port(), 4096);
        client.send(get("/actor/large/20000000"));
        std::string some_of_it;
        CHECK(client.take(10'000, some_of_it) > 0);
        if (i % 2 == 0) client.reset();
    }
    CHECK(supervisor.wait_until([](const auto& seen) { return seen.released == 4; }));
    TestClient client(supervisor.port());
    CHECK(client.ask(get("/actor/fixed/one")).status == 200);
}

TEST_CASE("a client that reads nothing of a download is ended by write_timeout") {
    TestSupervisor supervisor(options({{"write_timeout", "300"}}));
    TestClient client(supervisor.port(), 4096);
    client.send(get("/actor/large/60000000"));
    CHECK(supervisor.wait_until([](const auto& seen) {
        const auto late = seen.counters.find("http_timed_out_write");
        return seen.released == 1 && late != seen.counters.end() && late->second == 1;
    }));
}

TEST_CASE("neither way is a body kept in this process") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    CHECK(client.ask(post("/actor/body/b", some(kMiB))).status == 200);
    const std::uint64_t before = supervisor.memory_kib();
    const std::string body = some(48 * kMiB);
    const Answer answer = client.ask(post("/actor/body/b", body));
    CHECK(answer.status == 200);
    CHECK(answer.body == body);
    // A reader that stops in the middle holds up nothing but itself.
    TestClient slow(supervisor.port(), 4096);
    slow.send(get("/actor/large/60000000"));
    std::string part;
    CHECK(slow.take(1000, part) > 0);
    CHECK(client.ask(get("/actor/fixed/one")).status == 200);
    CHECK(supervisor.keeps_less_than(before + 4 * 1024));
}

TEST_CASE("a download that is open when the process is to end is finished") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port(), 4096);
    client.send(get("/actor/large/20000000"));
    REQUIRE(supervisor.wait_until([](const auto& seen) { return seen.requests == 1; }));
    supervisor.shed(10'000);
    const Answer answer = client.answer();
    CHECK(answer.body.size() == 20'000'000);
    CHECK(is_pattern(answer.body));
    CHECK(client.is_ended());
    client.close();
    CHECK(supervisor.exit_code() == 0);
}

}  // namespace hf::gateway
