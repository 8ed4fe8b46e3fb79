#include "plugins/gateway-http/http_write.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string>

#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/http_parse.hpp"

namespace hf::gateway {

namespace {

constexpr std::string_view kServerLine = "Server: holdfast\r\n";
constexpr std::string_view kJson = "application/json";
constexpr std::uint16_t kAccepted = 202;
constexpr std::string_view kPlain = "text/plain; charset=utf-8";

void put(Bytes& out, std::string_view text) {
    const BytesView bytes = as_bytes(text);
    out.insert(out.end(), bytes.begin(), bytes.end());
}

void put_number(Bytes& out, std::uint64_t value) {
    std::array<char, 20> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    put(out, {digits.data(), static_cast<std::size_t>(end - digits.data())});
}

// "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", written anew only when the second changed; no timer.
std::string_view date_line() {
    static std::array<char, 40> line{};
    static std::size_t size = 0;
    static std::time_t written = -1;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec != written) {
        written = now.tv_sec;
        std::tm parts{};
        ::gmtime_r(&written, &parts);
        // The process never leaves the C locale, so the names are English.
        size =
            std::strftime(line.data(), line.size(), "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &parts);
    }
    return {line.data(), size};
}

void put_status(Bytes& out, std::uint16_t status) {
    put(out, "HTTP/1.1 ");
    put_number(out, status);
    put(out, " ");
    put(out, status_phrase(status));
    put(out, "\r\n");
}

void put_connection(Bytes& out, const Framing& framing, bool upgrade = false) {
    put(out, framing.lines);
    if (upgrade)
        put(out, framing.keep_alive ? "Connection: upgrade\r\n" : "Connection: close, upgrade\r\n");
    else if (!framing.keep_alive)
        put(out, "Connection: close\r\n");
    else if (!framing.http11)
        put(out, "Connection: keep-alive\r\n");
}

void put_length(Bytes& out, std::uint64_t bytes) {
    put(out, "Content-Length: ");
    put_number(out, bytes);
    put(out, "\r\n");
}

void put_body(Bytes& out, const Framing& framing, std::uint16_t status, BytesView body) {
    const bool without = status == 204 || status == 304;
    // To HEAD an actor may answer without the body it would have had: then its own word is all there is.
    if (!without && !(framing.head_only && body.empty())) put_length(out, body.size());
    put(out, "\r\n");
    if (!without && !framing.head_only) out.insert(out.end(), body.begin(), body.end());
}

bool is_length(std::string_view value) {
    constexpr std::size_t kDigitsMax = 18;  // fits 64 bits with a sign
    if (value.empty() || value.size() > kDigitsMax) return false;
    return std::all_of(value.begin(), value.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// `name` in lower case, in `buffer`. Names longer than any we look for keep their first letters, and match nothing.
std::string_view lowered(std::string_view name, std::array<char, 32>& buffer) {
    const std::size_t size = std::min(name.size(), buffer.size());
    for (std::size_t i = 0; i < size; ++i)
        buffer[i] = name[i] >= 'A' && name[i] <= 'Z' ? static_cast<char>(name[i] | 0x20) : name[i];
    return {buffer.data(), size};
}

// Which fields an actor's headers brought.
struct FieldsSeen {
    bool server = false;
    bool date = false;
    bool applied = false;  // Preference-Applied
};

// False: a field is not one; what was written up to it is still there.
bool put_fields(Bytes& out, BytesView headers, bool take_length, FieldsSeen& seen) {
    FlatReader reader(headers);
    while (!reader.done()) {
        std::string_view name;
        std::string_view value;
        if (!reader.field(name) || !reader.field(value) || !is_field_name(name) ||
            !is_field_value(value))
            return false;
        std::array<char, 32> buffer{};
        const std::string_view lower = lowered(name, buffer);
        const bool is_own_length = lower == "content-length";
        if (is_hop_by_hop(lower) || is_reserved(lower)) continue;
        if (is_own_length && !(take_length && is_length(value))) continue;
        take_length = take_length && !is_own_length;
        seen.server = seen.server || lower == "server";
        seen.date = seen.date || lower == "date";
        seen.applied = seen.applied || lower == "preference-applied";
        put(out, name);
        put(out, ": ");
        put(out, value);
        put(out, "\r\n");
    }
    return true;
}

}  // namespace

bool is_field_name(std::string_view name) {
    if (name.empty()) return false;
    for (const char c : name) {
        const bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && std::string_view("!#$%&'*+-.^_`|~").find(c) == std::string_view::npos)
            return false;
    }
    return true;
}

bool is_field_value(std::string_view value) {
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if ((byte < 0x20 && byte != '\t') || byte == 0x7F) return false;
    }
    return true;
}

void write_local(Bytes& out, const Framing& framing, const LocalAnswer& answer) {
    std::string body;
    if (answer.status != 204) {
        const nlohmann::ordered_json json{{"error", std::string(answer.text)},
                                          {"reason", std::string(answer.reason)}};
        body = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        body += '\n';
    }
    put_status(out, answer.status);
    put(out, kServerLine);
    put(out, date_line());
    if (answer.retry_after_s != 0) {
        put(out, "Retry-After: ");
        put_number(out, answer.retry_after_s);
        put(out, "\r\n");
    }
    if (!answer.allow.empty()) {
        put(out, "Allow: ");
        put(out, answer.allow);
        put(out, "\r\n");
    }
    if (!answer.version.empty()) {
        put(out, "Upgrade: websocket\r\nSec-WebSocket-Version: ");
        put(out, answer.version);
        put(out, "\r\n");
    }
    if (!body.empty()) {
        put(out, "Content-Type: ");
        put(out, kJson);
        put(out, "\r\n");
    }
    put_connection(out, framing, !answer.version.empty());
    put_body(out, framing, answer.status, as_bytes(body));
}

void write_page(Bytes& out,
                const Framing& framing,
                std::uint16_t status,
                std::string_view content_type,
                BytesView body) {
    put_status(out, status);
    put(out, kServerLine);
    put(out, date_line());
    put(out, "Content-Type: ");
    put(out, content_type.empty() || !is_field_value(content_type) ? kPlain : content_type);
    put(out, "\r\nCache-Control: no-store\r\n");
    put_connection(out, framing);
    put_body(out, framing, status, body);
}

namespace {

// Everything up to the length of the body. `counts`: the actor's Content-Length does, once.
bool put_head(
    Bytes& out, const Framing& framing, std::uint16_t status, BytesView headers, bool counts) {
    if (status < 200 || status > 599) return false;
    const std::size_t before = out.size();
    put_status(out, status);
    FieldsSeen seen;
    if (!put_fields(out, headers, counts, seen)) {
        out.resize(before);
        return false;
    }
    if (!seen.server) put(out, kServerLine);
    if (!seen.date) put(out, date_line());
    if (status == kAccepted && framing.durable && !seen.applied)
        put(out, "Preference-Applied: respond-async\r\n");
    put_connection(out, framing);
    return true;
}

bool is_without_body(std::uint16_t status) {
    return status == 204 || status == 304;
}

}  // namespace

bool write_actor(
    Bytes& out, const Framing& framing, std::uint16_t status, BytesView headers, BytesView body) {
    // The actor's Content-Length counts only where it announces a body that nobody sends.
    const bool counts = framing.head_only && body.empty() && !is_without_body(status);
    if (!put_head(out, framing, status, headers, counts)) return false;
    put_body(out, framing, status, body);
    return true;
}

bool write_actor_head(Bytes& out,
                      const Framing& framing,
                      std::uint16_t status,
                      BytesView headers,
                      std::uint64_t bytes) {
    if (!put_head(out, framing, status, headers, false)) return false;
    if (!is_without_body(status)) put_length(out, bytes);
    put(out, "\r\n");
    return true;
}

bool has_body(const Framing& framing, std::uint16_t status) {
    return !framing.head_only && !is_without_body(status);
}

bool write_switching(Bytes& out, std::string_view accept, BytesView headers) {
    const std::size_t before = out.size();
    put(out, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n");
    put(out, "Sec-WebSocket-Accept: ");
    put(out, accept);
    put(out, "\r\n");
    FieldsSeen seen;
    if (!put_fields(out, headers, false, seen)) {
        out.resize(before);
        return false;
    }
    if (!seen.server) put(out, kServerLine);
    if (!seen.date) put(out, date_line());
    put(out, "\r\n");
    return true;
}

void write_continue(Bytes& out) {
    put(out, "HTTP/1.1 100 Continue\r\n\r\n");
}

}  // namespace hf::gateway
