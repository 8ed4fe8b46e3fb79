#include "agent/process/leftovers.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace hf::process {
namespace {

namespace fs = std::filesystem;

class Dir {
public:
    Dir() {
        if (::mkdtemp(path_) == nullptr) std::abort();
    }
    ~Dir() { fs::remove_all(path_); }
    Dir(const Dir&) = delete;
    Dir& operator=(const Dir&) = delete;
    [[nodiscard]] std::string file(const char* name) const {
        return std::string(path_) + "/" + name;
    }

private:
    char path_[32] = "/tmp/hf-leftovers-XXXXXX";
};

// A child that waits for ever; ended and reaped at the latest with this object.
class Sleeper {
public:
    Sleeper() : pid_(::fork()) {
        if (pid_ == 0)
            for (;;) ::pause();
    }
    ~Sleeper() { end(); }
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    void end() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = 0;
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    // kill_leftovers reaps what is its own child.
    [[nodiscard]] bool gone() {
        const bool reaped = ::kill(pid_, 0) != 0;
        if (reaped) pid_ = 0;
        return reaped;
    }

private:
    pid_t pid_;
};

std::string slurp(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

void spill(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
}

TEST_CASE("what is recorded and still runs is killed, and its end awaited") {
    const Dir dir;
    const std::string path = dir.file("instances");
    Sleeper one;
    Sleeper two;
    Sleeper bystander;
    InstanceFile file(path);
    REQUIRE(file.add(one.pid(), "runtime-wasm/0").ok());
    REQUIRE(file.add(two.pid(), "name with spaces").ok());
    const auto report = kill_leftovers(path);
    REQUIRE(report.ok());
    CHECK(report->reaped());
    REQUIRE(report->killed.size() == 2);
    CHECK(report->survived.empty());
    CHECK(one.gone());
    CHECK(two.gone());
    CHECK(::kill(bystander.pid(), 0) == 0);
    CHECK_FALSE(fs::exists(path));
}

TEST_CASE("a removed instance is left alone") {
    const Dir dir;
    Sleeper one;
    InstanceFile file(dir.file("instances"));
    REQUIRE(file.add(one.pid(), "a/0").ok());
    REQUIRE(file.remove(one.pid()).ok());
    const auto report = kill_leftovers(dir.file("instances"));
    REQUIRE(report.ok());
    CHECK(report->killed.empty());
    CHECK(::kill(one.pid(), 0) == 0);
}

TEST_CASE("a number that belongs to another process by now is left alone") {
    const Dir dir;
    const std::string path = dir.file("instances");
    Sleeper other;
    const auto mark = mark_of(other.pid(), "a/0");
    REQUIRE(mark.ok());
    const auto line = [&](std::uint64_t ticks, const std::string& boot) {
        return "holdfast-instances 1\n" + std::to_string(other.pid()) + " " +
               std::to_string(ticks) + " " + boot + " a/0\n";
    };
    for (const std::string& text :
         {line(mark->start_ticks + 1, mark->boot_id), line(mark->start_ticks, "another-boot")}) {
        spill(path, text);
        const auto report = kill_leftovers(path);
        REQUIRE(report.ok());
        CHECK(report->reaped());
        CHECK(report->gone == 1);
        CHECK(::kill(other.pid(), 0) == 0);
    }
}

TEST_CASE("what has ended is counted as gone") {
    const Dir dir;
    Sleeper one;
    InstanceFile file(dir.file("instances"));
    REQUIRE(file.add(one.pid(), "a/0").ok());
    one.end();
    const auto report = kill_leftovers(dir.file("instances"));
    REQUIRE(report.ok());
    CHECK(report->gone == 1);
    CHECK(report->reaped());
}

TEST_CASE("no file, no leftovers") {
    const Dir dir;
    const auto report = kill_leftovers(dir.file("instances"));
    REQUIRE(report.ok());
    CHECK(report->reaped());
}

TEST_CASE("garbage is set aside and reported, its good lines still count") {
    const Dir dir;
    const std::string path = dir.file("instances");
    Sleeper one;
    InstanceFile file(path);
    REQUIRE(file.add(one.pid(), "a/0").ok());
    const std::string good = slurp(path);
    int n = 0;
    for (const std::string& text :
         {good + "4711 half a line",
          std::string("nonsense\n"),
          std::string(),
          std::string(4096, '\0'),
          std::string("holdfast-instances 2\n"),
          std::string("holdfast-instances 1\n-1 5 boot a\n"),
          std::string("holdfast-instances 1\n1 5 boot init\n"),
          std::string("holdfast-instances 1\n99999999999999999999 5 boot a\n"),
          std::string(2 << 20, 'x')}) {
        spill(path, text);
        const auto report = kill_leftovers(path);
        ++n;
        CAPTURE(n);
        REQUIRE(report.ok());
        CHECK_FALSE(report->reaped());
        REQUIRE(report->problems.size() == 1);
        CHECK(report->problems[0].find("instances.bad-" + std::to_string(n)) != std::string::npos);
        CHECK_FALSE(fs::exists(path));
        CHECK(slurp(path + ".bad-" + std::to_string(n)) == text);
    }
    CHECK(one.gone());
}

TEST_CASE("a file that cannot be read is an error, not an empty one") {
    const Dir dir;
    fs::create_directory(dir.file("instances"));
    CHECK_FALSE(kill_leftovers(dir.file("instances")).ok());
}

TEST_CASE("a process with brackets and spaces in its name is told apart all the same") {
    const Dir dir;
    const fs::path tricky = dir.file("a) R 1 (b");
    fs::copy_file("/bin/sleep", tricky);
    fs::permissions(tricky, fs::perms::owner_all);
    const pid_t child = ::fork();
    if (child == 0) {
        ::execl(tricky.c_str(), tricky.c_str(), "600", nullptr);
        ::_exit(127);
    }
    const auto mark = mark_of(child, "x/0");
    REQUIRE(mark.ok());
    CHECK(mark->start_ticks > 1000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(mark_of(child, "x/0").error().code == Code::NotFound);
}

}  // namespace
}  // namespace hf::process
