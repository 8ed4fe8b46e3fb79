#include "tests/sim/scenario.hpp"

namespace hf::sim {

namespace {

// Bounds small enough to be reached by a few hundred requests.
void draw_limits(Scenario& s, Dice& dice) {
    core::Limits& limits = s.limits;
    if (dice.percent(60)) {
        limits.checkpoint_entries = static_cast<std::size_t>(dice.between(2, 20));
        limits.checkpoint_bytes = static_cast<std::size_t>(dice.between(300, 20000));
    }
    if (dice.percent(40)) limits.run_ahead_events = static_cast<std::size_t>(dice.between(1, 8));
    if (dice.percent(30)) limits.run_ahead_bytes = static_cast<std::size_t>(dice.between(64, 2000));
    if (dice.percent(30)) limits.runtime_inflight = static_cast<std::uint32_t>(dice.between(1, 4));
    if (dice.percent(30)) limits.storage_inflight = static_cast<std::uint32_t>(dice.between(1, 4));
    if (dice.percent(25)) limits.units_max = static_cast<std::size_t>(dice.between(1, 6));
    if (dice.percent(25)) limits.hold_idle = dice.between(200 * kMs, 4 * kSecond);
    if (dice.percent(20)) limits.mailbox_events = static_cast<std::size_t>(dice.between(1, 8));
    if (dice.percent(15)) limits.accepted_events = static_cast<std::size_t>(dice.between(2, 20));
    limits.storage_stall = dice.between(1, 20) * kSecond;
    limits.stall_grace = dice.between(200, 2000) * kMs;
    if (dice.percent(20)) {
        s.pad_bytes_max = dice.between(100, 12000);
    }
}

void storage_faults(Scenario& s, Dice& dice) {
    s.put_delay_max = dice.percent(30) ? 200 * kMs : dice.between(1, 20) * kMs;
    s.read_delay_max = dice.between(1, 20) * kMs;
    s.unknown = static_cast<unsigned>(dice.between(5, 150));
    s.ghost_delay_max = dice.between(10, 5000) * kMs;
    s.storage_dies = dice.percent(60) ? static_cast<unsigned>(dice.between(1, 20)) : 0;
    s.storage_lies = dice.percent(30) ? static_cast<unsigned>(dice.between(1, 50)) : 0;
    s.refused = dice.percent(40) ? static_cast<unsigned>(dice.between(5, 150)) : 0;
}

void disk_faults(Scenario& s, Dice& dice) {
    s.disk_full_every = dice.between(200, 3000) * kMs;
    s.disk_full_for = dice.between(50, 1500) * kMs;
}

void runtime_faults(Scenario& s, Dice& dice) {
    s.event_delay_max = dice.percent(30) ? 100 * kMs : dice.between(1, 10) * kMs;
    s.forgets = static_cast<unsigned>(dice.between(0, 30));
    s.traps = static_cast<unsigned>(dice.between(0, 50));
    s.runtime_dies = static_cast<unsigned>(dice.between(0, 30));
    s.activation_refused = dice.percent(30) ? static_cast<unsigned>(dice.between(1, 100)) : 0;
    s.checkpoint_refused = dice.percent(30) ? static_cast<unsigned>(dice.between(1, 300)) : 0;
    s.poison_permille = dice.percent(30) ? static_cast<unsigned>(dice.between(1, 20)) : 0;
    s.runtime_stalls = dice.percent(20) ? static_cast<unsigned>(dice.between(1, 5)) : 0;
}

void lies(Scenario& s, Dice& dice) {
    s.runtime_lies = static_cast<unsigned>(dice.between(1, 40));
    s.storage_lies = static_cast<unsigned>(dice.between(1, 80));
    s.place_lies = static_cast<unsigned>(dice.between(0, 200));
    s.bad_start = static_cast<unsigned>(dice.between(0, 200));
}

void policy_faults(Scenario& s, Dice& dice) {
    s.place_late = static_cast<unsigned>(dice.between(0, 200));
    s.place_stalls = static_cast<unsigned>(dice.between(0, 50));
    s.place_none = static_cast<unsigned>(dice.between(0, 100));
    s.place_dies = static_cast<unsigned>(dice.between(0, 100));
    s.place_lies = dice.percent(50) ? static_cast<unsigned>(dice.between(0, 200)) : 0;
}

void kills(Scenario& s, Dice& dice) {
    s.kill_every = dice.between(20, 2000) * kMs;
    if (dice.percent(30)) s.stall_every = dice.between(500, 5000) * kMs;
}

// Processes do what they should, as fast as before, and no bound of the node is tight.
void make_sound(Scenario& s) {
    s.profile = "nodes";
    s.unknown = s.storage_dies = s.storage_lies = s.refused = 0;
    s.disk_full_every = s.disk_full_for = 0;
    s.forgets = s.traps = s.runtime_dies = s.runtime_lies = s.runtime_stalls = 0;
    s.activation_refused = s.checkpoint_refused = s.poison_permille = 0;
    s.place_late = s.place_stalls = s.place_lies = s.place_none = s.place_dies = 0;
    s.kill_every = s.stall_every = 0;
    s.bad_start = 0;
    s.swaps = 0;
    s.restart_intensity = false;
    const core::Limits plain;
    s.limits.units_max = plain.units_max;
    s.limits.hold_idle = plain.hold_idle;
    s.limits.mailbox_events = plain.mailbox_events;
    s.limits.accepted_events = plain.accepted_events;
    s.limits.storage_inflight = plain.storage_inflight;
    s.limits.runtime_inflight = plain.runtime_inflight;
    s.limits.resident_units_max = plain.resident_units_max;
    s.limits.states_bytes = plain.states_bytes;
}

void draw_cluster(Scenario& s, Dice& dice) {
    static const std::vector<std::uint32_t> kNodes = {1, 2, 2, 2, 3, 3, 3, 3, 4, 4};
    s.nodes = dice.pick(kNodes);
    core::LeaseSpec& lease = s.lease;
    lease.ttl = dice.percent(60) ? 3 * kSecond : dice.between(1500, 5000) * kMs;
    lease.renew = lease.ttl / dice.between(3, 5);
    lease.grace = dice.percent(60) ? 1 * kSecond : dice.between(300, 2000) * kMs;
    lease.poll = dice.percent(60) ? 500 * kMs : dice.between(200, 1500) * kMs;
    s.requests = static_cast<int>(dice.between(60, 300));
    s.span = dice.between(3000, 25000) * kMs;
    s.runtimes = static_cast<std::uint32_t>(dice.between(1, 2));
    if (s.calm) {
        s.runtimes = 2;
        return;
    }
    s.node_restarts = 0;  // among the faults of nodes
    s.only_nodes_fail = dice.percent(60);
    if (s.only_nodes_fail) {
        make_sound(s);
        s.put_delay_max = dice.between(1, 40) * kMs;
        s.read_delay_max = dice.between(1, 20) * kMs;
        s.event_delay_max = dice.between(1, 20) * kMs;
        s.ghost_delay_max = dice.between(10, 5000) * kMs;
    }
    s.node_faults = static_cast<int>(dice.between(1, 8));
    s.link_delay_max = dice.percent(30) ? dice.between(10, 300) * kMs : dice.between(1, 5) * kMs;
    s.link_lost = dice.percent(50) ? static_cast<unsigned>(dice.between(1, 100)) : 0;
}

}  // namespace

Scenario draw_scenario(std::uint64_t seed) {
    Dice dice(seed);
    Scenario s;
    s.requests = static_cast<int>(dice.between(40, 260));
    s.span = dice.between(500, 15000) * kMs;
    s.units = static_cast<unsigned>(dice.between(1, 8));
    s.hammer_percent = dice.percent(40) ? static_cast<unsigned>(dice.between(30, 100)) : 0;
    s.read_percent = static_cast<unsigned>(dice.between(5, 50));
    s.fail_percent = static_cast<unsigned>(dice.between(0, 10));
    if (dice.percent(30)) s.deadline_max = dice.between(30, 2000) * kMs;
    s.runtimes = static_cast<std::uint32_t>(dice.between(1, 3));
    s.gateways = static_cast<std::uint32_t>(dice.between(1, 2));
    s.restart_intensity = dice.percent(20);
    s.leftovers_reaped = dice.percent(50);
    s.start_again = dice.percent(50);
    s.stop_under_load = dice.percent(15);
    draw_limits(s, dice);
    switch (seed % 10) {
        case 0:
            s.profile = "calm";
            s.calm = true;
            s.runtimes = 2;
            s.limits = core::Limits{};
            s.stop_under_load = false;
            s.units = static_cast<unsigned>(dice.between(2, 40));
            s.fail_percent = 0;
            s.deadline_min = 5 * kSecond;
            s.deadline_max = 20 * kSecond;
            break;
        case 1:
            s.profile = "storage";
            storage_faults(s, dice);
            break;
        case 2:
            s.profile = "disk";
            storage_faults(s, dice);
            disk_faults(s, dice);
            s.hammer_percent = 80;
            // Answers that outlive an undo and the load after it.
            if (dice.percent(50)) {
                s.event_delay_max = dice.between(20, 300) * kMs;
                s.read_delay_max = 500'000;
            }
            break;
        case 3:
            s.profile = "runtime";
            runtime_faults(s, dice);
            s.put_delay_max = 30 * kMs;
            break;
        case 4:
            s.profile = "policy";
            policy_faults(s, dice);
            runtime_faults(s, dice);
            s.units = 8;
            break;
        case 5:
            s.profile = "restarts";
            storage_faults(s, dice);
            s.node_restarts = static_cast<int>(dice.between(1, 6));
            break;
        case 6:
            s.profile = "lies";
            lies(s, dice);
            storage_faults(s, dice);
            break;
        case 7:
            s.profile = "swaps";
            s.swaps = static_cast<int>(dice.between(1, 8));
            if (dice.percent(50)) kills(s, dice);
            if (dice.percent(50)) runtime_faults(s, dice);
            break;
        case 8:
            s.profile = "kills";
            kills(s, dice);
            s.put_delay_max = dice.between(1, 50) * kMs;
            s.event_delay_max = dice.between(1, 20) * kMs;
            break;
        default:
            s.profile = "everything";
            storage_faults(s, dice);
            runtime_faults(s, dice);
            policy_faults(s, dice);
            lies(s, dice);
            kills(s, dice);
            if (dice.percent(50)) disk_faults(s, dice);
            s.node_restarts = static_cast<int>(dice.between(0, 3));
            s.swaps = static_cast<int>(dice.between(0, 4));
            break;
    }
    // Evictions, in one scenario of four. Dice of their own: the other scenarios stay as they were.
    Dice apart(seed ^ 0x45564943U);
    if (!s.calm && apart.percent(25))
        s.limits.resident_units_max = static_cast<std::uint32_t>(apart.between(1, 3));
    // What actors do among themselves, in every second one; of all units known, or messages wait for ever.
    Dice actors(seed ^ 0x4143544FU);
    if (!s.calm && actors.percent(50)) {
        s.actor_percent = static_cast<unsigned>(actors.between(10, 90));
        s.limits.units_max = core::Limits{}.units_max;
    }
    // Requests for later, in every second one.
    Dice later(seed ^ 0x4C415445U);
    if (!s.calm && later.percent(50)) {
        s.later_percent = static_cast<unsigned>(later.between(10, 90));
        s.limits.units_max = core::Limits{}.units_max;
        if (later.percent(20))
            s.limits.journal_events = static_cast<std::size_t>(later.between(1, 10));
        if (later.percent(20))
            s.limits.journal_events_per_actor = static_cast<std::size_t>(later.between(1, 4));
    }
    // Units that leave memory because they are idle, and those that want to hear of it.
    Dice leaving(seed ^ 0x53544F50U);
    if (leaving.percent(60)) {
        s.stop_percent = leaving.percent(50) ? 100 : 50;
        if (!s.calm) s.evict_after = leaving.between(20, 3000) * kMs;
    }
    // Deploys, where processes come and go anyway.
    Dice deploys(seed ^ 0x4445504CU);
    const bool restless = s.swaps != 0 || s.kill_every != 0;
    if (restless && deploys.percent(60)) s.deploys = static_cast<int>(deploys.between(1, 4));
    // States that no record holds, and room for few of them on their way.
    Dice states(seed ^ 0x53544154U);
    if (!s.calm && states.percent(25))
        s.limits.states_bytes = static_cast<std::size_t>(states.between(1, 4000));
    if (!s.calm && states.percent(10))
        s.base_pad = static_cast<std::size_t>(states.between(50'000, 200'000));
    Dice cluster(seed ^ 0x434C5553U);
    if (cluster.percent(50)) draw_cluster(s, cluster);
    return s;
}

}  // namespace hf::sim
