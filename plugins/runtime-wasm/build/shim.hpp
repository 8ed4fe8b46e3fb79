// The C that stands behind wasm2c's: the runtime functions it calls, the guest's imports, and the descriptor.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hf::wasm {

struct ShimGlobal {
    std::string name;
    std::uint32_t bytes = 0;
};

struct ShimFacts {
    std::vector<ShimGlobal> globals;
    std::set<std::pair<std::string, std::string>> imports;  // module and field, each known
    std::set<std::string> exports;                          // of the known ones
    bool has_table = false;
    bool has_start = false;
    std::uint64_t pages_max = 0;
};

// Names nothing but what is in our own tables: no byte of the guest's reaches this text.
[[nodiscard]] std::string shim(const ShimFacts& facts);

}  // namespace hf::wasm
