#include "plugins/storage-local/journal.hpp"

#include <cstring>

#include "plugins/storage-local/key_tree.hpp"
#include "plugins/storage-local/stored_object.hpp"

namespace hf::bucket {
namespace {

constexpr char kRowPrefix = 'j';

// One row's LMDB key: the order of its bytes is the order of the numbers.
class RowKey {
public:
    explicit RowKey(std::uint64_t op) {
        bytes_[0] = kRowPrefix;
        for (std::size_t i = 0; i < sizeof op; ++i)
            bytes_[1 + i] = static_cast<char>(static_cast<std::uint8_t>(op >> (56U - 8U * i)));
    }
    [[nodiscard]] MDB_val val() { return {bytes_.size(), bytes_.data()}; }

private:
    std::array<char, 1 + sizeof(std::uint64_t)> bytes_{};
};

struct Row {
    bool live = false;
    bool in_tree = false;
    std::string_view key;
    MDB_val object{};
};

bool read_row(const MDB_val& value, Row& row) {
    RowHeader header;
    if (!read_record(value, header)) return false;
    const std::size_t head = sizeof header + header.key_bytes;
    if (header.live > 1 || header.in_tree > 1 || header.key_bytes == 0 ||
        header.key_bytes > kKeyBytesMax || value.mv_size < head)
        return false;
    auto* bytes = static_cast<char*>(value.mv_data);
    row.live = header.live != 0;
    row.in_tree = header.in_tree != 0;
    row.key = {bytes + sizeof header, header.key_bytes};
    row.object = {value.mv_size - head, bytes + head};
    ObjectHeader object;
    return row.live ? read_object(row.object, object) : row.object.mv_size == 0;
}

std::int64_t added(const JournalEntry& entry) {
    if (entry.live == entry.in_tree) return 0;
    return entry.live ? 1 : -1;
}

}  // namespace

template <class Index>
int Journal<Index>::catch_up(MDB_txn* txn, MDB_dbi table, std::uint64_t merged_to) {
    if (merged_to < merged_to_) return MDB_CORRUPTED;
    forget(merged_to);
    MDB_cursor* cursor = nullptr;
    if (const int code = mdb_cursor_open(txn, table, &cursor); code != 0) return code;
    RowKey from(last_op() + 1);
    MDB_val key = from.val();
    MDB_val value{};
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    for (; code == 0; code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
        if (key.mv_size == 0 || *static_cast<const char*>(key.mv_data) != kRowPrefix) break;
        RowKey expected(last_op() + 1);
        const MDB_val wanted = expected.val();
        Row row;
        if (key.mv_size != wanted.mv_size ||
            std::memcmp(key.mv_data, wanted.mv_data, wanted.mv_size) != 0 ||
            !read_row(value, row)) {
            code = MDB_CORRUPTED;
            break;
        }
        learn({last_op() + 1, row.live, row.in_tree}, row.key, value.mv_size);
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? 0 : code;
}

template <class Index>
void Journal<Index>::forget(std::uint64_t merged_to) {
    while (merged_to_ < merged_to && !ops_.empty()) {
        const Op& oldest = ops_.front();
        ++merged_to_;
        bytes_ -= oldest.bytes;
        if (const JournalEntry& entry = oldest.place->second; entry.op == merged_to_) {
            objects_delta_ -= added(entry);
            index_.erase(index_.find(oldest.place->first));
        }
        ops_.pop_front();
    }
    merged_to_ = merged_to;
}

template <class Index>
void Journal<Index>::learn(const JournalEntry& entry, std::string_view key, std::size_t bytes) {
    auto place = index_.find(key);
    if (place == index_.end()) {
        place = index_.emplace(key, entry).first;
    } else {
        objects_delta_ -= added(place->second);
        place->second = entry;
    }
    objects_delta_ += added(entry);
    ops_.push_back({&*place, static_cast<std::uint32_t>(bytes)});
    bytes_ += bytes;
}

template <class Index>
const JournalEntry* Journal<Index>::find(std::string_view key) const {
    const auto place = index_.find(key);
    return place == index_.end() ? nullptr : &place->second;
}

template <class Index>
std::uint32_t Journal<Index>::bytes_of(std::uint64_t op) const {
    return ops_[op - merged_to_ - 1].bytes;
}

template <class Index>
const typename Index::value_type& Journal<Index>::newest(std::uint64_t op) const {
    return *ops_[op - merged_to_ - 1].place;
}

template class Journal<KeyOrder>;
template class Journal<KeyTable>;

int JournalRows::append(std::uint64_t op,
                        std::string_view key,
                        bool live,
                        bool in_tree,
                        std::size_t object_bytes,
                        void** place) {
    RowHeader header;
    header.live = live ? 1 : 0;
    header.in_tree = in_tree ? 1 : 0;
    header.key_bytes = static_cast<std::uint16_t>(key.size());
    RowKey row(op);
    MDB_val row_key = row.val();
    MDB_val value{sizeof header + key.size() + object_bytes, nullptr};
    const int code = mdb_put(txn_, table_, &row_key, &value, MDB_RESERVE | MDB_NOOVERWRITE);
    if (code != 0) return code == MDB_KEYEXIST ? MDB_CORRUPTED : code;
    auto* bytes = static_cast<char*>(value.mv_data);
    std::memcpy(bytes, &header, sizeof header);
    std::memcpy(bytes + sizeof header, key.data(), key.size());
    *place = bytes + sizeof header + key.size();
    return 0;
}

int JournalRows::append_put(
    std::uint64_t op, std::string_view key, bool in_tree, std::size_t object_bytes, void** place) {
    return append(op, key, true, in_tree, object_bytes, place);
}

int JournalRows::append_delete(std::uint64_t op, std::string_view key, bool in_tree) {
    void* nothing = nullptr;
    return append(op, key, false, in_tree, 0, &nothing);
}

int JournalRows::object(std::uint64_t op, MDB_val& value) const {
    RowKey key(op);
    MDB_val row_key = key.val();
    MDB_val whole{};
    const int code = mdb_get(txn_, table_, &row_key, &whole);
    Row row;
    if (code == MDB_NOTFOUND || (code == 0 && !read_row(whole, row))) return MDB_CORRUPTED;
    if (code == 0) value = row.object;
    return code;
}

int JournalRows::remove_oldest(std::uint64_t count) {
    MDB_cursor* cursor = nullptr;
    if (const int code = mdb_cursor_open(txn_, table_, &cursor); code != 0) return code;
    RowKey first(0);
    MDB_val key = first.val();
    MDB_val value{};
    int code = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (code == 0 && count > 0) {
        if (*static_cast<const char*>(key.mv_data) != kRowPrefix) code = MDB_CORRUPTED;
        if (code == 0) code = mdb_cursor_del(cursor, 0);
        // After a deletion that is the one behind it.
        if (code == 0 && --count > 0) code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? MDB_CORRUPTED : code;
}

}  // namespace hf::bucket
