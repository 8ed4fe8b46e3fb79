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

std::vector<std::uint64_t> Sockets::of_unit(UnitId unit) const {
    std::vector<std::uint64_t> out;
    for (const auto& [number, socket] : sockets_)
        if (socket.open && socket.unit == unit) out.push_back(number);
    return out;
}

bool Sockets::sent(Handle gateway, std::size_t connections, std::size_t bytes) {
    std::size_t& portion = portions_[gateway];
    const bool was_full = portion >= kPortionBytes;
    portion += connections * (bytes + kSocketSendBytes);
    if (was_full || portion < kPortionBytes) return false;
    ++full_;
    return true;
}

bool Sockets::is_full(Handle gateway) const {
    const auto it = portions_.find(gateway);
    return it != portions_.end() && it->second >= kPortionBytes;
}

bool Sockets::emptied(Handle gateway) {
    const bool was_full = is_full(gateway);
    if (was_full) --full_;
    portions_.erase(gateway);
    return was_full;
}

}  // namespace hf::core
