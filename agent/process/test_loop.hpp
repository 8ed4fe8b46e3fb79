// For the tests of this room: a loop that turns until something is true, with a deadline instead of sleeps.
#pragma once

#include <uv.h>

#include <functional>
#include <string>
#include <vector>

#include "agent/process/spawner.hpp"

namespace hf::process::testing {

class Loop {
public:
    Loop() { uv_loop_init(&loop_); }
    ~Loop() {
        // Everything closed by now gets its turn; a handle left open would be a bug of the room.
        uv_run(&loop_, UV_RUN_DEFAULT);
        leaked_ = uv_loop_close(&loop_) != 0;
        if (leaked_) std::abort();
    }
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;
    uv_loop_t* get() { return &loop_; }

    // False when it did not become true in time. What the loop does not see (a process of another's) is asked for every
    // few milliseconds.
    bool until(const std::function<bool()>& done, std::uint64_t ms = 20'000) {
        constexpr std::uint64_t kTickMs = 5;
        auto* timer = new uv_timer_t;
        uv_timer_init(&loop_, timer);
        uv_timer_start(
            timer, [](uv_timer_t*) {}, kTickMs, kTickMs);
        const std::uint64_t deadline = uv_now(&loop_) + ms;
        bool is_done = done();
        while (!is_done && uv_now(&loop_) < deadline) {
            uv_run(&loop_, UV_RUN_ONCE);
            is_done = done();
        }
        uv_close(reinterpret_cast<uv_handle_t*>(timer),
                 [](uv_handle_t* handle) { delete reinterpret_cast<uv_timer_t*>(handle); });
        return is_done;
    }

private:
    uv_loop_t loop_{};
    bool leaked_ = false;
};

}  // namespace hf::process::testing
