// The XML of a store's answers as plain structs: listings and errors. Responsible for reading only what is complete and makes
// sense (a listing that is cut, out of order or outside of what was asked is refused, never shortened), and for bounds on
// what a parser is made to do. The only file that knows the parser. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::s3 {

// 257 keys of 1024 bytes, each byte as %XX, and 700 bytes around each key are less than 1 MiB; twice that.
inline constexpr std::size_t kXmlBytesMax = std::size_t{2} * 1024 * 1024;
// A listing has depth 4; owners and such make it 5.
inline constexpr unsigned kXmlDepthMax = 16;
// 1000 keys, the most a page holds, with 16 elements each.
inline constexpr std::size_t kXmlElementsMax = 16'000;

struct StoreError {
    std::string code;  // "NoSuchKey"; empty: the body is no error of S3's
    std::string message;
    std::string region;    // where the bucket is, when the store says so
    std::string endpoint;  // likewise
};
// What it cannot read is an error without a code: any server on the way may have written it.
[[nodiscard]] StoreError read_error(std::string_view xml);

struct ListedKey {
    std::string key;
    std::uint64_t size = 0;
    std::string etag;  // with its quotes
    std::int64_t last_modified_ms = 0;
};
struct Listing {
    std::vector<ListedKey> keys;  // ascending by bytes
    bool truncated = false;
    std::string next_token;
};
// Corrupt: it is no whole ListBucketResult, or not the one asked for: every key begins with `prefix`, sorts after `after`
// and after the one before it.
[[nodiscard]] Result<Listing> read_listing(std::string_view xml,
                                           std::string_view prefix,
                                           std::string_view after);

// "2026-11-30T12:34:56.789Z" (the fraction may be missing) as Unix ms; -1: it is none.
[[nodiscard]] std::int64_t parse_timestamp(std::string_view text);

}  // namespace hf::s3
