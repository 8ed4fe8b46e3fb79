// The opening handshake of a WebSocket (RFC 6455, section 4.2), without I/O: whether a request asks for one, whether it is
// well-formed, and what its answer has to say. Strict: what browsers and libraries send, and nothing that a proxy in between
// could read differently.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "plugins/gateway-http/http_parse.hpp"

namespace hf::gateway {

enum class Handshake : std::uint8_t {
    None,        // an ordinary request
    Good,        //
    Malformed,   // 400
    BadVersion,  // 426, and the version spoken here
};
inline constexpr std::string_view kWebSocketVersion = "13";

// `why` is a sentence for the client when it is refused.
[[nodiscard]] Handshake read_handshake(const Head& head, std::string_view& why);

// What of a good handshake its answer depends on.
struct Offer {
    std::string accept;                  // Sec-WebSocket-Accept
    std::vector<std::string> protocols;  // as offered, in order
};
[[nodiscard]] Offer read_offer(const Head& head);

// "101 Switching Protocols" with the actor's flat headers. False: nothing was written, because a header is not one, or
// the subprotocol is not one of those offered. Fields of the connection and of the handshake itself are left out.
[[nodiscard]] bool write_upgraded(Bytes& out, const Offer& offer, BytesView headers);

}  // namespace hf::gateway
