// What the values in the bucket's table look like. Written and read by bucket.cpp alone; little-endian, fixed for
// format version 1 for ever.
#pragma once

#include <lmdb.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "abi/base/hash.hpp"

namespace hf::bucket {

static_assert(std::endian::native == std::endian::little, "values are stored little-endian");

inline constexpr std::uint32_t kFormatVersion = 1;

// Before each object's body.
struct ObjectHeader {
    std::uint32_t version = kFormatVersion;
    std::uint32_t body_bytes = 0;
    std::uint64_t write_hi = 0;
    std::uint64_t write_lo = 0;
    std::uint64_t serial = 0;  // of the write, never used twice
    std::int64_t last_modified_ms = 0;
};
static_assert(sizeof(ObjectHeader) == 40);

// The table's own record, under the key 'm'.
struct TableRecord {
    std::uint32_t version = kFormatVersion;
    std::uint32_t reserved = 0;
    std::uint64_t serial_end = 1;  // serials below are given out
    std::uint64_t last_node = 0;
    std::uint64_t child_entries = 0;
};
static_assert(sizeof(TableRecord) == 32);

template <class T>
[[nodiscard]] bool read_record(const MDB_val& value, T& record) {
    if (value.mv_size < sizeof record) return false;
    std::memcpy(&record, value.mv_data, sizeof record);
    return record.version == kFormatVersion;
}

[[nodiscard]] inline bool read_object(const MDB_val& value, ObjectHeader& header) {
    return read_record(value, header) && value.mv_size == sizeof header + header.body_bytes;
}

// Quoted like S3's. The serial makes it differ after every write; the write_id's hash keeps it different from the etags
// of a second life of the store, when an old copy of the file was put back and serials are given out again.
[[nodiscard]] inline std::string etag_of(const ObjectHeader& header) {
    constexpr std::array<char, 16> kDigits{
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
    std::string text = "\"";
    for (const std::uint64_t word :
         {header.serial, mix64(header.write_hi ^ mix64(header.write_lo))})
        for (int shift = 60; shift >= 0; shift -= 4)
            text += kDigits[(word >> static_cast<unsigned>(shift)) & 15U];
    text += '"';
    return text;
}

}  // namespace hf::bucket
