// The operator's socket against clients that are polite, slow, greedy, broken or gone.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/control/control.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "abi/base/clock.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/control/test_directory.hpp"

using namespace hf;
using control::Responder;
using control::Server;
using nlohmann::json;

namespace {

constexpr std::int64_t kPatienceNs = 10'000'000'000;

// A loop and a server in it; the tests turn the loop themselves, so nothing runs beside them.
class Fixture {
public:
    Fixture() {
        REQUIRE(::uv_loop_init(&loop_) == 0);
        auto made = Server::listen(&loop_, path());
        REQUIRE_MESSAGE(made.ok(), made.error().message);
        server = std::move(made).value();
        server->on("echo", [](const json& request, Responder to) {
            to.done(request.value("what", json()));
        });
        server->on("keep", [this](const json&, Responder to) { kept.push_back(std::move(to)); });
        server->on("drop", [](const json&, const Responder&) {});
        server->on("name", [](const json& request, Responder to) {
            to.done(request.at("name").get<std::string>());
        });
        server->on("big", [](const json& request, Responder to) {
            to.done(std::string(request.at("n").get<std::size_t>(), 'x'));
        });
    }
    Fixture(const Fixture&) = delete;
    Fixture& operator=(const Fixture&) = delete;
    ~Fixture() {
        server.reset();
        ::uv_run(&loop_, UV_RUN_DEFAULT);
        CHECK(::uv_loop_close(&loop_) == 0);  // nothing left open
    }

    void turn() { ::uv_run(&loop_, UV_RUN_NOWAIT); }
    [[nodiscard]] std::filesystem::path path() const { return directory_.path() / "control.sock"; }

    std::unique_ptr<Server> server;
    std::vector<Responder> kept;

private:
    control::test::Directory directory_;
    uv_loop_t loop_{};
};

class Peer {
public:
    explicit Peer(Fixture& fixture, bool turn = true) : fixture_(&fixture) {
        fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        std::strncpy(name.sun_path, fixture.path().c_str(), sizeof(name.sun_path) - 1);
        REQUIRE(::connect(fd_.get(), reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0);
        if (turn) fixture.turn();
    }
    void write(std::string_view text) {
        const std::int64_t until = monotonic_ns() + kPatienceNs;
        while (!text.empty() && monotonic_ns() < until) {
            const ssize_t put = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
            if (put > 0) text.remove_prefix(static_cast<std::size_t>(put));
            if (put < 0 && errno != EAGAIN) return;
            fixture_->turn();
        }
    }
    // The next line; nothing at the end of the stream or of the patience.
    std::optional<json> read() {
        const std::int64_t until = monotonic_ns() + kPatienceNs;
        while (monotonic_ns() < until) {
            if (const std::size_t end = in_.find('\n'); end != std::string::npos) {
                json line = json::parse(in_.substr(0, end));
                in_.erase(0, end + 1);
                return line;
            }
            fixture_->turn();
            std::string bytes(65536, '\0');
            const ssize_t got = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
            if (got == 0 || (got < 0 && errno != EAGAIN)) return std::nullopt;
            if (got > 0) in_.append(bytes, 0, static_cast<std::size_t>(got));
        }
        FAIL("no answer in time");
        return std::nullopt;
    }
    std::optional<json> ask(const json& request) {
        write(request.dump() + '\n');
        return read();
    }
    [[nodiscard]] bool silent() {
        for (int i = 0; i < 20; ++i) fixture_->turn();
        pollfd state{fd_.get(), POLLIN, 0};
        return ::poll(&state, 1, 0) == 0;
    }
    void half_close() { ::shutdown(fd_.get(), SHUT_WR); }
    void close() {
        fd_.reset();
        for (int i = 0; i < 10; ++i) fixture_->turn();
    }

private:
    Fixture* fixture_;
    UniqueFd fd_;
    std::string in_;
};

std::string code_of(const std::optional<json>& line) {
    return line && line->contains("error") ? (*line)["error"]["code"].get<std::string>() : "none";
}

}  // namespace

TEST_CASE("a_request_gets_its_answer_with_its_id") {
    Fixture fixture;
    Peer peer(fixture);
    CHECK(peer.ask({{"op", "echo"}, {"what", {1, "ü"}}, {"id", 7}}) ==
          json{{"ok", true}, {"result", {1, "ü"}}, {"id", 7}});
    CHECK(peer.ask({{"op", "echo"}, {"what", nullptr}}) == json{{"ok", true}, {"result", nullptr}});
    CHECK(peer.ask({{"op", "echo"}, {"id", "abc"}}).value()["id"] == "abc");
}

TEST_CASE("progress_comes_before_the_final_answer_and_nothing_after_it") {
    Fixture fixture;
    Peer peer(fixture);
    peer.write("{\"op\":\"keep\",\"id\":1}\n");
    REQUIRE(peer.silent());
    REQUIRE(fixture.kept.size() == 1);
    Responder& to = fixture.kept[0];
    to.progress({{"stage", "shadow"}});
    CHECK(peer.read() == json{{"progress", {{"stage", "shadow"}}}, {"id", 1}});
    CHECK(to.open());
    to.done("full");
    to.progress("late");
    to.done("twice");
    to.fail(fail(Code::Busy, "thrice"));
    CHECK(!to.open());
    CHECK(peer.read() == json{{"ok", true}, {"result", "full"}, {"id", 1}});
    CHECK(peer.silent());
}

TEST_CASE("requests_of_one_client_are_served_one_after_the_other") {
    Fixture fixture;
    Peer peer(fixture);
    peer.write(
        "{\"op\":\"keep\",\"id\":1}\n{\"op\":\"echo\",\"id\":2}\n{\"op\":\"keep\",\"id\":3}\n");
    REQUIRE(peer.silent());
    REQUIRE(fixture.kept.size() == 1);
    fixture.kept[0].done(1);
    CHECK(peer.read().value()["id"] == 1);
    CHECK(peer.read().value()["id"] == 2);
    REQUIRE(fixture.kept.size() == 2);
    Peer other(fixture);
    CHECK(other.ask({{"op", "echo"}}).value()["ok"] == true);  // another client does not wait
}

TEST_CASE("broken_requests_are_answered_with_what_is_wrong") {
    Fixture fixture;
    Peer peer(fixture);
    for (const char* line : {"not json",
                             "[]",
                             "1",
                             "{}",
                             "{\"op\":1}",
                             "{\"op\":\"ehco\"}",
                             "{\"op\":\"name\"}",
                             "{\"op\":\"name\",\"name\":5}",
                             "{\"op\":\"echo\",\"id\":{}}",
                             "{\"op\":\"echo\",\"id\":[1]}",
                             "\xff",
                             "{\"op\":\"\\ud800\"}"}) {
        peer.write(std::string(line) + '\n');
        CAPTURE(std::string(line));
        CHECK(code_of(peer.read()) == "invalid");
    }
    peer.write("{\"x\":" + std::string(100000, '[') + "\n");
    CHECK(code_of(peer.read()) == "invalid");
    const auto unknown = peer.ask({{"op", "ehco"}});
    CHECK(unknown.value()["error"]["message"].get<std::string>().find("echo") != std::string::npos);
    peer.write("\n \r\n");  // blank lines are nothing
    CHECK(peer.ask({{"op", "echo"}}).value()["ok"] == true);
}

TEST_CASE("a_handler_that_forgets_its_request_is_answered_for") {
    Fixture fixture;
    Peer peer(fixture);
    CHECK(code_of(peer.ask({{"op", "drop"}, {"id", 9}})) == "unavailable");
    peer.write("{\"op\":\"keep\",\"id\":4}\n");
    REQUIRE(peer.silent());
    fixture.kept.clear();
    const auto line = peer.read();
    CHECK(code_of(line) == "unavailable");
    CHECK(line.value()["id"] == 4);
    CHECK(peer.ask({{"op", "echo"}}).value()["ok"] == true);
}

TEST_CASE("a_client_that_goes_away_leaves_a_deaf_responder") {
    Fixture fixture;
    int told = 0;
    {
        Peer peer(fixture);
        peer.write("{\"op\":\"keep\"}\n");
        REQUIRE(peer.silent());
        fixture.kept.at(0).on_gone([&] { ++told; });
        peer.close();
    }
    CHECK(told == 1);
    CHECK(!fixture.kept[0].open());
    fixture.kept[0].progress(1);
    fixture.kept[0].done(2);
    CHECK(fixture.server->clients() == 0);
    Peer next(fixture);
    CHECK(next.ask({{"op", "echo"}}).value()["ok"] == true);
}

TEST_CASE("a_half_closed_client_still_gets_its_answers") {
    Fixture fixture;
    Peer peer(fixture);
    peer.write(
        "{\"op\":\"keep\",\"id\":1}\n{\"op\":\"echo\",\"id\":2}");  // no line feed at the end
    peer.half_close();
    REQUIRE(peer.silent());
    fixture.kept.at(0).done(1);
    CHECK(peer.read().value()["id"] == 1);
    CHECK(peer.read().value()["id"] == 2);
    CHECK(!peer.read());
    CHECK(fixture.server->clients() == 0);
}

TEST_CASE("a_line_beyond_its_bound_ends_the_connection") {
    Fixture fixture;
    Peer exact(fixture);
    std::string line = R"({"op":"echo","what":")";
    line += std::string(control::kLineBytesMax - line.size() - 3, 'a') + "\"}\n";
    REQUIRE(line.size() == control::kLineBytesMax);
    exact.write(line);
    CHECK(exact.read().value()["ok"] == true);
    Peer over(fixture);
    over.write(std::string(control::kLineBytesMax + 10, 'a'));
    CHECK(code_of(over.read()) == "invalid");
    CHECK(!over.read());
    Peer whole(fixture);
    whole.write(std::string(control::kLineBytesMax, ' ') + "\n");
    CHECK(code_of(whole.read()) == "invalid");
}

TEST_CASE("an_answer_beyond_its_bound_becomes_an_error") {
    Fixture fixture;
    Peer peer(fixture);
    CHECK(code_of(peer.ask({{"op", "big"}, {"n", control::kLineBytesMax}, {"id", 3}})) == "busy");
    CHECK(peer.ask({{"op", "big"}, {"n", 1000000}}).value()["result"].get<std::string>().size() ==
          1000000);
}

TEST_CASE("a_client_that_never_reads_is_cut_off") {
    Fixture fixture;
    Peer peer(fixture);
    peer.write("{\"op\":\"keep\"}\n");
    REQUIRE(peer.silent() == true);
    Responder to = fixture.kept.at(0);
    int sent = 0;
    for (; sent < 20 && to.open(); ++sent) to.progress(std::string(1000000, 'x'));
    CHECK(sent >= 4);
    CHECK(sent < 20);
    CHECK(fixture.server->clients() == 0);
}

TEST_CASE("a_flood_of_tiny_lines_costs_no_square_of_time") {
    Fixture fixture;
    // Processor time, of which another's load takes nothing.
    const auto cost_of = [&](int lines, bool at_once) {
        Peer peer(fixture);
        std::string text;
        for (int i = 0; i < lines; ++i) text += "\n{}\n";
        const std::clock_t begin = std::clock();
        for (std::size_t at = 0; at < text.size(); at += at_once ? text.size() : 4)
            peer.write(std::string_view(text).substr(at, at_once ? text.size() : 4));
        return static_cast<double>(std::clock() - begin) / lines;
    };
    CHECK(cost_of(50000, true) < cost_of(2000, false));
    Peer next(fixture);
    CHECK(next.ask({{"op", "echo"}}).value()["ok"] == true);
}

TEST_CASE("the_longest_idle_client_makes_room_and_busy_ones_do_not") {
    Fixture fixture;
    std::vector<std::unique_ptr<Peer>> peers;
    for (std::size_t i = 0; i < control::kClientsMax; ++i)
        peers.push_back(std::make_unique<Peer>(fixture));
    for (std::size_t i = 1; i < peers.size(); ++i) {
        peers[i]->write("{\"op\":\"keep\"}\n");
        REQUIRE(peers[i]->silent());
    }
    Peer seventeenth(fixture);
    CHECK(!peers[0]->read());  // cut off
    CHECK(fixture.server->clients() == control::kClientsMax);
    CHECK(seventeenth.ask({{"op", "echo"}}).value()["ok"] == true);
    seventeenth.write("{\"op\":\"keep\"}\n");
    REQUIRE(seventeenth.silent());
    Peer eighteenth(fixture);
    CHECK(code_of(eighteenth.read()) == "busy");
    CHECK(!eighteenth.read());
}

TEST_CASE("a_stopping_server_answers_open_requests_and_removes_its_file") {
    Fixture fixture;
    Peer peer(fixture);
    peer.write("{\"op\":\"keep\",\"id\":5}\n");
    REQUIRE(peer.silent());
    fixture.server->close();
    fixture.server->close();
    const auto line = peer.read();
    CHECK(code_of(line) == "unavailable");
    CHECK(line.value()["id"] == 5);
    CHECK(!peer.read());
    CHECK(!std::filesystem::exists(fixture.path()));
    fixture.kept[0].done(1);
}

TEST_CASE("the_socket_is_for_its_owner_alone") {
    Fixture fixture;
    struct stat facts {};
    REQUIRE(::lstat(fixture.path().c_str(), &facts) == 0);
    CHECK(S_ISSOCK(facts.st_mode));
    CHECK((facts.st_mode & ALLPERMS) == (S_IRUSR | S_IWUSR));
    // Even where the mode is changed behind our back, the kernel's word on the peer counts.
    if (::geteuid() != 0) return;
    REQUIRE(::chmod(fixture.path().c_str(), 0666) == 0);
    REQUIRE(::chmod(fixture.path().parent_path().c_str(), 0755) == 0);
    REQUIRE(::seteuid(65534) == 0);
    Peer stranger(fixture, false);
    REQUIRE(::seteuid(0) == 0);
    CHECK(code_of(stranger.read()) == "refused");
    CHECK(!stranger.read());
}
