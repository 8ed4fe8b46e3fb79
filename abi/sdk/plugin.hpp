// What a plugin author writes against: one class and one `main` line.
//
//   class Mine final : public hf::sdk::Plugin { ... };
//   int main(int argc, char** argv) { return hf::sdk::run<Mine>(argc, argv); }
//
// The SDK owns the link: it attaches to the descriptor the jail left at 3, greets, verifies every record on a private
// copy, and hands over what passed. All calls below come from, and must come from, one thread (the loop thread), except
// Context::post. When the supervisor goes away the process ends; when this process dies every unanswered request is
// decided by its schema's `replay`.
//
// For placement and drain policies see policy.hpp, which turns these calls into plain structs; storage.hpp has what a storage
// plugin answers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "envelope_generated.h"

namespace hf::sdk {

// One verified message. Pointers stay good until the handler returns.
struct Message {
    std::uint64_t req_id = 0;    // to be answered with Context::reply; 0 for one-way messages
    std::uint64_t reply_to = 0;  // set when this answers our own request
    std::uint64_t trace_id = 0;
    std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC; 0: none
    abi::Body type = abi::Body::NONE;
    const void* body = nullptr;

    template <class T>
    [[nodiscard]] const T& as() const {
        // SAFETY: the SDK verified the record and T is chosen by `type`, which names the table.
        return *static_cast<const T*>(body);
    }
};

// What a plugin may do. Loop thread only, except post().
class Context {
public:
    virtual ~Context() = default;

    // A cleared builder for the next reply, notify or request. Only one message at a time is being built.
    virtual flatbuffers::FlatBufferBuilder& builder() = 0;

    // Answers a request. Cannot fail for want of room: the asker reserved reply_max bytes. A second answer to one
    // request, or one larger than reply_max, ends this process: it is a bug here.
    template <class T>
    void reply(std::uint64_t req_id, flatbuffers::Offset<T> body) {
        send_reply(req_id, abi::BodyTraits<T>::enum_value, body.Union());
    }
    // One-way message. Busy when the share of the ring for such messages is full: drop it or try later.
    template <class T>
    Result<void> notify(flatbuffers::Offset<T> body) {
        return send_notify(abi::BodyTraits<T>::enum_value, body.Union());
    }
    // Asks the supervisor; the answer arrives at Plugin::handle with reply_to = the returned id.
    // Busy: no credit left; nothing was sent.
    template <class T>
    Result<std::uint64_t> request(flatbuffers::Offset<T> body, std::int64_t deadline_ns) {
        return send_request(abi::BodyTraits<T>::enum_value, body.Union(), deadline_ns);
    }

    // Large bodies (Request, Reply, PeerCall, PeerReplied, Deliver, Delivered, Put, Got, Activate, Checkpointed: body_token). What is being built
    // carries the memory file `fd` of `bytes` bytes, written and sealed (abi/ring/bodies.hpp): put the answer into its body_token and `bytes` into its
    // body_bytes, then send it. `fd` stays the caller's and may be closed once it is sent.
    [[nodiscard]] virtual std::uint64_t carry(int fd, std::uint64_t bytes) = 0;
    // The file that the message being handled carries, judged: sealed, and of its body_bytes. Once; invalid: it carries
    // none. What is not taken is closed.
    [[nodiscard]] virtual UniqueFd take_body() = 0;

    // Publishes what this process works on, so that a death by fault is blamed on the right request (design 2.8), and that
    // it works at all: a gateway says so with 0 for each client that it lets in, or is taken for hanging when they keep
    // coming while it has no other work.
    virtual void set_current(std::uint64_t req_id) = 0;
    // Calls fn when fd is readable. Removed by unwatch or at exit.
    virtual void watch(int fd, std::function<void()> fn) = 0;
    virtual void unwatch(int fd) = 0;
    // Runs fn on the loop thread soon. Any thread.
    virtual void post(std::function<void()> fn) = 0;
    virtual void log(abi::LogLevel level, std::string_view text) = 0;
    // Descriptors passed with the attach message beyond the link's own, by name ("listener0", "store"); -1 when absent.
    [[nodiscard]] virtual int passed_fd(std::string_view name) const = 0;
    [[nodiscard]] virtual std::uint64_t generation() const = 0;
    // The node's id, known from configure() on.
    [[nodiscard]] virtual std::string_view node_id() const = 0;

protected:
    virtual void send_reply(std::uint64_t req_id,
                            abi::Body type,
                            flatbuffers::Offset<void> body) = 0;
    virtual Result<void> send_notify(abi::Body type, flatbuffers::Offset<void> body) = 0;
    virtual Result<std::uint64_t> send_request(abi::Body type,
                                               flatbuffers::Offset<void> body,
                                               std::int64_t deadline_ns) = 0;
};

struct Identity {
    abi::Kind kind = abi::Kind::None;
    std::string name;
    std::string version;
    std::vector<std::string> policies;
    std::vector<std::string> capabilities;
};

class Plugin {
public:
    virtual ~Plugin() = default;
    // Static facts, before anything else is known.
    [[nodiscard]] virtual Identity identity() const = 0;
    // Called once. Open files, start threads, load code here: after it the second filter is on (lockdown.hpp) and
    // Ready goes out. A failure is reported as Ready{ok: false} and ends the process.
    virtual Result<void> configure(const abi::Configure& configure, Context& context) = 0;
    // Every other verified message of this kind.
    virtual void handle(const Message& message) = 0;
    // Called after each batch of messages was handled, before the SDK looks for sleep: flush what was gathered.
    virtual void batch_done() {}
    // Work that waits for no message, a bounded piece of it (below a millisecond: messages wait meanwhile). Called between
    // batches; true: there is more, so the process does not sleep. Not by a Driver, whose owner has a loop of his own.
    virtual bool work() { return false; }
    // The process is about to sleep until a message or a watched descriptor wakes it.
    virtual void sleeps() {}
    // The supervisor asks to finish until then (CLOCK_MONOTONIC, 0: without a deadline). Called once, before shed_done().
    virtual void shed_started(std::int64_t deadline_ns) { (void)deadline_ns; }
    // The supervisor asks to finish: no new requests will come. Return true when nothing is open any more; the SDK asks
    // again after each batch and exits 0 then, or at the deadline.
    virtual bool shed_done() { return true; }
};

// Runs a plugin until Stop, shed or the supervisor's end. Returns the process's exit code.
int run_plugin(Plugin& plugin, int argc, char** argv);

template <class T>
int run(int argc, char** argv) {
    T plugin;
    return run_plugin(plugin, argc, argv);
}

// For a plugin with an event loop of its own (libuv in gateway-http). The owner polls fd() for reading, calls step()
// when it is readable, and calls before_block() each time its loop is about to block; when that answers false it must
// call step() again instead of blocking. should_exit() turns true after Stop, a finished shed or the supervisor's end.
class Driver {
public:
    static Result<std::unique_ptr<Driver>> attach(Plugin& plugin, int argc, char** argv);
    virtual ~Driver() = default;
    [[nodiscard]] virtual int fd() const = 0;
    virtual void step() = 0;
    [[nodiscard]] virtual bool before_block() = 0;
    [[nodiscard]] virtual bool should_exit() const = 0;
    [[nodiscard]] virtual int exit_code() const = 0;
    [[nodiscard]] virtual Context& context() = 0;
};

}  // namespace hf::sdk
