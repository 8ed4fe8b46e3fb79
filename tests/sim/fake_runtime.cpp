// A runtime whose units are lists of ids. It folds what it is given and refuses, loudly, whatever does not fit together:
// a wrong order, a hole or a change made on undone state is seen here first.
#include <utility>

#include "tests/sim/failure.hpp"
#include "tests/sim/instances.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

using core::DeliverStatus;

void Runtime::take(const core::Action& action) {
    if (!answering()) return;
    if (!ready_) broken("a runtime is given work before it is ready");
    if (const auto* activate_ask = std::get_if<core::Activate>(&action)) activate(*activate_ask);
    if (const auto* deliver_ask = std::get_if<core::Deliver>(&action)) deliver(*deliver_ask);
    if (const auto* resume_ask = std::get_if<core::Resume>(&action)) resume(*resume_ask);
    if (const auto* base_ask = std::get_if<core::Checkpoint>(&action)) checkpoint(*base_ask);
    if (const auto* drop_ask = std::get_if<core::Drop>(&action)) drop(*drop_ask);
}

void Runtime::drop(const core::Drop& ask) {
    const auto it = memories_.find(ask.activation);
    if (it != memories_.end()) {
        const Memory& memory = it->second;
        if (memory.complete && memory.wants_stop && !memory.stopped && world_.undisturbed())
            broken(memory.unit + " leaves memory without its Stop");
        memories_.erase(it);
    }
    answer_later(world_.dice.skewed(1000, kMs), core::DroppedIn{spawn_.handle, ask.op});
}

// It is empty, or the node ends: who wanted to hear of it has, unless something was in the way.
void Runtime::stop() {
    if (!world_.faults() && world_.undisturbed()) {
        for (const auto& [activation, memory] : memories_)
            if (memory.complete && memory.wants_stop && !memory.stopped)
                broken("the process of " + memory.unit + " is ended, which was not told");
    }
    Instance::stop();
}

void Runtime::activate(const core::Activate& ask) {
    World& w = world_;
    if (w.faults() && misdeed() == "dies_at_activation")
        return die("killed by signal 11", true, ask.op);
    if (w.faults() && w.dice.permille(w.scenario.runtime_dies / 2)) return crash();
    core::ActivatedIn answer;
    answer.from = spawn_.handle;
    answer.op = ask.op;
    answer.activation = ask.activation;
    if (ask.part == 0) {
        Memory fresh;
        fresh.unit = ask.unit;
        fresh.wants_stop = w.wants_stop(ask.unit);
        if (!memories_.try_emplace(ask.activation, std::move(fresh)).second)
            broken("activation " + std::to_string(ask.activation) + " is used twice");
    }
    const auto it = memories_.find(ask.activation);
    if (it == memories_.end()) {
        answer.error = "a later part of an activation that is not known";
        return answer_later(kMs, answer);
    }
    Memory& memory = it->second;
    if (memory.complete || memory.busy != 0) broken("an activation goes on after its end");
    for (const core::StoredChanges& stored : ask.entries) fold(memory, stored);
    memory.complete = !ask.more;
    memory.busy = ask.op;
    answer.status = core::ActivateStatus::Ok;
    answer.wants_stop = !ask.more && memory.wants_stop;
    if (w.faults() && w.dice.permille(w.scenario.activation_refused)) {
        const bool full = w.dice.percent(50);
        answer.status = full ? core::ActivateStatus::Full : core::ActivateStatus::Failed;
        answer.error = full ? "no slot is free" : "trapped in its start function";
        memories_.erase(it);
    }
    open_.insert(ask.op);
    node_.after(*this, w.dice.skewed(10'000, 2 * kMs), [this, answer] {
        finish(answer.op, answer.activation);
        node_.feed(answer);
    });
}

void Runtime::fold(Memory& memory, const core::StoredChanges& stored) {
    if (stored.base) {
        auto ids = unpack_base(stored.changes);
        if (!ids) broken(memory.unit + " is activated from something that is no base");
        memory.ids = std::move(*ids);
        return;
    }
    const auto change = unpack_change(stored.changes);
    if (!change) broken(memory.unit + " is activated from something that is no change");
    if (change->value != memory.ids.size() + 1)
        broken(memory.unit + " is activated with #" + std::to_string(change->id) + " at value " +
               std::to_string(change->value) + " after value " + std::to_string(memory.ids.size()));
    memory.ids.push_back(change->id);
}

void Runtime::deliver(const core::Deliver& ask) {
    World& w = world_;
    const Scenario& s = w.scenario;
    if (w.faults()) {
        if (w.dice.permille(s.runtime_stalls)) return stall();
        const auto asked = unpack_event(ask.event);
        const bool poison = asked && asked->op == Op::Poison;
        if (poison || w.dice.permille(s.runtime_dies)) {
            open_.insert(ask.op);
            const bool fault = poison || w.dice.percent(60);
            const core::OpId current = fault ? ask.op : 0;
            node_.after(*this, w.dice.skewed(1, 5 * kMs), [this, fault, current] {
                die(fault ? "killed by signal 11" : "killed by signal 9", fault, current);
            });
            return;
        }
        if (w.dice.permille(s.forgets)) memories_.erase(ask.activation);
    }
    core::DeliveredIn answer;
    answer.from = spawn_.handle;
    answer.op = ask.op;
    answer.activation = ask.activation;
    const auto it = memories_.find(ask.activation);
    if (it == memories_.end()) {
        answer.status = DeliverStatus::NotResident;
    } else {
        Memory& memory = it->second;
        if (!memory.complete) broken(memory.unit + " gets an event before it is activated");
        if (memory.busy != 0) broken(memory.unit + " gets a second event while the first runs");
        memory.busy = ask.op;
        if (memory.parked) broken(memory.unit + " gets an event while another waits for its call");
        if (memory.stopped) broken(memory.unit + " gets an event after its Stop");
        if (ask.kind == core::EventKind::Stop) {
            run_stop(memory, ask, answer);
        } else {
            const EventPayload event = event_of(memory, ask);
            run(memory, event, answer);
            if (ask.kind == core::EventKind::Http && answer.status == DeliverStatus::Ok &&
                answers_large(event.id))
                answer.reply_attached = std::make_shared<const LargeBody>(event.id);
        }
    }
    open_.insert(ask.op);
    const Time delay = w.dice.skewed(5000, w.faults() ? s.event_delay_max : kMs);
    if (w.faults() && w.dice.permille(s.runtime_lies) && lie(ask, answer)) return;
    node_.after(*this, delay, [this, answer = std::move(answer)] { answer_event(answer); });
}

void Runtime::answer_event(const core::DeliveredIn& answer) {
    finish(answer.op, answer.activation);
    if (const auto it = memories_.find(answer.activation);
        it != memories_.end() && it->second.stopped && answer.status == DeliverStatus::Ok)
        node_.stop_ends(it->second.unit, answer, it->second.stop_id);
    node_.feed(answer);
}

void Runtime::run_stop(Memory& memory, const core::Deliver& ask, core::DeliveredIn& answer) {
    World& w = world_;
    if (!memory.wants_stop) broken(memory.unit + " gets a Stop that it does not want");
    if (ask.attempt != 1) broken(memory.unit + " gets the Stop of another activation");
    memory.stopped = true;
    if (w.faults() && w.dice.permille(w.scenario.traps)) {
        answer.status = DeliverStatus::Trapped;
        return;
    }
    answer.status = DeliverStatus::Ok;
    if (w.dice.percent(30)) return;
    memory.stop_id = w.history.stopping(memory.unit);
    memory.ids.push_back(memory.stop_id);
    answer.changes = pack(ChangePayload{memory.stop_id, memory.ids.size(), 0});
}

// What the event asks for, whoever it came from.
EventPayload Runtime::event_of(const Memory& memory, const core::Deliver& ask) const {
    if (ask.kind == core::EventKind::Restored) return EventPayload{Op::Read, 0, 0, 0, 0};
    if (ask.kind == core::EventKind::Alarm) return alarm_of(memory, ask.event);
    BytesView bytes = ask.event;
    std::uint32_t flags = 0;
    if (ask.kind == core::EventKind::Call) {
        FlatReader flat(ask.event);
        std::uint32_t word = 0;
        BytesView skipped;
        bool good = flat.u32(flags);
        for (int i = 0; i < 4; ++i) good = good && flat.u32(word);  // the id
        good = good && flat.field(skipped) && flat.field(skipped) && flat.field(bytes);
        if (!good) broken(memory.unit + " gets a call that is not laid out as one");
    }
    bool later = false;
    const auto event = unpack_http(bytes, later);
    if (!event) broken(memory.unit + " gets an event that nobody sent");
    if (ask.kind == core::EventKind::Http && later != world_.history.request(event->id).later)
        broken(memory.unit +
               " is not told, or told wrongly, that a request was accepted for later");
    if (ask.kind == core::EventKind::Http) {
        // However often it runs.
        const auto* body = static_cast<const LargeBody*>(ask.attached.get());
        if ((body != nullptr) != (!later && comes_large(event->id)) ||
            (body != nullptr && body->id != event->id))
            broken(memory.unit + " gets #" + std::to_string(event->id) +
                   " without its large body, or with another's");
    }
    if (ask.kind == core::EventKind::Call && flags == 0) world_.history.call_arrived(event->id);
    return *event;
}

// The alarm that fires must be the one that the last add with an alarm has set, and it fires once.
EventPayload Runtime::alarm_of(const Memory& memory, BytesView event) const {
    const auto due = static_cast<std::int64_t>(detail::get(event, 1));
    for (auto it = memory.ids.rbegin(); it != memory.ids.rend(); ++it) {
        if ((*it & kAlarmTag) != 0)
            broken(memory.unit + " hears of an alarm, and the last one it set has fired");
        if (!world_.history.sets_alarm(*it)) continue;
        if (world_.history.alarm_due(*it) != due)
            broken(memory.unit + " hears of an alarm that #" + std::to_string(*it) + " replaced");
        if (world_.latest_wall_ms() < due)
            broken(memory.unit + " hears of its alarm before it is due");
        return EventPayload{Op::Add, *it | kAlarmTag, 0, 0, 0};
    }
    broken(memory.unit + " hears of an alarm it never set");
}

void Runtime::resume(const core::Resume& ask) {
    World& w = world_;
    if (w.faults() && w.dice.permille(w.scenario.runtime_dies)) return crash();
    core::DeliveredIn answer;
    answer.from = spawn_.handle;
    answer.op = ask.op;
    answer.activation = ask.activation;
    const auto it = memories_.find(ask.activation);
    if (it == memories_.end() || !it->second.parked) {
        answer.status = DeliverStatus::NotResident;
    } else {
        Memory& memory = it->second;
        if (memory.busy != 0)
            broken(memory.unit + " goes on with a call while something else runs");
        EventPayload event = *std::exchange(memory.parked, std::nullopt);
        memory.busy = ask.op;
        if (ask.code == 0) w.history.call_read(event.id, ask.payload);
        event.op = Op::Add;
        run(memory, event, answer);
    }
    open_.insert(ask.op);
    node_.after(*this, w.dice.skewed(5000, 2 * kMs), [this, answer = std::move(answer)] {
        answer_event(answer);
    });
}

void Runtime::run(Memory& memory, const EventPayload& event, core::DeliveredIn& answer) {
    const bool trap = world_.faults() && world_.dice.permille(world_.scenario.traps);
    if (event.op == Op::Fail || event.op == Op::Poison || trap) {
        answer.status = trap ? DeliverStatus::Trapped : DeliverStatus::Failed;
        answer.error = "the handler failed and was rolled back";
        return;
    }
    const auto target = [&event] { return "counter/unit " + std::to_string(event.target); };
    if (event.op == Op::Ask) {
        answer.status = DeliverStatus::Calling;
        answer.call = core::CallWish{
            1, target(), "read", pack(EventPayload{Op::Read, event.id, 0, 0, 0}), 5 * kSecond};
        memory.parked = event;
        world_.history.call_asked(event.id, memory.ids);
        return;
    }
    answer.status = DeliverStatus::Ok;
    answer.reply_status = 200;
    if (event.op == Op::Tell)
        answer.sends.push_back(
            {target(), "add", pack(EventPayload{Op::Add, event.id | kMessageTag, 0, 0, 0})});
    if (event.op == Op::Wake) {
        const std::int64_t due = node_.wall_ms() + static_cast<std::int64_t>(event.after);
        world_.history.set_alarm(event.id, due);
        answer.alarm = core::AlarmWish{due, false};
    }
    if (event.op != Op::Read) {
        memory.ids.push_back(event.id);
        answer.changes = pack(ChangePayload{event.id, memory.ids.size(), event.pad});
    }
    answer.reply_body =
        pack(ReplyPayload{memory.ids.size(), memory.ids.empty() ? 0 : memory.ids.back()});
}

// True when the true answer must not be sent any more.
bool Runtime::lie(const core::Deliver& ask, const core::DeliveredIn& truth) {
    World& w = world_;
    core::DeliveredIn lie = truth;
    lie.status = DeliverStatus::Ok;
    lie.reply_status = 200;
    lie.changes = pack(ChangePayload{999'999, 999'999, 0});
    const Time delay = w.dice.skewed(1, 10 * kMs);
    switch (w.dice.below(6)) {
        case 0:  // for another activation
            lie.activation += static_cast<std::uint64_t>(w.dice.between(1, 3));
            answer_later(delay, lie);
            return true;
        case 1:  // to a request that never was
            lie.op += 1'000'000;
            answer_later(delay, lie);
            return false;
        case 2:  // twice; the second one long after
            answer_later(w.dice.between(200, 2000) * kMs, truth);
            return false;
        case 3:  // with the wrong kind of answer
            answer_later(delay,
                         core::ActivatedIn{
                             spawn_.handle, ask.op, ask.activation, core::ActivateStatus::Ok, ""});
            return true;
        case 4:
            answer_later(delay, core::DroppedIn{spawn_.handle, ask.op});
            return true;
        default:  // more than an entry may hold
            lie.changes.resize(w.scenario.limits.entry_bytes + 1);
            answer_later(delay, lie);
            return true;
    }
}

void Runtime::checkpoint(const core::Checkpoint& ask) {
    World& w = world_;
    if (w.faults() && w.dice.permille(w.scenario.runtime_dies)) return crash();
    core::CheckpointedIn answer;
    answer.from = spawn_.handle;
    answer.op = ask.op;
    answer.activation = ask.activation;
    const auto it = memories_.find(ask.activation);
    answer.ok =
        it != memories_.end() && !(w.faults() && w.dice.permille(w.scenario.checkpoint_refused));
    if (answer.ok) {
        if (it->second.busy != 0) broken(it->second.unit + " is checkpointed during an event");
        if (it->second.stopped) broken(it->second.unit + " is checkpointed after its Stop");
        it->second.busy = ask.op;
        answer.base = pack_base(it->second.ids, w.scenario.base_pad);
    } else {
        answer.error = "not now";
    }
    open_.insert(ask.op);
    node_.after(*this, w.dice.skewed(10'000, 5 * kMs), [this, answer] {
        finish(answer.op, answer.activation);
        node_.feed(answer);
    });
}

void Runtime::finish(core::OpId op, std::uint64_t activation) {
    open_.erase(op);
    progressed();
    if (const auto it = memories_.find(activation); it != memories_.end() && it->second.busy == op)
        it->second.busy = 0;
}

core::OpId Runtime::current() const {
    return open_.empty() ? 0 : *open_.begin();
}

}  // namespace hf::sim
