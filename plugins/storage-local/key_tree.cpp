#include "plugins/storage-local/key_tree.hpp"

#include <algorithm>
#include <cstring>

namespace hf::bucket {
namespace {

constexpr std::uint64_t kRoot = 0;
constexpr char kObjectTag = 0;
constexpr char kChildTag = 1;

// One LMDB key, built in place.
class EntryKey {
public:
    EntryKey(std::uint64_t node, std::string_view piece) {
        if (node == kRoot) {
            bytes_[size_++] = 'k';
        } else {
            bytes_[size_++] = 'n';
            for (int shift = 56; shift >= 0; shift -= 8)
                bytes_[size_++] = static_cast<char>(static_cast<std::uint8_t>(node >> shift));
        }
        prefix_ = size_;
        std::copy(piece.begin(), piece.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(size_));
        size_ += piece.size();
    }
    EntryKey(std::uint64_t node, std::string_view piece, char tag) : EntryKey(node, piece) {
        if (piece.size() == kPieceBytes) bytes_[size_++] = tag;
    }
    [[nodiscard]] MDB_val val() { return {size_, bytes_.data()}; }
    [[nodiscard]] std::string_view prefix() const { return {bytes_.data(), prefix_}; }

private:
    std::array<char, 1 + 8 + kPieceBytes + 1> bytes_{};
    std::size_t size_ = 0;
    std::size_t prefix_ = 0;
};

std::string_view text(const MDB_val& val) {
    return {static_cast<const char*>(val.mv_data), val.mv_size};
}

int child_id(const MDB_val& value, std::uint64_t& node) {
    if (value.mv_size != sizeof node) return MDB_CORRUPTED;
    std::memcpy(&node, value.mv_data, sizeof node);
    return node == kRoot ? MDB_CORRUPTED : 0;
}

}  // namespace

// Follows the leading pieces of a long key; `rest` becomes the last piece and `node` where it belongs.
int KeyTree::node_of(std::string_view& rest,
                     std::uint64_t& node,
                     std::array<std::uint64_t, kPiecesMax>* path) const {
    std::size_t level = 0;
    while (rest.size() > kPieceBytes) {
        if (path != nullptr) (*path)[level] = node;
        ++level;
        EntryKey entry(node, rest.substr(0, kPieceBytes), kChildTag);
        MDB_val key = entry.val();
        MDB_val value{};
        if (const int code = mdb_get(txn_, table_, &key, &value); code != 0) return code;
        if (const int code = child_id(value, node); code != 0) return code;
        rest.remove_prefix(kPieceBytes);
    }
    return 0;
}

int KeyTree::find(std::string_view key, MDB_val& value) const {
    std::uint64_t node = kRoot;
    if (const int code = node_of(key, node, nullptr); code != 0) return code;
    EntryKey entry(node, key, kObjectTag);
    MDB_val entry_key = entry.val();
    return mdb_get(txn_, table_, &entry_key, &value);
}

int KeyTree::reserve(std::string_view key, std::size_t bytes, TreeState& state, void** place) {
    std::uint64_t node = kRoot;
    for (int code = node_of(key, node, nullptr); code != 0; code = node_of(key, node, nullptr)) {
        if (code != MDB_NOTFOUND) return code;
        // The child that the next piece leads to does not exist yet.
        std::uint64_t fresh = ++state.last_node;
        ++state.child_entries;
        state.changed = true;
        EntryKey entry(node, key.substr(0, kPieceBytes), kChildTag);
        MDB_val entry_key = entry.val();
        MDB_val value{sizeof fresh, &fresh};
        if (const int put = mdb_put(txn_, table_, &entry_key, &value, 0); put != 0) return put;
    }
    EntryKey entry(node, key, kObjectTag);
    MDB_val entry_key = entry.val();
    MDB_val value{bytes, nullptr};
    const int code = mdb_put(txn_, table_, &entry_key, &value, MDB_RESERVE);
    *place = value.mv_data;
    return code;
}

int KeyTree::is_empty(std::uint64_t node, bool& empty) const {
    MDB_cursor* cursor = nullptr;
    if (const int code = mdb_cursor_open(txn_, table_, &cursor); code != 0) return code;
    EntryKey first(node, {});
    MDB_val key = first.val();
    MDB_val value{};
    const int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    empty = code == MDB_NOTFOUND || (code == 0 && !text(key).starts_with(first.prefix()));
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? 0 : code;
}

int KeyTree::erase(std::string_view key, TreeState& state) {
    std::array<std::uint64_t, kPiecesMax> path{};
    std::string_view rest = key;
    std::uint64_t node = kRoot;
    if (const int code = node_of(rest, node, &path); code != 0) return code;
    EntryKey entry(node, rest, kObjectTag);
    MDB_val entry_key = entry.val();
    if (const int code = mdb_del(txn_, table_, &entry_key, nullptr); code != 0) return code;

    // Nodes that lost their last entry go too, from the deepest up.
    for (std::size_t level = (key.size() - 1) / kPieceBytes; level > 0; --level) {
        bool empty = false;
        if (const int code = is_empty(node, empty); code != 0) return code;
        if (!empty) break;
        node = path[level - 1];
        EntryKey child(node, key.substr((level - 1) * kPieceBytes, kPieceBytes), kChildTag);
        MDB_val child_key = child.val();
        if (const int code = mdb_del(txn_, table_, &child_key, nullptr); code != 0) return code;
        --state.child_entries;
        state.changed = true;
    }
    return 0;
}

KeyWalker::~KeyWalker() {
    for (const Level& level : levels_)
        if (level.cursor != nullptr) mdb_cursor_close(level.cursor);
}

// Takes what a cursor answered; `inside` tells whether the entry belongs to the top level's node.
int KeyWalker::read_entry(int code, bool& inside) {
    inside = false;
    if (code == MDB_NOTFOUND) return 0;
    if (code != 0) return code;
    const EntryKey first(levels_[depth_ - 1].node, {});
    inside = text(entry_).starts_with(first.prefix());
    return 0;
}

int KeyWalker::enter(std::uint64_t node, std::string_view piece) {
    if (depth_ == kPiecesMax) return MDB_CORRUPTED;
    Level& level = levels_[depth_++];
    level.node = node;
    level.base = (depth_ - 1) * kPieceBytes;
    if (level.cursor == nullptr) {
        if (const int code = mdb_cursor_open(txn_, table_, &level.cursor); code != 0) return code;
    }
    // A bound longer than a piece starts at the piece's child; what follows in the bound is the child's business.
    EntryKey from(
        node, piece.substr(0, kPieceBytes), piece.size() > kPieceBytes ? kChildTag : kObjectTag);
    entry_ = from.val();
    const std::string wanted(text(entry_));
    bool inside = false;
    const int code =
        read_entry(mdb_cursor_get(level.cursor, &entry_, &value_, MDB_SET_RANGE), inside);
    if (code != 0) return code;
    if (!inside) {
        --depth_;
        return depth_ == 0 ? MDB_NOTFOUND : next();
    }
    if (piece.size() > kPieceBytes && text(entry_) == wanted) {
        key_.resize(level.base);
        key_.append(piece.substr(0, kPieceBytes));
        std::uint64_t child = kRoot;
        if (const int bad = child_id(value_, child); bad != 0) return bad;
        return enter(child, piece.substr(kPieceBytes));
    }
    return settle();
}

int KeyWalker::settle() {
    const Level& level = levels_[depth_ - 1];
    const std::size_t prefix = EntryKey(level.node, {}).prefix().size();
    std::string_view piece = text(entry_).substr(prefix);
    const bool full = piece.size() > kPieceBytes;
    const bool child_follows = full && piece[kPieceBytes] == kChildTag;
    key_.resize(level.base);
    key_.append(piece.substr(0, kPieceBytes));
    if (!child_follows) return 0;
    std::uint64_t child = kRoot;
    if (const int code = child_id(value_, child); code != 0) return code;
    return enter(child, {});
}

int KeyWalker::seek(std::string_view bound) {
    depth_ = 0;
    return enter(kRoot, bound);
}

int KeyWalker::next() {
    while (depth_ > 0) {
        bool inside = false;
        const int code = read_entry(
            mdb_cursor_get(levels_[depth_ - 1].cursor, &entry_, &value_, MDB_NEXT), inside);
        if (code != 0) return code;
        if (inside) return settle();
        --depth_;
    }
    return MDB_NOTFOUND;
}

}  // namespace hf::bucket
