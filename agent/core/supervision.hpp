// Plugin life: which instances run, when a dead one starts again, which build a slot uses, swap and roll-back.
//
//   Starting -> Greeting -> Warming -> Serving -> Shedding -> Gone
//
// A seat is one place of a slot that should always have an instance. A death after 5 s of health restarts at once;
// otherwise 100 ms doubling to 10 s with jitter (storage at most 1 s). A death counts only when the instance lived less
// than 5 s after Ready: ten of those in 120 s and the seat is failed, visible, reset by hand.
//
// A build that stalls, lies or breaks the ABI is branded: it is not chosen again by itself, also after a restart of the
// node. A swapped build that crashes by its own fault is branded as well, and so is a configured policy whose tenth short
// life was its own fault. SIGKILL from outside brands nothing, nor does a build that refuses a policy's name or a setting
// in words; a policy that refuses is failed at once, because it would refuse again.
//
// In place of a branded policy comes the build before it, else the configured one, else the supervisor's built-in rule;
// never one that is branded itself.
// Knows nothing of units or requests; it tells its listener who serves and who is gone.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/env.hpp"
#include "agent/core/events.hpp"

namespace hf::core {

enum class Phase : std::uint8_t { Starting, Greeting, Warming, Serving, Shedding };
[[nodiscard]] const char* phase_name(Phase phase);

struct Gone {
    Kind kind = Kind::None;
    Handle handle;
    bool by_fault = false;
    OpId current = 0;  // what it had published as current
    std::string reason;
};

class Supervision {
public:
    class Listener {
    public:
        virtual ~Listener() = default;
        virtual void on_serving(Kind kind, Handle handle) = 0;
        // Still alive, but no new work: a successor took its place. on_serving takes it back.
        virtual void on_retiring(Kind kind, Handle handle) = 0;
        virtual void on_gone(const Gone& gone) = 0;
    };

    struct Instance {
        Handle handle;
        std::size_t slot = 0;
        std::uint32_t seat = 0;
        Phase phase = Phase::Starting;
        enum class Part : std::uint8_t { Main, Candidate, Retiring } part = Part::Main;
        Build build;
        Time spawned = 0;
        Time ready = 0;
        bool ending = false;  // we asked for its end, or are killing it
        bool killed = false;
        Time end_by = kNever;  // asked to end: killed when it has not by then
        std::string fault;     // why we kill it, when it is its own fault
        bool refused =
            false;  // it said no to its policy's name or to a setting: blames the operator, not the build
        // Watchdog.
        std::uint64_t open_requests = 0;
        Time busy_since = 0;       // since when requests have been open without an answer
        Time silent_since = 0;     // the same, not moved on by looks at its progress
        Time told_since = kNever;  // gateway: since when answers or clients may wait for it
        std::uint64_t progress = 0;
        bool progress_asked = false;
    };
    struct Seat {
        Handle main;
        Time start_at = kNever;
        unsigned backoff = 0;
        std::deque<Time> short_lives;
        std::uint64_t restarts = 0;
        bool failed = false;
    };
    enum class Stage : std::uint8_t { Starting, SelfTest, Full };
    struct Swap {
        std::uint64_t command = 0;
        Build build;
        std::vector<Handle> candidates;  // by seat
        std::size_t ready = 0;
        Stage stage = Stage::Starting;
        Time since = 0;
        std::uint32_t answers = 0;  // valid ones in this stage, recorded and generated
        std::optional<OpId> test;   // the generated request that is open
        Time test_sent = 0;
        bool is_rollback = false;
        bool undo = false;  // then `previous` is what a roll-back goes to
        std::optional<Build> previous;
    };
    struct Slot {
        SlotSpec spec;
        Build current;
        std::optional<Build> previous;
        std::vector<Seat> seats;
        std::optional<Swap> swap;
        std::string reason;  // why the present build is what it is, or why it failed
        std::string last_exit;
        std::string last_exit_build;  // the build that ended so
    };

    Supervision(Env& env, Listener& listener, BadBuilds bad_builds);

    void start();
    // Stop everything but storage, or storage too; idempotent.
    void stop_kind(Kind kind);
    // Ends at once what does not serve yet: it holds nothing and may not listen to a Stop for long.
    void stop_unready(Kind kind);
    void stop_restarts(Kind kind) { ended_kinds_.insert(kind); }

    void greeted(const Greeted& event);
    void ready(const ReadyIn& event);
    void exited(const Exited& event);
    void violated(const Violated& event);
    void progress_is(const ProgressIs& event);
    void tick();
    [[nodiscard]] Time next_deadline() const;

    // Commands answer through CommandDone.
    void swap(const SwapCommand& command);
    void rollback(const RollbackCommand& command);
    void reset(const ResetCommand& command);
    // agent.toml names this build for the slot from now on: what it goes back to when it has nothing better.
    void configured(const std::string& slot, const Build& build);

    // A generated request of a swap was answered. False when `op` is not one of ours.
    bool test_answered(const PlacedIn& answer);
    bool test_answered(const StepIn& answer);
    // The placer's and others' findings about a policy or any instance.
    void answered_well(Handle handle);
    void answered_badly(Handle handle, const std::string& why, bool dump);
    // The last unit left a retiring runtime.
    void retired_empty(Handle handle);

    // Watchdog bookkeeping: called by whoever sends requests.
    void opened(Handle handle);
    void closed(Handle handle);
    // A gateway was sent an answer, which it ought to read.
    void told(Handle handle);
    // After so long a request without an answer is lost, whatever else was answered meanwhile. A runtime may have all its places
    // taken by handlers that run as long as they may, one after the other.
    [[nodiscard]] Time lost_after() const {
        return env_.config.limits.runtime_inflight * stall_limit(Kind::Runtime);
    }
    // Clients wait at the node's door.
    void knocked();
    // There is a gateway, and nothing says that it may hang: a knock would be news.
    [[nodiscard]] bool knock_wanted() const;

    [[nodiscard]] Handle serving_one(Kind kind) const;           // of seat order, invalid when none
    [[nodiscard]] std::vector<Handle> serving(Kind kind) const;  // main instances in seat order
    [[nodiscard]] bool failed(Kind kind) const;  // no seat of it will start again by itself
    [[nodiscard]] const Instance* find(Handle handle) const;
    [[nodiscard]] const std::vector<Slot>& slots() const { return slots_; }
    [[nodiscard]] const std::map<std::uint64_t, Instance>& instances() const { return instances_; }
    [[nodiscard]] const BadBuilds& bad_builds() const { return bad_; }
    // Why a command for a slot of this name cannot be done: no such slot, or one that this node leaves to the built-in rule.
    [[nodiscard]] std::string no_slot(const std::string& name) const;
    [[nodiscard]] bool any_alive(Kind kind) const;

private:
    Handle spawn(std::size_t slot, std::uint32_t seat, const Build& build, Instance::Part part);
    void schedule(Slot& slot, Seat& seat, bool healthy);
    void start_seat(std::size_t slot_no, std::uint32_t seat_no);
    void kill(Instance& instance, const std::string& why, bool dump);
    void brand(const Slot& slot, const Build& build, const std::string& why);
    void check_reader(Instance& instance);
    void reader_is(Instance& instance, const ProgressIs& event);
    void begin_swap(std::uint64_t command,
                    std::size_t slot_no,
                    const Build& build,
                    bool is_rollback);
    void candidate_ready(Slot& slot);
    void go_full(Slot& slot);
    void finish_swap(Slot& slot);
    [[nodiscard]] Time window_end(const Swap& swap) const;
    [[nodiscard]] bool candidates_live(const Swap& swap) const;
    void roll_back(Slot& slot, const std::string& why);
    // What a slot may go back to from its present build; nullptr when there is nothing good.
    [[nodiscard]] const Build* fallback(const Slot& slot) const;
    void revert_or_fail(std::size_t slot_no, const std::string& why);
    void fail_slot(Slot& slot, const std::string& reason);
    void send_test(Slot& slot);
    void test_result(Slot& slot, bool valid, const std::string& why);
    void retire(Instance& instance);
    void check_watchdog(Instance& instance);
    [[nodiscard]] Time stall_limit(Kind kind) const;
    [[nodiscard]] Slot* slot_named(const std::string& name, std::size_t* number = nullptr);
    [[nodiscard]] Instance* instance_of(Handle handle);
    [[nodiscard]] bool ended(const Slot& slot) const {
        return ended_kinds_.contains(slot.spec.kind);
    }
    [[nodiscard]] bool is_policy(const Slot& slot) const {
        return slot.spec.kind == Kind::Placement || slot.spec.kind == Kind::Drain;
    }

    Env& env_;
    Listener& listener_;
    std::vector<Slot> slots_;
    std::map<std::uint64_t, Instance> instances_;  // by generation
    BadBuilds bad_;
    std::map<OpId, std::size_t> tests_;  // generated request -> slot
    std::uint64_t last_generation_ = 0;
    std::uint64_t test_sequence_ = 0;
    std::set<Kind> ended_kinds_;  // the node stops: these start no more
};

}  // namespace hf::core
