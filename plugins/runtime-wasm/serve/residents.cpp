#include "plugins/runtime-wasm/serve/residents.hpp"

#include <algorithm>
#include <cstring>

#include "abi/base/clock.hpp"

namespace hf::wasm {

namespace {

// The kinds guest ABI v1 names: http .. restored.
constexpr std::uint32_t kKindMax = 7;

// Plain data: the call that reads it may be left by a jump.
struct Delivery {
    std::uint32_t kind;
    const std::uint8_t* bytes;
    std::uint32_t size;
    bool no_room = false;
    bool wild_buffer = false;
};

std::uint32_t deliver(Instance& instance, void* arg) {
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
    if (delivery.size > 0) std::memcpy(to, delivery.bytes, delivery.size);
    const std::uint32_t rc = module.actor_event(guest, delivery.kind, at, delivery.size);
    if (module.actor_free != nullptr) module.actor_free(guest, at, delivery.size);
    return rc;
}

std::string millis(std::int64_t ns) {
    return std::to_string(ns / 1'000'000) + " ms";
}

}  // namespace

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

Result<void> Residents::part(std::uint64_t activation, std::uint32_t part, bool last) {
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
    return {};
}

void Residents::drop(std::uint64_t activation) {
    units_.erase(activation);
}

Ran Residents::run(std::uint64_t activation,
                   std::uint32_t kind,
                   BytesView event,
                   std::int64_t now_ms,
                   std::int64_t deadline_ns) {
    Ran ran;
    ran.output = &event_;
    Unit* unit = find(activation);
    if (unit == nullptr || !unit->serving) {
        event_.reset(nullptr, 0);
        ran.ended = Ended::NotResident;
        ran.error = "no such activation is resident here";
        return ran;
    }
    const ActorClass& actor_class = *unit->actor_class;
    Instance& instance = unit->instance;
    event_.reset(&unit->state, now_ms);
    ran.state_bytes = unit->state.bytes();

    Deadlines deadlines = actor_class.deadlines;
    if (deadline_ns != 0)
        deadlines.wall_ns = std::min(deadlines.wall_ns, deadline_ns - monotonic_ns());
    const auto refuse = [&ran](Ended ended, std::string why) {
        ran.ended = ended;
        ran.error = std::move(why);
        return ran;
    };
    if (deadlines.wall_ns <= 0)
        return refuse(Ended::WallDeadline, "the event's deadline had passed before it could run");
    if (kind == 0 || kind > kKindMax)
        return refuse(
            Ended::Failed,
            "events of kind " + std::to_string(kind) + " are not delivered to wasm actors");
    if (!instance.mapped())
        if (const auto mapped = instance.map(); !mapped)
            return refuse(Ended::Limit, mapped.error().message);

    instance.event = &event_;
    instance.clear_grow_refused();
    unit->state.begin();
    Delivery delivery{kind, event.data(), static_cast<std::uint32_t>(event.size())};
    const Outcome outcome = worker_.run(instance, deliver, &delivery, deadlines);
    ran.elapsed_ns = outcome.elapsed_ns;

    const auto rc = static_cast<std::int32_t>(outcome.value);
    if (outcome.stop == Stop::Done && rc >= 0 && !delivery.no_room && !delivery.wild_buffer) {
        if (unit->state.changed()) ran.changes = unit->state.encode_changes();
        unit->state.commit();
        ran.state_bytes = unit->state.bytes();
        return ran;
    }

    // Whatever stopped it, its writes and its memory go: half an event must not be seen by the next one.
    unit->state.rollback();
    const bool grow_refused = instance.grow_refused();
    instance.drop();
    event_.replied = false;
    const std::string grown = grow_refused ? " (memory.grow beyond memory_max, " +
                                                 std::to_string(actor_class.pages_max) +
                                                 " pages, was refused)"
                                           : "";
    switch (outcome.stop) {
        case Stop::Trap:
            return refuse(Ended::Trapped, std::string("trap: ") + trap_text(outcome.trap) + grown);
        case Stop::CpuDeadline:
            return refuse(
                Ended::CpuDeadline,
                "cpu_limit: the event used more than " + millis(deadlines.cpu_ns) + " of CPU time");
        case Stop::WallDeadline:
            return refuse(Ended::WallDeadline,
                          "wall_limit: the event took more than " + millis(deadlines.wall_ns));
        case Stop::Abort:
            return refuse(event_.limit ? Ended::Limit : Ended::Failed, event_.abort);
        case Stop::Done:
            break;
    }
    if (delivery.no_room)
        return refuse(grow_refused ? Ended::Limit : Ended::Failed,
                      "the actor has no room for an event of " + std::to_string(event.size()) +
                          " bytes" + grown);
    if (delivery.wild_buffer)
        return refuse(Ended::Failed, "actor_alloc answered a buffer outside the actor's memory");
    if (event_.limit) return refuse(Ended::Limit, event_.limit.sentence());
    return refuse(Ended::Failed, "the actor's handler answered " + std::to_string(rc) + grown);
}

Result<Bytes> Residents::checkpoint(std::uint64_t activation) const {
    const Unit* unit = find(activation);
    if (unit == nullptr || !unit->serving)
        return fail(Code::NotFound, "no such activation is resident here");
    return unit->state.encode_all();
}

std::string_view Residents::unit(std::uint64_t activation) const {
    const Unit* unit = find(activation);
    return unit == nullptr ? std::string_view() : std::string_view(unit->name);
}

}  // namespace hf::wasm
