#include "plugins/storage-local/bucket.hpp"

#include <cerrno>
#include <limits>

#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "plugins/storage-local/bucket_batch.hpp"
#include "plugins/storage-local/lmdb_facts.hpp"

namespace hf::bucket {
namespace {

// Pages one put may take beside its body: a path of 4, as many for the free list.
constexpr std::int64_t kPathPages = 8;
// Serials taken at once: one commit in this many touches the table's record.
constexpr std::uint64_t kSerialBlock = 1U << 16U;
// Looking at 126 readers takes some microseconds, and what so many commits free is some MiB.
constexpr std::size_t kDeadReadersEvery = 1024;

}  // namespace

std::string body_too_large(std::uint64_t bytes) {
    return "a body has at most " + std::to_string(kObjectBytesMax) +
           " bytes (kObjectBytesMax), this one " + std::to_string(bytes);
}

std::vector<WriteResult> Bucket::apply(std::span<const Write> writes) {
    std::vector<WriteResult> results(writes.size());
    if (writes.empty()) return results;
    clear_dead_readers_now_and_then();
    crowded_ = is_crowded();
    // What cannot be merged may wait on, up to the journal's bounds.
    const int code = merge(crowded_);
    if (code != 0 && code != MDB_MAP_RESIZED && over_bounds()) {
        for (WriteResult& result : results)
            result = WriteResult{Outcome::Refused, {}, {}, sentence(code)};
        return results;
    }
    apply_part(writes, results);
    return results;
}

WriteResult Bucket::erase(std::string key, Condition condition, std::string etag) {
    Write write;
    write.kind = WriteKind::Delete;
    write.key = std::move(key);
    write.condition = condition;
    write.etag = std::move(etag);
    return put(write);
}

void Bucket::apply_part(std::span<const Write> writes, std::span<WriteResult> results) {
    bool indeterminate = false;
    int code = attempt(writes, results, indeterminate);
    if (code == MDB_MAP_FULL && clear_dead_readers())
        code = attempt(writes, results, indeterminate);
    if (code == 0) return;
    if (is_no_room(code) && !indeterminate && writes.size() > 1) {
        const std::size_t half = writes.size() / 2;
        apply_part(writes.first(half), results.first(half));
        apply_part(writes.subspan(half), results.subspan(half));
        return;
    }
    note_outgrown(code);
    const bool again = indeterminate || code == MDB_MAP_RESIZED;
    const std::string reason = sentence(code);
    for (WriteResult& result : results)
        result = WriteResult{again ? Outcome::Unknown : Outcome::Refused, {}, {}, reason};
}

// A map is as long as the file was when this process opened it.
void Bucket::note_outgrown(int code) {
    if (code == MDB_MAP_RESIZED) broken_.store(code, std::memory_order_relaxed);
}

void Bucket::clear_dead_readers_now_and_then() {
    if (++applies_ % kDeadReadersEvery == 0) (void)clear_dead_readers();
}

// A dead process's view keeps pages from being used again.
bool Bucket::clear_dead_readers() {
    int dead = 0;
    return mdb_reader_check(env_, &dead) == 0 && dead > 0;
}

int Bucket::read_own(MDB_txn* txn, TableRecord& record) const {
    MDB_val key = record_key();
    MDB_val value{};
    if (const int code = mdb_get(txn, table_, &key, &value); code != 0)
        return code == MDB_NOTFOUND ? MDB_CORRUPTED : code;
    return read_table_record(value, record) ? 0 : MDB_CORRUPTED;
}

int Bucket::begin(Batch& batch) {
    if (const int code = mdb_txn_begin(env_, nullptr, 0, &batch.txn); code != 0) return code;
    int code = read_own(batch.txn, batch.record);
    if (code == 0) code = journal_.catch_up(batch.txn, table_, batch.record.merged_to);
    if (code != 0) {
        mdb_txn_abort(batch.txn);
        return code;
    }
    batch.tree.last_node = batch.record.last_node;
    batch.tree.child_entries = batch.record.child_entries;
    batch.serial_next = serial_next_;
    batch.serial_end = serial_end_;
    batch.last_op = journal_.last_op();
    return 0;
}

int Bucket::attempt(std::span<const Write> writes,
                    std::span<WriteResult> results,
                    bool& indeterminate) {
    Batch batch;
    batch.room_pages = room_pages();
    batch.now_ms = wall_ms();
    int code = begin(batch);
    if (code != 0) return code;
    // Never past rows that wait: they come after the tree.
    batch.journalled = !crowded_ || !journal_.empty();
    for (std::size_t i = 0; i < writes.size() && code == 0; ++i) {
        results[i] = WriteResult{};
        code = apply_one(batch, writes[i], results[i]);
    }
    if (code != 0) {
        mdb_txn_abort(batch.txn);
        return code;
    }
    return commit(batch, indeterminate);
}

// `entry`: the newest row of `key`, if there is one.
int Bucket::find(MDB_txn* txn,
                 const JournalEntry* entry,
                 std::string_view key,
                 Current& current) const {
    if (entry != nullptr) {
        current.exists = entry->live;
        current.in_tree = entry->in_tree;
        return entry->live ? JournalRows(txn, table_).object(entry->op, current.value) : 0;
    }
    const int code = KeyTree(txn, table_).find(key, current.value);
    if (code != 0 && code != MDB_NOTFOUND) return code;
    current.exists = current.in_tree = code == 0;
    return 0;
}

int Bucket::apply_one(Batch& batch, const Write& write, WriteResult& result) {
    const bool is_put = write.kind == WriteKind::Put;
    const auto refuse = [&result](std::string reason) {
        result.outcome = Outcome::Refused;
        result.reason = std::move(reason);
        return 0;
    };
    if (write.key.empty() || write.key.size() > kKeyBytesMax)
        return refuse("a key has 1.." + std::to_string(kKeyBytesMax) +
                      " bytes (kKeyBytesMax), this one " + std::to_string(write.key.size()));
    if (write.body.size() > kObjectBytesMax) return refuse(body_too_large(write.body.size()));
    if (write.condition == Condition::IfMatch && write.etag.empty())
        return refuse("IfMatch needs an etag");
    if (write.condition == Condition::IfAbsent && !is_put)
        return refuse("IfAbsent has no meaning for a delete");

    const auto appended = batch.appended.find(write.key);
    const JournalEntry* entry =
        appended != batch.appended.end() ? &appended->second : journal_.find(write.key);
    Current current;
    ObjectHeader header;
    if (const int code = find(batch.txn, entry, write.key, current); code != 0) return code;
    const bool exists = current.exists;
    if (exists) {
        if (!read_object(current.value, header)) return MDB_CORRUPTED;
        result.etag = etag_of(header);
        result.write_id = {header.write_hi, header.write_lo};
    }
    if (is_put && exists && !write.write_id.none() && result.write_id == write.write_id) {
        result.outcome = Outcome::Applied;
        return 0;
    }
    if (!exists && (!is_put || write.condition == Condition::IfMatch)) {
        result.outcome = Outcome::NotFound;
        return 0;
    }
    if ((write.condition == Condition::IfAbsent && exists) ||
        (write.condition == Condition::IfMatch && write.etag != result.etag)) {
        result.outcome = Outcome::PreconditionFailed;
        return 0;
    }
    // What comes or goes is large, and no row speaks of its key: then the order of rows does not matter to it.
    const std::size_t bytes = is_put ? write.body.size() : header.body_bytes;
    const bool past = entry == nullptr && bytes > kInlineObjectBytesMax;
    const bool journalled = batch.journalled && !past;
    if (is_put) return store_object(batch, write, current.in_tree, journalled, result);
    result = WriteResult{Outcome::Applied, {}, {}, {}};
    return remove_object(batch, write, current.in_tree, journalled);
}

int Bucket::remove_object(Batch& batch, const Write& write, bool in_tree, bool journalled) {
    batch.changed = true;
    if (!journalled) return KeyTree(batch.txn, table_).erase(write.key, batch.tree);
    batch.appended[write.key] = {++batch.last_op, false, in_tree};
    return JournalRows(batch.txn, table_).append_delete(batch.last_op, write.key, in_tree);
}

int Bucket::store_object(
    Batch& batch, const Write& write, bool in_tree, bool journalled, WriteResult& result) {
    const auto bytes = sizeof(ObjectHeader) + write.body.size();
    batch.room_pages -= kPathPages + static_cast<std::int64_t>(bytes / page_bytes_ + 1);
    if (batch.room_pages < 0) return MDB_MAP_FULL;

    ObjectHeader header;
    header.body_bytes = static_cast<std::uint32_t>(write.body.size());
    header.write_hi = write.write_id.hi;
    header.write_lo = write.write_id.lo;
    header.last_modified_ms = batch.now_ms;
    header.serial = next_serial(batch);
    void* place = nullptr;
    int code = 0;
    if (journalled) {
        batch.appended[write.key] = {++batch.last_op, true, in_tree};
        code = JournalRows(batch.txn, table_)
                   .append_put(batch.last_op, write.key, in_tree, bytes, &place);
    } else {
        code = KeyTree(batch.txn, table_).reserve(write.key, bytes, batch.tree, &place);
    }
    if (code != 0) return code;
    std::memcpy(place, &header, sizeof header);
    if (!write.body.empty())
        std::memcpy(
            static_cast<char*>(place) + sizeof header, write.body.data(), write.body.size());
    batch.changed = true;
    result = WriteResult{Outcome::Applied, etag_of(header), write.write_id, {}};
    return 0;
}

std::uint64_t Bucket::next_serial(Batch& batch) {
    if (batch.serial_next == batch.serial_end) {
        batch.serial_next = batch.record.serial_end;
        batch.serial_end = batch.serial_next + kSerialBlock;
        batch.record.serial_end = batch.serial_end;
        batch.record_changed = true;
    }
    return batch.serial_next++;
}

int Bucket::commit(Batch& batch, bool& indeterminate) {
    if (!batch.changed) {  // answers only: nothing to make durable
        mdb_txn_abort(batch.txn);
        return 0;
    }
    if (batch.journalled && batch.record.version == kPlainTable) {
        batch.record.version = kJournalledTable;
        batch.record_changed = true;
    }
    if (batch.record_changed || batch.tree.changed) {
        batch.record.last_node = batch.tree.last_node;
        batch.record.child_entries = batch.tree.child_entries;
        MDB_val key = record_key();
        MDB_val value{sizeof batch.record, &batch.record};
        if (const int code = mdb_put(batch.txn, table_, &key, &value, 0); code != 0) {
            mdb_txn_abort(batch.txn);
            return code;
        }
    }
    const int code = mdb_txn_commit(batch.txn);
    if (code == 0) {
        serial_next_ = batch.serial_next;
        serial_end_ = batch.serial_end;
        commits_.fetch_add(1, std::memory_order_relaxed);
        return 0;
    }
    // Whether the meta page was at stake: LMDB then begins no transaction any more.
    MDB_txn* probe = nullptr;
    const int next = mdb_txn_begin(env_, nullptr, 0, &probe);
    if (next == 0) mdb_txn_abort(probe);
    indeterminate = next != 0 && next != MDB_MAP_RESIZED;
    if (next == MDB_PANIC) broken_.store(next, std::memory_order_relaxed);
    return code;
}

// Pages that puts may still take. Far from the limit that is not counted.
std::int64_t Bucket::room_pages() {
    const std::uint64_t touched = pages_touched(env_);
    if (touched * page_bytes_ + kJournalRoomBytes <= put_bytes_max_)
        return std::numeric_limits<std::int64_t>::max();
    std::uint64_t free_pages = 0;
    MDB_txn* txn = nullptr;
    if (mdb_txn_begin(env_, nullptr, MDB_RDONLY, &txn) == 0) {
        if (count_free_pages(txn, free_pages) != 0) free_pages = 0;
        mdb_txn_abort(txn);
    }
    return static_cast<std::int64_t>(put_bytes_max_ / page_bytes_ + free_pages) -
           static_cast<std::int64_t>(touched);
}

}  // namespace hf::bucket
