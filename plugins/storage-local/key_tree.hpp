// Object keys of 1..1024 bytes in one LMDB table whose own keys end at 511 bytes, in the order of their bytes.
//
// A key is cut into pieces of kPieceBytes. The pieces are the path through a small tree of nodes: every piece but the
// last leads from its node to a child node, the last one holds the object. Entries of one table:
//   'k' piece                 in the root node: a short key is simply 'k' and itself
//   'n' node(8, big end) piece  in any other node
// A full piece is followed by one tag byte: 0 = an object ends here, 1 = a child node begins here. A shorter piece has
// none. So entries of a node sort as the keys they stand for, and a child's keys sort between its neighbours.
// 'm' is the table's own record and no key.
//
// Holds no state of its own: everything happens inside the caller's transaction, so a death leaves all or nothing.
// Functions answer LMDB's codes (0, MDB_NOTFOUND, MDB_MAP_FULL, ...).
#pragma once

#include <lmdb.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hf::bucket {

// S3 keys end here, and ours are made for both.
inline constexpr std::size_t kKeyBytesMax = 1024;
// 1 + 8 + 480 + 1 = 490 bytes, below LMDB's compiled limit of 511; three pieces carry 1024 bytes.
inline constexpr std::size_t kPieceBytes = 480;
inline constexpr std::size_t kPiecesMax = (kKeyBytesMax + kPieceBytes - 1) / kPieceBytes;

// Kept in the table's own record; changed only when a long key makes or removes a child node.
struct TreeState {
    std::uint64_t last_node = 0;      // ids are never used again
    std::uint64_t child_entries = 0;  // entries that are no objects
    bool changed = false;
};

class KeyTree {
public:
    KeyTree(MDB_txn* txn, MDB_dbi table) : txn_(txn), table_(table) {}

    int find(std::string_view key, MDB_val& value) const;
    // Reserves `bytes` for the value of `key` and answers where they are; the caller fills all of them at once.
    int reserve(std::string_view key, std::size_t bytes, TreeState& state, void** place);
    int erase(std::string_view key, TreeState& state);

private:
    int node_of(std::string_view& rest,
                std::uint64_t& node,
                std::array<std::uint64_t, kPiecesMax>* path) const;
    int is_empty(std::uint64_t node, bool& empty) const;

    MDB_txn* txn_;
    MDB_dbi table_;
};

// Goes through the keys in ascending order of their bytes. Not to be used after its transaction ended.
class KeyWalker {
public:
    KeyWalker(MDB_txn* txn, MDB_dbi table) : txn_(txn), table_(table) {}
    ~KeyWalker();
    KeyWalker(const KeyWalker&) = delete;
    KeyWalker& operator=(const KeyWalker&) = delete;

    // Stands on the first key that is not less than `bound`; MDB_NOTFOUND: there is none.
    int seek(std::string_view bound);
    int next();
    [[nodiscard]] const std::string& key() const { return key_; }
    [[nodiscard]] const MDB_val& value() const { return value_; }

private:
    struct Level {
        MDB_cursor* cursor = nullptr;
        std::uint64_t node = 0;
        std::size_t base = 0;  // bytes of key_ that the levels above stand for
    };
    int enter(std::uint64_t node,
              std::string_view piece);  // opens the next level at the first entry from `piece` on
    int settle();                       // from the entry under the top cursor to an object
    int read_entry(int code, bool& inside);

    MDB_txn* txn_;
    MDB_dbi table_;
    std::array<Level, kPiecesMax> levels_{};
    std::size_t depth_ = 0;  // levels in use
    MDB_val entry_{};
    MDB_val value_{};
    std::string key_;
};

}  // namespace hf::bucket
