// One simulated run: virtual time, one node (the real core), its bucket, its plugin processes, its clients, and chaos.
// Everything follows from the seed; a broken rule ends the run with a Failure.
//
// A node's life ends by stop or by the death of the supervisor, then the next one starts on the same bucket: a new core,
// new processes, and whatever the old ones had sent to the bucket may still land.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/core.hpp"
#include "tests/sim/bucket.hpp"
#include "tests/sim/dice.hpp"
#include "tests/sim/history.hpp"
#include "tests/sim/instances.hpp"
#include "tests/sim/log_watch.hpp"
#include "tests/sim/scenario.hpp"

namespace hf::sim {

class World {
public:
    World(std::uint64_t seed, bool tracing, bool print);

    // Start, load, quiesce, checks.
    void run();
    [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }
    [[nodiscard]] const std::deque<std::string>& tail() const { return tail_; }
    [[nodiscard]] const core::Stats& totals() const { return totals_; }

    // For the instances.
    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] std::uint64_t life() const { return life_; }
    [[nodiscard]] bool faults() const { return faults_; }
    [[nodiscard]] bool disk_full() const { return disk_full_; }
    [[nodiscard]] bool wants_stop(const std::string& unit) const;
    // This answer is the good end of a Stop, which added `id` (0: nothing).
    void stop_ends(const std::string& unit, const core::DeliveredIn& answer, std::uint64_t id);
    // Nothing has happened, nor can it, that takes a unit out of memory without a word.
    [[nodiscard]] bool undisturbed() const;
    void after(Time delay, std::function<void()> what);
    // Only if that process still lives then.
    void after(const Instance& instance, Time delay, std::function<void()> what);
    void feed(core::Event event);
    [[nodiscard]] bool tracing() const { return tracing_; }
    void trace(const std::string& line);
    [[nodiscard]] Instance* find(Handle handle);

    Dice dice;
    Scenario scenario;
    Bucket bucket;
    History history;
    LogWatch watch;

private:
    struct Timed {
        Time at = 0;
        std::uint64_t order = 0;
        std::function<void()> what;
        friend bool operator>(const Timed& a, const Timed& b) {
            return a.at != b.at ? a.at > b.at : a.order > b.order;
        }
    };
    struct Command {
        Time sent = 0;
        std::uint64_t life = 0;
        bool done = false;
        bool must_fail = false;
    };

    void run_until(Time limit, const std::function<bool()>& done);
    void one_event();
    void carry_out(core::Action& action);
    void store_asked(core::StoreRequest& request);
    void deliver_asked(const core::Deliver& deliver);
    void told_to_stop(const Instance& runtime) const;
    [[nodiscard]] Handle judge_place(const core::PlacedIn& answer);
    void check_left();
    void trace_action(const core::Action& action);

    // life.cpp
    void start_life();
    void end_life();
    void restart_node();
    void schedule_chaos();
    void kill_one();
    void stall_one();
    void disk_phase();
    void send_command();
    void send_deploy();
    void command_done(const core::CommandDone& done);
    [[nodiscard]] core::Config node_config();

    // node_journal.cpp
    [[nodiscard]] core::JournalLoaded journal_content() const;
    void append_to_journal(const core::JournalAppend& ask);
    void remove_from_journal(const core::JournalRemove& ask);
    void bury(const core::DeadLetter& letter);
    void journal_later(std::function<void()> what);

    // clients.cpp
    void schedule_clients();
    void send_request(
        const std::string& name, Op op, Time deadline, bool final_read, bool later = false);
    [[nodiscard]] Gateway* ready_gateway();
    void quiesce();
    void settle();
    void final_reads();
    void check_core();
    void check_balance();
    void stop_node();
    void check_states();

    std::uint64_t seed_;
    bool tracing_;
    bool print_;
    std::deque<std::string> tail_;
    std::uint64_t fingerprint_ = 0;
    std::priority_queue<Timed, std::vector<Timed>, std::greater<>> queue_;
    std::uint64_t order_ = 0;
    Time now_ = kSecond;
    std::uint64_t steps_ = 0;
    unsigned ticks_in_a_row_ = 0;

    std::unique_ptr<core::Core> core_;
    std::uint64_t life_ = 0;
    std::map<std::uint64_t, std::unique_ptr<Instance>> instances_;  // of this life, by generation
    core::BadBuilds bad_builds_;
    bool stepping_ = false;
    bool faults_ = true;
    bool disk_full_ = false;
    bool exited_ = false;
    bool stopping_ = false;
    bool settled_ = false;  // what was to come has had its time
    std::uint64_t last_req_ = 0;
    std::uint64_t last_build_ = 0;
    std::map<std::uint64_t, Command> commands_;
    std::map<core::OpId, core::Place> places_;            // questions to policies
    std::map<std::uint64_t, core::JournalItem> journal_;  // outlives every life
    std::uint64_t journal_next_ = 1;
    Time journal_free_ = 0;  // when its disk has done what was asked so far
    struct Stopped {
        std::string unit;
        Handle runtime;
        std::uint64_t id = 0;
    };
    std::map<std::uint64_t, Stopped> stopped_;                    // by activation, until it is left
    std::set<std::pair<std::uint32_t, std::string>> were_ready_;  // runtimes: seat and build
    core::Stats totals_;
};

}  // namespace hf::sim
