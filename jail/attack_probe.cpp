// Does the one thing its argument names, so that tests can see whether the walls hold. Never installed. It says
// "survived <what>: ..." when the call returned, whatever it returned; arguments are such that no call does harm where
// nothing stops it.
#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/openat2.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "abi/sdk/lockdown.hpp"

namespace {

struct Call {
    const char* name;
    long number;
    long args[6];
};

// One row per forbidden call: invalid pointers, descriptors and magic numbers, so that it fails where it is let through.
const Call kCalls[] = {
    {"ptrace", SYS_ptrace, {0x4206, 1, 0, 0, 0, 0}},
    {"process_vm_readv", SYS_process_vm_readv, {1, 0, 0, 0, 0, 0}},
    {"process_vm_writev", SYS_process_vm_writev, {1, 0, 0, 0, 0, 0}},
    {"pidfd_getfd", SYS_pidfd_getfd, {-1, 0, 0, 0, 0, 0}},
    {"bpf", SYS_bpf, {0, 0, 0, 0, 0, 0}},
    {"keyctl", SYS_keyctl, {9999, 0, 0, 0, 0, 0}},
    {"add_key", SYS_add_key, {0, 0, 0, 0, 0, 0}},
    {"request_key", SYS_request_key, {0, 0, 0, 0, 0, 0}},
    {"mount", SYS_mount, {0, 0, 0, 0, 0, 0}},
    {"umount2", SYS_umount2, {0, 0, 0, 0, 0, 0}},
    {"pivot_root", SYS_pivot_root, {0, 0, 0, 0, 0, 0}},
    {"move_mount", SYS_move_mount, {-1, 0, -1, 0, 0, 0}},
    {"fsopen", SYS_fsopen, {0, 0, 0, 0, 0, 0}},
    {"unshare", SYS_unshare, {CLONE_NEWUSER | 1, 0, 0, 0, 0, 0}},
    {"setns", SYS_setns, {-1, 0, 0, 0, 0, 0}},
    {"kexec_load", SYS_kexec_load, {0, 99, 0, 0, 0, 0}},
    {"init_module", SYS_init_module, {0, 0, 0, 0, 0, 0}},
    {"finit_module", SYS_finit_module, {-1, 0, 0, 0, 0, 0}},
    {"reboot", SYS_reboot, {0, 0, 0, 0, 0, 0}},
    {"swapon", SYS_swapon, {0, 0, 0, 0, 0, 0}},
    {"perf_event_open", SYS_perf_event_open, {0, 0, 0, -1, 0, 0}},
    {"userfaultfd", SYS_userfaultfd, {0x7fff, 0, 0, 0, 0, 0}},
    {"io_uring_setup", SYS_io_uring_setup, {0, 0, 0, 0, 0, 0}},
    {"io_uring_enter", SYS_io_uring_enter, {-1, 0, 0, 0, 0, 0}},
    {"io_uring_register", SYS_io_uring_register, {-1, 0, 0, 0, 0, 0}},
    {"open_by_handle_at", SYS_open_by_handle_at, {-1, 0, 0, 0, 0, 0}},
    {"personality", SYS_personality, {0xffffffff, 0, 0, 0, 0, 0}},
    {"fallocate", SYS_fallocate, {-1, 0, 0, 0, 0, 0}},
    {"madvise", SYS_madvise, {0, 0, MADV_REMOVE, 0, 0, 0}},
    {"tgkill", SYS_tgkill, {0x3ffffff, 0x3ffffff, 0, 0, 0, 0}},
    {"execve", SYS_execve, {0, 0, 0, 0, 0, 0}},
    {"execveat", SYS_execveat, {-1, 0, 0, 0, 0, 0}},
    {"socket", SYS_socket, {AF_INET, SOCK_STREAM, 0, 0, 0, 0}},
    {"packet-socket", SYS_socket, {AF_PACKET, SOCK_RAW, 0, 0, 0, 0}},
    {"memfd_create", SYS_memfd_create, {0, 0, 0, 0, 0, 0}},
    {"ftruncate", SYS_ftruncate, {-1, 0, 0, 0, 0, 0}},
    {"clone-newuser", SYS_clone, {CLONE_NEWUSER | CLONE_FS, 0, 0, 0, 0, 0}},
    {"openat", SYS_openat, {AT_FDCWD, 0, 0, 0, 0, 0}},
    {"openat-for-write", SYS_openat, {AT_FDCWD, 0, O_WRONLY | O_CREAT, 0600, 0, 0}},
    {"mmap-exec", SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}},
    {"mprotect-exec", SYS_mprotect, {0, 0, PROT_READ | PROT_EXEC, 0, 0, 0}},
    {"sigsys-handler", SYS_rt_sigaction, {SIGSYS, 0, 0, 8, 0, 0}},
};

int survived(const char* what, long result, int error) {
    std::printf("survived %s: result %ld errno %d\n", what, result, error);
    return 0;
}

int fork_probe() {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    return survived("fork", child, errno);
}

#if defined(__x86_64__)
// The 32-bit table through the old door: number 20 is getpid there.
int int80_probe() {
    long result = 20;
    __asm__ volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    return survived("int80", result, 0);
}

int x32_probe() {
    errno = 0;
    const long result = ::syscall(0x40000000 | SYS_getpid);
    return survived("x32", result, errno);
}
#endif

int enosys_probe() {
    struct {
        const char* name;
        long number;
        long args[4];
    } calls[] = {
        {"9999", 9999, {0, 0, 0, 0}},
        {"clone3", SYS_clone3, {0, 0, 0, 0}},
        {"faccessat2", SYS_faccessat2, {AT_FDCWD, 0, 0, 0}},
        {"futex_waitv", 449, {0, 0, 0, 0}},
        {"close_range", SYS_close_range, {1000, 1000, 0, 0}},
        {"landlock_create_ruleset", SYS_landlock_create_ruleset, {0, 0, 1, 0}},
        {"rseq", SYS_rseq, {0, 0, 0, 0}},
        {"openat2", SYS_openat2, {AT_FDCWD, 0, 0, 0}},
        {"epoll_pwait2", SYS_epoll_pwait2, {-1, 0, 0, 0}},
        {"process_mrelease", 448, {-1, 0, 0, 0}},
    };
    int refused = 0;
    for (const auto& call : calls) {
        errno = 0;
        const long result =
            ::syscall(call.number, call.args[0], call.args[1], call.args[2], call.args[3]);
        const bool permission = result < 0 && errno == EPERM;
        if (permission) ++refused;
        std::printf(
            "%s: result %ld errno %d (%s)\n", call.name, result, errno, std::strerror(errno));
    }
    return refused;
}

int works_probe() {
    int failed = 0;
    const auto check = [&failed](const char* what, bool ok) {
        if (ok) return;
        ++failed;
        std::printf("%s failed: %s\n", what, std::strerror(errno));
    };
    char bytes[16];
    check("access", ::access("/usr/lib", R_OK) == 0);
    check("getrandom", ::getrandom(bytes, sizeof bytes, 0) == sizeof bytes);
    const timespec pause{0, 1000};
    check("clock_nanosleep", ::clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, nullptr) == 0);
    struct statx info {};
    check("statx", ::statx(AT_FDCWD, "/usr", 0, STATX_BASIC_STATS, &info) == 0);
    open_how how{};
    how.flags = O_RDONLY | O_DIRECTORY;
    const long fd = ::syscall(SYS_openat2, AT_FDCWD, "/usr", &how, sizeof how);
    check("openat2", fd >= 0 || errno == ENOSYS);
    std::vector<std::thread> threads;
    std::atomic<int> ran{0};
    for (int i = 0; i < 50; ++i) threads.emplace_back([&ran] { ++ran; });
    for (std::thread& thread : threads) thread.join();
    check("50 threads", ran == 50);
    return failed;
}

// What it holds: descriptors by number.
int fds_probe() {
    std::string open;
    for (int fd = 0; fd < 1024; ++fd)
        if (::fcntl(fd, F_GETFD) >= 0) open += std::to_string(fd) + " ";
    std::printf("open: %s\n", open.c_str());
    return 0;
}

int see_probe(const char* path) {
    const int fd = ::open(path, O_RDONLY);
    std::printf("see %s: %s\n", path, fd >= 0 ? "yes" : std::strerror(errno));
    return 0;
}

int write_probe(const char* path) {
    const int fd = ::open(path, O_WRONLY | O_CREAT, 0600);
    std::printf("write %s: %s\n", path, fd >= 0 ? "yes" : std::strerror(errno));
    return 0;
}

int connect_probe(const char* port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // SAFETY: the socket interface takes every family by this one type.
    const int rc = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    std::printf("connect: %s\n", rc == 0 ? "yes" : std::strerror(errno));
    return 0;
}

[[noreturn]] void stay() {
    std::printf("staying\n");
    std::fflush(stdout);
    for (;;) ::poll(nullptr, 0, -1);
}

int other(const std::string& what, const char* argument) {
    if (what == "exit") return std::atoi(argument);
    if (what == "stay") stay();
    if (what == "grandchild") {
        const pid_t child = ::fork();
        if (child < 0) return survived("fork", child, errno);
        stay();  // both
    }
    if (what == "lines") {
        for (int i = 0; i < std::atoi(argument); ++i) std::fprintf(stderr, "line %d\n", i);
        return 0;
    }
    if (what == "long-line") {
        std::fprintf(stderr,
                     "%s\nshort\n",
                     std::string(static_cast<std::size_t>(std::atoi(argument)), 'x').c_str());
        return 0;
    }
    if (what == "no-newline") {
        std::fprintf(stderr, "last words");
        return 3;
    }
    if (what == "take-memory") {
        const std::size_t bytes = static_cast<std::size_t>(std::atoi(argument)) << 20U;
        auto* memory = static_cast<volatile char*>(std::malloc(bytes));
        for (std::size_t i = 0; memory != nullptr && i < bytes; i += 4096) memory[i] = 1;
        return 0;
    }
    if (what == "segv") return ::raise(SIGSEGV);
    if (what == "abort") std::abort();
    if (what == "uid") {
        std::printf("uid %u gid %u pid %d\n", ::getuid(), ::getgid(), ::getpid());
        return 0;
    }
    std::printf("unknown probe %s\n", what.c_str());
    return 64;
}

// "locked <kind>[:<plugin>] ...": the rest happens under the second filter, as in a plugin after Ready.
bool lock(const std::string& words) {
    const std::string kind = words.substr(0, words.find(':'));
    const std::string name = kind.size() == words.size() ? "" : words.substr(kind.size() + 1);
    for (const hf::abi::Kind each : hf::abi::EnumValuesKind()) {
        if (kind != hf::abi::EnumNameKind(each)) continue;
        static volatile unsigned report = 0;
        const auto locked = hf::sdk::lock_down(each, name.c_str(), &report);
        if (!locked) std::printf("not locked: %s\n", locked.error().message.c_str());
        return locked.ok();
    }
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    // A stdout that needs no look at its descriptor later.
    std::setvbuf(stdout, nullptr, _IOLBF, 4096);
    if (argc > 3 && std::string(argv[1]) == "locked") {
        if (!lock(argv[2])) return 65;
        argv += 2;
        argc -= 2;
    }
    if (argc < 2) return 64;
    const std::string what = argv[1];
    const char* argument = argc > 2 ? argv[2] : "0";
    for (const Call& call : kCalls) {
        if (what != call.name) continue;
        errno = 0;
        const long result = ::syscall(call.number,
                                      call.args[0],
                                      call.args[1],
                                      call.args[2],
                                      call.args[3],
                                      call.args[4],
                                      call.args[5]);
        return survived(call.name, result, errno);
    }
    if (what == "fork") return fork_probe();
#if defined(__x86_64__)
    if (what == "int80") return int80_probe();
    if (what == "x32") return x32_probe();
#endif
    if (what == "enosys") return enosys_probe();
    if (what == "works") return works_probe();
    if (what == "fds") return fds_probe();
    if (what == "see") return see_probe(argument);
    if (what == "write") return write_probe(argument);
    if (what == "connect") return connect_probe(argument);
    return other(what, argument);
}
