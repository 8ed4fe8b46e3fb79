// Names one process of a plugin. A stale handle never reaches the successor: the generation differs.
#pragma once

#include <cstdint>
#include <functional>

namespace hf {

struct Handle {
    std::uint32_t index = 0;       // slot of the instance, reused by its successors
    std::uint64_t generation = 0;  // bumped at each start, 0 = nobody

    friend bool operator==(const Handle&, const Handle&) = default;
    friend auto operator<=>(const Handle&, const Handle&) = default;
    [[nodiscard]] bool valid() const { return generation != 0; }
};

}  // namespace hf

template <>
struct std::hash<hf::Handle> {
    std::size_t operator()(const hf::Handle& h) const noexcept {
        return std::hash<std::uint64_t>{}(h.generation * 0x9E3779B97F4A7C15ULL ^ h.index);
    }
};
