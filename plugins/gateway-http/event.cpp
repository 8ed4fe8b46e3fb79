#include "plugins/gateway-http/event.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "plugins/gateway-http/fields.hpp"

namespace hf::gateway {

namespace {

constexpr std::array<std::string_view, 9> kHopByHop{"connection",
                                                    "keep-alive",
                                                    "proxy-connection",
                                                    "proxy-authenticate",
                                                    "proxy-authorization",
                                                    "te",
                                                    "trailer",
                                                    "transfer-encoding",
                                                    "upgrade"};
constexpr std::array<std::string_view, 2> kReservedPrefixes{"x-wasmkeep-", "x-holdfast-"};
// The subprotocol is no such field: the actor chooses it.
constexpr std::array<std::string_view, 4> kOfHandshake{"sec-websocket-accept",
                                                       "sec-websocket-extensions",
                                                       "sec-websocket-key",
                                                       "sec-websocket-version"};

// Writes into room that was made before: one pass over a header costs no growth checks.
class Cursor {
public:
    explicit Cursor(std::uint8_t* at) : at_(at) {}
    void u32(std::size_t value) {
        for (unsigned shift = 0; shift < 32; shift += 8)
            *at_++ = static_cast<std::uint8_t>(value >> shift);
    }
    void bytes(std::string_view text) {
        if (!text.empty()) std::memcpy(at_, text.data(), text.size());
        at_ += text.size();
    }
    void field(std::string_view text) {
        u32(text.size());
        bytes(text);
    }

private:
    std::uint8_t* at_;
};

}  // namespace

bool is_hop_by_hop(std::string_view name) {
    return std::find(kHopByHop.begin(), kHopByHop.end(), name) != kHopByHop.end();
}

bool is_reserved(std::string_view name) {
    return std::any_of(kReservedPrefixes.begin(),
                       kReservedPrefixes.end(),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_of_handshake(std::string_view name) {
    return std::any_of(kOfHandshake.begin(), kOfHandshake.end(), [&](std::string_view known) {
        return equals_lower(name, known);
    });
}

void begin_event(Bytes& event, const Head& head, const TargetParts& parts, const Route& route) {
    const bool has_connection =
        std::any_of(head.fields.begin(), head.fields.end(), [](const Field& field) {
            return field.name == "connection";
        });
    const auto passes = [&](const Field& field) {
        // The expectation is met here, before the actor hears of the request.
        if (is_hop_by_hop(field.name) || is_reserved(field.name) || field.name == "expect" ||
            is_of_handshake(field.name))
            return false;
        // Host and Content-Length say what the request is; naming them in Connection does not take them away.
        return !has_connection || field.name == "host" || field.name == "content-length" ||
               !has_word(head, "connection", field.name);
    };
    // An absolute target says the host; the field beside it counts for nothing then.
    const auto value = [&](const Field& field) {
        return !parts.authority.empty() && field.name == "host" ? parts.authority : field.value;
    };
    std::size_t bytes =
        4 + head.method_text.size() + 4 + route.path.size() + route.query.size() + 4 + 4;
    std::size_t count = 0;
    for (const Field& field : head.fields) {
        if (!passes(field)) continue;
        ++count;
        bytes += 4 + field.name.size() + 4 + value(field).size();
    }
    event.resize(bytes);
    Cursor cursor(event.data());
    cursor.field(head.method_text);
    cursor.u32(route.path.size() + route.query.size());
    cursor.bytes(route.path);
    cursor.bytes(route.query);
    cursor.u32(count);
    for (const Field& field : head.fields) {
        if (!passes(field)) continue;
        cursor.field(field.name);
        cursor.field(value(field));
    }
    cursor.u32(0);
}

void end_event(Bytes& event, std::size_t head_bytes) {
    Cursor(event.data() + head_bytes - 4).u32(event.size() - head_bytes);
}

}  // namespace hf::gateway
