#include "plugins/scheduler/number.hpp"

#include <charconv>
#include <string>

namespace hf::scheduler {

Result<std::uint32_t> whole_number(std::string_view policy,
                                   std::string_view key,
                                   std::string_view text,
                                   std::uint32_t min,
                                   std::uint32_t max) {
    std::uint32_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc{} && stop == end && value >= min && value <= max) return value;
    return fail(Code::Invalid,
                "policy " + std::string(policy) + ": \"" + std::string(key) + "\" is \"" +
                    std::string(text) + "\", it must be a whole number from " +
                    std::to_string(min) + " to " + std::to_string(max));
}

}  // namespace hf::scheduler
