// Real processes through the real jail: spawning, reporting, killing, and that nothing is left behind.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/process/spawner.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>

#include "agent/process/test_jail.hpp"

namespace hf::process::testing {
namespace {

TEST_CASE("a plugin runs under the jail and its end is reported") {
    Room room;
    const Outcome outcome = room.run({.probe = {"exit", "7"}});
    CHECK(outcome.report.exit_code == 7);
    CHECK(outcome.report.signal == 0);
    CHECK(outcome.report.failure.empty());
    CHECK(outcome.report.pid > 0);
    CHECK(outcome.report.summary() == "exit code 7");
    CHECK_FALSE(outcome.report.by_fault());
}

TEST_CASE("a plugin that was gone before anybody looked left by itself all the same") {
    for (const bool host_pids : {false, true}) {
        CAPTURE(host_pids);
        Room room;
        Outcome outcome;
        auto process = room.start(
            {.probe = {"exit", "7"}, .profile = "storage-local", .host_pids = host_pids}, outcome);
        REQUIRE(process.ok());
        // The loop hears nothing until the jail, which reaps its plugin first, has ended too.
        siginfo_t info{};
        const auto jail = static_cast<id_t>(process.value()->jail_pid());
        REQUIRE(::waitid(P_PID, jail, &info, WEXITED | WNOWAIT) == 0);
        REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
        CHECK(outcome.report.exit_code == 7);
        CHECK(outcome.report.on_its_own());
    }
}

TEST_CASE("the last stderr line without its newline is in the summary") {
    Room room;
    const Outcome outcome = room.run({.probe = {"no-newline"}});
    CHECK(outcome.said("last words"));
    CHECK(outcome.report.stderr_tail == "last words");
    CHECK(outcome.report.summary() == "exit code 3: last words");
}

TEST_CASE("a plugin that dies of its own signal") {
    Room room;
    for (const auto& [probe, number] : {std::pair{"segv", SIGSEGV}, std::pair{"abort", SIGABRT}}) {
        const Outcome outcome = room.run({.probe = {probe}});
        CHECK(outcome.report.signal == number);
        CHECK(outcome.report.by_fault());
        CHECK_FALSE(outcome.report.by_supervisor);
    }
}

TEST_CASE("a binary that is not there, cannot run or has no profile is a sentence, not a crash") {
    Room room;
    CHECK(room.run({.binary = "/nonexistent/plugin"}).report.failure.find("/nonexistent/plugin") !=
          std::string::npos);
    CHECK(room.run({.binary = "/etc/hostname"}).report.failure.find("running /etc/hostname") !=
          std::string::npos);
    CHECK(room.run({.profile = "nobody"}).report.failure == "there is no jail profile 'nobody'");
    const Outcome relative = room.run({.binary = "plugin"});
    CHECK(relative.report.failure.find("not a plain absolute path") != std::string::npos);
    const Outcome twice = room.run({.profile = "builder", .host_pids = true});
    CHECK(twice.report.failure.find("needs a pid namespace") != std::string::npos);
}

TEST_CASE("a profile without a filter exists for tests only") {
    Loop loop;
    auto spawner = Spawner::create(loop.get(), {HOLDFAST_JAIL, 910000, 100}, nullptr);
    REQUIRE(spawner.ok());
    Outcome outcome;
    SpawnSpec spec;
    spec.name = "x/0";
    spec.profile = "unfiltered:placement";
    spec.binary = ATTACK_PROBE;
    auto process = spawner.value()->spawn(std::move(spec), [&](const ExitReport& report) {
        ++outcome.calls;
        outcome.report = report;
    });
    REQUIRE(process.ok());
    REQUIRE(loop.until([&] { return outcome.calls > 0; }));
    CHECK(outcome.report.failure == "there is no jail profile 'unfiltered:placement'");
}

TEST_CASE("a spawner without its jail program refuses at once") {
    Loop loop;
    const auto spawner =
        Spawner::create(loop.get(), {"/nonexistent/holdfast-jail", 910000, 100}, nullptr);
    REQUIRE_FALSE(spawner.ok());
    CHECK(spawner.error().message.find("/nonexistent/holdfast-jail") != std::string::npos);
}

TEST_CASE("kill_now ends plugin and jail") {
    for (const bool host_pids : {false, true}) {
        CAPTURE(host_pids);
        Room room;
        Outcome outcome;
        auto process = room.start(
            {.probe = {"stay"}, .profile = "storage-local", .host_pids = host_pids}, outcome);
        REQUIRE(process.ok());
        REQUIRE(room.loop.until([&] { return outcome.said("staying"); }));
        const pid_t plugin = process.value()->pid();
        CHECK(plugin > 0);
        CHECK(::kill(plugin, 0) == 0);
        process.value()->kill_now();
        REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
        CHECK(outcome.report.by_supervisor);
        CHECK(outcome.report.signal == SIGKILL);
        CHECK(ended(plugin));
        process.value()->kill_now();  // too late, does nothing
        CHECK(process.value()->pid() == plugin);
    }
}

TEST_CASE("kill_now right after spawn, before the jail said a word") {
    Room room;
    Outcome outcome;
    auto process = room.start({.probe = {"stay"}}, outcome);
    REQUIRE(process.ok());
    process.value()->kill_now();
    REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    CHECK(outcome.report.by_supervisor);
    CHECK(outcome.calls == 1);
}

TEST_CASE("a plugin killed from outside was not killed by us") {
    Room room;
    Outcome outcome;
    auto process = room.start({.probe = {"stay"}}, outcome);
    REQUIRE(process.ok());
    REQUIRE(room.loop.until([&] { return outcome.said("staying"); }));
    ::kill(process.value()->pid(), SIGKILL);
    REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    CHECK(outcome.report.summary() == "killed by signal 9 (Killed)");
    CHECK_FALSE(outcome.report.by_fault());
}

TEST_CASE("a jail killed from outside takes its plugin along") {
    for (const bool host_pids : {false, true}) {
        CAPTURE(host_pids);
        Room room;
        Outcome outcome;
        auto process = room.start(
            {.probe = {"stay"}, .profile = "storage-local", .host_pids = host_pids}, outcome);
        REQUIRE(process.ok());
        REQUIRE(room.loop.until([&] { return outcome.said("staying"); }));
        const pid_t plugin = process.value()->pid();
        ::kill(process.value()->jail_pid(), SIGKILL);
        REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
        CHECK(ended(plugin));
        CHECK(outcome.report.signal == SIGKILL);
        CHECK_FALSE(outcome.report.by_supervisor);
    }
}

TEST_CASE("the wall limit ends a process that takes too long") {
    Room room;
    const Outcome outcome = room.run({.probe = {"stay"}, .wall_ms = 100});
    CHECK(outcome.report.failure == "ended after its limit of 100 ms");
    CHECK(outcome.report.by_supervisor);
    CHECK(outcome.report.lived_ms >= 100);
}

TEST_CASE("a grandchild ends with the jail") {
    Room room;
    Outcome outcome;
    auto process = room.start({.probe = {"grandchild"}, .profile = "builder"}, outcome);
    REQUIRE(process.ok());
    REQUIRE(room.loop.until([&] { return outcome.lines.size() >= 2; }));
    CHECK(alive_in_jails().size() == 3);  // jail, plugin, grandchild
    SUBCASE("the supervisor kills") {
        process.value()->kill_now();
    }
    SUBCASE("the jail is killed") {
        // Without a pid namespace this is the wall that the jail reports as missing.
        if (room.namespaces_or_say()) {
            ::kill(process.value()->jail_pid(), SIGKILL);
        } else {
            process.value()->kill_now();
        }
    }
    SUBCASE("the plugin is killed") {
        ::kill(process.value()->pid(), SIGKILL);
    }
    REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    CHECK(alive_in_jails().empty());
}

TEST_CASE("a leftover without a pid namespace is killed by the jail") {
    // Only the filter keeps such a profile from forking: without it the jail must do the work.
    Room room;
    Outcome outcome;
    auto process = room.start({.probe = {"grandchild"},
                               .profile = "storage-local",
                               .unfiltered = true,
                               .host_pids = true},
                              outcome);
    REQUIRE(process.ok());
    REQUIRE(room.loop.until([&] { return outcome.lines.size() >= 2; }));
    ::kill(process.value()->pid(), SIGKILL);
    REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    CHECK(alive_in_jails().empty());
}

TEST_CASE("nothing lives on when the supervisor is killed") {
    for (const bool host_pids : {false, true}) {
        CAPTURE(host_pids);
        int ready[2];
        REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
        const pid_t supervisor = ::fork();
        REQUIRE(supervisor >= 0);
        if (supervisor == 0) {
            Room room;
            Outcome outcome;
            Outcome builder;
            auto first = room.start(
                {.probe = {"stay"}, .profile = "storage-local", .host_pids = host_pids}, outcome);
            auto second = room.start({.probe = {"grandchild"}, .profile = "builder"}, builder);
            if (!first || !second) ::_exit(1);
            // The last one started gets all lines; the first is awaited by its number.
            room.loop.until([&] { return builder.lines.size() >= 3 && first.value()->pid() > 0; });
            [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
            room.loop.until([] { return false; }, 60'000);
            ::_exit(0);
        }
        ::close(ready[1]);
        char byte = 0;
        CHECK(::read(ready[0], &byte, 1) == 1);
        ::close(ready[0]);
        CHECK(alive_in_jails().size() == 5);
        ::kill(supervisor, SIGKILL);
        int status = 0;
        ::waitpid(supervisor, &status, 0);
        // Orphans end asynchronously: their supervisor is not there to wait. Bounded by the loop's deadline.
        Loop loop;
        CHECK(loop.until([] { return alive_in_jails().empty(); }, 5'000));
    }
}

TEST_CASE("two hundred processes leave no descriptor and no zombie") {
    Room room;
    room.run({.probe = {"exit", "0"}});
    const std::size_t before = open_fds();
    for (int i = 0; i < 200; ++i) {
        const Outcome outcome =
            room.run({.probe = {"exit", "0"}, .profile = "storage-local", .host_pids = i % 2 == 0});
        REQUIRE(outcome.report.exit_code == 0);
        REQUIRE(outcome.calls == 1);
    }
    CHECK(open_fds() == before);
    CHECK(no_zombie());
}

TEST_CASE("failed starts leak nothing either") {
    Room room;
    room.run({.binary = "/nonexistent/plugin"});
    const std::size_t before = open_fds();
    for (int i = 0; i < 20; ++i) {
        room.run({.binary = "/nonexistent/plugin"});
        room.run({.binary = "relative"});
        room.run({.profile = "nobody"});
    }
    CHECK(open_fds() == before);
    CHECK(no_zombie());
}

TEST_CASE("too few descriptors is a clean error and passes") {
    Room room;
    room.run({.probe = {"exit", "0"}});
    std::vector<UniqueFd> hoard;
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit low{64, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &low);
    for (;;) {
        UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
        if (!fd.valid()) break;
        hoard.push_back(std::move(fd));
    }
    Outcome outcome;
    for (int left = 0; left < 8; ++left) {
        const auto process = room.start({.probe = {"exit", "0"}}, outcome);
        CHECK_FALSE(process.ok());
        hoard.pop_back();
    }
    hoard.clear();
    CHECK(room.run({.probe = {"exit", "0"}}).report.exit_code == 0);
    ::setrlimit(RLIMIT_NOFILE, &before);
    CHECK(no_zombie());
}

TEST_CASE("the owner may drop process and spawner from within on_exit") {
    Loop loop;
    auto spawner = Spawner::create(loop.get(), {HOLDFAST_JAIL, 910000, 100}, nullptr);
    REQUIRE(spawner.ok());
    std::unique_ptr<Spawner> owned = std::move(spawner).value();
    std::unique_ptr<Process> process;
    int calls = 0;
    SpawnSpec spec;
    spec.name = "x/0";
    spec.profile = "placement";
    spec.binary = ATTACK_PROBE;
    spec.args = {"exit", "0"};
    auto started = owned->spawn(std::move(spec), [&](const ExitReport&) {
        ++calls;
        process.reset();
    });
    REQUIRE(started.ok());
    process = std::move(started).value();
    CHECK(loop.until([&] { return calls > 0; }));
    CHECK(calls == 1);
}

TEST_CASE("a spawner that goes away takes its processes along") {
    const std::size_t before = open_fds();
    {
        Room room;
        Outcome first;
        Outcome second;
        auto one = room.start({.probe = {"stay"}}, first);
        auto two =
            room.start({.probe = {"stay"}, .profile = "storage-local", .host_pids = true}, second);
        REQUIRE(one.ok());
        REQUIRE(two.ok());
        REQUIRE(room.loop.until([&] { return second.lines.size() >= 2; }));
    }
    CHECK(alive_in_jails().empty());
    CHECK(no_zombie());
    CHECK(open_fds() == before);
}

TEST_CASE("a flood of lines is held back and counted") {
    Room room(100);
    const Outcome outcome = room.run({.probe = {"lines", "20000"}});
    CHECK(outcome.report.exit_code == 0);
    CHECK(outcome.dropped + outcome.lines.size() >= 20000);
    CHECK(outcome.lines.size() <=
          100U * static_cast<std::size_t>(outcome.report.lived_ms / 1000 + 2) + 1);
    CHECK(outcome.report.stderr_tail.size() <= 4096);
    CHECK(outcome.report.stderr_tail.find("line 19999") != std::string::npos);
}

TEST_CASE("an endless line is cut") {
    Room room;
    const Outcome outcome = room.run({.probe = {"long-line", "1000000"}});
    REQUIRE(outcome.lines.size() == 2);
    CHECK(outcome.lines[0].size() == 4096);
    CHECK(outcome.lines[1] == "short");
}

TEST_CASE("standard output goes where it was asked to") {
    Room room;
    UniqueFd answer(::memfd_create("answer", MFD_CLOEXEC));
    SpawnSpec spec;
    spec.name = "builder/0";
    spec.profile = "builder";
    spec.binary = ATTACK_PROBE;
    spec.args = {"uid"};
    spec.uid_index = 3;
    spec.standard_output.reset(::fcntl(answer.get(), F_DUPFD_CLOEXEC, 0));
    int calls = 0;
    auto process = room.spawner().spawn(std::move(spec), [&](const ExitReport&) { ++calls; });
    REQUIRE(process.ok());
    REQUIRE(room.loop.until([&] { return calls > 0; }));
    char text[128] = {};
    CHECK(::pread(answer.get(), text, sizeof text - 1, 0) > 0);
    CHECK(std::string(text).rfind("uid ", 0) == 0);
}

TEST_CASE("start latency, jail included") {
    Room room;
    std::vector<double> all;
    for (int i = 0; i < 41; ++i) {
        Outcome outcome;
        const auto begin = std::chrono::steady_clock::now();
        auto process = room.start({.probe = {"stay"}}, outcome);
        REQUIRE(process.ok());
        REQUIRE(room.loop.until([&] { return outcome.said("staying"); }));
        const std::chrono::duration<double, std::milli> took =
            std::chrono::steady_clock::now() - begin;
        all.push_back(took.count());
        process.value()->kill_now();
        REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    }
    std::sort(all.begin(), all.end());
    std::printf("start to the plugin's first line: p50 %.2f ms, p90 %.2f ms, max %.2f ms of %zu\n",
                all[all.size() / 2],
                all[all.size() * 9 / 10],
                all.back(),
                all.size());
    // Printed, not judged: other work on the machine decides it here. The target is 5 ms on an idle one.
}

}  // namespace
}  // namespace hf::process::testing
