#include "agent/process/stderr_lines.hpp"

#include <algorithm>

namespace hf::process {

std::string printable(std::string_view text) {
    std::string out(text);
    std::replace_if(
        out.begin(),
        out.end(),
        [](char c) {
            const auto byte = static_cast<unsigned char>(c);
            return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
        },
        '?');
    return out;
}

void StderrLines::feed(std::string_view bytes, std::int64_t now_ms) {
    tail_.append(bytes.substr(bytes.size() - std::min(bytes.size(), kTailBytesMax)));
    if (tail_.size() > kTailBytesMax) tail_.erase(0, tail_.size() - kTailBytesMax);
    while (!bytes.empty()) {
        const std::size_t newline = std::min(bytes.find('\n'), bytes.size());
        const std::string_view piece = bytes.substr(0, newline);
        if (!overlong_) {
            const std::size_t room = kLineBytesMax - line_.size();
            line_.append(piece.substr(0, room));
            overlong_ = piece.size() > room;
        }
        if (newline == bytes.size()) return;
        end_line(now_ms);
        bytes.remove_prefix(newline + 1);
    }
}

void StderrLines::finish(std::int64_t now_ms) {
    if (!line_.empty()) end_line(now_ms);
    if (dropped_ == 0) return;
    const std::uint64_t dropped = dropped_;
    dropped_ = 0;
    deliver_("(more lines than " + std::to_string(lines_per_second_) + " a second)", dropped);
}

std::string StderrLines::tail() const {
    return printable(tail_);
}

void StderrLines::end_line(std::int64_t now_ms) {
    overlong_ = false;
    const std::int64_t second = now_ms / 1000;
    if (second != second_) {
        second_ = second;
        in_second_ = 0;
    }
    if (in_second_ < lines_per_second_) {
        ++in_second_;
        const std::uint64_t dropped = dropped_;
        dropped_ = 0;
        deliver_(printable(line_), dropped);
    } else {
        ++dropped_;
    }
    line_.clear();
}

}  // namespace hf::process
