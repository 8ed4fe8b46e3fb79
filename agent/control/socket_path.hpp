// The socket file: what may lie in its place, and who is at the other end. Private to this room.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::control {

// Which file a path named when we made it, so that only that file is removed again.
struct FileId {
    dev_t device = 0;
    ino_t inode = 0;
};

struct BoundSocket {
    UniqueFd fd;  // bound, mode 0600, not listening
    FileId id;
};

// See Server::listen.
Result<BoundSocket> bind_socket(const std::filesystem::path& path);

// Removes the file if it is still the one we made.
void remove_socket(const std::filesystem::path& path, const FileId& id);

// The kernel's word on the user at the other end: root or our own.
[[nodiscard]] bool peer_may_speak(int fd);

}  // namespace hf::control
