// One daemon per data directory, one node per exclusive store: locks that the kernel frees when their holder dies, however
// it dies. Open-file-description locks, because a POSIX lock is lost when any descriptor of the file is closed. The files
// stay behind and mean nothing without the lock. The descriptors are close-on-exec: a plugin never inherits one. Between a
// fork and its exec a child has them all the same, and keeps the locks of a daemon that dies then: who wants one whose
// daemon is dead, or may be, waits for up to 2 s.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::control {

// Creates the data directory and what the daemon keeps in it: `run` (0700, sockets) and `log`. Refuses, by name, a path
// that is not a directory.
Result<void> prepare_data(const std::filesystem::path& data);

// Held for the life of a daemon: exclusive lock on <data>/holdfastd.lock, which carries the holder's pid for people.
class DataLock {
public:
    // Exists: another holdfastd has it; the message names the directory and its pid.
    static Result<DataLock> acquire(const std::filesystem::path& data);

private:
    explicit DataLock(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
};

// The pid of the daemon that holds the directory's lock now; nothing when nobody does. For messages, never for kill.
[[nodiscard]] std::optional<pid_t> data_lock_holder(const std::filesystem::path& data);

// Lock on <dir>/holdfast.lock of a local store: exclusive for a single node, shared for nodes with leases.
class StoreLock {
public:
    // Creates the directory when missing. Exists: another node has it in a way that does not go together with ours.
    static Result<StoreLock> exclusive(const std::filesystem::path& dir);
    static Result<StoreLock> shared(const std::filesystem::path& dir);

private:
    explicit StoreLock(UniqueFd fd) : fd_(std::move(fd)) {}
    UniqueFd fd_;
};

}  // namespace hf::control
