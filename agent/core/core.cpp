#include "agent/core/core.hpp"

#include <algorithm>
#include <utility>

namespace hf::core {

namespace {
constexpr Time kEndStep =
    2 * kSecond;  // a plugin that was told to stop gets this long before it is killed
}  // namespace

Core::Core(Config config, const Codec& codec, BadBuilds bad_builds)
    : env_(std::move(config), codec),
      store_(env_, [this](Handle storage) { supervision_.opened(storage); }),
      supervision_(env_, *this, std::move(bad_builds)),
      lease_(env_, store_, [this](const std::string& why) { lease_lost(why); }),
      peers_(env_, store_, [this] { units_.peers_changed(); }),
      control_(env_, store_, [this] { units_.control_changed(); }),
      units_(env_,
             store_,
             supervision_,
             peers_,
             control_,
             [this](Drain::State state) { lease_.say(drain_state_name(state)); }),
      placer_(
          env_,
          supervision_,
          [this] { return units_.offer(); },
          [this](UnitId unit, std::optional<Handle> where, const std::string& why) {
              units_.placed(unit, where, why);
          }) {
    units_.set_placer(placer_);
}

void Core::step(Event event, Time now, Actions& out) {
    env_.now = std::max(env_.now, now);
    env_.out = &out;
    // Before anything of this step: what hangs on a lease that has run out is not ours any more.
    lease_.tick();
    std::visit([this](auto& e) { handle(e); }, event);
    units_.settle_rooms();
    if (stopping_ != Stopping::No && stopping_ != Stopping::Done) advance_stop();
    env_.out = nullptr;
}

Time Core::next_deadline() const {
    Time soonest = std::min({supervision_.next_deadline(),
                             units_.next_deadline(),
                             store_.next_deadline(),
                             placer_.next_deadline(),
                             lease_.next_deadline(),
                             peers_.next_deadline(),
                             control_.next_deadline(),
                             boot_retry_});
    if (stopping_ != Stopping::No && stopping_ != Stopping::Done)
        soonest = std::min(soonest,
                           stopping_ == Stopping::Shedding || stopping_ == Stopping::Actors
                               ? stop_by_
                               : stop_step_by_);
    return soonest;
}

bool Core::ready() const {
    return not_ready_because().empty();
}

std::string Core::not_ready_because() const {
    if (stopping_ != Stopping::No) return "the node stops";
    if (!store_.target().valid()) return "no storage instance serves";
    if (stage_ != BootStage::Open)
        return boot_trouble_.empty() ? "the store is not known yet" : boot_trouble_;
    if (supervision_.serving(Kind::Runtime).empty()) return "no runtime instance serves";
    if (supervision_.serving(Kind::Gateway).empty()) return "no gateway instance serves";
    return "";
}

void Core::handle(Tick& event) {
    (void)event;
    supervision_.tick();
    placer_.tick();
    store_.tick();
    peers_.tick();
    control_.tick();
    units_.tick();
    if (boot_retry_ <= env_.now) {
        boot_retry_ = kNever;
        boot();
    }
}

void Core::handle(StoreAnswer& event) {
    const Handle from = event.from;
    if (store_.answered(event)) {
        supervision_.closed(from);
    } else {
        ++env_.stats.stale_messages;
    }
    // A store that came back while the node had lost its lease: it is one to begin with only now that it was recognised.
    if (stage_ == BootStage::Waiting && boot_retry_ == kNever) boot();
}

void Core::handle(PlacedIn& event) {
    if (supervision_.test_answered(event) || placer_.answered(event)) return;
    ++env_.stats.stale_messages;
}

void Core::handle(StepIn& event) {
    if (!supervision_.test_answered(event)) ++env_.stats.stale_messages;
}

void Core::handle(Exited& event) {
    supervision_.exited(event);
    if (supervision_.failed(Kind::Runtime)) units_.no_runtime_left();
}

void Core::handle(StartNode& event) {
    (void)event;
    supervision_.start();
}

// Units name their class by its place in the list, so nothing ever leaves it.
void Core::handle(ConfigChanged& event) {
    env_.config.limits = event.limits;
    auto& classes = env_.config.classes;
    for (ClassSpec& known : classes) known.served = false;
    for (ClassSpec& spec : event.classes) {
        const auto at = std::find_if(classes.begin(), classes.end(), [&](const ClassSpec& known) {
            return known.name == spec.name;
        });
        if (at == classes.end())
            classes.push_back(std::move(spec));
        else
            *at = std::move(spec);
    }
    for (const auto& [slot, build] : event.builds) supervision_.configured(slot, build);
    units_.config_changed();
}

void Core::handle(DrainCommand& event) {
    const auto refuse = [this, command = event.command](std::string text) {
        env_.emit(CommandDone{command, false, std::move(text)});
    };
    if (env_.config.lease.none())
        return refuse(
            "this node has its store for itself (lease = \"none\"): nobody is there to take its "
            "actors");
    if (event.node == env_.config.node_id || peers_.all().contains(event.node))
        return control_.ask(event);
    std::string known = env_.config.node_id;
    for (const auto& [id, peer] : peers_.all()) known += ", " + id;
    std::string unknown =
        "there is no node '" + event.node + "' on this store; there is " + std::move(known);
    const std::string record = key::node(event.node);
    if (!parse_node_key(record)) return refuse(std::move(unknown));
    // One that joined a moment ago is in no listing of ours yet.
    store_.get(record, [this, refuse, command = event, unknown](StoreAnswer& answer) {
        if (answer.outcome == Outcome::Applied) return control_.ask(command);
        refuse(answer.outcome == Outcome::NotFound
                   ? unknown
                   : "the store does not say whether there is a node '" + command.node +
                         "': " + answer.reason);
    });
}

void Core::on_serving(Kind kind, Handle handle) {
    if (kind == Kind::Storage) {
        store_.route(supervision_.serving_one(Kind::Storage));
        if (stage_ == BootStage::Waiting) boot();
    }
    if (kind == Kind::Runtime) units_.runtime_serving(handle);
}

void Core::on_retiring(Kind kind, Handle handle) {
    if (kind == Kind::Runtime) units_.runtime_retiring(handle);
}

void Core::on_gone(const Gone& gone) {
    if (gone.kind == Kind::Storage) {
        store_.died(gone.handle);
        store_.route(supervision_.serving_one(Kind::Storage));
    }
    if (gone.kind == Kind::Runtime) units_.runtime_gone(gone);
    if (gone.kind == Kind::Gateway) units_.gateway_gone(gone.handle);
    if (gone.kind == Kind::Placement) placer_.policy_gone(gone.handle);
}

// --- stop: shed the gateways, settle what was accepted, tell the actors, end the rest, storage last ------------------------

void Core::handle(StopNode& event) {
    if (stopping_ != Stopping::No) return;
    stop_reason_ = event.reason;
    stopping_ = Stopping::Shedding;
    stop_by_ = env_.now + env_.config.limits.shed_deadline;
    supervision_.stop_restarts(Kind::Gateway);
    units_.close();
    supervision_.stop_unready(Kind::Gateway);
    for (const Handle gateway : supervision_.serving(Kind::Gateway))
        env_.emit(SendShed{gateway, stop_by_});
}

void Core::advance_stop() {
    const auto gone = [&](Kind kind) { return !supervision_.any_alive(kind); };
    const auto kill_rest = [&](Kind kind) {
        for (const auto& [generation, instance] : supervision_.instances()) {
            if (env_.config.slots[instance.slot].kind == kind)
                env_.emit(Kill{instance.handle, "did not stop in time", false});
        }
    };
    if (stopping_ == Stopping::Shedding) {
        // Accepted events end, each with its answer, while the gateway still reads answers.
        if (!units_.quiet() && env_.now < stop_by_) return;
        stopping_ = Stopping::Actors;
    }
    if (stopping_ == Stopping::Actors) {
        // What is in memory hears of it in the time that is left.
        if (env_.now < stop_by_ && !units_.stop_residents(stop_by_)) return;
        stopping_ = Stopping::Settling;
        stop_step_by_ = std::min(stop_by_, env_.now + kEndStep) + kEndStep;
    }
    if (stopping_ == Stopping::Settling) {
        // The gateway flushes and ends by itself; one that does not is told, then killed.
        if (!gone(Kind::Gateway)) {
            if (env_.now < stop_step_by_) return;
            kill_rest(Kind::Gateway);
        }
        for (const Kind kind : {Kind::Runtime, Kind::Placement, Kind::Drain}) {
            supervision_.stop_restarts(kind);
            supervision_.stop_kind(kind);
        }
        stopping_ = Stopping::Ending;
        stop_step_by_ = env_.now + kEndStep;
    }
    if (stopping_ == Stopping::Ending) {
        const bool all = gone(Kind::Gateway) && gone(Kind::Runtime) && gone(Kind::Placement) &&
                         gone(Kind::Drain);
        if (!all && env_.now < stop_step_by_) return;
        for (const Kind kind : {Kind::Gateway, Kind::Runtime, Kind::Placement, Kind::Drain}) {
            if (!gone(kind)) kill_rest(kind);
        }
        // Nothing runs any more, and what was open is settled or not to be had: others need not wait for the lease's end.
        if (!env_.config.lease.none()) units_.lease_lost("it stops");
        lease_.resign();
        stopping_ = Stopping::Resigning;
        stop_step_by_ = env_.now + kEndStep;
    }
    if (stopping_ == Stopping::Resigning) {
        if (!lease_.resigned() && env_.now < stop_step_by_) return;
        peers_.close();
        control_.close();
        supervision_.stop_restarts(Kind::Storage);
        supervision_.stop_kind(Kind::Storage);
        stopping_ = Stopping::StorageLast;
        stop_step_by_ = env_.now + kEndStep;
    }
    if (stopping_ == Stopping::StorageLast) {
        if (!supervision_.instances().empty()) {
            if (env_.now < stop_step_by_) return;
            kill_rest(Kind::Storage);
            stop_step_by_ = env_.now + kEndStep;
            return;
        }
        stopping_ = Stopping::Done;
        env_.emit(ExitNode{0, stop_reason_});
    }
}

}  // namespace hf::core
