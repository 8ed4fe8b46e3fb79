// What a connection writes, how it ends and what it does when time is up (part of Connection).
#include <sys/socket.h>

#include <algorithm>

#include "abi/base/clock.hpp"
#include "abi/ring/bodies.hpp"
#include "plugins/gateway-http/answers.hpp"
#include "plugins/gateway-http/connection.hpp"
#include "plugins/gateway-http/server.hpp"

namespace hf::gateway {

namespace {

// Of a large answer, read when the one before is with the kernel.
constexpr std::size_t kPieceBytes = std::size_t{64} * 1024;
constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kMsPerSecond = 1000;

}  // namespace

// What the kernel is to be given: with TLS, what it makes of the answers.
Bytes& Connection::outgoing() {
    if (tls_ == nullptr) return out_;
    if (tls_->is_ready() && tls_->write(out_)) empty(out_);
    tls_->drain(wire_);
    return wire_;
}

// Behind what is to be written, the next piece of a large answer. False: it cannot be read.
bool Connection::load_piece() {
    if (phase_ != Phase::Sending || out_.size() >= kPieceBytes) return true;
    Download& download = *download_;
    const std::size_t piece = static_cast<std::size_t>(
        std::min<std::uint64_t>(kPieceBytes, download.bytes - download.at));
    const std::size_t before = out_.size();
    out_.resize(before + piece);
    if (!ring::read_body(download.file.get(), out_.data() + before, piece, download.at))
        return false;
    download.at += piece;
    return true;
}

void Connection::end_download() {
    if (download_ == nullptr) return;
    server_.requests().tell_released(download_->request_id);
    download_.reset();
}

void Connection::flush() {
    if (is_closed() || writing_) return;
    if (!load_piece()) return close();
    auto* const stream = reinterpret_cast<uv_stream_t*>(&tcp_);
    if (Bytes& bytes = outgoing(); !bytes.empty()) {
        // SAFETY: libuv only reads from it.
        uv_buf_t buffer =
            uv_buf_init(reinterpret_cast<char*>(bytes.data()), static_cast<unsigned>(bytes.size()));
        // A large answer goes on from the loop: a client that reads fast is not served alone.
        const int sent = phase_ == Phase::Sending ? 0 : uv_try_write(stream, &buffer, 1);
        if (sent < 0 && sent != UV_EAGAIN) return close();
        const auto taken = static_cast<std::size_t>(std::max(sent, 0));
        if (taken < bytes.size()) {
            sending_.swap(bytes);
            bytes.clear();
            buffer.base = reinterpret_cast<char*>(sending_.data()) + taken;
            buffer.len = sending_.size() - taken;
            const auto written = [](uv_write_t* request, int status) {
                static_cast<Connection*>(request->data)->on_written(status);
            };
            if (uv_write(&write_, stream, &buffer, 1, written) != 0) return close();
            writing_ = true;
            return wait_for_phase();
        }
        empty(bytes);
    }
    if (phase_ == Phase::Ending) linger();
}

void Connection::on_written(int status) {
    writing_ = false;
    empty(sending_);
    if (is_closed()) return;
    if (status < 0) return close();
    if (socket_ != nullptr) socket_->written();
    if (phase_ == Phase::Sending && download_->at == download_->bytes) {
        server_.counters().add(Count::LargeDownloads);
        end_download();
        request_done();
    }
    flush();
    if (is_closed() || writing_ || phase_ >= Phase::Socket) return;
    wait_for_phase();
    parse_kept();
    flush();
}

// No further request is taken. What is owed is written, then our side is shut.
void Connection::end() {
    drop_request(false);
    phase_ = Phase::Ending;
    empty(kept_);
    pause_or_resume();
    wait(Wait::Write);
    // Whoever called flushes, or has asked for it.
    if (out_.empty() && !writing_) linger();
}

// A close with input unread makes the kernel reset the connection, and the client may lose the answer it has not read.
void Connection::linger() {
    // It comes back here when that is written.
    if (tls_ != nullptr && tls_->say_goodbye()) return flush();
    if (end_of_input_) return close();
    uv_os_fd_t fd = -1;
    if (uv_fileno(reinterpret_cast<uv_handle_t*>(&tcp_), &fd) != 0 || ::shutdown(fd, SHUT_WR) != 0)
        return close();
    phase_ = Phase::Lingering;
    body_started_ns_ = monotonic_ns();
    wait(Wait::Linger);
}

void Connection::drop_request(bool tell) {
    Requests& requests = server_.requests();
    end_download();
    if (phase_ == Phase::Waiting) {
        // At the end of its input it was counted and told already.
        const bool news = tell && !end_of_input_;
        if (news) server_.counters().add(Count::ClientsGone);
        leave_request(news);
    } else if (draft_ != nullptr) {
        // A body on its way: its draft stands for its place, so that the place is given back once, however often the
        // connection ends.
        requests.give_back();
        requests.drop_draft(std::move(draft_));
    }
}

// A WebSocket that is accepted after this is told to be closed by Requests.
void Connection::leave_request(bool tell) {
    server_.requests().leave(*this, tell);
    upgrading_.reset();
}

// ---- time

void Connection::wait(Wait wait) {
    if (wait == Wait::Body) body_seen_ = 0;
    server_.deadlines().set(*this, wait, monotonic_ns());
}

void Connection::wait_for_phase() {
    // A WebSocket's waits are its own.
    if (phase_ == Phase::Socket) return;
    if (writing_ && phase_ != Phase::Waiting)
        return wait(socket_ == nullptr ? Wait::Write : Wait::Close);
    switch (phase_) {
        case Phase::Idle:
            return wait(server_.sheds() ? Wait::Shed : fresh_ ? Wait::Head : Wait::Idle);
        case Phase::Head:
            return wait(Wait::Head);
        case Phase::Body:
        case Phase::Discard:
            return wait(Wait::Body);
        case Phase::Sending:
        case Phase::Ending:
            return wait(Wait::Write);
        case Phase::Waiting:
        case Phase::Socket:
        case Phase::Lingering:
        case Phase::Closed:
            return;
    }
}

void Connection::time_is_up(Wait wait) {
    switch (wait) {
        case Wait::Idle:
        case Wait::Shed:
            end();
            break;
        case Wait::Head:
            server_.counters().add(Count::TimedOutHead);
            framing_ = {};
            framing_.keep_alive = false;
            if (phase_ == Phase::Head)
                answer_locally({.status = 408,
                                .reason = "timeout",
                                .text = "the header took longer than header_timeout"});
            end();
            break;
        case Wait::Body:
            body_is_slow();
            break;
        case Wait::Request: {
            // What never reached the supervisor has had no effect; of the rest nobody knows.
            const bool asked = !Requests::is_queued(*this);
            server_.counters().add(Count::TimedOutRequest);
            leave_request(true);
            answer_locally(asked ? no_answer() : no_credit());
            request_done();
            parse_kept();
            break;
        }
        case Wait::Write:
            server_.counters().add(Count::TimedOutWrite);
            return close();
        case Wait::Linger:
            return close();
        case Wait::Ping:
        case Wait::Pong:
        case Wait::Close:
            if (phase_ != Phase::Socket) return close();
            socket_->time_is_up(wait);
            break;
        case Wait::Taken:
            break;
    }
    flush();
}

void Connection::body_is_slow() {
    const Settings& settings = server_.settings();
    const std::int64_t now = monotonic_ns();
    const std::int64_t look_ms = body_look_ms(settings);
    const bool late = now - body_started_ns_ >= settings.body_timeout_ms * kNsPerMs;
    const std::size_t least =
        settings.body_rate_min * static_cast<std::size_t>(look_ms) / kMsPerSecond;
    if (!late && body_seen_ >= least) return wait(Wait::Body);
    server_.counters().add(Count::TimedOutBody);
    if (phase_ == Phase::Discard) return end();
    drop_request(false);
    framing_.keep_alive = false;
    answer_locally(
        {.status = 408,
         .reason = "timeout",
         .text = "the body took longer than body_timeout or came slower than body_rate_min"});
    end();
}

void Connection::shed() {
    if (phase_ == Phase::Socket) return socket_->shed();
    if (phase_ == Phase::Idle && !writing_) wait(Wait::Shed);
}

void Connection::give_up() {
    framing_.keep_alive = false;
    switch (phase_) {
        case Phase::Waiting: {
            const bool asked = !Requests::is_queued(*this);
            leave_request(false);
            answer_locally(asked ? no_answer() : ends_now());
            phase_ = Phase::Idle;
            end();
            break;
        }
        case Phase::Head:
            framing_ = {};
            framing_.keep_alive = false;
            [[fallthrough]];
        case Phase::Body:
            answer_locally(ends_now());
            end();
            break;
        case Phase::Idle:
        case Phase::Discard:
            end();
            break;
        case Phase::Socket:
            // The client may have been told before; now nobody waits for its answer any more.
            socket_->shed();
            socket_->gone();
            end_socket();
            break;
        case Phase::Sending:
            // It cannot be finished, and the length that was promised says so.
            return close();
        case Phase::Ending:
        case Phase::Lingering:
        case Phase::Closed:
            break;
    }
    flush();
}

}  // namespace hf::gateway
