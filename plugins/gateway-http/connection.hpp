// One client connection: bytes in, one request at a time to the supervisor, its answer out, in order. Responsible for
// keep-alive, pipelining, 100-continue, back-pressure and a close that never takes an answer away from its reader. Once a
// request for a WebSocket is accepted, the bytes are its Socket's.
// Owned by Server, which it calls for everything shared. When the client dies the open request goes on without it; when
// this process dies the kernel resets the connection.
#pragma once

#include <uv.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "abi/base/bytes.hpp"
#include "plugins/gateway-http/deadlines.hpp"
#include "plugins/gateway-http/http_parse.hpp"
#include "plugins/gateway-http/http_write.hpp"
#include "plugins/gateway-http/peer_door.hpp"
#include "plugins/gateway-http/requests.hpp"
#include "plugins/gateway-http/socket.hpp"
#include "plugins/gateway-http/tls.hpp"
#include "plugins/gateway-http/upgrade.hpp"

namespace hf::gateway {

class Server;

// Buffers larger than this are given back when they are empty: an idle connection costs little.
inline constexpr std::size_t kBufferKeep = std::size_t{4} * 1024;

template <class Buffer>
void empty(Buffer& buffer) {
    if (buffer.capacity() > kBufferKeep)
        Buffer().swap(buffer);
    else
        buffer.clear();
}

class Connection final : public Deadlines::Item, public Asker {
public:
    // `door`: for whom the socket is that its client came by.
    Connection(Server& server, DoorFor door);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // Takes the next client of `listener` and starts to read. A failure: the connection is closing already.
    void open(uv_stream_t* listener);
    // Tells the client that there is no room, and closes. `text`: the limit that is reached.
    void turn_away(std::string_view text);
    // Ends at once, whatever is open. The server deletes the object when the loop has let go of it.
    void close();

    void answered(const abi::Reply& reply, Download body) override;
    void answered(const abi::Queried& queried) override;
    void time_is_up(Wait wait) override;
    // Writes what has gathered; called once per turn for each connection that has something.
    void flush();
    // The process finishes: this request is the last one, silence is ended soon.
    void shed();
    // The process ends now: what is open is answered for good.
    void give_up();

    [[nodiscard]] bool is_closed() const { return phase_ == Phase::Closed; }
    // Who is counted against connections_per_client_max: the peer's address, of IPv6 its first half. Empty: not known.
    [[nodiscard]] const std::string& client_key() const { return client_key_; }

    // For its Socket.
    [[nodiscard]] Bytes& out() { return out_; }
    [[nodiscard]] bool is_writing() const {
        return writing_;
    }  // the kernel took less than it was given
    [[nodiscard]] std::size_t unsent_bytes() const;
    void wait(Wait wait);
    // What was kept may be looked at again.
    void resume_input();
    // The last frame is written: it goes out, then the connection ends.
    void end_socket();

    std::size_t index = 0;        // the server's, in its table
    bool to_be_flushed = false;   // the server's
    bool is_counted = false;      // the server's: among the connections of its client
    bool is_turned_away = false;  // the server's

private:
    // In this order: up to Discard input is parsed, from Ending on it is thrown away.
    enum class Phase : std::uint8_t {
        Idle,       // nothing of a next request is here
        Head,       // part of a head
        Body,       // head taken, body on its way into draft_
        Discard,    // answered already, the rest of the body is thrown away
        Waiting,    // asked, not answered
        Sending,    // a large answer is on its way out, piece by piece
        Socket,     // a WebSocket: frames are taken by socket_
        Ending,     // the last answer is on its way out
        Lingering,  // our side is shut; what the client still sends is thrown away
        Closed,
    };

    // A WebSocket that was asked for.
    struct Upgrading {
        std::uint64_t number;
        Offer offer;
    };

    void on_read(ssize_t got, char* data);
    void on_bytes(char* data, std::size_t size);
    void on_tls(std::string_view bytes);
    [[nodiscard]] Bytes& outgoing();
    void on_end_of_input();
    void take(char* data, std::size_t size);
    [[nodiscard]] bool can_parse() const;
    [[nodiscard]] std::size_t parse(char* data, std::size_t size);
    void parse_kept();
    void on_head(std::size_t bytes_behind);
    [[nodiscard]] bool take_places(bool socket);
    void give_back_places();
    void start();
    void on_body();
    [[nodiscard]] bool keep_body();
    [[nodiscard]] bool is_raw() const;
    [[nodiscard]] bool come_in();
    [[nodiscard]] bool is_let_in(Draft& draft);
    void refuse_call(std::string_view why);
    void give_up_body(const LocalAnswer& answer);
    void ask(Draft& draft);

    void accepted(const abi::Reply& reply, const Upgrading& upgrading);
    void take_frames(std::string_view data);

    void refuse();
    void answer_early(const LocalAnswer& answer);
    void answer_locally(const LocalAnswer& answer);
    [[nodiscard]] bool load_piece();
    void end_download();
    void request_done();
    void on_written(int status);
    void end();
    void linger();
    void drop_request(bool tell);
    void leave_request(bool tell);
    void wait_for_phase();
    void body_is_slow();
    void pause_or_resume();
    [[nodiscard]] std::size_t read_size() const;

    Server& server_;
    const DoorFor door_;
    uv_tcp_t tcp_{};
    uv_write_t write_{};
    Phase phase_ = Phase::Idle;
    Framing framing_;
    bool has_body_ = false;
    bool expects_ = false;  // the client waits for 100 Continue, or for its refusal
    bool end_of_input_ = false;
    bool paused_ = false;
    bool fresh_ = true;     // no request was read yet
    bool writing_ = false;  // the loop holds sending_
    RequestParser parser_;
    std::string kept_;  // input that is not consumed yet
    Bytes out_;         // answers that were not given to the kernel yet
    Bytes wire_;        // what TLS made of them, and what it says itself
    Bytes sending_;     // what the kernel did not take at once
    std::unique_ptr<Draft> draft_;
    std::unique_ptr<Download> download_;    // in phase Sending
    std::unique_ptr<Upgrading> upgrading_;  // from its request to its answer
    std::unique_ptr<PeerClaim> claim_;      // a call of another node, until all of it is here
    std::unique_ptr<Socket> socket_;        // from then on
    std::unique_ptr<TlsStream> tls_;        // null: plain
    std::string client_;
    std::string client_key_;
    std::size_t body_seen_ = 0;  // bytes since the last look at the body's progress
    std::int64_t body_started_ns_ = 0;
    std::int64_t call_ms_ = 0;  // the time that a call of another node has
    std::size_t lingered_bytes_ = 0;
};

}  // namespace hf::gateway
