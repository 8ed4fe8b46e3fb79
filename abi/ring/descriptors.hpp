// Messages with descriptors over a unix socket (SCM_RIGHTS): one message, one call, whole or not at all.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::ring {

// What one message may bring: the kernel's own limit is 253.
inline constexpr std::size_t kDescriptorsMax = 32;

// Sends `bytes` and `fds`, at most kDescriptorsMax, which stay the caller's; MSG_NOSIGNAL is added to `flags`. 0, or an errno.
[[nodiscard]] int send_descriptors(int socket,
                                   BytesView bytes,
                                   std::span<const int> fds,
                                   int flags);

struct Arrived {
    ssize_t got = -1;           // bytes, 0 at the end of the socket, -1: `error` says why
    int error = 0;              // an errno
    std::vector<UniqueFd> fds;  // all that came, also with a message that is refused; close-on-exec
    bool cut = false;  // bytes or descriptors were left out: too many, or none free in this process
};
// Takes one message. Whatever comes beyond `bytes` or `fds_max` (at most kDescriptorsMax) is left out.
[[nodiscard]] Arrived receive_descriptors(int socket,
                                          std::span<std::uint8_t> bytes,
                                          std::size_t fds_max,
                                          int flags);

}  // namespace hf::ring
