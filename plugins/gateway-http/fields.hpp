// Header fields whose value is a list. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/gateway-http/http_parse.hpp"

namespace hf::gateway {

// Letters of ASCII in either case are the same; `lower_case` has no capitals.
[[nodiscard]] bool equals_lower(std::string_view text, std::string_view lower_case);
// The words between the commas of all fields of this name (lower case), without the spaces around them. Empty ones are
// left out. For lists without quoted strings.
[[nodiscard]] std::vector<std::string_view> words_of(const Head& head, std::string_view name);
[[nodiscard]] bool has_word(const Head& head, std::string_view name, std::string_view lower_case);
// True when a Prefer field (RFC 7240) names this preference without a value. Parameters count for nothing.
[[nodiscard]] bool has_preference(const Head& head, std::string_view lower_case);

}  // namespace hf::gateway
