// Guest ABI v1, host side: state, answers, clock, randomness, log.
#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "abi/base/check.hpp"
#include "abi/ring/bodies.hpp"
#include "plugins/runtime-wasm/host/entry.hpp"

namespace hf::wasm {

namespace {

std::uint32_t kv_get(std::uint32_t kp, std::uint32_t kl, std::uint32_t out, std::uint32_t cap) {
    const Call call = enter("kv_get");
    const std::uint8_t* key = checked(call.worker, kp, kl);
    std::uint8_t* to = checked(call.worker, out, cap);
    if (kl == 0) return leave(call, kBadArgument);
    const auto value = call.event.state->get(text_at(key, kl));
    if (!value) return leave(call, kAbsent);
    if (const std::size_t size = std::min<std::size_t>(value->size(), cap); size > 0)
        std::memcpy(to, value->data(), size);
    return leave(call, static_cast<std::uint32_t>(value->size()));
}

std::uint32_t kv_put(std::uint32_t kp, std::uint32_t kl, std::uint32_t vp, std::uint32_t vl) {
    const Call call = enter("kv_put");
    const std::uint8_t* key = checked(call.worker, kp, kl);
    const std::uint8_t* value = checked(call.worker, vp, vl);
    if (kl == 0) return leave(call, kBadArgument);
    if (kl > kKeyBytesMax) return refuse(call, {"key_bytes", kKeyBytesMax, kl});
    if (const LimitHit hit =
            call.event.state->put(text_at(key, kl), {value, vl}, call.event.changes_room()))
        return refuse(call, hit);
    return leave(call, 0);
}

std::uint32_t kv_delete(std::uint32_t kp, std::uint32_t kl) {
    const Call call = enter("kv_delete");
    const std::uint8_t* key = checked(call.worker, kp, kl);
    if (kl == 0) return leave(call, kBadArgument);
    // A delete takes room among the changes too; at most what a key of this size costs.
    const std::size_t after =
        call.event.state->change_bytes() + kChangeSetHeadBytes + kl + kPairOverheadBytes;
    if (const ChangesRoom room = call.event.changes_room(); after > room.bytes)
        return refuse(call, {room.limit, room.bytes, after});
    return leave(call, call.event.state->remove(text_at(key, kl)) ? 0 : kAbsent);
}

// Which slot a cursor has, and how often that slot was given out before: a closed cursor's number is not the next one's.
constexpr std::uint32_t kSlotBits = 4;
static_assert(kCursorsMax == 1u << kSlotBits);
constexpr std::uint32_t kGenerationMax = 0x07ff'ffff >> kSlotBits;
constexpr std::uint32_t kDescending = 1;
constexpr std::uint32_t kKeysOnly = 2;

std::uint32_t kv_list(std::uint32_t pp,
                      std::uint32_t pl,
                      std::uint32_t sp,
                      std::uint32_t sl,
                      std::uint32_t limit,
                      std::uint32_t flags) {
    const Call call = enter("kv_list");
    const std::uint8_t* prefix = checked(call.worker, pp, pl);
    const std::uint8_t* start = checked(call.worker, sp, sl);
    if ((flags & ~(kDescending | kKeysOnly)) != 0) return leave(call, kBadArgument);
    if (const std::uint32_t longest = std::max(pl, sl); longest > kKeyBytesMax)
        return refuse(call, {"key_bytes", kKeyBytesMax, longest});
    auto& cursors = call.event.cursors;
    const auto free =
        std::find_if(cursors.begin(), cursors.end(), [](const Cursor& each) { return !each.open; });
    if (free == cursors.end()) return refuse(call, {"cursors_max", kCursorsMax, kCursorsMax + 1});
    free->open = true;
    free->keys_only = (flags & kKeysOnly) != 0;
    free->bounded = limit != 0;
    free->left = limit;
    free->generation = free->generation >= kGenerationMax ? 0 : free->generation + 1;
    free->walk.begin(text_at(prefix, pl), text_at(start, sl), (flags & kDescending) != 0);
    ++call.event.cursors_open;
    const auto slot = static_cast<std::uint32_t>(free - cursors.begin());
    return leave(call, free->generation << kSlotBits | slot);
}

Cursor* cursor_of(Event& event, std::uint32_t number) {
    Cursor& cursor = event.cursors[number % kCursorsMax];
    return cursor.open && cursor.generation == number >> kSlotBits ? &cursor : nullptr;
}

std::uint32_t kv_next(std::uint32_t number, std::uint32_t out, std::uint32_t cap) {
    const Call call = enter("kv_next");
    std::uint8_t* to = checked(call.worker, out, cap);
    Cursor* cursor = cursor_of(call.event, number);
    if (cursor == nullptr) return leave(call, kBadArgument);
    if (cursor->bounded && cursor->left == 0) return leave(call, kAbsent);
    const auto pair = call.event.state->next(cursor->walk);
    if (!pair) return leave(call, kAbsent);
    const BytesView value = cursor->keys_only ? BytesView() : pair->value;
    const std::size_t size = 8 + pair->key.size() + value.size();
    if (size <= cap) {
        const auto key_size = static_cast<std::uint32_t>(pair->key.size());
        const auto value_size = static_cast<std::uint32_t>(value.size());
        std::memcpy(to, &key_size, 4);
        std::memcpy(to + 4, &value_size, 4);
        std::memcpy(to + 8, pair->key.data(), key_size);
        if (value_size > 0) std::memcpy(to + 8 + key_size, value.data(), value_size);
        cursor->walk.step();
        if (cursor->bounded) --cursor->left;
    }
    return leave(call, static_cast<std::uint32_t>(size));
}

std::uint32_t kv_close(std::uint32_t number) {
    const Call call = enter("kv_close");
    Cursor* cursor = cursor_of(call.event, number);
    if (cursor == nullptr) return leave(call, kBadArgument);
    cursor->open = false;
    --call.event.cursors_open;
    return leave(call, 0);
}

bool well_formed_headers(BytesView bytes) {
    FlatReader reader(bytes);
    std::string_view name;
    std::string_view value;
    while (!reader.done())
        if (!reader.field(name) || !reader.field(value) || name.empty()) return false;
    return true;
}

// A body beyond a record goes into a file of its own. False: there is no memory for it.
bool keep_large(Event& event, const std::uint8_t* body, std::uint32_t size) {
    auto file = ring::make_body("holdfast-reply");
    if (!file || !ring::append_body(file->get(), body, size) || !ring::seal_body(file->get()))
        return false;
    event.reply_large = std::move(file).value();
    event.reply_large_bytes = size;
    return true;
}

std::uint32_t http_reply(
    std::uint32_t status, std::uint32_t hp, std::uint32_t hl, std::uint32_t bp, std::uint32_t bl) {
    const Call call = enter("http_reply");
    const std::uint8_t* headers = checked(call.worker, hp, hl);
    const std::uint8_t* body = checked(call.worker, bp, bl);
    const bool opening = call.event.kind == Kind::WsOpen;
    if (call.event.replied || (call.event.kind != Kind::Http && !opening))
        return leave(call, kNotNow);
    // An informational status ends no exchange; the one that turns it into a WebSocket is allowed where one is asked for.
    const bool known = (status >= 200 && status <= 599) || (opening && status == 101);
    if (!known || !well_formed_headers({headers, hl})) return leave(call, kBadArgument);
    if (hl > kHeaderBytesMax) return refuse(call, {"reply_headers_bytes", kHeaderBytesMax, hl});
    const bool large = bl > kPayloadBytesMax;
    const std::uint64_t most = opening ? kPayloadBytesMax : call.event.body_max;
    if (bl > std::max<std::uint64_t>(most, kPayloadBytesMax))
        return refuse(call,
                      {most > kPayloadBytesMax ? "body_max" : "reply_bytes",
                       std::max<std::uint64_t>(most, kPayloadBytesMax),
                       bl});
    if (const LimitHit hit = call.event.output_limit(std::size_t{hl} + (large ? 0 : bl)))
        return refuse(call, hit);
    // Nothing that has a destructor lives here when leave() stops the guest.
    if (large && !keep_large(call.event, body, bl)) return leave(call, kBusy);
    call.event.replied = true;
    call.event.reply_status = static_cast<std::uint16_t>(status);
    call.event.reply_headers.assign(headers, headers + hl);
    if (!large) call.event.reply_body.assign(body, body + bl);
    return leave(call, 0);
}

std::uint32_t reply(std::uint32_t p, std::uint32_t l) {
    const Call call = enter("reply");
    const std::uint8_t* body = checked(call.worker, p, l);
    if (call.event.replied || call.event.kind != Kind::Call) return leave(call, kNotNow);
    if (l > kPayloadBytesMax) return refuse(call, {"reply_bytes", kPayloadBytesMax, l});
    if (const LimitHit hit = call.event.output_limit(l)) return refuse(call, hit);
    call.event.replied = true;
    call.event.reply_body.assign(body, body + l);
    return leave(call, 0);
}

// Allowed in the image phase too: it changes nothing.
void log_line(std::uint32_t level, std::uint32_t p, std::uint32_t l) {
    Worker& worker = Worker::enter_host();
    Event& event = event_of(worker);
    const std::uint8_t* text = checked(worker, p, l);
    event.add_log(level, text_at(text, std::min(l, kLogLineBytesMax)));
    worker.leave_host();
}

std::uint64_t now_ms() {
    const Call call = enter("now_ms");
    const auto now = static_cast<std::uint64_t>(call.event.now_ms);
    call.worker.leave_host();
    return now;
}

void random_bytes(std::uint32_t p, std::uint32_t l) {
    const Call call = enter("random");
    fill_random(call, checked(call.worker, p, l), l);
    call.worker.leave_host();
}

void abort_guest(std::uint32_t p, std::uint32_t l) {
    Worker& worker = Worker::enter_host();
    Event& event = event_of(worker);
    const std::uint8_t* text = checked(worker, p, l);
    event.abort.assign("abort: ");
    event.abort.append(text_at(text, std::min(l, kAbortBytesMax)));
    worker.stop_guest(Stop::Abort, 0);
}

}  // namespace

void refuse_in_image(Worker& worker, Event& event, const char* name) {
    event.abort.assign(name);
    event.abort.append(" is not allowed while the image is made");
    worker.stop_guest(Stop::Abort, 0);
}

void fill_random(const Call& call, std::uint8_t* out, std::uint32_t size) {
    if (size > kRandomBytesMax) {
        call.event.limit = {"random_bytes", kRandomBytesMax, size};
        call.event.abort = call.event.limit.sentence();
        call.worker.stop_guest(Stop::Abort, 0);
    }
    for (std::size_t done = 0; done < size;) {
        const ssize_t got = ::getrandom(out + done, size - done, 0);
        HF_CHECK(got > 0 || errno == EINTR, "the kernel's random source is always there");
        if (got > 0) done += static_cast<std::size_t>(got);
    }
}

void fill_guest_calls(hf_host_v1& host) {
    host.kv_get = kv_get;
    host.kv_put = kv_put;
    host.kv_delete = kv_delete;
    host.kv_list = kv_list;
    host.kv_next = kv_next;
    host.kv_close = kv_close;
    host.reply = reply;
    host.http_reply = http_reply;
    host.log = log_line;
    host.now_ms = now_ms;
    host.random = random_bytes;
    host.abort = abort_guest;
    fill_outward_calls(host);
    fill_wasi_calls(host);
}

}  // namespace hf::wasm
