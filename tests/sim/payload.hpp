// What clients, the simulated runtime and the checker tell each other through the core, which must not look into it.
// A unit's state is the list of the ids of its adds, in order; its value is the length of that list.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "abi/base/bytes.hpp"
#include "agent/core/attachment.hpp"
#include "agent/core/guest_events.hpp"

namespace hf::sim {

enum class Op : std::uint8_t {
    Add = 1,
    Read = 2,
    Fail = 3,
    Poison = 4,
    Tell = 5,  // an add that sends an add to `target`
    Wake = 6,  // an add that sets the alarm, whose handler adds
    Ask = 7    // an add after a call that reads `target`
};

// Ids of the adds that follow from request k: its message's and its alarm's. The n-th Stop of all adds an id of its own.
inline constexpr std::uint64_t kMessageTag = 1ULL << 40U;
inline constexpr std::uint64_t kAlarmTag = 1ULL << 41U;
inline constexpr std::uint64_t kStopTag = 1ULL << 42U;
inline constexpr std::uint64_t kTags = kMessageTag | kAlarmTag | kStopTag;

// Some requests come with a large body, some answers are one: which ones follows from their numbers.
struct LargeBody final : core::Attachment {
    explicit LargeBody(std::uint64_t of) : core::Attachment(100'000), id(of) {}
    std::uint64_t id;  // of the request it belongs to
};
inline constexpr std::uint64_t kLargeEvery = 8;
inline bool comes_large(std::uint64_t id) {
    return id % kLargeEvery == 1;
}
inline bool answers_large(std::uint64_t id) {
    return id % kLargeEvery < 2;
}

struct EventPayload {
    Op op = Op::Add;
    std::uint64_t id = 0;
    std::uint64_t pad = 0;     // bytes its change shall be longer
    std::uint64_t target = 0;  // number of a unit
    std::uint64_t after = 0;   // ms until the alarm
};
struct ReplyPayload {
    std::uint64_t value = 0;
    std::uint64_t last = 0;  // id of the add that made this value
};
struct ChangePayload {
    std::uint64_t id = 0;
    std::uint64_t value = 0;  // after it
    std::uint64_t pad = 0;
};

namespace detail {
inline void put(Bytes& out, std::uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
        out.push_back(static_cast<std::uint8_t>(value >> shift));
}
inline std::uint64_t get(BytesView bytes, std::size_t word) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < 8; ++i) out |= std::uint64_t{bytes[word * 8 + i]} << (8 * i);
    return out;
}
}  // namespace detail

inline Bytes pack(const EventPayload& event) {
    Bytes out;
    detail::put(out, static_cast<std::uint64_t>(event.op));
    detail::put(out, event.id);
    detail::put(out, event.pad);
    detail::put(out, event.target);
    detail::put(out, event.after);
    return out;
}
inline std::optional<EventPayload> unpack_event(BytesView bytes) {
    if (bytes.size() != 40) return std::nullopt;
    return EventPayload{static_cast<Op>(detail::get(bytes, 0)),
                        detail::get(bytes, 1),
                        detail::get(bytes, 2),
                        detail::get(bytes, 3),
                        detail::get(bytes, 4)};
}
// As a gateway lays out a request, with the event as its body.
inline Bytes pack_http(const EventPayload& event) {
    Bytes out;
    FlatWriter flat(out);
    flat.field("POST");
    flat.field("/");
    flat.u32(0);
    flat.field(pack(event));
    return out;
}
// The event of a request, laid out or bare; `later`: it must be one that was accepted for later, and say so.
inline std::optional<EventPayload> unpack_http(BytesView bytes, bool& later) {
    later = false;
    if (auto bare = unpack_event(bytes)) return bare;
    FlatReader flat(bytes);
    BytesView field;
    std::string_view name;
    std::uint32_t headers = 0;
    if (!flat.field(field) || !flat.field(field) || !flat.u32(headers) || headers != 1 ||
        !flat.field(name) || name != core::kMessageIdHeader || !flat.field(field) ||
        !flat.field(field) || !flat.done())
        return std::nullopt;
    later = true;
    return unpack_event(field);
}
inline Bytes pack(const ReplyPayload& reply) {
    Bytes out;
    detail::put(out, reply.value);
    detail::put(out, reply.last);
    return out;
}
inline std::optional<ReplyPayload> unpack_reply(BytesView bytes) {
    if (bytes.size() != 16) return std::nullopt;
    return ReplyPayload{detail::get(bytes, 0), detail::get(bytes, 1)};
}
inline Bytes pack(const ChangePayload& change) {
    Bytes out;
    detail::put(out, change.id);
    detail::put(out, change.value);
    out.resize(16 + change.pad, 0xAA);
    return out;
}
inline std::optional<ChangePayload> unpack_change(BytesView bytes) {
    if (bytes.size() < 16) return std::nullopt;
    return ChangePayload{detail::get(bytes, 0), detail::get(bytes, 1), bytes.size() - 16};
}
// `pad`: zeroes behind the ids, none of which is 0; so many bytes that no record holds some bases.
inline Bytes pack_base(const std::vector<std::uint64_t>& ids, std::size_t pad = 0) {
    Bytes out;
    for (const std::uint64_t id : ids) detail::put(out, id);
    out.resize(out.size() + pad / 8 * 8);
    return out;
}
inline std::optional<std::vector<std::uint64_t>> unpack_base(BytesView bytes) {
    if (bytes.size() % 8 != 0) return std::nullopt;
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < bytes.size() / 8; ++i) {
        const std::uint64_t id = detail::get(bytes, i);
        if (id == 0) break;
        ids.push_back(id);
    }
    return ids;
}

}  // namespace hf::sim
