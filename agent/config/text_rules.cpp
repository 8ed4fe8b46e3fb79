#include "agent/config/text_rules.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace hf::config {

namespace {

struct Unit {
    std::string_view name;
    std::int64_t factor;
};

constexpr std::array<Unit, 4> kDurations{{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}}};
constexpr std::array<Unit, 9> kSizes{{{"B", 1},
                                      {"KiB", 1LL << 10U},
                                      {"MiB", 1LL << 20U},
                                      {"GiB", 1LL << 30U},
                                      {"TiB", 1LL << 40U},
                                      {"KB", 1000},
                                      {"MB", 1'000'000},
                                      {"GB", 1'000'000'000},
                                      {"TB", 1'000'000'000'000}}};
constexpr std::size_t kBinarySizes = 5;  // those above that format_size chooses from

[[nodiscard]] bool digit(char c) {
    return c >= '0' && c <= '9';
}

template <std::size_t N>
[[nodiscard]] Measure parse_measure(std::string_view text, const std::array<Unit, N>& units) {
    using Fault = Measure::Fault;
    if (text.empty()) return {Fault::Empty, 0, {}};
    if (text[0] == '-') return {Fault::Negative, 0, {}};
    std::size_t digits = 0;
    while (digits < text.size() && digit(text[digits])) ++digits;
    if (digits == 0 || (digits > 1 && text[0] == '0')) return {Fault::Number, 0, {}};
    const std::string_view unit = text.substr(digits);
    if (unit.empty()) return {Fault::NoUnit, 0, {}};
    if (unit[0] == '.' || unit[0] == ',') return {Fault::Fraction, 0, {}};
    const auto found =
        std::find_if(units.begin(), units.end(), [&](const Unit& one) { return one.name == unit; });
    if (found == units.end()) return {Fault::Unit, 0, std::string(unit)};
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + digits, number);
    if (error != std::errc() || number > std::numeric_limits<std::int64_t>::max() / found->factor)
        return {Fault::TooLarge, 0, {}};
    return {Fault::None, number * found->factor, {}};
}

// The largest unit that leaves no remainder.
[[nodiscard]] std::string format(std::int64_t value, const Unit* units, std::size_t count) {
    const Unit* best = units;
    for (std::size_t i = 1; i < count; ++i)
        if (value != 0 && value % units[i].factor == 0) best = &units[i];
    return std::to_string(value / best->factor) + std::string(best->name);
}

// Walks TOML text only far enough to tell keys from strings and comments.
class KeyDepth {
public:
    // True when the byte just read made a key too deep.
    [[nodiscard]] bool too_deep_after(std::string_view text, std::size_t at) {
        const char c = text[at];
        if (skip_ > 0) {
            --skip_;
            return false;
        }
        if (quote_ != '\0') {
            inside_string(text, at);
            return false;
        }
        if (c == '\n') comment_ = false;
        if (comment_) return false;
        if (c == '#') comment_ = true;
        if (c == '"' || c == '\'') {
            quote_ = c;
            triple_ = text.substr(at, 3) == std::string(3, c);
            skip_ = triple_ ? 2 : 0;
        }
        if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots_ = 0;
        return c == '.' && ++dots_ >= kKeyDepthMax;
    }

private:
    void inside_string(std::string_view text, std::size_t at) {
        const char c = text[at];
        if (c == '\\' && quote_ == '"') {
            skip_ = 1;
        } else if (c == '\n' && !triple_) {
            quote_ = '\0';  // not TOML; the parser says so
            dots_ = 0;
        } else if (c == quote_ && (!triple_ || text.substr(at, 3) == std::string(3, c))) {
            skip_ = triple_ ? 2 : 0;
            quote_ = '\0';
        }
    }

    char quote_ = '\0';
    bool triple_ = false;
    bool comment_ = false;
    unsigned skip_ = 0;
    unsigned dots_ = 0;
};

[[nodiscard]] std::string folded(std::string_view word) {
    std::string out;
    for (const char c : word) {
        const char lower = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
        out += lower == '-' ? '_' : lower;
    }
    return out;
}

// Edits (insert, delete, replace, swap of neighbours) between two short words.
[[nodiscard]] std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> now(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        now[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            now[j] = std::min({last[j] + 1, now[j - 1] + 1, replace});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = std::min(now[j], before[j - 2] + 1);
        }
        before.swap(last);
        last.swap(now);
    }
    return last[b.size()];
}

// Bytes of the well-formed UTF-8 sequence at `at`, 0 when there is none.
[[nodiscard]] std::size_t sequence_at(std::string_view text, std::size_t at) {
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t size = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
    if (size == 0 || at + size > text.size()) return 0;
    for (std::size_t i = 1; i < size; ++i)
        if ((static_cast<unsigned char>(text[at + i]) & 0xC0U) != 0x80) return 0;
    // C1 controls are as bad for a terminal as C0 ones.
    if (size == 2 && first == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0) return 0;
    return size;
}

}  // namespace

std::optional<ParseFailure> judge_text(std::string_view text) {
    Place place{1, 1};
    KeyDepth keys;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\0') return ParseFailure{place, "NUL byte: the file is not text"};
        if (keys.too_deep_after(text, i))
            return ParseFailure{
                place, "key nested deeper than " + std::to_string(kKeyDepthMax) + " tables"};
        if (text[i] == '\n') {
            ++place.line;
            place.column = 1;
        } else if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80) {
            ++place.column;
        }
    }
    return std::nullopt;
}

Measure parse_duration(std::string_view text) {
    return parse_measure(text, kDurations);
}
Measure parse_size(std::string_view text) {
    return parse_measure(text, kSizes);
}
std::string format_duration(std::int64_t millis) {
    if (millis == 0) return "0s";
    return format(millis, kDurations.data(), kDurations.size());
}
std::string format_size(std::int64_t bytes) {
    return format(bytes, kSizes.data(), kBinarySizes);
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
    constexpr std::size_t kWordMax = 64;  // no name of ours is longer; bounds the table above
    if (word.empty() || word.size() > kWordMax) return std::nullopt;
    const std::string want = folded(word);
    std::optional<std::string> best;
    std::size_t best_distance = std::max<std::size_t>(1, want.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t edits = distance(want, folded(candidate));
        if (edits < best_distance) {
            best_distance = edits;
            best = candidate;
        }
    }
    return best;
}

std::string printable(std::string_view text, std::size_t shown) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string out;
    std::size_t at = 0;
    while (at < text.size() && at < shown) {
        const std::size_t size = sequence_at(text, at);
        const auto byte = static_cast<unsigned char>(text[at]);
        if (size == 0 || byte < 0x20 || byte == 0x7F) {
            out += "\\x";
            out += kHex[byte >> 4U];
            out += kHex[byte & 0xFU];
            ++at;
        } else {
            out += text.substr(at, size);
            at += size;
        }
    }
    return at < text.size() ? out + "..." : out;
}

}  // namespace hf::config
