// The storage process between the core and the bucket: it delays, loses answers by dying, and does not know outcomes.
// A write it sent may land after its answer, after its own death, and after the death of the whole node.
#include "tests/sim/instances.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

using core::Outcome;
using core::StoreAnswer;
using core::StoreVerb;

void Storage::take(const core::Action& action) {
    if (!answering()) return;
    if (const auto* request = std::get_if<core::StoreRequest>(&action)) serve(*request);
}

void Storage::serve(const core::StoreRequest& request) {
    ++open_;
    World& w = world_;
    if (request.verb == StoreVerb::Put) return put(request);
    auto answer = std::make_shared<StoreAnswer>();
    answer->from = spawn_.handle;
    answer->op = request.op;
    const Time delay = w.dice.skewed(10'000, w.faults() ? w.scenario.read_delay_max : kMs);
    const bool lost = w.faults() && w.dice.permille(w.scenario.unknown / 2);
    const bool dies = w.faults() && w.dice.permille(w.scenario.storage_dies / 2);
    if (request.verb == StoreVerb::Delete) {
        // A delete may land late as well.
        const bool survives = w.dice.percent(50);
        effect(request, delay, survives, answer);
        if (lost) answer = std::make_shared<StoreAnswer>(*answer);
    } else if (!lost) {
        w.after(*this, delay, [this, request, answer] {
            world_.bucket.serve(request, world_.disk_full(), *answer);
        });
    }
    if (dies) {
        w.after(*this, delay + 1, [this] { crash(); });
        return;
    }
    if (lost) {
        answer->outcome = Outcome::Unknown;
        answer->reason = "timed out";
    }
    finish(answer, delay + w.dice.skewed(1000, kMs));
}

void Storage::effect(core::StoreRequest request,
                     Time delay,
                     bool survives,
                     std::shared_ptr<StoreAnswer> into) {
    World& w = world_;
    const auto life = this->life();
    const auto handle = spawn_.handle;
    w.after(delay, [&w, life, handle, survives, into, request = std::move(request)] {
        const Instance* sender = w.life() == life ? w.find(handle) : nullptr;
        const bool gone = sender == nullptr || sender->dead();
        if (gone && !survives) return;
        const auto land = [&w, request, into] {
            w.bucket.serve(request, w.disk_full(), *into);
            if (w.tracing())
                w.trace("bucket: " + request.key + " outcome " +
                        std::to_string(static_cast<int>(into->outcome)));
        };
        if (gone) return w.after(w.dice.skewed(0, w.scenario.ghost_delay_max), land);
        land();
    });
}

void Storage::put(const core::StoreRequest& request) {
    World& w = world_;
    const Scenario& s = w.scenario;
    auto answer = std::make_shared<StoreAnswer>();
    answer->from = spawn_.handle;
    answer->op = request.op;
    const Time delay = w.dice.skewed(20'000, w.faults() ? s.put_delay_max : 2 * kMs);
    const bool survives = w.dice.percent(50);
    if (w.faults() && w.dice.permille(s.refused)) {
        answer->outcome = Outcome::Refused;
        answer->reason = "no room at the moment";
        return finish(answer, delay);
    }
    if (w.faults() && w.dice.permille(s.storage_dies)) {
        if (w.dice.percent(70)) effect(request, delay, survives, answer);
        w.after(*this, w.dice.between(1, 2 * delay), [this] { crash(); });
        return;
    }
    if (w.faults() && w.dice.permille(s.unknown)) {
        auto unseen = std::make_shared<StoreAnswer>();
        const auto fate = w.dice.below(3);
        if (fate == 1) effect(request, delay, survives, unseen);
        if (fate == 2) effect(request, delay + w.dice.skewed(kMs, s.ghost_delay_max), true, unseen);
        answer->outcome = Outcome::Unknown;
        answer->reason = "the connection broke";
        return finish(answer, delay + w.dice.skewed(1000, 10 * kMs));
    }
    effect(request, delay, survives, answer);
    finish(answer, delay + w.dice.skewed(1000, w.faults() ? s.put_delay_max : kMs));
}

void Storage::finish(const std::shared_ptr<StoreAnswer>& answer, Time delay) {
    World& w = world_;
    w.after(*this, delay, [this, answer] {
        if (open_ != 0) --open_;
        progressed();
        world_.feed(*answer);
    });
    if (!w.faults() || !w.dice.permille(w.scenario.storage_lies)) return;
    StoreAnswer lie = *answer;
    if (w.dice.percent(50)) {
        lie.outcome = Outcome::Applied;
        lie.op += 1'000'000;  // never asked
    }
    w.after(*this, delay + w.dice.skewed(1, 50 * kMs), [this, lie, answer] {
        StoreAnswer again = lie.op == answer->op ? *answer : lie;
        world_.feed(again);
    });
}

void Storage::shed(Time deadline) {
    shedding_ = true;
    if (world_.faults() && world_.dice.percent(10)) return;  // until it is killed
    world_.after(*this, 10 * kMs, [this, deadline] {
        if (open_ == 0 || world_.now() >= deadline) return die("exit 0", false, 0);
        shed(deadline);
    });
}

}  // namespace hf::sim
