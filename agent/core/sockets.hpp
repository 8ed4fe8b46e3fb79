// The WebSockets of this node: which actor each belongs to and which gateway carries it. The actor may leave memory while
// its sockets stay; a unit with open sockets is not forgotten. Bounded by limits.sockets_max.
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
    [[nodiscard]] std::size_t size() const { return sockets_.size(); }

private:
    std::map<std::uint64_t, Socket> sockets_;
    std::map<std::pair<Handle, std::uint64_t>, std::uint64_t> numbers_;
    std::uint64_t last_ = 0;
};

}  // namespace hf::core
