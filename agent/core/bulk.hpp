// How many large bodies are open on this node, and how many bytes: those of events that are not decided yet, of answers
// that wait for the store, and of answers that a gateway is still sending. Counts and bounds; moves nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "abi/base/handle.hpp"
#include "agent/core/attachment.hpp"

namespace hf::core {

// Each is a descriptor of the daemon, whose other ones are about a dozen per instance; 1024 is what a process usually may
// have.
inline constexpr std::size_t kBulkBodiesMax = 256;

class Bulk {
public:
    explicit Bulk(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}

    // What is open stays open.
    void limit(std::uint64_t bytes_max) { bytes_max_ = bytes_max; }

    // Why one more of this size is not taken now; empty: it is.
    [[nodiscard]] std::string no_room_for(std::uint64_t bytes) const;

    // Counted until the last copy is gone.
    struct Counted;
    using Held = std::shared_ptr<const Counted>;
    [[nodiscard]] Held hold(const AttachmentRef& body);

    // A gateway was given it as the answer to its request: counted until released() or the gateway's end.
    void lend(Handle gateway, std::uint64_t req_id, const AttachmentRef& body);
    // False: that gateway has no such answer.
    bool released(Handle gateway, std::uint64_t req_id) {
        return lent_.erase({gateway, req_id}) != 0;
    }
    void gateway_gone(Handle gateway);

    [[nodiscard]] std::uint64_t bytes() const { return open_->bytes; }
    [[nodiscard]] std::size_t count() const { return open_->count; }

private:
    struct Open {
        std::uint64_t bytes = 0;
        std::size_t count = 0;
    };
    std::uint64_t bytes_max_;
    std::shared_ptr<Open> open_ = std::make_shared<Open>();  // what is held may outlive this
    std::map<std::pair<Handle, std::uint64_t>, Held> lent_;
};

}  // namespace hf::core
