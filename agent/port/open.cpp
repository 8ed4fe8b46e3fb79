// Makes a link: fresh segments, bells, control socket; and hands the plugin its part of it.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/ring/descriptors.hpp"
#include "agent/port/link_channel.hpp"
#include "agent/port/segments.hpp"

namespace hf::port {

namespace {

// How much of a ring its reader may reserve for answers. A gateway asks much and is asked little: most of S is for answers
// to it, most of P for its requests. A runtime asks in mid-event too. Everybody else is mostly asked.
std::uint32_t answer_bytes_to_plugin(std::uint32_t ring, abi::Kind kind) {
    if (kind == abi::Kind::Gateway) return ring / 4 * 3;
    return kind == abi::Kind::Runtime ? ring / 2 : ring / 4;
}
std::uint32_t answer_bytes_from_plugin(std::uint32_t ring, abi::Kind kind) {
    return kind == abi::Kind::Gateway ? ring / 4 : ring / 4 * 3;
}
// A gateway has as many requests open as it has clients, and nearly all answers are small: its ring need not hold the
// largest answer of each.
std::uint32_t answer_credit_to_plugin(std::uint32_t ring, abi::Kind kind) {
    if (kind == abi::Kind::Gateway) return std::max(ring / 4 * 3, kGatewayCreditBytes);
    return answer_bytes_to_plugin(ring, kind);
}

struct Pipe {
    UniqueFd read;
    UniqueFd write;
};

Result<Pipe> make_bell() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        return fail_errno(errno, "cannot make a bell");
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

layout::ConstLine facts(std::uint32_t ring_bytes,
                        std::uint32_t answer_bytes,
                        std::uint32_t answer_credit,
                        std::uint64_t link_id,
                        std::uint64_t generation,
                        std::uint32_t spin_ns) {
    return {layout::kSegmentMagic,
            layout::kLayoutVersion,
            layout::kHeaderBytes,
            ring_bytes,
            link_id,
            generation,
            kRecordBytesMax,
            answer_bytes,
            spin_ns,
            answer_credit};
}

}  // namespace

Result<void> LinkChannel::attach(const std::vector<std::pair<std::string, int>>& extra) {
    HF_CHECK(plugin_.ring.valid(), "a link is attached once");
    layout::AttachMessage& message = plugin_.message;
    if (extra.size() > layout::kExtraFdsMax)
        return fail(Code::Invalid, "an instance is given at most 16 descriptors besides its link");
    std::array<int, layout::kLinkFds + layout::kExtraFdsMax> fds{
        plugin_.to_plugin.get(), plugin_.from_plugin.get(), plugin_.hear.get(), plugin_.ring.get()};
    message.extra_count = static_cast<std::uint16_t>(extra.size());
    for (std::size_t i = 0; i < extra.size(); ++i) {
        if (extra[i].first.size() >= layout::kExtraNameBytes)
            return fail(Code::Invalid,
                        "the name of a passed descriptor is too long: " + extra[i].first);
        std::memcpy(message.extra_names[i], extra[i].first.data(), extra[i].first.size());
        fds[layout::kLinkFds + i] = extra[i].second;
    }
    // SAFETY: plain data seen as bytes.
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&message);
    if (const int error = ring::send_descriptors(control_.get(),
                                                 {bytes, sizeof(message)},
                                                 {fds.data(), layout::kLinkFds + extra.size()},
                                                 MSG_DONTWAIT);
        error != 0)
        return fail_errno(error, "cannot send the attach message");
    // The mappings stay; of the descriptors only the bells' own ends and the control socket do.
    plugin_.to_plugin.reset();
    plugin_.from_plugin.reset();
    plugin_.hear.reset();
    plugin_.ring.reset();
    return {};
}

Result<std::unique_ptr<Channel>> Channel::create(SegmentPool& pool,
                                                 const ChannelSizes& sizes,
                                                 std::uint64_t generation,
                                                 abi::Kind kind) {
    if (!layout::ring_size_allowed(sizes.to_plugin_bytes) ||
        !layout::ring_size_allowed(sizes.from_plugin_bytes))
        return fail(Code::Invalid, "a ring is a power of two from 512 KiB to 64 MiB");
    HF_CHECK(generation != 0, "generation 0 names nobody");
    HF_ASSIGN(SegmentPair pair, pool.state().take(sizes));
    HF_ASSIGN(Pipe to_plugin_bell, make_bell());
    HF_ASSIGN(Pipe from_plugin_bell, make_bell());
    std::array<int, 2> sockets{-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0)
        return fail_errno(errno, "cannot make a control socket");
    UniqueFd control(sockets[0]);

    const std::uint64_t link_id = pool.state().next_link_id();
    const std::uint32_t spin_ns = pool.state().spin_ns();
    const layout::ConstLine to_facts = facts(sizes.to_plugin_bytes,
                                             answer_bytes_to_plugin(sizes.to_plugin_bytes, kind),
                                             answer_credit_to_plugin(sizes.to_plugin_bytes, kind),
                                             link_id,
                                             generation,
                                             spin_ns);
    const layout::ConstLine from_facts =
        facts(sizes.from_plugin_bytes,
              answer_bytes_from_plugin(sizes.from_plugin_bytes, kind),
              answer_bytes_from_plugin(sizes.from_plugin_bytes, kind),
              link_id,
              generation,
              spin_ns);
    std::memcpy(pair.to_plugin.data(), &to_facts, sizeof(to_facts));
    // P is read-only to us through its mapping; its seals still allow a write through the descriptor.
    if (::pwrite(pair.from_plugin_fd.get(), &from_facts, sizeof(from_facts), 0) !=
        static_cast<ssize_t>(sizeof(from_facts)))
        return fail_errno(errno, "cannot write the head of a segment");

    ring::EndpointParts parts;
    parts.own = std::move(pair.to_plugin);
    parts.peer = std::move(pair.from_plugin);
    parts.own_ring_bytes = sizes.to_plugin_bytes;
    parts.peer_ring_bytes = sizes.from_plugin_bytes;
    parts.ring = std::move(to_plugin_bell.write);
    parts.hear = std::move(from_plugin_bell.read);
    parts.spin_ns = spin_ns;
    parts.spin = pool.state().spin_allowed();

    PluginParts plugin;
    plugin.to_plugin = std::move(pair.to_plugin_fd);
    plugin.from_plugin = std::move(pair.from_plugin_fd);
    plugin.hear = std::move(to_plugin_bell.read);
    plugin.ring = std::move(from_plugin_bell.write);
    plugin.control = UniqueFd(sockets[1]);
    plugin.message.magic = layout::kAttachMagic;
    plugin.message.layout_version = layout::kLayoutVersion;
    plugin.message.to_plugin_bytes = sizes.to_plugin_bytes;
    plugin.message.from_plugin_bytes = sizes.from_plugin_bytes;
    plugin.message.link_id = link_id;
    plugin.message.generation = generation;
    return std::unique_ptr<Channel>(new LinkChannel(
        std::move(parts), std::move(plugin), std::move(control), to_facts, from_facts, kind));
}

}  // namespace hf::port
