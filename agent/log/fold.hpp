// Decides which lines are written and which are only counted. Pure: the caller brings the time. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "agent/log/log.hpp"

namespace hf::log {

// A flood that goes on is told about this often: rare enough for the disk, often enough for a person who watches.
inline constexpr std::int64_t kFoldWindowNs = 5'000'000'000;
// Lines of one message (whatever its fields) that pass in a window: a few screens of a burst.
inline constexpr std::uint32_t kPassedPerWindow = 20;
// Different messages watched at once; the oldest gives way. The code has fewer warnings than this.
inline constexpr std::size_t kWatchedMax = 64;
// Per source of plugin lines.
inline constexpr std::uint32_t kPluginLinesPerSecond = 20;
inline constexpr std::uint32_t kPluginBurst = 100;
// Instances of all plugins are at most 5 x 64; beyond it the one quiet for longest is forgotten.
inline constexpr std::size_t kSourcesMax = 512;

// A line without its time.
struct Line {
    Level level = Level::Info;
    std::string body;
};

class Folder {
public:
    // `message` names the kind of line (room and text), `body` is the whole of it. Appends what is to be written now:
    // counts of what was folded before, then the line itself unless it is folded. `capped` false: only identical lines
    // that follow each other are folded (lines with a rate cap of their own).
    void offer(std::int64_t now_ns,
               Level level,
               std::string_view message,
               std::string_view body,
               bool capped,
               std::vector<Line>& out);
    // Appends every count that is still due.
    void flush(std::int64_t now_ns, std::vector<Line>& out);
    [[nodiscard]] std::uint64_t folded() const { return folded_; }

private:
    struct Watched {
        std::string message;
        Level level = Level::Info;
        std::int64_t since_ns = 0;  // start of the window
        std::uint32_t passed = 0;   // written in it
        std::uint64_t folded = 0;   // counted in it
        std::string last;           // body of the last one offered
    };
    using Entries = std::list<Watched>;  // oldest window first

    void tell(std::int64_t now_ns, Watched& entry, std::vector<Line>& out);
    void expire(std::int64_t now_ns, std::vector<Line>& out);

    Entries entries_;
    std::unordered_map<std::string_view, Entries::iterator>
        by_message_;        // keys live in the entries
    std::string previous_;  // message of the line offered last, to see a run end
    std::uint64_t folded_ = 0;
};

// A token bucket per source.
class RateCap {
public:
    // True: the line passes, and `suppressed` is the number that did not since the last one that did, `dropped` included.
    [[nodiscard]] bool admit(std::int64_t now_ns,
                             std::string_view source,
                             std::uint64_t dropped,
                             std::uint64_t& suppressed);
    [[nodiscard]] std::uint64_t capped() const { return capped_; }
    // Appends one line per source that has something untold.
    void flush(std::vector<Line>& out);

private:
    struct Source {
        std::string name;
        std::int64_t last_ns = 0;
        double tokens = kPluginBurst;
        std::uint64_t suppressed = 0;
    };
    std::list<Source> sources_;  // most recently heard first
    std::uint64_t capped_ = 0;
};

// Control bytes, C1 controls included, spelt out; at most `most` bytes, cut with "...".
[[nodiscard]] std::string clean(std::string_view text, std::size_t most);
// The value of a field: quoted when it is empty or has a space, a quote or '='.
void append_value(std::string& out, std::string_view value);

}  // namespace hf::log
