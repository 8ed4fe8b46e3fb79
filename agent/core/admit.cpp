// Admission, answers and deadlines (part of Units).
#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/limits.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kRetryAfterMs = 1000;
// One-way messages in mailboxes at once: what is open stands in limits.accepted_events, which is the bound.
constexpr std::size_t kMessagesOpenMax = SIZE_MAX;
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

Units::Units(Env& env,
             StoreClient& store,
             Supervision& supervision,
             Peers& peers,
             Control& control,
             std::function<void(Drain::State)> says)
    : env_(env),
      store_(store),
      supervision_(supervision),
      peers_(peers),
      control_(control),
      drain_(env,
             {[this](std::size_t most) { return next_to_hand_over(most); },
              [this](UnitId unit) { hand_over(unit); },
              [this] { take_back_handed(); },
              [this] { return left_to_drain(); },
              [this] { return !eligible_peers().empty(); },
              std::move(says)}),
      alarms_(
          env,
          store,
          [this](const Hint& hint) { return visit(hint); },
          [this](std::uint32_t shard) { return shard_is_mine(shard); }),
      journal_(env,
               {[this](const JournalItem& item, bool last) { return offer_journalled(item, last); },
                [this](ReplyOut reply) { emit_reply(std::move(reply)); },
                [this](const JournalItem& item) { journal_settled(item); }}),
      bulk_(env.config.limits.bulk_bytes),
      states_(env.config.limits.states_bytes),
      messages_(env,
                kMessagesOpenMax,
                [this](const auto& name, const Chance& chance) {
                    return offer_message(name.first, name.second, chance);
                }),
      warm_(env.config.classes.size()) {}

void Units::open(std::uint64_t incarnation, std::uint64_t reaped) {
    incarnation_ = incarnation;
    reaped_ = reaped;
    lost_ = false;
    sockets_.begin(incarnation);
    alarms_.open();
    journal_.open();
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

Unit* Units::unit_named(const std::string& key) {
    const auto it = by_key_.find(key);
    return it == by_key_.end() ? nullptr : unit_of(it->second);
}

const Unit* Units::find(const std::string& full) const {
    const auto [class_name, name] = split_target(full);
    const auto key = actor_unit(env_.config.tenant, class_name, name);
    const auto it = key ? by_key_.find(*key) : by_key_.end();
    return it == by_key_.end() ? nullptr : units_.at(it->second).get();
}

// A gateway that names no deadline, or one beyond any configuration, must not keep a place for ever.
Time Units::latest(Time deadline) const {
    const Time latest = env_.now + kEventWaitMsMax * kMs;
    return deadline == 0 ? latest : std::min(deadline, latest);
}

void Units::refuse(Handle gateway, std::uint64_t req_id, Refusal refusal) {
    ReplyOut reply;
    reply.to = gateway;
    reply.req_id = req_id;
    reply.reason = refusal.reason;
    reply.text = std::move(refusal.text);
    if (reply.reason == ReplyReason::Busy || reply.reason == ReplyReason::Unavailable) {
        reply.retry_after_ms = kRetryAfterMs;
        ++env_.stats.refused_busy;
    }
    emit_reply(std::move(reply));
}

void Units::config_changed() {
    warm_.resize(env_.config.classes.size());
    bulk_.limit(env_.config.limits.bulk_bytes);
    states_.limit(env_.config.limits.states_bytes);
    if (warm_count_ != 0) evict_next_ = env_.now;  // another time may be too long for who is idle
    journal_.classes_changed();
    alarms_.classes_changed();
    messages_.classes_changed();
    if (!closing_) messages_.run();
}

const ClassSpec* Units::class_named(const std::string& name) const {
    for (const ClassSpec& known : env_.config.classes)
        if (known.served && known.name == name) return &known;
    return nullptr;
}

void Units::request(const RequestIn& request) {
    if (request.origin) return peer_asks(request);
    if (const ClassSpec* spec = request.later ? class_named(request.class_name) : nullptr;
        spec != nullptr && spec->mailbox != Mailbox::Volatile)
        return accept_later(request, *spec);
    Mail mail;
    mail.waiting.origin = FromRequest{request.from, request.req_id};
    mail.event = request.event;
    mail.deadline = latest(request.deadline);
    mail.trace = request.trace;
    mail.attached = request.attached;
    if (auto refusal = admit(request.class_name, request.name, std::move(mail)))
        refuse(request.from, request.req_id, std::move(*refusal));
}

std::optional<Refusal> Units::admit(const std::string& class_name,
                                    const std::string& name,
                                    Mail mail) {
    const ClassSpec* spec = class_named(class_name);
    if (closing_ && !std::holds_alternative<FromCall>(mail.waiting.origin))
        return Refusal{ReplyReason::Unavailable, "the node stops"};
    if (lost_)
        return Refusal{ReplyReason::Unavailable, "the node has lost its lease and comes back"};
    if (spec == nullptr)
        return Refusal{ReplyReason::UnknownClass,
                       "no class named '" + class_name + "' is deployed here"};
    const auto key = actor_unit(env_.config.tenant, class_name, name);
    if (!key) return Refusal{ReplyReason::BadName, key.error().message};
    if (mail.attached != nullptr && mail.attached->bytes() > spec->body_bytes_max)
        return Refusal{ReplyReason::TooLarge,
                       "the body is larger than body_max = " +
                           std::to_string(spec->body_bytes_max) + " bytes of class " + class_name};
    Unit* unit = unit_named(*key);
    if (unit == nullptr) {
        if (auto refusal = no_room_for(mail)) return refusal;
        unit = make_unit(static_cast<std::size_t>(spec - env_.config.classes.data()), *key, name);
        if (unit == nullptr)
            return Refusal{ReplyReason::Busy,
                           "the node knows as many units as limits.units_max allows"};
    }
    return admit_to(*unit, std::move(mail));
}

// Whether the node can take one more event at all.
std::optional<Refusal> Units::no_room_for(const Mail& mail) const {
    const Limits& limits = env_.config.limits;
    if (mail.event.size() > kPayloadBytesMax + kHeaderBytesMax)
        return Refusal{
            ReplyReason::TooLarge,
            "the event is above " + std::to_string(kPayloadBytesMax + kHeaderBytesMax) + " bytes"};
    if (accepted_ >= limits.accepted_events)
        return Refusal{ReplyReason::Busy,
                       "the node has as many open events as limits.accepted_events allows"};
    if (accepted_bytes_ + mail.event.size() > limits.accepted_bytes)
        return Refusal{ReplyReason::Busy,
                       "the node's open events take as many bytes as limits.accepted_bytes allows"};
    if (mail.attached == nullptr) return std::nullopt;
    if (mail.attached->bytes() > limits.bulk_bytes)
        return Refusal{ReplyReason::TooLarge,
                       "the body is larger than limits.bulk_bytes = " +
                           std::to_string(limits.bulk_bytes) + " bytes"};
    if (std::string why = bulk_.no_room_for(mail.attached->bytes()); !why.empty())
        return Refusal{ReplyReason::Busy, std::move(why)};
    return std::nullopt;
}

std::optional<Refusal> Units::admit_to(Unit& unit, Mail mail) {
    const Limits& limits = env_.config.limits;
    if (auto refusal = no_room_for(mail)) return refusal;
    if (unit.mailbox.size() + unit.behind.size() >= limits.mailbox_events ||
        unit.mailbox_bytes + mail.event.size() > limits.mailbox_bytes)
        return Refusal{ReplyReason::Busy, "the actor's mailbox is full"};
    push(unit, std::move(mail));
    return std::nullopt;
}

void Units::push(Unit& unit, Mail mail) {
    mail.waiting.event = ++last_event_;
    mail.waiting.bytes = mail.event.size();
    if (mail.attached != nullptr) mail.held = bulk_.hold(mail.attached);
    ++env_.stats.accepted;
    ++accepted_;
    accepted_bytes_ += mail.waiting.bytes;
    unit.mailbox_bytes += mail.waiting.bytes;
    arm_deadline(unit, mail);
    if (unit.handing && unit.handing->job) {
        unit.mailbox_bytes -= mail.waiting.bytes;
        unit.behind.push_back(std::move(mail));
        return;
    }
    unit.release_after = false;
    unit.mailbox.push_back(std::move(mail));
    touch(unit);
    pump(unit);
}

Unit* Units::make_unit(std::size_t class_index, const std::string& key, const std::string& name) {
    if (units_.size() >= env_.config.limits.units_max && !forget_one_idle()) return nullptr;
    auto unit = std::make_unique<Unit>();
    unit->id = ++last_unit_;
    unit->key = key;
    unit->class_index = class_index;
    unit->name = name;
    Unit* out = unit.get();
    by_key_.emplace(key, unit->id);
    units_.emplace(out->id, std::move(unit));
    // Its first event may be refused yet: also then somebody must be able to forget it.
    touch(*out);
    return out;
}

// Least recently active first; a hold is kept in the store, so forgetting costs a re-read at the next event.
bool Units::forget_one_idle() {
    constexpr int kLooks = 32;  // those at the head are the oldest; a busy head is rare
    int looks = 0;
    bool leaving = false;
    for (const UnitId id : idle_) {
        Unit* unit = unit_of(id);
        if (at_rest(*unit) && !unit->deleting && !unit->placing && unit->sockets == 0 &&
            unit->pumping == 0 && !unit->handing) {
            const bool forgettable =
                unit->hold == Hold::Idle || (unit->hold == Hold::Serving && unit->sealed);
            if (hears_stop(*unit)) {
                // Not before its Stop: the next one who comes finds it gone from memory.
                ask_to_leave(*unit, StopReason::Evict);
                leaving = true;
            } else if (!forgettable && unit->hold == Hold::Serving) {
                // Held but never sealed: who finds the record later must not take it for sealed, so it is given back.
                release(*unit);
                leaving = true;
            } else if (forgettable) {
                forget(*unit);
                return true;
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
    return pausing(unit) && unit.stored.outbox.empty() && unit.peer_calls == 0;
}

void Units::forget(Unit& unit) {
    HF_CHECK(!unit.has_work() && unit.settled() && unit.peer_calls == 0 && !unit.handing,
             "a unit with work is never forgotten");
    HF_CHECK(unit.pumping == 0, "nor is one that is being worked on");
    leave_runtime(unit, true);
    if (unit.in_state_room) states_.leave(unit.id);
    if (unit.in_idle_list) idle_.erase(unit.idle_position);
    by_key_.erase(unit.key);
    units_.erase(unit.id);
}

void Units::touch(Unit& unit) {
    unit.last_active = env_.now;
    if (const auto it = runtimes_.find(unit.runtime); it != runtimes_.end())
        it->second.order.splice(it->second.order.end(), it->second.order, unit.resident_position);
    if (unit.runtime.valid()) {
        std::list<UnitId>& warm = warm_.at(unit.class_index);
        warm.splice(warm.end(), warm, unit.warm_position);
        unit.warm_since = env_.now;
    }
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

void Units::tick() {
    while (!deadlines_.empty() && deadlines_.front().at <= env_.now) {
        const DeadlineEntry entry = deadlines_.front();
        deadline_passed(entry);
    }
    alarms_.tick();
    journal_.tick();
    if (!closing_) {
        messages_.tick();
        messages_.run();
    }
    retry_closes();
    drop_marks_due();
    hand_over_tick();
    drain_.tick();
    watch_answers();
    evict_idle();
    refuse_crowded();
    // hold_idle: give a hold back after an hour without an event.
    while (!idle_.empty()) {
        Unit* unit = unit_of(idle_.front());
        if (env_.now - unit->last_active < env_.config.limits.hold_idle) break;
        unit->last_active = env_.now;
        idle_.splice(idle_.end(), idle_, unit->idle_position);
        if (unit->hold != Hold::Serving || unit->sockets != 0 || unit->handing) continue;
        // evict_idle() has asked it, or will when one of the Stops that are open has ended.
        unit->release_after = hears_stop(*unit) || unit->leaving;
        if (at_rest(*unit) && !unit->release_after) release(*unit);
    }
}

Time Units::next_deadline() const {
    Time soonest = deadlines_.empty() ? kNever : deadlines_.front().at;
    soonest = std::min({soonest, alarms_.next_deadline(), journal_.next_deadline()});
    if (!closing_) soonest = std::min({soonest, evict_next_, messages_.next_deadline()});
    soonest = std::min({soonest, hand_over_deadline(), drain_.next_deadline()});
    if (!old_marks_.empty()) soonest = std::min(soonest, old_marks_.begin()->first);
    if (!closing_ && !closes_later_.empty())
        soonest = std::min(soonest, closes_later_.begin()->first);
    if (!runtime_ops_.empty()) soonest = std::min(soonest, answers_look_);
    for (const auto& [handle, load] : runtimes_) {
        if (!load.crowded.empty())
            soonest = std::min(soonest, units_.at(load.crowded.front())->room_by);
    }
    if (!idle_.empty())
        soonest =
            std::min(soonest, units_.at(idle_.front())->last_active + env_.config.limits.hold_idle);
    return soonest;
}

void Units::pump(Unit& unit) {
    // What one unit lets out may come in at another, which may need room: not this one's.
    ++unit.pumping;
    pump_held(unit);
    --unit.pumping;
}

void Units::pump_held(Unit& unit) {
    open_gate(unit);
    put_done(unit);
    put_settled(unit);
    commit(unit);
    compact(unit);
    offer_messages(unit);
    settle_stale(unit);
    send_call(unit);
    if (unit.counted_unsettled == unit.settled()) {
        unit.counted_unsettled = !unit.settled();
        unsettled_ += unit.counted_unsettled ? 1U : static_cast<std::size_t>(-1);
    }
    go_on_handing(unit);
    leave_when_due(unit);
    look_at_room(unit);
    const bool base_next = wants_base(unit);
    if (!unit.has_work() && !base_next) return;
    if (unit.hold == Hold::Idle && incarnation_ != 0 && owner_known(unit))
        return pass_on(unit, To::Owner);
    if (unit.memory != Memory::Resident && env_.now < unit.no_load_until)
        return refuse_waiting(
            unit,
            ReplyReason::ActorFailed,
            "loading the actor ended the runtime three times; it is tried again after "
            "5 min");
    if (unit.hold == Hold::Idle && incarnation_ != 0) return acquire(unit);
    if (unit.hold != Hold::Serving) return;
    if (!unit.runtime.valid()) want_place(unit);
    if (unit.memory == Memory::Cold) {
        // A load must see everything this owner has put: settle the open entry and store the merged next one first.
        if (unit.settled() && unit.store_op == 0) start_load(unit);
        return;
    }
    if (!unit.runtime.valid() || unit.runtime_op != 0) return;
    if (unit.memory == Memory::Activating) {
        if (unit.room_by == 0) queue_for_runtime(unit);
        return;
    }
    if (unit.memory != Memory::Resident || unit.stop_over) return;
    if (unit.running) {
        if (unit.answered) queue_for_runtime(unit);
        return;
    }
    const bool ahead = unit.outputs.size() >= env_.config.limits.run_ahead_events ||
                       unit.pending_bytes >= env_.config.limits.run_ahead_bytes ||
                       base_overdue(unit);
    if (base_next || (!ahead && !unit.mailbox.empty())) queue_for_runtime(unit);
}

}  // namespace hf::core
