// What this process asks and tells the supervisor, and the answers. Responsible for the bounds of it, for keeping what
// found no credit in order, and for tokens that outlive their connection: the answer to a request whose client is gone, or
// was told 504, still comes, and is dropped here; a WebSocket that is accepted then is closed at once.
// If the supervisor dies the process ends with it; if this process dies every request of it is answered by nobody
// (replay: never), and the successor starts with none.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/check.hpp"
#include "abi/base/unique_fd.hpp"
#include "abi/sdk/plugin.hpp"
#include "plugins/gateway-http/peer_text.hpp"

namespace hf::gateway {

// Large bodies that one gateway keeps a descriptor of at once, each way; the node keeps no more either.
inline constexpr std::size_t kLargeBodiesMax = 256;
// What a client hears when the system has no memory or descriptor for its body.
inline constexpr std::string_view kNotKept =
    "this machine has no room to keep the body; nothing was done";

enum class Say : std::uint8_t {
    Request,        // an actor's event
    Page,           //
    SocketOpened,   // an event that asks for a WebSocket
    SocketMessage,  //
    SocketClosed,   // told, not asked, as the next
    BodyReleased,   // a large answer is with its client, or nobody wants it
};

// A request's body that is too large for its event: in a memory file, counted against bodies_memory_max from here until the
// request is answered or dropped.
struct Upload {
    UniqueFd file;
    std::uint64_t bytes = 0;     // in the file
    std::uint64_t reserved = 0;  // counted; 0: the body lies in the event
};

// An answer's body that came as a memory file. Its end has to be told: tell_released.
struct Download {
    UniqueFd file;  // invalid: there is none
    std::uint64_t bytes = 0;
    std::uint64_t at = 0;  // what was read of it
    std::uint64_t request_id = 0;
};

// What is to be asked or told.
struct Draft {
    Say say = Say::Request;
    Bytes event;                 // or the message's data
    std::size_t head_bytes = 0;  // of the event, as begin_event left it
    Upload upload;
    std::string class_name;
    std::string name;
    std::string client;
    bool durable = false;
    std::optional<Origin> origin;  // Request: the node that asks
    std::string_view page;         // a literal
    std::uint64_t socket = 0;      // its number, for Socket...; BodyReleased: the request's
    bool binary = false;
    std::uint16_t code = 0;  // SocketClosed
    std::string reason;
    std::int64_t deadline_ns = 0;
};

// Who waits for an answer.
class Asker {
public:
    virtual void answered(const abi::Reply& /*reply*/, Download /*body*/) {}
    virtual void answered(const abi::Queried& /*queried*/) {}
    virtual void answered(const abi::SocketTaken& /*taken*/) {}

protected:
    Asker() = default;
    ~Asker() = default;

private:
    friend class Requests;
    std::uint64_t request_id_ = 0;  // 0: none in the ring
    bool queued_ = false;           // waits for credit
};

// True: the actor takes the WebSocket that this answers.
[[nodiscard]] bool is_accepted(const abi::Reply& reply);

class Requests {
public:
    Requests(std::size_t open_max,
             std::size_t sockets_max,
             std::uint64_t uploads_bytes_max,
             sdk::Context& context);

    // Takes one of the places; false: all are taken. A place is held from here until the answer, or give_back().
    // A WebSocket's messages need none: there is one at a time for each.
    [[nodiscard]] bool take_place();
    void give_back() {
        HF_CHECK(open_ > 0, "a place is given back once");
        --open_;
    }
    [[nodiscard]] std::size_t open() const { return open_; }
    // As well for WebSockets: held until give_back_socket() or the supervisor has been told of its end.
    [[nodiscard]] bool take_socket();
    void give_back_socket() {
        HF_CHECK(sockets_ > 0, "a socket's place is given back once");
        --sockets_;
    }
    // Makes room for an upload of `bytes` in all, and its file. Empty, or the sentence for its client why there is none.
    [[nodiscard]] std::string_view grow(Upload& upload, std::uint64_t bytes);
    // An upload that is not asked with.
    void drop(Upload& upload) { give_back_upload(std::exchange(upload, {}).reserved); }
    // Everything was said.
    [[nodiscard]] bool owes_nothing() const { return queue_.empty(); }

    // A draft with all fields cleared; its buffers come from earlier ones.
    std::unique_ptr<Draft> new_draft();
    void drop_draft(std::unique_ptr<Draft> draft);
    // For a request that is asked at once.
    Draft& scratch() { return *scratch_; }

    // Asks, or queues when there is no credit. The asker's places go over to the request. `draft` may be scratch(); it is
    // empty afterwards.
    void ask(Asker& asker, Draft& draft);
    // True: it has not been asked yet, so nothing has taken effect.
    [[nodiscard]] static bool is_queued(const Asker& asker) { return asker.queued_; }
    // The asker does not wait any longer. `tell`: the supervisor hears that the client is gone. What was not asked yet
    // is not asked.
    void leave(Asker& asker, bool tell);
    // As leave, but what was not asked yet still is.
    void let_go(Asker& asker);
    // The client may be gone, but the asker still waits.
    void tell_gone(const Asker& asker);
    // An accepted WebSocket is gone. Behind everything said of it before.
    void tell_closed(std::uint64_t socket, std::uint16_t code, std::string_view reason);

    // A large answer is done with.
    void tell_released(std::uint64_t request_id);

    // False: an answer that nobody waits for any more.
    bool answer(const sdk::Message& message);
    // Credit may have come: asks and tells what is queued.
    void retry();

private:
    struct Queued {
        Asker* asker;  // null: nobody waits for the answer
        std::unique_ptr<Draft> draft;
    };
    struct Asked {
        Asker* asker;
        Say say;
        std::uint64_t socket;
        std::uint64_t reserved;  // by its upload
    };
    [[nodiscard]] Result<std::uint64_t> send(const Draft& draft);
    void sent(Asker* asker, Draft& draft, std::uint64_t id);
    void give_back_upload(std::uint64_t reserved);
    void tell(std::unique_ptr<Draft> draft);
    void accepted_too_late(std::uint64_t socket, const abi::Reply& reply);

    sdk::Context& context_;
    std::size_t open_max_;
    std::size_t open_ = 0;
    std::size_t sockets_max_;
    std::size_t sockets_ = 0;
    std::uint64_t uploads_bytes_max_;
    std::uint64_t uploads_bytes_ = 0;
    std::size_t uploads_ = 0;
    // A pool: once as many nodes were made as requests are ever open, asking allocates nothing.
    std::pmr::unsynchronized_pool_resource pool_;
    std::pmr::unordered_map<std::uint64_t, Asked> asked_;
    // At most the open requests, for each WebSocket a message and its end, and the end of each large answer.
    std::deque<Queued> queue_;
    std::unique_ptr<Draft> scratch_;
    std::vector<std::unique_ptr<Draft>> spare_;
};

}  // namespace hf::gateway
