// Where a unit lives and how its events run (part of Units).
#include <algorithm>
#include <set>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr std::size_t kSendsMax = 32;  // messages of one event (guest ABI v1)
// Connections that one event names (guest ABI v1): what goes to a gateway is as many times the message.
constexpr std::size_t kSocketTargetsMax = 1024;
constexpr std::uint16_t kAttemptsMax = 16;  // deliveries of one event, whatever ended them
constexpr std::uint32_t kRetryAfterMs = 1000;
// How often the oldest open request is looked at: lost ones are so after minutes.
constexpr Time kAnswersLook = 10 * kSecond;
}  // namespace

void Units::want_place(Unit& unit) {
    if (unit.placing) return;
    if (!any_runtime_takes()) {
        // A runtime that restarts is waited for, until the events' deadlines; one that will not come is not.
        if (supervision_.failed(Kind::Runtime))
            refuse_waiting(unit, ReplyReason::Unavailable, "no runtime is left to run the actor");
        return;
    }
    unit.placing = true;
    placer_->ask(unit.id, unit.key, class_name(unit));
}

// A runtime that is there and stays. Those that retire have successors, and one that is being ended starts again: both are
// waited for.
bool Units::any_runtime_takes() const {
    const std::vector<Handle> serving = supervision_.serving(Kind::Runtime);
    return std::any_of(serving.begin(), serving.end(), [this](Handle handle) {
        const auto it = runtimes_.find(handle);
        return it != runtimes_.end() && !it->second.retiring;
    });
}

// None will start again by itself: who waits for one is told so.
void Units::no_runtime_left() {
    std::vector<UnitId> waiting;
    for (const auto& [id, unit] : units_)
        if (unit->has_work() && !unit->runtime.valid()) waiting.push_back(id);
    std::sort(waiting.begin(), waiting.end());  // the map's order is nobody's business
    for (const UnitId id : waiting) {
        if (Unit* unit = unit_of(id)) want_place(*unit);
    }
}

std::vector<Candidate> Units::offer() {
    std::vector<Candidate> out;
    for (const Handle handle : supervision_.serving(Kind::Runtime)) {
        const auto it = runtimes_.find(handle);
        if (it == runtimes_.end() || it->second.retiring) continue;
        make_room(it->second, it->second.capacity - 1);  // a policy does not choose what is full
        Candidate candidate;
        candidate.id = static_cast<std::uint32_t>(out.size());
        candidate.handle = handle;
        candidate.node = env_.config.node_id;
        candidate.instance = supervision_.find(handle)->seat;
        candidate.resident = it->second.resident - it->second.stops;  // their places come free
        candidate.capacity = it->second.capacity;
        candidate.inflight =
            it->second.inflight + static_cast<std::uint32_t>(it->second.ready.waiting());
        out.push_back(std::move(candidate));
    }
    return out;
}

void Units::placed(UnitId id, std::optional<Handle> where, const std::string& why_not) {
    Unit* unit = unit_of(id);
    if (unit == nullptr) return;
    unit->placing = false;
    // Nobody waits any more: a place that is not used would count as taken until the next event.
    if (unit->runtime.valid() || !unit->has_work()) return;
    if (!where) {
        if (!any_runtime_takes()) return want_place(*unit);
        return refuse_waiting(
            *unit, ReplyReason::Unavailable, "the actor has no place: " + why_not);
    }
    const auto it = runtimes_.find(*where);
    if (it == runtimes_.end() || it->second.retiring) return want_place(*unit);
    unit->runtime = *where;
    settle_in(*unit, it->second);
    pump(*unit);
}

std::uint32_t Units::resident_on(Handle runtime) const {
    const auto it = runtimes_.find(runtime);
    return it == runtimes_.end() ? 0 : it->second.resident;
}

void Units::queue_for_runtime(Unit& unit) {
    if (unit.queued_for_runtime) return;
    RuntimeLoad& load = runtimes_.at(unit.runtime);
    if (load.inflight < env_.config.limits.runtime_inflight &&
        load.ready.open(unit.class_index, class_share()))
        return send_next(unit);
    unit.queued_for_runtime = true;
    load.ready.wait(unit.class_index, unit.id);
}

std::uint32_t Units::class_share() const {
    return ReadyLines::share(env_.config.limits.runtime_inflight, env_.config.classes.size());
}

void Units::feed(Handle runtime) {
    const auto it = runtimes_.find(runtime);
    if (it == runtimes_.end()) return;
    RuntimeLoad& load = it->second;
    send_drops(runtime, load);
    while (load.inflight < env_.config.limits.runtime_inflight) {
        const UnitId next = load.ready.next(class_share());
        if (next == 0) return;
        Unit* unit = unit_of(next);
        if (unit == nullptr || !unit->queued_for_runtime || unit->runtime != runtime) continue;
        unit->queued_for_runtime = false;
        if (unit->runtime_op == 0 && unit->hold == Hold::Serving) send_next(*unit);
    }
}

// Before anything else that waits: a drop makes the room that an activation may need.
void Units::send_drops(Handle runtime, RuntimeLoad& load) {
    while (load.inflight < env_.config.limits.runtime_inflight && !load.drops.empty()) {
        const OpId op = env_.new_op();
        runtime_ops_.emplace(op, RuntimeOp{0, runtime, RuntimeAsk::Drop, 0, 0, env_.now});
        ++load.inflight;
        supervision_.opened(runtime);
        env_.emit(Drop{runtime, op, load.drops.front()});
        load.drops.pop_front();
    }
}

OpId Units::open_runtime_op(Unit& unit, RuntimeAsk ask) {
    HF_CHECK(unit.runtime_op == 0, "a unit has one request open at its runtime");
    const OpId op = env_.new_op();
    unit.runtime_op = op;
    runtime_ops_.emplace(
        op, RuntimeOp{unit.id, unit.runtime, ask, unit.activation, unit.class_index, env_.now});
    RuntimeLoad& load = runtimes_.at(unit.runtime);
    ++load.inflight;
    load.ready.take_place(unit.class_index);
    supervision_.opened(unit.runtime);
    return op;
}

// False when nobody asked. An answer of the wrong kind or for another activation leaves its request open: the runtime is
// ended for it, and its death decides what the request becomes.
bool Units::end_runtime_op(
    OpId op, Handle from, RuntimeAsk ask, std::uint64_t activation, RuntimeOp& was) {
    const auto it = runtime_ops_.find(op);
    if (it == runtime_ops_.end() || it->second.runtime != from) {
        ++env_.stats.stale_messages;
        return false;
    }
    if (it->second.ask != ask || it->second.activation != activation) {
        supervision_.answered_badly(from, "answered a request with the answer to another", false);
        return false;
    }
    was = it->second;
    runtime_ops_.erase(it);
    supervision_.closed(from);
    if (const auto load = runtimes_.find(from); load != runtimes_.end()) {
        --load->second.inflight;
        if (ask != RuntimeAsk::Drop) load->second.ready.give_place(was.class_index);
    }
    return true;
}

// The answer's bookkeeping. Nothing when the unit has moved on: a retired activation's message is dropped here.
Unit* Units::close_runtime_op(OpId op, Handle from, RuntimeAsk ask, std::uint64_t activation) {
    RuntimeOp was;
    if (!end_runtime_op(op, from, ask, activation, was)) return nullptr;
    Unit* unit = unit_of(was.unit);
    if (unit == nullptr || unit->runtime_op != op || unit->activation != activation ||
        unit->runtime != from) {
        ++env_.stats.stale_messages;
        feed(from);
        return nullptr;
    }
    unit->runtime_op = 0;
    feed(from);
    return unit;
}

void Units::send_next(Unit& unit) {
    if (unit.memory == Memory::Activating) return send_activation(unit);
    if (unit.memory != Memory::Resident || unit.stop_over) return;
    if (unit.running) return send_resume(unit);
    if (stop_is_next(unit)) return send_stop(unit);
    if (wants_base(unit)) {
        unit.checkpointing = true;
        env_.emit(Checkpoint{
            unit.runtime, open_runtime_op(unit, RuntimeAsk::Checkpoint), unit.activation});
        return;
    }
    if (unit.mailbox.empty()) return;
    // While it stood in line the event before it may have met its deadline: another one is first now.
    if (front_needs_no_run(unit)) return pump(unit);
    announce_restart(unit);
    Mail mail = std::move(unit.mailbox.front());
    unit.mailbox.pop_front();
    unit.mailbox_bytes -= mail.waiting.bytes;
    send_event(unit, std::move(mail));
}

void Units::send_event(Unit& unit, Mail mail) {
    Deliver deliver;
    deliver.to = unit.runtime;
    deliver.op = open_runtime_op(unit, RuntimeAsk::Deliver);
    deliver.activation = unit.activation;
    deliver.event_incarnation = incarnation_;
    deliver.event_counter = mail.waiting.event;
    deliver.attempt = mail.attempt;
    deliver.kind = kind_of(mail.waiting.origin);
    deliver.event = mail.event;
    deliver.deadline = mail.deadline;
    deliver.trace = mail.trace;
    deliver.attached = mail.attached;
    unit.running = std::move(mail);
    env_.emit(std::move(deliver));
}

void Units::send_resume(Unit& unit) {
    if (!unit.answered) return;
    Answered answered = *std::exchange(unit.answered, std::nullopt);
    unit.parked.reset();
    Resume resume;
    resume.to = unit.runtime;
    resume.op = open_runtime_op(unit, RuntimeAsk::Deliver);
    resume.activation = unit.activation;
    resume.event_incarnation = incarnation_;
    resume.event_counter = unit.running->waiting.event;
    resume.n = answered.n;
    resume.code = answered.code;
    resume.payload = std::move(answered.payload);
    resume.deadline = unit.running->deadline;
    resume.trace = unit.running->trace;
    env_.emit(std::move(resume));
}

void Units::put_output(Unit& unit,
                       const Mail& mail,
                       ReplyOut reply,
                       std::vector<SocketWish> sockets) {
    Output output;
    output.waiting = mail.waiting;
    output.needs = unit.last_ordinal;
    output.reply = std::move(reply);
    if (output.reply.attached != nullptr) output.held = bulk_.hold(output.reply.attached);
    output.sockets = std::move(sockets);
    unit.outputs.push_back(std::move(output));
    pump(unit);
}

// What an event leaves must fit the log: an honest runtime refuses the guest long before.
std::string Units::broken_bound(const Unit& unit, const DeliveredIn& event) const {
    std::size_t bytes = event.changes.size();
    for (const MessageWish& send : event.sends)
        bytes += send.target.size() + send.method.size() + send.payload.size();
    if (bytes > env_.config.limits.entry_bytes)
        return "changes and sends above the entry bound were answered";
    // Also what waits for it has to fit a record, with whatever is around it there.
    if (event.reply_body.size() > kPayloadBytesMax || event.reply_headers.size() > kHeaderBytesMax)
        return "a reply above the bounds of a reply was given";
    if (event.sends.size() > kSendsMax) return "more sends were answered than one event may make";
    std::size_t targets = 0;
    for (const SocketWish& wish : event.sockets) targets += 1 + wish.also.size();
    if (targets > kSocketTargetsMax)
        return "more connections were answered than one event may write to";
    if (event.status == DeliverStatus::Calling && !event.call)
        return "an event waits for a call that was not named";
    if (event.reply_attached != nullptr) {
        if (kind_of(unit.running->waiting.origin) != EventKind::Http)
            return "an event that is no request was answered with a large body";
    }
    return "";
}

// What an event that ended well may not leave all the same. It did not happen then, and the memory that says so goes. True:
// it is the node that is full.
bool Units::may_not_leave(Unit& unit, const Mail& mail, DeliveredIn& event) {
    if (event.status != DeliverStatus::Ok) return false;
    // Nobody hears the answer to a request that was accepted for later, or comes too late.
    if (!std::holds_alternative<FromRequest>(mail.waiting.origin) || mail.waiting.answered)
        event.reply_attached = nullptr;
    std::string full;
    std::string why = full_outbox(unit, event);
    if (why.empty() && event.reply_attached != nullptr) {
        // A runtime of other limits, during their change, may allow more than the class does: no reason to end it.
        const std::uint64_t bytes = event.reply_attached->bytes();
        const std::uint64_t most = env_.config.classes[unit.class_index].body_bytes_max;
        if (bytes > most)
            why = "limit body_max: " + std::to_string(most) + " allowed, " + std::to_string(bytes) +
                  " asked for";
        else
            why = full = bulk_.no_room_for(bytes);
    }
    if (why.empty()) return false;
    event.status = DeliverStatus::Limit;
    event.error = std::move(why);
    go_cold(unit, true);
    return !full.empty();
}

// The bound of messages that are not applied yet which this event would pass; empty: none. Its receivers do not take what
// it sends.
std::string Units::full_outbox(const Unit& unit, const DeliveredIn& event) const {
    if (event.sends.empty()) return "";
    std::size_t count = unit.stored.outbox.size() + event.sends.size();
    std::size_t bytes = unit.stored.outbox_bytes;
    for (const MessageWish& send : event.sends)
        bytes += outbox_cost(send.target, send.method, send.payload);
    for (const PendingEntry& pending : unit.pending) {
        if (pending.entry.kind != EntryKind::Changes) continue;
        count += pending.entry.outbox.size();
        for (const OutboxItem& item : pending.entry.outbox)
            bytes += outbox_cost(item.target, item.method, item.payload);
    }
    const Limits& limits = env_.config.limits;
    if (count > limits.outbox_messages)
        return "limit outbox_messages: " + std::to_string(limits.outbox_messages) +
               " messages of this actor are not applied yet";
    if (bytes > limits.outbox_bytes)
        return "limit outbox_bytes: the messages of this actor that are not applied yet take " +
               std::to_string(limits.outbox_bytes) + " bytes";
    return "";
}

// The entry that an event which ended well adds to the log, empty when it changed nothing.
LogEntry Units::entry_of(Unit& unit, const Mail& mail, DeliveredIn& event) {
    LogEntry part;
    if (!event.changes.empty()) part.changes.push_back(std::move(event.changes));
    if (event.alarm && !event.alarm->clear) {
        part.alarm = EntryAlarm{event.alarm->due_ms, env_.random.next() | 1U};
    } else if (event.alarm || std::holds_alternative<FromAlarm>(mail.waiting.origin)) {
        part.alarm_cleared = unit.alarm.has_value();  // an alarm that has run is over
    }
    if (part.alarm || part.alarm_cleared) unit.alarm = part.alarm;
    if (std::holds_alternative<FromAlarm>(mail.waiting.origin)) ++env_.stats.alarms_fired;
    if (const auto* message = std::get_if<FromMessage>(&mail.waiting.origin)) {
        part.applied.emplace_back(message->source, message->n);
        unit.applied[message->source] = message->n;
    }
    for (MessageWish& send : event.sends)
        part.outbox.push_back(
            {0, std::move(send.target), std::move(send.method), std::move(send.payload)});
    return part;
}

void Units::delivered(DeliveredIn& event) {
    Unit* unit = close_runtime_op(event.op, event.from, RuntimeAsk::Deliver, event.activation);
    if (unit == nullptr || !unit->running) return;
    const bool stop = std::holds_alternative<FromStop>(unit->running->waiting.origin);
    if (!stop) touch(*unit);
    if (event.status == DeliverStatus::NotResident) {
        // Its memory is gone without a death we saw: load again, run again.
        go_cold(*unit, false);
        return pump(*unit);
    }
    if (const std::string broken = broken_bound(*unit, event); !broken.empty()) {
        supervision_.answered_badly(event.from, broken, false);
        ++unit->running->deaths;  // it ends this runtime, and the unit leaves before that is seen
        go_cold(*unit, true);
        return pump(*unit);
    }
    supervision_.answered_well(event.from);
    if (event.status == DeliverStatus::Calling) return park(*unit, std::move(*event.call));
    Mail mail = std::move(*unit->running);
    unit->running.reset();
    if (stop) stop_ended(*unit, mail);
    const bool busy = may_not_leave(*unit, mail, event);
    ReplyOut reply;
    reply.reason = ReplyReason::ActorFailed;
    switch (event.status) {
        case DeliverStatus::Ok: {
            LogEntry part = entry_of(*unit, mail, event);
            if (entry_cost(part) != 0 || part.alarm || part.alarm_cleared)
                append(*unit, std::move(part));
            if (event.passivate && !stop) mark_leaving(*unit, StopReason::Passivate);
            reply = reply_of(mail, event);
            break;
        }
        case DeliverStatus::Limit:
            reply.reason = busy ? ReplyReason::Busy : ReplyReason::ActorLimit;
            if (busy) reply.retry_after_ms = kRetryAfterMs;
            [[fallthrough]];
        default:
            reply.text = std::move(event.error);
            event.sockets.clear();
            give_up(*unit, mail, reply);
            break;
    }
    put_output(*unit, mail, std::move(reply), std::move(event.sockets));
}

// A message whose handler has failed as often as it may is marked all the same: its sender's later ones go on.
void Units::give_up(Unit& unit, const Mail& mail, ReplyOut& reply) {
    const auto* message = std::get_if<FromMessage>(&mail.waiting.origin);
    if (message == nullptr || !message->last || unit.hold != Hold::Serving) return;
    bury({message->source, message->n, full_name(unit), "", mail.event, reply.text, 0});
    LogEntry part;
    part.applied.emplace_back(message->source, message->n);
    unit.applied[message->source] = message->n;
    append(unit, std::move(part));
    reply.reason = ReplyReason::Ok;
}

ReplyOut Units::reply_of(const Mail& mail, DeliveredIn& event) {
    ReplyOut reply;
    if (std::holds_alternative<FromRequest>(mail.waiting.origin) && event.reply_status == 0) {
        reply.reason = ReplyReason::ActorFailed;
        reply.text = "the actor gave no reply";
        return reply;
    }
    reply.status = event.reply_status;
    reply.headers = std::move(event.reply_headers);
    reply.body = std::move(event.reply_body);
    reply.attached = std::move(event.reply_attached);
    return reply;
}

void Units::dropped(const DroppedIn& event) {
    RuntimeOp was;
    if (end_runtime_op(event.op, event.from, RuntimeAsk::Drop, 0, was)) feed(event.from);
}

// One that a runtime never answers while it answers others is seen by no other watchdog, and its actor would wait for ever.
void Units::watch_answers() {
    if (runtime_ops_.empty() || env_.now < answers_look_) return;
    answers_look_ = env_.now + kAnswersLook;
    std::set<Handle> losers;  // in their order, not the map's
    for (const auto& [op, ask] : runtime_ops_)
        if (env_.now - ask.since >= supervision_.lost_after()) losers.insert(ask.runtime);
    for (const Handle runtime : losers)
        supervision_.answered_badly(
            runtime, "stalled: it answers others, and one request stays unanswered", true);
}

// An in-flight event goes back to the front: nothing of what it did is visible, so it may run again.
void Units::requeue_running(Unit& unit) {
    if (!unit.running) return;
    Mail mail = std::move(*unit.running);
    unit.running.reset();
    unit.parked.reset();
    unit.answered.reset();
    if (std::holds_alternative<FromStop>(mail.waiting.origin)) return stop_lost(unit, mail);
    ++mail.attempt;
    ++env_.stats.redelivered;
    const bool poison = mail.deaths >= kPoisonDeaths;
    const bool once = env_.config.classes[unit.class_index].mailbox == Mailbox::Volatile &&
                      std::holds_alternative<FromRequest>(mail.waiting.origin);
    if (once && !mail.waiting.answered) {
        // What it changed is gone; what it called is not known.
        ReplyOut reply;
        reply.reason = ReplyReason::Deadline;
        reply.text =
            "the event was interrupted, and its class (mailbox = \"volatile\") runs none again";
        return put_output(unit, mail, std::move(reply));
    }
    if (poison || mail.attempt > kAttemptsMax || mail.waiting.answered) {
        if (poison) mark_poison(mail);
        ReplyOut reply;
        reply.reason = ReplyReason::ActorFailed;
        reply.text = poison ? "the event ended the runtime three times and is not tried again"
                            : "the event was tried as often as allowed";
        give_up(unit, mail, reply);
        return put_output(unit, mail, std::move(reply));
    }
    unit.mailbox_bytes += mail.waiting.bytes;
    unit.mailbox.push_front(std::move(mail));
}

// Whoever would offer it again does not do so at the pace of a handler that fails.
void Units::mark_poison(Mail& mail) {
    ++env_.stats.poisoned;
    if (auto* message = std::get_if<FromMessage>(&mail.waiting.origin)) message->poison = true;
    if (auto* alarm = std::get_if<FromAlarm>(&mail.waiting.origin)) alarm->poison = true;
}

// A runtime died of a fault in what it was asked for this unit: its event, its base or its load.
void Units::blame(Unit& unit) {
    const auto once_more = [](std::uint8_t& deaths) {
        if (deaths < kPoisonDeaths) ++deaths;
        return deaths == kPoisonDeaths;
    };
    if (unit.running) {
        const bool stop = std::holds_alternative<FromStop>(unit.running->waiting.origin);
        ++(stop ? unit.stop_deaths : unit.running->deaths);
    } else if (unit.memory == Memory::Resident) {
        if (once_more(unit.base_deaths)) unit.no_base_until = env_.now + kHandlerPauseMost;
    } else if (once_more(unit.load_deaths)) {
        unit.no_load_until = env_.now + kHandlerPauseMost;
    }
}

void Units::runtime_serving(Handle runtime) {
    RuntimeLoad& load = runtimes_[runtime];
    load.capacity = std::max<std::uint32_t>(1, env_.config.limits.resident_units_max);
    // Back in charge, because its successor did not last: who had not left yet stays.
    const bool back = std::exchange(load.retiring, false);
    std::vector<UnitId> waiting;
    for (const auto& [id, unit] : units_) {
        const bool stays = back && unit->runtime == runtime && unit->leaving == StopReason::Move &&
                           !stop_begun(*unit);
        if (stays) end_leaving(*unit);
        if (unit->has_work() && (stays || !unit->runtime.valid())) waiting.push_back(id);
    }
    std::sort(waiting.begin(), waiting.end());  // the map's order is nobody's business
    for (const UnitId id : waiting) {
        if (Unit* unit = unit_of(id)) pump(*unit);
    }
}

void Units::runtime_retiring(Handle runtime) {
    const auto it = runtimes_.find(runtime);
    if (it == runtimes_.end()) return supervision_.retired_empty(runtime);  // it never served
    it->second.retiring = true;
    if (it->second.resident == 0) return supervision_.retired_empty(runtime);
    std::vector<UnitId> there;
    for (const auto& [id, unit] : units_) {
        if (unit->runtime == runtime) there.push_back(id);
    }
    std::sort(there.begin(), there.end());
    for (const UnitId id : there) {
        ask_to_leave(*unit_of(id), StopReason::Move);
    }
}

void Units::runtime_gone(const Gone& gone) {
    const auto it = runtimes_.find(gone.handle);
    if (it == runtimes_.end()) return;
    runtimes_.erase(it);
    for (auto op = runtime_ops_.begin(); op != runtime_ops_.end();) {
        op = op->second.runtime == gone.handle ? runtime_ops_.erase(op) : std::next(op);
    }
    std::vector<UnitId> there;
    for (const auto& [id, unit] : units_) {
        if (unit->runtime == gone.handle) there.push_back(id);
    }
    std::sort(there.begin(), there.end());
    for (const UnitId id : there) {
        Unit& unit = *unit_of(id);
        if (gone.by_fault && gone.current != 0 && unit.runtime_op == gone.current) blame(unit);
        lose_memory(unit, false);
    }
    // Only now: what is given up here may let another event in, to a unit that was there as well.
    for (const UnitId id : there) {
        if (Unit* unit = unit_of(id)) requeue_running(*unit);
    }
    for (const UnitId id : there) {
        if (Unit* unit = unit_of(id)) pump(*unit);
    }
}

}  // namespace hf::core
