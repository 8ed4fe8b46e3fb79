// What the members of an operator's request say.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hf::daemon {

// Empty when there is none or it is no text.
[[nodiscard]] inline std::string text_of(const nlohmann::json& request, const char* key) {
    const auto it = request.find(key);
    return it != request.end() && it->is_string() ? it->get<std::string>() : std::string();
}

}  // namespace hf::daemon
