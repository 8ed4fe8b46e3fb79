#include "agent/log/fold.hpp"

#include <algorithm>
#include <utility>

namespace hf::log {

namespace {

// "0.4", "5", "61.2": tenths are enough to read a rate off it.
[[nodiscard]] std::string seconds(std::int64_t span_ns) {
    const std::int64_t tenths = std::max<std::int64_t>(0, span_ns) / 100'000'000;
    std::string out = std::to_string(tenths / 10);
    if (tenths % 10 != 0) out += '.' + std::to_string(tenths % 10);
    return out;
}

void append_escaped(std::string& out, char c) {
    constexpr std::string_view kHex = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
        out += "\\n";
    } else if (c == '\t') {
        out += "\\t";
    } else {
        out += "\\x";
        out += kHex[byte >> 4U];
        out += kHex[byte & 0xFU];
    }
}

[[nodiscard]] bool control_at(std::string_view text, std::size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x20 || byte == 0x7F) return true;
    // A C1 control in UTF-8, or its bare byte.
    const bool second = byte >= 0x80 && byte < 0xA0;
    return second && (at == 0 || static_cast<unsigned char>(text[at - 1]) == 0xC2 ||
                      static_cast<unsigned char>(text[at - 1]) < 0x80);
}

}  // namespace

void Folder::tell(std::int64_t now_ns, Watched& entry, std::vector<Line>& out) {
    if (entry.folded == 0) return;
    out.push_back({entry.level,
                   entry.message + " repeated " + std::to_string(entry.folded) + " times in " +
                       seconds(now_ns - entry.since_ns) + " s"});
    entry.folded = 0;
    ++entry.passed;
}

void Folder::expire(std::int64_t now_ns, std::vector<Line>& out) {
    while (!entries_.empty() &&
           (now_ns - entries_.front().since_ns >= kFoldWindowNs || entries_.size() > kWatchedMax)) {
        tell(now_ns, entries_.front(), out);
        by_message_.erase(entries_.front().message);
        entries_.pop_front();
    }
}

void Folder::offer(std::int64_t now_ns,
                   Level level,
                   std::string_view message,
                   std::string_view body,
                   bool capped,
                   std::vector<Line>& out) {
    expire(now_ns, out);
    const bool same_run = previous_ == message;
    if (!same_run) {
        // A run ended: tell its count at once, unless the message is frequent and waits for its window's end.
        if (const auto before = by_message_.find(previous_);
            before != by_message_.end() && before->second->passed < kPassedPerWindow)
            tell(now_ns, *before->second, out);
        previous_ = message;
    }
    auto found = by_message_.find(message);
    if (found == by_message_.end()) {
        entries_.push_back({std::string(message), level, now_ns, 0, 0, {}});
        found = by_message_.emplace(entries_.back().message, std::prev(entries_.end())).first;
        expire(now_ns, out);
    }
    Watched& entry = *found->second;
    const bool identical = same_run && entry.passed > 0 && entry.last == body;
    if (identical || (capped && entry.passed >= kPassedPerWindow)) {
        ++entry.folded;
        ++folded_;
        return;
    }
    if (same_run && entry.passed < kPassedPerWindow) tell(now_ns, entry, out);
    entry.last = body;
    ++entry.passed;
    out.push_back({level, std::string(body)});
}

void Folder::flush(std::int64_t now_ns, std::vector<Line>& out) {
    for (Watched& entry : entries_) tell(now_ns, entry, out);
}

bool RateCap::admit(std::int64_t now_ns,
                    std::string_view source,
                    std::uint64_t dropped,
                    std::uint64_t& suppressed) {
    auto found = std::find_if(
        sources_.begin(), sources_.end(), [&](const Source& one) { return one.name == source; });
    if (found == sources_.end()) {
        if (sources_.size() >= kSourcesMax) sources_.pop_back();
        sources_.push_front({std::string(source), now_ns, kPluginBurst, 0});
    } else {
        sources_.splice(sources_.begin(), sources_, found);
    }
    Source& one = sources_.front();
    const double waited =
        static_cast<double>(std::max<std::int64_t>(0, now_ns - one.last_ns)) / 1e9;
    one.tokens = std::min<double>(kPluginBurst, one.tokens + waited * kPluginLinesPerSecond);
    one.last_ns = now_ns;
    one.suppressed += dropped;
    capped_ += dropped;
    if (one.tokens < 1) {
        ++one.suppressed;
        ++capped_;
        return false;
    }
    one.tokens -= 1;
    suppressed = std::exchange(one.suppressed, 0);
    return true;
}

void RateCap::flush(std::vector<Line>& out) {
    for (Source& one : sources_)
        if (one.suppressed != 0)
            out.push_back({Level::Info,
                           "plugin said more than may be logged source=" + one.name +
                               " suppressed=" + std::to_string(std::exchange(one.suppressed, 0))});
}

std::string clean(std::string_view text, std::size_t most) {
    constexpr std::string_view kCut = "...";
    std::string out;
    out.reserve(std::min(text.size(), most));
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (out.size() + 4 + kCut.size() > most && i + 1 < text.size()) return out += kCut;
        if (control_at(text, i))
            append_escaped(out, text[i]);
        else
            out += text[i];
    }
    return out;
}

void append_value(std::string& out, std::string_view value) {
    if (!value.empty() && value.find_first_of(" \"=\\") == std::string_view::npos) {
        out += value;
        return;
    }
    out += '"';
    for (const char c : value) {
        if (c == '"' || c == '\\') out += '\\';
        out += c;
    }
    out += '"';
}

}  // namespace hf::log
