// What this process has counted since its start, by name, for the supervisor's /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hf::gateway {

enum class Count : std::uint8_t {
    ConnectionsOpened,
    ConnectionsClosed,
    ConnectionsRefused,  // connections_max
    Requests,
    Answers2xx,
    Answers3xx,
    Answers4xx,
    Answers5xx,
    RefusedMalformed,  // what the gate refused, but for the limits below
    RefusedHeader,     // header_bytes_max, header_count_max
    RefusedTarget,     // target_bytes_max
    RefusedBody,       // body_bytes_max
    RefusedOpen,       // requests_open_max
    TimedOutHead,
    TimedOutBody,
    TimedOutRequest,  // no answer came: 504 by the gateway itself
    TimedOutWrite,
    ClientsGone,     // while their request was open
    LateAnswers,     // nobody waited for them any more
    ClientsRefused,  // connections_per_client_max
    SocketsOpened,   // accepted by their actor; those open now are this less SocketsClosed
    SocketsClosed,
    SocketsRefused,  // sockets_max, and handshakes that are none
    SocketMessagesIn,
    SocketMessagesOut,
    SocketMessagesDropped,  // the client was gone
    // Why sockets were closed: together SocketsClosed.
    SocketsByClient,
    SocketsByActor,     // CloseSocket, or a message it did not take
    SocketsBroken,      // the connection ended without a close
    SocketsMalformed,   // frames or text that are none: 1002, 1007
    SocketsTooLarge,    // message_bytes_max: 1009
    SocketsUnread,      // socket_buffer_max, sockets_memory_max, a message sent too slowly: 1008
    SocketsNoPong,      // pong_timeout: 1011
    SocketsUnanswered,  // the supervisor did not take a message in time: 1011, 1013
    SocketsShed,        // this process ends: 1012
    LargeUploads,       // bodies that were taken as files
    LargeDownloads,     // and answers that were sent from one, to the end
    RefusedMemory,      // bodies_memory_max
    PeerCalls,          // to other nodes; each ends as one of the next three
    PeerCallsAnswered,
    PeerCallsNotSent,
    PeerCallsUnknown,
    PeerCallsTaken,    // of other nodes, let in
    PeerCallsRefused,  // and not let in
};
inline constexpr std::size_t kCounts = 44;

inline constexpr std::array<std::string_view, kCounts> kCountNames{"http_connections_opened",
                                                                   "http_connections_closed",
                                                                   "http_connections_refused",
                                                                   "http_requests",
                                                                   "http_answers_2xx",
                                                                   "http_answers_3xx",
                                                                   "http_answers_4xx",
                                                                   "http_answers_5xx",
                                                                   "http_refused_malformed",
                                                                   "http_refused_header",
                                                                   "http_refused_target",
                                                                   "http_refused_body",
                                                                   "http_refused_requests_open",
                                                                   "http_timed_out_head",
                                                                   "http_timed_out_body",
                                                                   "http_timed_out_request",
                                                                   "http_timed_out_write",
                                                                   "http_clients_gone",
                                                                   "http_late_answers",
                                                                   "http_clients_refused",
                                                                   "http_sockets_opened",
                                                                   "http_sockets_closed",
                                                                   "http_sockets_refused",
                                                                   "http_socket_messages_in",
                                                                   "http_socket_messages_out",
                                                                   "http_socket_messages_dropped",
                                                                   "http_sockets_closed_by_client",
                                                                   "http_sockets_closed_by_actor",
                                                                   "http_sockets_broken",
                                                                   "http_sockets_malformed",
                                                                   "http_sockets_too_large",
                                                                   "http_sockets_unread",
                                                                   "http_sockets_no_pong",
                                                                   "http_sockets_unanswered",
                                                                   "http_sockets_shed",
                                                                   "http_large_uploads",
                                                                   "http_large_downloads",
                                                                   "http_refused_bodies_memory",
                                                                   "http_peer_calls",
                                                                   "http_peer_calls_answered",
                                                                   "http_peer_calls_not_sent",
                                                                   "http_peer_calls_unknown",
                                                                   "http_peer_calls_taken",
                                                                   "http_peer_calls_refused"};

class Counters {
public:
    void add(Count what) {
        ++values_[static_cast<std::size_t>(what)];
        changed_ = true;
    }
    void add_answer(std::uint16_t status) {
        add(status < 300   ? Count::Answers2xx
            : status < 400 ? Count::Answers3xx
            : status < 500 ? Count::Answers4xx
                           : Count::Answers5xx);
    }
    [[nodiscard]] std::uint64_t value(std::size_t index) const { return values_[index]; }
    [[nodiscard]] bool changed() const { return changed_; }
    void told() { changed_ = false; }

private:
    std::array<std::uint64_t, kCounts> values_{};
    bool changed_ = false;
};

}  // namespace hf::gateway
