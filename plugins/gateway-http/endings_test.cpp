// The whole plugin as a process: slow and vanished clients, missing answers, shed and stop, what it holds and costs.
#include <dirent.h>
#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "abi/base/clock.hpp"
#include "plugins/gateway-http/test_client.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"

namespace hf::gateway {

namespace {

using Seen = TestSupervisor::Seen;

TestSupervisor::Options options(std::vector<std::pair<std::string, std::string>> settings = {}) {
    TestSupervisor::Options out;
    out.binary = HF_GATEWAY_HTTP;
    out.settings = std::move(settings);
    return out;
}

bool one_is_held(const Seen& seen) {
    return seen.held == 1;
}

std::uint64_t counter(const Seen& seen, const std::string& name) {
    const auto found = seen.counters.find(name);
    return found == seen.counters.end() ? 0 : found->second;
}

std::uint64_t switches_of(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    std::string word;
    std::uint64_t value = 0;
    while (status >> word)
        if (word == "voluntary_ctxt_switches:") status >> value;
    return value;
}

}  // namespace

TEST_CASE("client_sends_its_header_slowly") {
    TestSupervisor supervisor(options({{"header_timeout", "200"}}));
    TestClient silent(supervisor.port());
    TestClient slow(supervisor.port());
    slow.send("GET / HT");
    CHECK(slow.answer().status == 408);
    CHECK(slow.is_ended());
    CHECK(silent.is_ended());
}

TEST_CASE("client_sends_its_body_slowly") {
    TestSupervisor supervisor(options({{"body_timeout", "200"}}));
    TestClient client(supervisor.port());
    client.send("POST /actor/body/b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
    CHECK(client.answer().status == 408);
    CHECK(client.is_ended());
    CHECK(supervisor.seen().requests == 0);
    // A body that nobody wants is not waited for either.
    TestClient unwanted(supervisor.port());
    CHECK(
        unwanted.ask("POST /nothing HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel").status ==
        404);
    CHECK(unwanted.is_ended());
}

TEST_CASE("a body that is given up frees its place once") {
    TestSupervisor supervisor(options({{"requests_open_max", "2"}, {"body_timeout", "200"}}));
    const std::string head =
        "POST /actor/body/b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n";
    std::string large;
    for (int i = 0; i < 7; ++i) large += "1b00\r\n" + std::string(0x1b00, 'b') + "\r\n";
    const std::string long_target(8000, 'q');
    const std::string long_header = "X-Long: " + std::string(8000, 'h') + "\r\n";
    for (int round = 0; round < 4; ++round) {
        TestClient broken(supervisor.port());
        CHECK(broken.ask(head + "\r\nno size\r\n").status == 400);
        TestClient slow(supervisor.port());
        CHECK(slow.ask(head + "\r\n5\r\nhel").status == 408);
        TestClient together(supervisor.port());
        CHECK(together
                  .ask("POST /actor/body/b?" + long_target +
                       " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n" +
                       "Transfer-Encoding: chunked\r\n" + long_header + "\r\n" + large +
                       "0\r\n\r\n")
                  .status == 413);
        TestClient good(supervisor.port());
        CHECK(good.ask(get("/actor/fixed/a")).status == 200);
    }
}

TEST_CASE("an idle connection is closed without a word") {
    TestSupervisor supervisor(options({{"idle_timeout", "200"}}));
    TestClient client(supervisor.port());
    CHECK(client.ask(get("/actor/fixed/a")).status == 200);
    CHECK(client.is_ended());
}

TEST_CASE("no_answer_comes") {
    TestSupervisor supervisor(options({{"request_timeout", "200"}}));
    TestClient client(supervisor.port());
    const std::int64_t asked = monotonic_ns();
    client.send(get("/actor/hold/a"));
    const Answer answer = client.answer();
    CHECK(answer.status == 504);
    CHECK(monotonic_ns() - asked >= 400'000'000);
    const std::int64_t deadline = supervisor.seen().deadline_ns;
    CHECK(deadline >= asked + 200'000'000);
    CHECK(deadline < asked + 5'000'000'000);
    // The late answer meets nobody, least of all the next request of the same connection.
    supervisor.release();
    CHECK(client.ask(get("/actor/fixed/a")).body.size() == 100);
    CHECK(supervisor.wait_until(
        [](const Seen& seen) { return counter(seen, "http_late_answers") == 1; }));
    CHECK(supervisor.seen().fault.empty());
}

TEST_CASE("client_goes_while_its_request_is_open") {
    TestSupervisor supervisor(options());
    for (const bool by_reset : {false, true}) {
        CAPTURE(by_reset);
        const std::uint64_t before = supervisor.seen().cancelled;
        TestClient client(supervisor.port());
        client.send(get("/actor/hold/a"));
        REQUIRE(supervisor.wait_until(one_is_held));
        by_reset ? client.reset() : client.close();
        CHECK(
            supervisor.wait_until([&](const Seen& seen) { return seen.cancelled == before + 1; }));
        supervisor.release();
        CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
    }
    CHECK(supervisor.seen().fault.empty());
}

TEST_CASE("client_shuts_its_sending_side_and_still_reads") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    client.send(get("/actor/hold/a") + get("/actor/fixed/b") + "GET /half");
    client.shut_sending();
    REQUIRE(supervisor.wait_until(one_is_held));
    supervisor.release();
    CHECK(client.answer().body == "released");
    CHECK(client.answer().body.size() == 100);
    CHECK(client.is_ended());
}

TEST_CASE("client_does_not_read") {
    TestSupervisor supervisor(options({{"write_timeout", "300"}}));
    TestClient deaf(supervisor.port(), 4096);
    std::string all;
    for (int i = 0; i < 400; ++i) all += get("/actor/size/49152");
    deaf.send(all);
    // It is given up; others do not notice.
    CHECK(TestClient(supervisor.port()).ask(get("/actor/fixed/a")).status == 200);
    CHECK(supervisor.wait_until(
        [](const Seen& seen) { return counter(seen, "http_timed_out_write") == 1; }));
    CHECK(supervisor.seen().requests < 400);
}

TEST_CASE("shed finishes what is open and closes what is silent") {
    TestSupervisor supervisor(options());
    TestClient silent(supervisor.port());
    CHECK(silent.ask(get("/actor/fixed/a")).status == 200);
    TestClient busy(supervisor.port());
    CHECK(busy.ask(get("/actor/fixed/a")).status == 200);
    TestClient open(supervisor.port());
    open.send(get("/actor/hold/a"));
    REQUIRE(supervisor.wait_until(one_is_held));
    supervisor.shed(20'000);
    // A request that was on its way is still served, and told that it was the last.
    const Answer late = busy.ask(get("/actor/fixed/b"));
    CHECK(late.status == 200);
    CHECK(silent.is_ended());
    supervisor.release();
    const Answer answer = open.answer();
    CHECK(answer.body == "released");
    CHECK(answer.fields.at("connection") == "close");
    CHECK(open.is_ended());
    CHECK(busy.is_ended());
    silent.close();
    busy.close();
    open.close();
    CHECK(supervisor.exit_code() == 0);
}

TEST_CASE("shed_deadline_passes_with_requests_open") {
    TestSupervisor supervisor(options());
    TestClient open(supervisor.port());
    open.send(get("/actor/hold/a"));
    TestClient uploading(supervisor.port());
    uploading.send("POST /actor/body/b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel");
    REQUIRE(supervisor.wait_until(one_is_held));
    supervisor.shed(600);
    const Answer answer = open.answer();
    CHECK(answer.status == 504);
    CHECK(answer.fields.at("connection") == "close");
    CHECK(uploading.answer().status == 503);
    CHECK(supervisor.exit_code() == 0);
}

TEST_CASE("stop ends the process with a last word to everybody") {
    TestSupervisor supervisor(options());
    TestClient open(supervisor.port());
    open.send(get("/actor/hold/a"));
    REQUIRE(supervisor.wait_until(one_is_held));
    supervisor.stop();
    CHECK(open.answer().status == 504);
    CHECK(supervisor.exit_code() == 0);
}

TEST_CASE("the listener goes on when the process ends") {
    // The socket is the supervisor's: a connection that nobody accepts waits in it for the successor.
    TestSupervisor supervisor(options());
    supervisor.shed(0);
    CHECK(supervisor.exit_code() == 0);
    TestClient waiting(supervisor.port());
    CHECK(waiting.send(get("/actor/fixed/a")));
}

TEST_CASE("the process holds nothing but streams, link, loop, listeners and connections") {
    TestSupervisor supervisor(options());
    TestClient client(supervisor.port());
    CHECK(client.ask(get("/actor/fixed/a")).status == 200);
    const std::string folder = "/proc/" + std::to_string(supervisor.pid()) + "/fd";
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(folder.c_str()), ::closedir);
    REQUIRE(directory != nullptr);
    int sockets = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
        const std::string name = entry->d_name;
        if (name == "." || name == ".." || std::stoi(name) < 3) continue;
        std::array<char, 256> target{};
        const ssize_t size =
            ::readlink((folder + "/" + name).c_str(), target.data(), target.size() - 1);
        if (size <= 0) continue;
        const std::string what(target.data(), static_cast<std::size_t>(size));
        CAPTURE(what);
        sockets += what.starts_with("socket:") ? 1 : 0;
        const bool known =
            what.starts_with("socket:") || what.starts_with("pipe:") ||
            what == "anon_inode:[eventpoll]" || what == "anon_inode:[eventfd]" ||
            what == "/dev/null";  // the loop's reserve for accepting without descriptors
        CHECK(known);
    }
    // Control, the listener twice, one connection.
    CHECK(sockets == 4);
}

TEST_CASE("an idle process does not wake up") {
    TestSupervisor supervisor(options());
    {
        TestClient client(supervisor.port());
        CHECK(client.ask(get("/actor/fixed/a")).status == 200);
    }
    // The last counters are told within a second after the last thing counted.
    REQUIRE(supervisor.wait_until(
        [](const Seen& seen) { return counter(seen, "http_connections_closed") == 1; }));
    // Neither a word on the link nor a turn of the loop, for longer than any period of it.
    const auto quiet = [&] {
        const std::uint64_t turns = supervisor.seen().turns;
        return !supervisor.wait_until([&](const Seen& seen) { return seen.turns != turns; },
                                      std::chrono::milliseconds(1500));
    };
    REQUIRE(quiet());
    const std::uint64_t before = switches_of(supervisor.pid());
    REQUIRE(before != 0);
    CHECK(quiet());
    CHECK(switches_of(supervisor.pid()) == before);
}

}  // namespace hf::gateway
