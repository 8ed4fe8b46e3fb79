// Numbers and bytes as lower-case hexadecimal digits: in names of files, records, ids that people compare.
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/bytes.hpp"

namespace hf {

// Two digits a byte.
[[nodiscard]] inline std::string hex(BytesView bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    out.reserve(2 * bytes.size());
    for (const std::uint8_t byte : bytes) {
        out.push_back(kDigits[byte >> 4U]);
        out.push_back(kDigits[byte & 15U]);
    }
    return out;
}

// 16 digits, the highest first.
[[nodiscard]] inline std::string hex(std::uint64_t word) {
    std::uint8_t bytes[8];
    for (unsigned i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(word >> (56U - 8U * i));
    return hex(BytesView(bytes));
}

}  // namespace hf
