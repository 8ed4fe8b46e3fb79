// Opening and creating a bucket, and the sentences for what can go wrong with it.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/data_file.hpp"
#include "plugins/storage-local/lmdb_facts.hpp"
#include "plugins/storage-local/stored_object.hpp"

namespace hf::bucket {
namespace {

// Kept free of puts so that deletes, which copy the pages on their path, go through in a full store: one part in 64,
// within 1 MiB (a path of 4 pages for each of 64 deletes) and 16 MiB.
constexpr std::uint64_t kReservePart = 64;
constexpr std::uint64_t kReserveBytesMin = 1ULL << 20U;
constexpr std::uint64_t kReserveBytesMax = 16ULL << 20U;
std::uint64_t reserve_bytes(std::uint64_t map_bytes) {
    return std::clamp(map_bytes / kReservePart, kReserveBytesMin, kReserveBytesMax);
}

// LMDB calls this when its own rules do not hold, which a sound file cannot cause; then it aborts the process.
void on_lmdb_assert(MDB_env* env, const char* text) {
    const char* directory = "?";
    mdb_env_get_path(env, &directory);
    std::fprintf(stderr, "the store in %s is damaged: LMDB found %s\n", directory, text);
}

// A bucket without objects under a name that nobody opens.
Result<void> create_file(const std::string& path) {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT)
        return fail_errno(errno, "removing the unfinished " + path);
    MDB_env* env = nullptr;
    MDB_txn* txn = nullptr;
    MDB_dbi table = 0;
    TableRecord record;
    MDB_val key = record_key();
    MDB_val value{sizeof record, &record};
    int code = mdb_env_create(&env);
    if (code == 0) code = mdb_env_set_mapsize(env, kMapBytesMin);
    if (code == 0) code = mdb_env_open(env, path.c_str(), MDB_NOSUBDIR | MDB_NOLOCK, 0600);
    if (code == 0) code = mdb_txn_begin(env, nullptr, 0, &txn);
    if (code == 0) code = mdb_dbi_open(txn, nullptr, 0, &table);
    if (code == 0) code = mdb_put(txn, table, &key, &value, 0);
    if (code == 0) {
        code = mdb_txn_commit(txn);
    } else if (txn != nullptr) {
        mdb_txn_abort(txn);
    }
    if (env != nullptr) mdb_env_close(env);
    if (code != 0) return fail(Code::Io, "creating " + path + ": " + mdb_strerror(code));
    return {};
}

}  // namespace

Bucket::~Bucket() {
    if (reader_ != nullptr) mdb_txn_abort(reader_);
    if (env_ != nullptr) mdb_env_close(env_);
}

std::string Bucket::sentence(int code) const {
    const std::string path = data_path(directory_);
    switch (code) {
        case MDB_MAP_FULL:
            return "the store " + path + " is full (map_bytes = " + std::to_string(map_bytes_) +
                   "): delete objects or raise map_bytes";
        case ENOSPC:
        case EDQUOT:
            return "the disk under " + path + " is full: make room; the store goes on by itself";
        case EFBIG:
            return path + " may not grow (file size limit): raise the limit";
        case EIO:
            return "the disk under " + path +
                   " failed, or is full and took only a part (EIO): see the kernel's log";
        case MDB_PANIC:
            return "the meta page of " + path +
                   " could not be written; the store must be opened again";
        case MDB_MAP_RESIZED:
            return path + " was made larger than is mapped here (map_bytes = " +
                   std::to_string(map_bytes_) +
                   ") by another node; the store must be opened again. Give all nodes the same "
                   "map_bytes";
        case MDB_READERS_FULL:
            return "too many processes read " + path;
        case MDB_CORRUPTED:
        case MDB_PAGE_NOTFOUND:
            return path + " is damaged (" + mdb_strerror(code) + "): put a copy back in its place";
        case MDB_INVALID:
        case MDB_VERSION_MISMATCH:
            return path + " or the lock.mdb beside it is not what this LMDB reads (" +
                   mdb_strerror(code) +
                   "): stop other users of the store, then remove lock.mdb alone";
        default:
            return "the store " + path + ": " + mdb_strerror(code);
    }
}

std::string Bucket::why_broken() const {
    return sentence(broken_.load(std::memory_order_relaxed));
}

Result<void> Bucket::open_env(const Options& options) {
    HF_ASSIGN(const OpenLock lock, OpenLock::take(directory_));
    HF_ASSIGN(DataFile file, inspect_data_file(directory_));
    if (!file.exists) {
        const std::string fresh = data_path(directory_) + ".new";
        HF_TRY(create_file(fresh));
        HF_TRY(publish_data_file(fresh, directory_));
        HF_ASSIGN(file, inspect_data_file(directory_));
    }
    page_bytes_ = file.page_bytes;
    const auto system_page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t align = std::max(page_bytes_, system_page);
    map_bytes_ = options.map_bytes / align * align;
    put_bytes_max_ = map_bytes_ - reserve_bytes(map_bytes_);
    journal_ops_max_ = options.journal_ops;
    journal_bytes_max_ = std::min(kJournalBytesMax, map_bytes_ / kJournalMapPart);
    // More in use than configured: it opens, for reading and deleting. And all of the file is mapped, because a neighbour
    // with larger map_bytes may fill it.
    const std::uint64_t wanted =
        std::max({map_bytes_, file.file_bytes, file.used_bytes + reserve_bytes(map_bytes_)});
    const std::uint64_t mapped = (wanted + align - 1) / align * align;
    HF_TRY(extend_data_file(data_path(directory_), mapped));

    const auto check = [this](int code, const char* what) -> Result<void> {
        if (code == 0) return {};
        return fail(Code::Io, std::string(what) + ": " + sentence(code));
    };
    HF_TRY(check(mdb_env_create(&env_), "preparing LMDB"));
    HF_TRY(check(mdb_env_set_mapsize(env_, mapped), "setting map_bytes"));
    HF_TRY(check(mdb_env_set_assert(env_, on_lmdb_assert), "preparing LMDB"));
    HF_TRY(check(mdb_env_open(env_, directory_.c_str(), MDB_NOTLS, 0600), "opening the store"));
    HF_TRY(
        check(mdb_reader_check(env_, &stale_readers_), "checking for readers of dead processes"));
    HF_TRY(check(mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_), "reading the store"));
    HF_TRY(check(mdb_dbi_open(reader_, nullptr, 0, &table_), "reading the store"));
    MDB_val key = record_key();
    MDB_val value{};
    TableRecord record;
    const int code = mdb_get(reader_, table_, &key, &value);
    const bool ours = code == 0 && read_table_record(value, record);
    // The journal is read here, so that damage in it is found now and not in the middle of work.
    const int followed = ours ? journal_.catch_up(reader_, table_, record.merged_to) : 0;
    mdb_txn_reset(reader_);
    if (code == MDB_NOTFOUND || (code == 0 && !ours))
        return fail(Code::Corrupt,
                    data_path(directory_) + " is an LMDB file, but no bucket of format " +
                        std::to_string(kPlainTable) + " or " + std::to_string(kJournalledTable) +
                        "; nothing was changed. Name another directory in `path`");
    HF_TRY(check(code, "reading the store"));
    return check(followed, "reading the journal");
}

Result<std::unique_ptr<Bucket>> Bucket::open(const Options& options) {
    if (options.map_bytes < kMapBytesMin || options.map_bytes > kMapBytesMax)
        return fail(Code::Invalid,
                    "map_bytes is " + std::to_string(kMapBytesMin) + ".." +
                        std::to_string(kMapBytesMax) + ", not " +
                        std::to_string(options.map_bytes));
    std::unique_ptr<Bucket> bucket(new Bucket);
    bucket->directory_ = options.directory;
    HF_TRY(bucket->open_env(options));
    return bucket;
}

}  // namespace hf::bucket
