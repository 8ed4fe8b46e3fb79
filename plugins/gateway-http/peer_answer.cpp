#include "plugins/gateway-http/peer_answer.hpp"

#include <charconv>
#include <string_view>

#include "abi/base/limits.hpp"
#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/peer_text.hpp"

namespace hf::gateway {

namespace {

constexpr std::string_view kReason = "x-wasmkeep-reason";
constexpr std::string_view kStatus = "x-wasmkeep-status";
constexpr std::string_view kRetryAfter = "x-wasmkeep-retry-after-ms";
constexpr std::string_view kText = "x-wasmkeep-text";
constexpr std::string_view kRefused = "x-wasmkeep-refused";
// A node that refuses a call may have been told wrong of this one, for as long as records are remembered.
constexpr std::uint32_t kRefusedRetryMs = 1000;
constexpr std::uint32_t kMsPerSecond = 1000;

void add(std::string& lines, std::string_view name, std::string_view value) {
    lines.append(name).append(": ").append(value).append("\r\n");
}

std::string told(abi::ReplyReason reason, std::uint32_t retry_after_ms, std::string_view text) {
    std::string lines;
    add(lines, kReason, abi::EnumNameReplyReason(reason));
    if (retry_after_ms != 0) add(lines, kRetryAfter, std::to_string(retry_after_ms));
    if (!text.empty()) add(lines, kText, to_field(text.substr(0, kPeerTextMax)));
    return lines;
}

abi::ReplyReason reason_of(const LocalAnswer& answer) {
    switch (answer.status) {
        case 400:
            return abi::ReplyReason::BadName;
        case 413:
            return abi::ReplyReason::TooLarge;
        case 502:
            return abi::ReplyReason::ActorFailed;
        case 503:
            return answer.reason == "busy" ? abi::ReplyReason::Busy : abi::ReplyReason::Unavailable;
        case 504:
            return abi::ReplyReason::Deadline;
        default:
            return abi::ReplyReason::Internal;
    }
}

template <class Number>
bool read(std::string_view text, Number& value) {
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    return !text.empty() && error == std::errc() && end == last;
}

PeerAnswer failed(abi::ReplyReason reason, std::string text, std::uint32_t retry_after_ms = 0) {
    PeerAnswer out;
    out.reason = reason;
    out.retry_after_ms = retry_after_ms;
    out.text = std::move(text);
    return out;
}

// False: they are more than an actor's answer may have.
bool copy_fields(const web::HttpAnswer& answer, bool head_only, Bytes& out) {
    FlatWriter writer(out);
    for (const auto& [name, value] : answer.headers) {
        if (is_hop_by_hop(name) || is_reserved(name)) continue;
        if (name == "content-length" && !head_only) continue;
        // What a gateway adds by itself, and this one will again.
        if (name == "server" && value == "holdfast") continue;
        writer.field(name);
        writer.field(value);
    }
    // An actor's own are checked where they come from; on top of them are those that the other gateway adds.
    constexpr std::size_t kAdded = 256;
    return out.size() <= kHeaderBytesMax + kAdded;
}

}  // namespace

std::string lines_of(const abi::Reply& reply) {
    const std::string_view text =
        reply.text() == nullptr ? std::string_view() : reply.text()->string_view();
    std::string lines = told(reply.reason(), reply.retry_after_ms(), text);
    if (reply.reason() == abi::ReplyReason::Ok) add(lines, kStatus, std::to_string(reply.status()));
    return lines;
}

std::string lines_of(const LocalAnswer& answer) {
    if (answer.refused) {
        std::string lines;
        add(lines, kRefused, to_field(answer.text.substr(0, kPeerTextMax)));
        return lines;
    }
    return told(reason_of(answer), answer.retry_after_s * kMsPerSecond, answer.text);
}

std::uint16_t status_of(const abi::Reply& reply, abi::PeerAsk ask) {
    return ask == abi::PeerAsk::Request ? reply.status() : 200;
}

PeerAnswer read_peer_answer(const web::HttpAnswer& answer, bool head_only) {
    if (const std::string& refused = answer.header(kRefused); !refused.empty())
        return failed(abi::ReplyReason::Unavailable,
                      "the other node refused the call: " + from_field(refused),
                      kRefusedRetryMs);
    const std::string& said = answer.header(kReason);
    PeerAnswer out;
    bool known = false;
    for (const abi::ReplyReason reason : abi::EnumValuesReplyReason()) {
        if (said != abi::EnumNameReplyReason(reason)) continue;
        known = true;
        out.reason = reason;
    }
    if (!known)
        return failed(abi::ReplyReason::Internal,
                      "the other node answered with status " + std::to_string(answer.status) +
                          " and did not say what became of the call");
    (void)read(answer.header(kRetryAfter), out.retry_after_ms);
    out.text = from_field(answer.header(kText));
    if (out.reason != abi::ReplyReason::Ok) return out;
    if (!read(answer.header(kStatus), out.status))
        out.status = static_cast<std::uint16_t>(answer.status);
    if (!copy_fields(answer, head_only, out.headers))
        return failed(abi::ReplyReason::Internal,
                      "the other node's answer has more than 12 KiB of headers");
    return out;
}

}  // namespace hf::gateway
