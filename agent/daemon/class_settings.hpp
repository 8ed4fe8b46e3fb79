// What a class's settings in agent.toml come to: for the core, and for a runtime that loads its module. The only place that
// turns one into the other.
#pragma once

#include <cstdint>
#include <string>

#include "agent/config/config.hpp"
#include "agent/core/types.hpp"

namespace hf::daemon {

// The class of that name as the file has it, else one with the defaults.
[[nodiscard]] config::ClassConfig class_in(const config::Config& config, const std::string& name);

[[nodiscard]] core::ClassSpec class_spec(const config::ClassConfig& settings);

// What a runtime is told; other limits are another build of it.
struct ModuleLimits {
    std::uint32_t state_bytes_max = 0;
    std::uint32_t pages_max = 0;  // of 64 KiB
    std::uint32_t cpu_us = 0;
    std::uint32_t wall_us = 0;
    std::uint64_t body_bytes_max = 0;
    // Two that differ have different texts.
    [[nodiscard]] std::string text() const;
};
[[nodiscard]] ModuleLimits module_limits(const config::ClassConfig& settings);

}  // namespace hf::daemon
