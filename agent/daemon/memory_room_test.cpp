// Control groups as files in a directory of the test's own.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <stdlib.h>

#include <fstream>
#include <string>

#include "agent/daemon/memory_room.hpp"

namespace hf::daemon {
namespace {

namespace fs = std::filesystem;

struct Groups {
    Groups() {
        std::string name = (fs::temp_directory_path() / "hf-groups-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        top = name;
    }
    ~Groups() {
        std::error_code ignored;
        fs::remove_all(top, ignored);
    }
    Groups(const Groups&) = delete;
    Groups& operator=(const Groups&) = delete;
    void write(const std::string& file, const std::string& text) const {
        fs::create_directories((top / file).parent_path());
        std::ofstream(top / file) << text << "\n";
    }
    [[nodiscard]] std::optional<MemoryRoom> ask(const std::string& membership) const {
        write("self", membership);
        return memory_room(top / "self", top / "fs");
    }
    fs::path top;
};

core::Config node(std::uint32_t runtimes) {
    core::Config config;
    for (const core::Kind kind : {core::Kind::Gateway, core::Kind::Storage, core::Kind::Runtime}) {
        core::SlotSpec slot;
        slot.kind = kind;
        slot.instances = kind == core::Kind::Runtime ? runtimes : 1;
        config.slots.push_back(slot);
    }
    return config;
}

TEST_CASE("no_limit_no_group_and_nonsense_leave_the_question_open") {
    const Groups groups;
    CHECK_FALSE(groups.ask("0::/a").has_value());
    CHECK_FALSE(groups.ask("").has_value());
    CHECK_FALSE(groups.ask("memory").has_value());
    CHECK_FALSE(memory_room(groups.top / "none", groups.top).has_value());
    groups.write("fs/a/memory.max", "max");
    groups.write("fs/a/memory.current", "5");
    CHECK_FALSE(groups.ask("0::/a").has_value());
    groups.write("fs/memory/a/memory.limit_in_bytes", "9223372036854771712");
    groups.write("fs/memory/a/memory.usage_in_bytes", "5");
    CHECK_FALSE(groups.ask("4:memory:/a").has_value());
}

TEST_CASE("the_least_of_all_groups_up_to_the_root_counts_and_files_pages_do_not") {
    const Groups groups;
    groups.write("fs/a/b/memory.max", "1000");
    groups.write("fs/a/b/memory.current", "100");
    auto room = groups.ask("0::/a/b");
    REQUIRE(room.has_value());
    CHECK(room->bytes == 900);
    groups.write("fs/a/memory.max", "500");
    groups.write("fs/a/memory.current", "450");
    groups.write("fs/a/memory.stat", "anon 7\ninactive_file 300\nactive_file 50\nslab 3");
    room = groups.ask("0::/a/b");
    CHECK(room->bytes == 400);
    CHECK(room->file == groups.top / "fs/a/memory.max");
    groups.write("fs/memory/c/memory.limit_in_bytes", "300");
    groups.write("fs/memory/c/memory.usage_in_bytes", "350");
    groups.write("fs/memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 200");
    room = groups.ask("5:cpu,cpuacct:/a\n4:hugetlb,memory:/c\n0::/a/b");
    CHECK(room->bytes == 150);
    groups.write("fs/memory/c/memory.stat", "");
    CHECK(groups.ask("4:memory:/c")->bytes == 0);
}

TEST_CASE("a_node_with_less_than_it_needs_is_refused_with_both_figures") {
    // Two rings of 4 MiB for each link and for two spare pairs, and what a process has of its own.
    const std::uint64_t mib = 1U << 20U;
    CHECK(memory_needed(node(1)) / mib == 5 * 8 + 4 * 2);
    CHECK(memory_needed(node(3)) / mib == 7 * 8 + 6 * 2);
    CHECK(enough_memory(node(1), std::nullopt).ok());
    CHECK(enough_memory(node(1), MemoryRoom{49 * mib, "f"}).ok());
    const auto refused = enough_memory(node(3), MemoryRoom{49 * mib, "/sys/f"});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message.find("at least 68 MiB of memory, and /sys/f leaves 49 MiB") !=
          std::string::npos);
}

}  // namespace
}  // namespace hf::daemon
