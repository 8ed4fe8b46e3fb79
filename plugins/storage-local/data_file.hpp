// The bucket's file before LMDB maps it. LMDB trusts what it maps: a file cut short ends the process with SIGBUS far from
// the cause, and an empty one is silently taken for new. So this looks first, by plain reads, and refuses with a
// sentence that names the file. It never changes, moves or deletes a file that has content.
//
// What is checked: both meta pages (magic, version, page size, sane roots), the file's length against the last page they
// name, the two root pages' own headers. What is not: pages below the roots; damage there shows when they are read.
//
// A new file is made whole under another name and then renamed, so that a death in between leaves no half file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "abi/base/result.hpp"

namespace hf::bucket {

struct DataFile {
    bool exists = false;
    std::uint64_t file_bytes = 0;
    std::uint64_t page_bytes = 0;
    std::uint64_t used_bytes = 0;  // up to the last page ever used
};

[[nodiscard]] std::string data_path(const std::string& directory);

// Corrupt: the file is there and is not a whole LMDB file. Io: it could not be read.
Result<DataFile> inspect_data_file(const std::string& directory);

// Makes the file sparse and `bytes` long; never shorter. Its length is then a promise that inspect_data_file can check.
Result<void> extend_data_file(const std::string& path, std::uint64_t bytes);

// Makes the rename of a new file durable.
Result<void> publish_data_file(const std::string& from, const std::string& directory);

// Held while a process opens the bucket, so that several nodes of one machine do not create or extend it at once. The
// kernel lets go of it when the holder dies. `Busy` when somebody else keeps it for longer than kOpenWaitMs.
class OpenLock {
public:
    static Result<OpenLock> take(const std::string& directory);
    OpenLock(OpenLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    OpenLock& operator=(OpenLock&&) = delete;
    OpenLock(const OpenLock&) = delete;
    OpenLock& operator=(const OpenLock&) = delete;
    ~OpenLock();

private:
    explicit OpenLock(int fd) : fd_(fd) {}
    int fd_ = -1;
};

}  // namespace hf::bucket
