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
    return out;
}

std::uint64_t Random::next() {
    hi_ = mix64(hi_);
    lo_ += 0x9E3779B97F4A7C15ULL;
    return mix64(hi_ ^ lo_);
}

}  // namespace hf::core
