// Snapshots: what readers of a bucket see.
#include <algorithm>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/lmdb_facts.hpp"
#include "plugins/storage-local/stored_object.hpp"

namespace hf::bucket {

Result<Snapshot> Bucket::read() {
    if (const int code = mdb_txn_renew(reader_); code != 0)
        return fail(Code::Unavailable, sentence(code));
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
    MDB_val value{};
    const int code = KeyTree(bucket_->reader_, bucket_->table_).find(key, value);
    if (code == MDB_NOTFOUND) return fail(Code::NotFound, "no such object");
    if (code != 0) return fail(Code::Io, bucket_->sentence(code));
    ObjectHeader header;
    if (!read_object(value, header)) return fail(Code::Corrupt, bucket_->sentence(MDB_CORRUPTED));
    const auto* bytes = static_cast<const std::uint8_t*>(value.mv_data) + sizeof header;
    return Object{{bytes, header.body_bytes},
                  etag_of(header),
                  {header.write_hi, header.write_lo},
                  header.last_modified_ms};
}

Result<bool> Snapshot::list(std::string_view prefix,
                            std::string_view after,
                            std::size_t limit,
                            const std::function<bool(const Listing&)>& visit) const {
    KeyWalker walker(bucket_->reader_, bucket_->table_);
    int code = walker.seek(std::max(prefix, after));
    if (code == 0 && !after.empty() && walker.key() == after) code = walker.next();
    for (std::size_t taken = 0; code == 0 && walker.key().starts_with(prefix);
         code = walker.next()) {
        if (taken == limit) return true;
        ObjectHeader header;
        if (!read_object(walker.value(), header))
            return fail(Code::Corrupt, bucket_->sentence(MDB_CORRUPTED));
        if (!visit({walker.key(), header.body_bytes, etag_of(header), header.last_modified_ms}))
            return true;
        ++taken;
    }
    if (code != 0 && code != MDB_NOTFOUND) return fail(Code::Io, bucket_->sentence(code));
    return false;
}

Result<Stats> Snapshot::stats() const {
    MDB_txn* txn = bucket_->reader_;
    std::uint64_t free_pages = 0;
    if (const int code = count_free_pages(txn, free_pages); code != 0)
        return fail(Code::Io, bucket_->sentence(code));
    MDB_stat table{};
    mdb_stat(txn, bucket_->table_, &table);
    MDB_val key = record_key();
    MDB_val value{};
    TableRecord record;
    if (mdb_get(txn, bucket_->table_, &key, &value) != 0 || !read_record(value, record))
        return fail(Code::Corrupt, bucket_->sentence(MDB_CORRUPTED));
    const std::uint64_t touched = pages_touched(bucket_->env_);
    Stats stats;
    stats.bytes_used = (touched - std::min(touched, free_pages)) * bucket_->page_bytes_;
    stats.bytes_max = bucket_->map_bytes_;
    stats.objects = table.ms_entries - 1 - record.child_entries;
    return stats;
}

}  // namespace hf::bucket
