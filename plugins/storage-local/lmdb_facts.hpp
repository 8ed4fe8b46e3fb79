// Small questions to LMDB that several files of this room ask.
#pragma once

#include <lmdb.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace hf::bucket {

// The key of the table's own record (stored_object.hpp).
[[nodiscard]] inline MDB_val record_key() {
    static char name = 'm';
    return {1, &name};
}

// The map or the disk has no room for what a transaction writes; nothing of it was stored.
[[nodiscard]] inline bool is_no_room(int code) {
    return code == MDB_MAP_FULL || code == MDB_TXN_FULL || code == ENOSPC || code == EDQUOT ||
           code == EFBIG;
}

// A disk that fills up takes a part of the pages, which LMDB answers as EIO.
[[nodiscard]] inline bool may_be_full(int code) {
    return is_no_room(code) || code == EIO;
}

// Pages on the free list, as seen by a read transaction.
inline int count_free_pages(MDB_txn* txn, std::uint64_t& pages) {
    constexpr MDB_dbi kFreeList = 0;
    pages = 0;
    MDB_cursor* cursor = nullptr;
    if (const int code = mdb_cursor_open(txn, kFreeList, &cursor); code != 0) return code;
    MDB_val key{};
    MDB_val value{};
    int code = 0;
    while ((code = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        std::size_t count = 0;  // a list begins with its length
        if (value.mv_size < sizeof count) continue;
        std::memcpy(&count, value.mv_data, sizeof count);
        pages += count;
    }
    mdb_cursor_close(cursor);
    return code == MDB_NOTFOUND ? 0 : code;
}

// Pages up to the last one ever used.
[[nodiscard]] inline std::uint64_t pages_touched(MDB_env* env) {
    MDB_envinfo info{};
    mdb_env_info(env, &info);
    return info.me_last_pgno + 1;
}

}  // namespace hf::bucket
