#include "jail/warden.hpp"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "abi/layout/jail_spec.hpp"
#include "abi/layout/seccomp_filter.hpp"
#include "jail/report.hpp"

namespace hf::jail {
namespace {

// A later kernel may write more than our header knows; this is five times today's size.
constexpr std::size_t kNotificationBytesMax = 512;

}  // namespace

Warden::Warden(
    pid_t plugin, UniqueFd start_socket, UniqueFd signals, UniqueFd proc, bool exec_allowed)
    : plugin_(plugin),
      start_(std::move(start_socket)),
      signals_(std::move(signals)),
      proc_(std::move(proc)),
      exec_pending_(!exec_allowed) {}

Result<Ending> Warden::watch() {
    while (!ended_) {
        // A negative descriptor is skipped by poll.
        pollfd watched[] = {
            {signals_.get(), POLLIN, 0}, {start_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
        if (::poll(watched, 3, -1) < 0) {
            if (errno == EINTR) continue;
            return fail_errno(errno, "waiting for the plugin");
        }
        // The start socket first: an end without a failure sentence means that exec succeeded.
        if (watched[1].revents != 0) start_readable();
        if ((watched[2].revents & POLLIN) != 0)
            listener_readable();
        else if (watched[2].revents != 0)
            listener_.reset();  // no process is under the filter any more
        if (watched[0].revents != 0) reap();
    }
    end_leftovers();
    return ending_;
}

void Warden::start_readable() {
    auto packet = receive_packet(start_.get(), layout::kJailReportBytesMax);
    if (!packet || packet->end) {
        start_.reset();
        return;
    }
    if (packet->fd >= 0) {
        listener_.reset(packet->fd);
    } else {
        ending_.failure = as_text(packet->bytes);
    }
}

void Warden::listener_readable() {
    // The kernel wants zeroes, and may write more than today's struct.
    alignas(seccomp_notif) char bytes[kNotificationBytesMax] = {};
    // SAFETY: aligned for it, larger than it, and only plain integers inside.
    auto* notification = reinterpret_cast<seccomp_notif*>(bytes);
    if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, notification) != 0)
        return;  // its caller died
    const bool execve = notification->data.nr == SYS_execve &&
                        layout::syscall_name(notification->data.arch, SYS_execve) == "execve";
    if (exec_pending_ && execve && static_cast<pid_t>(notification->pid) == plugin_) {
        // Our own child's exec of the plugin: no byte of the plugin has run yet.
        exec_pending_ = false;
        seccomp_notif_resp answer{};
        answer.id = notification->id;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer);
        return;
    }
    if (ending_.syscall.empty()) {
        ending_.syscall = layout::syscall_name(notification->data.arch, notification->data.nr);
        ending_.syscall_number = static_cast<std::uint32_t>(notification->data.nr);
    }
    // Never answered: the caller sleeps in the kernel until it is killed.
    end_plugin();
}

void Warden::reap() {
    signalfd_siginfo info{};
    // Signals of one kind are merged, so all children are asked below.
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
        if (info.ssi_signo == SIGTERM) end_plugin();  // the supervisor died
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != plugin_) continue;
        ended_ = true;
        ending_.wait_status = status;
    }
    if (!ended_) return;
    // The failure sentence may still lie in the socket.
    while (start_.valid()) start_readable();
}

void Warden::end_plugin() const {
    ::kill(plugin_, SIGKILL);
}

void Warden::end_leftovers() {
    // As pid 1 our own exit ends the namespace, and the kernel waits for all of it before we count as dead.
    if (::getpid() == 1 || !proc_.valid()) return;
    const std::string path = "self/task/" + std::to_string(::getpid()) + "/children";
    // Orphans become our children one level at a time; each round ends one level, and none can start new ones for long.
    constexpr int kRoundsMax = 64;
    for (int round = 0; round < kRoundsMax; ++round) {
        const UniqueFd file(::openat(proc_.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!file.valid()) return;
        char text[4096] = {};
        const ssize_t got = ::read(file.get(), text, sizeof text - 1);
        if (got <= 0) return;
        for (char* next = text; *next != '\0';) {
            char* end = nullptr;
            const long pid = std::strtol(next, &end, 10);
            if (end == next) break;
            if (pid > 0) ::kill(static_cast<pid_t>(pid), SIGKILL);
            next = end;
        }
        while (::waitpid(-1, nullptr, 0) > 0) {
        }
    }
}

}  // namespace hf::jail
