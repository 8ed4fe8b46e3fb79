// The second filter on real processes: each case forks, locks the child down and lets it do one thing.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "abi/sdk/lockdown.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include "abi/base/unique_fd.hpp"
#include "abi/layout/seccomp_filter.hpp"
#include "abi/sdk/lockdown_profiles.hpp"

namespace hf::sdk {
namespace {

using abi::Kind;

constexpr Kind kKinds[] = {
    Kind::Gateway, Kind::Storage, Kind::Runtime, Kind::Placement, Kind::Drain};
constexpr int kExitForbidden = 159;
constexpr int kNotLocked = 99;

struct End {
    int code = -1;
    int signal = 0;
    unsigned report = 0;
    std::string said;
};

// `act` runs in a child after lock_down (or without it); its answer is the exit code.
End in_child(Kind kind,
             const std::function<int()>& act,
             bool locked = true,
             const std::function<void()>& before = {}) {
    int pipe[2];
    REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
    void* shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(shared != MAP_FAILED);
    // SAFETY: page-aligned and zeroed by the kernel.
    auto* word = static_cast<volatile unsigned*>(shared);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::dup2(pipe[1], STDERR_FILENO);
        ::signal(SIGABRT,
                 SIG_DFL);  // the test library's handler would report the child's end as its own
        if (before) before();
        if (locked && !lock_down(kind, "", word)) ::_exit(kNotLocked);
        ::_exit(act());
    }
    ::close(pipe[1]);
    End end;
    char bytes[512];
    for (ssize_t got = 0; (got = ::read(pipe[0], bytes, sizeof bytes)) > 0;)
        end.said.append(bytes, static_cast<std::size_t>(got));
    ::close(pipe[0]);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
    if (WIFEXITED(status)) end.code = WEXITSTATUS(status);
    end.report = *word;
    ::munmap(shared, 4096);
    return end;
}

long call(long number, long a = 0, long b = 0, long c = 0, long d = 0) {
    return ::syscall(number, a, b, c, d, -1, 0);
}

struct Attack {
    const char* name;
    std::function<void()> act;
};

const std::vector<Attack>& attacks_on_all() {
    static const std::vector<Attack> attacks = {
        {"ptrace", [] { call(SYS_ptrace, 0x4206, 1); }},
        {"execve", [] { call(SYS_execve); }},
        {"mmap",
         [] { call(SYS_mmap, 0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS); }},
        {"mprotect", [] { call(SYS_mprotect, 0, 0, PROT_EXEC); }},
        {"memfd_create", [] { call(SYS_memfd_create); }},
        {"bpf", [] { call(SYS_bpf); }},
        {"mount", [] { call(SYS_mount); }},
        {"unshare", [] { call(SYS_unshare, 1); }},
        {"io_uring_setup", [] { call(SYS_io_uring_setup); }},
        {"fallocate", [] { call(SYS_fallocate, -1); }},
        {"madvise", [] { call(SYS_madvise, 0, 0, MADV_REMOVE); }},
        {"tgkill", [] { call(SYS_tgkill, 0x3ffffff, 0x3ffffff, 0); }},
        {"seccomp", [] { call(SYS_seccomp, 99); }},
        {"rt_sigaction", [] { ::signal(SIGSYS, SIG_IGN); }},
        {"clone",
         [] {
             if (::fork() == 0) ::_exit(0);
         }},
    };
    return attacks;
}

TEST_CASE("a forbidden call is named in the region and on stderr and ends the process") {
    for (const Kind kind : kKinds)
        for (const Attack& attack : attacks_on_all()) {
            CAPTURE(abi::EnumNameKind(kind));
            CAPTURE(attack.name);
            const End end = in_child(kind, [&] { return attack.act(), 0; });
            CHECK(end.code == kExitForbidden);
            CHECK(end.said == std::string("seccomp: ") + attack.name + "\n");
            CHECK(layout::syscall_name(0xC000003E, static_cast<std::int32_t>(end.report) - 1) ==
                  attack.name);
        }
}

TEST_CASE("without the filter the same calls return") {
    for (const Attack& attack : attacks_on_all()) {
        CAPTURE(attack.name);
        const End end = in_child(
            Kind::Placement, [&] { return attack.act(), 0; }, false);
        CHECK(end.code == 0);
        CHECK(end.report == 0);
    }
}

TEST_CASE(
    "no kind but the gateway opens files or makes sockets, and the gateway opens none for "
    "writing") {
    for (const Kind kind : kKinds) {
        CAPTURE(abi::EnumNameKind(kind));
        const bool gateway = kind == Kind::Gateway;
        const int good = gateway ? 0 : kExitForbidden;
        CHECK(in_child(kind, [] { return ::open("/usr", O_RDONLY) >= 0 ? 0 : 1; }).code == good);
        CHECK(in_child(kind, [] { return ::socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : 1; }).code ==
              good);
        CHECK(in_child(kind, [] { return ::open("/dev/null", O_WRONLY); }).said ==
              "seccomp: openat\n");
        CHECK(in_child(kind, [] { return ::open("/dev/null", O_RDWR); }).said ==
              "seccomp: openat\n");
    }
}

TEST_CASE("the call does not run even when its handler is blocked or reset before the filter") {
    const auto block = [] {
        sigset_t all;
        ::sigfillset(&all);
        ::sigprocmask(SIG_SETMASK, &all, nullptr);
    };
    const auto act = [&] {
        block();  // allowed: the kernel then ends the process instead of calling the handler
        call(SYS_ptrace, 0x4206, 1);
        return 0;
    };
    const End end = in_child(Kind::Placement, act);
    CHECK(end.signal == SIGSYS);
}

TEST_CASE("threads that ran before the filter are under it as well") {
    static std::atomic<int> stage{0};
    const auto before = [] {
        std::thread([] {
            while (stage.load() == 0) std::this_thread::yield();
            call(SYS_ptrace, 0x4206, 1);
            stage = 2;
        }).detach();
    };
    const auto act = [] {
        stage = 1;
        while (stage.load() != 2) std::this_thread::yield();
        return 0;
    };
    stage = 0;
    const End end = in_child(Kind::Runtime, act, true, before);
    CHECK(end.code == kExitForbidden);
    CHECK(end.said == "seccomp: ptrace\n");
}

TEST_CASE("unknown and newer calls give ENOSYS") {
    const auto act = [] {
        for (const long number : {9999L,
                                  long{SYS_clone3},
                                  long{SYS_faccessat2},
                                  449L,
                                  long{SYS_landlock_create_ruleset}})
            if (call(number) != -1 || errno != ENOSYS) return 1;
        return 0;
    };
    for (const Kind kind : kKinds) CHECK(in_child(kind, act).code == 0);
}

TEST_CASE("what every plugin does after its start goes on") {
    const int bell = ::eventfd(0, EFD_CLOEXEC);
    const UniqueFd owned(bell);
    const auto act = [bell] {
        std::vector<char> block(8 << 20, 'x');  // beyond malloc's mmap threshold
        block.resize(block.size() * 2);
        std::uint64_t one = 1;
        if (::write(bell, &one, sizeof one) != sizeof one ||
            ::read(bell, &one, sizeof one) != sizeof one)
            return 1;
        pollfd waiting{bell, POLLIN, 0};
        if (::poll(&waiting, 1, 1) != 0) return 2;
        timespec pause{0, 1000};
        if (::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr) != 0) return 3;
        ::free(std::malloc(64 << 20));
        return 0;
    };
    for (const Kind kind : kKinds) {
        CAPTURE(abi::EnumNameKind(kind));
        const End end = in_child(kind, act);
        CHECK(end.code == 0);
        CHECK(end.said.empty());
    }
    const auto abort = [] { return std::abort(), 0; };
    CHECK(in_child(Kind::Placement, abort).signal == SIGABRT);
}

TEST_CASE("threads start later where the kind may have them") {
    const auto act = [] {
        std::thread([] {}).join();
        return 0;
    };
    for (const Kind kind : {Kind::Gateway, Kind::Storage, Kind::Runtime})
        CHECK(in_child(kind, act).code == 0);
}

TEST_CASE("storage keeps what LMDB does with its open files") {
    char path[] = "/tmp/hf-lockdown-XXXXXX";
    const UniqueFd file(::mkstemp(path));
    REQUIRE(file.valid());
    ::unlink(path);
    const int fd = file.get();
    const auto act = [fd] {
        struct flock lock {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        lock.l_len = 1;
        if (::fcntl(fd, F_SETLK, &lock) != 0) return 1;
        if (::ftruncate(fd, 1 << 20) != 0 || ::pwrite(fd, "x", 1, 4096) != 1 ||
            ::fdatasync(fd) != 0)
            return 2;
        void* map = ::mmap(nullptr, 1 << 20, PROT_READ, MAP_SHARED, fd, 0);
        if (map == MAP_FAILED || ::msync(map, 4096, MS_SYNC) != 0) return 3;
        return static_cast<const char*>(map)[4096] == 'x' ? 0 : 4;
    };
    CHECK(in_child(Kind::Storage, act).code == 0);
    CHECK(in_child(Kind::Placement, act).code != 0);
}

TEST_CASE(
    "who carries large bodies makes the one kind of memory file that they are, and seals it") {
    const auto act = [] {
        const long fd = call(SYS_memfd_create,
                             reinterpret_cast<long>("hf-test"),  // SAFETY: as the kernel wants it
                             MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (fd < 0 || ::write(static_cast<int>(fd), "body", 4) != 4) return 1;
        const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
        if (::fcntl(static_cast<int>(fd), F_ADD_SEALS, seals) != 0) return 2;
        if ((::fcntl(static_cast<int>(fd), F_GET_SEALS) & seals) != seals) return 3;
        char text[4];
        return ::pread(static_cast<int>(fd), text, 4, 0) == 4 ? 0 : 4;
    };
    for (const Kind kind : {Kind::Gateway, Kind::Storage, Kind::Runtime}) {
        CAPTURE(abi::EnumNameKind(kind));
        CHECK(in_child(kind, act).code == 0);
        for (const long flags : {0L,
                                 long{MFD_CLOEXEC},
                                 long{MFD_ALLOW_SEALING},
                                 long{MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB},
                                 long{MFD_CLOEXEC | MFD_ALLOW_SEALING} | 0x10}) {
            CAPTURE(flags);
            const End end = in_child(kind, [flags] {
                call(SYS_memfd_create,
                     reinterpret_cast<long>("hf-test"),
                     flags);  // SAFETY: as above
                return 0;
            });
            CHECK(end.said == "seccomp: memfd_create\n");
        }
    }
    CHECK(in_child(Kind::Placement, act).said == "seccomp: memfd_create\n");
}

TEST_CASE("the runtime keeps its CPU timers") {
    const auto act = [] {
        sigevent event{};
        event.sigev_notify = SIGEV_NONE;
        timer_t timer{};
        if (::timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) != 0) return 1;
        itimerspec when{};
        when.it_value.tv_sec = 1;
        return ::timer_settime(timer, 0, &when, nullptr) == 0 && ::timer_delete(timer) == 0 ? 0 : 2;
    };
    CHECK(in_child(Kind::Runtime, act).code == 0);
}

TEST_CASE("a kind without a filter is refused, a name of another kind does not widen it") {
    CHECK_FALSE(lock_down(Kind::None, "gateway-http", nullptr).ok());
    REQUIRE(find_lockdown(Kind::Placement, "gateway-http") != nullptr);
    CHECK(find_lockdown(Kind::Placement, "gateway-http")->kind == Kind::Placement);
    CHECK(find_lockdown(Kind::Placement, "least-loaded")->name == "placement");
}

bool contradict(const layout::Condition& a, const layout::Condition& b) {
    return a == b || a.test == layout::Condition::Test::Always ||
           b.test == layout::Condition::Test::Always;
}

TEST_CASE("every rule has a reason, names a call, and is in one list only") {
    for (const LockdownProfile& profile : lockdown_profiles())
        for (const layout::Rules allowed : profile.allow)
            for (const layout::Rule& a : allowed) {
                CAPTURE(profile.name);
                CAPTURE(a.call);
                CHECK(std::string(a.reason).size() >= 4);
                CHECK(layout::syscall_known(a.call));
                for (const layout::Rules forbidden : profile.forbid)
                    for (const layout::Rule& f : forbidden) {
                        CHECK(std::string(f.reason).size() >= 4);
                        if (std::string(a.call) == f.call) CHECK_FALSE(contradict(a.when, f.when));
                    }
            }
}

}  // namespace
}  // namespace hf::sdk
