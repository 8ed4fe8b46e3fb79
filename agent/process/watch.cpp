#include "agent/process/watch.hpp"

#include <utility>

namespace hf::process {

struct Watch::State {
    // One of the two; both begin with the fields of uv_handle_t.
    uv_poll_t poll{};
    uv_timer_t timer{};
    uv_handle_t* handle = nullptr;
    std::function<void()> fn;
};

namespace {

uv_handle_t* as_handle(uv_poll_t* poll) {
    // SAFETY: libuv's own idea of a base class.
    return reinterpret_cast<uv_handle_t*>(poll);
}
uv_handle_t* as_handle(uv_timer_t* timer) {
    // SAFETY: as above.
    return reinterpret_cast<uv_handle_t*>(timer);
}

}  // namespace

Watch& Watch::operator=(Watch&& other) noexcept {
    if (this != &other) {
        reset();
        state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
}

Result<Watch> Watch::readable(uv_loop_t* loop, int fd, std::function<void()> fn) {
    auto* state = new State;  // freed by the close callback below, or at once when init fails
    state->fn = std::move(fn);
    if (const int rc = uv_poll_init(loop, &state->poll, fd); rc != 0) {
        delete state;
        return fail_errno(-rc, "watching descriptor " + std::to_string(fd));
    }
    state->handle = as_handle(&state->poll);
    state->poll.data = state;
    Watch watch(state);
    const int rc =
        uv_poll_start(&state->poll, UV_READABLE | UV_DISCONNECT, [](uv_poll_t* poll, int, int) {
            static_cast<State*>(poll->data)->fn();
        });
    if (rc != 0) return fail_errno(-rc, "watching descriptor " + std::to_string(fd));
    return watch;
}

Result<Watch> Watch::after(uv_loop_t* loop, std::uint64_t ms, std::function<void()> fn) {
    auto* state = new State;  // as above; a timer's init cannot fail
    state->fn = std::move(fn);
    uv_timer_init(loop, &state->timer);
    uv_update_time(loop);  // else it counts from the start of this turn
    state->handle = as_handle(&state->timer);
    state->timer.data = state;
    Watch watch(state);
    const int rc = uv_timer_start(
        &state->timer, [](uv_timer_t* timer) { static_cast<State*>(timer->data)->fn(); }, ms, 0);
    if (rc != 0) return fail_errno(-rc, "starting a timer");
    return watch;
}

void Watch::reset() {
    if (state_ == nullptr) return;
    State* state = std::exchange(state_, nullptr);
    // Stops the callbacks now; the memory is libuv's until the callback.
    uv_close(state->handle, [](uv_handle_t* handle) { delete static_cast<State*>(handle->data); });
}

}  // namespace hf::process
