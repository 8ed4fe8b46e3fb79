#include "agent/control/client.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <utility>

#include "agent/base/bounded_json.hpp"

namespace hf::control {

namespace {

using nlohmann::json;

// libuv reads into it and hands it over at once; one loop, one buffer.
constexpr std::size_t kReadBytes = 64 * 1024;
// An id is given back with every line: a counter or a UUID.
constexpr std::size_t kIdBytesMax = 128;

struct Write {
    uv_write_t request{};
    std::string text;
    std::shared_ptr<Client> client;
    std::function<void(int)> done;
};

[[nodiscard]] json error_line(const Error& error) {
    return {{"ok", false},
            {"error", {{"code", code_name(error.code)}, {"message", error.message}}}};
}

[[nodiscard]] std::string text_of(const json& line) {
    return line.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string_view code_name(Code code) {
    switch (code) {
        case Code::Invalid:
            return "invalid";
        case Code::NotFound:
            return "not_found";
        case Code::Exists:
            return "exists";
        case Code::Busy:
            return "busy";
        case Code::Refused:
            return "refused";
        case Code::PeerGone:
            return "peer_gone";
        case Code::Io:
            return "io";
        case Code::Corrupt:
            return "corrupt";
        case Code::Unavailable:
            return "unavailable";
        case Code::Timeout:
            return "timeout";
    }
    return "invalid";
}

bool Client::open(uv_loop_t* loop, uv_stream_t* listener) {
    self_ = shared_from_this();
    uv_pipe_init(loop, &pipe_, 0);
    pipe_.data = this;
    last_used_ = uv_now(loop);
    // SAFETY: uv_pipe_t begins with uv_stream_t by libuv's contract.
    return uv_accept(listener, reinterpret_cast<uv_stream_t*>(&pipe_)) == 0;
}

int Client::fd() const {
    uv_os_fd_t fd = -1;
    // SAFETY: uv_pipe_t begins with uv_handle_t by libuv's contract.
    if (uv_fileno(reinterpret_cast<const uv_handle_t*>(&pipe_), &fd) != 0) return -1;
    return fd;
}

void Client::start_reading() {
    if (reading_ || input_ended_ || closing_) return;
    // SAFETY: as in open().
    reading_ =
        uv_read_start(
            reinterpret_cast<uv_stream_t*>(&pipe_), &Client::on_alloc, &Client::on_read) == 0;
    if (!reading_) close();
}

void Client::on_alloc(uv_handle_t*, std::size_t, uv_buf_t* buffer) {
    thread_local std::array<char, kReadBytes> bytes;
    *buffer = uv_buf_init(bytes.data(), kReadBytes);
}

void Client::on_read(uv_stream_t* stream, ssize_t size, const uv_buf_t* buffer) {
    const auto self = static_cast<Client*>(stream->data)->shared_from_this();
    if (size > 0)
        self->take({buffer->base, static_cast<std::size_t>(size)});
    else if (size == UV_EOF)
        self->end_of_input();
    else if (size < 0)
        self->close();
}

void Client::take(std::string_view bytes) {
    if (dismissed_) return;
    in_ += bytes;
    last_used_ = uv_now(pipe_.loop);
    serve_lines();
    // A sender that does not wait for its answers is not read any further until it has them.
    if (reading_ && !closing_ && in_.size() >= kLineBytesMax) {
        // SAFETY: as in open().
        uv_read_stop(reinterpret_cast<uv_stream_t*>(&pipe_));
        reading_ = false;
    }
}

// Half closed, the other side waits for answers; closed, nobody does. The kernel tells them apart.
void Client::end_of_input() {
    input_ended_ = true;
    // SAFETY: as in open().
    uv_read_stop(reinterpret_cast<uv_stream_t*>(&pipe_));
    reading_ = false;
    pollfd state{fd(), POLLIN, 0};
    if (::poll(&state, 1, 0) < 0 || (state.revents & (POLLHUP | POLLERR)) != 0) return close();
    if (!in_.empty() && in_.back() != '\n') in_ += '\n';
    serve_lines();
}

void Client::serve_lines() {
    if (serving_) return;  // an answer given at once comes back here
    serving_ = true;
    const auto self = shared_from_this();
    std::size_t begin = 0;  // what lies before it is served; cut off once, not per line
    while (!closing_ && !dismissed_ && !busy()) {
        const std::size_t end = in_.find('\n', std::max(begin, scanned_));
        scanned_ = in_.size();
        if (std::min(end, in_.size()) - begin >= kLineBytesMax)
            dismiss(fail(Code::Invalid, "a line may have at most 1 MiB"));
        if (end == std::string::npos || dismissed_) break;
        scanned_ = end + 1;
        const std::string line = in_.substr(begin, end - begin);
        begin = end + 1;
        serve_line(line);
    }
    in_.erase(0, begin);
    scanned_ -= std::min(scanned_, begin);
    serving_ = false;
    if (closing_ || busy()) return;
    if (input_ended_) {
        dismissed_ = true;
        if (backlog_ == 0) close();
    } else if (!dismissed_) {
        start_reading();
    }
}

void Client::serve_line(std::string_view line) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
    auto request = base::parse_bounded(line);
    if (!request || !request->is_object())
        return send(error_line(fail(Code::Invalid, "the line is not a JSON object")));
    const auto id = request->find("id");
    const bool named = id != request->end();
    if (named && (id->is_structured() ||
                  (id->is_string() && id->get_ref<const std::string&>().size() > kIdBytesMax)))
        return send(error_line(
            fail(Code::Invalid, "'id' must be a number or a string of at most 128 bytes")));
    auto state = std::make_shared<Responder::State>();
    state->client = weak_from_this();
    if (named) state->id = *id;
    current_ = state;
    Responder responder(state);
    const auto op = request->find("op");
    if (op == request->end() || !op->is_string()) {
        responder.fail(fail(Code::Invalid, "the request has no 'op'"));
    } else if (owner_ == nullptr) {
        responder.fail(fail(Code::Unavailable, "the daemon is stopping"));
    } else {
        state.reset();
        owner_->serve(*request, op->get_ref<const std::string&>(), std::move(responder));
    }
}

void Client::finish(const Responder::State& state) {
    const auto current = current_.lock();
    if (current && current.get() != &state) return;
    current_.reset();
    last_used_ = uv_now(pipe_.loop);
    if (!serving_) serve_lines();
}

void Client::send(const json& line) {
    std::string text = text_of(line);
    if (text.size() > kLineBytesMax) {
        json error =
            error_line(fail(Code::Busy, "the answer is longer than 1 MiB; ask for less at a time"));
        if (line.contains("id")) error["id"] = line["id"];
        text = text_of(error);
    }
    put(std::move(text));
}

void Client::put(std::string text) {
    if (closing_) return;
    if (backlog_ + text.size() > kBacklogBytesMax) return close();  // it does not read its answers
    auto write = std::make_unique<Write>();
    write->text = std::move(text);
    write->client = shared_from_this();
    write->request.data = write.get();
    const std::size_t size = write->text.size();
    write->done = [this, size](int status) {
        backlog_ -= size;
        if (status < 0 || (dismissed_ && backlog_ == 0)) close();
    };
    const uv_buf_t buffer = uv_buf_init(write->text.data(), static_cast<unsigned>(size));
    const auto finished = [](uv_write_t* request, int status) {
        const std::unique_ptr<Write> mine(static_cast<Write*>(request->data));
        mine->done(status);
    };
    backlog_ += size;
    // SAFETY: as in open().
    if (uv_write(&write->request, reinterpret_cast<uv_stream_t*>(&pipe_), &buffer, 1, finished) !=
        0) {
        backlog_ -= size;
        return close();
    }
    static_cast<void>(write.release());  // `finished` takes it back
}

void Client::dismiss(const Error& error) {
    if (closing_) return;
    dismissed_ = true;
    put(text_of(error_line(error)));
}

void Client::stop() {
    owner_ = nullptr;
    const auto self = shared_from_this();
    // libuv writes at once what the socket takes, so the answer is out before the close.
    if (const auto state = current_.lock())
        Responder(state).fail(fail(Code::Unavailable, "the daemon is stopping"));
    close();
}

void Client::close() {
    if (closing_) return;
    closing_ = true;
    const auto self = shared_from_this();
    if (const auto state = current_.lock()) {
        current_.reset();
        state->client.reset();
        if (const auto tell = std::exchange(state->on_gone, {})) tell();
    }
    if (owner_ != nullptr) owner_->gone(*this);
    // SAFETY: as in fd(). The callback is the last that is heard of the handle.
    uv_close(reinterpret_cast<uv_handle_t*>(&pipe_), [](uv_handle_t* handle) {
        const auto last = std::move(static_cast<Client*>(handle->data)->self_);
    });
}

Responder::State::~State() {
    const auto to = client.lock();
    if (answered || !to) return;
    answered = true;
    json line =
        error_line(hf::fail(Code::Unavailable, "the request was given up without an answer"));
    if (!id.is_null()) line["id"] = id;
    to->send(line);
    to->finish(*this);
}

bool Responder::open() const {
    return !state_->answered && !state_->client.expired();
}

void Responder::progress(const json& value) const {
    const auto to = state_->client.lock();
    if (state_->answered || !to) return;
    json line = {{"progress", value}};
    if (!state_->id.is_null()) line["id"] = state_->id;
    to->send(line);
}

void Responder::done(const json& result) const {
    const auto to = state_->client.lock();
    if (state_->answered || !to) return;
    state_->answered = true;
    state_->on_gone = {};
    json line = {{"ok", true}, {"result", result}};
    if (!state_->id.is_null()) line["id"] = state_->id;
    to->send(line);
    to->finish(*state_);
}

void Responder::fail(const Error& error) const {
    const auto to = state_->client.lock();
    if (state_->answered || !to) return;
    state_->answered = true;
    state_->on_gone = {};
    json line = error_line(error);
    if (!state_->id.is_null()) line["id"] = state_->id;
    to->send(line);
    to->finish(*state_);
}

void Responder::on_gone(std::function<void()> fn) const {
    if (open()) state_->on_gone = std::move(fn);
}

}  // namespace hf::control
