// One node of a simulated run: the real core, its plugin processes, its clocks, the disk of its journal, and its lives. A
// life ends by a stop or by the death of the supervisor, then the next one starts on the same bucket: a new core, new
// processes, and whatever the old ones had sent to the bucket may still land.
//
// A node may be held up: paused, its supervisor does nothing while its processes go on; frozen, the whole machine stands
// still; suspended, its CLOCK_MONOTONIC stands still, too. Then everything comes at once.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/core.hpp"
#include "tests/sim/clock.hpp"
#include "tests/sim/instances.hpp"

namespace hf::sim {

class World;

class Node {
public:
    struct Name {
        std::size_t number = 0;  // in the world
        std::string id;
        std::string instance;
        std::string address;    // where other nodes reach it
        bool intruder = false;  // it has no right to its id while another instance lives
    };
    enum class Held : std::uint8_t { No, Paused, Frozen, Suspended };

    Node(World& world, Name name);

    [[nodiscard]] const Name& name() const { return name_; }
    [[nodiscard]] std::size_t number() const { return name_.number; }

    // Its clocks, and when its core asks for its next tick by the world's; kNever: not at all.
    [[nodiscard]] Time now() const;
    [[nodiscard]] Time boot_now() const;
    [[nodiscard]] std::int64_t wall_ms() const { return (now() + wall_offset_) / kMs; }
    [[nodiscard]] Time next_tick() const;
    void set_wall(Time offset);
    void step_wall(Time by) { set_wall(wall_offset_ + by); }

    // For its processes.
    [[nodiscard]] std::uint64_t life() const { return life_; }
    [[nodiscard]] Instance* find(Handle handle);
    // Only if that process still lives then; later when the machine stands still.
    void after(const Instance& instance, Time delay, std::function<void()> what);
    void after(Handle instance, Time delay, std::function<void()> what);
    // Whatever becomes of its processes, in this life only.
    void later(Time delay, std::function<void()> what);
    void feed(core::Event event);
    void trace(const std::string& line) const;
    // This answer is the good end of a Stop, which added `id` (0: nothing).
    void stop_ends(const std::string& unit, const core::DeliveredIn& answer, std::uint64_t id);

    // Its lives.
    void start_life();
    void end_life();
    void stop(const std::string& reason);
    [[nodiscard]] bool up() const { return core_ != nullptr; }
    [[nodiscard]] bool stopping() const { return stopping_; }
    [[nodiscard]] bool exited() const { return exited_; }
    [[nodiscard]] const core::Core* core() const { return core_.get(); }
    [[nodiscard]] const std::map<std::uint64_t, std::unique_ptr<Instance>>& instances() const {
        return instances_;
    }
    // One that takes requests now, drawn; nullptr: none does.
    [[nodiscard]] Gateway* ready_gateway();

    void hold_up(Held how);
    void go_on();
    [[nodiscard]] Held held() const { return held_; }
    // The machine answers nobody; what comes in waits for it.
    [[nodiscard]] bool stands_still() const {
        return held_ == Held::Frozen || held_ == Held::Suspended;
    }
    void when_it_goes_on(std::function<void()> what) { frozen_.push_back(std::move(what)); }

    // The way to the bucket: nothing gets through until `until`; or it takes very long for as long.
    void cut_from_bucket(Time until) { bucket_cut_until_ = until; }
    void slow_to_bucket(Time until) { bucket_slow_until_ = until; }
    [[nodiscard]] Time bucket_cut_until() const { return bucket_cut_until_; }
    [[nodiscard]] Time bucket_slow_until() const { return bucket_slow_until_; }

    // When all is quiet.
    void check_core();
    void check_balance() const;
    [[nodiscard]] const std::map<std::uint64_t, core::JournalItem>& journal() const {
        return journal_;
    }

private:
    void step(core::Event event);
    void carry_out(core::Action& action);
    void store_asked(core::StoreRequest& request);
    void deliver_asked(const core::Deliver& deliver);
    void answered(core::ReplyOut& reply);
    void told_to_stop(const Instance& runtime) const;
    void exits(const core::ExitNode& exit);
    [[nodiscard]] Handle judge_place(const core::PlacedIn& answer);
    void check_left();
    void trace_action(const core::Action& action) const;
    [[nodiscard]] core::Config config();

    // node_journal.cpp
    [[nodiscard]] core::JournalLoaded journal_content() const;
    void append_to_journal(const core::JournalAppend& ask);
    void remove_from_journal(const core::JournalRemove& ask);
    void bury(const core::DeadLetter& letter);
    void journal_later(std::function<void()> what);

    World& world_;
    Name name_;
    Clock clock_;
    Time wall_offset_ = 0;
    std::unique_ptr<core::Core> core_;
    std::uint64_t life_ = 0;
    std::map<std::uint64_t, std::unique_ptr<Instance>> instances_;  // of this life, by generation
    core::BadBuilds bad_builds_;
    bool stepping_ = false;
    bool exited_ = false;
    bool stopping_ = false;
    Time tick_at_ = core::kNever;  // by its own clock

    Held held_ = Held::No;
    Time held_since_ = core::kNever;  // the last time, by its own clock, and until when
    Time held_until_ = core::kNever;
    std::vector<core::Event> backlog_;
    std::vector<std::function<void()>> frozen_;
    Time bucket_cut_until_ = 0;
    Time bucket_slow_until_ = 0;

    std::map<core::OpId, core::Place> places_;            // questions to policies
    std::map<std::uint64_t, core::JournalItem> journal_;  // outlives every life
    std::uint64_t journal_next_ = 1;
    Time journal_free_ = 0;  // when its disk has done what was asked so far
    struct Stopped {
        std::string unit;
        Handle runtime;
        std::uint64_t id = 0;
    };
    std::map<std::uint64_t, Stopped> stopped_;                    // by activation, until it is left
    std::set<std::pair<std::uint32_t, std::string>> were_ready_;  // runtimes: seat and build
};

}  // namespace hf::sim
