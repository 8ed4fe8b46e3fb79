#include "plugins/gateway-http/socket.hpp"

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/gateway-http/connection.hpp"
#include "plugins/gateway-http/server.hpp"

namespace hf::gateway {

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
// A frame's own bytes around a message: two, and eight for the length.
constexpr std::size_t kFrameExtra = 10;

Count count_of_code(std::uint16_t code) {
    if (code == kCloseTooLarge) return Count::SocketsTooLarge;
    if (code == kClosePolicy) return Count::SocketsUnread;
    return Count::SocketsMalformed;
}

}  // namespace

Socket::Socket(Server& server, Connection& connection, std::uint64_t number)
    : server_(server),
      connection_(connection),
      number_(number),
      reader_(server.settings().message_bytes_max) {
    server_.counters().add(Count::SocketsOpened);
    server_.know(*this);
}

Socket::~Socket() {
    HF_CHECK(state_ == State::Told, "the supervisor hears of every socket's end");
}

void Socket::start() {
    connection_.wait(Wait::Ping);
}

// ---- from the client

std::size_t Socket::take(std::string_view data) {
    taking_ = true;
    std::size_t at = 0;
    bool more = true;
    while (more && can_take() && state_ != State::Told) {
        std::size_t consumed = 0;
        const FrameReader::Got got = reader_.read(data.substr(at), consumed);
        at += consumed;
        switch (got) {
            case FrameReader::Got::NeedMore:
                more = false;
                break;
            case FrameReader::Got::Message:
                on_message();
                break;
            case FrameReader::Got::Close:
                on_close();
                break;
            case FrameReader::Got::Broken:
                on_broken();
                break;
        }
    }
    answer_controls();
    watch_message();
    recharge(kCloseTryLater);
    taking_ = false;
    return at;
}

void Socket::on_message() {
    message_since_ns_ = 0;
    if (state_ != State::Open) return;
    server_.counters().add(Count::SocketMessagesIn);
    if (asked_)
        message_waits_ = true;
    else
        ask();
}

void Socket::ask() {
    Draft& draft = server_.requests().scratch();
    draft.say = Say::SocketMessage;
    draft.socket = number_;
    draft.binary = reader_.is_binary();
    draft.event.clear();
    draft.event.swap(reader_.message());
    draft.deadline_ns = monotonic_ns() + server_.settings().request_timeout_ms * kNsPerMs;
    asked_ = true;
    const std::size_t bytes = draft.event.size();
    server_.requests().ask(*this, draft);
    queued_bytes_ = Requests::is_queued(*this) ? bytes : 0;
    server_.deadlines().set(*this, Wait::Taken, monotonic_ns());
}

void Socket::answered(const abi::SocketTaken& taken) {
    asked_ = false;
    queued_bytes_ = 0;
    clear_deadline();
    if (state_ != State::Open) return;
    if (!taken.ok()) {
        const std::string_view text =
            taken.text() == nullptr ? std::string_view() : taken.text()->string_view();
        return close(taken.code(), text, Count::SocketsByActor);
    }
    if (message_waits_) {
        message_waits_ = false;
        ask();
    }
    connection_.resume_input();
}

void Socket::on_close() {
    if (state_ == State::Closing) {
        tell(close_code_, close_reason_, close_why_);
    } else {
        write_close(connection_.out(), reader_.code(), {});
        tell(reader_.code(), reader_.reason(), Count::SocketsByClient);
    }
    connection_.end_socket();
}

void Socket::on_broken() {
    // After our own close nothing more is said.
    if (state_ == State::Closing) {
        tell(close_code_, close_reason_, close_why_);
        return connection_.end_socket();
    }
    fail(reader_.code(), reader_.code(), reader_.reason(), count_of_code(reader_.code()));
}

void Socket::answer_controls() {
    if (state_ != State::Open) return;
    // The last ping is answered once there is room; those before it need no answer then.
    std::string payload;
    if (!connection_.is_writing() && reader_.take_ping(payload)) {
        write_pong(connection_.out(), payload);
        server_.flush_later(connection_);
    }
    if (reader_.take_pong()) connection_.wait(Wait::Ping);
}

void Socket::watch_message() {
    if (!reader_.is_in_message())
        message_since_ns_ = 0;
    else if (message_since_ns_ == 0)
        message_since_ns_ = monotonic_ns();
}

// ---- to the client

void Socket::send(bool binary, BytesView data) {
    if (state_ != State::Open) return server_.counters().add(Count::SocketMessagesDropped);
    if (!binary && !is_utf8(as_text(data)))
        return close(kCloseInternal, "the actor's text is not UTF-8", Count::SocketsByActor);
    const std::size_t most = server_.settings().socket_buffer_max;
    const auto fits = [&] {
        return connection_.unsent_bytes() + data.size() + kFrameExtra <= most;
    };
    // What has gathered in this turn may be for the kernel to keep.
    if (!fits()) connection_.flush();
    if (state_ != State::Open) return;
    if (!fits()) {
        server_.counters().add(Count::SocketMessagesDropped);
        return close(kClosePolicy, "the client does not read", Count::SocketsUnread);
    }
    write_message(connection_.out(), binary, data);
    server_.counters().add(Count::SocketMessagesOut);
    server_.flush_later(connection_);
    recharge(kClosePolicy);
}

void Socket::written() {
    answer_controls();
    recharge(kClosePolicy);
}

// All sockets together keep sockets_memory_max; who goes beyond it is closed.
void Socket::recharge(std::uint16_t code_beyond) {
    if (state_ == State::Told) return;
    const std::size_t now = reader_.held_bytes() + queued_bytes_ + connection_.unsent_bytes();
    const bool grows = now > charged_;
    server_.charge(charged_, now);
    charged_ = now;
    if (grows && state_ == State::Open && server_.charged() > server_.settings().sockets_memory_max)
        close(code_beyond, "sockets_memory_max is reached", Count::SocketsUnread);
}

// ---- the end

void Socket::close(std::uint16_t code, std::string_view reason, Count why) {
    if (state_ != State::Open) return;
    state_ = State::Closing;
    close_code_ = code == 0 || code == kCloseNoCode ? kCloseNoCode
                  : is_close_code(code)             ? code
                                                    : kCloseInternal;
    close_reason_ = close_code_ == kCloseNoCode ? std::string_view() : close_reason_of(reason);
    close_why_ = why;
    write_close(connection_.out(), close_code_, close_reason_);
    // What the client said before it heard of the close is not taken any more, but for what is on its way.
    message_waits_ = false;
    clear_deadline();
    server_.requests().let_go(*this);
    connection_.wait(Wait::Close);
    server_.flush_later(connection_);
    if (!taking_) connection_.resume_input();
}

void Socket::shed() {
    close(kCloseRestart, "this gateway ends; connect again", Count::SocketsShed);
}

void Socket::fail(std::uint16_t code, std::uint16_t told_code, std::string_view reason, Count why) {
    write_close(connection_.out(), code, close_reason_of(reason));
    tell(told_code, reason, why);
    connection_.end_socket();
}

void Socket::gone() {
    tell(close_code_, close_reason_, close_why_);
}

void Socket::tell(std::uint16_t code, std::string_view reason, Count why) {
    if (state_ == State::Told) return;
    state_ = State::Told;
    message_waits_ = false;
    clear_deadline();
    server_.charge(charged_, 0);
    charged_ = 0;
    server_.forget(*this);
    server_.counters().add(Count::SocketsClosed);
    server_.counters().add(why);
    Requests& requests = server_.requests();
    requests.let_go(*this);
    requests.tell_closed(number_, code, reason);
}

// ---- time

void Socket::ping() {
    // A client that has sent more than is taken cannot be heard: nothing it answers would be read.
    if (!can_take()) return connection_.wait(Wait::Ping);
    const std::string payload = "hf" + std::to_string(++pings_);
    reader_.expect_pong(payload);
    write_ping(connection_.out(), payload);
    connection_.wait(Wait::Pong);
    server_.flush_later(connection_);
}

void Socket::time_is_up(Wait wait) {
    const Settings& settings = server_.settings();
    switch (wait) {
        case Wait::Ping:
            if (message_since_ns_ != 0 &&
                monotonic_ns() - message_since_ns_ >= settings.body_timeout_ms * kNsPerMs)
                return close(
                    kClosePolicy, "a message took longer than body_timeout", Count::SocketsUnread);
            return ping();
        case Wait::Pong:
            if (!can_take()) return connection_.wait(Wait::Pong);
            return fail(
                kCloseInternal, kCloseBroken, "no pong within pong_timeout", Count::SocketsNoPong);
        case Wait::Taken: {
            // What never reached the supervisor has had no effect; of the rest nobody knows.
            const bool queued = Requests::is_queued(*this);
            if (queued) server_.requests().leave(*this, false);
            asked_ = false;
            return close(queued ? kCloseTryLater : kCloseInternal,
                         "a message was not taken within request_timeout",
                         Count::SocketsUnanswered);
        }
        default:
            // The client does not answer our close.
            return connection_.close();
    }
}

}  // namespace hf::gateway
