// A thread that runs guests: their stacks, its signal stack, its two deadline timers and the way out of guest code.
//
// A guest is stopped by siglongjmp, from a trap, from a memory fault or from a deadline signal. That is safe because
// guest code owns nothing of the host: every call back into the host turns `in_guest` off first and on again last, and a
// deadline that comes in between is only remembered. A host function that stops the guest must do so before it owns
// anything. A fault outside the running guest's slot and stack guard is a bug here: the process dies by it.
//
// A guest that waits parks: it leaves its stack, the jump target on it and what is left of its deadlines as they are, and
// the thread goes on elsewhere. One guest runs at a time, so flags and limits of the running one are the worker's;
// resume() puts those of the waiting one in place before its first instruction. Its CPU clock stands still meanwhile, its
// wall clock does not. A waiting guest may be given up at any time: its frames own nothing.
//
// A guest that runs on and on is preempted, so that others get their turn: the wall timer ends its slice, and it is put
// aside as one that parks, but with its wall clock standing still too. Registers of any width lie in the frame of a signal
// on its own stack, from which it returns when it is resumed. That signal is blocked but for the moment in which the timer's
// handler, which runs elsewhere, returns into guest code.
//
// Deadlines cost no system call an event. The CPU timer ticks only while this thread burns CPU; each tick compares with
// what it saw of the same event before, so a late tick never hits the next event. The wall timer is armed when none is
// pending and re-armed by its own handler: under load once a slice. An idle worker is not woken: rest() disarms it.
#pragma once

#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <vector>

#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/engine/guest_stack.hpp"
#include "plugins/runtime-wasm/engine/instance.hpp"

namespace hf::wasm {

enum class Stop : std::uint8_t { Done, Trap, CpuDeadline, WallDeadline, Abort, Parked, Preempted };

// Most of a shorter slice would be the way into the guest and out of it.
inline constexpr std::int64_t kSliceNsMin = 20'000;

// Preempted calls that may wait at once; beyond them a call runs to its end in one go. Each holds a stack of 320 KiB that
// it has touched parts of, and the last of so many waits for the CPU time of all before it.
inline constexpr std::size_t kPreemptedMax = 64;

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

// A call into a mapped instance; runs on a guest stack. Owns nothing: it may never return. `arg` outlives it, also
// while it is parked.
using GuestCall = std::uint32_t (*)(Instance& instance, void* arg);

class Worker;

// A guest in the middle of a call, on its stack. Destroying it gives it up. Must not outlive its worker.
class Parked {
public:
    Parked() = default;
    Parked(Parked&& other) noexcept;
    Parked& operator=(Parked&& other) noexcept;
    ~Parked();
    [[nodiscard]] explicit operator bool() const { return fiber_ != nullptr; }

private:
    friend class Worker;
    Parked(Worker& worker, std::unique_ptr<Fiber> fiber)
        : worker_(&worker), fiber_(std::move(fiber)) {}
    Worker* worker_ = nullptr;
    std::unique_ptr<Fiber> fiber_;
};

class Worker {
public:
    // For the calling thread, which may have only one. `tick_ns`: the CPU timer's period, the price in precision.
    // `parked_max`: guests that may wait at once. Installs the process's SIGSEGV, SIGBUS, SIGVTALRM and SIGALRM handlers.
    // Call before the last filter is laid.
    static Result<std::unique_ptr<Worker>> create(std::int64_t tick_ns, std::size_t parked_max = 0);
    // From the next run() or resume() on a call that has run for so long by the clock is preempted; 0, as at the start:
    // none is. Below kSliceNsMin a call may give way many times before it has got anywhere.
    void preempt_after(std::int64_t slice_ns) { slice_ns_ = slice_ns; }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker();

    // Runs one call to its end, whatever that is, or until it parks or is preempted. This worker's thread only, not from
    // within a call.
    Outcome run(Instance& instance, GuestCall call, void* arg, Deadlines deadlines);
    // After Stop::Parked or Stop::Preempted, once.
    [[nodiscard]] Parked take_parked();
    // Goes on with a call that was taken. Its deadlines are what run() gave it; `deadline_ns` (CLOCK_MONOTONIC) may come
    // before them, 0: none. One whose time is up meanwhile is given up here and ends as such without running.
    Outcome resume(Parked parked, std::int64_t deadline_ns);
    // Calls that wait: by themselves, and preempted.
    [[nodiscard]] std::size_t parked() const { return parked_; }
    [[nodiscard]] std::size_t preempted() const { return preempted_; }
    // No call comes soon: no timer needs to go off. Between calls.
    void rest();

    // The calling thread's worker; null if it has none.
    static Worker* current();
    // First and last act of every function that guest code calls.
    static Worker& enter_host();
    void leave_host();
    // Leaves guest code for good. Only between enter_host() and owning anything.
    [[noreturn]] void stop_guest(Stop stop, int trap);
    // Makes sure that park() will find what it needs; false: parked_max wait already, or there is no stack.
    [[nodiscard]] bool may_park();
    // After may_park(), where stop_guest() is allowed too: run() or resume() answers Stop::Parked, and this returns when
    // the call is resumed, if ever.
    void park();
    // While true the running call is not preempted; its deadlines hold all the same. For a GuestCall's own part, while it
    // reads what may be gone by the time it is resumed.
    void keep_whole(bool on);

    [[nodiscard]] Instance& instance() const { return *instance_; }
    // When the running call's wall time ends (CLOCK_MONOTONIC).
    [[nodiscard]] std::int64_t wall_end_ns() const { return wall_end_ns_; }

private:
    Worker() = default;
    static void trampoline_body(Worker* worker);
    static void on_fault(int signal, siginfo_t* info, void* context);
    static void on_timer(int signal, siginfo_t* info, void* context);
    static void on_slice(int signal, siginfo_t* info, void* context);
    void cpu_tick();
    void wall_tick(void* context);
    bool end_slice(void* context);
    void interrupt(Stop why);
    void act_on_pending();
    void give_way();
    void leave_stack(Stop stop);
    void arm_wall(std::int64_t at_ns);
    void begin_leg(std::int64_t start_ns);
    bool have_stack();  // one more than the running call's; makes it if need be
    Outcome enter_guest(void* at, std::int64_t start_ns);
    void keep_deadlines(std::int64_t elapsed_ns);
    void recycle(std::unique_ptr<Fiber> fiber);
    void run_on(std::unique_ptr<Fiber> fiber);
    [[noreturn]] void jump(Stop stop, int trap);
    friend struct WorkerEntry;
    friend class Parked;

    std::unique_ptr<Fiber>
        fiber_;            // the one that runs, or the next to run; never null between calls
    void* top_ = nullptr;  // of its stack
    const void* floor_ = nullptr;  // of its stack: a host function above it has its reserve
    std::vector<std::unique_ptr<Fiber>> idle_;
    std::size_t parked_ = 0;
    std::size_t parked_max_ = 0;
    std::size_t preempted_ = 0;
    std::int64_t slice_ns_ = 0;
    std::size_t frame_bytes_ = 0;  // of a signal's frame, at most
    pid_t pid_ = 0;
    pid_t tid_ = 0;
    std::unique_ptr<std::uint8_t[]> signal_stack_;
    timer_t cpu_timer_{};
    timer_t wall_timer_{};
    bool have_cpu_timer_ = false;
    bool have_wall_timer_ = false;

    // Touched by the handlers, which run on this thread: volatile is what is needed, not atomic.
    volatile std::sig_atomic_t active_ = 0;
    volatile std::sig_atomic_t in_guest_ = 0;
    volatile std::sig_atomic_t pending_ = 0;  // a Stop that came while in the host
    volatile std::sig_atomic_t whole_ = 0;
    volatile std::uint64_t serial_ = 0;       // names what runs: an event, or one leg of it
    volatile std::uint64_t seen_serial_ = 0;  // the one the last CPU tick saw
    volatile std::int64_t seen_cpu_ns_ = 0;
    volatile std::int64_t cpu_read_ns_ = 0;   // the thread's CPU clock when it was last looked at
    volatile std::int64_t cpu_limit_ns_ = 0;  // what is left of it
    volatile std::int64_t wall_end_ns_ = 0;
    volatile std::int64_t slice_end_ns_ = 0;   // 0: the running call is not preempted (any more)
    volatile std::int64_t wall_armed_ns_ = 0;  // when the wall timer goes off; 0: not armed

    Instance* instance_ = nullptr;
    GuestCall call_ = nullptr;
    void* arg_ = nullptr;
    void* home_ = nullptr;  // where the host's stack goes on
    const void* home_bottom_ = nullptr;
    std::size_t home_size_ = 0;
    std::int64_t cpu_base_ns_ = 0;  // not later than the start of the leg that runs
    Stop stop_ = Stop::Done;
    int trap_ = 0;
    volatile std::uint32_t value_ = 0;
};

}  // namespace hf::wasm
