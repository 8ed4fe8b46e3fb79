// One LMDB environment as a bucket with conditional writes. A plain library: no link, no loop, no thread of its own.
//
// Responsible for: what a write means, durability, room, the file's health. Not for: where an object lies (journal.hpp,
// key_tree.hpp), queueing (committer.hpp), messages (storage_local.hpp), the lock that keeps a second node away from an
// exclusive store (the supervisor's).
//
// A write is a row of the journal and goes into the tree later, in a transaction of its own before some later batch. With
// little room left, in the map or on the disk, the journal is emptied first and writes change the tree at once. So does a
// large object whose key no row speaks of: it takes pages of its own anyway and would only be written twice.
//
// Death. A write's change is on the disk when apply() returns it as Applied: LMDB syncs the pages, then writes the meta
// page through an O_DSYNC descriptor, and only then shows the new version to readers, so nobody ever reads what a power
// cut could take back. kill -9 before the meta page: nothing of the batch is there. After it and before the answer: all
// of it is there, and the writer, who heard nothing, sends the same write_id again and hears Applied, because that is
// looked up in the same transaction that would write. LMDB's writer lock is robust: the next process takes it over.
//
// Failures of a write and what they prove
//   full map, full disk (ENOSPC, EDQUOT, EFBIG)       Refused; nothing of the write is stored, later writes may work
//   EIO and others from writing or syncing pages      Refused; the meta page was not written, the old version stands
//   any error from writing the meta page              Unknown: the new meta page may be on the disk or not. LMDB allows
//                                                     no further transaction (MDB_PANIC): broken() turns true, the
//                                                     process must end and open the bucket again
//   a neighbour with a larger map_bytes filled more   Unknown, although nothing was written: whoever asks again asks the
//   than is mapped here                               next process, which maps all of the file. broken() turns true
// LMDB's code alone does not tell the second and the third apart; whether a transaction can still begin does.
//
// Neighbours. Several processes may have one bucket open, from one pid namespace of one machine: LMDB's lock file counts on
// pids and fcntl locks. Writers take turns; a neighbour that dies within a write hands its turn over, one that is stopped
// (SIGSTOP) keeps it, and writes here wait until it goes on or is killed. Readers never wait. A neighbour that dies while it
// reads leaves its view behind, which keeps pages from being used again; those are looked for now and then. map_bytes is
// each process's own bound for what it writes; what another wrote beyond it can be read and deleted.
//
// Threads: one for apply(), one for read() and stats(); they may be different ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "plugins/storage-local/journal.hpp"
#include "plugins/storage-local/key_tree.hpp"

namespace hf::bucket {

// Address space, not memory: the file is sparse.
inline constexpr std::uint64_t kMapBytesDefault = 16ULL << 30U;
// Room for the reserve below and some objects.
inline constexpr std::uint64_t kMapBytesMin = 4ULL << 20U;
// ext4 ends a file at 16 TiB.
inline constexpr std::uint64_t kMapBytesMax = 16ULL << 40U;
// Writes use the journal above this much room in the map and on the disk: 8 MiB for a batch (256 paths of 4 pages, and its bodies, or one object
// of kObjectBytesMax), and 16 MiB for merges under way, whose old pages come back two commits later (3 times 1024 pages of the tree and 0.5 MiB of bodies).
inline constexpr std::uint64_t kJournalRoomBytes = 24ULL << 20U;

struct WriteId {
    std::uint64_t hi = 0;
    std::uint64_t lo = 0;
    friend bool operator==(const WriteId&, const WriteId&) = default;
    [[nodiscard]] bool none() const { return hi == 0 && lo == 0; }
};

enum class Outcome : std::uint8_t { Applied, PreconditionFailed, NotFound, Refused, Unknown };
enum class Condition : std::uint8_t { None, IfAbsent, IfMatch };
enum class WriteKind : std::uint8_t { Put, Delete };

struct Write {
    WriteKind kind = WriteKind::Put;
    std::string key;  // any bytes, 1..kKeyBytesMax
    Bytes body;
    Condition condition = Condition::None;
    std::string etag;  // for IfMatch
    WriteId write_id;
    std::uint64_t token = 0;  // the caller's
};

struct WriteResult {
    Outcome outcome = Outcome::Unknown;
    std::string etag;  // of the object that is there now; empty when there is none
    WriteId write_id;
    std::string reason;
};

struct Object {
    BytesView body;  // inside the map: good as long as its Snapshot
    std::string etag;
    WriteId write_id;
    std::int64_t last_modified_ms = 0;  // this machine's wall clock at the write
};

struct Listing {
    std::string_view key;  // good until the visitor returns
    std::uint64_t size = 0;
    std::string etag;
    std::int64_t last_modified_ms = 0;
};

struct Stats {
    std::uint64_t bytes_used = 0;  // pages in use, free ones not counted
    std::uint64_t bytes_max = 0;
    std::uint64_t objects = 0;
};

struct Options {
    std::string directory;  // must exist
    std::uint64_t map_bytes = kMapBytesDefault;
    std::size_t journal_ops = kJournalOpsMax;  // rows that may wait, and two batches more
};

// Why a body of so many bytes is refused: it is above kObjectBytesMax.
[[nodiscard]] std::string body_too_large(std::uint64_t bytes);

class Bucket;
struct TableRecord;

// One consistent view. At most one at a time; ends with the object.
class Snapshot {
public:
    Snapshot(Snapshot&& other) noexcept : bucket_(other.bucket_) { other.bucket_ = nullptr; }
    Snapshot& operator=(Snapshot&&) = delete;
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;
    ~Snapshot();

    // NotFound; Invalid for a key that cannot exist; Corrupt.
    [[nodiscard]] Result<Object> get(std::string_view key) const;
    // Keys with `prefix` after `after`, ascending by bytes, `limit` at most, each handed to `visit`, which answers
    // false when it has no room: that key was not taken. The value tells whether more are left.
    Result<bool> list(std::string_view prefix,
                      std::string_view after,
                      std::size_t limit,
                      const std::function<bool(const Listing&)>& visit) const;
    [[nodiscard]] Result<Stats> stats() const;

private:
    friend class Bucket;
    explicit Snapshot(Bucket& bucket) : bucket_(&bucket) {}
    Bucket* bucket_;
};

class Bucket {
public:
    // Creates the bucket if the directory has none. Corrupt: a damaged or foreign file, named in the sentence.
    static Result<std::unique_ptr<Bucket>> open(const Options& options);
    ~Bucket();
    Bucket(const Bucket&) = delete;
    Bucket& operator=(const Bucket&) = delete;

    // All writes, in order, in one durable commit if they fit. One result for each, in the same order. When a commit
    // finds no room the batch is halved until those writes are found that do not fit; they alone are refused.
    std::vector<WriteResult> apply(std::span<const Write> writes);
    WriteResult put(const Write& write) { return std::move(apply({&write, 1}).front()); }
    WriteResult erase(std::string key,
                      Condition condition = Condition::None,
                      std::string etag = {});

    // Io or Unavailable when LMDB gives no view.
    Result<Snapshot> read();

    // No write will ever work again in this process, and maybe no read: it must be opened again.
    [[nodiscard]] bool broken() const { return broken_.load(std::memory_order_relaxed) != 0; }
    [[nodiscard]] std::string why_broken() const;
    // Durable commits so far, and readers of dead processes found at the start.
    [[nodiscard]] std::uint64_t commits() const { return commits_.load(std::memory_order_relaxed); }
    [[nodiscard]] int stale_readers() const { return stale_readers_; }

private:
    friend class Snapshot;
    struct Batch;
    // One object as a transaction sees it.
    struct Current {
        bool exists = false;
        bool in_tree = false;  // the tree has the key
        MDB_val value{};       // good until the transaction's next change
    };
    Bucket() = default;
    Result<void> open_env(const Options& options);
    int read_own(MDB_txn* txn, TableRecord& record) const;
    int find(MDB_txn* txn, const JournalEntry* entry, std::string_view key, Current& current) const;
    int begin(Batch& batch);
    [[nodiscard]] bool over_bounds() const;
    bool is_crowded();
    int merge(bool all);
    int merge_oldest(std::size_t rows);
    int merge_row(Batch& batch, std::uint64_t op);
    bool clear_dead_readers();
    void clear_dead_readers_now_and_then();
    void note_outgrown(int code);
    void apply_part(std::span<const Write> writes, std::span<WriteResult> results);
    int attempt(std::span<const Write> writes, std::span<WriteResult> results, bool& indeterminate);
    int apply_one(Batch& batch, const Write& write, WriteResult& result);
    int store_object(
        Batch& batch, const Write& write, bool in_tree, bool journalled, WriteResult& result);
    int remove_object(Batch& batch, const Write& write, bool in_tree, bool journalled);
    static std::uint64_t next_serial(Batch& batch);
    int commit(Batch& batch, bool& indeterminate);
    std::int64_t room_pages();
    [[nodiscard]] std::string sentence(int code) const;

    std::string directory_;
    MDB_env* env_ = nullptr;
    unsigned table_ = 0;
    MDB_txn* reader_ = nullptr;  // reset between snapshots
    std::uint64_t page_bytes_ = 0;
    std::uint64_t map_bytes_ = 0;      // as configured
    std::uint64_t put_bytes_max_ = 0;  // puts end here; what is above is left for deletes
    std::size_t journal_ops_max_ = 0;
    std::uint64_t journal_bytes_max_ = 0;
    Journal<KeyTable> journal_;       // of apply()'s thread
    Journal<KeyOrder> read_journal_;  // of read()'s thread
    Bytes moved_;                     // an object on its way from the journal into the tree
    bool crowded_ = false;            // this apply() does without the journal, if it can be emptied
    // Etag serials taken from the file in blocks, so that most commits do not touch the table's own record.
    std::uint64_t serial_next_ = 0;
    std::uint64_t serial_end_ = 0;
    int stale_readers_ = 0;
    std::size_t applies_ = 0;     // since dead readers were looked for
    std::atomic<int> broken_{0};  // LMDB's code
    std::atomic<std::uint64_t> commits_{0};
};

}  // namespace hf::bucket
