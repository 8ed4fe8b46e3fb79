// What one write transaction of a bucket gathers; taken over by the bucket only when it is committed. Private to the files
// of bucket.hpp.
#pragma once

#include <string_view>
#include <unordered_map>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/stored_object.hpp"

namespace hf::bucket {

struct Bucket::Batch {
    MDB_txn* txn = nullptr;
    TableRecord record;
    TreeState tree;
    std::uint64_t serial_next = 0;
    std::uint64_t serial_end = 0;
    std::int64_t room_pages = 0;
    std::int64_t now_ms = 0;
    bool changed = false;
    bool record_changed = false;
    // Whether this transaction appends to the journal. Else it sees an empty one and changes the tree.
    bool journalled = false;
    std::uint64_t last_op = 0;
    // Rows appended here, by keys of the caller's writes.
    std::unordered_map<std::string_view, JournalEntry> appended;
};

}  // namespace hf::bucket
