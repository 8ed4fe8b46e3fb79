// Owns one libuv poll or timer handle. The descriptor stays the owner's and must outlive the watch. Destroying it stops
// the callbacks at once; the handle's memory goes when the loop has turned once more. May be destroyed from within its
// own callback.
#pragma once

#include <uv.h>

#include <functional>

#include "abi/base/result.hpp"

namespace hf::process {

class Watch {
public:
    Watch() = default;
    Watch(Watch&& other) noexcept : state_(other.state_) { other.state_ = nullptr; }
    Watch& operator=(Watch&& other) noexcept;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    ~Watch() { reset(); }

    // Calls fn each time fd is readable or hung up.
    static Result<Watch> readable(uv_loop_t* loop, int fd, std::function<void()> fn);
    // Calls fn once.
    static Result<Watch> after(uv_loop_t* loop, std::uint64_t ms, std::function<void()> fn);
    void reset();
    [[nodiscard]] bool active() const { return state_ != nullptr; }

private:
    struct State;
    explicit Watch(State* state) : state_(state) {}
    State* state_ = nullptr;
};

}  // namespace hf::process
