// How units leave a runtime's memory: because they asked to, were idle for too long, others need the room, or their runtime
// or the node ends (part of Units).
//
// Who wants a Stop hears it first; what it writes there is stored before it leaves, and nothing else runs in that
// activation. A Stop waits in no mailbox: it is made when the unit pauses. An event that comes before that keeps the unit
// where it is, unless its runtime or the node ends; one that comes later waits and runs in the next activation. Whatever
// becomes of the handler, the unit leaves. A death, an undo and a fence say no goodbye: that memory is not worth one.
#include <algorithm>
#include <utility>

#include "agent/core/guest_events.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// As long as an event may take by the clock when its class says nothing; what the class says counts as well.
constexpr Time kStopDeadline = 5 * kSecond;
// Stops open at once: as many as a runtime has places in flight.
constexpr std::uint32_t kStopsMax = 64;
// Of them for idle units: a quarter, so that a thousand actors which fall idle together do not stand before clients.
constexpr std::uint32_t kIdleStopsMax = 16;
// Handlers end within milliseconds; who waits for longer is better told to come back.
constexpr Time kRoomWait = 1 * kSecond;
}  // namespace

// Nothing runs, waits or is open: its memory may go. Messages under way are kept by the core.
bool Units::pausing(const Unit& unit) const {
    return unit.settled() && !unit.has_work() && unit.outputs.empty() && unit.runtime_op == 0 &&
           unit.store_op == 0 && unit.fetches_open == 0 && unit.memory != Memory::Fetching &&
           unit.done.empty();
}

// Whether it may not leave memory yet without having heard its Stop.
bool Units::hears_stop(const Unit& unit) const {
    return unit.memory == Memory::Resident && unit.wants_stop && !unit.stop_over &&
           unit.stop_deaths < kPoisonDeaths;
}

// From here on it leaves, whatever comes.
bool Units::stop_begun(const Unit& unit) const {
    return unit.stop_over ||
           (unit.running && std::holds_alternative<FromStop>(unit.running->waiting.origin));
}

void Units::mark_leaving(Unit& unit, StopReason reason) {
    const bool stays_if_needed = reason == StopReason::Passivate || reason == StopReason::Evict;
    if (stop_begun(unit) || (unit.leaving && stays_if_needed)) return;
    unit.leaving = reason;
    if (unit.stop_counted || !hears_stop(unit)) return;
    unit.stop_counted = true;
    ++stops_open_;
    if (const auto load = runtimes_.find(unit.runtime); load != runtimes_.end())
        ++load->second.stops;
}

void Units::ask_to_leave(Unit& unit, StopReason reason) {
    mark_leaving(unit, reason);
    pump(unit);
}

// It has left, or it stays.
void Units::end_leaving(Unit& unit) {
    unit.leaving.reset();
    if (!std::exchange(unit.stop_counted, false)) return;
    --stops_open_;
    if (const auto load = runtimes_.find(unit.runtime); load != runtimes_.end())
        --load->second.stops;
    if (evict_waiting_) evict_next_ = env_.now;
}

void Units::leave_when_due(Unit& unit) {
    if (!unit.leaving || unit.runtime_op != 0 || unit.running) return;
    const StopReason reason = *unit.leaving;
    if (unit.stop_over) {
        if (!unit.settled()) return;
    } else if (reason == StopReason::Move) {
        // Events that wait run in the next runtime. A parked event is waited for: its call has a deadline.
        if (hears_stop(unit)) return queue_for_runtime(unit);
    } else {
        if (unit.has_work() && reason != StopReason::Drain) return end_leaving(unit);
        if (!pausing(unit)) return;
        if (hears_stop(unit)) return queue_for_runtime(unit);
    }
    if (reason == StopReason::Evict) ++env_.stats.evicted;
    go_cold(unit, true);
    // One that is handed over takes its unsent messages along: its next owner finds them announced.
    const bool may_go = at_rest(unit) || (unit.handing && pausing(unit));
    if (std::exchange(unit.release_after, false) && unit.hold == Hold::Serving && may_go &&
        unit.sockets == 0)
        release(unit);
}

// Ends the unit's stay at its runtime; the activation id is retired with it.
void Units::leave_runtime(Unit& unit, bool tell_runtime) {
    look_at_room(unit);
    end_leaving(unit);
    unit.wants_stop = false;
    unit.stop_over = false;
    unit.queued_for_runtime = false;
    unit.runtime_op = 0;
    unit.checkpointing = false;
    unit.room_by = 0;
    const Handle runtime = std::exchange(unit.runtime, Handle{});
    const std::uint64_t activation = std::exchange(unit.activation, 0);
    if (!runtime.valid()) return;
    warm_.at(unit.class_index).erase(unit.warm_position);
    if (--warm_count_ == 0) evict_next_ = kNever;
    const auto it = runtimes_.find(runtime);
    if (it == runtimes_.end()) return;
    RuntimeLoad& load = it->second;
    --load.resident;
    load.order.erase(unit.resident_position);
    load.crowded.remove(unit.id);
    if (tell_runtime && activation != 0) {
        load.drops.push_back(activation);
        send_drops(runtime, load);
    }
    give_room(load);
    if (load.retiring && load.resident == 0) supervision_.retired_empty(runtime);
}

// What ran there is still `running`.
void Units::lose_memory(Unit& unit, bool tell_runtime) {
    leave_runtime(unit, tell_runtime);
    if (unit.memory >= Memory::Activating) unit.memory = Memory::Cold;
    unit.image.clear();
}

void Units::go_cold(Unit& unit, bool tell_runtime) {
    lose_memory(unit, tell_runtime);
    requeue_running(unit);
}

// --- the Stop ----------------------------------------------------------------------------------------------------------

bool Units::stop_is_next(const Unit& unit) const {
    return unit.leaving && hears_stop(unit) &&
           (*unit.leaving == StopReason::Move || unit.mailbox.empty());
}

void Units::send_stop(Unit& unit) {
    Mail mail;
    mail.waiting.origin = FromStop{*unit.leaving};
    mail.waiting.event = ++last_event_;
    mail.deadline = std::min(env_.now + kStopDeadline, stop_by_);
    mail.event = stop_event(*unit.leaving, (mail.deadline + env_.wall_offset) / kMs);
    ++env_.stats.accepted;
    ++accepted_;
    arm_deadline(unit, mail);
    send_event(unit, std::move(mail));
}

// Its handler has ended, well or not. How long the store takes is no longer its own time.
void Units::stop_ended(Unit& unit, Mail& mail) {
    unit.stop_over = true;
    if (!mail.waiting.deadline) return;
    deadlines_.erase(*mail.waiting.deadline);
    mail.waiting.deadline.reset();
}

// The memory it was to say goodbye to is gone.
void Units::stop_lost(Unit& unit, Mail& mail) {
    ReplyOut reply;
    reply.reason = ReplyReason::Unavailable;
    reply.text = "the actor left memory before it ended";
    answer(unit, mail.waiting, std::move(reply));
    forget_waiting(mail.waiting);
}

void Units::stop_late(Unit& unit) {
    go_cold(unit, true);
    pump(unit);
}

// --- room ----------------------------------------------------------------------------------------------------------------

// What has been idle for longest leaves the runtime's memory and keeps its hold; its next event loads it again. Those that
// leave without a word go first; of those that want their Stop as many are asked as places are missing.
void Units::make_room(RuntimeLoad& load, std::uint32_t resident_max) {
    constexpr int kLooks = 32;  // those at the head are the oldest; a busy head is rare
    int looks = 0;
    std::vector<UnitId> to_ask;
    auto at = load.order.begin();
    while (load.resident - load.stops > resident_max && at != load.order.end() &&
           looks++ < kLooks) {
        Unit& unit = *unit_of(*at++);
        // Also one that never got into its memory, because it could not be loaded: it has a place all the same.
        if (!pausing(unit) || unit.deleting) continue;
        if (unit.stop_over || unit.stop_counted) continue;  // on its way
        if (hears_stop(unit)) {
            to_ask.push_back(unit.id);
        } else {
            ++env_.stats.evicted;
            go_cold(unit, true);
        }
    }
    for (const UnitId id : to_ask) {
        if (load.resident - load.stops <= resident_max || stops_open_ >= kStopsMax) return;
        if (Unit* unit = unit_of(id)) ask_to_leave(*unit, StopReason::Evict);
    }
}

// The unit has its place here from now on. Where that is one of a unit that has to hear its Stop first, it is loaded
// meanwhile, and activated when the other has left, or told to come back.
void Units::settle_in(Unit& unit, RuntimeLoad& load) {
    ++load.resident;
    unit.resident_position = load.order.insert(load.order.end(), unit.id);
    std::list<UnitId>& warm = warm_.at(unit.class_index);
    unit.warm_position = warm.insert(warm.end(), unit.id);
    unit.warm_since = env_.now;
    ++warm_count_;
    evict_next_ = std::min(evict_next_, env_.now + evict_after(unit.class_index));
    // Others were placed while this one's question was open.
    make_room(load, load.capacity);
    if (load.resident <= load.capacity || load.resident - load.stops > load.capacity) return;
    unit.room_by = env_.now + kRoomWait;
    load.crowded.push_back(unit.id);
}

void Units::give_room(RuntimeLoad& load) {
    while (!load.crowded.empty() && load.resident - load.crowded.size() < load.capacity) {
        Unit& unit = *unit_of(load.crowded.front());
        load.crowded.pop_front();
        unit.room_by = 0;
        if (unit.memory == Memory::Activating && unit.hold == Hold::Serving)
            queue_for_runtime(unit);
    }
}

void Units::refuse_crowded() {
    for (auto& [handle, load] : runtimes_) {
        while (!load.crowded.empty()) {
            Unit& unit = *unit_of(load.crowded.front());
            if (unit.room_by > env_.now) break;
            go_cold(unit, true);
            refuse_waiting(unit,
                           ReplyReason::Busy,
                           "the runtime is full, and an actor that was asked to leave memory has "
                           "not ended its stop event yet");
        }
    }
}

// --- idle units --------------------------------------------------------------------------------------------------------

// A hold is given back after hold_idle, and memory not later than that.
Time Units::evict_after(std::size_t class_index) const {
    return std::min<Time>(env_.config.classes[class_index].evict_after,
                          env_.config.limits.hold_idle);
}

void Units::evict_idle() {
    if (closing_ || evict_next_ > env_.now) return;
    evict_next_ = kNever;
    evict_waiting_ = false;
    for (std::size_t index = 0; index < warm_.size(); ++index) {
        std::list<UnitId>& warm = warm_[index];
        while (!warm.empty()) {
            Unit& unit = *unit_of(warm.front());
            const Time due = unit.warm_since + evict_after(index);
            if (due > env_.now) {
                evict_next_ = std::min(evict_next_, due);
                break;
            }
            if (hears_stop(unit) && stops_open_ >= kIdleStopsMax) {
                evict_waiting_ = true;  // the end of one calls again
                break;
            }
            // One that is busy, or stays after all, is looked at again when it would be idle anew.
            unit.warm_since = env_.now;
            warm.splice(warm.end(), warm, unit.warm_position);
            if (pausing(unit)) ask_to_leave(unit, StopReason::Evict);
        }
    }
}

// --- the end of the node -----------------------------------------------------------------------------------------------

bool Units::stop_residents(Time by) {
    stop_by_ = by;
    // Again when all of them have left: a handler may have called somebody back into memory.
    if (to_stop_.empty() && stops_open_ == 0 && quiet()) {
        for (const auto& [id, unit] : units_)
            if (hears_stop(*unit)) to_stop_.push_back(id);
        std::sort(to_stop_.begin(), to_stop_.end());  // the map's order is nobody's business
    }
    while (!to_stop_.empty() && stops_open_ < kStopsMax) {
        Unit* unit = unit_of(to_stop_.front());
        to_stop_.pop_front();
        if (unit != nullptr && hears_stop(*unit)) ask_to_leave(*unit, StopReason::Drain);
    }
    return to_stop_.empty() && stops_open_ == 0 && quiet();
}

}  // namespace hf::core
