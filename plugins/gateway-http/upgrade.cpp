#include "plugins/gateway-http/upgrade.hpp"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/fields.hpp"
#include "plugins/gateway-http/http_write.hpp"

namespace hf::gateway {

namespace {

constexpr std::string_view kGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455, 1.3
constexpr std::size_t kKeyBytes = 16;
constexpr std::size_t kKeyText = 24;  // in base64
// Subprotocols of one offer that are kept; clients name one to three.
constexpr std::size_t kProtocolsMax = 32;

std::size_t count(const Head& head, std::string_view name) {
    return static_cast<std::size_t>(
        std::count_if(head.fields.begin(), head.fields.end(), [&](const Field& field) {
            return field.name == name;
        }));
}

std::string_view value_of(const Head& head, std::string_view name) {
    for (const Field& field : head.fields)
        if (field.name == name) return field.value;
    return {};
}

// Base64 of 16 bytes, in the one spelling it has.
bool is_key(std::string_view key) {
    if (key.size() != kKeyText) return false;
    std::array<std::uint8_t, kKeyText> bytes{};
    // SAFETY: bytes of any kind may be viewed as unsigned.
    if (EVP_DecodeBlock(bytes.data(),
                        reinterpret_cast<const unsigned char*>(key.data()),
                        static_cast<int>(key.size())) < 0)
        return false;
    std::array<unsigned char, kKeyText + 1> again{};
    (void)EVP_EncodeBlock(again.data(), bytes.data(), kKeyBytes);
    return std::equal(key.begin(), key.end(), again.begin());
}

std::string accept_of(std::string_view key) {
    const std::string text = std::string(key) + std::string(kGuid);
    std::array<unsigned char, SHA_DIGEST_LENGTH> digest{};
    // SAFETY: as above.
    (void)SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
    std::array<unsigned char, (SHA_DIGEST_LENGTH + 2) / 3 * 4 + 1> base64{};
    const int size = EVP_EncodeBlock(base64.data(), digest.data(), digest.size());
    return {reinterpret_cast<const char*>(base64.data()), static_cast<std::size_t>(size)};
}

}  // namespace

Handshake read_handshake(const Head& head, std::string_view& why) {
    // HTTP/1.0 has no upgrade: the field is to be ignored.
    if (!head.http11 || !has_word(head, "upgrade", "websocket")) return Handshake::None;
    if (head.method != Method::Get) {
        why = "a WebSocket is asked for with GET";
        return Handshake::Malformed;
    }
    if (!has_word(head, "connection", "upgrade")) {
        why = "a WebSocket's Connection field names Upgrade";
        return Handshake::Malformed;
    }
    if (head.has_body || head.expect_continue) {
        why = "a WebSocket's request has no body";
        return Handshake::Malformed;
    }
    if (count(head, "sec-websocket-version") != 1 ||
        value_of(head, "sec-websocket-version") != kWebSocketVersion) {
        why = "the only WebSocket version spoken here is 13";
        return Handshake::BadVersion;
    }
    if (count(head, "sec-websocket-key") != 1 || !is_key(value_of(head, "sec-websocket-key"))) {
        why = "a WebSocket's request has one Sec-WebSocket-Key, 16 bytes in base64";
        return Handshake::Malformed;
    }
    for (const std::string_view protocol : words_of(head, "sec-websocket-protocol"))
        if (!is_field_name(protocol)) {
            why = "a subprotocol's name is not one";
            return Handshake::Malformed;
        }
    return Handshake::Good;
}

Offer read_offer(const Head& head) {
    Offer offer;
    offer.accept = accept_of(value_of(head, "sec-websocket-key"));
    for (const std::string_view protocol : words_of(head, "sec-websocket-protocol"))
        if (offer.protocols.size() < kProtocolsMax) offer.protocols.emplace_back(protocol);
    return offer;
}

bool write_upgraded(Bytes& out, const Offer& offer, BytesView headers) {
    Bytes chosen;
    FlatWriter writer(chosen);
    bool has_protocol = false;
    FlatReader reader(headers);
    while (!reader.done()) {
        std::string_view name;
        std::string_view value;
        if (!reader.field(name) || !reader.field(value)) return false;
        if (equals_lower(name, "sec-websocket-protocol")) {
            const auto& known = offer.protocols;
            if (has_protocol || std::find(known.begin(), known.end(), value) == known.end())
                return false;
            has_protocol = true;
        } else if (is_of_handshake(name)) {
            continue;
        }
        writer.field(name);
        writer.field(value);
    }
    return write_switching(out, offer.accept, chosen);
}

}  // namespace hf::gateway
