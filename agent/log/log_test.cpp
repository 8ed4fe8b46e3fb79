#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/log/log.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "agent/log/fold.hpp"

using namespace hf;
using log::Folder;
using log::Level;
using log::Line;
using log::RateCap;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

class Directory {
public:
    Directory() {
        std::string pattern = (std::filesystem::temp_directory_path() / "hf-log-XXXXXX").string();
        path_ = ::mkdtemp(pattern.data());
    }
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;
    ~Directory() {
        static_cast<void>(log::init({Level::Info, {}, 1, 2, false}));
        std::filesystem::remove_all(path_);
    }
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

std::string read_all(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

std::size_t count(const std::string& text, std::string_view part) {
    std::size_t n = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++n;
    return n;
}

struct FolderUnderTest {
    Folder folder;
    std::vector<Line> lines;
    void offer(std::int64_t now,
               const std::string& message,
               const std::string& fields = {},
               bool capped = true) {
        folder.offer(now, Level::Warn, message, message + fields, capped, lines);
    }
};

}  // namespace

TEST_CASE("identical_lines_in_a_row_become_one_and_a_count") {
    FolderUnderTest t;
    for (std::int64_t i = 0; i < 1000; ++i) t.offer(i * 1'000'000, "a");
    REQUIRE(t.lines.size() == 1);
    t.offer(kSecond, "b");
    REQUIRE(t.lines.size() == 3);
    CHECK(t.lines[1].body == "a repeated 999 times in 1 s");
    CHECK(t.lines[1].level == Level::Warn);
    CHECK(t.lines[2].body == "b");
    CHECK(t.folder.folded() == 999);
}

TEST_CASE("a_flood_that_goes_on_is_told_every_window") {
    FolderUnderTest t;
    for (std::int64_t now = 0; now < 60 * kSecond; now += 1'000'000) t.offer(now, "a");
    // 60 s of 1000 a second: a line and a count per window, no more.
    CHECK(t.lines.size() >= 20);
    CHECK(t.lines.size() <= 26);
    CHECK(t.lines[1].body == "a repeated 4999 times in 5 s");
}

TEST_CASE("a_message_whose_fields_differ_each_time_is_still_bounded") {
    FolderUnderTest t;
    for (std::int64_t i = 0; i < 10000; ++i) {
        t.offer(i * 100'000, "a", " id=" + std::to_string(i));
        t.offer(i * 100'000, "b", " id=" + std::to_string(i));
    }
    CHECK(t.lines.size() == 2 * log::kPassedPerWindow);
    t.folder.flush(kSecond, t.lines);
    CHECK(t.lines.size() == 2 * log::kPassedPerWindow + 2);
    CHECK(t.lines.back().body == "b repeated 9980 times in 1 s");
}

TEST_CASE("nothing_is_folded_twice_or_lost") {
    FolderUnderTest t;
    for (std::int64_t i = 0; i < 5000; ++i)
        t.offer(i * 3'000'000, i % 7 < 4 ? "a" : "b", i % 3 == 0 ? " x=1" : " x=2");
    t.folder.flush(15 * kSecond, t.lines);
    std::uint64_t told = 0;
    std::uint64_t plain = 0;
    for (const Line& line : t.lines) {
        const std::size_t at = line.body.find(" repeated ");
        if (at == std::string::npos)
            ++plain;
        else
            told += std::stoull(line.body.substr(at + 10));
    }
    CHECK(plain + told == 5000);
    CHECK(told == t.folder.folded());
}

TEST_CASE("many_different_messages_keep_the_table_small_and_all_pass") {
    FolderUnderTest t;
    for (int i = 0; i < 10000; ++i) t.offer(i, "message " + std::to_string(i));
    CHECK(t.lines.size() == 10000);
}

TEST_CASE("a_source_is_held_to_its_rate_and_its_losses_are_told") {
    RateCap cap;
    std::uint64_t suppressed = 0;
    std::uint64_t passed = 0;
    for (std::int64_t now = 0; now < 10 * kSecond; now += 100'000)
        if (cap.admit(now, "noisy/0", 0, suppressed)) ++passed;
    CHECK(passed >= 290);
    CHECK(passed <= 301);
    CHECK(cap.admit(10 * kSecond, "quiet/0", 3, suppressed));
    CHECK(suppressed == 3);
    std::vector<Line> lines;
    cap.flush(lines);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].body.find("source=noisy/0 suppressed=") != std::string::npos);
    for (std::int64_t i = 0; i < 5000; ++i)
        CHECK(cap.admit(11 * kSecond, "s" + std::to_string(i), 0, suppressed));
}

TEST_CASE("control_bytes_never_reach_the_log") {
    CHECK(log::clean("a\nb\tc\x1b[31m\x7f", 100) == "a\\nb\\tc\\x1b[31m\\x7f");
    CHECK(log::clean("ü\xc2\x9bx", 100) == "ü\xc2\\x9bx");
    CHECK(log::clean(std::string(1000, 'a'), 20).size() <= 20);
    std::string out;
    log::append_value(out, "");
    log::append_value(out, "plain");
    log::append_value(out, "a \"b\"=\\");
    CHECK(out == "\"\"plain\"a \\\"b\\\"=\\\\\"");
}

TEST_CASE("a_line_has_time_level_room_text_and_fields") {
    const Directory directory;
    const auto file = directory.path() / "log" / "holdfastd.log";
    REQUIRE(log::init({Level::Info, file, 1U << 20U, 2, false}).ok());
    log::info(
        "process", "plugin started", {{"instance", "runtime-wasm/0"}, {"pid", 42}, {"ok", true}});
    log::debug("process", "not seen");
    log::error("store", "text with {} braces %s", {{"why", "no space"}});
    const std::string text = read_all(file);
    CHECK(text.substr(10, 1) == "T");
    CHECK(text.substr(23, 1) == "Z");
    CHECK(text.find("Z info process plugin started instance=runtime-wasm/0 pid=42 ok=true\n") !=
          std::string::npos);
    CHECK(text.find("Z error store text with {} braces %s why=\"no space\"\n") !=
          std::string::npos);
    CHECK(text.find("not seen") == std::string::npos);
    CHECK((std::filesystem::status(file).permissions() & std::filesystem::perms::others_all) ==
          std::filesystem::perms::none);
}

TEST_CASE("disk_use_stays_under_the_cap_and_surplus_files_go") {
    const Directory directory;
    const auto file = directory.path() / "holdfastd.log";
    REQUIRE(log::init({Level::Info, file, 8192, 5, false}).ok());
    for (int i = 0; i < 2000; ++i)
        log::info("test", "line " + std::to_string(i), {{"pad", std::string(100, 'x')}});
    std::size_t files = 0;
    std::uintmax_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
        ++files;
        bytes += entry.file_size();
    }
    CHECK(files == 5);
    CHECK(bytes <= 5 * 8192);
    REQUIRE(log::init({Level::Info, file, 8192, 2, false}).ok());
    CHECK(std::distance(std::filesystem::directory_iterator(directory.path()), {}) == 2);
}

TEST_CASE("a_huge_line_is_cut_to_4_kib") {
    const Directory directory;
    const auto file = directory.path() / "holdfastd.log";
    REQUIRE(log::init({Level::Info, file, 1U << 20U, 2, false}).ok());
    log::info("test", std::string(1U << 20U, 'a'), {{"v", std::string(1U << 20U, 'b')}});
    log::plugin_line(Level::Info, "p/0", std::string(1U << 20U, '\n'));
    std::istringstream lines(read_all(file));
    std::size_t n = 0;
    for (std::string line; std::getline(lines, line); ++n) CHECK(line.size() < 4096);
    CHECK(n == 2);
}

TEST_CASE("a_plugin_that_floods_costs_a_bounded_number_of_lines") {
    const Directory directory;
    const auto file = directory.path() / "holdfastd.log";
    REQUIRE(log::init({Level::Info, file, 1U << 20U, 2, false}).ok());
    for (int i = 0; i < 100000; ++i)
        log::plugin_line(Level::Info, "flood/0", "line " + std::to_string(i));
    log::flush_folds();
    const std::string text = read_all(file);
    CHECK(count(text, "said source=flood/0 line=\"line ") >= log::kPluginBurst);
    CHECK(count(text, "said source=flood/0 line=\"line ") < log::kPluginBurst + 20 * 30);
    CHECK(text.find("suppressed=") != std::string::npos);
}

TEST_CASE("a_reader_of_stderr_that_stands_still_does_not_stop_us") {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
    const int saved = ::dup(STDERR_FILENO);
    REQUIRE(::dup2(pipe[1], STDERR_FILENO) == STDERR_FILENO);
    REQUIRE(log::init({Level::Info, {}, 1, 2, true}).ok());
    const std::uint64_t before = log::stats().lost;
    for (int i = 0; i < 2000; ++i)
        log::info("test", "unread " + std::to_string(i), {{"pad", std::string(200, 'x')}});
    const std::uint64_t lost = log::stats().lost - before;
    ::dup2(saved, STDERR_FILENO);
    ::close(saved);
    ::close(pipe[0]);
    ::close(pipe[1]);
    CHECK(lost > 0);
    static_cast<void>(log::init({Level::Info, {}, 1, 2, false}));
}

TEST_CASE("a_path_that_is_no_plain_file_is_named_and_left_alone") {
    const Directory directory;
    const auto link = directory.path() / "link.log";
    std::filesystem::create_symlink("nowhere", link);
    const auto fifo = directory.path() / "fifo.log";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    for (const auto& path : {link, fifo, directory.path()}) {
        const auto result = log::init({Level::Info, path, 8192, 2, false});
        REQUIRE(!result.ok());
        CHECK(result.error().message.find(path.string()) != std::string::npos);
    }
    CHECK(std::filesystem::is_symlink(link));
    CHECK(!std::filesystem::exists(directory.path() / "nowhere"));
    REQUIRE(!log::init({Level::Info, fifo / "below" / "x.log", 8192, 2, false}).ok());
}

TEST_CASE("plugins_do_not_inherit_the_log") {
    const Directory directory;
    const auto file = directory.path() / "holdfastd.log";
    REQUIRE(log::init({Level::Info, file, 4096, 2, false}).ok());
    for (int i = 0; i < 100; ++i)
        log::info("test", "rotate " + std::to_string(i), {{"pad", std::string(200, 'x')}});
    std::size_t seen = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code failed;
        if (std::filesystem::read_symlink(entry.path(), failed) != file) continue;
        ++seen;
        CHECK((::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC) != 0);
    }
    CHECK(seen == 1);
}

TEST_CASE("threads_may_speak_at_once") {
    const Directory directory;
    const auto file = directory.path() / "holdfastd.log";
    REQUIRE(log::init({Level::Info, file, 4U << 20U, 2, false}).ok());
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([t] {
            for (int i = 0; i < 500; ++i)
                log::info("t" + std::to_string(t), "n" + std::to_string(i));
        });
    for (auto& thread : threads) thread.join();
    CHECK(count(read_all(file), "\n") == 2000);
}
