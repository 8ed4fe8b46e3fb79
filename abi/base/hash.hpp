// Hashes with fixed results on every machine; never std::hash where a value is stored or sent.
#pragma once

#include <cstdint>
#include <string_view>

namespace hf {

// FNV-1a, 64 bits. Alarm shards and seeds of policies (protocol 2).
[[nodiscard]] constexpr std::uint64_t fnv1a64(std::string_view text,
                                              std::uint64_t seed = 0xCBF29CE484222325ULL) {
    std::uint64_t hash = seed;
    for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
    return hash;
}

// Finaliser of splitmix64: spreads a weak hash over all bits. Also our seedable generator's step.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

}  // namespace hf
