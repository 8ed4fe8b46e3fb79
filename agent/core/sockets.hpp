// The WebSockets of this node: which actor each belongs to and which gateway carries it. The actor may leave memory while
// its sockets stay; a unit with open sockets is not forgotten. Bounded by limits.sockets_max.
//
// And how much goes to a gateway at once: an actor may say one thing to a thousand clients in a microsecond, a gateway needs
// milliseconds for it. What is sent goes in portions; the next one waits for the gateway's word that it has room.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "abi/base/handle.hpp"
#include "agent/core/types.hpp"

namespace hf::core {

struct Socket {
    Handle gateway;
    std::uint64_t theirs = 0;  // the gateway's number
    UnitId unit = 0;
    bool open = false;  // the actor accepted it and the client was told
};

// Of what a gateway's ring takes for messages, 4 MiB, an eighth; what waits for the ring is less, because a message to many
// waits once. One output may go beyond it by itself.
inline constexpr std::size_t kPortionBytes = 512 * 1024;
// What a message takes there beside its bytes: head, envelope and number, rounded up so that a portion is at most 2048
// messages, half of what may wait for a ring.
inline constexpr std::size_t kSocketSendBytes = 256;

class Sockets {
public:
    // Numbers given out are above `first`, so that those of an earlier incarnation name nothing.
    void begin(std::uint64_t incarnation) { last_ = incarnation << 40U; }
    // The node's number; 0 when the gateway uses one of its numbers twice.
    std::uint64_t add(const Socket& socket);
    [[nodiscard]] Socket* find(std::uint64_t number);
    // 0: there is none.
    [[nodiscard]] std::uint64_t number_of(Handle gateway, std::uint64_t theirs) const;
    void remove(std::uint64_t number);
    [[nodiscard]] std::vector<std::uint64_t> of_gateway(Handle gateway) const;
    // The open ones of a unit; looks at all.
    [[nodiscard]] std::vector<std::uint64_t> of_unit(UnitId unit) const;
    [[nodiscard]] std::size_t size() const { return sockets_.size(); }

    // Counts messages to `connections` sockets with `bytes` each. True: the portion is full with it, ask for room.
    [[nodiscard]] bool sent(Handle gateway, std::size_t connections, std::size_t bytes);
    // Whether nothing more may be sent before it has room; and whether that is so for any.
    [[nodiscard]] bool is_full(Handle gateway) const;
    [[nodiscard]] bool any_full() const { return full_ != 0; }
    // It has room, or is gone. False: nobody had asked.
    bool emptied(Handle gateway);

private:
    std::map<std::uint64_t, Socket> sockets_;
    std::map<std::pair<Handle, std::uint64_t>, std::uint64_t> numbers_;
    std::map<Handle, std::size_t> portions_;  // bytes sent to each
    std::size_t full_ = 0;                    // of them, those beyond kPortionBytes
    std::uint64_t last_ = 0;
};

}  // namespace hf::core
