#include "agent/process/launch.hpp"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "abi/base/check.hpp"
#include "abi/layout/jail_spec.hpp"

namespace hf::process {
namespace {

using namespace layout;  // NOLINT(google-build-using-namespace): the descriptor numbers

// The child between clone and exec makes a dozen calls and holds one struct; the C library uses 32 KiB for the same.
constexpr std::size_t kChildStackBytes = 64 * 1024;
// Descriptors are moved above every number the jail expects before any of them is put in its place.
constexpr int kLastFd = kNetworkFd;
constexpr int kAboveTargets = kLastFd + 1;
constexpr int kExecFailed = 127;

// Lies on the parent's stack, which the child shares until exec.
struct ChildOrder {
    const char* binary = nullptr;  // null: end at once
    char* const* argv = nullptr;
    std::array<int, kLastFd + 1> sources{};  // by target; -1: closed
    std::array<int, kCgroupsMax> cgroups{};
    std::size_t cgroup_count = 0;
    bool map_user = false;
    char uid_map[64] = {};
    char gid_map[64] = {};
    int failed_errno = 0;
    const char* failed_step = nullptr;
};

bool write_file(const char* path, const char* text) {
    const int fd = ::open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const auto size = static_cast<ssize_t>(std::strlen(text));
    const bool ok = ::write(fd, text, static_cast<std::size_t>(size)) == size;
    ::close(fd);
    return ok;
}

// Our own uid stays our own uid; the capabilities of the new namespace go through exec as ambient ones.
bool enter_user_namespace(const ChildOrder& order) {
    if (!write_file("/proc/self/setgroups", "deny") ||
        !write_file("/proc/self/uid_map", order.uid_map) ||
        !write_file("/proc/self/gid_map", order.gid_map))
        return false;
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    if (::syscall(SYS_capget, &header, data) != 0) return false;
    for (auto& word : data) word.inheritable = word.permitted;
    if (::syscall(SYS_capset, &header, data) != 0) return false;
    for (int capability = 0; capability < 64; ++capability) {
        const bool permitted = (data[capability / 32].permitted >> (capability % 32) & 1U) != 0;
        if (permitted && ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0) != 0)
            return false;
    }
    return true;
}

int fail_child(ChildOrder& order, const char* step) {
    order.failed_errno = errno;
    order.failed_step = step;
    ::_exit(kExecFailed);
}

// Shares the parent's memory: plain calls only, no allocation. All signals are blocked.
int child_main(void* argument) {
    // SAFETY: launch passes exactly this.
    auto& order = *static_cast<ChildOrder*>(argument);
    // First of all: "0" is whoever writes it, and whatever comes of it stays inside.
    for (std::size_t i = 0; i < order.cgroup_count; ++i)
        if (::write(order.cgroups[i], "0", 1) != 1)
            return fail_child(order, "entering its control group");
    if (order.map_user && !enter_user_namespace(order))
        return fail_child(order, "mapping the own uid");
    if (order.binary == nullptr) ::_exit(0);
    for (int target = 0; target <= kLastFd; ++target) {
        const int source = order.sources[static_cast<std::size_t>(target)];
        if (source < 0) {
            ::close(target);
        } else if (::dup2(source, target) < 0) {
            return fail_child(order, "placing descriptors");
        }
    }
    // Everything of ours is close-on-exec; this also stops what a library forgot. Missing before Linux 5.9.
    ::syscall(SYS_close_range, kLastFd + 1, ~0U, 0);
    char* const environment[] = {nullptr};
    ::execve(order.binary, order.argv, environment);
    return fail_child(order, "running the jail");
}

class BlockSignals {
public:
    BlockSignals() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockSignals(const BlockSignals&) = delete;
    BlockSignals& operator=(const BlockSignals&) = delete;

private:
    sigset_t before_{};
};

class ChildStack {
public:
    ChildStack()
        : base_(::mmap(nullptr,
                       kChildStackBytes,
                       PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK,
                       -1,
                       0)) {}
    ~ChildStack() {
        if (!valid()) return;
#if defined(__SANITIZE_ADDRESS__)
        // The child left it by exec, so that the marks of its frames would stay on whatever is mapped here next.
        __asan_unpoison_memory_region(base_, kChildStackBytes);
#endif
        ::munmap(base_, kChildStackBytes);
    }
    ChildStack(const ChildStack&) = delete;
    ChildStack& operator=(const ChildStack&) = delete;
    [[nodiscard]] bool valid() const {
        return base_ != MAP_FAILED;
    }
    // Stacks grow down.
    [[nodiscard]] void* top() const {
        return static_cast<char*>(base_) + kChildStackBytes;
    }

private:
    void* base_;
};

Result<Launched> clone_child(ChildOrder& order, int namespaces) {
    const ChildStack stack;
    if (!stack.valid()) return fail_errno(errno, "a stack for the jail's start");
    int pidfd = -1;
    pid_t pid = 0;
    int error = 0;
    {
        const BlockSignals blocked;
        // VFORK: we go on when it has become the jail or has ended.
        pid = ::clone(child_main,
                      stack.top(),
                      namespaces | CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                      &order,
                      &pidfd);
        error = errno;
    }
    if (pid < 0) return fail_errno(error, "starting the jail");
    Launched launched{pid, UniqueFd(pidfd)};
    if (order.failed_step == nullptr) return launched;
    // It ended already: nobody else may find the body.
    if (auto status = reap(launched.pidfd); !status) return status.error();
    return fail_errno(order.failed_errno, std::string("starting the jail: ") + order.failed_step);
}

void fill_cgroups(ChildOrder& order, const std::vector<int>& doors) {
    HF_CHECK(doors.size() <= kCgroupsMax, "a process has one group in each hierarchy that limits");
    order.cgroup_count = doors.size();
    std::copy(doors.begin(), doors.end(), order.cgroups.begin());
}

void fill_maps(ChildOrder& order) {
    std::snprintf(order.uid_map, sizeof order.uid_map, "%u %u 1\n", ::geteuid(), ::geteuid());
    std::snprintf(order.gid_map, sizeof order.gid_map, "%u %u 1\n", ::getegid(), ::getegid());
}

}  // namespace

Result<UniqueFd> make_empty_network() {
    UniqueFd fd;
    int error = 0;
    // A thread of its own enters it and ends; the descriptor keeps it. Ours stays where it is.
    std::thread([&] {
        if (::unshare(CLONE_NEWNET) == 0)
            fd.reset(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
        error = errno;
    }).join();
    if (!fd.valid()) return fail_errno(error, "making an empty network namespace");
    return fd;
}

Ability find_ability() {
    Ability ability;
    ability.user_namespace = ::geteuid() != 0;
    ChildOrder order;
    order.map_user = ability.user_namespace;
    fill_maps(order);
    const int flags = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET |
                      (ability.user_namespace ? CLONE_NEWUSER : 0);
    auto tried = clone_child(order, flags);
    if (tried) {
        if (auto status = reap(tried->pidfd); !status) tried = status.error();
    }
    ability.namespaces = tried.ok();
    if (!tried) {
        ability.reason = tried.error().message;
        ability.user_namespace = false;
    }
    return ability;
}

Result<void> try_cgroups(const std::vector<int>& doors) {
    ChildOrder order;
    fill_cgroups(order, doors);
    HF_ASSIGN(const Launched tried, clone_child(order, 0));
    if (auto status = reap(tried.pidfd); !status) return status.error();
    return {};
}

Result<Launched> launch(const std::string& jail_binary,
                        const std::string& name,
                        const Ability& ability,
                        bool host_pids,
                        const LaunchFds& fds) {
    UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null.valid()) return fail_errno(errno, "opening /dev/null");
    ChildOrder order;
    std::array<UniqueFd, kLastFd + 1> moved;
    const std::array<int, kLastFd + 1> wanted = {null.get(),
                                                 fds.standard_output,
                                                 fds.standard_error,
                                                 fds.control,
                                                 fds.spec,
                                                 fds.report,
                                                 fds.network};
    for (std::size_t target = 0; target < wanted.size(); ++target) {
        order.sources[target] = -1;
        if (wanted[target] < 0) continue;
        moved[target].reset(::fcntl(wanted[target], F_DUPFD_CLOEXEC, kAboveTargets));
        if (!moved[target].valid()) return fail_errno(errno, "a descriptor for the jail");
        order.sources[target] = moved[target].get();
    }
    std::string title = "holdfast-jail";
    std::string label = name;
    char* argv[] = {title.data(), label.data(), nullptr};
    fill_cgroups(order, fds.cgroups);
    order.binary = jail_binary.c_str();
    order.argv = argv;
    int namespaces = 0;
    if (ability.namespaces) {
        if (!host_pids) namespaces |= CLONE_NEWPID;
        if (ability.user_namespace) namespaces |= CLONE_NEWUSER;
        order.map_user = ability.user_namespace;
        fill_maps(order);
    }
    return clone_child(order, namespaces);
}

Result<int> reap(const UniqueFd& pidfd) {
    siginfo_t info{};
    int rc = 0;
    do {
        // libuv has made it non-blocking, which waitid heeds: wait here.
        pollfd waiting{pidfd.get(), POLLIN, 0};
        rc = ::poll(&waiting, 1, -1);
        if (rc >= 0) rc = ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED);
    } while (rc != 0 && (errno == EINTR || errno == EAGAIN));
    if (rc != 0) return fail_errno(errno, "reaping");
    if (info.si_code == CLD_EXITED) return info.si_status << 8;
    return info.si_status | (info.si_code == CLD_DUMPED ? 0x80 : 0);
}

}  // namespace hf::process
