// A connection that became a WebSocket, or was refused to (part of Connection).
#include <utility>

#include "plugins/gateway-http/answers.hpp"
#include "plugins/gateway-http/connection.hpp"
#include "plugins/gateway-http/server.hpp"

namespace hf::gateway {

void Connection::accepted(const abi::Reply& reply, const Upgrading& upgrading) {
    const BytesView headers = reply.headers() == nullptr
                                  ? BytesView()
                                  : BytesView(reply.headers()->data(), reply.headers()->size());
    server_.flush_later(*this);
    if (end_of_input_ || !write_upgraded(out_, upgrading.offer, headers)) {
        // It can say nothing any more, or must not be told what the actor said: over before it began.
        const LocalAnswer answer = bad_handshake();
        server_.requests().tell_closed(upgrading.number,
                                       end_of_input_ ? kCloseBroken : kCloseInternal,
                                       end_of_input_ ? "the client is gone" : answer.text);
        framing_.keep_alive = false;
        if (!end_of_input_) answer_locally(answer);
        return request_done();
    }
    parser_.reset();
    phase_ = Phase::Socket;
    socket_ = std::make_unique<Socket>(server_, *this, upgrading.number);
    socket_->start();
    if (server_.sheds()) return socket_->shed();
    resume_input();
}

std::size_t Connection::unsent_bytes() const {
    return out_.size() + wire_.size() +
           uv_stream_get_write_queue_size(reinterpret_cast<const uv_stream_t*>(&tcp_));
}

void Connection::take_frames(std::string_view data) {
    // What came before is looked at first. It is taken out of kept_, which an end empties.
    const std::string before = std::exchange(kept_, {});
    std::string_view all = data;
    std::string joined;
    if (!before.empty()) all = joined = before + std::string(data);
    const std::size_t used = socket_->take(all);
    if (phase_ != Phase::Socket) return;
    if (used < all.size()) kept_.assign(all.substr(used));
    pause_or_resume();
}

void Connection::resume_input() {
    if (phase_ == Phase::Socket) take_frames({});
}

void Connection::end_socket() {
    if (is_closed()) return;
    end();
    if (phase_ == Phase::Ending) wait(Wait::Close);
    server_.flush_later(*this);
}

}  // namespace hf::gateway
