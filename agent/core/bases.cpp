// When a unit's whole state is written, and the room that states have on their way (part of Units).
//
// A base costs the store as much as it is large, and a load as much as the base and the log since then. So the log may grow
// with the base: what was written since then is about as much as the next base writes again. A load reads the base and at
// most kOverdue times as many bytes as it has, or as limits.checkpoint_bytes says, and what may run ahead of the store.
#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// Of an entry: unit, epoch, numbers.
constexpr std::size_t kObjectHeadBytes = 1024;
// An entry costs the store a page, however small it is: for each page of the base one entry more is waited for. The largest
// base waits for 2048 of them, which a load fetches in some 50 ms.
constexpr std::size_t kBaseBytesPerEntry = 4096;
// Of what is due: beyond it events wait for the base, so that a log is bounded also where the room for bases is not enough.
constexpr std::size_t kOverdue = 2;
}  // namespace

bool Units::base_due(const Unit& unit, std::size_t times) const {
    if (env_.now < unit.no_base_until) return false;  // nor is it waited for
    const Limits& limits = env_.config.limits;
    const std::size_t entries = limits.checkpoint_entries + unit.base_bytes / kBaseBytesPerEntry;
    const std::size_t bytes = std::max(limits.checkpoint_bytes, unit.base_bytes);
    return unit.entries_since_base >= times * entries || unit.bytes_since_base >= times * bytes;
}

bool Units::base_overdue(const Unit& unit) const {
    return !unit.checkpointing && base_due(unit, kOverdue);
}

// Whether it may be asked for now: one that is due waits for its turn.
bool Units::wants_base(Unit& unit) {
    return unit.memory == Memory::Resident && !unit.checkpointing && !unit.stop_over &&
           !unit.parked && base_due(unit, 1) && room_for_state(unit, base_bytes_at_most(unit));
}

std::size_t Units::base_bytes_at_most(const Unit& unit) {
    return std::min(unit.base_bytes + unit.bytes_since_base, kObjectBytesMax);
}

void Units::checkpointed(CheckpointedIn& event) {
    Unit* unit = close_runtime_op(event.op, event.from, RuntimeAsk::Checkpoint, event.activation);
    if (unit == nullptr || !unit->checkpointing) return;
    // What is still to be applied and marked goes with the state, and both have to fit one object.
    LogEntry fold;
    unit->stored.give(fold);
    if (event.ok && entry_cost(fold) + event.base.size() > kObjectBytesMax - kObjectHeadBytes) {
        event.ok = false;
        event.error = "with the messages that are under way it is larger than an object";
    }
    if (!event.ok) {
        put_off_base(*unit, event.error);
        return pump(*unit);
    }
    append_base(*unit, std::move(event.base));
    pump(*unit);
}

// Not now: it is asked for again when as much was written once more.
void Units::put_off_base(Unit& unit, const std::string& why) {
    env_.note(NoteLevel::Warn, "units", unit.key + ": no checkpoint: " + why);
    unit.checkpointing = false;
    unit.base_bytes = base_bytes_at_most(unit);
    unit.entries_since_base = 0;
    unit.bytes_since_base = 0;
}

// --- room ----------------------------------------------------------------------------------------------------------------

// False: it stands in line, and settle_rooms() goes on with it.
bool Units::room_for_state(Unit& unit, std::size_t bytes) {
    if (bytes == 0) return true;
    unit.in_state_room = true;
    return states_.take(unit.id, bytes);
}

void Units::look_at_room(const Unit& unit) {
    if (unit.in_state_room) room_looks_.push_back(unit.id);
}

bool Units::needs_room(const Unit& unit) const {
    if (unit.memory == Memory::Fetching || unit.memory == Memory::Activating || unit.checkpointing)
        return true;
    // One whose event waits for a call lets others pass: it may wait for one that is to be loaded.
    if (unit.memory == Memory::Resident && !unit.stop_over && !unit.parked && base_due(unit, 1))
        return true;
    return std::any_of(unit.pending.begin(), unit.pending.end(), [](const PendingEntry& entry) {
        return entry.entry.kind == EntryKind::Base;
    });
}

// After each step: who needs its room no longer gives it back, and those whose turn has come go on.
void Units::settle_rooms() {
    for (;;) {
        while (!room_looks_.empty()) {
            Unit* unit = unit_of(room_looks_.back());
            room_looks_.pop_back();
            if (unit == nullptr || !unit->in_state_room) continue;
            // Nobody waits for what was read.
            const bool idle = unit->memory == Memory::Activating && unit->runtime_op == 0;
            if (idle && !unit->has_work()) go_cold(*unit, true);
            if (needs_room(*unit)) continue;
            unit->in_state_room = false;
            states_.leave(unit->id);
        }
        const auto next = states_.next();
        if (!next) return;
        Unit* unit = unit_of(*next);
        HF_CHECK(unit != nullptr, "who is forgotten leaves the line");
        room_looks_.push_back(unit->id);
        if (unit->memory == Memory::Fetching)
            fetch_more(*unit);
        else
            pump(*unit);
    }
}

}  // namespace hf::core
