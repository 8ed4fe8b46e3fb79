// Moving the journal's oldest rows into the tree, which nobody sees: before and after, the bucket is the same.
#include <sys/vfs.h>

#include <algorithm>
#include <cstring>

#include "plugins/storage-local/bucket_batch.hpp"
#include "plugins/storage-local/lmdb_facts.hpp"

namespace hf::bucket {
namespace {

// Of one call. More than empty a journal at its bounds; a neighbour that appends meanwhile makes nobody wait for ever.
constexpr std::size_t kMergesMax = 4 * kMergePart;

}  // namespace

bool Bucket::over_bounds() const {
    return journal_.size() > journal_ops_max_ || journal_.bytes() > journal_bytes_max_;
}

// The map or the disk has too little room to write everything twice.
bool Bucket::is_crowded() {
    if (room_pages() < static_cast<std::int64_t>(kJournalRoomBytes / page_bytes_)) return true;
    int fd = -1;
    struct statfs disk {};
    if (mdb_env_get_fd(env_, &fd) != 0 || ::fstatfs(fd, &disk) != 0) return false;
    return disk.f_bavail < kJournalRoomBytes / static_cast<std::uint64_t>(disk.f_bsize);
}

// Merges the oldest rows until the journal, as the last transaction found it, keeps its bounds or is empty.
int Bucket::merge(bool all) {
    const std::size_t most = std::max<std::size_t>(1, journal_ops_max_ / kMergePart);
    std::size_t rows = most;
    for (std::size_t i = 0; i < kMergesMax; ++i) {
        if (all ? journal_.empty() : !over_bounds()) break;
        int code = merge_oldest(rows);
        if (code == MDB_MAP_FULL && clear_dead_readers()) code = merge_oldest(rows);
        // Fewer at once need less room, and give back what the next ones need.
        const bool fits = !may_be_full(code);
        if (code != 0 && (fits || rows == 1)) return code;
        rows = fits ? std::min(most, rows * 2) : rows / 2;
    }
    return 0;
}

int Bucket::merge_oldest(std::size_t rows) {
    Batch batch;
    if (const int code = begin(batch); code != 0) return code;
    const std::uint64_t from = journal_.merged_to();
    std::uint64_t to = from;
    std::uint64_t bytes = 0;
    while (to < journal_.last_op() && to - from < rows) {
        bytes += journal_.bytes_of(to + 1);
        if (to > from && bytes > journal_bytes_max_ / kMergePart) break;
        ++to;
    }
    int code = 0;
    for (std::uint64_t op = from + 1; op <= to && code == 0; ++op) code = merge_row(batch, op);
    if (code == 0) code = JournalRows(batch.txn, table_).remove_oldest(to - from);
    if (code != 0) {
        mdb_txn_abort(batch.txn);
        return code;
    }
    batch.changed = to > from;
    batch.record_changed = batch.changed;
    batch.record.merged_to = to;
    bool indeterminate = false;  // it would change nothing that anybody sees
    return commit(batch, indeterminate);
}

int Bucket::merge_row(Batch& batch, std::uint64_t op) {
    JournalRows rows(batch.txn, table_);
    KeyTree tree(batch.txn, table_);
    const auto& [key, entry] = journal_.newest(op);
    // A later row of the same key says what becomes of it.
    if (entry.op == op && entry.live) {
        MDB_val object{};
        if (const int code = rows.object(op, object); code != 0) return code;
        // A copy, because a change of the tree may move what lies in the same page.
        const auto* bytes = static_cast<const std::uint8_t*>(object.mv_data);
        moved_.assign(bytes, bytes + object.mv_size);
        void* place = nullptr;
        if (const int code = tree.reserve(key, moved_.size(), batch.tree, &place); code != 0)
            return code;
        std::memcpy(place, moved_.data(), moved_.size());
    } else if (entry.op == op && entry.in_tree) {
        const int code = tree.erase(key, batch.tree);
        if (code != 0) return code == MDB_NOTFOUND ? MDB_CORRUPTED : code;
    }
    return 0;
}

}  // namespace hf::bucket
