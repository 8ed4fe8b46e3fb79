#include "agent/daemon/memory_room.hpp"

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "abi/layout/segment.hpp"
#include "agent/port/segments.hpp"

namespace hf::daemon {

namespace {

namespace fs = std::filesystem;

// Pages of its own that a plugin with its jail, or the daemon, was seen to have right after the start, the least of them.
constexpr std::uint64_t kProcessBytes = 2ULL << 20U;
// v1 says "no limit" by a number next to the largest there is.
constexpr std::uint64_t kNoLimit = 1ULL << 60U;

// The number in a file; nothing for "max", for no file and for what is no number.
std::optional<std::uint64_t> number_in(const fs::path& file) {
    std::ifstream in(file);
    std::uint64_t value = 0;
    if (!(in >> value)) return std::nullopt;
    return value;
}

// Of memory.stat: pages of files, which the kernel takes back first.
std::uint64_t file_pages(const fs::path& group, const std::string& prefix) {
    std::ifstream in(group / "memory.stat");
    std::uint64_t sum = 0;
    std::string name;
    for (std::uint64_t value = 0; in >> name >> value;)
        if (name == prefix + "inactive_file" || name == prefix + "active_file") sum += value;
    return sum;
}

struct Files {
    const char* limit;
    const char* used;
    const char* stat_prefix;
};
constexpr Files kV2{"memory.max", "memory.current", ""};
constexpr Files kV1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_"};

void look(const fs::path& top,
          fs::path group,
          const Files& files,
          std::optional<MemoryRoom>& least) {
    for (;;) {
        const fs::path here = top / group.relative_path();
        const auto limit = number_in(here / files.limit);
        const auto used = number_in(here / files.used);
        if (limit && used && *limit < kNoLimit) {
            const std::uint64_t pages = file_pages(here, files.stat_prefix);
            const std::uint64_t fixed = *used > pages ? *used - pages : 0;
            const std::uint64_t left = *limit > fixed ? *limit - fixed : 0;
            if (!least || left < least->bytes) least = MemoryRoom{left, here / files.limit};
        }
        if (group.relative_path().empty()) return;
        group = group.parent_path();
    }
}

std::string mib(std::uint64_t bytes) {
    return std::to_string(bytes >> 20U) + " MiB";
}

}  // namespace

std::optional<MemoryRoom> memory_room(const fs::path& membership, const fs::path& root) {
    std::optional<MemoryRoom> least;
    std::ifstream in(membership);
    // "number:controllers:path", controllers empty for v2.
    for (std::string line; std::getline(in, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
        if (second == line.npos) continue;
        const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
        const fs::path group = line.substr(second + 1);
        if (controllers == ",,") {
            look(root, group, kV2, least);
            look(root / "unified", group, kV2, least);
        } else if (controllers.find(",memory,") != controllers.npos) {
            look(root / "memory", group, kV1, least);
        }
    }
    return least;
}

std::uint64_t memory_needed(const core::Config& config) {
    std::uint64_t bytes = kProcessBytes;
    std::set<std::pair<std::uint32_t, std::uint32_t>> sizes;
    const auto pair_bytes = [](const port::ChannelSizes& each) {
        return layout::segment_bytes(each.to_plugin_bytes) +
               layout::segment_bytes(each.from_plugin_bytes);
    };
    for (const core::SlotSpec& slot : config.slots) {
        const port::ChannelSizes each = sizes_of(slot.kind);
        bytes += slot.instances * (pair_bytes(each) + kProcessBytes);
        if (sizes.emplace(each.to_plugin_bytes, each.from_plugin_bytes).second)
            bytes += port::kSparesPerSize * pair_bytes(each);
    }
    return bytes;
}

Result<void> enough_memory(const core::Config& config, const std::optional<MemoryRoom>& room) {
    const std::uint64_t needed = memory_needed(config);
    if (!room || room->bytes >= needed) return {};
    return fail(Code::Refused,
                "this node's processes and their links take at least " + mib(needed) +
                    " of memory, and " + room->file.string() + " leaves " + mib(room->bytes) +
                    ": raise that limit, or have fewer plugin.runtime.instances");
}

}  // namespace hf::daemon
