// Cuts what a process writes into lines, keeps the last bytes for its exit report, and holds a flood back. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace hf::process {

// A longer line is cut there and the rest of it left out; a log line of that size is no use to an operator.
inline constexpr std::size_t kLineBytesMax = 4096;
// What an exit report carries.
inline constexpr std::size_t kTailBytesMax = 4096;

class StderrLines {
public:
    using Deliver = std::function<void(const std::string& line, std::uint64_t dropped)>;
    StderrLines(std::uint32_t lines_per_second, Deliver deliver)
        : lines_per_second_(lines_per_second), deliver_(std::move(deliver)) {}

    void feed(std::string_view bytes, std::int64_t now_ms);
    // The end of the stream: a last line without its newline, and the count of what was held back since.
    void finish(std::int64_t now_ms);
    // Control characters replaced: it goes to terminals.
    [[nodiscard]] std::string tail() const;

private:
    void end_line(std::int64_t now_ms);

    std::uint32_t lines_per_second_;
    Deliver deliver_;
    std::string line_;
    std::string tail_;
    bool overlong_ = false;  // the rest of this line is left out
    std::int64_t second_ = INT64_MIN;
    std::uint32_t in_second_ = 0;
    std::uint64_t dropped_ = 0;  // since the last line that was delivered
};

// Replaces control characters other than newline and tab.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace hf::process
