#include "plugins/runtime-wasm/engine/worker.hpp"

#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/context/detail/fcontext.hpp>
#include <cerrno>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/runtime-wasm/engine/stack_switch.hpp"

namespace hf::wasm {

namespace {

namespace ctx = boost::context::detail;

// Handlers use a few hundred bytes; the frame the kernel saves grows with the CPU's vector state (AVX-512: 2.7 KiB).
constexpr std::size_t kSignalStackBytes = 64 * 1024;
// Stacks kept for the next call that waits; each may hold 320 KiB that were touched once.
constexpr std::size_t kIdleStacksMax = 16;
constexpr int kCpuSignal = SIGVTALRM;
constexpr int kWallSignal = SIGALRM;
constexpr int kSliceSignal = SIGURG;
// What the handler that gives way uses of the guest's stack beyond the signal's frame, a sanitizer's part included.
constexpr std::size_t kGiveWayBytes = 16UL * 1024;

constinit thread_local Worker* t_worker = nullptr;

std::int64_t thread_cpu_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

itimerspec timer_at(std::int64_t first_ns, std::int64_t every_ns) {
    itimerspec spec{};
    spec.it_value = {first_ns / 1'000'000'000, first_ns % 1'000'000'000};
    spec.it_interval = {every_ns / 1'000'000'000, every_ns % 1'000'000'000};
    return spec;
}

Result<void> handle_signal(int signal, void (*handler)(int, siginfo_t*, void*), int flags) {
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_RESTART | flags;
    sigemptyset(&action.sa_mask);
    // It needs the guest's stack: the signal stack serves another one while a handler is on it.
    sigaddset(&action.sa_mask, kSliceSignal);
    if (::sigaction(signal, &action, nullptr) != 0)
        return fail_errno(errno, "installing a signal handler");
    return {};
}

// They leave by siglongjmp, which restores no mask (saving one is a system call an event): nothing but the slice's
// signal, which is always blocked, may be blocked in them.
constexpr int kStops = SA_ONSTACK | SA_NODEFER;

// Whoever started us may have blocked them, and a blocked deadline is none.
Result<void> unblock_signals() {
    sigset_t ours;
    sigemptyset(&ours);
    for (const int signal : {SIGSEGV, SIGBUS, kCpuSignal, kWallSignal}) sigaddset(&ours, signal);
    if (const int why = ::pthread_sigmask(SIG_UNBLOCK, &ours, nullptr); why != 0)
        return fail_errno(why, "unblocking the deadline signals");
    sigset_t slice;
    sigemptyset(&slice);
    sigaddset(&slice, kSliceSignal);
    if (const int why = ::pthread_sigmask(SIG_BLOCK, &slice, nullptr); why != 0)
        return fail_errno(why, "blocking the slice's signal");
    return {};
}

Result<timer_t> make_timer(clockid_t clock, int signal) {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    event._sigev_un._tid = static_cast<pid_t>(::syscall(SYS_gettid));
    timer_t timer{};
    if (::timer_create(clock, &event, &timer) != 0)
        return fail_errno(errno, "creating a deadline timer");
    return timer;
}

Result<std::unique_ptr<Fiber>> make_fiber() {
    auto fiber = std::make_unique<Fiber>();
    HF_ASSIGN(fiber->stack, GuestStack::create());
    return fiber;
}

}  // namespace

const char* trap_text(int trap) {
    switch (trap) {
        case WASM_RT_TRAP_OOB:
            return "out of bounds memory or table access";
        case WASM_RT_TRAP_INT_OVERFLOW:
            return "integer overflow on divide or truncation";
        case WASM_RT_TRAP_DIV_BY_ZERO:
            return "integer divide by zero";
        case WASM_RT_TRAP_INVALID_CONVERSION:
            return "conversion of NaN to an integer";
        case WASM_RT_TRAP_UNREACHABLE:
            return "unreachable instruction executed";
        case WASM_RT_TRAP_CALL_INDIRECT:
            return "invalid call_indirect";
        case WASM_RT_TRAP_EXHAUSTION:
            return "call stack exhausted (256 KiB)";
        case kTrapNoPage:
            return "the machine had no memory page left for it";
        default:
            return "unknown trap";
    }
}

Parked::Parked(Parked&& other) noexcept
    : worker_(std::exchange(other.worker_, nullptr)), fiber_(std::move(other.fiber_)) {}

Parked& Parked::operator=(Parked&& other) noexcept {
    std::swap(worker_, other.worker_);
    std::swap(fiber_, other.fiber_);
    return *this;
}

Parked::~Parked() {
    if (fiber_ == nullptr) return;
    --(fiber_->preempted_ns != 0 ? worker_->preempted_ : worker_->parked_);
    worker_->recycle(std::move(fiber_));
}

// Free functions cannot be friends by their library type; this forwards to the worker.
struct WorkerEntry {
    static void enter(ctx::transfer_t from) {
        auto* worker = static_cast<Worker*>(from.data);
        stack_switch::end(nullptr, &worker->home_bottom_, &worker->home_size_);
        worker->home_ = from.fctx;
        Worker::trampoline_body(worker);
        stack_switch::begin(nullptr, worker->home_bottom_, worker->home_size_);
        ctx::jump_fcontext(worker->home_, worker);
        HF_CHECK(false, "a finished guest stack is never resumed");
    }
};

Result<std::unique_ptr<Worker>> Worker::create(std::int64_t tick_ns, std::size_t parked_max) {
    HF_CHECK(t_worker == nullptr, "one worker a thread");
    std::unique_ptr<Worker> worker(new Worker());
    HF_ASSIGN(auto fiber, make_fiber());
    worker->run_on(std::move(fiber));
    worker->parked_max_ = parked_max;
    worker->cpu_read_ns_ = thread_cpu_ns();

    worker->signal_stack_ = std::make_unique<std::uint8_t[]>(kSignalStackBytes);
    stack_t alternate{};
    alternate.ss_sp = worker->signal_stack_.get();
    alternate.ss_size = kSignalStackBytes;
    if (::sigaltstack(&alternate, nullptr) != 0)
        return fail_errno(errno, "setting the signal stack");

    HF_TRY(handle_signal(SIGSEGV, &Worker::on_fault, kStops));
    HF_TRY(handle_signal(SIGBUS, &Worker::on_fault, kStops));
    HF_TRY(handle_signal(kCpuSignal, &Worker::on_timer, kStops));
    HF_TRY(handle_signal(kWallSignal, &Worker::on_timer, kStops));
    HF_TRY(handle_signal(kSliceSignal, &Worker::on_slice, 0));
    HF_TRY(unblock_signals());
    const long frame = ::sysconf(_SC_MINSIGSTKSZ);
    if (frame <= 0) return fail_errno(errno, "asking for the size of a signal's frame");
    worker->frame_bytes_ = static_cast<std::size_t>(frame);
    worker->pid_ = ::getpid();
    worker->tid_ = static_cast<pid_t>(::syscall(SYS_gettid));
    t_worker = worker.get();

    HF_ASSIGN(worker->cpu_timer_, make_timer(CLOCK_THREAD_CPUTIME_ID, kCpuSignal));
    worker->have_cpu_timer_ = true;
    HF_ASSIGN(worker->wall_timer_, make_timer(CLOCK_MONOTONIC, kWallSignal));
    worker->have_wall_timer_ = true;
    const itimerspec ticks = timer_at(tick_ns, tick_ns);
    if (::timer_settime(worker->cpu_timer_, 0, &ticks, nullptr) != 0)
        return fail_errno(errno, "arming the CPU deadline timer");
    return worker;
}

Worker::~Worker() {
    if (have_cpu_timer_) ::timer_delete(cpu_timer_);
    if (have_wall_timer_) ::timer_delete(wall_timer_);
    if (t_worker == this) t_worker = nullptr;
    stack_t none{};
    none.ss_flags = SS_DISABLE;
    ::sigaltstack(&none, nullptr);
}

Worker* Worker::current() {
    return t_worker;
}

// On the host's stack. After it the processor's guesses of where calls return to are wrong: each level of calls less is
// some 20 cycles less, so it is part of its callers.
[[gnu::always_inline]] inline Outcome Worker::enter_guest(void* at, std::int64_t start_ns) {
    void* fake_stack = nullptr;
    stack_switch::begin(&fake_stack, fiber_->stack->bottom(), GuestStack::size());
    const ctx::transfer_t left = ctx::jump_fcontext(at, this);
    stack_switch::end(fake_stack, nullptr, nullptr);
    active_ = 0;
    const std::int64_t elapsed = monotonic_ns() - start_ns;
    if (stop_ == Stop::Parked || stop_ == Stop::Preempted) {
        fiber_->at = left.fctx;
        fiber_->preempted_ns = stop_ == Stop::Preempted ? start_ns + elapsed : 0;
        keep_deadlines(elapsed);
    }
    instance_ = nullptr;
    return {stop_, trap_, value_, elapsed};
}

// A leg is what runs between two stays on the host's stack.
[[gnu::always_inline]] inline void Worker::begin_leg(std::int64_t start_ns) {
    stop_ = Stop::Done;
    trap_ = 0;
    pending_ = 0;
    whole_ = 0;
    // The stack that the next call will need is there before a signal can ask for it.
    const bool sliced = slice_ns_ != 0 && preempted_ < kPreemptedMax && have_stack();
    slice_end_ns_ = sliced ? start_ns + slice_ns_ : 0;
    const std::int64_t wall_end = wall_end_ns_;
    const std::int64_t due = sliced ? std::min(start_ns + slice_ns_, wall_end) : wall_end;
    active_ = 1;
    // One that should have come by now may have been set by a tick that the CPU's deadline cut off: it is set anew.
    if (wall_armed_ns_ <= start_ns || wall_armed_ns_ > due) arm_wall(due);
}

Outcome Worker::run(Instance& instance, GuestCall call, void* arg, Deadlines deadlines) {
    HF_CHECK(active_ == 0, "a worker runs one event at a time");
    instance_ = &instance;
    call_ = call;
    arg_ = arg;
    cpu_base_ns_ = cpu_read_ns_;
    const std::int64_t start = monotonic_ns();
    serial_ = serial_ + 1;
    cpu_limit_ns_ = deadlines.cpu_ns;
    wall_end_ns_ = start + deadlines.wall_ns;
    begin_leg(start);
    return enter_guest(ctx::make_fcontext(top_, GuestStack::size(), &WorkerEntry::enter), start);
}

Outcome Worker::resume(Parked parked, std::int64_t deadline_ns) {
    HF_CHECK(active_ == 0 && parked && parked.worker_ == this, "a worker's own call is resumed");
    const std::int64_t start = monotonic_ns();
    Fiber& waiting = *parked.fiber_;
    // It did not ask to wait, so what the others took is not its time.
    if (waiting.preempted_ns != 0) waiting.wall_end_ns += start - waiting.preempted_ns;
    if (deadline_ns != 0) waiting.wall_end_ns = std::min(waiting.wall_end_ns, deadline_ns);
    if (waiting.cpu_left_ns <= 0) return {Stop::CpuDeadline, 0, 0, 0};
    if (start >= waiting.wall_end_ns) return {Stop::WallDeadline, 0, 0, 0};
    recycle(std::move(fiber_));
    run_on(std::move(parked.fiber_));
    --(waiting.preempted_ns != 0 ? preempted_ : parked_);

    instance_ = waiting.instance;
    // This leg's start is looked at, so its ticks count from here and not from the first of them.
    cpu_base_ns_ = thread_cpu_ns();
    cpu_read_ns_ = cpu_base_ns_;
    serial_ = serial_ + 1;
    seen_serial_ = serial_;
    seen_cpu_ns_ = cpu_base_ns_;
    cpu_limit_ns_ = waiting.cpu_left_ns;
    wall_end_ns_ = waiting.wall_end_ns;
    begin_leg(start);
    return enter_guest(waiting.at, start);
}

// When the first leg began its CPU clock was not looked at: of what is known for sure, it used at most the time by the
// wall, and at most what the thread used since somebody looked, a tick ago.
void Worker::keep_deadlines(std::int64_t elapsed_ns) {
    const std::int64_t now = thread_cpu_ns();
    cpu_read_ns_ = now;
    fiber_->instance = instance_;
    fiber_->cpu_left_ns = cpu_limit_ns_ - std::min(elapsed_ns, now - cpu_base_ns_);
    fiber_->wall_end_ns = wall_end_ns_;
}

Parked Worker::take_parked() {
    const bool preempted = stop_ == Stop::Preempted;
    HF_CHECK((preempted || stop_ == Stop::Parked) && !idle_.empty(), "something parked");
    stop_ = Stop::Done;
    ++(preempted ? preempted_ : parked_);
    Parked out(*this, std::move(fiber_));
    run_on(std::move(idle_.back()));
    idle_.pop_back();
    return out;
}

bool Worker::may_park() {
    return parked_ < parked_max_ && have_stack();
}

bool Worker::have_stack() {
    if (!idle_.empty()) return true;
    auto made = make_fiber();
    if (!made) return false;
    idle_.push_back(std::move(made).value());
    return true;
}

// On the guest's stack, whose frames stay as they are.
void Worker::park() {
    if (pending_ != 0 && pending_ != static_cast<int>(Stop::Preempted))
        jump(static_cast<Stop>(pending_), 0);
    leave_stack(Stop::Parked);
}

void Worker::leave_stack(Stop stop) {
    stop_ = stop;
    active_ = 0;
    stack_switch::begin(&fiber_->fake_stack, home_bottom_, home_size_);
    const ctx::transfer_t from = ctx::jump_fcontext(home_, this);
    stack_switch::end(fiber_->fake_stack, &home_bottom_, &home_size_);
    home_ = from.fctx;
}

void Worker::run_on(std::unique_ptr<Fiber> fiber) {
    fiber_ = std::move(fiber);
    top_ = fiber_->stack->top();
    floor_ = fiber_->stack->floor();
}

void Worker::recycle(std::unique_ptr<Fiber> fiber) {
    if (idle_.size() >= kIdleStacksMax) return;
    fiber->stack->clear();
    fiber->fake_stack = nullptr;
    idle_.push_back(std::move(fiber));
}

// On the guest stack. No local of this function lives across the jump.
void Worker::trampoline_body(Worker* worker) {
    if (sigsetjmp(worker->fiber_->out, 0) == 0) {
        // Its slice may be over before it begins: then others run in between, and these are theirs.
        const GuestCall call = worker->call_;
        Instance& instance = *worker->instance_;
        void* const arg = worker->arg_;
        worker->leave_host();
        worker->value_ = call(instance, arg);
    }
    t_worker->in_guest_ = 0;
}

Worker& Worker::enter_host() {
    Worker& worker = *t_worker;
    worker.in_guest_ = 0;
    if (__builtin_frame_address(0) < worker.floor_)
        worker.jump(Stop::Trap, WASM_RT_TRAP_EXHAUSTION);
    return worker;
}

void Worker::leave_host() {
    in_guest_ = 1;
    if (pending_ != 0) act_on_pending();
}

void Worker::act_on_pending() {
    const auto why = static_cast<Stop>(pending_);
    if (why != Stop::Preempted) jump(why, 0);
    give_way();
}

// On the guest's stack, in guest code or as a host function's last act. A deadline that is met on the way is found by
// resume(), or here afterwards. A leg may be over before the guest has run an instruction of it.
void Worker::give_way() {
    do {
        in_guest_ = 0;
        leave_stack(Stop::Preempted);
        in_guest_ = 1;
    } while (pending_ == static_cast<int>(Stop::Preempted));
    if (pending_ != 0) jump(static_cast<Stop>(pending_), 0);
}

void Worker::keep_whole(bool on) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    whole_ = on ? 1 : 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
}

void Worker::rest() {
    if (wall_armed_ns_ == 0) return;
    wall_armed_ns_ = 0;
    const itimerspec never{};
    ::timer_settime(wall_timer_, 0, &never, nullptr);
}

void Worker::stop_guest(Stop stop, int trap) {
    jump(stop, trap);
}

void Worker::jump(Stop stop, int trap) {
    in_guest_ = 0;
    stop_ = stop;
    trap_ = trap;
    siglongjmp(fiber_->out, 1);
}

void Worker::on_fault(int signal, siginfo_t* info, void*) {
    Worker* worker = t_worker;
    if (worker != nullptr && worker->in_guest_ != 0 && info->si_code > 0) {
        if (worker->instance_->slot().contains(info->si_addr))
            worker->jump(Stop::Trap, signal == SIGBUS ? kTrapNoPage : WASM_RT_TRAP_OOB);
        if (worker->fiber_->stack->guards(info->si_addr))
            worker->jump(Stop::Trap, WASM_RT_TRAP_EXHAUSTION);
    }
    // Not the guest's doing: return to the same instruction with the default action, so that the exit report and a
    // core name the real place. A signal sent by somebody has no instruction to repeat.
    struct sigaction standard {};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    if (info->si_code <= 0) ::raise(signal);
}

void Worker::on_timer(int signal, siginfo_t* info, void* context) {
    Worker* worker = t_worker;
    if (worker == nullptr || info->si_code != SI_TIMER) return;
    const int saved_errno = errno;
    if (signal == kCpuSignal)
        worker->cpu_tick();
    else
        worker->wall_tick(context);
    errno = saved_errno;
}

void Worker::cpu_tick() {
    const std::int64_t now = thread_cpu_ns();
    cpu_read_ns_ = now;
    if (active_ == 0) return;
    if (seen_serial_ != serial_) {
        seen_serial_ = serial_;
        seen_cpu_ns_ = now;
        return;
    }
    if (now - seen_cpu_ns_ >= cpu_limit_ns_) interrupt(Stop::CpuDeadline);
}

void Worker::wall_tick(void* context) {
    wall_armed_ns_ = 0;
    if (active_ == 0) return;
    const std::int64_t now = monotonic_ns();
    if (now >= wall_end_ns_) return interrupt(Stop::WallDeadline);
    if (slice_end_ns_ != 0 && now >= slice_end_ns_)
        slice_end_ns_ = end_slice(context) ? 0 : now + slice_ns_;
    const std::int64_t slice_end = slice_end_ns_;
    const std::int64_t wall_end = wall_end_ns_;
    arm_wall(slice_end == 0 ? wall_end : std::min(slice_end, wall_end));
}

// On the signal stack, `context` is what it interrupted. False: not here; another time.
bool Worker::end_slice(void* context) {
    if (in_guest_ == 0) {
        if (pending_ == 0) pending_ = static_cast<int>(Stop::Preempted);
        return true;
    }
    if (whole_ != 0) return false;
    auto* interrupted = static_cast<ucontext_t*>(context);
    const auto sp = static_cast<std::uintptr_t>(interrupted->uc_mcontext.gregs[REG_RSP]);
    const auto bottom = reinterpret_cast<std::uintptr_t>(fiber_->stack->bottom());
    const auto top = reinterpret_cast<std::uintptr_t>(fiber_->stack->top());
    if (sp < bottom + frame_bytes_ + kGiveWayBytes || sp > top) return false;
    // Delivered by the return from this handler, at the very instruction that was interrupted.
    sigdelset(&interrupted->uc_sigmask, kSliceSignal);
    ::syscall(SYS_tgkill, pid_, tid_, kSliceSignal);
    return true;
}

void Worker::on_slice(int, siginfo_t*, void* context) {
    // Returns to a guest that has it blocked again.
    sigaddset(&static_cast<ucontext_t*>(context)->uc_sigmask, kSliceSignal);
    Worker* worker = t_worker;
    if (worker == nullptr || worker->active_ == 0 || worker->in_guest_ == 0 ||
        !worker->fiber_->stack->holds(__builtin_frame_address(0)))
        return;
    const int saved_errno = errno;
    worker->give_way();
    errno = saved_errno;
}

void Worker::interrupt(Stop why) {
    if (in_guest_ != 0) jump(why, 0);
    pending_ = static_cast<int>(why);
}

// The CPU's deadline may end a guest in the midst of this: what is believed to be set is so.
void Worker::arm_wall(std::int64_t at_ns) {
    const itimerspec spec = timer_at(std::max<std::int64_t>(at_ns, 1), 0);
    ::timer_settime(wall_timer_, TIMER_ABSTIME, &spec, nullptr);
    wall_armed_ns_ = at_ns;
}

}  // namespace hf::wasm
