#include "abi/sdk/lockdown_profiles.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

namespace hf::sdk {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kAllowAll[] = {
    {"read", kAlways, "the bell, and descriptors it already has"},
    {"write", kAlways, "the bell, stderr"},
    {"readv", kAlways, "stdio of musl, libuv"},
    {"writev", kAlways, "stdio of musl, libuv, messages of assert"},
    {"close", kAlways, "descriptors it already has"},
    {"fstat", kAlways, "stdio's first write"},
    {"lseek", kAlways, "stdio at exit"},
    {"sendmsg", kAlways, "the control socket"},
    {"recvmsg", kAlways, "the control socket; descriptors for large bodies arrive by it"},
    {"sendto", kAlways, "send on the control socket"},
    {"recvfrom", kAlways, "recv on the control socket"},
    {"shutdown", kAlways, "the end of a socket it has"},
    {"epoll_wait", kAlways, "the loop"},
    {"epoll_pwait", kAlways, "the loop"},
    {"epoll_ctl", kAlways, "the loop"},
    {"poll", kAlways, "waiting for the bell"},
    {"ppoll", kAlways, "waiting for the bell"},
    {"futex", kAlways, "mutexes, condition variables"},
    {"mmap", arg_lacks(2, PROT_EXEC), "malloc, segments that arrive later; no new code"},
    {"mprotect", arg_lacks(2, PROT_EXEC), "malloc's arenas, guard pages; no new code"},
    {"munmap", kAlways, "free"},
    {"mremap", kAlways, "realloc of large blocks; keeps the protection"},
    {"madvise",
     arg_is_not(2, MADV_REMOVE),
     "free gives pages back; never holes in shared segments"},
    {"brk", kAlways, "malloc"},
    {"exit", kAlways, "end of a thread"},
    {"exit_group", kAlways, "end of the program"},
    {"clock_gettime", kAlways, "deadlines, where the vDSO does not serve the clock"},
    {"clock_getres", kAlways, "clock checks of libraries"},
    {"clock_nanosleep", kAlways, "sleeping"},
    {"nanosleep", kAlways, "sleeping"},
    {"gettimeofday", kAlways, "log lines"},
    {"time", kAlways, "log lines"},
    {"getcpu", kAlways, "the wake policy"},
    {"sched_yield", kAlways, "the bounded spin"},
    {"sched_getaffinity", kAlways, "how many cores there are"},
    {"membarrier", kAlways, "the fence before sleeping, where the library uses it"},
    {"getrandom", kAlways, "hash seeds"},
    {"getpid", kAlways, "raise"},
    {"gettid", kAlways, "raise"},
    {"getrusage", kAlways, "its own CPU time for metrics"},
    {"tgkill", arg_is_own_pid(0), "raise and abort"},
    {"rt_sigaction", arg_is_not(0, SIGSYS), "abort resets SIGABRT; SIGSYS stays ours"},
    {"rt_sigprocmask", kAlways, "raise, thread ends"},
    {"rt_sigreturn", kAlways, "return from a handler"},
    {"rt_sigtimedwait", kAlways, "threads that wait for signals"},
    {"sigaltstack", kAlways, "handlers that survive a stack overflow"},
    {"restart_syscall", kAlways, "the kernel inserts it after a stop"},
};

constexpr Rule kForbidAll[] = {
    {"mmap", arg_has(2, PROT_EXEC), "code is what was loaded at start"},
    {"mprotect", arg_has(2, PROT_EXEC), "code is what was loaded at start"},
    {"pkey_mprotect", kAlways, "mprotect by another name"},
    {"rt_sigaction", arg_is(0, SIGSYS), "the handler that names a forbidden call must stay"},
    {"seccomp", kAlways, "the filters are complete"},
};

constexpr Rule kForbidOpen[] = {
    {"open", kAlways, "files were opened at start"},
    {"openat", kAlways, "files were opened at start"},
    {"openat2", kAlways, "files were opened at start"},
    {"creat", kAlways, "files were opened at start"},
};

constexpr Rule kForbidOpenForWrite[] = {
    {"open", arg_masked(1, O_ACCMODE, O_WRONLY), "what talks to the network writes no file"},
    {"open", arg_masked(1, O_ACCMODE, O_RDWR), "what talks to the network writes no file"},
    {"openat", arg_masked(2, O_ACCMODE, O_WRONLY), "what talks to the network writes no file"},
    {"openat", arg_masked(2, O_ACCMODE, O_RDWR), "what talks to the network writes no file"},
    {"creat", kAlways, "what talks to the network writes no file"},
};

constexpr Rule kAllowThreads[] = {
    {"clone", arg_has(0, CLONE_THREAD), "threads that start on first use"},
    {"set_robust_list", kAlways, "a thread's start"},
    {"rseq", kAlways, "a thread's start"},
    {"prctl", arg_is(0, PR_SET_NAME), "thread names"},
};

constexpr Rule kAllowStorage[] = {
    {"pread64", kAlways, "LMDB reads meta pages; large objects that come"},
    {"preadv", kAlways, "reading runs of pages"},
    {"pwrite64", kAlways, "LMDB writes pages and meta pages"},
    {"pwritev", kAlways, "LMDB writes runs of pages"},
    {"fdatasync", kAlways, "a commit is stored when this returned"},
    {"fsync", kAlways, "a commit is stored when this returned"},
    {"msync", kAlways, "LMDB syncs its map"},
    {"ftruncate", kAlways, "LMDB sizes its own files"},
    {"fcntl", kAlways, "LMDB's record locks: who reads, who writes; seals of large objects"},
    {"flock", kAlways, "one owner of the directory"},
    {"fstatfs", kAlways, "room left on the file system"},
    {"timerfd_settime", kAlways, "the look for stale readers"},
};

// Beside kAllowOutgoing: what the resolver of names opens, asks and wakes after the start.
constexpr Rule kAllowResolver[] = {
    {"open", arg_lacks(1, O_ACCMODE | O_CREAT | O_TRUNC), "the resolver's files and certificates"},
    {"openat",
     arg_lacks(2, O_ACCMODE | O_CREAT | O_TRUNC),
     "the resolver's files and certificates"},
    {"newfstatat", kAlways, "the resolver's files"},
    {"stat", kAlways, "the resolver's files"},
    {"access", kAlways, "the resolver's files"},
    {"pread64", kAlways, "libraries of the name service; large bodies and objects"},
    {"getsockopt", kAlways, "did the connection succeed"},
    {"getsockname", kAlways, "libcurl tells where it is connected from"},
    {"fcntl", kAlways, "close-on-exec, non-blocking, seals of large bodies"},
    {"ioctl", arg_is(1, FIONBIO), "non-blocking, as libcurl and libuv set it"},
    {"ioctl", arg_is(1, FIONREAD), "the resolver asks how much came"},
    {"eventfd2", kAlways, "threads of libcurl and libuv that start on first use"},
    {"pipe2", kAlways, "threads of libcurl and libuv that start on first use"},
    {"uname", kAlways, "the resolver's host name"},
};

constexpr Rule kAllowRuntime[] = {
    {"timer_create", kAlways, "CPU deadline of a worker thread"},
    {"timer_settime", kAlways, "CPU deadline of a worker thread"},
    {"timer_gettime", kAlways, "CPU deadline of a worker thread"},
    {"timer_delete", kAlways, "CPU deadline of a worker thread"},
    {"timerfd_settime", kAlways, "wall deadline"},
    {"pread64", kAlways, "its own pagemap, opened at start; large bodies"},
    {"fcntl", arg_is(1, F_ADD_SEALS), "sealing a large body"},
    {"fcntl", arg_is(1, F_GET_SEALS), "is a large body that came sealed"},
    {"mincore", kAlways, "which pages of a slot are there"},
};

constexpr Rule kAllowGateway[] = {
    {"getdents64", kAlways, "a directory of certificates"},
    {"accept4", kAlways, "clients"},
    {"accept", kAlways, "clients, where libuv falls back"},
    {"listen", kAlways, "uv_listen repeats it on the socket it was given"},
    {"ioctl", arg_is(1, FIOCLEX), "close-on-exec, as libuv sets it"},
    {"timerfd_create", kAlways, "timers of the loop"},
};

}  // namespace

const std::vector<LockdownProfile>& lockdown_profiles() {
    static const std::vector<LockdownProfile> profiles = {
        {"gateway-http",
         abi::Kind::Gateway,
         {Rules{kAllowAll},
          Rules{kAllowThreads},
          kAllowOutgoing,
          Rules{kAllowResolver},
          Rules{kAllowGateway},
          kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          Rules{kForbidAll},
          Rules{kForbidOpenForWrite},
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenRawSockets,
          kForbiddenOpenMemoryFiles,
          kForbiddenResize}},
        {"storage-local",
         abi::Kind::Storage,
         {Rules{kAllowAll}, Rules{kAllowThreads}, Rules{kAllowStorage}, kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          Rules{kForbidAll},
          Rules{kForbidOpen},
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenOpenMemoryFiles}},
        {"storage-s3",
         abi::Kind::Storage,
         {Rules{kAllowAll},
          Rules{kAllowThreads},
          kAllowOutgoing,
          Rules{kAllowResolver},
          kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          Rules{kForbidAll},
          Rules{kForbidOpenForWrite},
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenRawSockets,
          kForbiddenOpenMemoryFiles,
          kForbiddenResize}},
        {"runtime-wasm",
         abi::Kind::Runtime,
         {Rules{kAllowAll}, Rules{kAllowThreads}, Rules{kAllowRuntime}, kAllowSealableMemoryFiles},
         {kForbiddenToAll,
          Rules{kForbidAll},
          Rules{kForbidOpen},
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenOpenMemoryFiles,
          kForbiddenResize}},
        {"placement",
         abi::Kind::Placement,
         {Rules{kAllowAll}},
         {kForbiddenToAll,
          Rules{kForbidAll},
          Rules{kForbidOpen},
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenMemoryFiles,
          kForbiddenResize}},
        {"drain",
         abi::Kind::Drain,
         {Rules{kAllowAll}},
         {kForbiddenToAll,
          Rules{kForbidAll},
          Rules{kForbidOpen},
          kForbiddenExec,
          kForbiddenFork,
          kForbiddenSockets,
          kForbiddenMemoryFiles,
          kForbiddenResize}},
    };
    return profiles;
}

const LockdownProfile* find_lockdown(abi::Kind kind, std::string_view name) {
    const LockdownProfile* first = nullptr;
    for (const LockdownProfile& profile : lockdown_profiles()) {
        if (profile.kind != kind) continue;
        if (profile.name == name) return &profile;
        if (first == nullptr) first = &profile;
    }
    return first;
}

}  // namespace hf::sdk
