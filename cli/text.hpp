// Words for people: tables, durations, and values of unknown shape on one line. Nothing that a node, a plugin or an actor
// named can move the terminal's cursor: control characters come out as \xNN.
#pragma once

#include <chrono>
#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/wire.hpp"

namespace hf::cli {

// The text with control characters made visible.
[[nodiscard]] std::string printable(std::string_view text);

// A value on one line: "-" for nothing, yes/no, numbers as they are, lists joined by ", ", objects as "key value, ...".
[[nodiscard]] std::string line_of(const Json& value);
// The value at `key` as line_of; "-" when it is missing or `object` is no object.
[[nodiscard]] std::string field(const Json& object, std::string_view key);
// Milliseconds at `key` as a person says them ("3m 12s"); "-" when missing.
[[nodiscard]] std::string duration_field(const Json& object, std::string_view key);

// The candidate a person most likely meant: at most a third of its letters differ. Nothing when none is near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 const std::vector<std::string>& candidates);

// "5s", "250ms", "2m", or a bare number of seconds; nothing when it is none of these or beyond 1 ms .. 1 h.
[[nodiscard]] std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);

// Columns as wide as their widest cell; columns whose every cell is a number or "-" are set right; so are empty cells.
class Table {
public:
    explicit Table(std::vector<std::string> heads) : heads_(std::move(heads)) {}
    // As many cells as heads.
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    [[nodiscard]] bool empty() const { return rows_.empty(); }
    void print(std::ostream& out) const;

private:
    std::vector<std::string> heads_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace hf::cli
