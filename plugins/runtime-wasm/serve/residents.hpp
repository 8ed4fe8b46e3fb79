// The units that live in this process, by activation id, and what running one event on one of them does.
// Knows no link and no message: plugin.cpp turns these calls into answers. A unit's state is here; its guest memory is
// mapped at its first event and dropped after a failure, to be mapped again from the image at the next one.
//
// An event that calls another actor, or that was preempted, is put aside with everything that is its own, and its unit
// takes no other event until resume() or go_on() has brought it to its end or the unit is dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"
#include "plugins/runtime-wasm/engine/instance.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/host/event.hpp"
#include "plugins/runtime-wasm/state/unit_state.hpp"

namespace hf::wasm {

// A class of actors as configured. `program` is null when its module could not be loaded; `broken` says why.
struct ActorClass {
    std::string name;
    std::string hash;
    const Program* program = nullptr;
    std::string broken;
    std::uint32_t state_max = 0;
    std::uint32_t pages_max = 0;
    std::uint64_t body_max = kPayloadBytesMax;  // of a request and of its answer
    Deadlines deadlines;
};

// The body of a request that came beside its event, whose last field is empty: a sealed memory file of so many bytes.
struct LargeBody {
    UniqueFd file;
    std::uint64_t bytes = 0;  // 0: there is none
};

enum class Ended : std::uint8_t {
    Ok,
    NotResident,
    Failed,
    Trapped,
    CpuDeadline,
    WallDeadline,
    Limit,
    Calling,   // not ended: it waits for the answer to output->call
    Preempted  // not ended: others have their turn before go_on()
};

// What an event left. `output` and `changes` are good until the next run(), resume() or drop().
struct Ran {
    Ended ended = Ended::Ok;
    std::string error;  // one sentence unless Ok, Calling or Preempted
    Event* output = nullptr;
    Bytes changes;  // empty: read-only
    std::uint32_t state_bytes = 0;
    std::int64_t elapsed_ns = 0;  // on the CPU or wanting it, since it began or was resumed
    std::uint32_t timeout_ms =
        0;  // of the call: what it asked for, at most what is left of the event; 0: the latter
};

// The supervisor's name of an event.
struct EventName {
    std::uint64_t incarnation = 0;
    std::uint64_t counter = 0;
    friend bool operator==(const EventName&, const EventName&) = default;
};

class Residents {
public:
    // Two mappings an actor, a third when its memory has grown, below vm.max_map_count's usual 65 530.
    static constexpr std::size_t kResidentMaxDefault = 20'000;

    Residents(Worker& worker, SlotPool& pool, std::size_t resident_max)
        : worker_(worker), pool_(pool), resident_max_(resident_max) {}

    // Makes a unit known under `activation`, empty. An earlier one of the same id is forgotten. Busy at the bound.
    Result<void> open(std::uint64_t activation,
                      std::string_view unit,
                      const ActorClass& actor_class);
    // Applies one stored entry to a unit that is being activated; `part` must follow the last one.
    Result<void> fold(std::uint64_t activation, BytesView changes, bool base);
    // Checks that this is piece `part`, in order, and counts it; the unit serves after the last, which says when its
    // alarm is due (0: it has none).
    Result<void> part(std::uint64_t activation,
                      std::uint32_t part,
                      bool last,
                      std::int64_t alarm_ms = 0);
    // Also an event of it that waits.
    void drop(std::uint64_t activation);

    Ran run(std::uint64_t activation,
            std::uint32_t kind,
            BytesView event,
            std::int64_t now_ms,
            std::int64_t deadline_ns,
            EventName name = {},
            LargeBody body = {});
    // The answer to call `n` of the event that waits: `code` < 0, or 0 and `payload`.
    Ran resume(std::uint64_t activation,
               EventName name,
               std::uint32_t n,
               std::int32_t code,
               BytesView payload,
               std::int64_t deadline_ns);
    // The event that was preempted here has its next slice.
    Ran go_on(std::uint64_t activation, EventName name, std::int64_t deadline_ns);
    // The whole state as a ChangeSet. Busy while an event is put aside.
    Result<Bytes> checkpoint(std::uint64_t activation) const;

    [[nodiscard]] std::size_t count() const { return units_.size(); }
    [[nodiscard]] std::size_t mapped() const { return pool_.taken(); }
    // Has an event that is put aside.
    [[nodiscard]] bool waiting(std::uint64_t activation) const;
    // Its module has the marker actor_on_stop.
    [[nodiscard]] bool wants_stop(std::uint64_t activation) const;
    // Of a unit that serves; empty when there is none.
    [[nodiscard]] std::string_view unit(std::uint64_t activation) const;

private:
    // Plain data: the call that reads it may be left by a jump.
    struct Delivery {
        std::uint32_t kind = 0;
        const std::uint8_t* bytes = nullptr;
        std::uint32_t size = 0;  // of the whole event, its large body included
        int body_fd = -1;
        std::uint64_t body_bytes = 0;
        bool brought = false;  // the guest has it all; what `bytes` and `body_fd` name may go
        bool body_unreadable = false;
        bool no_room = false;
        bool wild_buffer = false;
    };
    // Everything that belongs to one event; it stays where it is while the event waits.
    struct Open {
        Event event;
        Delivery delivery;
        EventName name;
        Deadlines deadlines;
        std::int64_t elapsed_ns = 0;  // of the slices before
        bool preempted = false;
        Bytes kept;  // the event, when it was put aside before it was brought
        UniqueFd body;
        Parked parked;
    };
    struct Unit {
        Unit(std::string_view unit_name, const ActorClass& unit_class, SlotPool& pool)
            : name(unit_name),
              actor_class(&unit_class),
              state(unit_class.state_max),
              instance(*unit_class.program, pool, unit_class.pages_max) {}
        std::string name;
        const ActorClass* actor_class;
        UnitState state;
        Instance instance;
        std::int64_t alarm_ms = 0;
        std::uint32_t next_part = 0;
        bool serving = false;
        std::unique_ptr<Open> waiting;  // last: it goes before what it runs in
    };
    [[nodiscard]] Unit* find(std::uint64_t activation) const;
    static std::uint32_t deliver(Instance& instance, void* arg);
    struct Asked {
        std::uint64_t activation;
        std::uint32_t kind;
        BytesView event;
        std::int64_t now_ms;
        std::int64_t deadline_ns;
        EventName name;
        LargeBody& body;
    };
    // Each fills `ran`, which its caller gives to its own: a copy of it costs more than a host call.
    void run_asked(const Asked& asked, Ran& ran);
    void nothing_ran(Ran& ran, Ended ended, std::string why, const Unit* unit);
    void finish(Unit& unit, const Outcome& outcome, Ran& ran);
    void put_aside(Unit& unit, Ran& ran, bool preempted);
    [[nodiscard]] static std::string between(const Unit& unit);
    void fail_event(Unit& unit, const Outcome& outcome, Ran& ran);

    Worker& worker_;
    SlotPool& pool_;
    std::size_t resident_max_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Unit>> units_;
    std::unique_ptr<Open> open_ = std::make_unique<Open>();  // of the event that runs, or ran last
};

}  // namespace hf::wasm
