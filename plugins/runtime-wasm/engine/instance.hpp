// One actor's guest memory, struct and table. Created unmapped; map() costs one mmap, drop() one mmap.
// After a trap, a deadline or a failed event the owner must drop() it: a stopped guest is poisoned (its shadow stack
// pointer and half-done writes stay). The next map() starts again from the image.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/engine/program.hpp"
#include "plugins/runtime-wasm/engine/slots.hpp"

namespace hf::wasm {

class Instance {
public:
    // `pages_max`: the class's limit; a memory.grow beyond it answers -1. Program and pool must outlive the instance.
    Instance(const Program& program, SlotPool& pool, std::uint32_t pages_max)
        : program_(&program), pool_(&pool), pages_max_(pages_max) {}
    // For the image phase: memory comes from the module's own instantiate, nothing is mapped here.
    Instance(SlotPool& pool, std::uint32_t pages_max) : pool_(&pool), pages_max_(pages_max) {}
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;
    ~Instance() { drop(); }

    [[nodiscard]] bool mapped() const { return block_ != nullptr; }
    Result<void> map();
    void drop();

    // The struct that generated code calls `instance`. Null while unmapped.
    [[nodiscard]] void* guest() const { return block_.get(); }
    [[nodiscard]] const hf_module_v1& module() const { return program_->module(); }
    [[nodiscard]] const Slot& slot() const { return slot_; }
    [[nodiscard]] const wasm_rt_memory_t& memory() const { return *memory_; }

    // Where guest bytes [at, at + size) lie, or null when they are not all inside the memory.
    [[nodiscard]] std::uint8_t* range(std::uint32_t at, std::uint32_t size) const {
        return std::uint64_t{at} + size <= memory_->size ? memory_->data + at : nullptr;
    }

    // True from map() until the first event took notice: randomness the guest kept in memory is that of the image.
    [[nodiscard]] bool fresh() const { return fresh_; }
    void not_fresh() { fresh_ = false; }
    [[nodiscard]] bool grow_refused() const { return grow_refused_; }
    void clear_grow_refused() { grow_refused_ = false; }
    [[nodiscard]] std::uint32_t pages_max() const { return pages_max_; }

    // What imports act on, set by the host around an event.
    void* event = nullptr;

    // Engine only: a block built from outside (Program's template, the image phase) and the memory callbacks.
    Result<void> adopt_block(std::size_t bytes);
    void allocate(wasm_rt_memory_t* memory, std::uint32_t pages, std::uint32_t max_pages);
    std::uint32_t grow(wasm_rt_memory_t* memory, std::uint32_t delta);

private:
    const Program* program_ = nullptr;
    SlotPool* pool_;
    std::uint32_t pages_max_;
    bool fresh_ = false;
    bool grow_refused_ = false;
    Slot slot_;
    std::unique_ptr<std::uint8_t[]> block_;
    wasm_rt_memory_t* memory_ = nullptr;
};

}  // namespace hf::wasm
