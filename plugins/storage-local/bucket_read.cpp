// Snapshots: what readers of a bucket see.
#include <algorithm>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/lmdb_facts.hpp"
#include "plugins/storage-local/stored_object.hpp"

namespace hf::bucket {

Result<Snapshot> Bucket::read() {
    if (const int code = mdb_txn_renew(reader_); code != 0) {
        note_outgrown(code);
        return fail(Code::Unavailable, sentence(code));
    }
    TableRecord record;
    int code = read_own(reader_, record);
    if (code == 0) code = read_journal_.catch_up(reader_, table_, record.merged_to);
    if (code != 0) {
        mdb_txn_reset(reader_);
        return fail(Code::Io, sentence(code));
    }
    return Snapshot(*this);
}

Snapshot::~Snapshot() {
    if (bucket_ != nullptr) mdb_txn_reset(bucket_->reader_);
}

Result<Object> Snapshot::get(std::string_view key) const {
    if (key.empty() || key.size() > kKeyBytesMax)
        return fail(Code::Invalid,
                    "a key has 1.." + std::to_string(kKeyBytesMax) +
                        " bytes (kKeyBytesMax), this one " + std::to_string(key.size()));
    Bucket::Current current;
    const int code =
        bucket_->find(bucket_->reader_, bucket_->read_journal_.find(key), key, current);
    if (code != 0) return fail(Code::Io, bucket_->sentence(code));
    if (!current.exists) return fail(Code::NotFound, "no such object");
    ObjectHeader header;
    if (!read_object(current.value, header))
        return fail(Code::Corrupt, bucket_->sentence(MDB_CORRUPTED));
    const auto* bytes = static_cast<const std::uint8_t*>(current.value.mv_data) + sizeof header;
    return Object{{bytes, header.body_bytes},
                  etag_of(header),
                  {header.write_hi, header.write_lo},
                  header.last_modified_ms};
}

// Two rows of keys in one order: where both have a key, the journal's word is the newer one.
Result<bool> Snapshot::list(std::string_view prefix,
                            std::string_view after,
                            std::size_t limit,
                            const std::function<bool(const Listing&)>& visit) const {
    const std::string_view bound = std::max(prefix, after);
    KeyWalker walker(bucket_->reader_, bucket_->table_);
    int code = walker.seek(bound);
    if (code == 0 && !after.empty() && walker.key() == after) code = walker.next();
    const KeyOrder& index = bucket_->read_journal_.index();
    auto place = index.lower_bound(bound);
    if (place != index.end() && !after.empty() && place->first == after) ++place;
    for (std::size_t taken = 0; code == 0 || code == MDB_NOTFOUND;) {
        const bool tree_left = code == 0 && walker.key().starts_with(prefix);
        const bool rows_left = place != index.end() && place->first.starts_with(prefix);
        if (!tree_left && !rows_left) return false;
        const int order = !tree_left   ? -1
                          : !rows_left ? 1
                                       : std::string_view(place->first).compare(walker.key());
        const bool from_row = order <= 0;
        if (!from_row || place->second.live) {
            if (taken == limit) return true;
            MDB_val value{};
            if (from_row) {
                const int bad =
                    JournalRows(bucket_->reader_, bucket_->table_).object(place->second.op, value);
                if (bad != 0) return fail(Code::Io, bucket_->sentence(bad));
            } else {
                value = walker.value();
            }
            ObjectHeader header;
            if (!read_object(value, header))
                return fail(Code::Corrupt, bucket_->sentence(MDB_CORRUPTED));
            if (!visit({from_row ? std::string_view(place->first) : walker.key(),
                        header.body_bytes,
                        etag_of(header),
                        header.last_modified_ms}))
                return true;
            ++taken;
        }
        if (from_row) ++place;
        if (tree_left && order >= 0) code = walker.next();
    }
    return fail(Code::Io, bucket_->sentence(code));
}

Result<Stats> Snapshot::stats() const {
    MDB_txn* txn = bucket_->reader_;
    std::uint64_t free_pages = 0;
    if (const int code = count_free_pages(txn, free_pages); code != 0)
        return fail(Code::Io, bucket_->sentence(code));
    MDB_stat table{};
    mdb_stat(txn, bucket_->table_, &table);
    TableRecord record;
    if (const int code = bucket_->read_own(txn, record); code != 0)
        return fail(Code::Corrupt, bucket_->sentence(code));
    const std::uint64_t touched = pages_touched(bucket_->env_);
    Stats stats;
    stats.bytes_used = (touched - std::min(touched, free_pages)) * bucket_->page_bytes_;
    stats.bytes_max = bucket_->map_bytes_;
    // Beside the objects the table holds its own record, the inner nodes of long keys and the journal's rows.
    const auto& journal = bucket_->read_journal_;
    const std::uint64_t in_tree = table.ms_entries - 1 - record.child_entries - journal.size();
    stats.objects = in_tree + static_cast<std::uint64_t>(journal.objects_delta());
    return stats;
}

}  // namespace hf::bucket
