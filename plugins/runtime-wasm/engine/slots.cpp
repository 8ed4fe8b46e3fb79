#include "plugins/runtime-wasm/engine/slots.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "abi/base/check.hpp"

namespace hf::wasm {

namespace {
constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
}  // namespace

SlotPool::~SlotPool() {
    for (const Slot& slot : all_) ::munmap(slot.base, kSlotBytes);
}

Result<Slot> SlotPool::take() {
    if (taken_ >= slots_max_)
        return fail(Code::Busy, "all " + std::to_string(slots_max_) + " memory slots are taken");
    if (free_.empty()) {
        void* base = ::mmap(nullptr, kSlotBytes, PROT_NONE, kReserve, -1, 0);
        if (base == MAP_FAILED)
            return fail_errno(errno, "reserving an address range for a guest memory");
        const Slot slot{static_cast<std::uint8_t*>(base)};
        all_.push_back(slot);
        free_.push_back(slot);
    }
    const Slot slot = free_.back();
    free_.pop_back();
    ++taken_;
    return slot;
}

void SlotPool::give_back(Slot slot, std::size_t used_bytes) {
    if (used_bytes > 0) {
        void* mapped = ::mmap(slot.base, used_bytes, PROT_NONE, kReserve | MAP_FIXED, -1, 0);
        // At vm.max_map_count not even this is granted; closing what is mapped needs no new mapping. The pages stay until
        // the slot is used again.
        const bool closed =
            mapped == slot.base || ::mprotect(slot.base, used_bytes, PROT_NONE) == 0;
        HF_CHECK(closed, "an evicted memory must not stay readable");
    }
    --taken_;
    free_.push_back(slot);
}

}  // namespace hf::wasm
