// Lines and reports without any process.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "agent/process/exit_report.hpp"
#include "agent/process/stderr_lines.hpp"

namespace hf::process {
namespace {

struct Sink {
    std::vector<std::string> lines;
    std::uint64_t dropped = 0;
    StderrLines::Deliver deliver() {
        return [this](const std::string& line, std::uint64_t count) {
            lines.push_back(line);
            dropped += count;
        };
    }
};

TEST_CASE("a line that comes in pieces is one line") {
    Sink sink;
    StderrLines lines(10, sink.deliver());
    lines.feed("he", 0);
    lines.feed("llo\nwor", 0);
    CHECK(sink.lines == std::vector<std::string>{"hello"});
    lines.finish(0);
    CHECK(sink.lines == std::vector<std::string>{"hello", "wor"});
    CHECK(lines.tail() == "hello\nwor");
}

TEST_CASE("a line of exactly the bound is whole, one byte more is cut") {
    Sink sink;
    StderrLines lines(10, sink.deliver());
    lines.feed(
        std::string(kLineBytesMax, 'a') + "\n" + std::string(kLineBytesMax + 1, 'b') + "\nc\n", 0);
    REQUIRE(sink.lines.size() == 3);
    CHECK(sink.lines[0].size() == kLineBytesMax);
    CHECK(sink.lines[1].size() == kLineBytesMax);
    CHECK(sink.lines[2] == "c");
}

TEST_CASE("more lines than a second allows are counted, and the count comes with the next line") {
    Sink sink;
    StderrLines lines(2, sink.deliver());
    lines.feed("1\n2\n3\n4\n", 999);
    CHECK(sink.lines.size() == 2);
    CHECK(sink.dropped == 0);
    lines.feed("5\n", 1000);
    CHECK(sink.lines.size() == 3);
    CHECK(sink.dropped == 2);
    lines.feed("6\n7\n", 1500);
    lines.finish(1500);
    CHECK(sink.dropped == 3);
}

TEST_CASE("the tail is the last bytes, and control characters do not reach a terminal") {
    Sink sink;
    StderrLines lines(10, sink.deliver());
    lines.feed(std::string(3 * kTailBytesMax, 'x') + "\x1b[31mred\r\n", 0);
    CHECK(lines.tail().size() == kTailBytesMax);
    CHECK(lines.tail().substr(kTailBytesMax - 10) == "?[31mred?\n");
    lines.feed("\x1b]0;title\x07\n", 0);
    CHECK(sink.lines.back() == "?]0;title?");
}

TEST_CASE("summaries are one line in the operator's words") {
    ExitReport report;
    take_wait_status(report, SIGKILL);
    CHECK(report.summary() == "killed by signal 9 (Killed)");
    report.by_supervisor = true;
    CHECK(report.summary() == "ended by the supervisor with signal 9 (Killed)");
    report = {};
    take_wait_status(report, 1 << 8);
    report.stderr_tail = "first\nno such file\n";
    CHECK(report.summary() == "exit code 1: no such file");
    CHECK_FALSE(report.by_fault());
    take_wait_status(report, SIGSEGV | 0x80);
    CHECK(report.by_fault());
    report.syscall = "ptrace";
    CHECK(report.summary() == "seccomp: ptrace");
}

TEST_CASE("the second filter's line is believed only with its exit code, and only as a name") {
    ExitReport report;
    report.stderr_tail = "x\nseccomp: openat\n";
    take_wait_status(report, 1 << 8);
    take_second_filter(report);
    CHECK(report.syscall.empty());
    take_wait_status(report, kExitForbidden << 8);
    take_second_filter(report);
    CHECK(report.syscall == "openat");
    CHECK(report.by_fault());
    report.syscall.clear();
    report.stderr_tail = "seccomp: <b>OPENAT</b>";
    take_second_filter(report);
    CHECK(report.syscall.empty());
    report.stderr_tail = "seccomp: " + std::string(200, 'a');
    take_second_filter(report);
    CHECK(report.syscall.empty());
}

}  // namespace
}  // namespace hf::process
