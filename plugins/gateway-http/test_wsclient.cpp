#include "plugins/gateway-http/test_wsclient.hpp"

#include "abi/base/check.hpp"

namespace hf::gateway {

std::string frame(unsigned opcode, std::string_view payload, const FrameShape& shape) {
    constexpr char kMask[] = {0x5A, static_cast<char>(0xA5), 0x13, 0x7F};
    const std::uint64_t size = shape.says_bytes.value_or(payload.size());
    std::string out;
    out += static_cast<char>((shape.fin ? 0x80U : 0U) | shape.rsv << 4U | opcode);
    const unsigned masked = shape.masked ? 0x80U : 0U;
    int length_bytes = shape.length_bytes;
    if (length_bytes == 0) length_bytes = size < 126 ? 0 : size < 65536 ? 2 : 8;
    if (length_bytes == 0)
        out += static_cast<char>(masked | size);
    else
        out += static_cast<char>(masked | (length_bytes == 2 ? 126U : 127U));
    for (int at = length_bytes - 1; at >= 0; --at) out += static_cast<char>(size >> (8 * at));
    if (shape.masked) out.append(kMask, sizeof(kMask));
    for (std::size_t i = 0; i < payload.size(); ++i)
        out += static_cast<char>(payload[i] ^ (shape.masked ? kMask[i % 4] : 0));
    return out;
}

std::string closing(unsigned code, std::string_view reason) {
    std::string out;
    out += static_cast<char>(code >> 8U);
    out += static_cast<char>(code & 0xFFU);
    return out + std::string(reason);
}

std::string upgrade_fields() {
    return "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
}

unsigned ServerFrame::code() const {
    if (opcode != kClose || payload.size() < 2) return 0;
    return static_cast<unsigned>(static_cast<unsigned char>(payload[0])) << 8U |
           static_cast<unsigned char>(payload[1]);
}

WsClient::WsClient(std::uint16_t port, std::string_view path, int receive_bytes)
    : TestClient(port, receive_bytes) {
    if (!path.empty()) handshake = ask(get(path, upgrade_fields()));
}

ServerFrame WsClient::next_raw() {
    ServerFrame out;
    std::string head;
    const auto need = [&](std::size_t bytes, std::string& into) {
        into.clear();
        const long got = take(bytes, into);
        if (got <= 0) out.status = static_cast<int>(got);
        return got > 0;
    };
    if (!need(2, head)) return out;
    out.opcode = static_cast<unsigned char>(head[0]) & 0x0FU;
    HF_CHECK((static_cast<unsigned char>(head[0]) & 0xF0U) == 0x80U,
             "a whole message in one frame");
    HF_CHECK((static_cast<unsigned char>(head[1]) & 0x80U) == 0, "a server does not mask");
    std::uint64_t size = static_cast<unsigned char>(head[1]);
    if (size >= 126) {
        std::string length;
        if (!need(size == 126 ? 2 : 8, length)) return out;
        size = 0;
        for (const char c : length) size = size << 8U | static_cast<unsigned char>(c);
    }
    if (size != 0) (void)need(size, out.payload);
    return out;
}

ServerFrame WsClient::next() {
    for (;;) {
        ServerFrame got = next_raw();
        if (got.status != 1 || got.opcode != kPing) return got;
        send(frame(kPong, got.payload));
    }
}

bool WsClient::is_closed_with(unsigned code) {
    const ServerFrame got = next();
    return got.status == 1 && got.opcode == kClose && got.code() == code;
}

}  // namespace hf::gateway
