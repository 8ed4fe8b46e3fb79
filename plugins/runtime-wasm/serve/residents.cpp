#include "plugins/runtime-wasm/serve/residents.hpp"

#include <algorithm>
#include <cstring>

#include "abi/base/clock.hpp"
#include "abi/ring/bodies.hpp"

namespace hf::wasm {

namespace {

// Of a flat field; little-endian, as this machine is.
constexpr std::uint32_t kLengthBytes = 4;

std::string millis(std::int64_t ns) {
    return std::to_string(ns / 1'000'000) + " ms";
}

}  // namespace

// Frames of this one lie on the guest's stack, also while the event waits: it owns nothing.
std::uint32_t Residents::deliver(Instance& instance, void* arg) {
    auto& delivery = *static_cast<Delivery*>(arg);
    const hf_module_v1& module = instance.module();
    void* guest = instance.guest();
    if (instance.fresh()) {
        if (module.actor_fresh != nullptr) module.actor_fresh(guest);
        instance.not_fresh();
    }
    const std::uint32_t at = module.actor_alloc(guest, delivery.size);
    delivery.no_room = at == 0;
    if (at == 0) return 0;
    std::uint8_t* to = instance.range(at, delivery.size);
    delivery.wild_buffer = to == nullptr;
    if (to == nullptr) return 0;
    // What it reads may move while it is put aside: where it lies is looked up after this.
    Worker& worker = *Worker::current();
    worker.keep_whole(true);
    if (delivery.body_bytes == 0) {
        if (delivery.size > 0) std::memcpy(to, delivery.bytes, delivery.size);
    } else {
        // The event ends with the length of its last field, which says 0; what it is follows from the file.
        const auto large = static_cast<std::uint32_t>(delivery.body_bytes);
        const std::uint32_t head = delivery.size - large;
        std::memcpy(to, delivery.bytes, head);
        std::memcpy(to + head - kLengthBytes, &large, kLengthBytes);
        delivery.body_unreadable = !ring::read_body(delivery.body_fd, to + head, large, 0);
        if (delivery.body_unreadable) return 0;
    }
    delivery.brought = true;
    worker.keep_whole(false);
    const std::uint32_t rc = module.actor_event(guest, delivery.kind, at, delivery.size);
    if (module.actor_free != nullptr) module.actor_free(guest, at, delivery.size);
    return rc;
}

Residents::Unit* Residents::find(std::uint64_t activation) const {
    const auto at = units_.find(activation);
    return at == units_.end() ? nullptr : at->second.get();
}

Result<void> Residents::open(std::uint64_t activation,
                             std::string_view unit,
                             const ActorClass& actor_class) {
    if (actor_class.program == nullptr)
        return fail(Code::Unavailable, "class " + actor_class.name + ": " + actor_class.broken);
    units_.erase(activation);
    if (units_.size() >= resident_max_)
        return fail(Code::Busy,
                    "limit resident_units_max: " + std::to_string(resident_max_) +
                        " units are resident here");
    units_.emplace(activation, std::make_unique<Unit>(unit, actor_class, pool_));
    return {};
}

Result<void> Residents::fold(std::uint64_t activation, BytesView changes, bool base) {
    Unit* unit = find(activation);
    if (unit == nullptr || unit->serving)
        return fail(Code::NotFound, "no such activation is being opened");
    return unit->state.fold(changes, base);
}

Result<void> Residents::part(std::uint64_t activation,
                             std::uint32_t part,
                             bool last,
                             std::int64_t alarm_ms) {
    Unit* unit = find(activation);
    if (unit == nullptr || unit->serving)
        return fail(
            Code::NotFound,
            "piece " + std::to_string(part) + " belongs to no activation that is being opened");
    if (part != unit->next_part)
        return fail(Code::Invalid,
                    "piece " + std::to_string(part) + " came, " + std::to_string(unit->next_part) +
                        " was next");
    ++unit->next_part;
    unit->serving = last;
    if (last) unit->alarm_ms = alarm_ms;
    return {};
}

void Residents::drop(std::uint64_t activation) {
    units_.erase(activation);
}

void Residents::nothing_ran(Ran& ran, Ended ended, std::string why, const Unit* unit) {
    open_->event.reset(nullptr, Kind::None, 0, 0);
    ran.ended = ended;
    ran.error = std::move(why);
    ran.output = &open_->event;
    if (unit != nullptr) ran.state_bytes = unit->state.bytes();
}

// Part of run(), as Worker::enter_guest is of its callers.
[[gnu::always_inline]] inline void Residents::run_asked(const Asked& asked, Ran& ran) {
    Unit* unit = find(asked.activation);
    const auto refuse = [&](Ended ended, std::string why) {
        nothing_ran(ran, ended, std::move(why), unit);
    };
    if (unit == nullptr || !unit->serving) {
        unit = nullptr;
        return refuse(Ended::NotResident, "no such activation is resident here");
    }
    if (unit->waiting != nullptr)
        return refuse(Ended::Failed, between(*unit) + ": the next one comes after it");
    const ActorClass& actor_class = *unit->actor_class;
    Instance& instance = unit->instance;
    Deadlines deadlines = actor_class.deadlines;
    if (asked.deadline_ns != 0)
        deadlines.wall_ns = std::min(deadlines.wall_ns, asked.deadline_ns - monotonic_ns());
    if (deadlines.wall_ns <= 0)
        return refuse(Ended::WallDeadline, "the event's deadline had passed before it could run");
    if (asked.kind == 0 || asked.kind > static_cast<std::uint32_t>(Kind::Stop))
        return refuse(
            Ended::Failed,
            "events of kind " + std::to_string(asked.kind) + " are not delivered to wasm actors");
    const hf_module_v1& module = actor_class.program->module();
    const auto typed = static_cast<Kind>(asked.kind);
    if ((typed == Kind::Stop && module.actor_on_stop == nullptr) ||
        (typed == Kind::Restored && module.actor_on_restored == nullptr))
        return refuse(Ended::Ok, "");
    if (asked.body.bytes > 0 && (typed != Kind::Http || asked.event.size() < kLengthBytes))
        return refuse(Ended::Failed, "a large body came with an event that has none");
    if (asked.body.bytes > actor_class.body_max)
        return refuse(Ended::Limit,
                      LimitHit{"body_max", actor_class.body_max, asked.body.bytes}.sentence());
    if (!instance.mapped())
        if (const auto mapped = instance.map(); !mapped)
            return refuse(Ended::Limit, mapped.error().message);

    Open& open = *open_;
    // An alarm that is delivered is no longer set.
    open.event.reset(&unit->state, typed, asked.now_ms, typed == Kind::Alarm ? 0 : unit->alarm_ms);
    open.event.body_max = actor_class.body_max;
    open.name = asked.name;
    open.deadlines = deadlines;
    open.elapsed_ns = 0;
    open.kept.clear();
    open.body = std::move(asked.body.file);
    open.delivery = {asked.kind,
                     asked.event.data(),
                     static_cast<std::uint32_t>(asked.event.size() + asked.body.bytes),
                     open.body.get(),
                     asked.body.bytes};
    instance.event = &open.event;
    instance.clear_grow_refused();
    unit->state.begin();
    finish(*unit, worker_.run(instance, deliver, &open.delivery, deadlines), ran);
}

Ran Residents::run(std::uint64_t activation,
                   std::uint32_t kind,
                   BytesView event,
                   std::int64_t now_ms,
                   std::int64_t deadline_ns,
                   EventName name,
                   LargeBody body) {
    Ran ran;
    run_asked({activation, kind, event, now_ms, deadline_ns, name, body}, ran);
    return ran;
}

Ran Residents::resume(std::uint64_t activation,
                      EventName name,
                      std::uint32_t n,
                      std::int32_t code,
                      BytesView payload,
                      std::int64_t deadline_ns) {
    Ran ran;
    Unit* unit = find(activation);
    if (unit == nullptr || unit->waiting == nullptr || unit->waiting->name != name ||
        unit->waiting->preempted || unit->waiting->event.call.n != n) {
        nothing_ran(ran, Ended::NotResident, "no such event waits here for that answer", nullptr);
        return ran;
    }
    open_ = std::move(unit->waiting);
    open_->elapsed_ns = 0;
    open_->event.answered(code, payload);
    finish(*unit, worker_.resume(std::move(open_->parked), deadline_ns), ran);
    return ran;
}

Ran Residents::go_on(std::uint64_t activation, EventName name, std::int64_t deadline_ns) {
    Ran ran;
    Unit* unit = find(activation);
    if (unit == nullptr || unit->waiting == nullptr || unit->waiting->name != name ||
        !unit->waiting->preempted) {
        nothing_ran(ran, Ended::NotResident, "the actor left while its event ran", nullptr);
        return ran;
    }
    open_ = std::move(unit->waiting);
    finish(*unit, worker_.resume(std::move(open_->parked), deadline_ns), ran);
    return ran;
}

void Residents::finish(Unit& unit, const Outcome& outcome, Ran& ran) {
    Open& open = *open_;
    ran.output = &open.event;
    ran.elapsed_ns = open.elapsed_ns + outcome.elapsed_ns;
    if (outcome.stop == Stop::Parked) return put_aside(unit, ran, false);
    if (outcome.stop == Stop::Preempted) return put_aside(unit, ran, true);
    if (outcome.stop != Stop::Done || static_cast<std::int32_t>(outcome.value) < 0 ||
        open.delivery.no_room || open.delivery.wild_buffer || open.delivery.body_unreadable)
        return fail_event(unit, outcome, ran);
    if (unit.state.changed()) ran.changes = unit.state.encode_changes();
    unit.state.commit();
    unit.alarm_ms = open.event.alarm_ms;
    ran.state_bytes = unit.state.bytes();
    open.event.end_lines();
    open.body.reset();
    // What the guest grew for it would stay, once for each actor that was ever sent one.
    if (open.delivery.body_bytes > 0 || open.event.reply_large.valid()) unit.instance.drop();
}

void Residents::put_aside(Unit& unit, Ran& ran, bool preempted) {
    Open& open = *open_;
    ran.state_bytes = unit.state.bytes();
    open.elapsed_ns = ran.elapsed_ns;
    open.preempted = preempted;
    open.parked = worker_.take_parked();
    Delivery& delivery = open.delivery;
    if (delivery.brought) {
        open.body.reset();
    } else if (open.kept.empty()) {
        const std::size_t here = delivery.size - static_cast<std::size_t>(delivery.body_bytes);
        open.kept.assign(delivery.bytes, delivery.bytes + here);
        delivery.bytes = open.kept.data();
    }
    unit.waiting = std::move(open_);
    open_ = std::make_unique<Open>();
    if (preempted) {
        ran.ended = Ended::Preempted;
        return;
    }
    ran.ended = Ended::Calling;
    const std::int64_t left_ms = std::clamp<std::int64_t>(
        (worker_.wall_end_ns() - monotonic_ns()) / 1'000'000, 1, UINT32_MAX);
    ran.timeout_ms = static_cast<std::uint32_t>(left_ms);
    if (const std::uint32_t asked = open.event.call.timeout_ms; asked != 0)
        ran.timeout_ms = std::min(asked, ran.timeout_ms);
}

std::string Residents::between(const Unit& unit) {
    return unit.waiting->preempted ? "an event of this actor runs"
                                   : "an event of this actor waits for the answer to its call";
}

// Whatever stopped it, its writes and its memory go: half an event must not be seen by the next one.
void Residents::fail_event(Unit& unit, const Outcome& outcome, Ran& ran) {
    Open& open = *open_;
    Event& event = open.event;
    Instance& instance = unit.instance;
    event.end_lines();
    unit.state.rollback();
    ran.state_bytes = unit.state.bytes();
    const std::string grown = instance.grow_refused()
                                  ? " (memory.grow beyond memory_max, " +
                                        std::to_string(unit.actor_class->pages_max) +
                                        " pages, was refused)"
                                  : "";
    instance.drop();
    event.replied = false;
    event.reply_large.reset();
    open.body.reset();
    const auto refuse = [&ran](Ended ended, std::string why) {
        ran.ended = ended;
        ran.error = std::move(why);
    };
    switch (outcome.stop) {
        case Stop::Trap:
            return refuse(Ended::Trapped, std::string("trap: ") + trap_text(outcome.trap) + grown);
        case Stop::CpuDeadline:
            return refuse(Ended::CpuDeadline,
                          "cpu_limit: the event used more than " + millis(open.deadlines.cpu_ns) +
                              " of CPU time");
        case Stop::WallDeadline:
            return refuse(Ended::WallDeadline,
                          "wall_limit: the event took more than " + millis(open.deadlines.wall_ns));
        case Stop::Abort:
            return refuse(event.limit ? Ended::Limit : Ended::Failed, event.abort);
        case Stop::Done:
        case Stop::Parked:
        case Stop::Preempted:
            break;
    }
    if (open.delivery.no_room && open.delivery.body_bytes > 0)
        return refuse(
            Ended::Limit,
            "limit memory_max: the actor has no room for an event of " +
                std::to_string(open.delivery.size) + " bytes within its " +
                std::to_string(std::uint64_t{unit.actor_class->pages_max} * kWasmPageBytes) +
                " bytes of memory");
    if (open.delivery.body_unreadable)
        return refuse(Ended::Failed, "the request's body could not be read");
    if (open.delivery.no_room)
        return refuse(grown.empty() ? Ended::Failed : Ended::Limit,
                      "the actor has no room for an event of " +
                          std::to_string(open.delivery.size) + " bytes" + grown);
    if (open.delivery.wild_buffer)
        return refuse(Ended::Failed, "actor_alloc answered a buffer outside the actor's memory");
    if (event.limit) return refuse(Ended::Limit, event.limit.sentence());
    return refuse(Ended::Failed,
                  "the actor's handler answered " +
                      std::to_string(static_cast<std::int32_t>(outcome.value)) + grown);
}

Result<Bytes> Residents::checkpoint(std::uint64_t activation) const {
    const Unit* unit = find(activation);
    if (unit == nullptr || !unit->serving)
        return fail(Code::NotFound, "no such activation is resident here");
    if (unit->waiting != nullptr)
        return fail(Code::Busy, between(*unit) + ": its state is in between");
    return unit->state.encode_all();
}

bool Residents::waiting(std::uint64_t activation) const {
    const Unit* unit = find(activation);
    return unit != nullptr && unit->waiting != nullptr;
}

bool Residents::wants_stop(std::uint64_t activation) const {
    const Unit* unit = find(activation);
    return unit != nullptr && unit->actor_class->program->module().actor_on_stop != nullptr;
}

std::string_view Residents::unit(std::uint64_t activation) const {
    const Unit* unit = find(activation);
    return unit == nullptr ? std::string_view() : std::string_view(unit->name);
}

}  // namespace hf::wasm
