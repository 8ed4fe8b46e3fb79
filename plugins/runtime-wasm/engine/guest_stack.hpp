// What guests run on: a guard that swallows any single frame step, then stack. An event that waits keeps its own.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "abi/base/result.hpp"

namespace hf::wasm {

class Instance;

class GuestStack {
public:
    // 256 KiB for guest frames, and what a host function called from the deepest of them may use.
    static constexpr std::size_t kGuestBytes = 256 * 1024;
    static constexpr std::size_t kHostReserveBytes = 64 * 1024;
    // Generated code probes every page of a large frame, so any guard of a page is met; 64 KiB forgives a missed one.
    static constexpr std::size_t kGuardBytes = 64 * 1024;

    static Result<std::unique_ptr<GuestStack>> create();
    GuestStack(const GuestStack&) = delete;
    GuestStack& operator=(const GuestStack&) = delete;
    ~GuestStack();
    // Forgets what frames were left on it, for a sanitizer that would remember them. Not while something runs on it.
    void clear() const;
    [[nodiscard]] void* bottom() const { return base_ + kGuardBytes; }
    [[nodiscard]] void* top() const { return base_ + kGuardBytes + size(); }
    [[nodiscard]] static std::size_t size() { return kHostReserveBytes + kGuestBytes; }
    [[nodiscard]] bool guards(const void* address) const {
        return address >= base_ && address < base_ + kGuardBytes;
    }
    [[nodiscard]] bool holds(const void* address) const {
        return address >= bottom() && address < top();
    }
    // A host function whose frame is not below has its reserve.
    [[nodiscard]] const void* floor() const { return base_ + kGuardBytes + kHostReserveBytes; }

private:
    explicit GuestStack(std::uint8_t* base) : base_(base) {}
    std::uint8_t* base_;
};

// A stack, the way out of the guest that runs on it, and, while it waits, where it goes on. Frames on it own nothing: a
// waiting one is given up by giving its stack to somebody else.
struct Fiber {
    std::unique_ptr<GuestStack> stack;
    sigjmp_buf out;
    // Of one that waits:
    void* at = nullptr;
    Instance* instance = nullptr;
    std::int64_t cpu_left_ns = 0;
    std::int64_t wall_end_ns = 0;
    std::int64_t preempted_ns = 0;  // when it was; 0: it waits by itself
    void* fake_stack = nullptr;     // a sanitizer's
};

}  // namespace hf::wasm
