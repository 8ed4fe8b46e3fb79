// What the values in the bucket's table look like; little-endian. An object and a journal row are fixed for their version
// for ever; the table's own record says which kinds of entries there are.
#pragma once

#include <lmdb.h>

#include <algorithm>
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

// Before each journal row's key and, for a put, its object.
struct RowHeader {
    std::uint32_t version = kFormatVersion;
    std::uint8_t live = 0;     // 1: a put, 0: a delete
    std::uint8_t in_tree = 0;  // 1: the tree has the key; stays true as long as the row waits
    std::uint16_t key_bytes = 0;
};
static_assert(sizeof(RowHeader) == 8);

// Version 1 has no journal. A program that knows only that refuses the store once a row was written, instead of
// overlooking it.
inline constexpr std::uint32_t kPlainTable = 1;
inline constexpr std::uint32_t kJournalledTable = 2;

// The table's own record, under the key 'm'.
struct TableRecord {
    std::uint32_t version = kJournalledTable;
    std::uint32_t reserved = 0;
    std::uint64_t serial_end = 1;  // serials below are given out
    std::uint64_t last_node = 0;
    std::uint64_t child_entries = 0;
    std::uint64_t merged_to =
        0;  // journal rows up to this one are in the tree; not there in version 1
};
static_assert(sizeof(TableRecord) == 40);
inline constexpr std::size_t kPlainTableBytes = 32;

template <class T>
[[nodiscard]] bool read_record(const MDB_val& value, T& record) {
    if (value.mv_size < sizeof record) return false;
    std::memcpy(&record, value.mv_data, sizeof record);
    return record.version == kFormatVersion;
}

[[nodiscard]] inline bool read_table_record(const MDB_val& value, TableRecord& record) {
    if (value.mv_size < kPlainTableBytes) return false;
    record = {};
    std::memcpy(&record, value.mv_data, std::min(value.mv_size, sizeof record));
    if (record.version == kPlainTable) {
        record.merged_to = 0;
        return true;
    }
    return record.version == kJournalledTable && value.mv_size >= sizeof record;
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
