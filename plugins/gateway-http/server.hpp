// Everything that connections share: listeners, the table of connections, time, room towards the supervisor, scratch
// buffers, counters. Loop thread only.
#pragma once

#include <uv.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/sdk/plugin.hpp"
#include "plugins/gateway-http/connection.hpp"
#include "plugins/gateway-http/counters.hpp"
#include "plugins/gateway-http/deadlines.hpp"
#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/peer_door.hpp"
#include "plugins/gateway-http/requests.hpp"
#include "plugins/gateway-http/route.hpp"
#include "plugins/gateway-http/settings.hpp"
#include "plugins/gateway-http/tls.hpp"

namespace hf::gateway {

// The largest piece taken from a socket at once; all connections share the one buffer.
inline constexpr std::size_t kReadBytes = std::size_t{64} * 1024;

// A socket to listen on.
struct Listening {
    int fd;
    DoorFor door = DoorFor::Everybody;
};

class Server {
public:
    // `tls`: null for plain connections. Other nodes' are plain.
    Server(uv_loop_t& loop,
           const Settings& settings,
           PeerDoor::Facts facts,
           std::unique_ptr<TlsKeys> tls,
           sdk::Context& context);
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Listens on the given sockets, which stay the caller's: each is duplicated, and never shut down, because other
    // processes share it.
    Result<void> listen(const std::vector<Listening>& sockets);

    // Reply, Queried or SocketTaken.
    void answer(const sdk::Message& message);
    // For a WebSocket that is here no more: dropped.
    void socket_send(const abi::SocketSend& send);
    void socket_close(const abi::CloseSocket& close);
    // All messages of a turn are handled: asks what waited for credit, writes what has gathered.
    void batch_done();
    // Takes no new connections, lets the open ones finish. At the deadline (CLOCK_MONOTONIC, 0: none) the rest is answered.
    void shed(std::int64_t deadline_ns);
    [[nodiscard]] bool sheds() const { return shedding_; }
    // No connection is left, closing ones included, and everything was said.
    [[nodiscard]] bool is_empty() const {
        return connections_.empty() && closing_ == 0 && requests_.owes_nothing();
    }
    // Answers everything open for the last time.
    void give_up();
    // Before the loop blocks: sets the one timer to the next thing that is due, or stops it.
    void before_block();

    // For connections.
    [[nodiscard]] uv_loop_t& loop() { return loop_; }
    [[nodiscard]] const Settings& settings() const { return settings_; }
    [[nodiscard]] const std::string& tenant() const { return tenant_; }
    [[nodiscard]] const TlsKeys* tls() const { return tls_.get(); }
    [[nodiscard]] Requests& requests() { return requests_; }
    [[nodiscard]] PeerDoor& peers() { return peers_; }
    [[nodiscard]] Deadlines& deadlines() { return deadlines_; }
    [[nodiscard]] Counters& counters() { return counters_; }
    [[nodiscard]] Head& head() { return head_; }
    [[nodiscard]] Route& route() { return route_; }
    [[nodiscard]] TargetParts& parts() { return parts_; }
    [[nodiscard]] char* read_buffer() { return read_buffer_.data(); }
    // Numbers of WebSockets are used once in this process.
    [[nodiscard]] std::uint64_t next_socket() { return ++last_socket_; }
    void know(Socket& socket) { sockets_.emplace(socket.number(), &socket); }
    void forget(const Socket& socket) { sockets_.erase(socket.number()); }
    // Bytes that all WebSockets keep.
    [[nodiscard]] std::size_t charged() const { return charged_; }
    void charge(std::size_t before, std::size_t now) { charged_ = charged_ - before + now; }
    void flush_later(Connection& connection);
    // The connection has called uv_close.
    void closing(Connection& connection);
    // The loop has let go of it: deletes it.
    void closed(Connection* connection);

private:
    struct Listener {
        uv_tcp_t tcp{};
        Server* server = nullptr;
        DoorFor door = DoorFor::Everybody;
    };

    void on_connection(Listener& listener, int status);
    // The limit that one more connection, already in the table, breaks; empty: none.
    [[nodiscard]] std::string_view broken_limit(const Connection& connection, bool room);
    void on_timer();
    void tell_counters(std::int64_t now);
    [[nodiscard]] std::int64_t next_due_ns() const;

    uv_loop_t& loop_;
    Settings settings_;
    std::string tenant_;
    std::unique_ptr<TlsKeys> tls_;
    sdk::Context& context_;
    Requests requests_;
    PeerDoor peers_;
    Deadlines deadlines_;
    Counters counters_;
    // Scratch: what one call needs and no longer.
    Head head_;
    Route route_;
    TargetParts parts_;
    std::array<char, kReadBytes> read_buffer_{};

    std::vector<std::unique_ptr<Listener>> listeners_;
    std::vector<Connection*> connections_;  // open ones
    std::size_t closing_ = 0;               // uv_close called, not yet let go
    std::size_t turned_away_ = 0;           // of both, those that were told a limit
    std::vector<Connection*> to_flush_;
    std::unordered_map<std::string, std::size_t> clients_;  // connections, by client_key
    std::unordered_map<std::uint64_t, Socket*> sockets_;    // open ones
    std::uint64_t last_socket_ = 0;
    std::size_t charged_ = 0;
    uv_timer_t timer_{};
    std::int64_t armed_ns_ = kNever;
    std::int64_t told_ns_ = 0;  // when the counters were last told
    bool shedding_ = false;
    std::int64_t give_up_ns_ = kNever;
};

}  // namespace hf::gateway
