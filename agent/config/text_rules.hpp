// What the text of a file and the words in it must look like: bytes that cannot be a configuration, measures with units,
// the nearest known name, and foreign text made fit for a terminal. Pure; private to this room.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config/toml_reader.hpp"

namespace hf::config {

// 1 MiB: a thousand times the example. More is a wrong path, not a configuration.
inline constexpr std::size_t kFileBytesMax = 1U << 20U;
// `a.b.c = 1` has depth 3, our deepest table has 3. Bounds the recursion of every tree made from the text.
inline constexpr unsigned kKeyDepthMax = 16;

// What no parser should be given: a NUL byte, a key nested deeper than kKeyDepthMax.
[[nodiscard]] std::optional<ParseFailure> judge_text(std::string_view text);

struct Measure {
    enum class Fault : std::uint8_t {
        None,
        Empty,
        NoUnit,
        Unit,
        Number,
        Fraction,
        Negative,
        TooLarge
    };
    Fault fault = Fault::None;
    std::int64_t value = 0;  // milliseconds or bytes
    std::string unit;        // Fault::Unit: what stood there
};

[[nodiscard]] Measure parse_duration(std::string_view text);  // "10s" -> 10000
[[nodiscard]] Measure parse_size(
    std::string_view text);  // "48KiB" -> 49152; KB, MB, GB are powers of ten
[[nodiscard]] std::string format_duration(std::int64_t millis);
[[nodiscard]] std::string format_size(std::int64_t bytes);
inline constexpr std::string_view kDurationUnits = "ms, s, m, h";
inline constexpr std::string_view kSizeUnits = "B, KiB, MiB, GiB, TiB, KB, MB, GB, TB";

// The candidate that a person most likely meant: differs in case and hyphens only, or in at most one third of its
// letters. Nothing when none is near.
[[nodiscard]] std::optional<std::string> nearest(std::string_view word,
                                                 const std::vector<std::string>& candidates);

// Of foreign text this much is shown, unless it is a whole sentence about it.
inline constexpr std::size_t kShownBytes = 60;
// Cut, control bytes and broken UTF-8 spelt out: foreign text never reaches a terminal as it is.
[[nodiscard]] std::string printable(std::string_view text, std::size_t shown = kShownBytes);

}  // namespace hf::config
