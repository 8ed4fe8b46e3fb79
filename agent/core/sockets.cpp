#include "agent/core/sockets.hpp"

namespace hf::core {

std::uint64_t Sockets::add(const Socket& socket) {
    const auto name = std::pair(socket.gateway, socket.theirs);
    if (!numbers_.emplace(name, last_ + 1).second) return 0;
    sockets_.emplace(++last_, socket);
    return last_;
}

Socket* Sockets::find(std::uint64_t number) {
    const auto it = sockets_.find(number);
    return it == sockets_.end() ? nullptr : &it->second;
}

std::uint64_t Sockets::number_of(Handle gateway, std::uint64_t theirs) const {
    const auto it = numbers_.find({gateway, theirs});
    return it == numbers_.end() ? 0 : it->second;
}

void Sockets::remove(std::uint64_t number) {
    const auto it = sockets_.find(number);
    if (it == sockets_.end()) return;
    numbers_.erase({it->second.gateway, it->second.theirs});
    sockets_.erase(it);
}

std::vector<std::uint64_t> Sockets::of_gateway(Handle gateway) const {
    std::vector<std::uint64_t> out;
    for (auto it = numbers_.lower_bound({gateway, 0});
         it != numbers_.end() && it->first.first == gateway;
         ++it)
        out.push_back(it->second);
    return out;
}

}  // namespace hf::core
