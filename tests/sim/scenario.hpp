// What one seed tries: how much load, which bounds, which faults and how often. All of it follows from the seed.
#pragma once

#include <cstdint>
#include <string>

#include "agent/core/types.hpp"
#include "tests/sim/dice.hpp"

namespace hf::sim {

using core::kMs;
using core::kSecond;
using core::Time;

// Chances are in permille of the requests an instance gets.
struct Scenario {
    std::string profile;

    // Load.
    int requests = 200;
    Time span = 10 * kSecond;
    unsigned units = 4;
    unsigned hammer_percent = 0;  // of the requests go to unit 0
    unsigned read_percent = 25;
    unsigned fail_percent = 5;
    unsigned stop_percent = 0;       // of the units want to hear that they leave memory
    unsigned actor_percent = 0;      // of the adds also send, set alarms or call
    unsigned later_percent = 0;      // of the plain adds are content with 202
    unsigned poison_permille = 0;    // events that end every runtime that touches them
    std::int64_t pad_bytes_max = 0;  // of one event's changes
    std::size_t base_pad = 0;        // bytes that a base is larger than its ids
    Time deadline_min = 20 * kMs;
    Time deadline_max = 20 * kSecond;

    // The node.
    core::Limits limits;
    Time evict_after = core::ClassSpec{}.evict_after;
    std::uint32_t runtimes = 2;
    std::uint32_t gateways = 1;
    bool restart_intensity = false;
    bool leftovers_reaped = true;
    std::string placement = "least-loaded";

    // Storage.
    Time put_delay_max = 2 * kMs;
    Time read_delay_max = 1 * kMs;
    unsigned unknown = 0;  // a third each: not applied, applied, applied later
    Time ghost_delay_max = 3 * kSecond;
    unsigned storage_dies = 0;  // with the request open, applied or not
    unsigned storage_lies = 0;  // answers doubled, or to requests that never were
    unsigned refused = 0;       // a single refusal that has no effect
    Time disk_full_every = 0;   // mean pause between phases of a full disk, 0 = never
    Time disk_full_for = 0;

    // Runtime.
    Time event_delay_max = 2 * kMs;
    unsigned forgets = 0;
    unsigned traps = 0;
    unsigned runtime_dies = 0;
    unsigned runtime_lies = 0;
    unsigned activation_refused = 0;
    unsigned checkpoint_refused = 0;
    unsigned runtime_stalls = 0;

    // Placement.
    unsigned place_late = 0;
    unsigned place_stalls = 0;
    unsigned place_lies = 0;
    unsigned place_none = 0;
    unsigned place_dies = 0;

    // The whole node.
    Time kill_every = 0;  // mean pause between kills of a random instance, 0 = never
    Time stall_every = 0;
    unsigned bad_start = 0;  // an instance that greets wrongly, refuses, hangs or dies before Ready
    int node_restarts = 0;
    int swaps = 0;
    int deploys = 0;               // swaps of the runtime to other modules
    bool stop_under_load = false;  // in the middle of all trouble
    bool start_again = false;      // a last start on the same bucket must find everything
    bool calm = false;             // nothing goes wrong: exact checks apply

    // Several nodes on one bucket. Without a lease there is one, and the bucket is its own.
    std::uint32_t nodes = 1;
    core::LeaseSpec lease;
    int node_faults = 0;  // of the kinds that chaos.cpp names, over the span
    // Processes and bucket are sound, only nodes and what lies between them fail: when all of that is over, requests
    // are answered again within a bound.
    bool only_nodes_fail = false;
    Time link_delay_max = 3 * kMs;
    unsigned link_lost = 0;  // of the calls between nodes, those whose outcome nobody knows
    [[nodiscard]] bool cluster() const { return !lease.none(); }
};

[[nodiscard]] Scenario draw_scenario(std::uint64_t seed);

}  // namespace hf::sim
