// Gives directories to the instance's uid before the jail stops being root.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "abi/base/unique_fd.hpp"
#include "jail/owned.hpp"

namespace hf::jail {
namespace {

// A data directory holds a handful of files; more is not what `owned` is for.
constexpr int kOwnedEntriesMax = 4096;

struct CloseDir {
    void operator()(DIR* dir) const { ::closedir(dir); }
};

// Regular files with one name only: a second name could lie in somebody else's directory.
Result<void> own_entry(int directory, const char* name, uid_t uid) {
    const UniqueFd file(::openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (!file.valid() || ::fstat(file.get(), &info) != 0) return {};  // gone meanwhile
    if (!S_ISREG(info.st_mode) || info.st_nlink != 1 || info.st_uid == uid) return {};
    if (::fchownat(file.get(), "", uid, uid, AT_EMPTY_PATH) != 0)
        return fail_errno(errno, std::string("giving ") + name + " to uid " + std::to_string(uid));
    return {};
}

}  // namespace

Result<void> own_directory(const std::string& path, std::uint32_t uid) {
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd.valid()) return fail_errno(errno, "opening " + path);
    if (::fchown(fd.get(), uid, uid) != 0)
        return fail_errno(errno, "giving " + path + " to uid " + std::to_string(uid));
    const std::unique_ptr<DIR, CloseDir> dir(::fdopendir(fd.get()));
    if (!dir) return fail_errno(errno, "listing " + path);
    const int number = fd.release();  // closedir closes it
    int entries = 0;
    while (const dirent* entry = ::readdir(dir.get())) {
        if (++entries > kOwnedEntriesMax)
            return fail(Code::Refused,
                        path + " has more than " + std::to_string(kOwnedEntriesMax) + " entries");
        HF_TRY(own_entry(number, entry->d_name, uid));
    }
    return {};
}

}  // namespace hf::jail
