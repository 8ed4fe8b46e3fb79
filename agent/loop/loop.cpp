#include "agent/loop/loop.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"

namespace hf::loop {

namespace {
// libuv hands the handle back when it is closed; only then may its memory go.
template <class State, class Handle>
void close_and_free(State* state, Handle* handle) {
    state->fn = nullptr;
    // SAFETY: every uv handle starts with uv_handle_t; `data` was set to its State when it was made.
    uv_close(reinterpret_cast<uv_handle_t*>(handle),
             [](uv_handle_t* closed) { delete static_cast<State*>(closed->data); });
}
}  // namespace

struct Poll::State {
    uv_poll_t handle{};
    std::function<void()> fn;
};

Poll::Poll(uv_loop_t* loop, int fd, std::function<void()> fn) : state_(new State) {
    state_->fn = std::move(fn);
    state_->handle.data = state_;
    HF_CHECK(uv_poll_init(loop, &state_->handle, fd) == 0,
             "a pollable descriptor that no other handle watches");
    uv_poll_start(
        &state_->handle, UV_READABLE | UV_DISCONNECT, [](uv_poll_t* handle, int, int events) {
            // Nothing is left to read and the other side is gone: it would be reported each turn for ever.
            if ((events & UV_DISCONNECT) != 0) uv_poll_stop(handle);
            auto* state = static_cast<State*>(handle->data);
            if (state->fn) state->fn();
        });
}

Poll::~Poll() {
    uv_poll_stop(&state_->handle);
    close_and_free(state_, &state_->handle);
}

ClockWatch::ClockWatch(uv_loop_t* loop, std::function<void()> fn)
    : timer_(::timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!timer_.valid()) return;
    arm();
    poll_ = std::make_unique<Poll>(loop, timer_.get(), [this, fn = std::move(fn)] {
        std::uint64_t expired = 0;
        // ECANCELED: the clock was set. The same timer is armed anew either way.
        (void)!::read(timer_.get(), &expired, sizeof(expired));
        arm();
        fn();
    });
}

// A timer that goes off when the clock jumps; its time itself is never reached.
void ClockWatch::arm() const {
    itimerspec never{};
    never.it_value.tv_sec = INT32_MAX;
    never.it_value.tv_sec *= 4;  // year 2242
    (void)::timerfd_settime(
        timer_.get(), TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &never, nullptr);
}

struct Timer::State {
    uv_timer_t handle{};
    std::function<void()> fn;
    std::int64_t at = INT64_MAX;
};

Timer::Timer(uv_loop_t* loop, std::function<void()> fn) : state_(new State) {
    state_->fn = std::move(fn);
    state_->handle.data = state_;
    uv_timer_init(loop, &state_->handle);
}

Timer::~Timer() {
    close_and_free(state_, &state_->handle);
}

void Timer::set(std::int64_t at_ns) {
    if (at_ns == state_->at) return;
    state_->at = at_ns;
    if (at_ns == INT64_MAX) {
        uv_timer_stop(&state_->handle);
        return;
    }
    constexpr std::int64_t kNsPerMs = 1'000'000;
    uv_update_time(state_->handle.loop);
    const std::int64_t wait = std::max<std::int64_t>(0, at_ns - monotonic_ns());
    uv_timer_start(
        &state_->handle,
        [](uv_timer_t* handle) {
            auto* state = static_cast<State*>(handle->data);
            state->at = INT64_MAX;
            if (state->fn) state->fn();
        },
        static_cast<std::uint64_t>((wait + kNsPerMs - 1) / kNsPerMs),
        0);
}

struct BeforeBlock::State {
    uv_prepare_t handle{};
    std::function<void()> fn;
    uv_idle_t* idle = nullptr;
};

BeforeBlock::BeforeBlock(uv_loop_t* loop, std::function<void()> fn) : state_(new State) {
    state_->fn = std::move(fn);
    state_->handle.data = state_;
    state_->idle = new uv_idle_t{};
    uv_prepare_init(loop, &state_->handle);
    uv_idle_init(loop, state_->idle);
    uv_prepare_start(&state_->handle, [](uv_prepare_t* handle) {
        auto* state = static_cast<State*>(handle->data);
        if (state->fn) state->fn();
    });
    // SAFETY: as above; neither keeps the loop alive by itself.
    uv_unref(reinterpret_cast<uv_handle_t*>(&state_->handle));
}

BeforeBlock::~BeforeBlock() {
    uv_prepare_stop(&state_->handle);
    uv_idle_stop(state_->idle);
    // SAFETY: see close_and_free.
    uv_close(reinterpret_cast<uv_handle_t*>(state_->idle),
             [](uv_handle_t* closed) { delete reinterpret_cast<uv_idle_t*>(closed); });
    close_and_free(state_, &state_->handle);
}

void BeforeBlock::stay_awake(bool on) {
    if (on) {
        uv_idle_start(state_->idle, [](uv_idle_t*) {});
    } else {
        uv_idle_stop(state_->idle);
    }
}

struct Signal::State {
    uv_signal_t handle{};
    std::function<void()> fn;
};

Signal::Signal(uv_loop_t* loop, int signal_number, std::function<void()> fn) : state_(new State) {
    state_->fn = std::move(fn);
    state_->handle.data = state_;
    uv_signal_init(loop, &state_->handle);
    uv_signal_start(
        &state_->handle,
        [](uv_signal_t* handle, int) {
            auto* state = static_cast<State*>(handle->data);
            if (state->fn) state->fn();
        },
        signal_number);
    // SAFETY: see BeforeBlock.
    uv_unref(reinterpret_cast<uv_handle_t*>(&state_->handle));
}

Signal::~Signal() {
    close_and_free(state_, &state_->handle);
}

}  // namespace hf::loop
