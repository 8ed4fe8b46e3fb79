#include "agent/control/state_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "abi/base/sync.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/base/bounded_json.hpp"

namespace hf::control {

namespace {

constexpr mode_t kMode = S_IRUSR | S_IWUSR;

[[nodiscard]] Error not_ours(const std::filesystem::path& path) {
    return fail(Code::Refused,
                "the state file " + path.string() + " is not a plain file; move it away");
}

// Reads at most one byte more than a document may have.
Result<std::string> read_bounded(int fd, const std::filesystem::path& path) {
    std::string out;
    constexpr std::size_t kStep = 64 * 1024;
    while (out.size() <= kStateBytesMax) {
        const std::size_t before = out.size();
        out.resize(before + kStep);
        const ssize_t got = ::read(fd, out.data() + before, kStep);
        if (got < 0 && errno != EINTR)
            return fail_errno(errno, "cannot read the state file " + path.string());
        out.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
        if (got == 0) break;
    }
    return out;
}

Result<std::filesystem::path> set_aside(const std::filesystem::path& path) {
    std::filesystem::path target;
    for (unsigned n = 1; n <= kBadCopiesMax; ++n) {
        target = path;
        target += ".bad-" + std::to_string(n);
        struct stat facts {};
        if (::lstat(target.c_str(), &facts) != 0) break;
    }
    if (::rename(path.c_str(), target.c_str()) != 0)
        return fail_errno(errno, "cannot set the state file " + path.string() + " aside");
    HF_TRY(sync_directory(path.parent_path()));
    return target;
}

Result<void> write_all(int fd, std::string_view text, const std::filesystem::path& path) {
    while (!text.empty()) {
        const ssize_t put = ::write(fd, text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return fail_errno(errno, "cannot write the state file " + path.string());
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return {};
}

}  // namespace

Result<StateFile::Found> StateFile::load(nlohmann::json& value,
                                         std::string& note,
                                         const Judge& judge) const {
    UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!fd.valid()) {
        if (errno == ENOENT) return Found::Missing;
        if (errno == ELOOP || errno == ENXIO) return not_ours(path_);
        return fail_errno(errno, "cannot open the state file " + path_.string());
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return not_ours(path_);
    HF_ASSIGN(const std::string text, read_bounded(fd.get(), path_));

    std::string wrong;
    std::optional<nlohmann::json> parsed;
    if (text.size() > kStateBytesMax)
        wrong = "it is larger than any document of ours";
    else if (text.empty())
        wrong = "it is empty";
    else if (parsed = base::parse_bounded(text); !parsed)
        wrong = "it is not a JSON document";
    else if (judge) {
        if (const auto judged = judge(*parsed); !judged) wrong = judged.error().message;
    }
    if (wrong.empty()) {
        value = std::move(*parsed);
        return Found::Good;
    }
    HF_ASSIGN(const std::filesystem::path kept, set_aside(path_));
    note = "the state file " + path_.string() + " does not read back (" + wrong +
           "); it is kept as " + kept.filename().string() + " and a fresh one is started";
    return Found::SetAside;
}

Result<void> StateFile::save(const nlohmann::json& value) const {
    const std::string text =
        value.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
    if (text.size() > kStateBytesMax)
        return fail(Code::Busy,
                    "the state file " + path_.string() + " would grow beyond its bound");
    std::filesystem::path temporary = path_;
    temporary += ".tmp";
    // A leftover of a crash, or anything else of that name: never written through.
    if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) return not_ours(temporary);
    UniqueFd fd(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kMode));
    if (!fd.valid()) return fail_errno(errno, "cannot create " + temporary.string());
    auto written = write_all(fd.get(), text, path_);
    if (written && ::fsync(fd.get()) != 0)
        written = fail_errno(errno, "cannot sync the state file " + path_.string());
    if (written && ::rename(temporary.c_str(), path_.c_str()) != 0)
        written = fail_errno(errno, "cannot replace the state file " + path_.string());
    if (!written) {
        static_cast<void>(::unlink(temporary.c_str()));
        return written;
    }
    return sync_directory(path_.parent_path());
}

}  // namespace hf::control
