// The supervisor's end of one link: segments, bells, control socket, credits. Bytes and verified tables only; what the
// messages mean is the translator's business (translate.hpp). One Channel = one generation of one instance.
//
// The peer is hostile until proven otherwise: whatever it writes, drain() answers a Fault and never crashes, blocks or
// believes. After a Fault or the peer's death the channel is drained once to its final tail, then destroyed.
// Loop thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/handle.hpp"
#include "abi/base/limits.hpp"
#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "agent/core/attachment.hpp"
#include "envelope_generated.h"

namespace hf::port {

// Sizes of the two rings; powers of two. The pool keeps pre-populated pairs for each distinct size.
struct ChannelSizes {
    std::uint32_t to_plugin_bytes = 1U << 20U;    // S
    std::uint32_t from_plugin_bytes = 4U << 20U;  // P
};

// What answers to one gateway may take, in its ring and beyond that in this process's memory: 1024 open requests, the
// default of requests_open_max, with the largest answer each.
inline constexpr std::uint32_t kGatewayCreditBytes = 1024U * (kRecordBytesMax + 1024U);

// Makes segments ahead of need on a helper thread: populating costs 0.85 ms per MiB. Bounded: two pairs per size.
class SegmentPool {
public:
    SegmentPool();
    ~SegmentPool();
    SegmentPool(const SegmentPool&) = delete;
    SegmentPool& operator=(const SegmentPool&) = delete;
    // Asks for spare pairs of this size to be kept ready.
    void keep(const ChannelSizes& sizes);
    struct State;
    [[nodiscard]] State& state() { return *state_; }

private:
    std::unique_ptr<State> state_;
};

// A large body: its descriptor was judged when it came in, and nobody can change what is behind it. Never mapped, and only
// passed on, but for a unit's state, which the core keeps (large.hpp); closed with its last owner.
class SealedBody final : public core::Attachment {
public:
    SealedBody(UniqueFd file, std::uint64_t bytes)
        : core::Attachment(bytes), file_(std::move(file)) {}
    [[nodiscard]] int fd() const { return file_.get(); }

private:
    UniqueFd file_;
};

// A verified record from the instance; pointers stay good until the handler returns.
struct Received {
    std::uint64_t req_id =
        0;  // its own request (a gateway's Request, Query, ...); 0 for one-way and replies
    std::uint64_t reply_to = 0;  // the request of ours that this answers
    std::uint64_t trace_id = 0;
    std::int64_t deadline_ns = 0;
    abi::Body type = abi::Body::NONE;
    const void* body = nullptr;
    std::shared_ptr<const SealedBody> attached = nullptr;  // what its body_token names
    template <class T>
    [[nodiscard]] const T& as() const {
        // SAFETY: drain() verified the record and that `type` names the table.
        return *static_cast<const T*>(body);
    }
};

enum class Sent {
    Now,       // in the ring
    Queued,    // waits in private memory for credit or ring room; goes out by itself, in order
    Busy,      // the private queue is full by count or bytes: nothing was kept
    TooLarge,  // beyond the record's limit, or an answer beyond its type's reply_max: nothing was kept, an answer is still due
    NoFile,    // no memory file can be made for what no record holds: nothing was kept
};

class Channel {
public:
    static Result<std::unique_ptr<Channel>> create(SegmentPool& pool,
                                                   const ChannelSizes& sizes,
                                                   std::uint64_t generation,
                                                   abi::Kind kind);
    virtual ~Channel() = default;

    // The plugin's end of the control socket: becomes descriptor 3 of the jailed process. Taken once.
    virtual UniqueFd take_plugin_end() = 0;
    // Sends the attach message with the link's descriptors and `extra` (name, fd); the fds stay ours.
    virtual Result<void> attach(const std::vector<std::pair<std::string, int>>& extra) = 0;

    [[nodiscard]] virtual int bell_fd() const = 0;
    [[nodiscard]] virtual int control_fd() const = 0;  // HUP is a secondary sign of death

    virtual flatbuffers::FlatBufferBuilder& builder() = 0;
    // What is being built carries `body`: the answer is its body_token, and the next request or reply takes it along.
    [[nodiscard]] virtual std::uint64_t carry(std::shared_ptr<const SealedBody> body) = 0;
    // A request of ours; req_id is the caller's, unique in this generation. Reserves the type's reply_max of P.
    template <class T>
    Sent request(std::uint64_t req_id,
                 flatbuffers::Offset<T> body,
                 std::int64_t deadline_ns,
                 std::uint64_t trace_id) {
        return send(abi::BodyTraits<T>::enum_value, body.Union(), req_id, 0, deadline_ns, trace_id);
    }
    // Answers a request of the instance. Always taken: it reserved the room. Queued when the ring is full, and never
    // behind requests, so that an instance which needs it to go on gets it.
    template <class T>
    Sent reply(std::uint64_t reply_to, flatbuffers::Offset<T> body) {
        return send(abi::BodyTraits<T>::enum_value, body.Union(), 0, reply_to, 0, 0);
    }
    template <class T>
    Sent notify(flatbuffers::Offset<T> body) {
        return send(abi::BodyTraits<T>::enum_value, body.Union(), 0, 0, 0, 0);
    }
    // One SocketSend to each of these connections, a record each, in their order. `body` is built once, with kAnyConnection;
    // what has to wait is kept once, with the numbers that are left. Busy: some may be in the ring.
    static constexpr std::uint64_t kAnyConnection = ~std::uint64_t{0};
    virtual Sent notify_each(flatbuffers::Offset<abi::SocketSend> body,
                             std::span<const std::uint64_t> connections) = 0;

    // Publishes everything sent since the last flush and rings if the peer sleeps. Once per loop turn.
    virtual void flush() = 0;

    // Hands over up to `budget` records. More waits when it returns true. A broken rule is a failure whose message names
    // the rule; the channel then hands over nothing more. Replies to ids never asked are such a failure, so is a second
    // answer, a message not allowed for the kind, a gap in seq, a wrong generation, a large body that is not one.
    virtual Result<bool> drain(std::size_t budget,
                               const std::function<void(const Received&)>& handler) = 0;
    // Drains what a dead peer published, without budget.
    virtual Result<void> drain_final(const std::function<void(const Received&)>& handler) = 0;

    // Wake policy: call before the loop blocks. False: records came, drain again instead of blocking.
    [[nodiscard]] virtual bool before_block() = 0;
    // The same for all links of one loop at once: one spin looks at all of them, so that none waits for another's turn.
    // False: at least one has records, drain all of them again.
    [[nodiscard]] static bool before_block_all(std::span<Channel* const> channels);

    // Open requests of ours, oldest first, with their type; for PeerDied after the final drain.
    [[nodiscard]] virtual std::vector<std::pair<std::uint64_t, abi::Body>> open_requests()
        const = 0;
    // Forgets an open request whose caller gave up; a late answer is then dropped and counted, not a fault.
    virtual void abandon(std::uint64_t req_id) = 0;

    // Liveness as the instance publishes it: allegations, for reports and the stall detector only.
    [[nodiscard]] virtual std::uint64_t progress()
        const = 0;  // bumped at each batch and each current change
    [[nodiscard]] virtual std::uint64_t current_request() const = 0;  // 0: idle
    [[nodiscard]] virtual unsigned forbidden_syscall()
        const = 0;  // 0, or number + 1 stored by the second filter

    struct Usage {
        std::uint64_t to_plugin_bytes = 0, from_plugin_bytes = 0;  // in the rings now
        // In private memory; of one message to many, one record and the numbers that are left.
        std::uint64_t queued_records = 0, queued_bytes = 0;
        std::uint64_t open_requests = 0;  // of ours, those given up not counted
        std::uint64_t late_answers = 0;   // came after abandon() and were dropped, since the start
    };
    [[nodiscard]] virtual Usage usage() const = 0;

protected:
    virtual Sent send(abi::Body type,
                      flatbuffers::Offset<void> body,
                      std::uint64_t req_id,
                      std::uint64_t reply_to,
                      std::int64_t deadline_ns,
                      std::uint64_t trace_id) = 0;
};

}  // namespace hf::port
