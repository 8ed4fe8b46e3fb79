#include "abi/sdk/attach.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "abi/layout/attach.hpp"

namespace hf::sdk {

namespace {

// Takes ownership of every descriptor that came along, also of those of a message that is refused.
std::vector<UniqueFd> take_fds(const msghdr& header) {
    std::vector<UniqueFd> out;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr;
         part = CMSG_NXTHDR(const_cast<msghdr*>(&header), part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
            out.emplace_back(fd);
        }
    }
    return out;
}

Result<void> read_facts(layout::ConstLine& facts,
                        const ring::Mapping& mapping,
                        std::uint32_t ring_bytes,
                        const layout::AttachMessage& message) {
    std::memcpy(&facts, mapping.data(), sizeof(facts));
    if (facts.magic != layout::kSegmentMagic || facts.layout_version != layout::kLayoutVersion ||
        facts.header_bytes != layout::kHeaderBytes || facts.ring_bytes != ring_bytes ||
        facts.link_id != message.link_id || facts.generation != message.generation ||
        facts.record_max != kRecordBytesMax || facts.answer_bytes > ring_bytes ||
        facts.answer_credit < facts.answer_bytes)
        return fail(Code::Corrupt,
                    "a segment of the link does not say what the attach message says");
    return {};
}

}  // namespace

Result<Attachment> receive_attachment(int control_fd) {
    layout::AttachMessage message{};
    constexpr std::size_t kFdsMax = layout::kLinkFds + layout::kExtraFdsMax;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kFdsMax * sizeof(int))> control{};
    iovec bytes{&message, sizeof(message)};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t got = -1;
    do {
        got = ::recvmsg(control_fd, &header, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fail_errno(errno, "cannot read the attach message from descriptor 3");
    std::vector<UniqueFd> fds = take_fds(header);
    if (got == 0) return fail(Code::PeerGone, "the supervisor is gone before the attach message");
    if (static_cast<std::size_t>(got) != sizeof(message) ||
        (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
        message.magic != layout::kAttachMagic || message.layout_version != layout::kLayoutVersion)
        return fail(Code::Corrupt,
                    "the attach message is not of this release: plugin and supervisor "
                    "must be built together");
    if (message.extra_count > layout::kExtraFdsMax ||
        fds.size() != layout::kLinkFds + message.extra_count ||
        !layout::ring_size_allowed(message.to_plugin_bytes) ||
        !layout::ring_size_allowed(message.from_plugin_bytes))
        return fail(Code::Corrupt, "the attach message has impossible sizes");

    Attachment out;
    HF_ASSIGN(
        out.parts.peer,
        ring::Mapping::map(
            fds[0].get(), layout::segment_bytes(message.to_plugin_bytes), ring::Access::ReadOnly));
    HF_ASSIGN(out.parts.own,
              ring::Mapping::map(fds[1].get(),
                                 layout::segment_bytes(message.from_plugin_bytes),
                                 ring::Access::ReadWrite));
    HF_TRY(read_facts(out.facts_in, out.parts.peer, message.to_plugin_bytes, message));
    HF_TRY(read_facts(out.facts_out, out.parts.own, message.from_plugin_bytes, message));
    out.parts.peer_ring_bytes = message.to_plugin_bytes;
    out.parts.own_ring_bytes = message.from_plugin_bytes;
    out.parts.hear = std::move(fds[2]);
    out.parts.ring = std::move(fds[3]);
    out.parts.spin_ns = out.facts_in.spin_ns;
    out.parts.spin = ring::spin_allowed();
    out.parts.edge_triggered = true;
    for (std::size_t i = 0; i < message.extra_count; ++i) {
        const auto& name = message.extra_names[i];
        out.extras.emplace_back(std::string(name, ::strnlen(name, sizeof(name))),
                                std::move(fds[layout::kLinkFds + i]));
    }
    return out;
}

}  // namespace hf::sdk
