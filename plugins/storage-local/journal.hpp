// The journal: writes that are durable and not yet in the tree of objects.
//
// Why. Writers append to keys far from each other, so each put in the tree changes a page of its own; the same puts side
// by side change a few pages. So a commit appends one row for each write to the journal, which is a row of entries of the
// same LMDB table ('j' and a big-endian operation number), and the oldest rows are merged into the tree later, many at
// once. What was deleted meanwhile never reaches it.
//
// What holds in every transaction, read or write, of every process:
//   the bucket = the tree, then the rows in the order of their numbers; the rows are merged_to + 1, + 2, ... without a gap
// where `merged_to` stands in the table's own record. Numbers are never used again.
//
// A Journal is one thread's index over those rows: key -> its newest row. It knows nothing that is not in the store, and
// only catch_up() changes it, from a transaction: it forgets what was merged since and learns what was appended since, no
// matter by whom. So other threads, other processes, aborted transactions and deaths need no care of their own. Bodies stay
// in the store. The writer and the reader of a bucket have one each; only the reader needs the keys in order.
//
// Functions answer LMDB's codes (0, MDB_NOTFOUND, MDB_CORRUPTED, ...).
#pragma once

#include <lmdb.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hf::bucket {

// Rows that may wait. 64 units with a base every 256 entries make 2 x 64 x 256 between an entry's put and its delete.
// About 250 bytes of memory each and index, and 1 us each when a process starts.
inline constexpr std::size_t kJournalOpsMax = 32768;
// Their bytes: 500 for each, which is twice what small entries take. In a small map one part in 32.
inline constexpr std::uint64_t kJournalBytesMax = 16U << 20U;
inline constexpr std::uint64_t kJournalMapPart = 32;
// One merge takes this part of the bounds: 1024 rows, which change at most as many pages of the tree (4 MiB), so that
// writes wait for it for some tens of milliseconds at worst.
inline constexpr std::size_t kMergePart = 32;

struct JournalEntry {
    std::uint64_t op = 0;  // the newest row of this key
    bool live = false;     // false: it was deleted
    bool in_tree = false;  // whether the tree has this key, with an older object
};

struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
        return std::hash<std::string_view>{}(key);
    }
};
using KeyOrder = std::map<std::string, JournalEntry, std::less<>>;
using KeyTable = std::unordered_map<std::string, JournalEntry, KeyHash, std::equal_to<>>;

template <class Index>
class Journal {
public:
    // Follows the store to what `txn` sees. After an error it stands at an earlier row; calling again goes on there.
    int catch_up(MDB_txn* txn, MDB_dbi table, std::uint64_t merged_to);

    // nullptr: no row speaks of this key, the tree does.
    [[nodiscard]] const JournalEntry* find(std::string_view key) const;
    [[nodiscard]] const Index& index() const { return index_; }

    // Rows that wait, their numbers and bytes.
    [[nodiscard]] std::size_t size() const { return ops_.size(); }
    [[nodiscard]] bool empty() const { return ops_.empty(); }
    [[nodiscard]] std::uint64_t merged_to() const { return merged_to_; }
    [[nodiscard]] std::uint64_t last_op() const { return merged_to_ + ops_.size(); }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    // What the rows add to the number of objects in the tree.
    [[nodiscard]] std::int64_t objects_delta() const { return objects_delta_; }

    // Of the row `op`, merged_to < op <= last_op.
    [[nodiscard]] std::uint32_t bytes_of(std::uint64_t op) const;
    // Its key and the newest entry of that key.
    [[nodiscard]] const typename Index::value_type& newest(std::uint64_t op) const;

private:
    struct Op {
        // Good: an index entry goes with its newest row, which is the last of them to go.
        typename Index::value_type* place = nullptr;
        std::uint32_t bytes = 0;
    };
    void forget(std::uint64_t merged_to);
    void learn(const JournalEntry& entry, std::string_view key, std::size_t bytes);

    Index index_;
    std::deque<Op> ops_;  // the oldest first
    std::uint64_t merged_to_ = 0;
    std::uint64_t bytes_ = 0;
    std::int64_t objects_delta_ = 0;
};

extern template class Journal<KeyOrder>;
extern template class Journal<KeyTable>;

// The rows themselves, inside the caller's transaction.
class JournalRows {
public:
    JournalRows(MDB_txn* txn, MDB_dbi table) : txn_(txn), table_(table) {}

    // A put: `place` is where the caller writes `object_bytes` (header and body), all of them at once.
    int append_put(std::uint64_t op,
                   std::string_view key,
                   bool in_tree,
                   std::size_t object_bytes,
                   void** place);
    int append_delete(std::uint64_t op, std::string_view key, bool in_tree);
    // The object that the put `op` stored, as it stands in the tree otherwise. Good until the transaction's next change.
    int object(std::uint64_t op, MDB_val& value) const;
    // The oldest `count` rows.
    int remove_oldest(std::uint64_t count);

private:
    int append(std::uint64_t op,
               std::string_view key,
               bool live,
               bool in_tree,
               std::size_t object_bytes,
               void** place);

    MDB_txn* txn_;
    MDB_dbi table_;
};

}  // namespace hf::bucket
