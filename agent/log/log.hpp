// The supervisor's log: one structured line per event, `time level room text key=value ...`, to stderr and to a rotated
// file under a total cap. Identical lines that follow each other fast are folded into a count, and lines that come from
// plugins pass a rate cap per source, so that a flood costs bounded CPU and disk. Not responsible for what plugins are
// allowed to send per second over their pipes (agent/process) nor for the history of events an operator asks for.
// A log that cannot be written never stops the daemon: lines are lost and counted. No timer, no thread: folds are written
// with the next line that differs or by flush_folds(). Any thread may call; calls are serialised by one mutex.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "abi/base/result.hpp"

namespace hf::log {

enum class Level : std::uint8_t { Debug, Info, Warn, Error };

struct Options {
    Level level = Level::Info;
    std::filesystem::path file;  // empty: stderr only; its directory is created
    std::uint64_t file_bytes_max = 16U << 20U;
    std::uint32_t files = 4;  // the current one included; at least 2
    bool to_stderr = true;
};

// key=value of a line. Values with spaces, quotes or control bytes are quoted and escaped.
struct Field {
    template <std::integral T>
    Field(std::string_view k, T v)
        : key(k), value(text(v)) {}  // NOLINT(google-explicit-constructor)
    Field(std::string_view k, std::string_view v) : key(k), value(v) {}
    Field(std::string_view k, const std::string& v) : key(k), value(v) {}
    Field(std::string_view k, const char* v) : key(k), value(v) {}
    std::string_view key;
    std::string value;

private:
    template <std::integral T>
    static std::string text(T v) {
        if constexpr (std::same_as<T, bool>)
            return v ? "true" : "false";
        else
            return std::to_string(v);
    }
};
using Fields = std::initializer_list<Field>;

// Before init() lines of Info and above go to stderr. May be called again (new level, new file).
Result<void> init(const Options& options);
void set_level(Level level);
[[nodiscard]] bool enabled(Level level);

// `room` is the room that speaks ("process"). Lines are cut at 4 KiB.
void write(Level level, std::string_view room, std::string_view text, Fields fields = {});
inline void debug(std::string_view room, std::string_view text, Fields fields = {}) {
    if (enabled(Level::Debug)) write(Level::Debug, room, text, fields);
}
inline void info(std::string_view room, std::string_view text, Fields fields = {}) {
    write(Level::Info, room, text, fields);
}
inline void warn(std::string_view room, std::string_view text, Fields fields = {}) {
    write(Level::Warn, room, text, fields);
}
inline void error(std::string_view room, std::string_view text, Fields fields = {}) {
    write(Level::Error, room, text, fields);
}

// A line a plugin wrote (stderr or a Log message), with the number its pipe already dropped. `source` is the instance,
// "runtime-wasm/0". At most 20 a second and a burst of 100 per source reach the log; the rest are counted and told with
// the next line that passes.
void plugin_line(Level level,
                 std::string_view source,
                 std::string_view line,
                 std::uint64_t dropped = 0);

// Writes what is folded or counted so far, and flushes the file. For the end of the process and for `status`.
void flush_folds();

struct Stats {
    std::uint64_t written = 0;  // lines that reached a sink
    std::uint64_t folded = 0;   // lines told only as a count
    std::uint64_t capped = 0;   // plugin lines above their source's rate
    std::uint64_t lost = 0;     // lines no sink could take (disk full)
};
[[nodiscard]] Stats stats();

}  // namespace hf::log
