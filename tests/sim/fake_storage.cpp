// The storage process between the core and the bucket: it delays, loses answers by dying, and does not know outcomes.
// A write it sent may land after its answer, after its own death, and after the death of the whole node.
#include "tests/sim/instances.hpp"
#include "tests/sim/node.hpp"
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
    if (node_.bucket_cut_until() > w.now()) return unreachable(request);
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
        node_.after(*this, delay, [this, request, answer] {
            world_.bucket.serve(request, node_.number(), world_.disk_full(), *answer);
        });
    }
    if (dies) {
        node_.after(*this, delay + 1, [this] { crash(); });
        return;
    }
    if (lost) {
        answer->outcome = Outcome::Unknown;
        answer->reason = "timed out";
    }
    finish(answer, delay + w.dice.skewed(1000, kMs));
}

// The way to the bucket is cut: what was sent is lost, or its answer is; or it waits in some queue and comes through when
// all is over. The process may know no more than that, or say nothing for as long as it lasts.
void Storage::unreachable(const core::StoreRequest& request) {
    World& w = world_;
    const Time over = node_.bucket_cut_until() - w.now() + w.dice.skewed(kMs, 200 * kMs);
    auto answer = std::make_shared<StoreAnswer>();
    answer->from = spawn_.handle;
    answer->op = request.op;
    const auto fate = w.dice.below(4);
    if (fate == 0) {
        effect(request, over, true, answer);
        return finish(answer, over + w.dice.skewed(1000, kMs));
    }
    if (fate == 1)
        effect(request, w.dice.skewed(20'000, kMs), true, std::make_shared<StoreAnswer>(*answer));
    answer->outcome = Outcome::Unknown;
    answer->reason = "the store cannot be reached";
    finish(answer, fate == 2 ? over : w.dice.between(20, 2000) * kMs);
}

// What a slow way adds: for a renewal enough to come when others have given the node up.
Time Storage::held_back(const core::StoreRequest& request) {
    World& w = world_;
    if (node_.bucket_slow_until() <= w.now()) return 0;
    const bool lease = request.key.starts_with("nodes/");
    if (!w.dice.percent(lease ? 70 : 20)) return 0;
    return w.dice.between(0, 2 * (w.scenario.lease.ttl + w.scenario.lease.grace));
}

void Storage::effect(core::StoreRequest request,
                     Time delay,
                     bool survives,
                     std::shared_ptr<StoreAnswer> into) {
    World& w = world_;
    Node& node = node_;
    const auto life = this->life();
    const auto handle = spawn_.handle;
    w.after(delay, [&w, &node, life, handle, survives, into, request = std::move(request)] {
        const Instance* sender = node.life() == life ? node.find(handle) : nullptr;
        const bool gone = sender == nullptr || sender->dead();
        if (gone && !survives) return;
        const auto land = [&w, &node, request, into] {
            w.bucket.serve(request, node.number(), w.disk_full(), *into);
            if (w.tracing())
                node.trace("bucket: " + request.key + " outcome " +
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
        node_.after(*this, w.dice.between(1, 2 * delay), [this] { crash(); });
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
    // The write itself comes late, or only its answer does.
    const Time held = held_back(request);
    const bool all = held != 0 && w.dice.percent(50);
    effect(request, delay + (all ? held : 0), survives, answer);
    finish(answer, delay + held + w.dice.skewed(1000, w.faults() ? s.put_delay_max : kMs));
}

void Storage::finish(const std::shared_ptr<StoreAnswer>& answer, Time delay) {
    World& w = world_;
    node_.after(*this, delay, [this, answer] {
        if (open_ != 0) --open_;
        progressed();
        node_.feed(*answer);
    });
    if (!w.faults() || !w.dice.permille(w.scenario.storage_lies)) return;
    StoreAnswer lie = *answer;
    if (w.dice.percent(50)) {
        lie.outcome = Outcome::Applied;
        lie.op += 1'000'000;  // never asked
    }
    node_.after(*this, delay + w.dice.skewed(1, 50 * kMs), [this, lie, answer] {
        StoreAnswer again = lie.op == answer->op ? *answer : lie;
        node_.feed(again);
    });
}

void Storage::shed(Time deadline) {
    shedding_ = true;
    if (world_.faults() && world_.dice.percent(10)) return;  // until it is killed
    node_.after(*this, 10 * kMs, [this, deadline] {
        if (open_ == 0 || node_.now() >= deadline) return die("exit 0", false, 0);
        shed(deadline);
    });
}

}  // namespace hf::sim
