#include "plugins/runtime-wasm/settings.hpp"

#include <charconv>

namespace hf::wasm {

namespace {

struct Known {
    std::string_view key;
    std::size_t Settings::*field;
    std::size_t least;
    std::size_t most;
};
constexpr Known kKnown[] = {
    {"resident_units_max", &Settings::resident_units_max, 1, 20'000},
    {"parked_events_max", &Settings::parked_events_max, 1, 4'096},
    {"slice_us", &Settings::slice_us, 0, 100'000},
};

}  // namespace

Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& pairs) {
    Settings settings;
    for (const auto& [key, value] : pairs) {
        const Known* found = nullptr;
        for (const Known& known : kKnown)
            if (known.key == key) found = &known;
        if (found == nullptr)
            return fail(Code::Invalid,
                        "runtime-wasm knows no setting '" + std::string(key) +
                            "'; it knows resident_units_max, parked_events_max and slice_us");
        std::size_t number = 0;
        const auto [end, error] =
            std::from_chars(value.data(), value.data() + value.size(), number);
        if (error != std::errc() || end != value.data() + value.size() || number < found->least ||
            number > found->most)
            return fail(Code::Invalid,
                        "setting '" + std::string(key) + "' is '" + std::string(value) +
                            "', it must be " + std::to_string(found->least) + " to " +
                            std::to_string(found->most));
        settings.*found->field = number;
    }
    return settings;
}

}  // namespace hf::wasm
