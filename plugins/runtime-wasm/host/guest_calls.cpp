// Guest ABI v1, host side. Rules of the house: enter_host first, leave_host last; a pointer outside the guest's memory
// traps like any wild access, before anything is owned; arguments that make no sense answer kBadArgument.
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "abi/base/check.hpp"
#include "plugins/runtime-wasm/engine/instance.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/host/event.hpp"

namespace hf::wasm {

namespace {

constexpr auto kAbsent = static_cast<std::uint32_t>(-1);
constexpr auto kBadArgument = static_cast<std::uint32_t>(-2);
constexpr auto kLimit = static_cast<std::uint32_t>(-3);
constexpr auto kNotNow = static_cast<std::uint32_t>(-7);

struct Call {
    Worker& worker;
    Event& event;
};

// `name` is used when the guest is not yet serving: an image must not depend on anything but the module.
Call enter(const char* name) {
    Worker& worker = Worker::enter_host();
    Event& event = *static_cast<Event*>(worker.instance().event);
    if (event.state == nullptr) {
        event.abort = std::string(name) + " is not allowed while the image is made";
        worker.stop_guest(Stop::Abort, 0);
    }
    return {worker, event};
}

std::uint8_t* checked(Worker& worker, std::uint32_t at, std::uint32_t size) {
    std::uint8_t* bytes = worker.instance().range(at, size);
    if (bytes == nullptr) worker.stop_guest(Stop::Trap, WASM_RT_TRAP_OOB);
    return bytes;
}

std::uint32_t leave(const Call& call, std::uint32_t result) {
    call.worker.leave_host();
    return result;
}

std::uint32_t refuse(const Call& call, LimitHit hit) {
    call.event.limit = hit;
    return leave(call, kLimit);
}

std::string_view text_at(const std::uint8_t* bytes, std::uint32_t size) {
    return as_text({bytes, size});
}

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
    const std::size_t room =
        kEventOutputBytesMax - std::min(kEventOutputBytesMax, call.event.reply_bytes());
    if (const LimitHit hit = call.event.state->put(text_at(key, kl), {value, vl}, room))
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
    if (after > kPayloadBytesMax || after + call.event.reply_bytes() > kEventOutputBytesMax)
        return refuse(call, {"changes_bytes", kPayloadBytesMax, after});
    return leave(call, call.event.state->remove(text_at(key, kl)) ? 0 : kAbsent);
}

bool well_formed_headers(BytesView bytes) {
    FlatReader reader(bytes);
    std::string_view name;
    std::string_view value;
    while (!reader.done())
        if (!reader.field(name) || !reader.field(value) || name.empty()) return false;
    return true;
}

std::uint32_t http_reply(
    std::uint32_t status, std::uint32_t hp, std::uint32_t hl, std::uint32_t bp, std::uint32_t bl) {
    const Call call = enter("http_reply");
    const std::uint8_t* headers = checked(call.worker, hp, hl);
    const std::uint8_t* body = checked(call.worker, bp, bl);
    if (call.event.replied) return leave(call, kNotNow);
    // An informational status ends no exchange, so an actor cannot answer with one.
    if (status < 200 || status > 599 || !well_formed_headers({headers, hl}))
        return leave(call, kBadArgument);
    if (hl > kHeaderBytesMax) return refuse(call, {"reply_headers_bytes", kHeaderBytesMax, hl});
    if (bl > kPayloadBytesMax) return refuse(call, {"reply_bytes", kPayloadBytesMax, bl});
    const std::size_t total = std::size_t{hl} + bl + call.event.state->change_bytes();
    if (total > kEventOutputBytesMax)
        return refuse(call, {"event_output_bytes", kEventOutputBytesMax, total});
    call.event.replied = true;
    call.event.reply_status = static_cast<std::uint16_t>(status);
    call.event.reply_headers.assign(headers, headers + hl);
    call.event.reply_body.assign(body, body + bl);
    return leave(call, 0);
}

// Allowed in the image phase too: it changes nothing.
void log_line(std::uint32_t level, std::uint32_t p, std::uint32_t l) {
    Worker& worker = Worker::enter_host();
    Event& event = *static_cast<Event*>(worker.instance().event);
    const std::uint8_t* text = checked(worker, p, l);
    if (event.logs.size() < kLogLinesPerEventMax)
        event.logs.push_back(
            {std::min(level, 4u), std::string(text_at(text, std::min(l, kLogLineBytesMax)))});
    else
        ++event.logs_dropped;
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
    std::uint8_t* out = checked(call.worker, p, l);
    if (l > kRandomBytesMax) {
        call.event.limit = {"random_bytes", kRandomBytesMax, l};
        call.event.abort = call.event.limit.sentence();
        call.worker.stop_guest(Stop::Abort, 0);
    }
    for (std::size_t done = 0; done < l;) {
        const ssize_t got = ::getrandom(out + done, l - done, 0);
        HF_CHECK(got > 0 || errno == EINTR, "the kernel's random source is always there");
        if (got > 0) done += static_cast<std::size_t>(got);
    }
    call.worker.leave_host();
}

void abort_guest(std::uint32_t p, std::uint32_t l) {
    Worker& worker = Worker::enter_host();
    Event& event = *static_cast<Event*>(worker.instance().event);
    const std::uint8_t* text = checked(worker, p, l);
    event.abort.assign("abort: ");
    event.abort.append(text_at(text, std::min(l, kAbortBytesMax)));
    worker.stop_guest(Stop::Abort, 0);
}

}  // namespace

void Event::reset(UnitState* unit_state, std::int64_t time_ms) {
    state = unit_state;
    now_ms = time_ms;
    replied = false;
    reply_status = 0;
    reply_headers.clear();
    reply_body.clear();
    limit = LimitHit{};
    abort.clear();
    logs.clear();
    logs_dropped = 0;
}

void fill_guest_calls(hf_host_v1& host) {
    host.kv_get = kv_get;
    host.kv_put = kv_put;
    host.kv_delete = kv_delete;
    host.http_reply = http_reply;
    host.log = log_line;
    host.now_ms = now_ms;
    host.random = random_bytes;
    host.abort = abort_guest;
}

}  // namespace hf::wasm
