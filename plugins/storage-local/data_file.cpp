#include "plugins/storage-local/data_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>

#include "abi/base/clock.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::bucket {
namespace {

// Opening takes milliseconds; whoever needs longer is stopped or lost, and a start should say so soon.
constexpr std::int64_t kOpenWaitMs = 5000;
constexpr std::int64_t kOpenRetryNs = 10'000'000;

// LMDB 0.9 on 64-bit machines, data version 1. A page begins with its number (8 bytes), padding (2), flags (2), and
// the bounds of its free space (2 + 2).
constexpr std::size_t kPageHeaderBytes = 16;
constexpr std::uint16_t kFlagBranch = 0x01;
constexpr std::uint16_t kFlagLeaf = 0x02;
constexpr std::uint16_t kFlagMeta = 0x08;
constexpr std::uint32_t kMagic = 0xBEEFC0DE;
constexpr std::uint32_t kDataVersion = 1;
constexpr std::uint64_t kNoPage = ~std::uint64_t{0};
constexpr std::uint64_t kPageBytesMin = 512;
constexpr std::uint64_t kPageBytesMax = 65536;
constexpr std::uint64_t kMetaPages = 2;

struct TreeRecord {
    std::uint32_t pad;  // of the free list: the page size
    std::uint16_t flags;
    std::uint16_t depth;
    std::uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
};
struct MetaRecord {
    std::uint32_t magic, version;
    std::uint64_t address, map_bytes;
    TreeRecord free_list, objects;
    std::uint64_t last_page, transaction;
};
static_assert(sizeof(TreeRecord) == 48 && sizeof(MetaRecord) == 136,
              "the layout of LMDB 0.9 on 64-bit machines");

struct PageHeader {
    std::uint64_t number;
    std::uint16_t pad, flags, lower, upper;
};
static_assert(sizeof(PageHeader) == kPageHeaderBytes);

Error damaged(const std::string& path, const std::string& what) {
    return fail(Code::Corrupt,
                path + " is damaged: " + what +
                    ". Nothing was changed. Put a copy back in its place, or move it away to start "
                    "with an empty store");
}

bool read_at(int fd, void* into, std::size_t bytes, std::uint64_t offset) {
    return ::pread(fd, into, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

// nullopt: fine. Else what is wrong with the meta page.
std::optional<std::string> read_meta(int fd,
                                     unsigned index,
                                     std::uint64_t page_bytes,
                                     MetaRecord& meta) {
    std::array<unsigned char, kPageHeaderBytes + sizeof(MetaRecord)> raw{};
    const std::string name = "meta page " + std::to_string(index);
    if (!read_at(fd, raw.data(), raw.size(), index * page_bytes)) return name + " is missing";
    PageHeader header{};
    std::memcpy(&header, raw.data(), sizeof header);
    std::memcpy(&meta, raw.data() + kPageHeaderBytes, sizeof meta);
    if (meta.magic != kMagic || (header.flags & kFlagMeta) == 0)
        return name + " is not one of LMDB's";
    if (meta.version != kDataVersion)
        return name + " has version " + std::to_string(meta.version) + " instead of " +
               std::to_string(kDataVersion);
    const std::uint64_t size = meta.free_list.pad;
    if (size < kPageBytesMin || size > kPageBytesMax || (size & (size - 1)) != 0)
        return name + " names a page size of " + std::to_string(size);
    if (index != 0 && size != page_bytes)
        return std::string("the meta pages name different page sizes");
    if (meta.last_page < kMetaPages - 1 || meta.last_page >= kNoPage / size)
        return name + " names an impossible last page";
    return std::nullopt;
}

std::optional<std::string> check_root(int fd,
                                      const char* name,
                                      const TreeRecord& tree,
                                      const MetaRecord& meta) {
    if (tree.root == kNoPage) return std::nullopt;
    if (tree.root < kMetaPages || tree.root > meta.last_page)
        return std::string("the root of ") + name + " is out of range";
    PageHeader header{};
    const std::uint64_t page_bytes = meta.free_list.pad;
    if (!read_at(fd, &header, sizeof header, tree.root * page_bytes))
        return std::string("the root of ") + name + " is missing";
    const bool branch = (header.flags & kFlagBranch) != 0;
    const bool leaf = (header.flags & kFlagLeaf) != 0;
    if (header.number != tree.root || branch == leaf || header.lower < kPageHeaderBytes ||
        header.lower > header.upper || header.upper > page_bytes)
        return std::string("the root of ") + name + " is not a page of it";
    return std::nullopt;
}

struct Look {
    DataFile file;
    std::uint64_t transaction = 0;
    std::optional<std::string> wrong;
};

Result<Look> look(int fd, const std::string& path) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return fail_errno(errno, "reading the length of " + path);
    Look found;
    found.file.exists = true;
    found.file.file_bytes = static_cast<std::uint64_t>(info.st_size);
    if (!S_ISREG(info.st_mode)) {
        found.wrong = "it is not a plain file";
        return found;
    }
    if (info.st_size == 0) {
        found.wrong = "it is empty";
        return found;
    }
    std::array<MetaRecord, kMetaPages> metas{};
    if ((found.wrong = read_meta(fd, 0, 0, metas[0]))) return found;
    found.file.page_bytes = metas[0].free_list.pad;
    if ((found.wrong = read_meta(fd, 1, found.file.page_bytes, metas[1]))) return found;
    const MetaRecord& newest = metas[0].transaction > metas[1].transaction ? metas[0] : metas[1];
    found.transaction = newest.transaction;
    found.file.used_bytes = (newest.last_page + 1) * found.file.page_bytes;
    if (found.file.used_bytes > found.file.file_bytes) {
        found.wrong = "it was cut short: " + std::to_string(found.file.file_bytes) +
                      " bytes long, but " + std::to_string(found.file.used_bytes) +
                      " bytes are in use";
        return found;
    }
    if ((found.wrong = check_root(fd, "the objects", newest.objects, newest))) return found;
    found.wrong = check_root(fd, "the free list", newest.free_list, newest);
    return found;
}

}  // namespace

std::string data_path(const std::string& directory) {
    return directory + "/data.mdb";
}

Result<DataFile> inspect_data_file(const std::string& directory) {
    const std::string path = data_path(directory);
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
        if (errno == ENOENT) return DataFile{};
        return fail_errno(errno, "opening " + path);
    }
    // Another node may commit while we look; only what stays wrong while the transaction stands still is damage.
    constexpr int kLooksMax = 5;
    for (int i = 0;; ++i) {
        HF_ASSIGN(const Look first, look(fd.get(), path));
        if (!first.wrong) return first.file;
        HF_ASSIGN(const Look second, look(fd.get(), path));
        if (!second.wrong) return second.file;
        if (first.transaction == second.transaction || i == kLooksMax)
            return damaged(path, *second.wrong);
    }
}

Result<void> extend_data_file(const std::string& path, std::uint64_t bytes) {
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (!fd.valid()) return fail_errno(errno, "opening " + path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return fail_errno(errno, "reading the length of " + path);
    if (static_cast<std::uint64_t>(info.st_size) >= bytes) return {};
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
        return fail_errno(
            errno,
            "making the sparse file " + path + " " + std::to_string(bytes) +
                " bytes long (map_bytes; choose a smaller one if the file system has a limit)");
    if (::fsync(fd.get()) != 0) return fail_errno(errno, "syncing " + path);
    return {};
}

Result<void> publish_data_file(const std::string& from, const std::string& directory) {
    const std::string path = data_path(directory);
    if (::rename(from.c_str(), path.c_str()) != 0)
        return fail_errno(errno, "renaming " + from + " to " + path);
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || ::fsync(fd.get()) != 0)
        return fail_errno(errno, "syncing the directory " + directory);
    return {};
}

Result<OpenLock> OpenLock::take(const std::string& directory) {
    const std::string path = directory + "/open.lock";
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid()) return fail_errno(errno, "opening " + path + " in the store's directory");
    const std::int64_t give_up = monotonic_ns() + kOpenWaitMs * 1'000'000;
    for (;;) {
        struct flock lock {};
        lock.l_type = F_WRLCK;
        lock.l_whence = SEEK_SET;
        if (::fcntl(fd.get(), F_OFD_SETLK, &lock) == 0) return OpenLock(fd.release());
        if (errno != EAGAIN && errno != EACCES) return fail_errno(errno, "locking " + path);
        if (monotonic_ns() > give_up)
            return fail(Code::Busy,
                        path + " is held by another process that opens the store, for more than " +
                            std::to_string(kOpenWaitMs) + " ms; it may be stopped");
        const timespec pause{0, kOpenRetryNs};
        ::nanosleep(&pause, nullptr);
    }
}

OpenLock::~OpenLock() {
    if (fd_ >= 0) ::close(fd_);
}

}  // namespace hf::bucket
