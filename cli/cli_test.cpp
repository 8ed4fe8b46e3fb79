// The whole command line against a real unix socket. The other side is a thread that answers what the test tells it to.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "abi/base/unique_fd.hpp"
#include "cli/app.hpp"
#include "cli/text.hpp"
#include "cli/wire.hpp"

using hf::cli::Json;
namespace fs = std::filesystem;

namespace {

class TempDir {
public:
    TempDir() {
        std::string name = (fs::temp_directory_path() / "holdfast-cli-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir() { fs::remove_all(path); }
    fs::path path;
};

// Listens like a node. The script gets each request and writes whatever bytes it likes; the connection ends after it.
class FakeNode {
public:
    using Script = std::function<void(int fd, const std::string& request)>;

    explicit FakeNode(const fs::path& data, Script script) : script_(std::move(script)) {
        fs::create_directories(data / "run");
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string path = (data / "run" / "control.sock").string();
        REQUIRE(path.size() < sizeof(address.sun_path));
        std::strcpy(address.sun_path, path.c_str());
        listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
                0);
        REQUIRE(::listen(listener_.get(), 8) == 0);
        std::array<int, 2> ends{};
        REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
        stop_read_.reset(ends[0]);
        stop_write_.reset(ends[1]);
        thread_ = std::thread([this] { serve(); });
    }
    FakeNode(const FakeNode&) = delete;
    FakeNode& operator=(const FakeNode&) = delete;
    ~FakeNode() {
        stop_write_.reset();
        thread_.join();
    }

    // What was asked so far, in order; connections without a line are not counted.
    std::vector<Json> requests() {
        const std::lock_guard guard(mutex_);
        return requests_;
    }
    // Blocks until the client hung up or the node is stopped.
    void wait_for_hangup(int fd) {
        std::array<pollfd, 2> both{pollfd{fd, POLLRDHUP, 0}, pollfd{stop_read_.get(), POLLIN, 0}};
        ::poll(both.data(), both.size(), 60'000);
    }

private:
    void serve() {
        for (;;) {
            std::array<pollfd, 2> both{pollfd{listener_.get(), POLLIN, 0},
                                       pollfd{stop_read_.get(), POLLIN, 0}};
            ::poll(both.data(), both.size(), -1);
            if (both[1].revents != 0) return;
            const hf::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            std::string line;
            char c = 0;
            while (::recv(client.get(), &c, 1, 0) == 1 && c != '\n') line += c;
            if (line.empty()) continue;  // somebody only looked whether we listen
            {
                const std::lock_guard guard(mutex_);
                requests_.push_back(Json::parse(line));
            }
            script_(client.get(), line);
        }
    }

    Script script_;
    hf::UniqueFd listener_;
    hf::UniqueFd stop_read_;
    hf::UniqueFd stop_write_;
    std::thread thread_;
    std::mutex mutex_;
    std::vector<Json> requests_;
};

void say(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count <= 0) return;
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

FakeNode::Script answers(const std::string& bytes) {
    return [bytes](int fd, const std::string&) { say(fd, bytes); };
}

struct Ran {
    int exit = -1;
    std::string out;
    std::string err;
};

Ran run(const TempDir& dir, std::vector<std::string> words) {
    hf::cli::Surroundings around;
    around.executable_dir = dir.path / "bin";
    around.working_dir = dir.path;
    around.data_variable = dir.path.string();
    around.system_data = dir.path / "no-such-data";
    around.system_config = dir.path / "system.toml";
    std::ostringstream out;
    std::ostringstream err;
    Ran ran;
    ran.exit = hf::cli::run(words, around, out, err);
    ran.out = out.str();
    ran.err = err.str();
    return ran;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

void program(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    fs::permissions(path, fs::perms::owner_all);
}

std::string content(const fs::path& path) {
    std::ostringstream out;
    out << std::ifstream(path).rdbuf();
    return out.str();
}

}  // namespace

TEST_CASE("status is printed for people and passed on whole as JSON") {
    TempDir dir;
    const std::string result =
        R"({"node":"n1","version":"0.1.0","role":"wasmkeep","store":"storage-local","ready":true,"uptime_ms":192000,)"
        R"("policies":{"placement":"rendezvous","drain":"paced"},"missing_walls":["landlock"],"accepted":7,"answered":6,)"
        R"("links":[{"name":"gateway/0","queued":0},{"name":"runtime/1","extra":5}],"new_field":[1,2]})";
    FakeNode node(dir.path, answers(R"({"ok":true,"result":)" + result + "}\n"));
    const Ran text = run(dir, {"status"});
    CHECK(text.exit == 0);
    CHECK(text.err.empty());
    CHECK(has(text.out, "node             n1\n"));
    CHECK(has(text.out, "up               3m 12s\n"));
    CHECK(has(text.out, "policies         placement rendezvous, drain paced\n"));
    CHECK(has(text.out, "missing walls    landlock\n"));
    CHECK(has(text.out, "units            -\n"));
    CHECK(has(text.out, "gateway/0       0      -\n"));
    CHECK(has(text.out, "runtime/1       -      5\n"));
    const Ran json = run(dir, {"status", "--json"});
    CHECK(json.exit == 0);
    CHECK(json.out == result + "\n");
    CHECK(run(dir, {"--json", "status"}).out == json.out);
    CHECK(node.requests().front() == Json{{"op", "status"}});
}

TEST_CASE("plugins shows instances, last exits and bad builds") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(
            R"({"ok":true,"result":{"plugins":[)"
            R"({"name":"placement","kind":"placement","use":"scheduler","policy":"rendezvous","generation":3,"pid":41,"state":"serving","restarts":2,)"
            R"("last_exit":"killed by signal 11","reason":"","bad_builds":[{"binary":"ab12","policy":"crash"}],)"
            R"("instances":[{"index":0,"generation":3,"pid":41,"state":"serving","restarts":2,"resident":0,"uptime_ms":950}]},)"
            R"({"name":"runtime","kind":"runtime","use":"runtime-wasm","policy":null,"state":"serving",)"
            R"("instances":[{"index":0,"generation":4,"pid":51,"state":"serving","resident":12},{"index":1,"generation":5,"pid":52,"state":"failed"}]}]}})"
            "\n"));
    const Ran ran = run(dir, {"plugins"});
    CHECK(ran.exit == 0);
    CHECK(has(ran.out,
              "placement    placement  scheduler     rendezvous  serving    3   41         2      "
              "0  950ms\n"));
    CHECK(has(ran.out,
              "runtime      runtime    runtime-wasm  -           serving    -    -         -      "
              "-  -\n"));
    CHECK(has(ran.out,
              "  runtime/1                                       failed     5   52         -      "
              "-  -\n"));
    CHECK(has(ran.out, "placement  last exit: killed by signal 11\n"));
    CHECK(has(ran.out, "placement  not chosen again by itself: binary ab12, policy crash\n"));
}

TEST_CASE("names cannot move the terminal's cursor") {
    TempDir dir;
    FakeNode node(dir.path,
                  answers("{\"ok\":true,\"result\":{\"actors\":[{\"class\":\"c\",\"name\":"
                          "\"a\\u001b[2Jb\\u009bm\\n\"}]}}\n"));
    const Ran ran = run(dir, {"actors"});
    CHECK(ran.exit == 0);
    CHECK(has(ran.out, "a\\x1b[2Jb\\x9bm\\x0a"));
    CHECK_FALSE(has(ran.out, "\x1b"));
}

TEST_CASE("actors pages by unit and --all ends even if the node always says more") {
    TempDir dir;
    FakeNode node(dir.path, [](int fd, const std::string& request) {
        const bool second = request.find("actor/t/c/2") != std::string::npos;
        say(fd,
            second
                ? R"({"ok":true,"result":{"actors":[{"unit":"actor/t/c/3","name":"three"}],"more":false}})"
                  "\n"
                : R"({"ok":true,"result":{"actors":[{"unit":"actor/t/c/1","name":"one"},{"unit":"actor/t/c/2","name":"two"}],"more":true}})"
                  "\n");
    });
    const Ran page = run(dir, {"actors", "--class", "c", "--limit", "2"});
    CHECK(has(page.out, "more: --after actor/t/c/2, or --all"));
    CHECK(node.requests()[0] == Json{{"op", "actors"}, {"limit", 2}, {"class", "c"}});
    const Ran all = run(dir, {"actors", "--all", "--json"});
    CHECK(all.exit == 0);
    CHECK(Json::parse(all.out)["actors"].size() == 3);
    CHECK(node.requests().size() == 3);
    CHECK(node.requests()[2]["after"] == "actor/t/c/2");
    CHECK(run(dir, {"actors", "--limit", "0"}).exit == 2);

    TempDir other;
    FakeNode liar(other.path,
                  answers(R"({"ok":true,"result":{"actors":[{"unit":"u"}],"more":true}})"
                          "\n"));
    CHECK(run(other, {"actors", "--all"}).exit == 0);
    CHECK(liar.requests().size() == 2);
}

TEST_CASE("swap sends what was said, shows progress and ends with the node's verdict") {
    TempDir dir;
    program(dir.path / "my policy", "x");
    FakeNode node(dir.path, [](int fd, const std::string& request) {
        say(fd,
            "{\"progress\":\"shadow: 64 "
            "answers\"}\n{\"progress\":{\"stage\":\"canary\",\"percent\":10}}\n");
        const bool bad = request.find("crash") != std::string::npos;
        say(fd,
            bad ? R"({"ok":true,"result":{"outcome":"rolled-back","reason":"it died: signal 11"}})"
                  "\n"
                : R"({"ok":true,"result":{"outcome":"full","generation":4}})"
                  "\n");
    });
    const Ran full = run(dir,
                         {"swap",
                          "placement",
                          "--policy",
                          "least-loaded",
                          "--binary",
                          "my policy",
                          "--set",
                          "a=b=c",
                          "--set",
                          "d=",
                          "--expect",
                          "same"});
    CHECK(full.exit == 0);
    CHECK(full.out == "outcome     full\ngeneration  4\n");
    CHECK(full.err == "holdfast: shadow: 64 answers\nholdfast: stage canary, percent 10\n");
    CHECK(node.requests()[0] == Json{{"op", "swap"},
                                     {"plugin", "placement"},
                                     {"policy", "least-loaded"},
                                     {"binary", (dir.path / "my policy").string()},
                                     {"settings", {{"a", "b=c"}, {"d", ""}}},
                                     {"expect", "same"}});
    const Ran back = run(dir, {"swap", "placement", "--policy", "crash"});
    CHECK(back.exit == 1);
    CHECK(has(back.out, "rolled-back"));
    CHECK(run(dir, {"rollback", "placement"}).exit == 0);
    CHECK(run(dir, {"plugin", "reset", "runtime"}).exit == 0);
    CHECK(node.requests()[2] == Json{{"op", "rollback"}, {"plugin", "placement"}});
    CHECK(node.requests()[3] == Json{{"op", "reset"}, {"plugin", "runtime"}});
}

TEST_CASE("a wrong command line is 2, asks nobody, and names what is wrong") {
    TempDir dir;
    FakeNode node(dir.path, answers("{\"ok\":true}\n"));
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
        {{}, "subcommand"},
        {{"statsu"}, "statsu"},
        {{"status", "--jsn"}, "--jsn"},
        {{"status", "--timeout", "0"}, "--timeout"},
        {{"status", "--timeout", "61m"}, "--timeout"},
        {{"swap"}, "plugin"},
        {{"swap", "placement"}, "swap what?"},
        {{"swap", "placement", "--set", "x"}, "KEY=VALUE"},
        {{"swap", "placement", "--set", "=x"}, "KEY=VALUE"},
        {{"swap", "placement", "--set", "x=1", "--set", "x=2"}, "twice"},
        {{"swap", "placement", "--binary", "nowhere"}, "no such file"},
        {{"swap", "placement", "--policy", "p", "--expect", "other"}, "--expect"},
        {{"rollback"}, "plugin"},
        {{"plugin", "reset"}, "plugin"},
        {{"build"}, "module"},
    };
    for (const auto& [words, named] : wrong) {
        const Ran ran = run(dir, words);
        CAPTURE(ran.err);
        CHECK(ran.exit == 2);
        CHECK(ran.out.empty());
        CHECK(has(ran.err, named));
    }
    CHECK(node.requests().empty());
    const Ran json = run(dir, {"statsu", "--json"});
    CHECK(json.exit == 2);
    CHECK(Json::parse(json.out)["error"]["code"] == "usage");
}

TEST_CASE("every command's help has an example and ends with 0") {
    TempDir dir;
    const std::vector<std::vector<std::string>> commands{{"status"},
                                                         {"plugins"},
                                                         {"actors"},
                                                         {"swap"},
                                                         {"rollback"},
                                                         {"plugin", "reset"},
                                                         {"config", "check"},
                                                         {"config", "show"},
                                                         {"build"}};
    for (auto words : commands) {
        words.emplace_back("--help");
        const Ran ran = run(dir, words);
        CHECK(ran.exit == 0);
        CHECK(has(ran.out, "Example:\n  holdfast " + words.front()));
    }
    CHECK(has(run(dir, {"--help"}).out, "Exit codes: 0 done"));
    CHECK(has(run(dir, {"--version"}).out, "holdfast 0."));
}

TEST_CASE("the node's no is 1, with its code and sentence") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(R"({"ok":false,"error":{"code":"not_found","message":"no policy \"x\"\u001b"}})"
                "\n"));
    const Ran ran = run(dir, {"swap", "placement", "--policy", "x", "--json"});
    CHECK(ran.exit == 1);
    CHECK(ran.err == "holdfast: no policy \"x\"\\x1b\n");
    CHECK(Json::parse(ran.out)["error"]["code"] == "not_found");
}

TEST_CASE("nobody there is 3: no directory, no socket, a left-over socket, a plain file") {
    TempDir dir;
    CHECK(run(dir, {"--node", (dir.path / "none").string(), "status"}).exit == 3);
    const Ran none = run(dir, {"status", "--json"});
    CHECK(none.exit == 3);
    CHECK(has(none.err, "no node runs there"));
    CHECK(Json::parse(none.out)["error"]["code"] == "unreachable");
    { FakeNode gone(dir.path, answers("")); }
    const Ran left = run(dir, {"status"});
    CHECK(left.exit == 3);
    CHECK(has(left.err, "left behind"));
    fs::remove(dir.path / "run" / "control.sock");
    std::ofstream(dir.path / "run" / "control.sock") << "x";
    CHECK(run(dir, {"status"}).exit == 3);
}

TEST_CASE("a node that hangs up, garbles or floods is 3 and never a crash") {
    const std::string deep(200'000, '[');
    const std::vector<std::pair<std::string, std::string>> answers_and_words{
        {"", "closed the connection"},
        {"{\"ok\":true", "closed the connection"},
        {"{\"progress\":1}\n", "closed the connection"},
        {"hello\n", "not a JSON object"},
        {"\n", "not a JSON object"},
        {"[1]\n", "not a JSON object"},
        {deep + "\n", "not a JSON object"},
        {"{\"ok\":true,\"result\":\"\xff\xfe\"}\n", "not a JSON object"},
        {"{}\n", "neither"},
        {"{\"ok\":1}\n", "neither yes nor"},
        {"{\"ok\":false}\n", "neither yes nor"},
        {"{\"ok\":false,\"error\":\"no\"}\n", "neither yes nor"},
        {"{\"ok\":true,\"result\":\"" + std::string(hf::cli::kLineBytesMax, 'x') + "\"}\n",
         "longer than 1 MiB"},
        {std::string(2 * hf::cli::kLineBytesMax, 'x'), "longer than 1 MiB"},
    };
    for (const auto& [bytes, words] : answers_and_words) {
        TempDir dir;
        FakeNode node(dir.path, answers(bytes));
        const Ran ran = run(dir, {"plugins", "--timeout", "30s"});
        CAPTURE(ran.err);
        CHECK(ran.exit == 3);
        CHECK(has(ran.err, words));
    }
    TempDir dir;
    FakeNode node(dir.path, [](int fd, const std::string&) {
        std::string many;
        for (std::size_t i = 0; i < hf::cli::kProgressLinesMax + 2; ++i)
            many += "{\"progress\":1}\n";
        say(fd, many);
    });
    const Ran ran = run(dir, {"rollback", "placement"});
    CHECK(ran.exit == 3);
    CHECK(has(ran.err, "without end"));
}

TEST_CASE("answers of the wrong shape are shown as far as they go") {
    for (const std::string result :
         {"null",
          "[]",
          "7",
          "\"text\"",
          "{\"plugins\":7}",
          "{\"plugins\":[7,null,[]]}",
          "{\"actors\":{\"a\":1}}",
          "{\"links\":[1,[2],{\"a\":null}],\"values\":[{}]}",
          "{\"plugins\":[{\"instances\":[1,2],\"bad_builds\":7,\"name\":[[[[1]]]]}]}"}) {
        TempDir dir;
        FakeNode node(dir.path, answers("{\"ok\":true,\"result\":" + result + "}\n"));
        for (const std::string command : {"status", "plugins", "actors"})
            CHECK(run(dir, {command}).exit == 0);
        CHECK(run(dir, {"actors", "--all"}).exit == 0);
        CHECK(run(dir, {"config", "show"}).exit == 0);
        CHECK(run(dir, {"rollback", "placement"}).exit == 0);
    }
}

TEST_CASE("a node that does not answer is 4 at the time-out, and the largest answer fits") {
    TempDir dir;
    {
        FakeNode* self = nullptr;
        FakeNode node(dir.path, [&self](int fd, const std::string&) {
            say(fd, "{\"progress\":\"still here\"}\n{\"ok\":");
            self->wait_for_hangup(fd);
        });
        self = &node;
        const Ran ran =
            run(dir, {"swap", "placement", "--policy", "p", "--timeout", "100ms", "--json"});
        CHECK(ran.exit == 4);
        CHECK(Json::parse(ran.out)["error"]["code"] == "timeout");
        CHECK(has(ran.err, "still here"));
    }
    fs::remove(dir.path / "run" / "control.sock");
    const std::string frame = "{\"ok\":true,\"result\":\"\"}\n";
    const std::string largest(hf::cli::kLineBytesMax - frame.size(), 'y');
    FakeNode node(dir.path, answers("{\"ok\":true,\"result\":\"" + largest + "\"}\n"));
    const Ran ran = run(dir, {"status", "--json", "--timeout", "30s"});
    CHECK(ran.exit == 0);
    CHECK(ran.out == "\"" + largest + "\"\n");
}

TEST_CASE("a data directory deeper than a socket address is reached all the same") {
    TempDir dir;
    FakeNode node(dir.path, answers("{\"ok\":true,\"result\":{\"node\":\"deep\"}}\n"));
    const fs::path deep = dir.path / std::string(150, 'd');
    fs::create_directory_symlink(dir.path, deep);
    CHECK(has(run(dir, {"status", "--node", deep.string()}).out, "deep"));
}

TEST_CASE("which node: --node, the variable, the source tree with a live node, the system's") {
    TempDir dir;
    hf::cli::Surroundings around;
    around.system_data = "/sys-data";
    around.executable_dir = dir.path / "build" / "bin";
    fs::create_directories(around.executable_dir);
    CHECK(hf::cli::data_directory(around, "/x") == "/x");
    CHECK(hf::cli::data_directory(around, "") == "/sys-data");
    FakeNode node(dir.path / "data", answers(""));
    CHECK(hf::cli::data_directory(around, "") ==
          "/sys-data");  // no source tree: there is no `dev` in it
    program(dir.path / "dev", "#!/bin/sh\n");
    CHECK(hf::cli::data_directory(around, "") == dir.path / "data");
    around.data_variable = "/from-variable";
    CHECK(hf::cli::data_directory(around, "") == "/from-variable");
    CHECK(hf::cli::data_directory(around, "/x") == "/x");
}

TEST_CASE("config check and build run the program beside us and pass its exit code on") {
    TempDir dir;
    const Ran missing = run(dir, {"config", "check", "a.toml"});
    CHECK(missing.exit == 2);
    CHECK(has(missing.err, "holdfastd is not beside"));
    const std::string recorder =
        "#!/bin/sh\nprintf '%s|' \"$@\" > " + (dir.path / "args").string() + "\nexit ";
    program(dir.path / "bin" / "holdfastd", recorder + "2\n");
    program(dir.path / "bin" / "holdfast-wasm-build", recorder + "1\n");
    CHECK(run(dir, {"config", "check", "dir with ü/a.toml", "--json"}).exit == 2);
    CHECK(content(dir.path / "args") == "--check-config|dir with ü/a.toml|--json|");
    CHECK(run(dir, {"config", "check"}).exit == 2);
    CHECK(content(dir.path / "args") ==
          "--check-config|" + (dir.path / "system.toml").string() + "|");
    std::ofstream(dir.path / "agent.toml") << "";
    CHECK(run(dir, {"config", "show"}).exit == 2);
    CHECK(content(dir.path / "args") ==
          "--show-config|" + (dir.path / "agent.toml").string() + "|");
    CHECK(run(dir, {"build", "m.wasm"}).exit == 1);
    CHECK(content(dir.path / "args") == "--inspect|m.wasm|");
    program(dir.path / "bin" / "holdfastd", "#!/bin/sh\nkill -SEGV $$\n");
    const Ran killed = run(dir, {"config", "check", "a.toml"});
    CHECK(killed.exit == 1);
    CHECK(has(killed.err, "signal 11"));
}

TEST_CASE("config show without a file asks the running node") {
    TempDir dir;
    FakeNode node(
        dir.path,
        answers(
            R"({"ok":true,"result":{"file":"/etc/holdfast/agent.toml","values":[{"table":"node","key":"id","value":"n1","origin":"agent.toml:2","line":2}]}})"
            "\n"));
    const Ran ran = run(dir, {"config", "show"});
    CHECK(ran.exit == 0);
    CHECK(ran.out ==
          "# /etc/holdfast/agent.toml\nKEY      VALUE  ORIGIN\nnode.id  n1     agent.toml:2\n");
    CHECK(node.requests().front()["op"] == "config-show");
}

TEST_CASE("durations") {
    using hf::cli::parse_duration;
    using std::chrono::milliseconds;
    CHECK(parse_duration("250ms") == milliseconds(250));
    CHECK(parse_duration("5") == milliseconds(5000));
    CHECK(parse_duration("2m") == milliseconds(120'000));
    CHECK(parse_duration("60m") == milliseconds(3'600'000));
    for (const std::string bad :
         {"", "0", "-1s", "1.5s", "5 s", "5S", "1h", "61m", "99999999999999999999s", "s"})
        CHECK_FALSE(parse_duration(bad));
    const Json times{{"a", 999},
                     {"b", 59'999},
                     {"c", 3'599'000},
                     {"d", 86'399'000},
                     {"e", 90'000'000},
                     {"f", "x"},
                     {"g", -1}};
    CHECK(hf::cli::duration_field(times, "a") == "999ms");
    CHECK(hf::cli::duration_field(times, "b") == "59s");
    CHECK(hf::cli::duration_field(times, "c") == "59m 59s");
    CHECK(hf::cli::duration_field(times, "d") == "23h 59m");
    CHECK(hf::cli::duration_field(times, "e") == "1d 1h");
    CHECK(hf::cli::duration_field(times, "f") == "-");
    CHECK(hf::cli::duration_field(times, "g") == "-");
}
