// storage-local: LMDB in one directory, a writer thread, no network.
#include "jail/profiles.hpp"

namespace hf::jail {

using namespace layout;  // NOLINT(google-build-using-namespace): rule vocabulary

namespace {

constexpr Rule kStorage[] = {
    {"pwrite64", kAlways, "LMDB writes pages and meta pages"},
    {"pwritev", kAlways, "LMDB writes runs of pages"},
    {"preadv", kAlways, "reading runs of pages"},
    {"fdatasync", kAlways, "a commit is stored when this returned"},
    {"fsync", kAlways, "the directory after the file was made"},
    {"msync", kAlways, "LMDB syncs its map"},
    {"ftruncate", kAlways, "LMDB sizes the lock file"},
    {"flock", kAlways, "one owner of the directory"},
    {"fstatfs", kAlways, "is the file system one that can lock and map"},
    {"statfs", kAlways, "room left on the file system"},
    {"creat", kAlways, "as openat with O_CREAT"},
    {"mkdir", kAlways, "a damaged environment is set aside in a directory"},
    {"mkdirat", kAlways, "as mkdir"},
    {"rename", kAlways, "as mkdir"},
    {"renameat", kAlways, "as mkdir"},
    {"renameat2", kAlways, "as mkdir"},
    {"unlink", kAlways, "left-over temporary files"},
    {"unlinkat", kAlways, "left-over temporary files"},
    {"getdents64", kAlways, "looking for left-over files"},
    {"fchmod", kAlways, "files only the owner reads"},
    {"umask", kAlways, "files only the owner reads"},
};

}  // namespace

const Rules kAllowStorageLocal{kStorage};

}  // namespace hf::jail
