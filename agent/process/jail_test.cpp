// The walls from the inside: a probe does what it must not, and what it must be able to, under every profile.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "agent/process/test_jail.hpp"

namespace hf::process::testing {
namespace {

const char* const kProfiles[] = {
    "gateway-http", "storage-local", "storage-s3", "runtime-wasm", "placement", "drain", "builder"};

const char* const kForbiddenToAll[] = {"ptrace",
                                       "process_vm_readv",
                                       "process_vm_writev",
                                       "pidfd_getfd",
                                       "bpf",
                                       "keyctl",
                                       "add_key",
                                       "request_key",
                                       "mount",
                                       "umount2",
                                       "pivot_root",
                                       "move_mount",
                                       "fsopen",
                                       "unshare",
                                       "setns",
                                       "kexec_load",
                                       "init_module",
                                       "finit_module",
                                       "reboot",
                                       "swapon",
                                       "perf_event_open",
                                       "userfaultfd",
                                       "io_uring_setup",
                                       "io_uring_enter",
                                       "io_uring_register",
                                       "open_by_handle_at",
                                       "personality",
                                       "fallocate",
                                       "madvise",
                                       "tgkill"};

void expect_named(Room& room,
                  const std::string& profile,
                  const std::string& probe,
                  const std::string& name) {
    const Outcome outcome = room.run({.probe = {probe}, .profile = profile});
    CAPTURE(std::string(profile));
    CAPTURE(std::string(probe));
    CHECK(outcome.report.summary() == "seccomp: " + name);
    CHECK(outcome.report.by_fault());
    CHECK_FALSE(outcome.said("survived"));
}

TEST_CASE("what is forbidden to all ends the plugin and is named") {
    Room room;
    for (const char* profile : kProfiles)
        for (const char* call : kForbiddenToAll) expect_named(room, profile, call, call);
}

TEST_CASE("what is forbidden to some ends the plugin and is named") {
    Room room;
    for (const std::string& profile :
         std::vector<std::string>(std::begin(kProfiles), std::end(kProfiles))) {
        if (profile != "builder") {
            expect_named(room, profile, "execve", "execve");
            expect_named(room, profile, "execveat", "execveat");
            expect_named(room, profile, "fork", "clone");
        }
        if (profile != "gateway-http" && profile != "storage-s3")
            expect_named(room, profile, "socket", "socket");
        if (profile != "runtime-wasm") expect_named(room, profile, "memfd_create", "memfd_create");
        if (profile == "placement" || profile == "drain" || profile == "gateway-http" ||
            profile == "storage-s3")
            expect_named(room, profile, "ftruncate", "ftruncate");
    }
    expect_named(room, "builder", "clone-newuser", "clone");
    expect_named(room, "gateway-http", "packet-socket", "socket");
    expect_named(room, "storage-s3", "packet-socket", "socket");
}

TEST_CASE("without the filter every one of these calls returns") {
    // Else the cases above would pass with a probe that merely crashes.
    Room room;
    for (const char* call : kForbiddenToAll) {
        const Outcome outcome = room.run({.probe = {call}, .unfiltered = true});
        CAPTURE(std::string(call));
        CHECK(outcome.said(std::string("survived ") + call));
        CHECK(outcome.report.exit_code == 0);
    }
    for (const char* call :
         {"execve", "execveat", "fork", "socket", "packet-socket", "memfd_create", "ftruncate"})
        CHECK(
            room.run({.probe = {call}, .unfiltered = true}).said(std::string("survived ") + call));
}

TEST_CASE("what a profile needs is let through") {
    Room room;
    CHECK(room.run({.probe = {"socket"}, .profile = "gateway-http"}).said("survived"));
    CHECK(room.run({.probe = {"socket"}, .profile = "storage-s3"}).said("survived"));
    CHECK(room.run({.probe = {"memfd_create"}, .profile = "runtime-wasm"}).said("survived"));
    CHECK(room.run({.probe = {"ftruncate"}, .profile = "storage-local"}).said("survived"));
    CHECK(room.run({.probe = {"fork"}, .profile = "builder"}).said("survived"));
    CHECK(room.run({.probe = {"execve"}, .profile = "builder"}).said("survived"));
}

TEST_CASE("calls newer than the filter give ENOSYS or work, never EPERM") {
    Room room;
    for (const char* profile : kProfiles) {
        const Outcome outcome = room.run({.probe = {"enosys"}, .profile = profile});
        CAPTURE(std::string(profile));
        CAPTURE(outcome.text());
        CHECK(outcome.report.exit_code == 0);
        for (const char* call : {"9999",
                                 "clone3",
                                 "faccessat2",
                                 "futex_waitv",
                                 "close_range",
                                 "landlock_create_ruleset",
                                 "epoll_pwait2",
                                 "process_mrelease"})
            CHECK(outcome.said(std::string(call) + ": result -1 errno 38"));
        CHECK_FALSE(outcome.said("errno 1 "));
    }
}

TEST_CASE("fifty threads, access, getrandom, sleeping and statx work") {
    Room room;
    for (const char* profile : kProfiles) {
        const Outcome outcome = room.run({.probe = {"works"}, .profile = profile});
        CAPTURE(std::string(profile));
        CAPTURE(outcome.text());
        CHECK(outcome.report.summary() == "exit code 0");
    }
}

TEST_CASE(
    "a plugin linked statically with another C library starts, has what it needs and is stopped") {
    Room room;
    for (const std::string& probe : {std::string(LIBC_PROBE), std::string(LIBC_PROBE_MUSL)}) {
        if (!std::filesystem::exists(probe)) {
            std::printf("skipped: %s is not built (musl-gcc makes it)\n", probe.c_str());
            continue;
        }
        CAPTURE(probe);
        const auto run = [&](const std::string& what, const char* profile, bool filtered = true) {
            return room.run(
                {.probe = {what}, .profile = profile, .unfiltered = !filtered, .binary = probe});
        };
        for (const char* profile : kProfiles) {
            CAPTURE(std::string(profile));
            const Outcome works = run("works", profile);
            CAPTURE(works.text());
            CHECK(works.report.summary() == "exit code 0");
            const Outcome newer = run("newer", profile);
            CAPTURE(newer.text());
            CHECK(newer.report.exit_code == 0);
            for (const char* call : {"9999",
                                     "clone3",
                                     "faccessat2",
                                     "futex_waitv",
                                     "close_range",
                                     "landlock_create_ruleset"})
                CHECK(newer.said(std::string(call) + ": result -1 errno 38"));
            CHECK(newer.said("rseq: result -1 errno 22"));  // known: refused by the kernel itself
            for (const std::string call :
                 {"ptrace", "mount", "bpf", "keyctl", "execve", "socket"}) {
                // What the compiler's driver, a gateway and a store elsewhere are for.
                if (call == "execve" && std::string(profile) == "builder") continue;
                if (call == "socket" && std::string(profile) == "gateway-http") continue;
                if (call == "socket" && std::string(profile) == "storage-s3") continue;
                CAPTURE(call);
                const Outcome outcome = run(call, profile);
                CHECK(outcome.report.summary() == "seccomp: " + call);
                CHECK_FALSE(outcome.said("survived"));
            }
        }
        for (const std::string call : {"ptrace", "mount", "bpf", "keyctl", "execve", "socket"})
            CHECK(run(call, "placement", false).said("survived " + call));
    }
}

TEST_CASE("the second filter holds on top of the first and is named") {
    Room room;
    const std::pair<const char*, const char*> kinds[] = {{"gateway-http", "Gateway"},
                                                         {"storage-local", "Storage"},
                                                         {"storage-s3", "Storage:storage-s3"},
                                                         {"runtime-wasm", "Runtime"},
                                                         {"placement", "Placement"},
                                                         {"drain", "Drain"}};
    const std::pair<const char*, const char*> attacks[] = {{"ptrace", "ptrace"},
                                                           {"execve", "execve"},
                                                           {"mount", "mount"},
                                                           {"mmap-exec", "mmap"},
                                                           {"mprotect-exec", "mprotect"},
                                                           {"memfd_create", "memfd_create"},
                                                           {"fork", "clone"},
                                                           {"sigsys-handler", "rt_sigaction"},
                                                           {"tgkill", "tgkill"},
                                                           {"openat-for-write", "openat"},
                                                           {"fallocate", "fallocate"}};
    for (const auto& [profile, kind] : kinds) {
        CAPTURE(std::string(profile));
        CHECK(room.run({.probe = {"locked", kind, "exit", "0"}, .profile = profile})
                  .report.summary() == "exit code 0");
        for (const auto& [probe, name] : attacks) {
            CAPTURE(std::string(probe));
            const Outcome outcome =
                room.run({.probe = {"locked", kind, probe}, .profile = profile});
            CHECK(outcome.report.summary() == std::string("seccomp: ") + name);
            CHECK(outcome.report.by_fault());
        }
        const std::string opened =
            room.run({.probe = {"locked", kind, "openat"}, .profile = profile}).report.summary();
        const bool network = std::string(kind) == "Gateway" || std::string(profile) == "storage-s3";
        CHECK(opened == (network ? "exit code 0" : "seccomp: openat"));
        const std::string socket =
            room.run({.probe = {"locked", kind, "socket"}, .profile = profile}).report.summary();
        CHECK(socket == (network ? "exit code 0" : "seccomp: socket"));
    }
    // Between the two filters these are still allowed.
    CHECK(room.run({.probe = {"openat"}}).said("survived openat"));
    CHECK(room.run({.probe = {"mmap-exec"}}).said("survived mmap-exec"));
}

#if defined(__x86_64__)
TEST_CASE("the 32-bit entry and x32 numbers are stopped and named") {
    Room room;
    for (const char* profile : kProfiles) {
        expect_named(room, profile, "int80", "32-bit getpid");
        expect_named(room, profile, "x32", "x32 getpid");
    }
    CHECK(room.run({.probe = {"x32"}, .unfiltered = true}).said("survived x32"));
}
#endif

TEST_CASE("a plugin holds its standard streams and its control socket, nothing else") {
    Room room;
    for (const char* profile : kProfiles)
        CHECK(room.run({.probe = {"fds"}, .profile = profile}).said("open: 0 1 2 \n"));
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    const UniqueFd ours(pair[0]);
    Outcome outcome;
    SpawnSpec spec;
    spec.name = "placement/0";
    spec.profile = "placement";
    spec.binary = ATTACK_PROBE;
    spec.args = {"fds"};
    spec.control.reset(pair[1]);
    // Inheritable on purpose: the jail must not pass on what a library forgot.
    const UniqueFd forgotten(::open("/etc/hostname", O_RDONLY));
    auto process = room.spawner().spawn(std::move(spec), [&](const ExitReport& report) {
        ++outcome.calls;
        outcome.report = report;
    });
    REQUIRE(process.ok());
    REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    CHECK(outcome.report.stderr_tail == "open: 0 1 2 3 \n");
}

bool root_or_say(const char* why) {
    if (::geteuid() == 0) return true;
    std::printf("skipped: %s\n", why);
    return false;
}

TEST_CASE("a plugin has its own uid, no capability and cannot gain one") {
    if (!root_or_say("needs root to give an instance its own uid")) return;
    Room room;
    for (const char* profile : kProfiles) {
        CAPTURE(std::string(profile));
        Outcome outcome;
        auto process = room.start({.probe = {"stay"}, .profile = profile}, outcome);
        REQUIRE(process.ok());
        REQUIRE(room.loop.until([&] { return outcome.said("staying"); }));
        for (const pid_t pid : {process.value()->pid(), process.value()->jail_pid()}) {
            CHECK(status_field(pid, "Uid") == "910003\t910003\t910003\t910003");
            CHECK(status_field(pid, "Gid") == "910003\t910003\t910003\t910003");
            CHECK(status_field(pid, "Groups").empty());
            for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
                CHECK(status_field(pid, set) == "0000000000000000");
            CHECK(status_field(pid, "NoNewPrivs") == "1");
        }
        CHECK(status_field(process.value()->pid(), "Seccomp") == "2");
        CHECK(status_field(process.value()->pid(), "NSpid").find("\t2") != std::string::npos);
        process.value()->kill_now();
        REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
    }
}

TEST_CASE(
    "every namespace but the user's is its own, and the network has nothing but a loopback that is "
    "down") {
    if (!root_or_say("needs root to look at another uid's namespaces")) return;
    Room room;
    Outcome outcome;
    auto process = room.start({.probe = {"stay"}}, outcome);
    REQUIRE(process.ok());
    REQUIRE(room.loop.until([&] { return outcome.said("staying"); }));
    const std::string proc = "/proc/" + std::to_string(process.value()->pid());
    for (const char* kind : {"mnt", "pid", "ipc", "uts", "net"}) {
        CAPTURE(std::string(kind));
        CHECK(std::filesystem::read_symlink(proc + "/ns/" + kind) !=
              std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind));
    }
    std::istringstream devices(slurp(proc + "/net/dev"));
    std::vector<std::string> names;
    for (std::string line; std::getline(devices, line);)
        if (line.find(':') != line.npos) names.push_back(line.substr(0, line.find(':')));
    REQUIRE(names.size() == 1);
    CHECK(names[0].find("lo") != std::string::npos);
    CHECK(slurp(proc + "/net/route").find("00000000") == std::string::npos);
    process.value()->kill_now();
    REQUIRE(room.loop.until([&] { return outcome.calls > 0; }));
}

TEST_CASE("only a profile with network reaches a listener of the host") {
    Room room;
    if (!room.namespaces_or_say()) return;
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::listen(listener.get(), 4) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    const std::string port = std::to_string(ntohs(address.sin_port));
    CHECK(room.run({.probe = {"connect", port}, .profile = "gateway-http", .network = true})
              .said("connect: yes"));
    CHECK(room.run({.probe = {"connect", port}, .profile = "storage-s3", .network = true})
              .said("connect: yes"));
    CHECK(room.run({.probe = {"connect", port}, .profile = "gateway-http"})
              .said("connect: Network is unreachable"));
}

TEST_CASE("the host's files are not there") {
    Room room;
    char dir[] = "/tmp/hf-jail-XXXXXX";
    REQUIRE(::mkdtemp(dir) != nullptr);
    ::chmod(dir, 0755);
    const std::string secret = std::string(dir) + "/secret";
    std::fclose(std::fopen(secret.c_str(), "w"));
    for (const char* profile : kProfiles) {
        CAPTURE(std::string(profile));
        // Its scratch folder is the host's /tmp then, where the file lies.
        if (std::string(profile) == "builder" && !room.namespaces_or_say()) continue;
        for (const std::string& path : {secret,
                                        std::string("/etc/passwd"),
                                        std::string("/root"),
                                        std::string("/proc/1/environ"),
                                        std::string("/sys"),
                                        std::string("/dev/mem"),
                                        std::string("/var")})
            CHECK_FALSE(room.run({.probe = {"see", path}, .profile = profile}).said(": yes"));
        CHECK(room.run({.probe = {"see", "/usr/lib"}, .profile = profile}).said(": yes"));
        CHECK_FALSE(room.run({.probe = {"write", "/usr/x"}, .profile = profile}).said(": yes"));
        CHECK_FALSE(room.run({.probe = {"write", "/x"}, .profile = profile}).said(": yes"));
    }
    std::filesystem::remove_all(dir);
}

TEST_CASE("a bind is where it was put, writable only when asked, and owned when asked") {
    if (!root_or_say("needs root to give a directory to another uid")) return;
    Room room;
    char dir[] = "/tmp/hf-jail-XXXXXX";
    REQUIRE(::mkdtemp(dir) != nullptr);  // 0700, root's
    const std::string file = std::string(dir) + "/data.mdb";
    std::fclose(std::fopen(file.c_str(), "w"));
    ::chmod(file.c_str(), 0600);
    const auto ask = [&](const char* what, bool writable, bool owned) {
        return room.run({.probe = {what, "/data/data.mdb"},
                         .profile = "storage-local",
                         .binds = {{dir, "/data", writable, owned}}});
    };
    CHECK_FALSE(ask("see", true, false).said(": yes"));  // not owned: 0700 holds
    CHECK(ask("see", false, true).said(": yes"));
    CHECK_FALSE(ask("write", false, true).said(": yes"));
    CHECK(ask("write", true, true).said(": yes"));
    struct stat info {};
    REQUIRE(::stat(file.c_str(), &info) == 0);
    CHECK(info.st_uid == 910003);
    const Outcome missing =
        room.run({.probe = {"exit", "0"}, .binds = {{"/nonexistent", "/data", false, false}}});
    CHECK(missing.report.failure.find("/nonexistent") != std::string::npos);
    std::filesystem::remove_all(dir);
}

TEST_CASE("the builder can compile") {
    Room room;
    if (!room.namespaces_or_say()) return;
    char dir[] = "/tmp/hf-jail-XXXXXX";
    REQUIRE(::mkdtemp(dir) != nullptr);
    ::chmod(dir, 0755);
    const std::string source = std::string(dir) + "/m.c";
    std::FILE* out = std::fopen(source.c_str(), "w");
    std::fputs("int answer(void) { return 42; }\n", out);
    std::fclose(out);
    const Outcome outcome =
        room.run({.probe = {"-O1", "-fPIC", "-shared", "/work/m.c", "-o", "/work/m.so"},
                  .profile = "builder",
                  .binds = {{dir, "/work", true, true}},
                  .binary = "/usr/bin/gcc-12"});
    CAPTURE(outcome.text());
    CHECK(outcome.report.summary() == "exit code 0");
    CHECK(std::filesystem::exists(std::string(dir) + "/m.so"));
    std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace hf::process::testing
