#include "jail/report.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace hf::jail {

bool send_packet(int socket, BytesView bytes, int fd) {
    // SAFETY: sendmsg only reads what iov points to.
    iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    ssize_t sent = 0;
    do {
        sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(bytes.size());
}

bool send_report(int socket, const layout::JailReport& report, int fd) {
    return send_packet(socket, layout::encode_jail_report(report), fd);
}

Result<Packet> receive_packet(int socket, std::size_t most) {
    Packet packet;
    packet.bytes.resize(most);
    iovec part{packet.bytes.data(), packet.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = 0;
    do {
        got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fail_errno(errno, "reading from the plugin's start");
    packet.bytes.resize(static_cast<std::size_t>(got));
    packet.end = got == 0;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head))
        if (head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
            std::memcpy(&packet.fd, CMSG_DATA(head), sizeof packet.fd);
    return packet;
}

}  // namespace hf::jail
