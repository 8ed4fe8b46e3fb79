#include "abi/sdk/attach.hpp"

#include <cstring>

#include "abi/layout/attach.hpp"
#include "abi/ring/descriptors.hpp"

namespace hf::sdk {

namespace {

constexpr std::size_t kFdsMax = layout::kLinkFds + layout::kExtraFdsMax;
static_assert(kFdsMax <= ring::kDescriptorsMax);

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
    // SAFETY: plain data, judged after it came.
    auto* const bytes = reinterpret_cast<std::uint8_t*>(&message);
    auto [got, error, fds, cut] =
        ring::receive_descriptors(control_fd, {bytes, sizeof(message)}, kFdsMax, 0);
    if (got < 0) return fail_errno(error, "cannot read the attach message from descriptor 3");
    if (got == 0) return fail(Code::PeerGone, "the supervisor is gone before the attach message");
    if (static_cast<std::size_t>(got) != sizeof(message) || cut ||
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
