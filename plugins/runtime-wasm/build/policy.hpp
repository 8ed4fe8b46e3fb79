// What a module must be before a line of C is written for it. Two steps, because the module is hostile in both: scan()
// runs over the raw bytes and bounds everything that would cost time or memory to represent; check() runs over the
// validated module and looks at types. Every refusal is one sentence: what, where, and what is allowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace wabt {
struct Module;
}

namespace hf::wasm {

// Bounds of a module. The compiler's time grows faster than linearly with a function's size and locals (20 000 locals
// took gcc minutes and a gigabyte), so both are bounded far above what real programs have (SQLite: 68 locals).
inline constexpr std::size_t kModuleBytesMax = 8u << 20;  // code, data and custom sections
inline constexpr std::size_t kCodeBytesMax =
    2u << 20;  // sqlite3.wasm has 0.7 MiB and compiles in 25 s
inline constexpr std::size_t kDataBytesMax = 4u << 20;  // becomes 6 characters of C a byte
inline constexpr std::uint32_t kFunctionsMax = 20'000;
inline constexpr std::uint32_t kBodyBytesMax = 64 * 1024;
inline constexpr std::uint32_t kLocalsMax = 1'000;  // parameters included
inline constexpr std::uint32_t kParamsMax = 128;
inline constexpr std::uint32_t kResultsMax = 16;
inline constexpr std::uint32_t kDepthMax =
    1'024;  // nested blocks; each indents and recurses in the C writer
inline constexpr std::uint32_t kTypesMax = 10'000;
inline constexpr std::uint32_t kImportsMax =
    128;  // the known list is shorter, duplicates are allowed
inline constexpr std::uint32_t kExportsMax = 1'000;
inline constexpr std::uint32_t kGlobalsMax = 1'000;
inline constexpr std::uint32_t kTableEntriesMax = 10'000;  // 24 bytes each in every instance
inline constexpr std::uint32_t kSegmentsMax = 10'000;
inline constexpr std::uint32_t kInitialPagesMax =
    4'096;  // 256 MiB: every actor starts with this much mapped
inline constexpr std::uint64_t kOffsetMax = 32u << 20;  // half of what a slot has above 4 GiB
inline constexpr std::size_t kNameBytesMax = 128;

Result<void> scan(BytesView wasm);
Result<void> check(const wabt::Module& module);

// Letters, digits and "_.:$-", 1 to 128 of them. wasm2c copies names into C comments: anything else could be C.
[[nodiscard]] bool name_allowed(std::string_view name);

// One function that a module may import. Types as one letter each: i = i32, I = i64.
struct KnownImport {
    std::string_view module;
    std::string_view name;
    std::string_view params;
    std::string_view result;  // empty: none
    std::string_view host;  // the entry of hf_host_v1 behind it; empty: it always answers `answer`
    std::uint32_t answer = 0;
};
inline constexpr std::string_view kActorModule = "actor";
inline constexpr std::string_view kWasiModule = "wasi_snapshot_preview1";
[[nodiscard]] const std::vector<KnownImport>& known_imports();

struct KnownExport {
    std::string_view name;
    std::string_view params;
    std::string_view result;
    bool required;
};
[[nodiscard]] const std::vector<KnownExport>& known_exports();

// The translator adds exports of its own under this prefix; a module may not.
inline constexpr std::string_view kReservedPrefix = "__hf_";

}  // namespace hf::wasm
