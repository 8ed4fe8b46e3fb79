// What the disk was told before an answer: the probe runs under strace, and the trace is read.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

constexpr int kPuts = 20;

std::string prober() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "bucket_prober")
        .string();
}

struct Run {
    int code = -1;
    std::string out;
    std::vector<std::string> trace;
};

Run run_traced(const std::string& directory, const std::string& inject) {
    const TempDir place(Place::Disk);
    const std::string trace = place.file("trace");
    const std::string out = place.file("out");
    std::vector<std::string> words{
        "strace",
        "-f",
        "-s",
        "64",
        "-o",
        trace,
        "-e",
        "trace=write,pwrite64,pwritev,writev,fdatasync,fsync,msync,openat"};
    if (!inject.empty()) words.insert(words.end(), {"-e", "inject=" + inject});
    words.insert(words.end(), {prober(), directory, std::to_string(kPuts)});
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = ::open(out.c_str(), O_WRONLY | O_CREAT, 0600);
        ::dup2(fd, STDOUT_FILENO);
        // In a sanitized build: the leak checker traces by itself, which it cannot do under strace.
        ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        std::vector<char*> args;
        for (std::string& word : words) args.push_back(word.data());
        args.push_back(nullptr);
        ::execvp("strace", args.data());
        ::_exit(127);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    Run run;
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    std::ifstream lines(trace);
    for (std::string line; std::getline(lines, line);) run.trace.push_back(line);
    std::ostringstream text;
    text << std::ifstream(out).rdbuf();
    run.out = text.str();
    return run;
}

// Why this cannot run here, if so.
std::optional<std::string> no_strace() {
    const TempDir dir(Place::Disk);
    const Run run = run_traced(dir.path(), "");
    if (run.code == 127) return "strace is not installed";
    if (run.trace.empty() || run.out.find("answer") == std::string::npos)
        return "strace may not trace here";
    return std::nullopt;
}

bool has(const std::string& line, const char* text) {
    return line.find(text) != std::string::npos;
}

bool is_sync(const std::string& line) {
    const bool done = line.ends_with("= 0");
    return done && (has(line, "fdatasync") || has(line, "fsync") || has(line, "msync"));
}

// Puts whose answer came without a completed sync since the put began.
int unsynced(const std::vector<std::string>& trace) {
    int bad = 0;
    bool inside = false;
    bool synced = false;
    for (const std::string& line : trace) {
        if (has(line, "write(1, \"put ")) {
            inside = true;
            synced = false;
        } else if (inside && is_sync(line)) {
            synced = true;
        } else if (inside && has(line, "write(1, \"answer ") && has(line, " applied")) {
            inside = false;
            if (!synced) ++bad;
        }
    }
    return bad;
}

// The index (from 1) of the last call named `call` before the answer to put `n`: LMDB writes the meta page last.
int index_before_answer(const std::vector<std::string>& trace, const char* call, int n) {
    int index = 0;
    const std::string answer = "\"answer " + std::to_string(n) + " ";
    for (const std::string& line : trace) {
        if (has(line, answer.c_str())) return index;
        if (has(line, call) && has(line, "= ")) ++index;
    }
    return -1;
}

int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
        ++found;
    return found;
}

}  // namespace

TEST_CASE("a completed sync lies between every put and its answer") {
    if (const auto why = no_strace()) {
        MESSAGE("skipped: " << *why);
        return;
    }
    const TempDir dir(Place::Disk);
    const Run run = run_traced(dir.path(), "");
    CHECK(run.code == 0);
    CHECK(count(run.out, "applied") == kPuts);
    CHECK(unsynced(run.trace) == 0);
    // The meta page goes through a descriptor that syncs by itself.
    int meta_opened = 0;
    for (const std::string& line : run.trace)
        if (has(line, "data.mdb") && (has(line, "O_DSYNC") || has(line, "O_SYNC"))) ++meta_opened;
    CHECK(meta_opened >= 1);
    // The reading of the trace can fail: without the syncs it finds every put.
    std::vector<std::string> without;
    for (const std::string& line : run.trace)
        if (!is_sync(line)) without.push_back(line);
    CHECK(unsynced(without) == kPuts);
}

TEST_CASE("a sync that fails refuses that put, and the next one works") {
    if (const auto why = no_strace()) {
        MESSAGE("skipped: " << *why);
        return;
    }
    const TempDir plain(Place::Disk);
    const int nth = index_before_answer(run_traced(plain.path(), "").trace, "fdatasync(", 8);
    REQUIRE(nth > 0);
    const TempDir dir(Place::Disk);
    const Run run = run_traced(dir.path(), "fdatasync:error=EIO:when=" + std::to_string(nth));
    CHECK(run.code == 0);
    CHECK(run.out.find("answer 8 refused") != std::string::npos);
    CHECK(count(run.out, "applied") == kPuts - 1);
    const auto bucket = open(dir.path());
    CHECK(body_of(*bucket, "k8") == "-");
    CHECK(bucket->read()->stats()->objects == kPuts - 1);
}

TEST_CASE("page writes without room refuse that put, and the next one works") {
    if (const auto why = no_strace()) {
        MESSAGE("skipped: " << *why);
        return;
    }
    const TempDir plain(Place::Disk);
    const std::vector<std::string> trace = run_traced(plain.path(), "").trace;
    // A put that writes a page by itself, not as a run, before its meta page.
    int put = 0;
    int before = 0;
    for (int n = kPuts - 1; n > 1 && put == 0; --n) {
        before = index_before_answer(trace, "pwrite64(", n - 1);
        if (index_before_answer(trace, "pwrite64(", n) > before + 1) put = n;
    }
    REQUIRE(put > 0);
    for (const char* error : {"ENOSPC", "EIO", "EDQUOT"}) {
        CAPTURE(error);
        const TempDir dir(Place::Disk);
        const Run run = run_traced(
            dir.path(),
            std::string("pwrite64:error=") + error + ":when=" + std::to_string(before + 1));
        CHECK(run.code == 0);
        CHECK(run.out.find("answer " + std::to_string(put) + " refused") != std::string::npos);
        CHECK(count(run.out, "applied") == kPuts - 1);
        CHECK(body_of(*open(dir.path()), "k" + std::to_string(put)) == "-");
    }
}

TEST_CASE(
    "a meta page that could not be written is unknown, and nothing works until the store is opened "
    "again") {
    if (const auto why = no_strace()) {
        MESSAGE("skipped: " << *why);
        return;
    }
    const TempDir plain(Place::Disk);
    const int meta = index_before_answer(run_traced(plain.path(), "").trace, "pwrite64(", 8);
    REQUIRE(meta > 0);
    const TempDir dir(Place::Disk);
    const Run run = run_traced(dir.path(), "pwrite64:error=EIO:when=" + std::to_string(meta));
    CHECK(run.code == 3);
    CHECK(run.out.find("answer 8 unknown") != std::string::npos);
    CHECK(count(run.out, "applied") == 7);
    CHECK(count(run.out, "refused") == kPuts - 8);
    const auto bucket = open(dir.path());
    for (int i = 1; i <= 7; ++i) CHECK(body_of(*bucket, "k" + std::to_string(i)) != "-");
    Write again = a_put("k8", std::string(100, 'b'), {1, 8});
    again.condition = Condition::IfAbsent;
    CHECK(bucket->put(again).outcome == Outcome::Applied);
}

}  // namespace hf::bucket
