// A thread that runs guests: its guest stack, its signal stack, its two deadline timers and the way out of guest code.
//
// A guest is stopped by siglongjmp, from a trap, from a memory fault or from a deadline signal. That is safe because
// guest code owns nothing of the host: every call back into the host turns `in_guest` off first and on again last, and a
// deadline that comes in between is only remembered. A host function that stops the guest must do so before it owns
// anything. A fault outside the running guest's slot and stack guard is a bug here: the process dies by it.
//
// Deadlines cost no system call an event. The CPU timer ticks only while this thread burns CPU; each tick compares with
// what it saw of the same event before, so a late tick never hits the next event. The wall timer is armed when none is
// pending and re-armed by its own handler. An idle worker is not woken, but for one last wall tick.
//
// One event at a time now; the stack is its own object so that a parked event can keep it later.
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>

#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/engine/instance.hpp"

namespace hf::wasm {

enum class Stop : std::uint8_t { Done, Trap, CpuDeadline, WallDeadline, Abort };

struct Outcome {
    Stop stop = Stop::Done;
    int trap = 0;             // wasm_rt_trap_t when stop == Trap; kTrapNoPage beyond it
    std::uint32_t value = 0;  // the call's result when stop == Done
    std::int64_t elapsed_ns = 0;
};

inline constexpr int kTrapNoPage = 100;  // SIGBUS in the slot: the kernel had no page for it
// "out of bounds memory access" and so on, in lower case, for the middle of a sentence.
[[nodiscard]] const char* trap_text(int trap);

struct Deadlines {
    std::int64_t cpu_ns = 0;  // of this thread, within one tick more
    std::int64_t wall_ns = 0;
};

// A call into a mapped instance; runs on the guest stack. Owns nothing: it may never return.
using GuestCall = std::uint32_t (*)(Instance& instance, void* arg);

// What guests run on: a guard that swallows any single frame step, then stack. Movable by pointer only.
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
    [[nodiscard]] void* top() const { return base_ + kGuardBytes + size(); }
    [[nodiscard]] static std::size_t size() { return kHostReserveBytes + kGuestBytes; }
    [[nodiscard]] bool guards(const void* address) const {
        return address >= base_ && address < base_ + kGuardBytes;
    }
    // True when a host function at `frame` still has its reserve below it.
    [[nodiscard]] bool room(const void* frame) const {
        return frame >= base_ + kGuardBytes + kHostReserveBytes;
    }

private:
    explicit GuestStack(std::uint8_t* base) : base_(base) {}
    std::uint8_t* base_;
};

class Worker {
public:
    // For the calling thread, which may have only one. `tick_ns`: the CPU timer's period, the price in precision.
    // Installs the process's SIGSEGV, SIGBUS, SIGVTALRM and SIGALRM handlers. Call before the last filter is laid.
    static Result<std::unique_ptr<Worker>> create(std::int64_t tick_ns);
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    // Runs one call to its end, whatever that is. This worker's thread only, not from within a call.
    Outcome run(Instance& instance, GuestCall call, void* arg, Deadlines deadlines);

    // The calling thread's worker; null if it has none.
    static Worker* current();
    // First and last act of every function that guest code calls.
    static Worker& enter_host();
    void leave_host();
    // Leaves guest code for good. Only between enter_host() and owning anything.
    [[noreturn]] void stop_guest(Stop stop, int trap);

    [[nodiscard]] Instance& instance() const { return *instance_; }

private:
    Worker() = default;
    static void trampoline_body(Worker* worker);
    static void on_fault(int signal, siginfo_t* info, void* context);
    static void on_timer(int signal, siginfo_t* info, void* context);
    void cpu_tick();
    void wall_tick();
    void interrupt(Stop why);
    void arm_wall(std::int64_t at_ns);
    [[noreturn]] void jump(Stop stop, int trap);
    friend struct WorkerEntry;

    std::unique_ptr<GuestStack> stack_;
    std::unique_ptr<std::uint8_t[]> signal_stack_;
    timer_t cpu_timer_{};
    timer_t wall_timer_{};
    bool have_cpu_timer_ = false;
    bool have_wall_timer_ = false;

    // Touched by the handlers, which run on this thread: volatile is what is needed, not atomic.
    volatile std::sig_atomic_t active_ = 0;
    volatile std::sig_atomic_t in_guest_ = 0;
    volatile std::sig_atomic_t pending_ = 0;  // a Stop that came while in the host
    volatile std::uint64_t serial_ = 0;       // names the event that runs
    volatile std::uint64_t seen_serial_ = 0;  // the one the last CPU tick saw
    volatile std::int64_t seen_cpu_ns_ = 0;
    volatile std::int64_t cpu_limit_ns_ = 0;
    volatile std::int64_t wall_end_ns_ = 0;
    volatile std::int64_t wall_armed_ns_ = 0;  // when the wall timer goes off; 0: not armed

    Instance* instance_ = nullptr;
    GuestCall call_ = nullptr;
    void* arg_ = nullptr;
    void* home_ = nullptr;  // where the host's stack goes on
    sigjmp_buf out_;
    Stop stop_ = Stop::Done;
    int trap_ = 0;
    volatile std::uint32_t value_ = 0;
};

}  // namespace hf::wasm
