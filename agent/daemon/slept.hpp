// Notices that the host was suspended. CLOCK_BOOTTIME goes on meanwhile and CLOCK_MONOTONIC does not; what lies between them
// is how long the host has slept since it started. Nothing wakes for it: whoever does the next step after it looks first.
#pragma once

#include <cstdint>
#include <optional>

namespace hf::daemon {

class SleptWatch {
public:
    // How long the host has slept in all, in ns, when that is news: the first time, and when it has grown.
    // `boottime_ns` was read before `monotonic_ns`: what this process was kept from running in between then makes the figure
    // smaller and never larger. A time of sleep that nobody slept would make others look dead.
    [[nodiscard]] std::optional<std::int64_t> look(std::int64_t boottime_ns,
                                                   std::int64_t monotonic_ns) {
        const std::int64_t total = boottime_ns - monotonic_ns;
        if (told_ && total - last_ <= kNoise) return std::nullopt;
        told_ = true;
        last_ = total;
        return total;
    }
    [[nodiscard]] bool told() const { return told_; }
    // As told last.
    [[nodiscard]] std::int64_t total() const { return last_; }

private:
    // What lies between two readings of a clock that goes on; a suspend takes longer by far.
    static constexpr std::int64_t kNoise = 1'000'000;

    bool told_ = false;
    std::int64_t last_ = 0;
};

}  // namespace hf::daemon
