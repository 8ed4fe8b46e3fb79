// Time, the event queue, and the two-way traffic between the core and everything around it.
#include "tests/sim/world.hpp"

#include <algorithm>

#include "agent/records/records.hpp"
#include "tests/sim/failure.hpp"

namespace hf::sim {

namespace {
constexpr std::uint64_t kStepsMax = 5'000'000;  // a run of the largest scenario takes 200 000
constexpr unsigned kTicksMax = 1000;  // ticks at one instant; a core that asks for more never stops
constexpr std::size_t kTailLines = 400;
}  // namespace

World::World(std::uint64_t seed, bool tracing, bool print)
    : dice(seed),
      scenario(draw_scenario(seed)),
      watch(bucket, records::codec(), history, "n1"),
      seed_(seed),
      tracing_(tracing),
      print_(print) {}

void World::trace(const std::string& line) {
    if (!tracing_) return;
    const std::string full = std::to_string(now_ / 1000) + " us  " + line;
    if (print_) std::printf("%s\n", full.c_str());
    tail_.push_back(full);
    if (tail_.size() > kTailLines) tail_.pop_front();
}

void World::after(Time delay, std::function<void()> what) {
    queue_.push({now_ + delay, ++order_, std::move(what)});
}

void World::after(const Instance& instance, Time delay, std::function<void()> what) {
    const auto life = instance.life();
    const auto handle = instance.handle();
    after(delay, [this, life, handle, what = std::move(what)] {
        if (life != life_) return;
        const Instance* found = find(handle);
        if (found != nullptr && found->answering()) what();
    });
}

Instance* World::find(Handle handle) {
    const auto it = instances_.find(handle.generation);
    return it == instances_.end() ? nullptr : it->second.get();
}

void World::run() {
    if (tracing_) trace("seed " + std::to_string(seed_) + " profile " + scenario.profile);
    start_life();
    schedule_clients();
    schedule_chaos();
    run_until(now_ + scenario.span, [] { return false; });
    if (scenario.stop_under_load && core_) {
        stop_node();
        faults_ = false;
        disk_full_ = false;
        run_until(now_ + 10 * kSecond, [] { return false; });  // what was under way lands
    } else {
        quiesce();
        if (!scenario.start_again) return check_states();
    }
    check_states();
    start_life();
    settle();
    final_reads();
    check_core();
    stop_node();
    check_states();
}

void World::run_until(Time limit, const std::function<bool()>& done) {
    while (!done()) {
        Time next = queue_.empty() ? core::kNever : queue_.top().at;
        if (core_) next = std::min(next, std::max(core_->next_deadline(), now_));
        if (next > limit) {
            now_ = std::max(now_, limit);
            return;
        }
        one_event();
    }
}

void World::one_event() {
    if (++steps_ > kStepsMax) broken("the run does not come to an end");
    const Time queued = queue_.empty() ? core::kNever : queue_.top().at;
    const Time tick = core_ ? std::max(core_->next_deadline(), now_) : core::kNever;
    if (tick < queued) {
        ticks_in_a_row_ = tick == now_ ? ticks_in_a_row_ + 1 : 0;
        if (ticks_in_a_row_ > kTicksMax) broken("the core asks for ticks without end");
        now_ = tick;
        return feed(core::Tick{});
    }
    if (queued > now_) ticks_in_a_row_ = 0;
    now_ = queued;
    const auto what = queue_.top().what;
    queue_.pop();
    what();
}

void World::feed(core::Event event) {
    if (!core_) return;
    if (stepping_) broken("the simulator feeds the core from inside a step");
    fingerprint_ = mix64(fingerprint_ ^ event.index() ^ static_cast<std::uint64_t>(now_));
    Handle must_end;
    if (const auto* answer = std::get_if<core::StoreAnswer>(&event)) watch.told(*answer);
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
    core_->step(std::move(event), now_, out);
    stepping_ = false;
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
}

void World::stop_ends(const std::string& unit, const core::DeliveredIn& answer, std::uint64_t id) {
    if (!core_) return;
    for (const auto& [number, known] : core_->units().all())
        if (known->key == unit && known->runtime_op == answer.op)  // else it comes too late
            stopped_[answer.activation] = Stopped{unit, answer.from, id};
}

// Who has heard its Stop leaves memory only when all it wrote is stored, or undone by a store that refuses.
void World::check_left() {
    for (auto it = stopped_.begin(); it != stopped_.end();) {
        const auto& [activation, stop] = *it;
        bool there = false;
        for (const auto& [number, unit] : core_->units().all())
            there = there || (unit->key == stop.unit && unit->activation == activation);
        if (there) {
            ++it;
            continue;
        }
        const bool stored = stop.id == 0 || history.left(stop.unit, stop.id);
        if (!watch.write_failed()) {
            if (watch.commit_open(stop.unit))
                broken(stop.unit + " leaves memory while a write of its last events is open");
            if (!stored)
                broken(stop.unit + " leaves memory, and what its Stop wrote is not stored");
        }
        it = stopped_.erase(it);
    }
}

// Whom the core must end because of this answer; invalid when it is a good one or not the open question's.
Handle World::judge_place(const core::PlacedIn& answer) {
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

bool World::wants_stop(const std::string& unit) const {
    return mix64(fnv1a64(unit) ^ seed_) % 100 < scenario.stop_percent;
}

bool World::undisturbed() const {
    return !watch.write_failed() && scenario.runtime_lies == 0 && scenario.runtime_dies == 0 &&
           scenario.kill_every == 0 && scenario.forgets == 0;
}

// A runtime that leaves while the node serves has a successor that was ready, and is not needed any more.
void World::told_to_stop(const Instance& runtime) const {
    const std::string name = "runtime generation " + std::to_string(runtime.handle().generation);
    const auto* known = core_->supervision().find(runtime.handle());
    if (known == nullptr) return;
    const core::Build& now = core_->supervision().slots()[known->slot].current;
    if (!were_ready_.contains({runtime.seat(), now.identity()}))
        broken(name + " is told to go before its successor is ready");
    if (!known->ending) broken(name + " is told to go while it may have to take over again");
}

void World::store_asked(core::StoreRequest& request) {
    watch.asked(request);
    if (Instance* to = find(request.to)) to->take(request);
}

void World::deliver_asked(const core::Deliver& deliver) {
    if (deliver.kind != core::EventKind::Http) return;
    bool later = false;
    const auto event = unpack_http(deliver.event, later);
    if (!event) broken("the core delivers an event that no client sent");
    history.delivering(
        event->id, deliver.event_incarnation, deliver.event_counter, deliver.attempt);
}

namespace {
template <class... F>
struct Overloaded : F... {
    using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;
}  // namespace

void World::carry_out(core::Action& action) {
    const auto send = [&](Handle to) {
        if (Instance* found = find(to)) found->take(action);
    };
    const auto on = [&](Handle to, const auto& what) {
        if (Instance* found = find(to)) what(*found);
    };
    if (tracing_) trace_action(action);
    if (const auto* stop = std::get_if<core::SendStop>(&action); stop != nullptr && !stopping_) {
        const Instance* found = find(stop->to);
        if (found != nullptr && found->kind() == core::Kind::Runtime) told_to_stop(*found);
    }
    std::visit(
        Overloaded{
            [&](core::ReplyOut& reply) {
                history.answered(life_, reply, now_);
                send(reply.to);
            },
            [&](core::Deliver& deliver) {
                deliver_asked(deliver);
                send(deliver.to);
            },
            [&](core::StoreRequest& request) { store_asked(request); },
            [&](core::Activate& ask) { send(ask.to); },
            [&](core::Resume& ask) { send(ask.to); },
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
                auto made = make_instance(*this, spawn);
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
            [&](core::CommandDone& done) { command_done(done); },
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
            [&](core::ExitNode& exit) {
                if (exit.code != 0 || !stopping_) broken("the node gives up: " + exit.reason);
                exited_ = true;
            }},
        action);
}

}  // namespace hf::sim
