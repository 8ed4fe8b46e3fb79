#include "cli/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ostream>

#include "abi/base/check.hpp"

namespace hf::cli {

namespace {

// Deeper values are printed as JSON: more than two levels do not read on one line.
constexpr int kLineDepthMax = 2;

std::string line_of(const Json& value, int depth) {
    if (value.is_null()) return "-";
    if (value.is_string()) {
        const auto text = printable(value.get_ref<const std::string&>());
        return text.empty() ? "-" : text;
    }
    if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
    if (value.is_structured() && value.empty()) return "-";
    if (!value.is_structured() || depth >= kLineDepthMax)
        return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace));
    std::string out;
    for (const auto& [key, element] : value.items()) {
        if (!out.empty()) out += ", ";
        if (value.is_object()) out += printable(key) + " ";
        out += line_of(element, depth + 1);
    }
    return out;
}

// Characters as a terminal counts them, wide ones aside: every byte that does not continue another.
std::size_t width(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
}

bool numeric(std::string_view cell) {
    return cell == "-" || cell.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
    std::optional<std::string> best;
    std::size_t best_distance = SIZE_MAX;
    constexpr std::size_t kWordMax = 64;  // a longer one is no slip of the pen
    if (word.size() > kWordMax) return best;
    for (const std::string& candidate : candidates) {
        // Edit distance with neighbours that swapped places counted once: the commonest slip.
        const std::size_t across = candidate.size() + 1;
        std::vector<std::size_t> table((word.size() + 1) * across);
        for (std::size_t i = 0; i <= word.size(); ++i) {
            for (std::size_t j = 0; j < across; ++j) {
                std::size_t& here = table[i * across + j];
                if (i == 0 || j == 0) {
                    here = i + j;
                    continue;
                }
                const bool same = word[i - 1] == candidate[j - 1];
                here = std::min({table[(i - 1) * across + j] + 1,
                                 table[i * across + j - 1] + 1,
                                 table[(i - 1) * across + j - 1] + (same ? 0 : 1)});
                if (i > 1 && j > 1 && word[i - 1] == candidate[j - 2] &&
                    word[i - 2] == candidate[j - 1])
                    here = std::min(here, table[(i - 2) * across + j - 2] + 1);
            }
        }
        if (table.back() * 3 <= candidate.size() && table.back() < best_distance) {
            best_distance = table.back();
            best = candidate;
        }
    }
    return best;
}

std::string printable(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    const auto escape = [&out](unsigned char byte) {
        std::array<char, 5> hex{};
        std::snprintf(hex.data(), hex.size(), "\\x%02x", byte);
        out += hex.data();
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
        if (byte < 0x20 || byte == 0x7F) {
            escape(byte);
        } else if (byte == 0xC2 && next >= 0x80 &&
                   next < 0xA0) {  // U+0080..U+009F, control characters too
            escape(static_cast<unsigned char>(next));
            ++i;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::string line_of(const Json& value) {
    return line_of(value, 0);
}

std::string field(const Json& object, std::string_view key) {
    if (!object.is_object()) return "-";
    const auto found = object.find(std::string(key));
    return found == object.end() ? "-" : line_of(*found);
}

std::string duration_field(const Json& object, std::string_view key) {
    if (!object.is_object()) return "-";
    const auto found = object.find(std::string(key));
    if (found == object.end() || !found->is_number_integer()) return "-";
    if (!found->is_number_unsigned() && found->get<std::int64_t>() < 0) return "-";
    const auto ms = found->get<std::uint64_t>();
    const auto two =
        [](std::uint64_t big, const char* big_unit, std::uint64_t small, const char* small_unit) {
            return std::to_string(big) + big_unit + " " + std::to_string(small) + small_unit;
        };
    const std::uint64_t seconds = ms / 1000;
    if (ms < 1000) return std::to_string(ms) + "ms";
    if (seconds < 60) return std::to_string(seconds) + "s";
    if (seconds < 3600) return two(seconds / 60, "m", seconds % 60, "s");
    if (seconds < 86'400) return two(seconds / 3600, "h", seconds / 60 % 60, "m");
    return two(seconds / 86'400, "d", seconds / 3600 % 24, "h");
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
    constexpr std::uint64_t kMsMax =
        3'600'000;  // an hour: longer than any stage of a swap can take
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number == 0 || number > kMsMax) return std::nullopt;
    const std::string_view unit = text.substr(static_cast<std::size_t>(stop - text.data()));
    std::uint64_t ms = 0;
    if (unit == "ms")
        ms = number;
    else if (unit == "s" || unit.empty())
        ms = number * 1000;
    else if (unit == "m")
        ms = number * 60'000;
    if (ms == 0 || ms > kMsMax) return std::nullopt;
    return std::chrono::milliseconds(ms);
}

void Table::print(std::ostream& out) const {
    std::vector<std::size_t> widths;
    std::vector<bool> right;
    for (std::size_t column = 0; column < heads_.size(); ++column) {
        std::size_t widest = width(heads_[column]);
        bool numbers = true;
        for (const auto& row : rows_) {
            HF_CHECK(row.size() == heads_.size(), "a row has one cell per head");
            widest = std::max(widest, width(row[column]));
            numbers = numbers && numeric(row[column]);
        }
        widths.push_back(widest);
        right.push_back(numbers);
    }
    const auto print_row = [&](const std::vector<std::string>& row) {
        std::string line;
        for (std::size_t column = 0; column < row.size(); ++column) {
            const std::string pad(widths[column] - width(row[column]), ' ');
            if (column != 0) line += "  ";
            line += right[column] ? pad + row[column] : row[column] + pad;
        }
        line.erase(line.find_last_not_of(' ') + 1);
        out << line << '\n';
    };
    print_row(heads_);
    for (const auto& row : rows_) print_row(row);
}

}  // namespace hf::cli
