// What somebody may have meant by a key that is not known where it stands. Private to this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hf::config {

// The end of a complaint about `key`, with its separator: "; did you mean 'storage'?". `known` are the names that would
// have been right in its place.
[[nodiscard]] std::string guess(std::string_view key, const std::vector<std::string>& known);

}  // namespace hf::config
