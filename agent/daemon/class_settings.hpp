// What a class's settings in agent.toml come to: for the core, and for a runtime that loads its module. The only place that
// turns one into the other.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/config/config.hpp"
#include "agent/core/types.hpp"
#include "agent/daemon/deployments.hpp"

namespace hf::daemon {

// The class of that name as the file has it, else one with the defaults.
[[nodiscard]] config::ClassConfig class_in(const config::Config& config, const std::string& name);

// What a runtime is told; other limits are another build of it.
struct ModuleLimits {
    std::uint32_t state_bytes_max = 0;
    std::uint32_t pages_max = 0;  // of 64 KiB
    std::uint32_t cpu_us = 0;
    std::uint32_t wall_us = 0;
    std::uint64_t body_bytes_max = 0;
    // Two that differ have different texts.
    [[nodiscard]] std::string text() const;
    friend bool operator==(const ModuleLimits&, const ModuleLimits&) = default;
};
[[nodiscard]] ModuleLimits module_limits(const config::ClassConfig& settings);

// Of what a runtime knows as well, the core goes by what that was told: a roll-back may have taken it back to other limits
// than the file's.
[[nodiscard]] core::ClassSpec class_spec(const config::ClassConfig& settings,
                                         const ModuleLimits& limits);

// All that a runtime is told of its classes.
struct RuntimeTable {
    ModuleTable modules;
    std::map<std::string, ModuleLimits> limits;  // of the same classes
    // Two that differ have different ids.
    [[nodiscard]] std::string id() const;
    friend bool operator==(const RuntimeTable&, const RuntimeTable&) = default;
};
[[nodiscard]] RuntimeTable runtime_table(ModuleTable modules, const config::Config& config);

}  // namespace hf::daemon
