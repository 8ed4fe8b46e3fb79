// What every part of the core shares during one step: settings, the step's time, and the list of actions it fills.
#pragma once

#include <string>
#include <utility>

#include "agent/core/actions.hpp"
#include "agent/core/records.hpp"
#include "agent/core/types.hpp"

namespace hf::core {

// Cumulative figures for status and metrics; reset only by a restart.
struct Stats {
    std::uint64_t accepted = 0;        // events admitted under an event id
    std::uint64_t answered = 0;        // replies given for them
    std::uint64_t refused_busy = 0;    // 503 before admission
    std::uint64_t deadline = 0;        // 504
    std::uint64_t undone = 0;          // events undone after a refused or fenced commit
    std::uint64_t redelivered = 0;     // Deliver sent again after a runtime's death
    std::uint64_t poisoned = 0;        // events failed after three deaths
    std::uint64_t commits = 0;         // entries stored
    std::uint64_t commit_unknown = 0;  // Puts that had to be settled
    std::uint64_t fenced = 0;
    std::uint64_t bases = 0;
    std::uint64_t acquires = 0;
    std::uint64_t loads = 0;
    std::uint64_t placed_by_policy = 0;
    std::uint64_t placed_by_default = 0;
    std::uint64_t place_late = 0;
    std::uint64_t place_invalid = 0;
    std::uint64_t restarts = 0;
    std::uint64_t calls = 0;           // from one unit to another
    std::uint64_t calls_refused = 0;   // of them: a cycle, a full mailbox, a name that is not there
    std::uint64_t alarms_fired = 0;    // alarm events whose handler ended well
    std::uint64_t alarms_failed = 0;   // handlers that failed, each attempt
    std::uint64_t alarms_refused = 0;  // visits for which there was no room
    std::uint64_t messages_sent = 0;   // one-way messages stored with their sender
    std::uint64_t messages_applied = 0;  // and stored as applied by their receiver
    std::uint64_t messages_dead = 0;     // given up, journalled requests included
    std::uint64_t journalled = 0;        // requests accepted for later
    std::uint64_t journal_applied = 0;   // and applied, or given up
    std::uint64_t buffered_lost = 0;     // accepted for later in memory, and not applied
    std::uint64_t stops = 0;             // stop events whose handler ended well, and is stored
    std::uint64_t stops_failed = 0;      // and those that failed, were late or were cut off
    std::uint64_t evicted = 0;           // units that left memory idle, or to make room
    std::uint64_t leases_lost = 0;       // incarnations that ended with their lease
    std::uint64_t passed_on = 0;         // events asked of the node that holds their actor
    std::uint64_t passed_on_broken = 0;  // of them, those that node did not answer
    std::uint64_t taken_over = 0;        // holds of nodes that are dead
    std::uint64_t stale_messages =
        0;  // answers of retired activations, dead generations, settled requests
};

struct Env {
    Env(Config settings, const Codec& record_codec)
        : config(std::move(settings)),
          codec(record_codec),
          random(config.seed_hi, config.seed_lo) {}

    Config config;
    const Codec& codec;
    Random random;
    Stats stats;
    Time now = 0;
    Time wall_offset = 0;  // Unix time in ns = now + wall_offset
    Time slept = 0;        // how long the host has been suspended, in all
    Actions* out = nullptr;
    OpId last_op = 0;

    [[nodiscard]] std::int64_t wall_ms() const { return (now + wall_offset) / kMs; }
    // The clock of leases, which counts suspend. Deadlines are on `now`.
    [[nodiscard]] Time lease_now() const { return now + slept; }
    [[nodiscard]] OpId new_op() { return ++last_op; }
    [[nodiscard]] WriteId new_write_id() { return WriteId{random.next() | 1U, random.next()}; }
    void emit(Action action) { out->push_back(std::move(action)); }
    void note(NoteLevel level, std::string room, std::string text) {
        emit(Note{level, std::move(room), std::move(text)});
    }
};

}  // namespace hf::core
