// The journal's file and thread: what is answered is there after a new start, what is damaged is refused.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/store/journal.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

namespace hf::store {
namespace {

class Dir {
public:
    Dir() {
        std::string name = (std::filesystem::temp_directory_path() / "hf-journal-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Dir() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    Dir(const Dir&) = delete;
    Dir& operator=(const Dir&) = delete;
    std::filesystem::path path;
};

// While this lives no file of this process grows beyond the size of that one.
class NoRoom {
public:
    explicit NoRoom(const std::filesystem::path& file) : blocked_(::signal(SIGXFSZ, SIG_IGN)) {
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
        rlimit tight = before_;
        tight.rlim_cur = std::filesystem::file_size(file);
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
    }
    ~NoRoom() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        ::signal(SIGXFSZ, blocked_);
    }
    NoRoom(const NoRoom&) = delete;
    NoRoom& operator=(const NoRoom&) = delete;

private:
    rlimit before_{};
    sighandler_t blocked_;
};

constexpr std::uint64_t kBytesMax = 1U << 20U;

core::JournalAppend append(std::uint64_t n, std::size_t bytes = 10) {
    core::JournalItem item{n, "class", "na/me " + std::to_string(n), 1234, Bytes(bytes, 7)};
    return {n, std::move(item)};
}

std::unique_ptr<JournalFile> open(const Dir& dir) {
    auto file = JournalFile::open(dir.path / "journal", kBytesMax);
    REQUIRE(file.ok());
    return std::move(file).value();
}

}  // namespace

TEST_CASE(
    "what was applied is there after the next start, in order; numbers and the stream's name go "
    "on") {
    const Dir dir;
    std::string stream;
    {
        auto file = open(dir);
        const auto fresh = file->load();
        REQUIRE(fresh.ok());
        CHECK(fresh->items.empty());
        CHECK(fresh->next == 1);
        stream = fresh->stream;
        CHECK(stream.size() == 32);
        const std::vector<Write> writes{append(1), append(2, 60'000), append(3)};
        CHECK(file->apply(writes).outcome == core::Outcome::Applied);
        const std::vector<Write> removal{core::JournalRemove{9, {1, 3}}};
        CHECK(file->apply(removal).outcome == core::Outcome::Applied);
    }
    auto file = open(dir);
    const auto found = file->load();
    REQUIRE(found.ok());
    CHECK(found->stream == stream);
    CHECK(found->next == 4);
    REQUIRE(found->items.size() == 1);
    CHECK(found->items[0].n == 2);
    CHECK(found->items[0].class_name == "class");
    CHECK(found->items[0].name == "na/me 2");
    CHECK(found->items[0].accepted_ms == 1234);
    CHECK(found->items[0].event == Bytes(60'000, 7));
}

TEST_CASE("letters come newest first, and beyond their bound the oldest go") {
    const Dir dir;
    auto file = open(dir);
    std::vector<Write> writes;
    for (std::uint64_t n = 1; n <= JournalFile::kLettersMax + 2; ++n)
        writes.emplace_back(core::JournalBury{{"actor/a", n, "class/b", "m", {1, 2}, "why", 99}});
    CHECK(file->apply(writes).outcome == core::Outcome::Applied);
    const auto newest = file->letters(2);
    REQUIRE(newest.ok());
    REQUIRE(newest->size() == 2);
    CHECK((*newest)[0].n == JournalFile::kLettersMax + 2);
    CHECK((*newest)[0].target == "class/b");
    CHECK((*newest)[0].why == "why");
    const auto all = file->letters(2 * JournalFile::kLettersMax);
    REQUIRE(all.ok());
    CHECK(all->size() == JournalFile::kLettersMax);
    CHECK(all->back().n == 3);
}

TEST_CASE("a damaged journal is refused by name and left as it is") {
    const Dir dir;
    {
        auto file = open(dir);
        std::vector<Write> writes;
        for (std::uint64_t n = 1; n <= 20; ++n) writes.emplace_back(append(n, 20'000));
        CHECK(file->apply(writes).outcome == core::Outcome::Applied);
    }
    const auto data = dir.path / "journal" / "data.mdb";
    const auto refused = [&](const char* how) {
        const auto size = std::filesystem::file_size(data);
        const auto file = JournalFile::open(dir.path / "journal", kBytesMax);
        CAPTURE(how);
        REQUIRE_FALSE(file.ok());
        CHECK(file.error().code == Code::Corrupt);
        CHECK(file.error().message.find(data.string()) != std::string::npos);
        CHECK(std::filesystem::file_size(data) == size);
    };
    SUBCASE("cut off") {
        std::filesystem::resize_file(data, std::filesystem::file_size(data) / 2);
        refused("half");
    }
    SUBCASE("text") {
        std::ofstream(data, std::ios::trunc) << std::string(20'000, 'x');
        refused("text");
    }
}

TEST_CASE("a full disk refuses a batch as a whole, and the journal goes on when there is room") {
    const Dir dir;
    auto file = open(dir);
    const std::vector<Write> first{append(1, 1000)};
    REQUIRE(file->apply(first).outcome == core::Outcome::Applied);
    std::vector<Write> writes;
    for (std::uint64_t n = 2; n <= 20; ++n) writes.emplace_back(append(n, 50'000));
    JournalFile::Outcome full;
    {
        const NoRoom none(dir.path / "journal" / "data.mdb");
        full = file->apply(writes);
    }
    CHECK(full.outcome == core::Outcome::Refused);
    CHECK(full.reason.find("data.mdb") != std::string::npos);
    const auto content = file->load();
    REQUIRE(content.ok());
    CHECK(content->items.size() == 1);
    CHECK(file->apply(writes).outcome == core::Outcome::Applied);
    CHECK(file->load()->items.size() == 20);
}

TEST_CASE("the thread answers in order, and what was asked before the end is done") {
    const Dir dir;
    uv_loop_t loop;
    REQUIRE(uv_loop_init(&loop) == 0);
    std::vector<core::OpId> answered;
    {
        auto journal = Journal::open(
            &loop,
            dir.path / "journal",
            kBytesMax,
            [&](core::Event event) {
                if (const auto* one = std::get_if<core::JournalAppended>(&event)) {
                    CHECK(one->outcome == core::Outcome::Applied);
                    answered.push_back(one->op);
                }
            },
            [](std::size_t, const std::string&) { FAIL("a letter was lost"); });
        REQUIRE(journal.ok());
        for (std::uint64_t n = 1; n <= 500; ++n) (*journal)->write(append(n));
        while (answered.size() < 500) uv_run(&loop, UV_RUN_ONCE);
        for (std::uint64_t n = 1; n <= 500; ++n) CHECK(answered[n - 1] == n);
        (*journal)->write(core::JournalRemove{501, {1, 2, 3}});
    }
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0);
    CHECK(open(dir)->load()->items.size() == 497);
}

TEST_CASE("a letter for which the disk has no room is told as lost") {
    const Dir dir;
    uv_loop_t loop;
    REQUIRE(uv_loop_init(&loop) == 0);
    std::size_t lost = 0;
    std::string why;
    {
        auto journal = Journal::open(
            &loop,
            dir.path / "journal",
            kBytesMax,
            [](core::Event) {},
            [&](std::size_t letters, const std::string& reason) {
                lost += letters;
                why = reason;
            });
        REQUIRE(journal.ok());
        const NoRoom none(dir.path / "journal" / "data.mdb");
        (*journal)->write(
            core::JournalBury{{"actor/a", 1, "class/b", "m", Bytes(50'000, 1), "why", 99}});
        while (lost == 0) uv_run(&loop, UV_RUN_ONCE);
    }
    CHECK(lost == 1);
    CHECK(why.find("data.mdb") != std::string::npos);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0);
}

}  // namespace hf::store
