#include "agent/core/guest_events.hpp"

#include "abi/base/hash.hpp"
#include "abi/base/hex.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kOneWay = 1;
}  // namespace

std::pair<std::string, std::string> split_target(std::string_view target) {
    const std::size_t slash = target.find('/');
    if (slash == std::string_view::npos) return {std::string(target), {}};
    return {std::string(target.substr(0, slash)), std::string(target.substr(slash + 1))};
}

MessageId message_id(std::string_view source, std::uint64_t n) {
    return {fnv1a64(source), n};
}

std::string message_id_text(MessageId id) {
    return hex(id.hi) + "-" + hex(id.lo);
}

std::optional<Bytes> with_header(BytesView http, std::string_view name, std::string_view value) {
    FlatReader flat(http);
    BytesView method;
    BytesView url;
    std::uint32_t headers = 0;
    if (!flat.field(method) || !flat.field(url) || !flat.u32(headers)) return std::nullopt;
    Bytes out;
    out.reserve(http.size() + name.size() + value.size() + 8);
    FlatWriter writer(out);
    writer.field(method);
    writer.field(url);
    writer.u32(headers + 1);
    writer.field(name);
    writer.field(value);
    writer.raw(flat.rest());
    return out;
}

Bytes call_event(MessageId id,
                 bool one_way,
                 std::string_view caller,
                 std::string_view method,
                 BytesView payload) {
    Bytes out;
    FlatWriter flat(out);
    flat.u32(one_way ? kOneWay : 0);
    flat.u64(id.hi);
    flat.u64(id.lo);
    flat.field(caller);
    flat.field(method);
    flat.field(payload);
    return out;
}

Bytes alarm_event(std::uint64_t nonce, std::int64_t due_ms, std::uint32_t attempt) {
    Bytes out;
    FlatWriter flat(out);
    flat.u64(nonce);
    flat.u64(static_cast<std::uint64_t>(due_ms));
    flat.u32(attempt);
    return out;
}

Bytes socket_opened_event(std::uint64_t connection, BytesView http) {
    Bytes out;
    FlatWriter flat(out);
    flat.u64(connection);
    flat.raw(http);
    return out;
}

Bytes socket_message_event(std::uint64_t connection, bool binary, BytesView data) {
    Bytes out;
    FlatWriter flat(out);
    flat.u64(connection);
    flat.u32(binary ? 1 : 0);
    flat.field(data);
    return out;
}

Bytes socket_closed_event(std::uint64_t connection, std::uint16_t code, std::string_view reason) {
    Bytes out;
    FlatWriter flat(out);
    flat.u64(connection);
    flat.u32(code);
    flat.field(reason);
    return out;
}

Bytes stop_event(StopReason reason, std::int64_t deadline_ms) {
    Bytes out;
    FlatWriter flat(out);
    flat.u32(static_cast<std::uint32_t>(reason));
    flat.u64(static_cast<std::uint64_t>(deadline_ms));
    return out;
}

}  // namespace hf::core
