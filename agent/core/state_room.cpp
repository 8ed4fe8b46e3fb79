#include "agent/core/state_room.hpp"

namespace hf::core {

bool StateRoom::fits(std::size_t bytes) const {
    return bytes_ == 0 || (bytes_ < bytes_max_ && bytes <= bytes_max_ - bytes_);
}

bool StateRoom::take(UnitId unit, std::size_t bytes) {
    if (holders_.contains(unit)) return true;
    if (const auto at = tickets_.find(unit); at != tickets_.end()) {
        line_.at(at->second).bytes = bytes;
        return false;
    }
    if (line_.empty() && fits(bytes)) {
        holders_.emplace(unit, bytes);
        bytes_ += bytes;
        return true;
    }
    tickets_.emplace(unit, ++last_ticket_);
    line_.emplace(last_ticket_, InLine{unit, bytes});
    return false;
}

void StateRoom::leave(UnitId unit) {
    if (const auto at = holders_.find(unit); at != holders_.end()) {
        bytes_ -= at->second;
        holders_.erase(at);
        return;
    }
    const auto at = tickets_.find(unit);
    if (at == tickets_.end()) return;
    line_.erase(at->second);
    tickets_.erase(at);
}

std::optional<UnitId> StateRoom::next() {
    if (line_.empty() || !fits(line_.begin()->second.bytes)) return std::nullopt;
    const InLine first = line_.begin()->second;
    line_.erase(line_.begin());
    tickets_.erase(first.unit);
    holders_.emplace(first.unit, first.bytes);
    bytes_ += first.bytes;
    return first.unit;
}

}  // namespace hf::core
