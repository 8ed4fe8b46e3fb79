// A WebSocket client of tests: builds any frame, well-formed or not, and reads the server's one by one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plugins/gateway-http/test_client.hpp"

namespace hf::gateway {

inline constexpr unsigned kText = 1;
inline constexpr unsigned kBinary = 2;
inline constexpr unsigned kClose = 8;
inline constexpr unsigned kPing = 9;
inline constexpr unsigned kPong = 10;

struct FrameShape {
    bool fin = true;
    bool masked = true;
    unsigned rsv = 0;
    std::optional<std::uint64_t> says_bytes = std::nullopt;  // a length that is not the payload's
    int length_bytes = 0;  // 2, 8: a spelling that is longer than needed
};
std::string frame(unsigned opcode, std::string_view payload, const FrameShape& shape = {});
// A close's payload.
std::string closing(unsigned code, std::string_view reason = {});

// The fields of a good handshake, without the subprotocol.
std::string upgrade_fields();

struct ServerFrame {
    int status = 1;  // 0: the connection ended, -1: reset, -2: nothing came within 10 s
    unsigned opcode = 0;
    std::string payload;
    [[nodiscard]] unsigned code() const;  // of a close; 0: none
};

class WsClient : public TestClient {
public:
    // Connects; asks for the WebSocket when there is a path.
    explicit WsClient(std::uint16_t port, std::string_view path = {}, int receive_bytes = 0);
    // The answer to the handshake.
    Answer handshake;

    bool text(std::string_view payload) { return send(frame(kText, payload)); }
    // The next frame; pings are answered and passed over.
    ServerFrame next();
    // As it is, pings too.
    ServerFrame next_raw();
    // The next frame is a close with this code.
    [[nodiscard]] bool is_closed_with(unsigned code);
};

}  // namespace hf::gateway
