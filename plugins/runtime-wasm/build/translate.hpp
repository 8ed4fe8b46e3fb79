// A wasm module as C: policy, wasm2c, and our shim behind it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::wasm {

struct Translation {
    std::string c;       // includes "m.h"
    std::string header;  // becomes "m.h"
    std::vector<std::string> exports;
    std::vector<std::string> imports;
    std::uint32_t pages = 0;
    std::uint32_t pages_max = 0;  // 65536: none declared
};

// Refused with a sentence when the module breaks the policy. `write_c` false: only the facts (inspection).
Result<Translation> translate(BytesView wasm, bool write_c);

}  // namespace hf::wasm
