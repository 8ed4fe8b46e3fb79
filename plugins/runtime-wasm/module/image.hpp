// The image file <key>.image: what a module's memory and mutable globals look like when its image phase is over.
//
//   "HFIMAGE1", u32 memory pages (64 KiB), u32 globals, u32 chunks, u32 0
//   u64 per global · u32 chunk number per chunk · 4096 bytes per chunk (only those that are not all zero)
//
// Little-endian. Read as an allegation: every count is checked against the file's size.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/engine/program.hpp"

namespace hf::wasm {

// `memory` is pages x 64 KiB long.
Bytes encode_image(BytesView memory, const std::vector<std::uint64_t>& globals);
// Checks the counts only. Corrupt when they do not fit the file.
Result<std::uint32_t> image_pages(BytesView file);
// Makes the sealed memfd that instances map. Call before the last filter is laid.
Result<Image> decode_image(BytesView file);

// A memfd with these bytes, sealed against every change. `name` is for /proc only.
Result<UniqueFd> sealed_memfd(const char* name, BytesView bytes);

}  // namespace hf::wasm
