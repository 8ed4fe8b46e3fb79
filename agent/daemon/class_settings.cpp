#include "agent/daemon/class_settings.hpp"

#include <utility>

namespace hf::daemon {

namespace {
constexpr std::uint64_t kPageBytes = 65536;
// The longest wall_limit, an hour, is below 2^32 of them.
constexpr std::int64_t kUsPerMs = 1000;
}  // namespace

config::ClassConfig class_in(const config::Config& config, const std::string& name) {
    const auto found = config.classes.find(name);
    return found == config.classes.end() ? config::default_class(name) : found->second;
}

core::ClassSpec class_spec(const config::ClassConfig& settings, const ModuleLimits& limits) {
    core::ClassSpec spec;
    spec.name = settings.name;
    spec.wall_limit = std::int64_t{limits.wall_us} * (core::kMs / kUsPerMs);
    spec.state_bytes_max = limits.state_bytes_max;
    if (settings.mailbox == "buffered") spec.mailbox = core::Mailbox::Buffered;
    if (settings.mailbox == "volatile") spec.mailbox = core::Mailbox::Volatile;
    spec.body_bytes_max = limits.body_bytes_max;
    spec.evict_after = std::int64_t{settings.evict_after.count()} * core::kMs;
    return spec;
}

ModuleLimits module_limits(const config::ClassConfig& settings) {
    ModuleLimits limits;
    limits.state_bytes_max = static_cast<std::uint32_t>(settings.state_max);
    limits.pages_max = static_cast<std::uint32_t>(settings.memory_max / kPageBytes);
    limits.cpu_us = static_cast<std::uint32_t>(settings.cpu_limit.count() * kUsPerMs);
    limits.wall_us = static_cast<std::uint32_t>(settings.wall_limit.count() * kUsPerMs);
    limits.body_bytes_max = settings.body_max;
    return limits;
}

std::string ModuleLimits::text() const {
    std::string out;
    for (const std::uint64_t number : {std::uint64_t{state_bytes_max},
                                       std::uint64_t{pages_max},
                                       std::uint64_t{cpu_us},
                                       std::uint64_t{wall_us},
                                       body_bytes_max})
        out += std::to_string(number) + " ";
    return out;
}

std::string RuntimeTable::id() const {
    std::string besides;
    for (const auto& [name, of_class] : limits) besides += of_class.text();
    return table_id(modules, besides);
}

RuntimeTable runtime_table(ModuleTable modules, const config::Config& config) {
    RuntimeTable out;
    for (const auto& [name, entry] : modules)
        out.limits.emplace(name, module_limits(class_in(config, name)));
    out.modules = std::move(modules);
    return out;
}

}  // namespace hf::daemon
