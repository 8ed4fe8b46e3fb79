// Simulated plugin processes. Each greets, becomes ready, answers late, and according to the scenario dies, stalls,
// forgets or lies. A process knows the world and its own messages, nothing of the core.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"
#include "tests/sim/payload.hpp"

namespace hf::sim {

class Node;
class World;
using core::kMs;
using core::kSecond;
using core::Time;

class Instance {
public:
    Instance(World& world, Node& node, core::Spawn spawn);
    virtual ~Instance() = default;
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    void start();
    void configure();
    // A message of the core. One that is dead or stalled never reads it.
    virtual void take(const core::Action& action) = 0;
    virtual void shed(Time deadline);
    virtual void stop();
    void kill();
    void ask_progress();

    // The process ends by itself: nothing more is answered, the core hears of it a little later.
    void die(const std::string& summary, bool by_fault, core::OpId current);
    void stall();
    // The supervisor's end of the link found a broken rule: it reads nothing more from it.
    void violate(const std::string& rule);
    // Dies of a fault while it works on something, or of a signal from outside.
    void crash();

    [[nodiscard]] Handle handle() const { return spawn_.handle; }
    [[nodiscard]] core::Kind kind() const { return spawn_.kind; }
    [[nodiscard]] std::uint32_t seat() const { return spawn_.seat; }
    [[nodiscard]] const core::Build& build() const { return spawn_.build; }
    [[nodiscard]] std::uint64_t life() const { return life_; }
    [[nodiscard]] bool dead() const { return dead_; }
    [[nodiscard]] bool answering() const { return !dead_ && !stalled_ && !mute_; }
    [[nodiscard]] bool serving() const { return answering() && ready_ && !shedding_; }
    [[nodiscard]] bool stalled() const { return stalled_; }

protected:
    // What a build under swap does wrong, empty for a good one.
    [[nodiscard]] const std::string& misdeed() const { return misdeed_; }
    void answer_later(Time delay, core::Event event);
    virtual core::OpId current() const { return 0; }
    void progressed() { ++progress_; }

    World& world_;
    Node& node_;
    core::Spawn spawn_;
    bool ready_ = false;
    bool shedding_ = false;

private:
    void greet();

    std::uint64_t life_;
    std::string misdeed_;
    bool dead_ = false;
    bool stalled_ = false;
    bool mute_ = false;
    std::uint64_t progress_ = 1;
};

class Storage final : public Instance {
public:
    using Instance::Instance;
    void take(const core::Action& action) override;
    void shed(Time deadline) override;

private:
    void serve(const core::StoreRequest& request);
    void put(const core::StoreRequest& request);
    void unreachable(const core::StoreRequest& request);
    [[nodiscard]] Time held_back(const core::StoreRequest& request);
    void effect(core::StoreRequest request,
                Time delay,
                bool survives,
                std::shared_ptr<core::StoreAnswer> into);
    void finish(const std::shared_ptr<core::StoreAnswer>& answer, Time delay);

    std::size_t open_ = 0;
};

class Runtime final : public Instance {
public:
    using Instance::Instance;
    void take(const core::Action& action) override;
    void stop() override;

private:
    struct Memory {
        std::string unit;
        std::vector<std::uint64_t> ids;
        bool complete = false;
        core::OpId busy = 0;
        std::optional<EventPayload> parked;  // waits for its call
        bool wants_stop = false;
        bool stopped = false;       // its Stop has begun: nothing may come any more
        std::uint64_t stop_id = 0;  // of what it adds, 0: nothing
    };
    void activate(const core::Activate& ask);
    void fold(Memory& memory, const core::StoredChanges& stored);
    void deliver(const core::Deliver& ask);
    void run(Memory& memory, const EventPayload& event, core::DeliveredIn& answer);
    void resume(const core::Resume& ask);
    void run_stop(Memory& memory, const core::Deliver& ask, core::DeliveredIn& answer);
    void drop(const core::Drop& ask);
    void answer_event(const core::DeliveredIn& answer);
    [[nodiscard]] EventPayload event_of(const Memory& memory, const core::Deliver& ask) const;
    [[nodiscard]] EventPayload alarm_of(const Memory& memory, BytesView event) const;
    bool lie(const core::Deliver& ask, const core::DeliveredIn& truth);
    void checkpoint(const core::Checkpoint& ask);
    core::OpId current() const override;
    void finish(core::OpId op, std::uint64_t activation);

    std::map<std::uint64_t, Memory> memories_;  // by activation
    std::set<core::OpId> open_;
};

class Policy final : public Instance {
public:
    using Instance::Instance;
    void take(const core::Action& action) override;

private:
    void place(const core::Place& ask);
    void step(const core::NextStep& ask);
    // True when the build's misdeed took care of the question.
    bool misbehave(bool test);
    std::uint64_t asked_ = 0;
    std::uint64_t asked_live_ = 0;
};

class Gateway final : public Instance {
public:
    using Instance::Instance;
    void take(const core::Action& action) override;
    void shed(Time deadline) override;
    void sent(std::uint64_t req_id) { open_.insert(req_id); }
    // Its question to another node is answered, one way or another.
    void heard(core::OpId op) { asked_.erase(op); }

private:
    void end_when_done(Time deadline);
    std::set<std::uint64_t> open_;
    std::set<core::OpId> asked_;  // of other nodes
};

[[nodiscard]] std::unique_ptr<Instance> make_instance(World& world, Node& node, core::Spawn spawn);

}  // namespace hf::sim
