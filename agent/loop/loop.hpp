// RAII over the libuv handles the daemon uses. A libuv handle outlives its owner by one loop turn: the destructor closes
// it and the memory is freed in the close callback. Callbacks never run after the owner is gone. Loop thread only.
#pragma once

#include <uv.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "abi/base/unique_fd.hpp"

namespace hf::loop {

// Readability of a descriptor that somebody else owns and closes after this.
// When the other side has closed and all is read, that is reported once and then nothing more: a plugin that closes its
// end of a bell and lives on must not keep the loop turning.
class Poll {
public:
    Poll(uv_loop_t* loop, int fd, std::function<void()> fn);
    ~Poll();
    Poll(const Poll&) = delete;
    Poll& operator=(const Poll&) = delete;

private:
    struct State;
    State* state_;
};

// One deadline at a time, in CLOCK_MONOTONIC nanoseconds; fires at it or up to 1 ms later.
class Timer {
public:
    Timer(uv_loop_t* loop, std::function<void()> fn);
    ~Timer();
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    // INT64_MAX: nothing is armed.
    void set(std::int64_t at_ns);

private:
    struct State;
    State* state_;
};

// Runs fn just before the loop blocks. While `stay_awake(true)` the loop does not block.
class BeforeBlock {
public:
    BeforeBlock(uv_loop_t* loop, std::function<void()> fn);
    ~BeforeBlock();
    BeforeBlock(const BeforeBlock&) = delete;
    BeforeBlock& operator=(const BeforeBlock&) = delete;
    void stay_awake(bool on);

private:
    struct State;
    State* state_;
};

// Runs fn each time somebody sets the wall clock. It never wakes the loop otherwise. On a kernel without such notice, never.
class ClockWatch {
public:
    ClockWatch(uv_loop_t* loop, std::function<void()> fn);
    ClockWatch(const ClockWatch&) = delete;
    ClockWatch& operator=(const ClockWatch&) = delete;

private:
    void arm() const;
    UniqueFd timer_;
    std::unique_ptr<Poll> poll_;
};

class Signal {
public:
    Signal(uv_loop_t* loop, int signal_number, std::function<void()> fn);
    ~Signal();
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;

private:
    struct State;
    State* state_;
};

}  // namespace hf::loop
