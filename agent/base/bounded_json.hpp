// Parses JSON that somebody else wrote. nlohmann's parser is iterative but its printer is not: a document nested a
// million deep would parse and then overflow the stack, so depth is bounded while it is read.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace hf::base {

// Our own documents are at most 5 deep; the rest is room for fields of later versions.
inline constexpr int kJsonDepthMax = 32;

// Nothing when it is no JSON, not UTF-8, or too deep. Never throws.
[[nodiscard]] inline std::optional<nlohmann::json> parse_bounded(std::string_view text) {
    bool too_deep = false;
    const auto watch = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > kJsonDepthMax;
        return !too_deep;  // what lies deeper is not even built
    };
    auto parsed = nlohmann::json::parse(text.begin(), text.end(), watch, false);
    if (too_deep || parsed.is_discarded()) return std::nullopt;
    return parsed;
}

}  // namespace hf::base
