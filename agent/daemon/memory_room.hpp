// How much memory this process and its children may still take before the kernel ends one of them: what its control groups,
// v2 or v1, leave. Asked once, before the links are made: memory for them is taken at once, and where there is too little the
// kernel's answer is a SIGKILL without a word.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "abi/base/result.hpp"
#include "agent/core/types.hpp"
#include "agent/port/channel.hpp"

namespace hf::daemon {

struct MemoryRoom {
    std::uint64_t bytes = 0;     // the limit less what is in use and could not be given back
    std::filesystem::path file;  // the one that states the limit
};

// The least of all groups from the process's own up to the root; nothing where no group has a limit or none can be read.
[[nodiscard]] std::optional<MemoryRoom> memory_room(
    const std::filesystem::path& membership = "/proc/self/cgroup",
    const std::filesystem::path& root = "/sys/fs/cgroup");

// The two rings of a link to an instance of this kind (links.cpp).
[[nodiscard]] port::ChannelSizes sizes_of(core::Kind kind);

// What a node with these slots takes at the very least.
[[nodiscard]] std::uint64_t memory_needed(const core::Config& config);

// Refused with both figures when there is less than that.
Result<void> enough_memory(const core::Config& config, const std::optional<MemoryRoom>& room);

}  // namespace hf::daemon
