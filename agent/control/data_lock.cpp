#include "agent/control/data_lock.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <string>
#include <thread>

namespace hf::control {

namespace {

[[nodiscard]] std::filesystem::path lock_file(const std::filesystem::path& data) {
    return data / "holdfastd.lock";
}

// Opens without waiting and without following a link; refuses what is no plain file.
Result<UniqueFd> open_lock(const std::filesystem::path& path) {
    UniqueFd fd(::open(
        path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, S_IRUSR | S_IWUSR));
    const int error = errno;
    if (!fd.valid() && (error == ELOOP || error == EISDIR || error == ENXIO))
        return fail(Code::Refused,
                    "the lock file " + path.string() + " is not a plain file; move it away");
    if (!fd.valid()) return fail_errno(error, "cannot open the lock file " + path.string());
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode))
        return fail(Code::Refused,
                    "the lock file " + path.string() + " is not a plain file; move it away");
    return fd;
}

// 0, or the errno of the refusal; EAGAIN: somebody has it.
[[nodiscard]] int try_lock(int fd, short type) {
    struct flock whole {};
    whole.l_type = type;
    whole.l_whence = SEEK_SET;
    if (::fcntl(fd, F_OFD_SETLK, &whole) == 0) return 0;
    return errno == EACCES ? EAGAIN : errno;
}

// A process that a killed daemon was just starting holds its locks until it becomes what it was started for.
constexpr auto kHeirPatience = std::chrono::seconds(2);
constexpr auto kHeirLook = std::chrono::milliseconds(5);

// try_lock() until it answers otherwise, for as long as whoever has it may be such an heir.
template <class MayBeHeir>
[[nodiscard]] int lock_after_heirs(int fd, short type, const MayBeHeir& may_be_heir) {
    const auto end = std::chrono::steady_clock::now() + kHeirPatience;
    for (;;) {
        const int error = try_lock(fd, type);
        if (error != EAGAIN || !may_be_heir() || std::chrono::steady_clock::now() >= end)
            return error;
        std::this_thread::sleep_for(kHeirLook);
    }
}

[[nodiscard]] std::optional<pid_t> read_pid(int fd) {
    std::array<char, 24> text{};
    const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
    pid_t pid = 0;
    if (size <= 0) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data(), text.data() + size, pid);
    if (error != std::errc() || pid <= 0) return std::nullopt;
    return pid;
}

// Who has the store's lock, as far as its kind tells.
[[nodiscard]] std::string others(int fd) {
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type == F_RDLCK)
        return "nodes with a lease";
    return "another node that has it for itself (lease = \"none\")";
}

Result<UniqueFd> lock_store(const std::filesystem::path& dir, short type) {
    std::error_code failed;
    std::filesystem::create_directories(dir, failed);
    if (failed)
        return fail_errno(failed.value(), "cannot create the store's directory " + dir.string());
    HF_ASSIGN(UniqueFd fd, open_lock(dir / "holdfast.lock"));
    const int error = lock_after_heirs(fd.get(), type, [] { return true; });
    if (error == EAGAIN)
        return fail(Code::Exists,
                    "the store " + dir.string() + " is in use by " + others(fd.get()) +
                        (type == F_WRLCK ? "; this one has lease = \"none\", and then a store "
                                           "serves one node only"
                                         : "; this one has a lease, and shares it with such nodes "
                                           "only"));
    if (error != 0) return fail_errno(error, "cannot lock the store " + dir.string());
    return fd;
}

Result<void> make_directory(const std::filesystem::path& path, mode_t mode) {
    if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
        return fail_errno(errno, "cannot create the directory " + path.string());
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0)
        return fail_errno(errno, "cannot look at " + path.string());
    if (!S_ISDIR(facts.st_mode))
        return fail(Code::Refused, path.string() + " is not a directory; move it away");
    if (facts.st_uid != ::geteuid())
        return fail(Code::Refused,
                    "the directory " + path.string() + " belongs to user " +
                        std::to_string(facts.st_uid) + ", not to us (" +
                        std::to_string(::geteuid()) + ")");
    if ((facts.st_mode & ALLPERMS) != mode && ::chmod(path.c_str(), mode) != 0)
        return fail_errno(errno, "cannot set the mode of " + path.string());
    return {};
}

}  // namespace

Result<void> prepare_data(const std::filesystem::path& data) {
    std::error_code failed;
    std::filesystem::create_directories(data, failed);
    if (failed)
        return fail_errno(failed.value(), "cannot create the data directory " + data.string());
    if (!std::filesystem::is_directory(data, failed))
        return fail(Code::Refused, "the data directory " + data.string() + " is not a directory");
    HF_TRY(make_directory(data / "run", S_IRWXU));
    return make_directory(data / "log", S_IRWXU | S_IRGRP | S_IXGRP);
}

Result<DataLock> DataLock::acquire(const std::filesystem::path& data) {
    HF_ASSIGN(UniqueFd fd, open_lock(lock_file(data)));
    std::optional<pid_t> pid;
    const int error = lock_after_heirs(fd.get(), F_WRLCK, [&] {
        pid = read_pid(fd.get());
        return !pid || (::kill(*pid, 0) != 0 && errno == ESRCH);
    });
    if (error == EAGAIN) {
        return fail(Code::Exists,
                    "another holdfastd" +
                        (pid ? " (pid " + std::to_string(*pid) + ")" : std::string()) +
                        " is running on the data directory " + data.string());
    }
    if (error != 0) return fail_errno(error, "cannot lock the data directory " + data.string());
    const std::string own = std::to_string(::getpid()) + '\n';
    // The lock holds without it; on a full disk the pid is merely not told.
    if (::ftruncate(fd.get(), 0) == 0)
        static_cast<void>(!::pwrite(fd.get(), own.data(), own.size(), 0));
    return DataLock(std::move(fd));
}

std::optional<pid_t> data_lock_holder(const std::filesystem::path& data) {
    const UniqueFd fd(
        ::open(lock_file(data).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid()) return std::nullopt;
    struct flock whole {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (::fcntl(fd.get(), F_OFD_GETLK, &whole) != 0 || whole.l_type == F_UNLCK) return std::nullopt;
    return read_pid(fd.get());
}

Result<StoreLock> StoreLock::exclusive(const std::filesystem::path& dir) {
    HF_ASSIGN(UniqueFd fd, lock_store(dir, F_WRLCK));
    return StoreLock(std::move(fd));
}

Result<StoreLock> StoreLock::shared(const std::filesystem::path& dir) {
    HF_ASSIGN(UniqueFd fd, lock_store(dir, F_RDLCK));
    return StoreLock(std::move(fd));
}

}  // namespace hf::control
