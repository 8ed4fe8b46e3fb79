// Whole numbers in settings, which arrive as text.
#pragma once

#include <cstdint>
#include <string_view>

#include "abi/base/result.hpp"

namespace hf::scheduler {

// Decimal digits only, min <= value <= max; the error names policy, key, value and the range.
[[nodiscard]] Result<std::uint32_t> whole_number(std::string_view policy,
                                                 std::string_view key,
                                                 std::string_view text,
                                                 std::uint32_t min,
                                                 std::uint32_t max);

}  // namespace hf::scheduler
