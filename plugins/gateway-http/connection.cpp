#include "plugins/gateway-http/connection.hpp"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "abi/base/clock.hpp"
#include "abi/ring/bodies.hpp"
#include "plugins/gateway-http/answers.hpp"
#include "plugins/gateway-http/fields.hpp"
#include "plugins/gateway-http/server.hpp"

namespace hf::gateway {

namespace {

// Input kept while a request is open: about a hundred pipelined requests. Beyond it the client's sends wait in the kernel.
constexpr std::size_t kKeptBytesMax = std::size_t{16} * 1024;
// One read while a head is expected; with a longer head more follow.
constexpr std::size_t kHeadReadBytes = std::size_t{16} * 1024;
// Room behind a body's end in one read, for the next request or the end of the chunks.
constexpr std::size_t kBodyReadExtra = std::size_t{4} * 1024;
// Answers of TLS to changes of keys that a client asks for and does not read.
constexpr std::size_t kTlsOwnBytesMax = std::size_t{16} * 1024;
// One read of a WebSocket. What is behind a message that has to wait is kept, and no more.
constexpr std::size_t kFrameReadBytes = std::size_t{16} * 1024;
// Answers gathered before a write in the middle of a turn: the largest one and a bit.
constexpr std::size_t kOutBytesMax = std::size_t{64} * 1024;
// What a client may still send after its answer: it may be in the middle of a large upload that was refused.
constexpr std::size_t kLingerBytesMax = std::size_t{128} * 1024 * 1024;
constexpr std::int64_t kLingerNsMax = 30'000'000'000;
constexpr std::int64_t kNsPerMs = 1'000'000;

std::string client_key_of(const sockaddr_storage& address) {
    std::array<char, sizeof(in6_addr)> bytes{};
    std::size_t size = 0;
    if (address.ss_family == AF_INET) {
        sockaddr_in v4{};
        std::memcpy(&v4, &address, sizeof(v4));
        size = sizeof(v4.sin_addr);
        std::memcpy(bytes.data(), &v4.sin_addr, size);
    } else if (address.ss_family == AF_INET6) {
        sockaddr_in6 v6{};
        std::memcpy(&v6, &address, sizeof(v6));
        // A client of IPv4 that came by a socket of both has its own address in the last four bytes.
        const bool mapped = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr);
        size = mapped ? 4 : sizeof(v6.sin6_addr) / 2;
        std::memcpy(bytes.data(), v6.sin6_addr.s6_addr + (mapped ? 12 : 0), size);
    }
    return {bytes.data(), size};
}

}  // namespace

Connection::Connection(Server& server, DoorFor door)
    : server_(server),
      door_(door),
      parser_(server.settings(),
              server.peers().has_secret() && door != DoorFor::Clients ? kForNodes : Allowance{}) {
    // Cannot fail: it opens nothing.
    (void)uv_tcp_init(&server_.loop(), &tcp_);
    tcp_.data = this;
    write_.data = this;
}

Connection::~Connection() = default;

void Connection::open(uv_stream_t* listener) {
    // SAFETY: libuv's handles are cast to their base by design.
    auto* const stream = reinterpret_cast<uv_stream_t*>(&tcp_);
    if (uv_accept(listener, stream) != 0) return close();
    (void)uv_tcp_nodelay(&tcp_, 1);
    sockaddr_storage address{};
    int size = sizeof(address);
    std::array<char, 64> text{};
    // SAFETY: sockaddr_storage may be viewed as any socket address.
    if (uv_tcp_getpeername(&tcp_, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
        if (address.ss_family == AF_INET)
            (void)uv_ip4_name(reinterpret_cast<sockaddr_in*>(&address), text.data(), text.size());
        else if (address.ss_family == AF_INET6)
            (void)uv_ip6_name(reinterpret_cast<sockaddr_in6*>(&address), text.data(), text.size());
    }
    client_ = text.data();
    client_key_ = client_key_of(address);
    if (server_.tls() != nullptr && door_ != DoorFor::Nodes)
        tls_ = std::make_unique<TlsStream>(*server_.tls());
    paused_ = true;
    pause_or_resume();
    if (!is_closed()) wait_for_phase();
}

void Connection::turn_away(std::string_view text) {
    if (is_closed()) return;
    // Words would need a whole handshake first.
    if (tls_ != nullptr) return close();
    framing_.keep_alive = false;
    LocalAnswer answer{.status = 503, .reason = "busy", .text = text};
    answer.retry_after_s = 1;
    // Nobody has said who it is: to another node the same words say that nothing was done.
    if (server_.peers().has_secret()) framing_.peer = abi::PeerAsk::Request;
    answer_locally(answer);
    end();
    flush();
}

void Connection::close() {
    if (is_closed()) return;
    drop_request(true);
    if (socket_ != nullptr) socket_->gone();
    phase_ = Phase::Closed;
    clear_deadline();
    server_.closing(*this);
    uv_close(reinterpret_cast<uv_handle_t*>(&tcp_), [](uv_handle_t* handle) {
        auto* const self = static_cast<Connection*>(handle->data);
        self->server_.closed(self);
    });
}

// ---- input

void Connection::pause_or_resume() {
    const bool full = phase_ == Phase::Socket ? !socket_->can_take()
                                              : kept_.size() >= kKeptBytesMax && !can_parse();
    if (is_closed() || end_of_input_ || full == paused_) return;
    auto* const stream = reinterpret_cast<uv_stream_t*>(&tcp_);
    paused_ = full;
    if (full) {
        (void)uv_read_stop(stream);
        return;
    }
    const auto give_buffer = [](uv_handle_t* handle, std::size_t, uv_buf_t* buffer) {
        auto* const self = static_cast<Connection*>(handle->data);
        *buffer =
            uv_buf_init(self->server_.read_buffer(), static_cast<unsigned>(self->read_size()));
    };
    const auto read = [](uv_stream_t* handle, ssize_t got, const uv_buf_t* buffer) {
        static_cast<Connection*>(handle->data)->on_read(got, buffer->base);
    };
    if (uv_read_start(stream, give_buffer, read) != 0) close();
}

std::size_t Connection::read_size() const {
    if (phase_ == Phase::Ending || phase_ == Phase::Lingering) return kReadBytes;
    if (phase_ == Phase::Socket) return kFrameReadBytes;
    if (!can_parse()) return kKeptBytesMax - std::min(kept_.size(), kKeptBytesMax - 1);
    if (phase_ == Phase::Body || phase_ == Phase::Discard)
        return std::min(kReadBytes, parser_.body_hint() + kBodyReadExtra);
    return kHeadReadBytes;
}

void Connection::on_read(ssize_t got, char* data) {
    if (is_closed() || got == 0) return;
    if (got == UV_EOF) return on_end_of_input();
    if (got < 0) return close();
    const auto size = static_cast<std::size_t>(got);
    if (tls_ != nullptr) return on_tls({data, size});
    on_bytes(data, size);
}

// Hands on what the bytes of TLS mean, by the buffer that they came in.
void Connection::on_tls(std::string_view bytes) {
    tls_->receive(bytes);
    for (;;) {
        std::size_t size = 0;
        const TlsStream::Got got = tls_->read(server_.read_buffer(), kReadBytes, size);
        if (got == TlsStream::Got::Data) {
            on_bytes(server_.read_buffer(), size);
            if (is_closed()) return;
            continue;
        }
        // A handshake's next step, an alert, a change of keys.
        tls_->drain(wire_);
        if (!wire_.empty()) flush();
        if (is_closed()) return;
        // While the kernel takes nothing, only what TLS says itself gathers there.
        if (got == TlsStream::Got::Broken || (writing_ && wire_.size() > kTlsOwnBytesMax))
            return close();
        if (got == TlsStream::Got::Ended && !end_of_input_) on_end_of_input();
        return;
    }
}

void Connection::on_bytes(char* data, std::size_t size) {
    if (phase_ == Phase::Ending || phase_ == Phase::Lingering) {
        lingered_bytes_ += size;
        if (lingered_bytes_ > kLingerBytesMax) return close();
        if (phase_ != Phase::Lingering) return;
        if (monotonic_ns() - body_started_ns_ > kLingerNsMax) return close();
        return wait(Wait::Linger);
    }
    take(data, size);
    // The supervisor's turn, in which most answers gather, flushes by itself; a WebSocket writes without it too.
    if (!is_closed() && (!to_be_flushed || socket_ != nullptr)) flush();
}

void Connection::on_end_of_input() {
    // TLS says it, and then the network does.
    const bool again = std::exchange(end_of_input_, true);
    if (again && phase_ != Phase::Lingering) return;
    switch (phase_) {
        case Phase::Lingering:
        case Phase::Socket:
            return close();
        case Phase::Waiting:
            // It may have shut its sending side only: the answer is written all the same when it comes.
            server_.counters().add(Count::ClientsGone);
            server_.requests().tell_gone(*this);
            return;
        default:
            parse_kept();
            if (!is_closed()) flush();
    }
}

void Connection::take(char* data, std::size_t size) {
    if (phase_ == Phase::Socket) return take_frames({data, size});
    if (!kept_.empty() || !can_parse()) {
        kept_.append(data, size);
        return parse_kept();
    }
    const std::size_t used = parse(data, size);
    if (used < size && phase_ < Phase::Ending) kept_.assign(data + used, size - used);
    if (!kept_.empty()) pause_or_resume();
}

// Parses what is kept, and ends the connection when no more can come and nothing is owed.
void Connection::parse_kept() {
    if (!kept_.empty() && can_parse()) {
        const std::size_t used = parse(kept_.data(), kept_.size());
        kept_.erase(0, used);
    }
    if (kept_.empty() || phase_ >= Phase::Ending) empty(kept_);
    if (end_of_input_ && can_parse()) end();
    pause_or_resume();
}

bool Connection::can_parse() const {
    return phase_ <= Phase::Discard && !writing_;
}

std::size_t Connection::parse(char* data, std::size_t size) {
    std::size_t at = 0;
    while (at < size && can_parse()) {
        std::size_t consumed = 0;
        Parsed parsed = Parsed::NeedMore;
        const bool in_head = phase_ == Phase::Idle || phase_ == Phase::Head;
        if (in_head) {
            parsed = parser_.read_head(data + at, size - at, consumed, server_.head());
        } else {
            // In phase Body there is a draft. NOLINTBEGIN(clang-analyzer-cplusplus.Move)
            Bytes* const sink =
                phase_ == Phase::Body && draft_->page.empty() ? &draft_->event : nullptr;
            // NOLINTEND(clang-analyzer-cplusplus.Move)
            const std::size_t before = sink != nullptr ? sink->size() : 0;
            parsed = parser_.read_body(data + at, size - at, consumed, sink);
            body_seen_ += consumed;
            if (sink != nullptr && claim_ != nullptr)
                claim_->add_body(BytesView(*sink).subspan(before));
            // Answered for want of room: what is left of it is thrown away, or nothing more is read.
            if (sink != nullptr && parsed != Parsed::Refused && !keep_body() &&
                phase_ != Phase::Discard)
                return at + consumed;
        }
        at += consumed;
        if (parsed == Parsed::NeedMore) {
            if (phase_ == Phase::Idle) {
                phase_ = Phase::Head;
                // A fresh connection's time runs from accept.
                if (!fresh_) wait(Wait::Head);
            }
            break;
        }
        fresh_ = false;
        if (parsed == Parsed::Refused)
            refuse();
        else if (in_head)
            on_head(size - at);
        else
            on_body();
        if (out_.size() > kOutBytesMax) flush();
    }
    return at;
}

// ---- one request

void Connection::on_head(std::size_t bytes_behind) {
    server_.counters().add(Count::Requests);
    const Head& head = server_.head();
    framing_ = {.head_only = head.method == Method::Head,
                .http11 = head.http11,
                .keep_alive = head.keep_alive && !server_.sheds()};
    has_body_ = head.has_body;
    // A client that sends its body at once is not waiting.
    expects_ = head.expect_continue && bytes_behind == 0;
    if (!come_in()) return;
    Route& route = server_.route();
    if (!split_target(head.target, server_.parts()))
        return answer_early(
            {.status = 400, .reason = "bad_path", .text = "the target is malformed"});
    find_route(head.method, server_.parts(), server_.tenant(), route);
    switch (route.kind) {
        case RouteKind::Refused:
            return answer_early(refused_route(route));
        case RouteKind::Options:
            return answer_early({.status = 204, .allow = route.allow});
        case RouteKind::Page:
            if (claim_ != nullptr) return refuse_call("a call between nodes is about an actor");
            break;
        case RouteKind::Actor:
            break;
    }
    std::string_view why;
    const bool may_upgrade = route.kind == RouteKind::Actor && claim_ == nullptr;
    const Handshake handshake = may_upgrade ? read_handshake(head, why) : Handshake::None;
    const bool socket = handshake == Handshake::Good;
    if (handshake != Handshake::None && !socket) {
        server_.counters().add(Count::SocketsRefused);
        return answer_early(refused_handshake(handshake, why));
    }
    if (take_places(socket)) start();
}

// False: there was none, and the client was told so.
bool Connection::take_places(bool socket) {
    Requests& requests = server_.requests();
    if (socket && (server_.sheds() || !requests.take_socket())) {
        server_.counters().add(Count::SocketsRefused);
        answer_early(server_.sheds() ? ends_now() : no_room("sockets_max is reached"));
        return false;
    }
    if (!requests.take_place()) {
        if (socket) requests.give_back_socket();
        server_.counters().add(Count::RefusedOpen);
        answer_early(no_room("requests_open_max is reached; nothing was done"));
        return false;
    }
    if (socket)
        upgrading_ = std::make_unique<Upgrading>(
            Upgrading{server_.next_socket(), read_offer(server_.head())});
    return true;
}

void Connection::give_back_places() {
    server_.requests().give_back();
    if (upgrading_ == nullptr) return;
    server_.requests().give_back_socket();
    upgrading_.reset();
}

void Connection::start() {
    const Head& head = server_.head();
    const Route& route = server_.route();
    Requests& requests = server_.requests();
    if (has_body_) draft_ = requests.new_draft();
    Draft& draft = has_body_ ? *draft_ : requests.scratch();
    draft.client = client_;
    if (route.kind == RouteKind::Page) {
        draft.say = Say::Page;
        draft.page = route.page;
    } else {
        draft.say = upgrading_ != nullptr ? Say::SocketOpened : Say::Request;
        draft.socket = upgrading_ != nullptr ? upgrading_->number : 0;
        draft.origin.reset();
        framing_.durable = draft.durable = !is_raw() && has_preference(head, "respond-async");
        draft.page = {};
        draft.class_name = route.class_name;
        draft.name = route.name;
        if (is_raw())
            draft.event.clear();
        else
            begin_event(draft.event, head, server_.parts(), route);
        draft.head_bytes = draft.event.size();
        const std::uint64_t length = head.content_length.value_or(0);
        if (length > kPayloadBytesMax && !is_raw()) {
            const std::string_view why =
                framing_.durable ? std::string_view() : requests.grow(draft.upload, length);
            if (framing_.durable || !why.empty()) {
                give_back_places();
                requests.drop_draft(std::move(draft_));
                if (framing_.durable) return answer_early(durable_too_large());
                server_.counters().add(Count::RefusedMemory);
                return answer_early(no_room(why));
            }
        } else if (draft.event.size() + length > kEventBytesMax) {
            give_back_places();
            requests.drop_draft(std::move(draft_));
            return answer_early(event_too_large());
        }
    }
    if (!has_body_) {
        if (is_let_in(draft)) return ask(draft);
        requests.give_back();
        return request_done();
    }
    phase_ = Phase::Body;
    body_started_ns_ = monotonic_ns();
    wait(Wait::Body);
    if (expects_) write_continue(out_);
}

// What does not fit the event goes into a file as it comes. False: there is no room, and the client was told.
bool Connection::keep_body() {
    Draft& draft = *draft_;
    if (is_raw()) {
        if (draft.event.size() <= kEventBytesMax) return true;
        return give_up_body(event_too_large()), false;
    }
    Upload& upload = draft.upload;
    const std::size_t fresh = draft.event.size() - draft.head_bytes;
    if (upload.reserved == 0 && fresh <= kPayloadBytesMax) return true;
    if (draft.durable) return give_up_body(durable_too_large()), false;
    std::string_view why = server_.requests().grow(upload, upload.bytes + fresh);
    if (why.empty() &&
        !ring::append_body(upload.file.get(), draft.event.data() + draft.head_bytes, fresh))
        why = kNotKept;
    if (!why.empty()) {
        server_.counters().add(Count::RefusedMemory);
        return give_up_body(no_room(why)), false;
    }
    upload.bytes += fresh;
    draft.event.resize(draft.head_bytes);
    return true;
}

// In the middle of a body.
void Connection::give_up_body(const LocalAnswer& answer) {
    drop_request(false);
    answer_early(answer);
}

void Connection::on_body() {
    if (phase_ == Phase::Discard) return request_done();
    // What is too large for its event was sealed by nobody yet.
    if (draft_->upload.reserved != 0) {
        if (!ring::seal_body(draft_->upload.file.get())) {
            give_up_body(no_room(kNotKept));
            return phase_ == Phase::Discard ? request_done() : void();
        }
        server_.counters().add(Count::LargeUploads);
    }
    std::unique_ptr<Draft> draft = std::move(draft_);
    if (draft->page.empty()) {
        if (draft->event.size() > kEventBytesMax) {
            server_.requests().give_back();
            answer_locally(event_too_large());
            return request_done();
        }
        if (!is_raw()) end_event(draft->event, draft->head_bytes);
    }
    if (!is_let_in(*draft)) {
        server_.requests().give_back();
        server_.requests().drop_draft(std::move(draft));
        return request_done();
    }
    ask(*draft);
}

void Connection::ask(Draft& draft) {
    phase_ = Phase::Waiting;
    std::int64_t wait_ms = server_.settings().request_timeout_ms;
    if (draft.origin) wait_ms = std::min(wait_ms, call_ms_);
    draft.deadline_ns = monotonic_ns() + wait_ms * kNsPerMs;
    server_.requests().ask(*this, draft);
    wait(Wait::Request);
}

void Connection::refuse() {
    // The answer to this request is out already.
    if (phase_ == Phase::Discard) return end();
    const Refusal& refusal = parser_.refusal();
    server_.counters().add(count_of(refusal));
    if (phase_ != Phase::Body) {
        framing_ = {};
        // Of a body that its head says is too large the whole head was read.
        if (refusal.status == 413 && PeerClaim::is_made_by(server_.head()))
            framing_.peer = abi::PeerAsk::Request;
    }
    drop_request(false);
    framing_.keep_alive = false;
    answer_locally({.status = refusal.status, .reason = refusal.reason, .text = refusal.text});
    end();
}

// Answers before the body is read. It is then thrown away, unless its sender waits to be told whether to send it.
void Connection::answer_early(const LocalAnswer& answer) {
    if (has_body_ && expects_) framing_.keep_alive = false;
    answer_locally(answer);
    if (!framing_.keep_alive) return end();
    if (!has_body_) return request_done();
    phase_ = Phase::Discard;
    body_started_ns_ = monotonic_ns();
    wait_for_phase();
}

void Connection::answer_locally(const LocalAnswer& answer) {
    server_.counters().add_answer(answer.status);
    write_answer(out_, framing_, answer);
}

void Connection::answered(const abi::Reply& reply, Download body) {
    if (const auto upgrading = std::move(upgrading_); upgrading != nullptr) {
        if (is_accepted(reply)) {
            if (body.file.valid()) server_.requests().tell_released(body.request_id);
            return accepted(reply, *upgrading);
        }
        server_.requests().give_back_socket();
    }
    framing_.keep_alive = framing_.keep_alive && !server_.sheds();
    const Written written = write_reply(out_, framing_, reply, body.file.valid() ? body.bytes : 0);
    server_.counters().add_answer(written.status);
    if (written.body_follows) {
        download_ = std::make_unique<Download>(std::move(body));
        phase_ = Phase::Sending;
        wait_for_phase();
        return server_.flush_later(*this);
    }
    if (body.file.valid()) server_.requests().tell_released(body.request_id);
    request_done();
    parse_kept();
    server_.flush_later(*this);
}

void Connection::answered(const abi::Queried& queried) {
    framing_.keep_alive = framing_.keep_alive && !server_.sheds();
    server_.counters().add_answer(write_queried(out_, framing_, queried));
    request_done();
    parse_kept();
    server_.flush_later(*this);
}

void Connection::request_done() {
    claim_.reset();
    parser_.reset();
    if (!framing_.keep_alive) return end();
    phase_ = Phase::Idle;
    wait_for_phase();
}

}  // namespace hf::gateway
