// A node's time, and the two-way traffic between its core and everything around it.
#include "tests/sim/node.hpp"

#include <algorithm>

#include "agent/core/keys.hpp"
#include "tests/sim/failure.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {
// Two clocks that are turned into each other agree to so many nanoseconds.
constexpr Time kGrain = 1000;
}  // namespace

Node::Node(World& world, Name name) : world_(world), name_(std::move(name)) {
    if (!world.scenario.cluster()) {
        clock_.start(world.now(), world.now(), 0);
        return;
    }
    constexpr std::int64_t kMost = NodeWatch::kDriftPpm;
    const std::int64_t ppm = world.dice.percent(50) ? world.dice.pick(std::vector{-kMost, kMost})
                                                    : world.dice.between(-kMost, kMost);
    clock_.start(world.now(), world.dice.between(0, 1000) * kSecond, ppm);
}

Time Node::now() const {
    return clock_.monotonic(world_.now());
}

Time Node::boot_now() const {
    return clock_.boot(world_.now());
}

Time Node::next_tick() const {
    if (!core_ || exited_ || held_ != Held::No) return core::kNever;
    const Time at = clock_.when(tick_at_);
    return std::max(at, world_.now());
}

void Node::set_wall(Time offset) {
    world_.wall_shows(wall_ms());  // what was due by the old one stays so
    wall_offset_ = offset;
    world_.wall_shows(wall_ms());
    feed(core::ClockIs{wall_offset_});
}

void Node::trace(const std::string& line) const {
    world_.trace(world_.scenario.cluster() ? name_.id + (name_.intruder ? "'  " : "  ") + line
                                           : line);
}

void Node::later(Time delay, std::function<void()> what) {
    const auto life = life_;
    world_.after(delay, [this, life, what = std::move(what)] {
        if (life != life_) return;
        if (!stands_still()) return what();
        frozen_.push_back(what);
    });
}

void Node::after(const Instance& instance, Time delay, std::function<void()> what) {
    after(instance.handle(), delay, std::move(what));
}

void Node::after(Handle instance, Time delay, std::function<void()> what) {
    later(delay, [this, instance, what = std::move(what)] {
        const Instance* found = find(instance);
        if (found != nullptr && found->answering()) what();
    });
}

Instance* Node::find(Handle handle) {
    const auto it = instances_.find(handle.generation);
    return it == instances_.end() ? nullptr : it->second.get();
}

Gateway* Node::ready_gateway() {
    if (stands_still()) return nullptr;
    std::vector<Gateway*> ready;
    for (auto& [generation, instance] : instances_) {
        if (instance->kind() == core::Kind::Gateway && instance->serving())
            ready.push_back(static_cast<Gateway*>(instance.get()));
    }
    return ready.empty() ? nullptr : world_.dice.pick(ready);
}

void Node::hold_up(Held how) {
    if (held_ != Held::No) return;
    held_ = how;
    held_since_ = now();
    if (how == Held::Suspended) clock_.suspend(world_.now());
}

// Whether its loop looks at its timers or at its rings first is chance.
void Node::go_on() {
    const Held was = std::exchange(held_, Held::No);
    if (was == Held::No) return;
    wall_offset_ += clock_.resume(world_.now());
    held_until_ = now();
    if (was == Held::Suspended) {
        step(core::SleptIs{clock_.slept(world_.now())});
        step(core::ClockIs{wall_offset_});
    }
    if (world_.dice.percent(50) && tick_at_ <= now()) step(core::Tick{});
    for (auto& what : std::exchange(frozen_, {})) what();
    for (core::Event& event : std::exchange(backlog_, {})) step(std::move(event));
}

void Node::feed(core::Event event) {
    if (!core_) return;
    if (held_ != Held::No) return backlog_.push_back(std::move(event));
    step(std::move(event));
}

void Node::step(core::Event event) {
    if (!core_ || exited_) return;
    if (stepping_) broken("the simulator feeds the core from inside a step");
    world_.stepped(*this, event.index());
    Handle must_end;
    std::string held;
    if (const auto* answer = std::get_if<core::StoreAnswer>(&event)) {
        held = world_.watch.told(number(), *answer);
        if (world_.node_watch.told(number(), *answer)) world_.watch.new_incarnation(number());
    }
    if (const auto* placed = std::get_if<core::PlacedIn>(&event)) must_end = judge_place(*placed);
    if (const auto* ready = std::get_if<core::ReadyIn>(&event); ready != nullptr && ready->ok) {
        const Instance* from = find(ready->from);
        if (from != nullptr && from->kind() == core::Kind::Runtime)
            were_ready_.emplace(from->seat(), from->build().identity());
    }
    const auto* exited = std::get_if<core::Exited>(&event);
    const std::uint64_t gone = exited == nullptr ? 0 : exited->from.generation;
    if (exited != nullptr)
        std::erase_if(stopped_,
                      [&](const auto& one) { return one.second.runtime == exited->from; });
    core::Actions out;
    stepping_ = true;
    core_->step(std::move(event), now(), out);
    stepping_ = false;
    tick_at_ = core_->next_deadline();
    if (gone != 0) instances_.erase(gone);
    if (must_end.valid()) {
        const bool ended = std::any_of(out.begin(), out.end(), [&](const core::Action& action) {
            const auto* kill = std::get_if<core::Kill>(&action);
            return kill != nullptr && kill->to == must_end;
        });
        if (!ended) broken("a policy that named no candidate is kept");
    }
    for (core::Action& action : out) carry_out(action);
    if (!stopped_.empty()) check_left();
    if (!held.empty()) world_.check_owner(held);
}

void Node::stop_ends(const std::string& unit, const core::DeliveredIn& answer, std::uint64_t id) {
    if (!core_) return;
    for (const auto& [number, known] : core_->units().all())
        if (known->key == unit && known->runtime_op == answer.op)  // else it comes too late
            stopped_[answer.activation] = Stopped{unit, answer.from, id};
}

// Who has heard its Stop leaves memory only when all it wrote is stored, or undone by a store that refuses, or when the
// node has lost its lease.
void Node::check_left() {
    for (auto it = stopped_.begin(); it != stopped_.end();) {
        const auto& [activation, stop] = *it;
        bool there = false;
        for (const auto& [number, unit] : core_->units().all())
            there = there || (unit->key == stop.unit && unit->activation == activation);
        if (there) {
            ++it;
            continue;
        }
        const bool stored = stop.id == 0 || world_.history.left(stop.unit, stop.id);
        if (!world_.watch.write_failed() && world_.leases_last()) {
            if (world_.watch.commit_open(number(), stop.unit))
                broken(stop.unit + " leaves memory while a write of its last events is open");
            if (!stored)
                broken(stop.unit + " leaves memory, and what its Stop wrote is not stored");
        }
        it = stopped_.erase(it);
    }
}

// Whom the core must end because of this answer; invalid when it is a good one or not the open question's.
Handle Node::judge_place(const core::PlacedIn& answer) {
    const auto it = places_.find(answer.op);
    if (it == places_.end() || it->second.to != answer.from) return {};
    const core::Place ask = std::move(it->second);
    places_.erase(it);
    const bool known = std::any_of(
        ask.candidates.begin(), ask.candidates.end(), [&](const core::Candidate& candidate) {
            return candidate.id == answer.choice;
        });
    const bool valid = answer.none ? !answer.reason.empty() : known;
    const auto* instance = core_->supervision().find(answer.from);
    if (valid || instance == nullptr || instance->ending) return {};
    return answer.from;
}

// A runtime that leaves while the node serves has a successor that was ready, and is not needed any more.
void Node::told_to_stop(const Instance& runtime) const {
    const std::string name = "runtime generation " + std::to_string(runtime.handle().generation);
    const auto* known = core_->supervision().find(runtime.handle());
    if (known == nullptr) return;
    const core::Build& now = core_->supervision().slots()[known->slot].current;
    if (!were_ready_.contains({runtime.seat(), now.identity()}))
        broken(name + " is told to go before its successor is ready");
    if (!known->ending) broken(name + " is told to go while it may have to take over again");
}

// Holds and logs are nobody's who has no lease; a hint or a deletion that comes late harms nobody.
void Node::store_asked(core::StoreRequest& request) {
    const bool owners = core::parse_entry_key(request.key) || core::parse_hold_key(request.key);
    if (request.verb == core::StoreVerb::Put && owners)
        world_.node_watch.must_hold_lease(number(), boot_now(), "writes " + request.key);
    world_.watch.asked(number(), request);
    world_.node_watch.asked(number(), request, boot_now());
    if (Instance* to = find(request.to)) to->take(request);
}

void Node::deliver_asked(const core::Deliver& deliver) {
    world_.node_watch.must_hold_lease(number(), boot_now(), "runs an event");
    if (deliver.kind != core::EventKind::Http) return;
    bool later = false;
    const auto event = unpack_http(deliver.event, later);
    if (!event) broken("the core delivers an event that no client sent");
    world_.history.delivering(
        event->id, number(), deliver.event_incarnation, deliver.event_counter, deliver.attempt);
}

void Node::answered(core::ReplyOut& reply) {
    AnswerTime time;
    time.now = now();
    if (held_until_ == time.now) time.held_since = held_since_;
    if (world_.scenario.cluster()) time.grain = kGrain;
    if (world_.network.answered(*this, reply, time)) return;
    world_.history.answered({number(), life_, reply.to.generation}, reply, time);
}

// Code 1: its id is another's. Nothing else ends a node that nobody told to stop.
void Node::exits(const core::ExitNode& exit) {
    const bool refused = exit.code != 0 && exit.reason.find("in use") != std::string::npos &&
                         (name_.intruder || world_.node_watch.displaced(number()));
    if (!refused && (exit.code != 0 || !stopping_)) broken("the node gives up: " + exit.reason);
    if (!refused && !core_->supervision().instances().empty())
        broken("the node exits before its processes");
    exited_ = true;
    if (world_.scenario.cluster()) world_.exited(*this, refused);
}

namespace {
template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;
}  // namespace

void Node::carry_out(core::Action& action) {
    const auto send = [&](Handle to) {
        if (Instance* found = find(to)) found->take(action);
    };
    const auto on = [&](Handle to, const auto& what) {
        if (Instance* found = find(to)) what(*found);
    };
    if (world_.tracing()) trace_action(action);
    if (const auto* stop = std::get_if<core::SendStop>(&action); stop != nullptr && !stopping_) {
        const Instance* found = find(stop->to);
        if (found != nullptr && found->kind() == core::Kind::Runtime) told_to_stop(*found);
    }
    std::visit(
        Overloaded{
            [&](core::ReplyOut& reply) {
                answered(reply);
                send(reply.to);
            },
            [&](core::Deliver& deliver) {
                deliver_asked(deliver);
                send(deliver.to);
            },
            [&](core::StoreRequest& request) { store_asked(request); },
            [&](core::Activate& ask) { send(ask.to); },
            [&](core::Resume& ask) { send(ask.to); },
            [&](core::PeerCall& ask) {
                world_.network.judge(*this, ask);
                send(ask.to);
            },
            [&](core::SocketTaken&) { broken("a message of no client is answered"); },
            [&](core::SocketSend&) { broken("a message goes to no client"); },
            [&](core::CloseSocket&) { broken("a connection is closed that nobody opened"); },
            [&](core::AskRoom&) { broken("a gateway is asked for room that nobody needs"); },
            [&](core::Checkpoint& ask) { send(ask.to); },
            [&](core::Drop& ask) { send(ask.to); },
            [&](core::Place& ask) {
                if (ask.candidates.empty()) broken("a policy is asked to choose among nobody");
                // One question is open at a time: a late one that a policy of before still owes is given up.
                if (ask.subject.find("/self-test/") == std::string::npos)
                    std::erase_if(places_, [](const auto& open) {
                        return open.second.subject.find("/self-test/") == std::string::npos;
                    });
                places_.emplace(ask.op, ask);
                send(ask.to);
            },
            [&](core::NextStep& ask) { send(ask.to); },
            [&](core::Spawn& spawn) {
                auto made = make_instance(world_, *this, spawn);
                Instance& instance = *made;
                if (!instances_.emplace(spawn.handle.generation, std::move(made)).second)
                    broken("a generation is used twice");
                instance.start();
            },
            [&](core::Configure& configure) {
                on(configure.to, [](Instance& found) { found.configure(); });
            },
            [&](core::Kill& kill) { on(kill.to, [](Instance& found) { found.kill(); }); },
            [&](core::SendShed& shed) {
                on(shed.to, [&](Instance& found) { found.shed(shed.deadline); });
            },
            [&](core::SendStop& stop) { on(stop.to, [](Instance& found) { found.stop(); }); },
            [&](core::AskProgress& ask) {
                on(ask.to, [](Instance& found) { found.ask_progress(); });
            },
            [&](core::JournalAppend& ask) { append_to_journal(ask); },
            [&](core::JournalRemove& ask) { remove_from_journal(ask); },
            [&](core::JournalBury& ask) { bury(ask.letter); },
            [&](core::CommandDone& done) { world_.command_done(done); },
            [&](core::CommandProgress&) {},
            [&](core::RememberBadBuilds& bad) { bad_builds_ = std::move(bad.builds); },
            [&](core::Note& note) {
                // The bucket is sound: a load that finds otherwise has read it wrongly.
                for (const char* claim : {"has a hole",
                                          "is damaged",
                                          "out of order",
                                          "foreign key",
                                          "was stored in this incarnation",
                                          "belongs to"}) {
                    if (note.text.find(claim) != std::string::npos)
                        broken("the core finds a sound log unsound: " + note.text);
                }
            },
            [&](core::ExitNode& exit) { exits(exit); }},
        action);
}

}  // namespace hf::sim
