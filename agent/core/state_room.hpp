// Whose state is on its way between store and runtimes, and how many bytes that is: a load from its listing until the runtime
// has the state, a base from the question for it until the store has it. They lie in this process's memory meanwhile, some of
// them several times, so all together are bounded; who finds no room stands in line and is told when it has come. One that is
// larger than all the room goes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "agent/core/types.hpp"

namespace hf::core {

class StateRoom {
public:
    explicit StateRoom(std::size_t bytes_max) : bytes_max_(bytes_max) {}

    // What is on its way stays so.
    void limit(std::size_t bytes_max) { bytes_max_ = bytes_max; }

    // True: the unit has room, from now on or still. False: it stands in line, for `bytes`.
    [[nodiscard]] bool take(UnitId unit, std::size_t bytes);
    // Gives back what it has, or its place in line.
    void leave(UnitId unit);
    // The first in line, when there is room for it: it has that now.
    [[nodiscard]] std::optional<UnitId> next();

    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    [[nodiscard]] std::size_t waiting() const { return line_.size(); }

private:
    struct InLine {
        UnitId unit = 0;
        std::size_t bytes = 0;
    };
    [[nodiscard]] bool fits(std::size_t bytes) const;

    std::size_t bytes_max_;
    std::size_t bytes_ = 0;
    std::uint64_t last_ticket_ = 0;
    std::unordered_map<UnitId, std::size_t> holders_;
    std::map<std::uint64_t, InLine> line_;  // by ticket
    std::unordered_map<UnitId, std::uint64_t> tickets_;
};

}  // namespace hf::core
