// Compiled modules on this node's disk, and the node's word that it made them: <sha256>.wasm is a copy of a module,
// <sha256>/<key>.so, .image, .meta and .mac what was made of it. The builder is a jailed process that parses what a tenant
// wrote: it is shown the directory of its own module read-only and writes into a staging directory, so that the worst
// module spoils nothing but itself. What was made is taken over here under a MAC (HMAC-SHA256 over the .meta, which names
// the hashes of the other two files) with a key that only the supervisor reads.
//
// The chain of trust to the code that runs: MAC -> .meta -> hashes of .so and .image. The supervisor checks the first link
// and tells the runtime the hash of that .meta; the runtime checks the others on the very bytes it then loads. So nothing
// that is exchanged between a check and a use is ever used, and nothing large is read here.
// When this process dies between two files, the entry has no good MAC and is built anew. Loop thread only; the largest
// thing read here is a module of 8 MiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::modules {

// The node's own key for MACs; never leaves the supervisor.
inline constexpr std::size_t kMacKeyBytes = 32;
using MacKey = std::array<std::uint8_t, kMacKeyBytes>;

// What the builder takes, code, data and custom sections (plugins/runtime-wasm/build): hashed in some 30 ms.
inline constexpr std::size_t kModuleBytesMax = 8U << 20U;
// The runtime's own bounds of the files (plugins/runtime-wasm/module).
inline constexpr std::uint64_t kSoBytesMax = 64ULL << 20U;
inline constexpr std::uint64_t kImageBytesMax = 256ULL << 20U;
inline constexpr std::uint64_t kMetaBytesMax = 256ULL << 10U;
// Modules whose compiled form is kept: 100 classes with the one before each, and as many again that may come back.
inline constexpr std::size_t kEntriesMax = 400;

// A compiled module that this node vouches for.
struct Entry {
    std::string key;          // content and tool versions, as the builder says: names the files
    std::string wasm_sha256;  // of the module it was made from
    std::string meta_sha256;  // of the .meta, for the runtime
    // Of the .so, below the cache's directory.
    [[nodiscard]] std::string file() const { return wasm_sha256 + "/" + key + ".so"; }
    friend bool operator==(const Entry&, const Entry&) = default;
};

// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_hex(BytesView bytes);
[[nodiscard]] bool is_sha256(std::string_view text);

class Cache {
public:
    Cache(std::filesystem::path directory, const MacKey& key);

    // Takes the directory from whoever owned it before; everybody may read it. Io: it could not be.
    Result<void> open() const;

    // Keeps a copy of the module at `path`, synced, and answers its sha256. Invalid: no plain file, or too large; Io, NotFound.
    [[nodiscard]] Result<std::string> take(const std::filesystem::path& path) const;
    // The copy is there and is what it is called. NotFound, Corrupt.
    Result<void> check_copy(const std::string& wasm_sha256) const;
    [[nodiscard]] std::filesystem::path copy(const std::string& wasm_sha256) const;

    // The directory with what was made of one module, for the builder to look at; made when it is not there.
    [[nodiscard]] Result<std::filesystem::path> view(const std::string& wasm_sha256) const;
    // An entry with a good MAC, made from that module. NotFound: there is none; Corrupt: there is one, and it is not ours.
    [[nodiscard]] Result<Entry> find(const std::string& key, const std::string& wasm_sha256) const;
    // An empty directory for one run of the builder, in which nothing of an earlier one is left.
    [[nodiscard]] Result<std::filesystem::path> fresh_staging() const;
    // Takes over what the builder left there as `key`, with a MAC. Corrupt: its files are not what they must be.
    [[nodiscard]] Result<Entry> adopt(const std::string& key, const std::string& wasm_sha256) const;
    // Moves an entry that is not ours out of the way, to bad/, where the last one stays for whoever has to explain it.
    void set_aside(const std::string& key, const std::string& wasm_sha256) const;

    // Removes copies of modules but those of `wasm`, and what was made of others beyond kEntriesMax, oldest first.
    void trim(const std::set<std::string>& wasm) const;

private:
    [[nodiscard]] std::string mac_of(BytesView meta) const;
    [[nodiscard]] std::filesystem::path file(const std::string& key,
                                             const std::string& wasm_sha256,
                                             const char* extension) const;

    std::filesystem::path directory_;
    MacKey key_;
};

}  // namespace hf::modules
