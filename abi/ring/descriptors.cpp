#include "abi/ring/descriptors.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "abi/base/check.hpp"

namespace hf::ring {

namespace {
using Control = std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))>;
}  // namespace

int send_descriptors(int socket, BytesView bytes, std::span<const int> fds, int flags) {
    HF_CHECK(!fds.empty() && fds.size() <= kDescriptorsMax, "as many descriptors as a message has");
    alignas(cmsghdr) Control control{};
    // SAFETY: sendmsg only reads from it; iovec has no const.
    iovec part{
        const_cast<std::uint8_t*>(bytes.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
    while (::sendmsg(socket, &message, flags | MSG_NOSIGNAL) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

Arrived receive_descriptors(int socket,
                            std::span<std::uint8_t> bytes,
                            std::size_t fds_max,
                            int flags) {
    HF_CHECK(fds_max <= kDescriptorsMax, "as many descriptors as there is room for");
    Arrived out;
    alignas(cmsghdr) Control control{};
    iovec part{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds_max * sizeof(int));
    do {
        out.got = ::recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
    } while (out.got < 0 && errno == EINTR);
    if (out.got < 0) {
        out.error = errno;
        return out;
    }
    for (cmsghdr* rights = CMSG_FIRSTHDR(&message); rights != nullptr;
         rights = CMSG_NXTHDR(&message, rights)) {
        if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (rights->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(rights) + i * sizeof(int), sizeof(int));
            out.fds.emplace_back(fd);
        }
    }
    out.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    return out;
}

}  // namespace hf::ring
