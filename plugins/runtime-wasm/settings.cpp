#include "plugins/runtime-wasm/settings.hpp"

#include <charconv>

namespace hf::wasm {

namespace {
constexpr std::size_t kResidentUnitsLimit = 20'000;
}  // namespace

Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& pairs) {
    Settings settings;
    for (const auto& [key, value] : pairs) {
        if (key != "resident_units_max")
            return fail(Code::Invalid,
                        "runtime-wasm knows no setting '" + std::string(key) +
                            "'; it knows resident_units_max");
        std::size_t number = 0;
        const auto [end, error] =
            std::from_chars(value.data(), value.data() + value.size(), number);
        if (error != std::errc() || end != value.data() + value.size() || number < 1 ||
            number > kResidentUnitsLimit)
            return fail(Code::Invalid,
                        "setting 'resident_units_max' is '" + std::string(value) +
                            "', it must be 1 to " + std::to_string(kResidentUnitsLimit));
        settings.resident_units_max = number;
    }
    return settings;
}

}  // namespace hf::wasm
