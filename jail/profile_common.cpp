// What every program needs from its first instruction on: the loader, the C and C++ libraries, and the plugin's side of
// a link. Old spellings (open, stat, poll) stand beside the new ones because musl uses them.
#include <asm/termbits.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kCommon[] = {
    {"read", kAlways, "libraries while loading, eventfds and sockets later"},
    {"write", kAlways, "eventfds, stderr"},
    {"readv", kAlways, "stdio of musl, libuv"},
    {"writev", kAlways, "stdio of musl, libuv, messages of assert"},
    {"pread64", kAlways, "the loader reads ELF headers with it"},
    {"close", kAlways, "every program"},
    {"lseek", kAlways, "stdio"},
    {"fstat", kAlways, "loader, stdio"},
    {"stat", kAlways, "loader of musl"},
    {"lstat", kAlways, "realpath"},
    {"newfstatat", kAlways, "loader of glibc"},
    {"statx", kAlways, "libstdc++ and libuv ask for files with it"},
    {"access", kAlways, "loader looks for ld.so.preload"},
    {"faccessat", kAlways, "access in libraries that got ENOSYS for faccessat2"},
    {"open", kAlways, "loader of musl"},
    {"openat", kAlways, "loader; the mounts decide what there is to open"},
    {"openat2", kAlways, "as openat"},
    {"readlink", kAlways, "loader resolves $ORIGIN"},
    {"readlinkat", kAlways, "as readlink"},
    {"getcwd", kAlways, "libraries that make paths absolute"},
    {"brk", kAlways, "malloc"},
    {"mmap", kAlways, "loader, malloc, the link's segments"},
    {"munmap", kAlways, "loader, malloc"},
    {"mprotect", kAlways, "loader makes relocated pages read-only; malloc's arenas"},
    {"mremap", kAlways, "realloc of large blocks"},
    {"madvise", arg_is_not(2, MADV_REMOVE), "free gives pages back; thread stacks"},
    {"arch_prctl", kAlways, "the C library sets the thread pointer"},
    {"set_tid_address", kAlways, "C library start-up"},
    {"set_robust_list", kAlways, "C library start-up and threads"},
    {"rseq", kAlways, "glibc 2.35 and newer register it; an errno other than ENOSYS ends them"},
    {"prlimit64", arg_is(2, 0), "reading the stack limit; not setting any"},
    {"getrlimit", kAlways, "as prlimit64, in older libraries"},
    {"getrusage", kAlways, "a plugin's own CPU time for its metrics"},
    {"getrandom", kAlways, "hash seeds, malloc, TLS"},
    {"uname", kAlways, "libraries that look at the kernel's version"},
    {"sysinfo", kAlways, "qsort and the compiler size their memory by it"},
    {"getpid", kAlways, "raise, log lines"},
    {"getppid", kAlways, "log lines"},
    {"gettid", kAlways, "raise, log lines"},
    {"getuid", kAlways, "loader checks for set-uid"},
    {"geteuid", kAlways, "loader checks for set-uid"},
    {"getgid", kAlways, "loader checks for set-uid"},
    {"getegid", kAlways, "loader checks for set-uid"},
    {"exit", kAlways, "end of a thread"},
    {"exit_group", kAlways, "end of the program"},
    {"futex", kAlways, "mutexes, condition variables, joining threads"},
    {"sched_yield", kAlways, "the bounded spin before a block"},
    {"sched_getaffinity", kAlways, "how many threads make sense"},
    {"getcpu", kAlways, "which core the peer runs on, for the wake policy"},
    {"membarrier", kAlways, "the fence before sleeping, where the library uses it"},
    {"clock_gettime", kAlways, "clocks the vDSO does not serve"},
    {"clock_getres", kAlways, "clock checks of libraries"},
    {"clock_nanosleep", kAlways, "sleeping"},
    {"nanosleep", kAlways, "sleeping in older libraries"},
    {"gettimeofday", kAlways, "log lines, where the vDSO is off"},
    {"time", kAlways, "log lines, where the vDSO is off"},
    {"rt_sigaction", kAlways, "SIGPIPE, SIGSYS, traps"},
    {"rt_sigprocmask", kAlways, "threads start with signals blocked"},
    {"rt_sigreturn", kAlways, "return from a handler"},
    {"rt_sigtimedwait", kAlways, "threads that wait for signals"},
    {"sigaltstack", kAlways, "handlers that survive a stack overflow"},
    {"restart_syscall", kAlways, "the kernel inserts it after a stop"},
    {"tgkill", arg_is_own_pid(0), "raise and abort"},
    {"dup", kAlways, "descriptors it already has"},
    {"dup2", kAlways, "descriptors it already has"},
    {"dup3", kAlways, "descriptors it already has"},
    {"fcntl", kAlways, "close-on-exec, non-blocking, record locks"},
    {"pipe2", kAlways, "libuv wakes its loop by one"},
    {"eventfd2", kAlways, "waking a thread"},
    {"epoll_create1", kAlways, "the loop"},
    {"epoll_ctl", kAlways, "the loop"},
    {"epoll_wait", kAlways, "the loop"},
    {"epoll_pwait", kAlways, "the loop"},
    {"poll", kAlways, "waiting for one descriptor"},
    {"ppoll", kAlways, "waiting for one descriptor"},
    {"select", kAlways, "waiting, in older libraries"},
    {"pselect6", kAlways, "waiting, in older libraries"},
    {"sendmsg", kAlways, "the control socket it was given"},
    {"recvmsg", kAlways, "the control socket; descriptors arrive by it"},
    {"sendto", kAlways, "send on the control socket"},
    {"recvfrom", kAlways, "recv on the control socket"},
    {"getsockopt", kAlways, "peer credentials of the control socket"},
    {"getsockname", kAlways, "is descriptor 3 a socket"},
    {"shutdown", kAlways, "closing its side of a socket it was given"},
    {"ioctl", arg_is(1, TCGETS), "isatty of stdio"},
    {"ioctl", arg_is(1, TIOCGWINSZ), "isatty of musl"},
    {"ioctl", arg_is(1, FIONBIO), "non-blocking, as libuv sets it"},
    {"ioctl", arg_is(1, FIOCLEX), "close-on-exec, as libuv sets it"},
    {"ioctl", arg_is(1, FIONREAD), "how much a pipe holds"},
    {"prctl", arg_is(0, PR_SET_NAME), "thread names"},
    {"prctl", arg_is(0, PR_GET_NAME), "thread names"},
    {"prctl", arg_is(0, PR_SET_NO_NEW_PRIVS), "libseccomp sets it before the second filter"},
    {"prctl", arg_is(0, PR_GET_NO_NEW_PRIVS), "libseccomp looks before the second filter"},
    {"prctl", arg_is(0, PR_GET_SECCOMP), "libseccomp looks what the kernel can do"},
    {"prctl", arg_is(0, PR_SET_TIMERSLACK), "sleeps that are not rounded by 50 us"},
    {"seccomp",
     arg_is(0, SECCOMP_SET_MODE_STRICT),
     "libseccomp asks by it whether the call exists"},
    {"seccomp", arg_is(0, SECCOMP_SET_MODE_FILTER), "the second filter; one can only add"},
    {"seccomp", arg_is(0, SECCOMP_GET_ACTION_AVAIL), "libseccomp looks what the kernel can do"},
    {"seccomp", arg_is(0, SECCOMP_GET_NOTIF_SIZES), "libseccomp looks what the kernel can do"},
};

constexpr Rule kThreads[] = {
    {"clone", arg_has(0, CLONE_THREAD), "threads; glibc comes here after ENOSYS for clone3"},
};

}  // namespace

const Rules kAllowCommon{kCommon};
const Rules kAllowThreads{kThreads};

}  // namespace hf::jail
