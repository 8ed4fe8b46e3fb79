// Descriptors and timers behind one descriptor, so that whoever has a loop of his own (the SDK's, or a start that waits)
// watches that one. One thread. Callbacks may watch, unwatch, set and cancel anything, themselves included.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::web {

class Loop {
public:
    struct Ready {
        bool in = false;
        bool out = false;
        bool error = false;
    };
    using OnReady = std::function<void(Ready)>;
    using TimerId = std::uint64_t;

    static Result<std::unique_ptr<Loop>> create();

    // Readable when step() has something to do.
    [[nodiscard]] int fd() const { return epoll_.get(); }
    // Runs what is due; never blocks.
    void step();
    // Blocks until something is due or `timeout_ms` passed, then runs it.
    void wait(int timeout_ms);

    void watch(int fd, bool in, bool out, OnReady fn);
    void unwatch(int fd);

    // Once, `ms` from now.
    TimerId after(std::int64_t ms, std::function<void()> fn);
    void cancel(TimerId id);

private:
    Loop() = default;
    void run_timers();
    void arm();

    UniqueFd epoll_;
    UniqueFd timer_;
    std::unordered_map<int, std::shared_ptr<OnReady>> watched_;
    std::map<std::pair<std::int64_t, TimerId>, std::function<void()>> timers_;  // by when
    std::unordered_map<TimerId, std::int64_t> when_;
    TimerId last_timer_ = 0;
    std::int64_t armed_ns_ = 0;  // 0: not armed
};

}  // namespace hf::web
