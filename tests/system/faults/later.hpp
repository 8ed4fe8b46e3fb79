// Runs functions on the plugin's loop thread a while from now, from one thread that waits.
//
// Death: what still waits is never run.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "abi/sdk/plugin.hpp"

namespace hf::faults {

class Later {
public:
    explicit Later(sdk::Context& context) : context_(context), thread_([this] { wait(); }) {}
    ~Later() {
        {
            const std::lock_guard lock(mutex_);
            ending_ = true;
        }
        changed_.notify_one();
        thread_.join();
    }
    Later(const Later&) = delete;
    Later& operator=(const Later&) = delete;

    // Functions with the same delay keep their order.
    void run_in(std::uint64_t ms, std::function<void()> fn) {
        const auto due = Clock::now() + std::chrono::milliseconds(ms);
        {
            const std::lock_guard lock(mutex_);
            waiting_.emplace(due, std::move(fn));
        }
        changed_.notify_one();
    }

private:
    using Clock = std::chrono::steady_clock;

    void wait() {
        std::unique_lock lock(mutex_);
        while (!ending_) {
            if (waiting_.empty()) {
                changed_.wait(lock);
                continue;
            }
            const auto first = waiting_.begin();
            if (first->first > Clock::now()) {
                changed_.wait_until(lock, first->first);
                continue;
            }
            context_.post(std::move(first->second));
            waiting_.erase(first);
        }
    }

    sdk::Context& context_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::multimap<Clock::time_point, std::function<void()>>
        waiting_;  // equal times: in the order of their coming
    bool ending_ = false;
    std::thread thread_;  // last: it uses all above
};

}  // namespace hf::faults
