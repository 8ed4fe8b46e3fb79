// Address ranges for guest memories: 4 GiB + 64 MiB each, inaccessible until an instance maps its pages.
// Generated code reaches base(u32) + static offset (< 32 MiB, the builder's policy) + 8 bytes without a check, so every
// wild access of a guest ends inside its own slot, where nothing is mapped. Not thread-safe: one pool per loop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::wasm {

inline constexpr std::size_t kWasmPageBytes = 64 * 1024;
// 4 GiB that a 32-bit base can name and 64 MiB for static offsets, twice what the policy lets through.
inline constexpr std::size_t kSlotBytes = (std::size_t{4} << 30) + (std::size_t{64} << 20);

// A reserved range. A value; the pool owns the mapping.
struct Slot {
    std::uint8_t* base = nullptr;
    [[nodiscard]] bool contains(const void* address) const {
        const auto at =
            reinterpret_cast<std::uintptr_t>(address);  // SAFETY: compared as numbers only
        const auto from = reinterpret_cast<std::uintptr_t>(base);  // SAFETY: as above
        return base != nullptr && at >= from && at - from < kSlotBytes;
    }
};

class SlotPool {
public:
    explicit SlotPool(std::size_t slots_max) : slots_max_(slots_max) {}
    SlotPool(const SlotPool&) = delete;
    SlotPool& operator=(const SlotPool&) = delete;
    ~SlotPool();

    // Busy when slots_max are taken; Io when the kernel has no range left.
    Result<Slot> take();
    // `used_bytes` from the base may be mapped; they become inaccessible again before the slot is given out anew.
    void give_back(Slot slot, std::size_t used_bytes);
    [[nodiscard]] std::size_t taken() const { return taken_; }

private:
    std::size_t slots_max_;
    std::size_t taken_ = 0;
    std::vector<Slot> all_;
    std::vector<Slot> free_;
};

}  // namespace hf::wasm
