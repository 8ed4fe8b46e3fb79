#include "agent/process/running.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "abi/base/clock.hpp"
#include "agent/process/exit_report.hpp"

namespace hf::process {
namespace {

// One turn of the loop takes at most this from one process, so that a flood does not keep the others waiting: as much
// as a pipe holds.
constexpr std::size_t kReadBudgetBytes = 64 * 1024;
// What may still lie in the pipe when every writer is gone: its capacity, and the same again for those that raised it.
constexpr std::size_t kLastReadBytes = 2 * 1024 * 1024;
// A jail knows about half a dozen walls; a longer list is not from our jail.
constexpr std::size_t kWallsMax = 32;

std::int64_t now_ms() {
    return monotonic_ns() / 1'000'000;
}

void signal_pidfd(const UniqueFd& pidfd, int number) {
    // A process that has ended already answers ESRCH, which is what was wanted.
    if (pidfd.valid()) ::syscall(SYS_pidfd_send_signal, pidfd.get(), number, nullptr, 0);
}

// The number in our pid namespace; 0 when it is reaped already.
pid_t pid_of(int pidfd) {
    const std::string path = "/proc/self/fdinfo/" + std::to_string(pidfd);
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), &std::fclose);
    if (!file) return 0;
    char line[128];
    while (std::fgets(line, sizeof line, file.get()) != nullptr)
        if (std::strncmp(line, "Pid:", 4) == 0) {
            const long pid = std::strtol(line + 4, nullptr, 10);
            return pid > 0 ? static_cast<pid_t>(pid) : 0;
        }
    return 0;
}

}  // namespace

Running::Running(Start start, LineSink lines, std::function<void(const ExitReport&)> ended)
    : loop_(start.loop),
      jail_(std::move(start.jail)),
      report_socket_(std::move(start.report_socket)),
      error_pipe_(std::move(start.error_pipe)),
      own_pids_(start.own_pids),
      started_ms_(now_ms()),
      cgroup_(std::move(start.cgroup)),
      lines_(start.lines_per_second,
             [sink = std::move(lines), name = start.name](const std::string& line,
                                                          std::uint64_t dropped) {
                 if (sink) sink(name, line, dropped);
             }),
      ended_(std::move(ended)) {
    report_.name = std::move(start.name);
    if (cgroup_) missing_walls_ = cgroup_->missing();
}

Result<void> Running::watch(uv_loop_t* loop, std::uint32_t wall_ms) {
    HF_ASSIGN(jail_watch_, Watch::readable(loop, jail_.pidfd.get(), [this] { jail_ended(); }));
    HF_ASSIGN(report_watch_,
              Watch::readable(loop, report_socket_.get(), [this] { report_readable(); }));
    HF_ASSIGN(error_watch_, Watch::readable(loop, error_pipe_.get(), [this] {
                  if (!error_readable(kReadBudgetBytes)) error_watch_.reset();
              }));
    if (wall_ms != 0) {
        HF_ASSIGN(wall_watch_, Watch::after(loop, wall_ms, [this, wall_ms] {
                      report_.failure =
                          "ended after its limit of " + std::to_string(wall_ms) + " ms";
                      kill_now();
                  }));
    }
    return {};
}

void Running::signal_all() {
    signal_pidfd(plugin_pidfd_, SIGKILL);
    wake_jail();
    // Without a pid namespace only the jail finds what the plugin started: it follows by itself when that is done.
    if (own_pids_ || !plugin_pidfd_.valid()) signal_pidfd(jail_.pidfd, SIGKILL);
}

// Only the jail sees its plugin's end; one that somebody stopped would never tell, and never end itself.
void Running::wake_jail() {
    signal_pidfd(jail_.pidfd, SIGCONT);
}

void Running::kill_now() {
    if (jail_reaped_) return;
    report_.by_supervisor = true;
    signal_all();
}

void Running::kill_and_wait() {
    ended_ = nullptr;
    // A Process may be held longer than the loop lives: leave nothing in it.
    for (Watch* watch : {&jail_watch_, &plugin_watch_, &report_watch_, &error_watch_, &wall_watch_})
        watch->reset();
    if (!jail_reaped_) {
        report_readable();  // the plugin's pidfd may lie there
        signal_all();
        if (auto status = reap(jail_.pidfd); status) jail_reaped_ = true;
        report_readable();
    }
    if (!own_pids_ && plugin_pidfd_.valid()) {
        signal_pidfd(plugin_pidfd_, SIGKILL);
        pollfd waiting{plugin_pidfd_.get(), POLLIN, 0};
        while (::poll(&waiting, 1, -1) < 0 && errno == EINTR) {
        }
        plugin_ended();
    }
    leave_cgroup();
}

void Running::report_readable() {
    for (;;) {
        std::uint8_t bytes[layout::kJailReportBytesMax + 512];
        iovec part{bytes, sizeof bytes};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr message{};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        const ssize_t got = ::recvmsg(report_socket_.get(), &message, MSG_CMSG_CLOEXEC);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            report_watch_.reset();
            return;
        }
        UniqueFd fd;
        for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
             head = CMSG_NXTHDR(&message, head))
            if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
                int number = -1;
                std::memcpy(&number, CMSG_DATA(head), sizeof number);
                fd.reset(number);
            }
        take_report(BytesView(bytes, static_cast<std::size_t>(got)), std::move(fd));
    }
}

void Running::take_report(BytesView bytes, UniqueFd fd) {
    auto report = layout::decode_jail_report(bytes);
    if (!report) {
        // Jail and supervisor are not of one build: what it says cannot be trusted.
        report_.failure = report.error().message;
        kill_now();
        return;
    }
    switch (report->kind) {
        case layout::JailReportKind::Wall:
            if (missing_walls_.size() < kWallsMax) missing_walls_.push_back(report->text);
            break;
        case layout::JailReportKind::Born:
            plugin_pidfd_ = std::move(fd);
            report_.started = true;
            report_.pid = pid_of(plugin_pidfd_.get());  // 0 when it is gone already
            // A failure costs the care for stopped jails, nothing else.
            if (auto watching = Watch::readable(loop_,
                                                plugin_pidfd_.get(),
                                                [this] {
                                                    plugin_watch_.reset();
                                                    wake_jail();
                                                });
                watching)
                plugin_watch_ = std::move(watching).value();
            if (report_.by_supervisor) signal_all();  // killed before it was known
            break;
        case layout::JailReportKind::Failed:
            told_end_ = true;
            if (report_.failure.empty()) report_.failure = report->text;
            report_.started = false;
            report_.pid = 0;
            break;
        case layout::JailReportKind::Ended:
            told_end_ = true;
            take_wait_status(report_, static_cast<int>(report->wait_status));
            report_.syscall = report->syscall;
            break;
    }
}

bool Running::error_readable(std::size_t budget) {
    char bytes[8192];
    while (budget > 0) {
        const ssize_t got = ::read(error_pipe_.get(), bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return false;
        const auto size = static_cast<std::size_t>(got);
        lines_.feed(std::string_view(bytes, size), now_ms());
        budget -= std::min(budget, size);
    }
    return true;
}

void Running::jail_ended() {
    jail_watch_.reset();
    wall_watch_.reset();
    const auto status = reap(jail_.pidfd);
    jail_reaped_ = true;
    report_readable();  // what it sent before it ended
    if (!told_end_) {
        // It was killed, and its plugin with it: by its pid namespace, or by pdeathsig.
        if (status) take_wait_status(report_, status.value());
        if (!report_.started && report_.failure.empty() && !report_.by_supervisor)
            report_.failure = "the jail ended before it started the plugin";
    }
    plugin_watch_.reset();
    if (own_pids_ || told_end_ || !plugin_pidfd_.valid()) {
        finish();
        return;
    }
    auto watching = Watch::readable(loop_, plugin_pidfd_.get(), [this] {
        plugin_ended();
        finish();
    });
    if (watching) {
        plugin_watch_ = std::move(watching).value();
    } else {
        finish();
    }
}

void Running::plugin_ended() {
    plugin_watch_.reset();
    // Orphans go to init; where that is us the body is ours to reap.
    siginfo_t info{};
    ::waitid(P_PIDFD, static_cast<id_t>(plugin_pidfd_.get()), &info, WEXITED | WNOHANG);
}

// Everything of it is reaped.
void Running::leave_cgroup() {
    if (cgroup_ && report_.signal == SIGKILL && !report_.by_supervisor && cgroup_->out_of_memory())
        report_.out_of_memory_bytes = cgroup_->limits().memory_bytes;
    cgroup_.reset();
}

void Running::finish() {
    leave_cgroup();
    report_watch_.reset();
    error_watch_.reset();
    error_readable(kLastReadBytes);
    lines_.finish(now_ms());
    report_.stderr_tail = lines_.tail();
    take_second_filter(report_);
    report_.lived_ms = now_ms() - started_ms_;
    error_pipe_.reset();
    report_socket_.reset();
    plugin_pidfd_.reset();
    jail_.pidfd.reset();
    // Last: the owner may do anything, our end included.
    if (const auto ended = std::exchange(ended_, nullptr)) ended(report_);
}

}  // namespace hf::process
