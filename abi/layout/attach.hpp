// What goes over the control socket (descriptor 3, SOCK_SEQPACKET). First, before the rings exist, the attach message from
// the supervisor, with the link's descriptors as SCM_RIGHTS in the order S, P, bell to the plugin, bell to the supervisor,
// then the extras. Later, either way, the descriptors of large bodies, one a message, each before the record that names its
// token. The socket closes when either side dies, which the other side sees as HUP.
// If the supervisor dies before it is sent, the plugin reads the end of the socket and exits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "abi/layout/segment.hpp"

namespace hf::layout {

// Descriptor of the control socket in every plugin process.
inline constexpr int kControlFd = 3;
// "HFATTACH" as a little-endian number.
inline constexpr std::uint64_t kAttachMagic = 0x4843415454414648ULL;
inline constexpr std::size_t kLinkFds = 4;
// Listeners of a gateway (8 addresses, v4 and v6); the kernel's own limit for one message is 253.
inline constexpr std::size_t kExtraFdsMax = 16;
// "listener15" and its like, with the terminator.
inline constexpr std::size_t kExtraNameBytes = 24;

struct AttachMessage {
    std::uint64_t magic;
    std::uint16_t layout_version;
    std::uint16_t extra_count;
    std::uint32_t to_plugin_bytes;    // ring of S
    std::uint32_t from_plugin_bytes;  // ring of P
    std::uint32_t reserved;           // zero
    std::uint64_t link_id;
    std::uint64_t generation;
    char extra_names[kExtraFdsMax][kExtraNameBytes];  // each ends with a zero byte
};
static_assert(std::is_trivially_copyable_v<AttachMessage> && sizeof(AttachMessage) == 40 + 16 * 24);

// "HFBODY" as a little-endian number.
inline constexpr std::uint64_t kBodyMagic = 0x0000'5944'4F42'4648ULL;

// One descriptor of a large body. Tokens of one direction ascend within a generation, and none is used twice.
struct BodyMessage {
    std::uint64_t magic;
    std::uint64_t token;  // not 0
};
static_assert(std::is_trivially_copyable_v<BodyMessage> && sizeof(BodyMessage) == 16);

}  // namespace hf::layout
