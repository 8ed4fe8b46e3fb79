// Makes the names in a directory survive a power cut: a file that was made or renamed there, and synced itself, is found again.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf {

[[nodiscard]] inline Result<void> sync_directory(const std::filesystem::path& directory) {
    const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid() || ::fsync(fd.get()) != 0)
        return fail_errno(errno, "cannot sync the directory " + directory.string());
    return {};
}

}  // namespace hf
