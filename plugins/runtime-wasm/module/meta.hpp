// <key>.meta: what is known of a built module, independent of the class that uses it. Written last by the builder, so
// its presence says that .so and .image are whole; their hashes in it are checked before a byte of them is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::wasm {

struct Meta {
    std::string key;  // 64 hex digits: names module, tools, flags and ABI
    std::string wasm_sha256;
    std::string so_sha256;
    std::string image_sha256;
    std::uint32_t abi = 0;
    std::uint32_t memory_pages = 0;      // of the image
    std::uint32_t memory_pages_max = 0;  // as declared; 65536 when the module declares none
    std::vector<std::string> exports;
    std::string wabt;
    std::string gcc;
};

[[nodiscard]] std::string to_json(const Meta& meta);
Result<Meta> parse_meta(std::string_view text);

// 64 lower-case hex digits.
[[nodiscard]] std::string sha256_hex(BytesView bytes);
// A whole regular file of at most `bytes_max`.
Result<Bytes> read_file(const std::string& path, std::size_t bytes_max);

// Bounds of what a cache directory's files may be: sqlite3.wasm compiles to 2.3 MiB of code, an image is at most the
// data and what the image phase touched.
inline constexpr std::size_t kSoBytesMax = 64u << 20;
inline constexpr std::size_t kImageBytesMax = 256u << 20;
inline constexpr std::size_t kMetaBytesMax = 256u << 10;

struct CachedModule {
    Meta meta;
    std::string meta_sha256;  // of the .meta file's bytes
    Bytes so;
    Bytes image;
};
// `base` is the path without extension. Corrupt names the file whose hash differs; NotFound: not (wholly) built.
Result<CachedModule> read_cached(const std::string& base);

}  // namespace hf::wasm
