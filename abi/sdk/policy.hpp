// Placement and drain policies as one virtual function each. See examples/policies for a whole one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::sdk {

using Labels = std::vector<std::pair<std::string_view, std::string_view>>;
using Settings = std::vector<std::pair<std::string, std::string>>;

// One place a unit may live. `id` is unique within one request.
struct Candidate {
    std::uint32_t id = 0;
    std::string_view node;
    std::uint32_t instance = 0;  // runtime instance of that node
    std::uint64_t generation = 0;
    bool local = false;
    std::uint32_t resident = 0;  // units there, those on their way included
    std::uint32_t capacity = 0;  // 0: unlimited
    std::uint32_t inflight = 0;  // events running or queued
    std::uint32_t weight = 1;
    Labels labels;
};

struct PlaceView {
    std::string_view subject;  // the escaped unit, e.g. actor/default/counter/alice
    std::string_view class_name;
    std::uint64_t sequence = 0;  // counts requests
    std::uint64_t seed = 0;      // Configure.seed mixed with sequence: the only randomness allowed
    bool explain = false;
    std::span<const Candidate> candidates;  // 1..64
};

struct Rejection {
    std::uint32_t candidate = 0;
    std::string reason;
};

struct PlaceOutcome {
    bool none = false;         // nobody fits: reason says why, and choice is meaningless
    std::uint32_t choice = 0;  // the id of one of the candidates
    std::string reason;
    std::vector<Rejection> rejections;  // one per rejected candidate, when explain was set

    static PlaceOutcome chosen(std::uint32_t id) {
        PlaceOutcome out;
        out.choice = id;
        return out;
    }
    static PlaceOutcome nobody(std::string why) {
        PlaceOutcome out;
        out.none = true;
        out.reason = std::move(why);
        return out;
    }
};

class PlacementPolicy {
public:
    virtual ~PlacementPolicy() = default;
    // Settings from agent.toml, before the first place(). An error refuses the start with that sentence.
    virtual Result<void> configure(const Settings& settings) {
        (void)settings;
        return {};
    }
    // Pure over its views: no clock, files or network, so that swap and replay agree.
    virtual PlaceOutcome place(const PlaceView& want) = 0;
};

struct Resident {
    std::uint32_t id = 0;
    std::string_view unit;
    bool busy = false;
    std::uint32_t queued = 0;
    std::uint64_t idle_ms = 0;
    std::uint32_t sockets = 0;
    std::uint32_t attempts = 0;
};

struct DrainView {
    std::span<const Resident> residents;  // a window of those that remain
    std::uint32_t remaining = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t in_flight_max = 0;
    std::uint32_t peers = 0;  // eligible, not suspect
    std::uint64_t elapsed_ms = 0;
    std::uint64_t deadline_ms = 0;
};

struct DrainStep {
    std::vector<std::uint32_t> hand_over;
    std::uint32_t wait_ms = 0;
    bool give_up = false;
    std::string reason;
};

class DrainPolicy {
public:
    virtual ~DrainPolicy() = default;
    virtual Result<void> configure(const Settings& settings) {
        (void)settings;
        return {};
    }
    virtual DrainStep next(const DrainView& view) = 0;
};

// A binary offers one or more named policies of one or both kinds; agent.toml or `holdfast swap --policy` picks one.
using MakePlacement = PlacementPolicy* (*)();
using MakeDrain = DrainPolicy* (*)();
struct PolicyEntry {
    std::string_view name;
    MakePlacement placement = nullptr;
    MakeDrain drain = nullptr;
};

// --kind placement|drain on the command line says which role this process plays.
int run_policies(std::span<const PolicyEntry> entries,
                 std::string_view plugin_name,
                 std::string_view version,
                 int argc,
                 char** argv);

template <class T>
int run_placement(std::string_view name, int argc, char** argv) {
    const PolicyEntry entry{name, []() -> PlacementPolicy* { return new T(); }, nullptr};
    return run_policies(std::span(&entry, 1), name, "1", argc, argv);
}

}  // namespace hf::sdk
