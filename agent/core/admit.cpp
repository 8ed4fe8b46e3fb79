// Admission, answers and deadlines (part of Units).
#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// A refusal is a sentence; it may quote what a plugin said, and that may fill a record by itself.
constexpr std::size_t kReplyTextBytes = 1024;
}  // namespace

const char* hold_name(Hold hold) {
    switch (hold) {
        case Hold::Idle:
            return "idle";
        case Hold::Acquiring:
            return "acquiring";
        case Hold::Serving:
            return "serving";
        case Hold::Releasing:
            return "releasing";
        case Hold::Fenced:
            return "fenced";
    }
    return "?";
}

const char* memory_name(Memory memory) {
    switch (memory) {
        case Memory::Cold:
            return "cold";
        case Memory::Listing:
            return "listing";
        case Memory::Sealing:
            return "sealing";
        case Memory::Fetching:
            return "fetching";
        case Memory::Activating:
            return "activating";
        case Memory::Resident:
            return "resident";
    }
    return "?";
}

Units::Units(Env& env, StoreClient& store, Supervision& supervision)
    : env_(env), store_(store), supervision_(supervision) {}

void Units::open(std::uint64_t incarnation, std::uint64_t reaped) {
    incarnation_ = incarnation;
    reaped_ = reaped;
    std::vector<UnitId> waiting;
    for (const auto& [id, unit] : units_) waiting.push_back(id);
    std::sort(waiting.begin(), waiting.end());  // the map's order is nobody's business
    for (const UnitId id : waiting) {
        if (Unit* unit = unit_of(id)) pump(*unit);
    }
}

Unit* Units::unit_of(UnitId id) {
    const auto it = units_.find(id);
    return it == units_.end() ? nullptr : it->second.get();
}

void Units::refuse(const RequestIn& request,
                   ReplyReason reason,
                   std::string text,
                   std::uint32_t retry_ms) {
    ReplyOut reply;
    reply.to = request.from;
    reply.req_id = request.req_id;
    reply.reason = reason;
    reply.text = std::move(text);
    if (reason == ReplyReason::Busy || reason == ReplyReason::Unavailable) {
        reply.retry_after_ms = retry_ms;
        ++env_.stats.refused_busy;
    }
    emit_reply(std::move(reply));
}

void Units::emit_reply(ReplyOut reply) {
    if (reply.text.size() > kReplyTextBytes)
        reply.text.replace(kReplyTextBytes - 3, std::string::npos, "...");
    supervision_.told(reply.to);
    env_.emit(std::move(reply));
}

void Units::request(const RequestIn& request) {
    const Limits& limits = env_.config.limits;
    if (closing_) return refuse(request, ReplyReason::Unavailable, "the node stops");
    const auto spec = std::find_if(
        env_.config.classes.begin(), env_.config.classes.end(), [&](const ClassSpec& c) {
            return c.name == request.class_name;
        });
    if (spec == env_.config.classes.end())
        return refuse(request,
                      ReplyReason::UnknownClass,
                      "no class named '" + request.class_name + "' is deployed here");
    const auto key = actor_unit(env_.config.tenant, request.class_name, request.name);
    if (!key) return refuse(request, ReplyReason::BadName, key.error().message);
    if (request.event.size() > kPayloadBytesMax + kHeaderBytesMax)
        return refuse(
            request,
            ReplyReason::TooLarge,
            "the event is above " + std::to_string(kPayloadBytesMax + kHeaderBytesMax) + " bytes");
    if (accepted_ >= limits.accepted_events)
        return refuse(request,
                      ReplyReason::Busy,
                      "the node has as many open events as limits.accepted_events allows");
    if (accepted_bytes_ + request.event.size() > limits.accepted_bytes)
        return refuse(request,
                      ReplyReason::Busy,
                      "the node's open events take as many bytes as limits.accepted_bytes allows");
    Unit* unit = find_or_make(
        static_cast<std::size_t>(spec - env_.config.classes.begin()), *key, request.name);
    if (unit == nullptr)
        return refuse(
            request, ReplyReason::Busy, "the node knows as many units as limits.units_max allows");
    if (unit->mailbox.size() >= limits.mailbox_events ||
        unit->mailbox_bytes + request.event.size() > limits.mailbox_bytes)
        return refuse(request, ReplyReason::Busy, "the actor's mailbox is full");

    Mail mail;
    mail.waiting.event = ++last_event_;
    mail.waiting.gateway = request.from;
    mail.waiting.req_id = request.req_id;
    mail.waiting.bytes = request.event.size();
    mail.event = request.event;
    // A gateway that names none, or one beyond any configuration, must not keep a place for ever.
    const Time latest = env_.now + kEventWaitMsMax * kMs;
    mail.deadline = request.deadline == 0 ? latest : std::min(request.deadline, latest);
    mail.trace = request.trace;
    ++env_.stats.accepted;
    ++accepted_;
    accepted_bytes_ += mail.waiting.bytes;
    unit->mailbox_bytes += mail.waiting.bytes;
    arm_deadline(*unit, mail);
    unit->mailbox.push_back(std::move(mail));
    touch(*unit);
    pump(*unit);
}

Unit* Units::find_or_make(std::size_t class_index,
                          const std::string& key,
                          const std::string& name) {
    if (const auto it = by_key_.find(key); it != by_key_.end()) return unit_of(it->second);
    if (units_.size() >= env_.config.limits.units_max && !forget_one_idle()) return nullptr;
    auto unit = std::make_unique<Unit>();
    unit->id = ++last_unit_;
    unit->key = key;
    unit->class_index = class_index;
    unit->name = name;
    Unit* out = unit.get();
    by_key_.emplace(key, unit->id);
    units_.emplace(out->id, std::move(unit));
    return out;
}

// Least recently active first; a hold is kept in the store, so forgetting costs a re-read at the next event.
bool Units::forget_one_idle() {
    constexpr int kLooks = 32;  // those at the head are the oldest; a busy head is rare
    int looks = 0;
    bool leaving = false;
    for (const UnitId id : idle_) {
        Unit* unit = unit_of(id);
        if (at_rest(*unit) && !unit->deleting && !unit->placing) {
            if (unit->hold == Hold::Idle || (unit->hold == Hold::Serving && unit->sealed)) {
                forget(*unit);
                return true;
            }
            // Held but never sealed: who finds the record later must not take it for sealed, so it is given back.
            if (unit->hold == Hold::Serving) {
                release(*unit);
                leaving = true;
            }
        }
        if (++looks == kLooks) break;
    }
    // One that is on its way out makes room for one that comes, within what is looked at here: a store that refuses to
    // take holds back must not let the node grow.
    return leaving && units_.size() < env_.config.limits.units_max + kLooks;
}

// Nothing runs, waits or is open; only then a unit is forgotten or released.
bool Units::at_rest(const Unit& unit) const {
    return unit.settled() && !unit.has_work() && unit.outputs.empty() && unit.runtime_op == 0 &&
           unit.store_op == 0 && unit.fetches_open == 0 && unit.memory != Memory::Fetching;
}

void Units::forget(Unit& unit) {
    HF_CHECK(!unit.has_work() && unit.settled(), "a unit with work is never forgotten");
    leave_runtime(unit, true);
    if (unit.in_idle_list) idle_.erase(unit.idle_position);
    by_key_.erase(unit.key);
    units_.erase(unit.id);
}

void Units::touch(Unit& unit) {
    unit.last_active = env_.now;
    if (const auto it = runtimes_.find(unit.runtime); it != runtimes_.end())
        it->second.order.splice(it->second.order.end(), it->second.order, unit.resident_position);
    if (unit.in_idle_list) {
        idle_.splice(idle_.end(), idle_, unit.idle_position);
    } else {
        unit.idle_position = idle_.insert(idle_.end(), unit.id);
        unit.in_idle_list = true;
    }
}

void Units::arm_deadline(Unit& unit, Mail& mail) {
    if (mail.deadline == 0) return;
    auto at = deadlines_.end();
    while (at != deadlines_.begin() && std::prev(at)->at > mail.deadline)
        --at;  // gateways send them nearly sorted
    mail.waiting.deadline =
        deadlines_.insert(at, DeadlineEntry{mail.deadline, unit.id, mail.waiting.event});
}

void Units::answer(Waiting& waiting, ReplyOut reply) {
    if (waiting.deadline) {
        deadlines_.erase(*waiting.deadline);
        waiting.deadline.reset();
    }
    if (waiting.answered) return;
    waiting.answered = true;
    ++env_.stats.answered;
    reply.to = waiting.gateway;
    reply.req_id = waiting.req_id;
    if (reply.reason == ReplyReason::Deadline) ++env_.stats.deadline;
    emit_reply(std::move(reply));
}

void Units::forget_waiting(Waiting& waiting) {
    HF_CHECK(waiting.answered, "an accepted event has exactly one answer");
    HF_CHECK(accepted_ > 0, "each accepted event is forgotten once");
    --accepted_;
    accepted_bytes_ -= waiting.bytes;
}

void Units::refuse_waiting(Unit& unit, ReplyReason reason, const std::string& text) {
    while (!unit.mailbox.empty()) {
        Mail mail = std::move(unit.mailbox.front());
        unit.mailbox.pop_front();
        unit.mailbox_bytes -= mail.waiting.bytes;
        ReplyOut reply;
        reply.reason = reason;
        reply.text = text;
        reply.retry_after_ms = 1000;
        answer(mail.waiting, std::move(reply));
        forget_waiting(mail.waiting);
    }
}

void Units::deadline_passed(const DeadlineEntry& entry) {
    Unit* unit = unit_of(entry.unit);
    HF_CHECK(unit != nullptr, "a unit outlives the deadlines of its events");
    ReplyOut reply;
    reply.reason = ReplyReason::Deadline;
    reply.text = "the event was not answered in time";
    if (unit->running && unit->running->waiting.event == entry.event)
        return answer(unit->running->waiting, std::move(reply));
    for (Output& output : unit->outputs) {
        if (output.waiting.event == entry.event) return answer(output.waiting, std::move(reply));
    }
    for (auto it = unit->mailbox.begin(); it != unit->mailbox.end(); ++it) {
        if (it->waiting.event != entry.event) continue;
        // It has not run, or nothing of what it did is left: it will not run any more.
        answer(it->waiting, std::move(reply));
        unit->mailbox_bytes -= it->waiting.bytes;
        forget_waiting(it->waiting);
        unit->mailbox.erase(it);
        return;
    }
    HF_CHECK(false, "a deadline belongs to an event that is somewhere");
}

void Units::tick() {
    while (!deadlines_.empty() && deadlines_.front().at <= env_.now) {
        const DeadlineEntry entry = deadlines_.front();
        deadline_passed(entry);
    }
    // hold_idle: give a hold back after an hour without an event.
    while (!idle_.empty()) {
        Unit* unit = unit_of(idle_.front());
        if (env_.now - unit->last_active < env_.config.limits.hold_idle) break;
        touch(*unit);
        if (unit->hold == Hold::Serving && at_rest(*unit)) release(*unit);
    }
}

Time Units::next_deadline() const {
    Time soonest = deadlines_.empty() ? kNever : deadlines_.front().at;
    if (!idle_.empty())
        soonest =
            std::min(soonest, units_.at(idle_.front())->last_active + env_.config.limits.hold_idle);
    return soonest;
}

void Units::pump(Unit& unit) {
    open_gate(unit);
    commit(unit);
    compact(unit);
    if (unit.counted_unsettled == unit.settled()) {
        unit.counted_unsettled = !unit.settled();
        unsettled_ += unit.counted_unsettled ? 1U : static_cast<std::size_t>(-1);
    }
    if (unit.leave_runtime && unit.runtime_op == 0) {
        leave_runtime(unit, true);
        if (unit.memory >= Memory::Activating) unit.memory = Memory::Cold;
    }
    const bool wants_base = unit.memory == Memory::Resident && !unit.checkpointing &&
                            (unit.entries_since_base >= env_.config.limits.checkpoint_entries ||
                             unit.bytes_since_base >= env_.config.limits.checkpoint_bytes);
    if (!unit.has_work() && !wants_base) return;
    if (unit.hold == Hold::Idle && incarnation_ != 0) return acquire(unit);
    if (unit.hold != Hold::Serving) return;
    if (!unit.runtime.valid()) want_place(unit);
    if (unit.memory == Memory::Cold) {
        // A load must see everything this owner has put: settle the open entry and store the merged next one first.
        if (unit.settled() && unit.store_op == 0) start_load(unit);
        return;
    }
    if (!unit.runtime.valid() || unit.runtime_op != 0) return;
    if (unit.memory == Memory::Activating) return queue_for_runtime(unit);
    if (unit.memory != Memory::Resident) return;
    const bool ahead = unit.outputs.size() >= env_.config.limits.run_ahead_events ||
                       unit.pending_bytes >= env_.config.limits.run_ahead_bytes;
    if (wants_base || (!ahead && !unit.mailbox.empty())) queue_for_runtime(unit);
}

}  // namespace hf::core
