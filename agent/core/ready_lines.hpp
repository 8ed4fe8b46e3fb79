// Which units have something to send to one runtime and wait for a place in flight: a line for each class, served in turn.
// No class takes all places, however long its handlers run: with several classes a quarter of them is left to the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "agent/core/types.hpp"

namespace hf::core {

class ReadyLines {
public:
    // Of `places` in flight, what one of `classes` classes may have.
    [[nodiscard]] static std::uint32_t share(std::uint32_t places, std::size_t classes) {
        return classes < 2 ? places : std::max<std::uint32_t>(1, places - places / 4);
    }

    void wait(std::size_t class_index, UnitId unit) {
        line(class_index).units.push_back(unit);
        ++waiting_;
    }
    // The next unit of a class that has fewer than `share` places; 0: none. One may be named that does not wait any more.
    [[nodiscard]] UnitId next(std::uint32_t share) {
        if (waiting_ == 0) return 0;
        for (std::size_t i = 0; i < lines_.size(); ++i) {
            const std::size_t at = (turn_ + i) % lines_.size();
            Line& line = lines_[at];
            if (line.units.empty() || line.places >= share) continue;
            const UnitId unit = line.units.front();
            line.units.pop_front();
            --waiting_;
            turn_ = at + 1;
            return unit;
        }
        return 0;
    }
    // Whether a unit of that class need not wait behind others of its class.
    [[nodiscard]] bool open(std::size_t class_index, std::uint32_t share) {
        const Line& own = line(class_index);
        return own.units.empty() && own.places < share;
    }
    void take_place(std::size_t class_index) { ++line(class_index).places; }
    void give_place(std::size_t class_index) { --line(class_index).places; }
    [[nodiscard]] std::size_t waiting() const { return waiting_; }

private:
    struct Line {
        std::deque<UnitId> units;
        std::uint32_t places = 0;  // in flight
    };
    Line& line(std::size_t class_index) {
        if (class_index >= lines_.size()) lines_.resize(class_index + 1);
        return lines_[class_index];
    }
    std::vector<Line> lines_;
    std::size_t waiting_ = 0;
    std::size_t turn_ = 0;  // whose turn it is first
};

}  // namespace hf::core
