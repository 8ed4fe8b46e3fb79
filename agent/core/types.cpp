#include "agent/core/types.hpp"

#include <algorithm>

#include "abi/base/hash.hpp"

namespace hf::core {

const char* kind_name(Kind kind) {
    switch (kind) {
        case Kind::Gateway:
            return "gateway";
        case Kind::Storage:
            return "storage";
        case Kind::Runtime:
            return "runtime";
        case Kind::Placement:
            return "placement";
        case Kind::Drain:
            return "drain";
        case Kind::None:
            break;
    }
    return "none";
}

std::string Build::identity() const {
    // The order in which settings were written down says nothing.
    auto sorted = settings;
    std::sort(sorted.begin(), sorted.end());
    std::string out = binary_hash + "|" + policy;
    for (const auto& [key, value] : sorted) out.append("|").append(key).append("=").append(value);
    if (!modules.empty()) out += "|modules " + modules;
    return out;
}

std::string Build::short_hash() const {
    constexpr std::size_t kDigits = 8;  // of 32: the builds of one slot, not of the world
    return binary_hash.substr(0, kDigits);
}

std::string Build::described() const {
    constexpr std::size_t kSettingsShown = 200;  // bytes; there may be 8 KiB
    std::string out = label() + " (build " + short_hash();
    // What a slot without policies is told stands in agent.toml.
    if (!policy.empty()) {
        std::string list;
        for (const auto& [key, value] : settings)
            list.append(", ").append(key).append("=").append(value);
        if (list.size() > kSettingsShown) list = list.substr(0, kSettingsShown) + " ...";
        out += list.empty() ? ", no settings" : list;
    }
    constexpr std::size_t kTableDigits = 8;
    if (!modules.empty()) out += ", modules " + modules.substr(0, kTableDigits);
    return out + ")";
}

std::uint64_t Random::next() {
    hi_ = mix64(hi_);
    lo_ += 0x9E3779B97F4A7C15ULL;
    return mix64(hi_ ^ lo_);
}

}  // namespace hf::core
