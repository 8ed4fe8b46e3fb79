#include "plugins/runtime-wasm/engine/instance.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "abi/base/check.hpp"

namespace hf::wasm {

Result<void> Instance::map() {
    HF_CHECK(!mapped() && program_ != nullptr, "an instance is mapped once");
    const Image& image = program_->image();
    HF_ASSIGN(slot_, pool_->take());
    const std::size_t bytes = std::size_t{image.pages} * kWasmPageBytes;
    if (bytes > 0) {
        void* at = ::mmap(slot_.base,
                          bytes,
                          PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                          image.memory_fd.get(),
                          0);
        if (at == MAP_FAILED) {
            const int why = errno;
            // A fixed mapping that failed may have left a hole where a wild access must find nothing.
            pool_->give_back(slot_, bytes);
            slot_ = Slot{};
            return fail_errno(why, "mapping a guest memory");
        }
    }
    block_ = std::make_unique_for_overwrite<std::uint8_t[]>(program_->block_bytes());
    program_->stamp(block_.get(), slot_.base);
    memory_ = program_->module().memory(block_.get());
    fresh_ = true;
    grow_refused_ = false;
    return {};
}

void Instance::drop() {
    if (slot_.base != nullptr) pool_->give_back(slot_, memory_ != nullptr ? memory_->size : 0);
    slot_ = Slot{};
    memory_ = nullptr;
    block_.reset();
}

Result<void> Instance::adopt_block(std::size_t bytes) {
    HF_CHECK(!mapped(), "an instance has one block");
    HF_ASSIGN(slot_, pool_->take());
    block_ = std::make_unique<std::uint8_t[]>(bytes);
    return {};
}

void Instance::allocate(wasm_rt_memory_t* memory, std::uint32_t pages, std::uint32_t max_pages) {
    HF_CHECK(memory_ == nullptr && pages < 65536, "one memory a module, below 4 GiB");
    memory->data = slot_.base;
    memory->pages = 0;
    memory->max_pages = max_pages;
    memory->size = 0;
    memory_ = memory;
    grow(memory, pages);
}

std::uint32_t Instance::grow(wasm_rt_memory_t* memory, std::uint32_t delta) {
    const std::uint32_t before = memory->pages;
    const std::uint64_t after = std::uint64_t{before} + delta;
    if (delta == 0) return before;
    if (after > pages_max_ || after > memory->max_pages || after > 65535) {
        grow_refused_ = grow_refused_ || after > pages_max_;
        return UINT32_MAX;
    }
    if (::mprotect(memory->data + memory->size,
                   std::size_t{delta} * kWasmPageBytes,
                   PROT_READ | PROT_WRITE) != 0)
        return UINT32_MAX;
    memory->pages = static_cast<std::uint32_t>(after);
    // Bulk operations check against size, so it is true from here on.
    memory->size = static_cast<std::uint32_t>(after * kWasmPageBytes);
    return before;
}

}  // namespace hf::wasm
