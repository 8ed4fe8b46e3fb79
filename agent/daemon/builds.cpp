#include "agent/daemon/builds.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi/base/hash.hpp"
#include "abi/base/hex.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::daemon {

namespace {

namespace fs = std::filesystem;

// The largest binary that is kept, on the loop: half a second. Ours have 2 to 4 MB.
constexpr std::uint64_t kBinaryBytesMax = 256ULL << 20U;
constexpr std::size_t kBlockBytes = 1U << 20U;
// Anyone may run it, as any shipped program; who runs it decides what it may do.
constexpr mode_t kProgramMode = S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH;

class Fingerprint {
public:
    void add(const char* bytes, std::size_t count) {
        total_ += count;
        for (std::size_t i = 0; i < count; i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes + i, std::min<std::size_t>(8, count - i));
            first_ = (first_ ^ word) * 0x100000001B3ULL;
            second_ = mix64(second_ ^ word);
        }
    }
    [[nodiscard]] std::uint64_t total() const { return total_; }
    [[nodiscard]] std::string text() const { return hex(first_) + hex(second_ ^ total_); }

private:
    std::uint64_t first_ = 0xCBF29CE484222325ULL;
    std::uint64_t second_ = 0x9E3779B97F4A7C15ULL;
    std::uint64_t total_ = 0;
};

Result<void> write_all(int fd, const char* bytes, std::size_t count, const fs::path& path) {
    while (count != 0) {
        const ssize_t wrote = ::write(fd, bytes, count);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0)
            return fail_errno(errno, "cannot keep a copy of the build as " + path.string());
        bytes += wrote;
        count -= static_cast<std::size_t>(wrote);
    }
    return {};
}

// The fingerprint of what was read; with `copy`, exactly that is written there as well.
Result<std::string> read_through(const fs::path& binary, int copy, const fs::path& copy_path) {
    // The operator may name anything: what is no plain file could block the loop for ever, or have no end.
    const UniqueFd in(::open(binary.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!in.valid()) return fail_errno(errno, "cannot read the binary " + binary.string());
    struct stat facts {};
    if (::fstat(in.get(), &facts) != 0)
        return fail_errno(errno, "cannot read the binary " + binary.string());
    if (!S_ISREG(facts.st_mode))
        return fail(Code::Invalid, "the binary " + binary.string() + " is no plain file");
    if ((facts.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0)
        return fail(Code::Invalid, "the binary " + binary.string() + " is not executable");
    Fingerprint fingerprint;
    std::vector<char> block(kBlockBytes);
    for (;;) {
        // Whole blocks, so that the fingerprint does not depend on how the reads were cut.
        std::size_t filled = 0;
        while (filled < block.size()) {
            const ssize_t got = ::read(in.get(), block.data() + filled, block.size() - filled);
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) return fail_errno(errno, "cannot read the binary " + binary.string());
            if (got == 0) break;
            filled += static_cast<std::size_t>(got);
        }
        fingerprint.add(block.data(), filled);
        if (fingerprint.total() > kBinaryBytesMax)
            return fail(Code::Invalid, "the binary " + binary.string() + " is larger than 256 MiB");
        if (copy >= 0) HF_TRY(write_all(copy, block.data(), filled, copy_path));
        if (filled < block.size()) return fingerprint.text();
    }
}

}  // namespace

Result<std::string> Builds::keep(const fs::path& binary) const {
    const fs::path name = binary.filename();
    HF_ASSIGN(const std::string hash, read_through(binary, -1, {}));
    if (const auto kept = read_through(dir_ / hash / name, -1, {}); kept && *kept == hash)
        return hash;
    std::error_code error;
    fs::create_directories(dir_, error);
    const fs::path fresh = dir_ / "incoming";
    fs::remove_all(fresh, error);
    UniqueFd out(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kProgramMode));
    if (!out.valid())
        return fail_errno(errno, "cannot keep a copy of the build as " + fresh.string());
    // The file may change between the two readings: the copy is the build.
    auto copied = read_through(binary, out.get(), fresh);
    // The umask had its say at the opening.
    if (copied && ::fchmod(out.get(), kProgramMode) != 0)
        copied = fail_errno(errno, "cannot keep a copy of the build as " + fresh.string());
    out.reset();  // a program that is open for writing cannot be run
    if (copied) {
        const fs::path directory = dir_ / *copied;
        fs::create_directories(directory, error);
        if (!error) fs::rename(fresh, directory / name, error);
        if (error)
            copied = fail_errno(error.value(),
                                "cannot keep a copy of the build in " + directory.string());
    }
    if (!copied) fs::remove(fresh, error);
    return copied;
}

fs::path Builds::file(const core::Build& build) const {
    return dir_ / build.binary_hash / fs::path(build.binary).filename();
}

void Builds::keep_only(const std::set<fs::path>& wanted) const {
    std::error_code error;
    std::vector<fs::path> unwanted;
    for (const auto& directory : fs::directory_iterator(dir_, error)) {
        bool any = false;
        for (const auto& file : fs::directory_iterator(directory.path(), error)) {
            if (wanted.contains(file.path()))
                any = true;
            else
                unwanted.push_back(file.path());
        }
        if (!any) unwanted.push_back(directory.path());
    }
    for (const fs::path& path : unwanted) fs::remove_all(path, error);
}

}  // namespace hf::daemon
