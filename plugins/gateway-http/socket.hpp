// One accepted WebSocket on one connection: whole messages to its actor one at a time, the actor's messages to the client
// within a bound, pings, and a close that is told to the supervisor exactly once, whoever began it.
// Owned by its Connection, which moves the bytes; Server finds it by its number. When the connection ends, by whatever
// cause, gone() tells the supervisor; when this process dies the kernel resets the connection and the supervisor knows by
// the link.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "abi/base/bytes.hpp"
#include "plugins/gateway-http/counters.hpp"
#include "plugins/gateway-http/deadlines.hpp"
#include "plugins/gateway-http/frames.hpp"
#include "plugins/gateway-http/requests.hpp"

namespace hf::gateway {

class Connection;
class Server;

// Its own wait, beside the connection's, is for the answer to a message.
class Socket final : public Deadlines::Item, public Asker {
public:
    Socket(Server& server, Connection& connection, std::uint64_t number);
    ~Socket();
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    [[nodiscard]] std::uint64_t number() const { return number_; }
    // The handshake's answer is on its way.
    void start();

    // False: a message waits until the one before it is taken, and what follows it is not looked at.
    [[nodiscard]] bool can_take() const { return !message_waits_; }
    // Bytes from the client; how many were taken. May end the connection.
    std::size_t take(std::string_view data);
    // The kernel took what was written.
    void written();
    // The connection is gone, or is about to be given up.
    void gone();

    // From the actor.
    void send(bool binary, BytesView data);
    void answered(const abi::SocketTaken& taken) override;
    // Closes from this side: a close goes out, and its answer is waited for.
    void close(std::uint16_t code, std::string_view reason, Count why);
    // This process ends.
    void shed();

    // Ping, Pong and Close of the connection, Taken of its own.
    void time_is_up(Wait wait) override;

private:
    enum class State : std::uint8_t {
        Open,
        Closing,  // our close is out; messages are thrown away until the client's comes
        Told,     // the supervisor knows that it is over
    };

    void on_message();
    void on_close();
    void on_broken();
    void ask();
    void answer_controls();
    void watch_message();
    void recharge(std::uint16_t code_beyond);
    void ping();
    // Says a close and ends the connection without waiting for the client's.
    void fail(std::uint16_t code, std::uint16_t told_code, std::string_view reason, Count why);
    void tell(std::uint16_t code, std::string_view reason, Count why);

    Server& server_;
    Connection& connection_;
    const std::uint64_t number_;
    State state_ = State::Open;
    FrameReader reader_;
    bool taking_ = false;                // take() is on the stack
    bool asked_ = false;                 // a message is at the supervisor or on its way
    bool message_waits_ = false;         // another one is whole, in reader_
    std::int64_t message_since_ns_ = 0;  // the one that is not whole began; 0: there is none
    std::uint64_t pings_ = 0;
    std::size_t queued_bytes_ = 0;  // of a message that waits for credit
    std::size_t charged_ = 0;       // bytes counted to this socket
    // What is told once our own close is through.
    std::uint16_t close_code_ = kCloseBroken;
    std::string close_reason_;
    Count close_why_ = Count::SocketsBroken;
};

}  // namespace hf::gateway
