#include "agent/process/exit_report.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace hf::process {
namespace {

// Longer than any system call's name ("32-bit ..." included); what a plugin wrote beyond that is not one.
constexpr std::size_t kSyscallBytesMax = 48;

std::string_view last_line(std::string_view tail) {
    while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.remove_suffix(1);
    const std::size_t newline = tail.rfind('\n');
    return newline == tail.npos ? tail : tail.substr(newline + 1);
}

// "64MiB", as agent.toml writes it.
std::string size_words(std::uint64_t bytes) {
    const char* unit = "B";
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
        if (bytes % 1024 != 0) break;
        bytes /= 1024;
        unit = larger;
    }
    return std::to_string(bytes) + unit;
}

std::string signal_words(int number) {
    const char* words = ::strsignal(number);
    return "signal " + std::to_string(number) + " (" + (words == nullptr ? "unknown" : words) + ")";
}

}  // namespace

void take_wait_status(ExitReport& report, int status) {
    if (WIFSIGNALED(status)) {
        report.signal = WTERMSIG(status);
        report.exit_code = -1;
    } else {
        report.signal = 0;
        report.exit_code = WEXITSTATUS(status);
    }
}

void take_second_filter(ExitReport& report) {
    if (report.signal != 0 || report.exit_code != kExitForbidden || !report.syscall.empty()) return;
    constexpr std::string_view kPrefix = "seccomp: ";
    const std::string_view line = last_line(report.stderr_tail);
    if (line.substr(0, kPrefix.size()) != kPrefix) return;
    const std::string_view name = line.substr(kPrefix.size());
    // The plugin wrote it: only believed when it looks like a name.
    const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == ' ';
    });
    if (!name.empty() && name.size() <= kSyscallBytesMax && plain) report.syscall = name;
}

std::string ExitReport::summary() const {
    if (!failure.empty()) return failure;
    if (!syscall.empty()) return "seccomp: " + syscall;
    if (out_of_memory_bytes != 0)
        return "killed: out of memory (limit " + size_words(out_of_memory_bytes) + ")";
    if (signal != 0)
        return std::string(by_supervisor ? "ended by the supervisor with " : "killed by ") +
               signal_words(signal);
    std::string text = "exit code " + std::to_string(exit_code);
    const std::string_view line = last_line(stderr_tail);
    if (exit_code != 0 && !line.empty()) text.append(": ").append(line);
    return text;
}

bool ExitReport::on_its_own() const {
    return started && signal == 0 && !by_supervisor && failure.empty();
}

bool ExitReport::by_fault() const {
    if (!syscall.empty() || out_of_memory_bytes != 0) return true;
    if (by_supervisor) return false;
    // SIGKILL is not among them: without a control group the kernel's OOM kill looks like anybody's kill -9.
    constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGSYS, SIGTRAP};
    return std::find(std::begin(kFaults), std::end(kFaults), signal) != std::end(kFaults);
}

}  // namespace hf::process
