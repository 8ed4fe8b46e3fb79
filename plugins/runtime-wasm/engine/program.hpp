// A loaded module as the engine needs it: the descriptor, a template of the instance struct, a template of the table
// and the pre-initialised memory image. Immutable after create(), shared by all instances of the module.
//
// Table entries hold instance pointers: an instance gets its own table, rewritten entry by entry, never a plain copy.
#pragma once

// wasm-rt.h declares runtime functions of its own; only its types are used here.
#include <wasm-rt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "plugins/runtime-wasm/engine/module_abi.h"
#include "plugins/runtime-wasm/engine/slots.hpp"

namespace hf::wasm {

class Worker;

// Memory and mutable globals after the image phase. `memory_fd` is a sealed memfd of pages x 64 KiB.
struct Image {
    UniqueFd memory_fd;
    std::uint32_t pages = 0;
    std::vector<std::uint64_t> globals;
};

// Fills the part of the host table that the engine itself implements; the rest is left alone.
void fill_engine_calls(hf_host_v1& host);

class Program {
public:
    // Checks the descriptor, gives it `host` (which must outlive the program) and runs instantiate once in a slot
    // of `pool`, on `worker` because a data segment may trap. The image must fit the descriptor.
    static Result<std::unique_ptr<Program>> create(const hf_module_v1* module,
                                                   const hf_host_v1& host,
                                                   Image image,
                                                   Worker& worker,
                                                   SlotPool& pool);
    // The checks of create() that need no run: sizes, ABI number, mandatory entries.
    static Result<void> check(const hf_module_v1* module);

    [[nodiscard]] const hf_module_v1& module() const { return *module_; }
    [[nodiscard]] const Image& image() const { return image_; }
    // One block: the instance struct, then its table.
    [[nodiscard]] std::size_t block_bytes() const {
        return table_offset_ + table_.size() * sizeof(wasm_rt_funcref_t);
    }
    // Writes a ready struct and table into `block`; the memory's base is `memory`.
    void stamp(std::uint8_t* block, std::uint8_t* memory) const;

private:
    const hf_module_v1* module_ = nullptr;
    Image image_;
    Bytes struct_;
    std::vector<wasm_rt_funcref_t> table_;
    std::vector<std::uint32_t> global_at_;
    std::size_t memory_at_ = 0;     // offset of the memory object in the struct
    std::size_t table_at_ = 0;      // offset of the table object, if the module has one
    std::size_t table_offset_ = 0;  // where the table's entries begin in the block
};

}  // namespace hf::wasm
