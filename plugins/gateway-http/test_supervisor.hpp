// Plays the supervisor to one gateway process, for tests and for measuring: opens the listener, starts the binary over a
// real link, and answers its requests on a thread of its own. What an "actor" does is in its class:
//   fixed    100 bytes
//   echo     its event, as "method url|name=value...|body"
//   body     the request's body, as it came
//   hold     nothing until release()
//   reason   the ReplyReason whose number is the name
//   status   the status that is the name
//   header   an answer whose header `x` is the name
//   size     as many bytes as the name says
//   large    the same as a file beside the record: pattern()
// and of one that is asked for a WebSocket (any other class answers as above, which refuses it unless the status is 101):
//   chat     says what it hears, but for texts that begin with "!" (test_sockets.cpp)
//   slow     takes no message until take()
//   late     does not answer until release(), then accepts
//   choose   chooses the subprotocol that is the name
//   extra    accepts with the header `x`, which is the name
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/port/channel.hpp"
#include "tests/abi/rig.hpp"

namespace hf::gateway {

inline constexpr unsigned kSwitching = 101;
Bytes one_header(std::string_view name, std::string_view value);
// Byte i of a large answer.
inline char pattern(std::uint64_t i) {
    return static_cast<char>(i % 251);
}
// An event as "method url|name=value...|body"; `body` views into it.
std::string describe_event(BytesView event, std::string_view& body);
// "request of a", "message of a, source s, n 3, http, last" and so on.
std::string describe_origin(const abi::PeerOrigin& origin);

class TestSupervisor {
public:
    struct Options {
        std::string binary;  // HOLDFAST_TEST_GATEWAY in the environment wins over it
        std::vector<std::pair<std::string, std::string>> settings;
        std::uint16_t port = 0;  // 0: the system chooses
        std::string node = "test-node";
        bool second_listener = false;                    // cluster_port()
        port::ChannelSizes sizes{4U << 20U, 4U << 20U};  // as the daemon gives a gateway
    };
    explicit TestSupervisor(const Options& options);
    ~TestSupervisor();
    TestSupervisor(const TestSupervisor&) = delete;
    TestSupervisor& operator=(const TestSupervisor&) = delete;

    [[nodiscard]] bool ready() const { return ready_; }
    [[nodiscard]] const std::string& error() const { return error_; }  // of Ready, or of the link
    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] std::uint16_t cluster_port() const { return cluster_port_; }
    [[nodiscard]] pid_t pid() const { return child_.pid(); }
    // What the process keeps in memory now.
    [[nodiscard]] std::uint64_t memory_kib() const;
    // Says and takes for true what a sanitizer makes meaningless: it keeps what was freed.
    [[nodiscard]] bool keeps_less_than(std::uint64_t kib) const;

    // What is asked of another node by this one (test_peer.cpp).
    struct PeerAsked {
        std::string peer;
        std::string target = "b";
        std::string class_name = "echo";
        std::string name = "n";
        Bytes event = {};
        abi::PeerAsk ask = abi::PeerAsk::Request;
        std::vector<std::string> chain = {};
        std::string source = {};
        std::uint64_t n = 0;
        bool http = false;
        bool last = false;
        std::int64_t due_ms = 0;
        std::uint64_t nonce = 0;
        std::int64_t within_ms = 10'000;
        std::string large = {};  // the body, in a file
    };
    struct PeerSaid {
        abi::PeerOutcome outcome = abi::PeerOutcome::Unknown;
        unsigned status = 0;
        abi::ReplyReason reason = abi::ReplyReason::Ok;
        std::uint32_t retry_after_ms = 0;
        std::map<std::string, std::string> headers;
        std::string body;  // wherever it came
        std::string text;
        bool large = false;
    };

    struct Closed {
        std::uint64_t connection = 0;
        unsigned code = 0;
        std::string reason;
    };
    // What the thread has seen.
    struct Seen {
        std::uint64_t turns = 0;  // of the thread: messages of the process, commands
        std::uint64_t requests = 0;
        std::uint64_t queries = 0;
        std::uint64_t held = 0;  // not released yet
        std::uint64_t cancelled = 0;
        std::vector<std::string> logs;
        std::map<std::string, std::uint64_t> counters;
        std::string fault;             // of the link
        std::string client;            // of the last request
        std::int64_t deadline_ns = 0;  // of the last request
        bool durable = false;          // of the last request
        std::string opened;         // the last event that asked for a WebSocket, as `echo` says it
        std::uint64_t sockets = 0;  // accepted
        std::vector<std::string> messages;  // of all WebSockets, behind 't' or 'b'
        std::uint64_t open_messages = 0;    // not taken yet
        bool two_at_once = false;           // of one WebSocket: must never be
        std::vector<Closed> closed;
        std::vector<std::string> heard;     // messages, and "c<code>" for closes, in order
        std::vector<std::uint64_t> bodies;  // sizes of large ones that came
        std::uint64_t released = 0;         // large answers that the gateway is done with
        std::vector<std::string> origins;   // of requests that another node passed on, described
        std::map<std::uint64_t, PeerSaid> said;  // answers to call_peer, by its number
    };
    [[nodiscard]] Seen seen();
    // Waits until `done`, looking whenever the thread has seen something; false when the time is up.
    bool wait_until(const std::function<bool(const Seen&)>& done,
                    std::chrono::milliseconds patience = std::chrono::seconds(10));

    // Its number.
    std::uint64_t call_peer(PeerAsked asked);
    // The answer to it.
    PeerSaid peer_said(std::uint64_t number);

    void release();  // answers everything held
    void take();     // takes every message that waits
    void say(std::uint64_t connection, bool binary, const std::string& text);
    void close(std::uint64_t connection, unsigned code, const std::string& reason);
    void shed(std::int64_t within_ms);  // 0: without a deadline
    void stop();
    // The exit code of the process, which must end by itself; -1: it did not within 10 s, or was killed.
    int exit_code();

private:
    void run();
    void handle(const port::Received& received);
    void handle_request(std::uint64_t id,
                        const abi::Request& request,
                        const std::shared_ptr<const port::SealedBody>& attached);
    void handle_peer_replied(const port::Received& received);
    void reply_large(std::uint64_t id, std::shared_ptr<const port::SealedBody> body);
    void handle_opened(std::uint64_t id, const abi::SocketOpened& opened);
    void handle_message(std::uint64_t id, const abi::SocketMessage& message);
    void handle_closed(const abi::SocketClosed& closed);
    void obey(std::uint64_t id, std::uint64_t connection, const std::string& order);
    void taken(std::uint64_t id, bool ok = true, unsigned code = 0, const std::string& text = {});
    void send(std::uint64_t connection, bool binary, const std::string& text);
    void send_close(std::uint64_t connection, unsigned code, const std::string& reason);
    void answer_as(const std::string& class_name,
                   const std::string& name,
                   std::uint64_t id,
                   BytesView event,
                   std::string_view client);
    void reply(std::uint64_t id, unsigned status, BytesView headers, BytesView body);
    void command(std::function<void()> what);

    Options options_;
    UniqueFd listener_;
    UniqueFd cluster_listener_;
    UniqueFd bell_;  // wakes the thread for commands
    std::uint16_t port_ = 0;
    std::uint16_t cluster_port_ = 0;
    std::atomic<std::uint64_t> peer_calls_ = 0;
    port::SegmentPool pool_;
    std::unique_ptr<port::Channel> channel_;
    rig::Child child_;
    std::atomic<bool> ready_ = false;
    std::atomic<bool> ends_ = false;
    std::string error_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Seen seen_;
    std::vector<std::uint64_t> held_;
    std::vector<std::uint64_t> late_;                            // requests for WebSockets
    std::vector<std::pair<std::uint64_t, std::uint64_t>> slow_;  // messages: request, connection
    std::vector<std::function<void()>> commands_;
    std::thread thread_;
};

}  // namespace hf::gateway
