#include "plugins/gateway-http/answers.hpp"

#include <algorithm>

#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/peer_answer.hpp"

namespace hf::gateway {

namespace {

constexpr std::uint32_t kMsPerSecond = 1000;

struct Words {
    std::uint16_t status;
    std::string_view reason;
    std::string_view text;  // when the supervisor gave none
};

Words words_of(abi::ReplyReason reason) {
    switch (reason) {
        case abi::ReplyReason::UnknownClass:
            return {404, "unknown_class", "no class of this name is deployed"};
        case abi::ReplyReason::BadName:
            return {400, "bad_name", "the actor's class or name is not allowed"};
        case abi::ReplyReason::TooLarge:
            return {413, "too_large", "the request is too large"};
        case abi::ReplyReason::Busy:
            return {503, "busy", "there is no room; nothing was done"};
        case abi::ReplyReason::Unavailable:
            return {503, "unavailable", "a needed part is missing; nothing was done"};
        case abi::ReplyReason::Deadline:
            return {504, "deadline", "the time is up; the outcome is not known"};
        case abi::ReplyReason::ActorFailed:
            return {500, "actor_failed", "the actor failed; nothing was written"};
        case abi::ReplyReason::ActorLimit:
            return {507, "actor_limit", "the actor hit a limit; nothing was written"};
        case abi::ReplyReason::Ok:
        case abi::ReplyReason::Internal:
            break;
    }
    return {500, "internal", "an internal error"};
}

BytesView view_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
    return bytes == nullptr ? BytesView() : BytesView(bytes->data(), bytes->size());
}

std::string_view view_of(const flatbuffers::String* text) {
    return text == nullptr ? std::string_view() : std::string_view(text->data(), text->size());
}

}  // namespace

void write_answer(Bytes& out, const Framing& framing, const LocalAnswer& answer) {
    if (!framing.peer) return write_local(out, framing, answer);
    const std::string lines = lines_of(answer);
    Framing told = framing;
    told.lines = lines;
    write_local(out, told, answer);
}

Written write_reply(Bytes& out,
                    const Framing& asked,
                    const abi::Reply& reply,
                    std::uint64_t large) {
    Framing framing = asked;
    std::string lines;
    if (framing.peer) framing.lines = lines = lines_of(reply);
    if (reply.reason() == abi::ReplyReason::Ok) {
        const BytesView body = view_of(reply.body());
        // An event that ended well without an HTTP answer.
        const std::uint16_t silent = body.empty() && large == 0 ? 204 : 200;
        const std::uint16_t given = framing.peer ? status_of(reply, *framing.peer) : reply.status();
        const std::uint16_t status = given == 0 ? silent : given;
        const BytesView headers = view_of(reply.headers());
        if (large == 0 && write_actor(out, framing, status, headers, body)) return {status, false};
        if (large != 0 && write_actor_head(out, framing, status, headers, large))
            return {status, has_body(framing, status)};
        write_answer(out,
                     asked,
                     {.status = 502,
                      .reason = "actor_failed",
                      .text = "the actor's status or a header of its answer is not valid HTTP"});
        return {502, false};
    }
    const Words words = words_of(reply.reason());
    LocalAnswer answer{.status = words.status, .reason = words.reason, .text = words.text};
    if (const std::string_view text = view_of(reply.text()); !text.empty()) answer.text = text;
    if (words.status == 503)
        answer.retry_after_s =
            std::max<std::uint32_t>(1,
                                    reply.retry_after_ms() / kMsPerSecond +
                                        (reply.retry_after_ms() % kMsPerSecond != 0 ? 1 : 0));
    write_local(out, framing, answer);
    return {answer.status, false};
}

std::uint16_t write_queried(Bytes& out, const Framing& framing, const abi::Queried& queried) {
    const bool valid = queried.status() >= 200 && queried.status() <= 599;
    const std::uint16_t status = valid ? queried.status() : 500;
    write_page(out, framing, status, view_of(queried.content_type()), view_of(queried.body()));
    return status;
}

LocalAnswer refused_route(const Route& route) {
    const std::string_view reason = route.status == 404   ? "not_found"
                                    : route.status == 405 ? "method_not_allowed"
                                    : route.status == 501 ? "not_implemented"
                                                          : "bad_path";
    return {.status = route.status, .reason = reason, .text = route.text, .allow = route.allow};
}

LocalAnswer event_too_large() {
    static_assert(kEventBytesMax == 61440, "the sentence names this number");
    return {.status = 413,
            .reason = "too_large",
            .text = "path, header and body together are larger than one event may be, 61440 bytes"};
}

LocalAnswer durable_too_large() {
    static_assert(kPayloadBytesMax == 49152, "the sentence names this number");
    return {.status = 413,
            .reason = "too_large",
            .text = "a request that prefers respond-async has a body of at most 49152 bytes"};
}

LocalAnswer no_answer() {
    return {.status = 504,
            .reason = "deadline",
            .text = "no answer came in time; the outcome is not known"};
}

LocalAnswer no_credit() {
    return {.status = 503,
            .reason = "busy",
            .text = "there was no room at the supervisor within request_timeout; nothing was done",
            .retry_after_s = 1};
}

LocalAnswer ends_now() {
    return {.status = 503,
            .reason = "unavailable",
            .text = "this gateway ends; nothing was done",
            .retry_after_s = 1};
}

LocalAnswer no_room(std::string_view text) {
    return {.status = 503, .reason = "busy", .text = text, .retry_after_s = 1};
}

LocalAnswer refused_handshake(Handshake handshake, std::string_view why) {
    if (handshake == Handshake::BadVersion)
        return {.status = 426, .reason = "version", .text = why, .version = kWebSocketVersion};
    return {.status = 400, .reason = "bad_handshake", .text = why};
}

LocalAnswer bad_handshake() {
    return {.status = 502,
            .reason = "actor_failed",
            .text =
                "a header of the actor's handshake is not valid, or its subprotocol was not "
                "offered"};
}

LocalAnswer refused_call(std::string_view why) {
    return {.status = 403, .reason = "refused", .text = why, .refused = true};
}

Count count_of(const Refusal& refusal) {
    if (refusal.reason == "header_too_large") return Count::RefusedHeader;
    if (refusal.reason == "target_too_long") return Count::RefusedTarget;
    if (refusal.reason == "body_too_large") return Count::RefusedBody;
    return Count::RefusedMalformed;
}

}  // namespace hf::gateway
