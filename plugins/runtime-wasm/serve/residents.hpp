// The units that live in this process, by activation id, and what running one event on one of them does.
// Knows no link and no message: plugin.cpp turns these calls into answers. A unit's state is here; its guest memory is
// mapped at its first event and dropped after a failure, to be mapped again from the image at the next one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

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
    Deadlines deadlines;
};

enum class Ended : std::uint8_t {
    Ok,
    NotResident,
    Failed,
    Trapped,
    CpuDeadline,
    WallDeadline,
    Limit
};

// What an event left. `output` and `changes` are good until the next run().
struct Ran {
    Ended ended = Ended::Ok;
    std::string error;  // one sentence unless Ok
    const Event* output = nullptr;
    Bytes changes;  // empty: read-only
    std::uint32_t state_bytes = 0;
    std::int64_t elapsed_ns = 0;
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
    // Checks that this is piece `part`, in order, and counts it; the unit serves after the last.
    Result<void> part(std::uint64_t activation, std::uint32_t part, bool last);
    void drop(std::uint64_t activation);

    Ran run(std::uint64_t activation,
            std::uint32_t kind,
            BytesView event,
            std::int64_t now_ms,
            std::int64_t deadline_ns);
    // The whole state as a ChangeSet.
    Result<Bytes> checkpoint(std::uint64_t activation) const;

    [[nodiscard]] std::size_t count() const { return units_.size(); }
    [[nodiscard]] std::size_t mapped() const { return pool_.taken(); }
    // Of a unit that serves; empty when there is none.
    [[nodiscard]] std::string_view unit(std::uint64_t activation) const;

private:
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
        std::uint32_t next_part = 0;
        bool serving = false;
    };
    [[nodiscard]] Unit* find(std::uint64_t activation) const;

    Worker& worker_;
    SlotPool& pool_;
    std::size_t resident_max_;
    std::unordered_map<std::uint64_t, std::unique_ptr<Unit>> units_;
    Event event_;
};

}  // namespace hf::wasm
