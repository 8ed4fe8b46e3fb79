// Guest ABI v1, what leaves the actor: other actors, its alarm, its sockets.
#include <algorithm>
#include <cstring>

#include "plugins/runtime-wasm/host/entry.hpp"

namespace hf::wasm {

namespace {

constexpr std::uint32_t kText = 1;
constexpr std::uint32_t kBinary = 2;

// "class/name", both there.
bool well_formed_target(std::string_view target) {
    const std::size_t slash = target.find('/');
    return slash != std::string_view::npos && slash > 0 && slash + 1 < target.size();
}

// Codes an endpoint may send (RFC 6455, 7.4, and the registry's later ones).
bool may_close_with(std::uint32_t code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

// Target, method and body where the guest has them.
struct Message {
    std::string_view target;
    std::string_view method;
    BytesView body;
    [[nodiscard]] std::size_t bytes() const { return target.size() + method.size() + body.size(); }
    void copy_to(OutwardSend& out) const {
        out.target.assign(target);
        out.method.assign(method);
        out.payload.assign(body.begin(), body.end());
    }
};

Message message_at(Worker& worker,
                   std::uint32_t tp,
                   std::uint32_t tl,
                   std::uint32_t mp,
                   std::uint32_t ml,
                   std::uint32_t bp,
                   std::uint32_t bl) {
    return {text_at(checked(worker, tp, tl), tl),
            text_at(checked(worker, mp, ml), ml),
            {checked(worker, bp, bl), bl}};
}

// Bounds that call and send share.
LimitHit name_limit(const Message& message) {
    if (message.target.size() > kTargetBytesMax)
        return {"target_bytes", kTargetBytesMax, message.target.size()};
    if (message.method.size() > kMethodBytesMax)
        return {"method_bytes", kMethodBytesMax, message.method.size()};
    return {};
}

std::uint32_t call_actor(std::uint32_t tp,
                         std::uint32_t tl,
                         std::uint32_t mp,
                         std::uint32_t ml,
                         std::uint32_t bp,
                         std::uint32_t bl,
                         std::uint32_t timeout_ms) {
    const Call call = enter("call");
    {
        const Message message = message_at(call.worker, tp, tl, mp, ml, bp, bl);
        if (!well_formed_target(message.target)) return leave(call, kBadArgument);
        if (const LimitHit hit = name_limit(message)) return refuse(call, hit);
        if (bl > kPayloadBytesMax) return refuse(call, {"call_bytes", kPayloadBytesMax, bl});
        if (call.event.call.n >= kCallsMax)
            return refuse(call, {"calls_max", kCallsMax, std::uint64_t{kCallsMax} + 1});
        if (!call.worker.may_park()) return leave(call, kBusy);
        OutwardCall& outward = call.event.call;
        ++outward.n;
        message.copy_to(outward.what);
        outward.timeout_ms = timeout_ms;
    }
    // Nothing is owned here: an event that is given up while it waits leaves this frame behind.
    call.worker.park();
    return leave(call, static_cast<std::uint32_t>(call.event.call_code));
}

std::uint32_t result_read(std::uint32_t handle, std::uint32_t out, std::uint32_t cap) {
    const Call call = enter("result_read");
    std::uint8_t* to = checked(call.worker, out, cap);
    if (handle >= call.event.results.size()) return leave(call, kBadArgument);
    if (handle < call.event.results_first) return leave(call, kAbsent);
    const Bytes& result = call.event.results[handle];
    if (const std::size_t size = std::min<std::size_t>(result.size(), cap); size > 0)
        std::memcpy(to, result.data(), size);
    return leave(call, static_cast<std::uint32_t>(result.size()));
}

std::uint32_t send(std::uint32_t tp,
                   std::uint32_t tl,
                   std::uint32_t mp,
                   std::uint32_t ml,
                   std::uint32_t bp,
                   std::uint32_t bl) {
    const Call call = enter("send");
    const Message message = message_at(call.worker, tp, tl, mp, ml, bp, bl);
    Event& event = call.event;
    if (!well_formed_target(message.target)) return leave(call, kBadArgument);
    if (const LimitHit hit = name_limit(message)) return refuse(call, hit);
    if (event.sends.size() >= kSendsMax)
        return refuse(call, {"sends_max", kSendsMax, kSendsMax + 1});
    const std::size_t cost = message.bytes() + kOutputOverheadBytes;
    // Sends are stored in the same entry as the changes.
    const std::size_t stored = event.send_bytes + cost + event.state->change_bytes();
    if (stored > kPayloadBytesMax) return refuse(call, {"send_bytes", kPayloadBytesMax, stored});
    if (const LimitHit hit = event.output_limit(cost)) return refuse(call, hit);
    message.copy_to(event.sends.emplace_back());
    event.send_bytes += cost;
    return leave(call, 0);
}

std::uint32_t entity_send(
    std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t) {
    return leave(enter("entity_send"), kNotNow);
}

std::uint32_t entity_ask(std::uint32_t,
                         std::uint32_t,
                         std::uint32_t,
                         std::uint32_t,
                         std::uint32_t,
                         std::uint32_t,
                         std::uint32_t) {
    return leave(enter("entity_ask"), kNotNow);
}

std::uint32_t alarm_set(std::uint64_t ms) {
    const Call call = enter("alarm_set");
    const auto at = static_cast<std::int64_t>(ms);
    if (at <= 0) return leave(call, kBadArgument);
    call.event.alarm_ms = at;
    call.event.alarm_touched = true;
    return leave(call, 0);
}

std::uint64_t alarm_get() {
    const Call call = enter("alarm_get");
    const auto at = static_cast<std::uint64_t>(call.event.alarm_ms);
    call.worker.leave_host();
    return at;
}

std::uint32_t alarm_clear() {
    const Call call = enter("alarm_clear");
    call.event.alarm_ms = 0;
    call.event.alarm_touched = true;
    return leave(call, 0);
}

// One more connection, and `bytes` that its command takes.
LimitHit count_target(Event& event, std::size_t bytes) {
    if (event.socket_targets >= kSocketTargetsMax)
        return {"socket_targets_max", kSocketTargetsMax, kSocketTargetsMax + 1};
    const std::size_t cost = bytes + kSocketTargetBytes;
    if (const LimitHit hit = event.output_limit(cost)) return hit;
    event.socket_bytes += cost;
    ++event.socket_targets;
    return {};
}

std::uint32_t add_command(const Call& call, BytesView data, SocketCommand command) {
    Event& event = call.event;
    if (event.sockets.size() >= kSocketCommandsMax)
        return refuse(call, {"socket_commands_max", kSocketCommandsMax, kSocketCommandsMax + 1});
    if (const LimitHit hit = count_target(event, data.size() + kOutputOverheadBytes))
        return refuse(call, hit);
    command.data.assign(data.begin(), data.end());
    event.sockets.push_back(std::move(command));
    return leave(call, 0);
}

// Whether it is the message that the last command of this event carries already.
bool is_last_message(const Event& event, bool binary, BytesView data) {
    if (event.sockets.empty()) return false;
    const SocketCommand& last = event.sockets.back();
    return !last.close && last.binary == binary && last.data.size() == data.size() &&
           std::equal(data.begin(), data.end(), last.data.begin());
}

std::uint32_t ws_send(std::uint64_t connection,
                      std::uint32_t kind,
                      std::uint32_t p,
                      std::uint32_t l) {
    const Call call = enter("ws_send");
    const std::uint8_t* data = checked(call.worker, p, l);
    if (kind != kText && kind != kBinary) return leave(call, kBadArgument);
    if (l > kPayloadBytesMax) return refuse(call, {"socket_bytes", kPayloadBytesMax, l});
    const bool binary = kind == kBinary;
    if (!is_last_message(call.event, binary, {data, l}))
        return add_command(call, {data, l}, {connection, false, 0, binary, {}});
    if (const LimitHit hit = count_target(call.event, 0)) return refuse(call, hit);
    call.event.sockets.back().also.push_back(connection);
    return leave(call, 0);
}

std::uint32_t ws_close(std::uint64_t connection,
                       std::uint32_t code,
                       std::uint32_t p,
                       std::uint32_t l) {
    const Call call = enter("ws_close");
    const std::uint8_t* reason = checked(call.worker, p, l);
    if (!may_close_with(code)) return leave(call, kBadArgument);
    if (l > kReasonBytesMax) return refuse(call, {"reason_bytes", kReasonBytesMax, l});
    return add_command(
        call, {reason, l}, {connection, true, static_cast<std::uint16_t>(code), false, {}});
}

std::uint32_t passivate() {
    const Call call = enter("passivate");
    call.event.passivate = true;
    return leave(call, 0);
}

}  // namespace

void fill_outward_calls(hf_host_v1& host) {
    host.call = call_actor;
    host.result_read = result_read;
    host.send = send;
    host.entity_send = entity_send;
    host.entity_ask = entity_ask;
    host.alarm_set = alarm_set;
    host.alarm_get = alarm_get;
    host.alarm_clear = alarm_clear;
    host.ws_send = ws_send;
    host.ws_close = ws_close;
    host.passivate = passivate;
}

}  // namespace hf::wasm
