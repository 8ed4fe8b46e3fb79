#include "agent/process/leftovers.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "abi/base/clock.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::process {
namespace {

constexpr std::string_view kHeader = "holdfast-instances 1";
// A killed process ends within milliseconds unless it hangs in the kernel, where waiting longer does not help.
constexpr std::int64_t kWaitMsMax = 5000;
// 256 processes with names of 128 bytes stay below a tenth of this; a larger file is not ours.
constexpr std::size_t kFileBytesMax = 1024 * 1024;
// Files set aside are kept for an operator; with that many of them something else is wrong.
constexpr int kBadFilesMax = 1000;

Result<std::string> read_file(const std::string& path, std::size_t most) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
        if (errno == ENOENT || errno == ESRCH)
            return fail(Code::NotFound, path + " does not exist");
        return fail_errno(errno, "opening " + path);
    }
    std::string text;
    char bytes[4096];
    while (text.size() <= most) {
        const ssize_t got = ::read(fd.get(), bytes, sizeof bytes);
        if (got < 0 && errno == EINTR) continue;
        // A process that ends while its file is read.
        if (got < 0 && errno == ESRCH) return fail(Code::NotFound, path + " is gone");
        if (got < 0) return fail_errno(errno, "reading " + path);
        if (got == 0) return text;
        text.append(bytes, static_cast<std::size_t>(got));
    }
    return fail(Code::Corrupt, path + " is larger than " + std::to_string(most) + " bytes");
}

template <class T>
bool number(std::string_view text, T& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

std::string_view next_word(std::string_view& rest) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    const std::string_view word = rest.substr(0, space);
    rest.remove_prefix(std::min(space + 1, rest.size()));
    return word;
}

Result<std::string> boot_id() {
    HF_ASSIGN(std::string text, read_file("/proc/sys/kernel/random/boot_id", 128));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
}

// "<pid> <start> <boot> <name>"
std::optional<InstanceMark> parse_line(std::string_view line) {
    InstanceMark mark;
    const bool numbers =
        number(next_word(line), mark.pid) && number(next_word(line), mark.start_ticks);
    mark.boot_id = next_word(line);
    mark.name = line;
    if (!numbers || mark.pid <= 1 || mark.boot_id.empty() || mark.name.empty()) return std::nullopt;
    return mark;
}

// The good lines; `whole` tells whether there were only such.
std::vector<InstanceMark> parse(std::string_view text, bool& whole) {
    std::vector<InstanceMark> marks;
    whole =
        text.substr(0, kHeader.size() + 1) == std::string(kHeader) + "\n" && text.back() == '\n';
    bool first = true;
    while (!text.empty()) {
        const std::size_t newline = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, newline);
        text.remove_prefix(std::min(newline + 1, text.size()));
        if (std::exchange(first, false) && line == kHeader) continue;
        if (auto mark = parse_line(line)) {
            marks.push_back(std::move(*mark));
        } else {
            whole = false;
        }
    }
    return marks;
}

Result<std::string> set_aside(const std::string& path) {
    for (int n = 1; n <= kBadFilesMax; ++n) {
        const std::string bad = path + ".bad-" + std::to_string(n);
        struct stat info {};
        if (::lstat(bad.c_str(), &info) == 0) continue;
        if (::rename(path.c_str(), bad.c_str()) != 0)
            return fail_errno(errno, "setting " + path + " aside");
        return bad;
    }
    return fail(Code::Refused,
                "too many files named " + path + ".bad-*: look at them and remove them");
}

std::string label(const InstanceMark& mark) {
    return mark.name + " (pid " + std::to_string(mark.pid) + ")";
}

// A pidfd of exactly that process; invalid when it does not run any more.
UniqueFd find_process(const InstanceMark& mark) {
    UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, mark.pid, 0)));
    if (!pidfd.valid()) return pidfd;
    // Asked after the pidfd is held: it cannot become another process's from here on.
    const auto now = mark_of(mark.pid, mark.name);
    if (!now || now->start_ticks != mark.start_ticks || now->boot_id != mark.boot_id) pidfd.reset();
    return pidfd;
}

bool ended_before(const UniqueFd& pidfd, std::int64_t deadline_ms) {
    for (;;) {
        const std::int64_t left = deadline_ms - monotonic_ns() / 1'000'000;
        pollfd waiting{pidfd.get(), POLLIN, 0};
        const int rc = ::poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
        if (rc > 0) return true;
        if (rc == 0 || errno != EINTR) return false;
    }
}

void kill_all(const std::vector<InstanceMark>& marks, LeftoverReport& report) {
    std::vector<std::pair<std::string, UniqueFd>> alive;
    for (const InstanceMark& mark : marks) {
        UniqueFd pidfd = find_process(mark);
        if (!pidfd.valid()) {
            ++report.gone;
            continue;
        }
        ::syscall(SYS_pidfd_send_signal, pidfd.get(), SIGKILL, nullptr, 0);
        alive.emplace_back(label(mark), std::move(pidfd));
    }
    const std::int64_t deadline = monotonic_ns() / 1'000'000 + kWaitMsMax;
    for (auto& [name, pidfd] : alive) {
        const bool ended = ended_before(pidfd, deadline);
        // Where it was handed to us as an orphan, the body is ours.
        siginfo_t info{};
        ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG);
        (ended ? report.killed : report.survived).push_back(name);
    }
}

}  // namespace

Result<InstanceMark> mark_of(pid_t pid, const std::string& name) {
    InstanceMark mark;
    mark.pid = pid;
    mark.name = name;
    // Bounded well above the longest stat line.
    HF_ASSIGN(const std::string stat, read_file("/proc/" + std::to_string(pid) + "/stat", 8192));
    // The command's name may hold spaces and brackets: fields count from the last bracket, where field 3 begins.
    const std::size_t bracket = stat.rfind(')');
    if (bracket == stat.npos || bracket + 2 >= stat.size())
        return fail(Code::Corrupt, "/proc stat of " + name);
    std::string_view rest = std::string_view(stat).substr(bracket + 2);
    if (rest.front() == 'Z' || rest.front() == 'X')
        return fail(Code::NotFound, name + " has ended");
    for (int field = 3; field < 22; ++field) next_word(rest);
    if (!number(next_word(rest), mark.start_ticks))
        return fail(Code::Corrupt, "/proc stat of " + name);
    HF_ASSIGN(mark.boot_id, boot_id());
    return mark;
}

Result<void> InstanceFile::add(pid_t pid, const std::string& name) {
    auto mark = mark_of(pid, name);
    if (!mark && mark.error().code == Code::NotFound) return {};
    if (!mark) return mark.error();
    if (name.empty() || name.find('\n') != name.npos)
        return fail(Code::Invalid, "an instance's name is one line");
    marks_[pid] = std::move(mark).value();
    return write();
}

Result<void> InstanceFile::remove(pid_t pid) {
    if (marks_.erase(pid) == 0) return {};
    return write();
}

Result<void> InstanceFile::write() const {
    std::string text(kHeader);
    text += '\n';
    for (const auto& [pid, mark] : marks_)
        text += std::to_string(pid) + ' ' + std::to_string(mark.start_ticks) + ' ' + mark.boot_id +
                ' ' + mark.name + '\n';
    const std::string draft = path_ + ".new";
    UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd.valid()) return fail_errno(errno, "opening " + draft);
    // Not synced: after a crash of the machine the boot id differs and nothing of it runs.
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        return fail_errno(errno, "writing " + draft);
    if (::rename(draft.c_str(), path_.c_str()) != 0)
        return fail_errno(errno, "putting " + path_ + " in place");
    return {};
}

Result<LeftoverReport> kill_leftovers(const std::string& path) {
    LeftoverReport report;
    auto text = read_file(path, kFileBytesMax);
    if (!text && text.error().code == Code::NotFound) return report;
    if (!text && text.error().code != Code::Corrupt) return text.error();
    bool whole = false;
    if (text && !text->empty()) kill_all(parse(text.value(), whole), report);
    if (!whole) {
        HF_ASSIGN(const std::string bad, set_aside(path));
        report.problems.push_back("the record of running instances was damaged and is now " + bad +
                                  ": processes it named in damaged lines may still run");
    } else if (report.survived.empty() && ::unlink(path.c_str()) != 0) {
        return fail_errno(errno, "removing " + path);
    }
    return report;
}

}  // namespace hf::process
