// The plugin's own settings, from Configure. An unknown key refuses the start and names the known ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::wasm {

struct Settings {
    // 2 mappings a unit, 3 when its memory has grown, below vm.max_map_count (65 530 unless raised).
    std::size_t resident_units_max = 20'000;
    // Events that wait for the answer to a call: 384 KiB of address space and 2 mappings each, and the pages they touched.
    std::size_t parked_events_max = 256;
    // How long an event runs, by the clock, before others have a turn; 0: until its end. So long an event may wait for one
    // that computes. To give way and go on costs some 3 us: a hundredth of this for who computes.
    std::size_t slice_us = 250;
};

Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& pairs);

}  // namespace hf::wasm
