// One simulated run: virtual time, one bucket, one to four nodes (the real core in each) and the links between them, their
// clients, and chaos. Everything follows from the seed; a broken rule ends the run with a Failure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/core.hpp"
#include "tests/sim/bucket.hpp"
#include "tests/sim/dice.hpp"
#include "tests/sim/history.hpp"
#include "tests/sim/log_watch.hpp"
#include "tests/sim/network.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/node_watch.hpp"
#include "tests/sim/scenario.hpp"

namespace hf::sim {

// What clusters did, over all seeds of a run.
struct ClusterCounts {
    std::uint64_t runs = 0;
    std::uint64_t asked = 0;    // questions between nodes
    std::uint64_t unknown = 0;  // of them, without an answer
    std::uint64_t taken = 0;    // holds that went from one node to another
    std::uint64_t fenced = 0;   // leases that other nodes ended
    std::uint64_t lapsed = 0;   // incarnations after the first of a life
    std::uint64_t refused = 0;  // starts under an id that was in use
};

class World {
public:
    World(std::uint64_t seed, bool tracing, bool print);

    // Start, load, quiesce, checks.
    void run();
    [[nodiscard]] std::uint64_t fingerprint() const { return fingerprint_; }
    [[nodiscard]] const std::deque<std::string>& tail() const { return tail_; }
    [[nodiscard]] const core::Stats& totals() const { return totals_; }
    [[nodiscard]] ClusterCounts counts() const;

    // For nodes and instances.
    [[nodiscard]] Time now() const { return now_; }
    [[nodiscard]] bool faults() const { return faults_; }
    [[nodiscard]] bool disk_full() const { return disk_full_; }
    [[nodiscard]] bool wants_stop(const std::string& unit) const;
    // Nothing has happened, nor can it, that takes a unit out of memory without a word.
    [[nodiscard]] bool undisturbed() const;
    // No node loses its lease in this run.
    [[nodiscard]] bool leases_last() const { return !scenario.cluster() || scenario.calm; }
    void after(Time delay, std::function<void()> what);
    [[nodiscard]] bool tracing() const { return tracing_; }
    void trace(const std::string& line);
    [[nodiscard]] Node* node_at(const std::string& address);
    [[nodiscard]] std::uint64_t next_request() { return ++last_req_; }
    // The latest that any node's wall clock has shown.
    [[nodiscard]] std::int64_t latest_wall_ms() const;
    void wall_shows(std::int64_t ms) { latest_wall_ms_ = std::max(latest_wall_ms_, ms); }

    // What nodes tell of themselves.
    void stepped(const Node& node, std::size_t event);
    void add_totals(const core::Stats& stats);
    void life_ends(const Node& node);
    void command_done(const core::CommandDone& done);
    // `refused`: because another one has its id.
    void exited(Node& node, bool refused);
    // A node has this unit's hold from now on: nobody else may act on it.
    void check_owner(const std::string& unit) const;

    Dice dice;
    Scenario scenario;
    Bucket bucket;
    History history;
    NodeWatch node_watch;
    LogWatch watch;
    Network network;

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
        const Node* node = nullptr;
        std::uint64_t life = 0;
        bool done = false;
        bool must_fail = false;
    };

    void run_until(Time limit, const std::function<bool()>& done);
    void pass(Time time) {
        run_until(now_ + time, [] { return false; });
    }
    [[nodiscard]] Node* next_to_tick(Time& at) const;
    void one_event();
    Node& add_node(const std::string& id, bool intruder);
    [[nodiscard]] std::vector<Node*> all_up() const;
    void start_all();

    // chaos.cpp
    void schedule_chaos();
    void kill_node(Node& node);
    void start_after(Node& node, Time pause);
    void kill_one(Node& node);
    void stall_one(Node& node);
    void disk_phase();
    void send_command(Node& node);
    void send_deploy(Node& node);
    [[nodiscard]] Command& new_command(const Node& node, std::uint64_t& id);

    // node_faults.cpp
    void node_fault();
    void hold_up(Node& node, Node::Held how);
    void drain(const Node& node, Time lasts);
    void cut_links(Node& node);
    void start_intruder(const Node& like);
    [[nodiscard]] Time fault_lasts();
    void over_at(Time at) { last_fault_over_ = std::max(last_fault_over_, at); }

    // clients.cpp
    void schedule_clients();
    // By whichever node, or by `at`; answers its id, 0: nobody serves.
    std::uint64_t send_request(const std::string& name,
                               Op op,
                               Time deadline,
                               bool final_read,
                               bool later = false,
                               Node* at = nullptr);
    [[nodiscard]] Node* ready_node();
    void quiesce();
    void end_faults();
    void probe_all();
    void settle();
    void reset_failed(Node& node, bool& reset);
    void final_reads();
    void final_read(const std::string& unit, Node& at);
    void check_cores();
    void stop_nodes();
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

    std::vector<std::unique_ptr<Node>> nodes_;
    bool faults_ = true;
    bool disk_full_ = false;
    bool ending_ = false;       // who ends is not started again by itself
    bool settled_ = false;      // what was to come has had its time
    Time last_fault_over_ = 0;  // of nodes, as far as they have begun
    std::int64_t latest_wall_ms_ = INT64_MIN;
    std::uint64_t last_req_ = 0;
    std::uint64_t last_build_ = 0;
    std::uint64_t refused_ = 0;
    std::map<std::uint64_t, Command> commands_;
    core::Stats totals_;
};

}  // namespace hf::sim
