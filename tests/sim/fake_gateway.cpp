// The gateway: carries requests in and answers out, asks other nodes', finishes what it has when it is told to shed.
#include "tests/sim/instances.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

void Gateway::take(const core::Action& action) {
    if (dead()) return;
    if (const auto* call = std::get_if<core::PeerCall>(&action)) {
        if (!answering()) return;
        asked_.insert(call->op);
        return world_.network.send(node_, *this, *call);
    }
    const auto* reply = std::get_if<core::ReplyOut>(&action);
    if (reply == nullptr) return;
    open_.erase(reply->req_id);
    if (reply->attached == nullptr) return;
    node_.after(*this, kMs, [this, req_id = reply->req_id] {
        node_.feed(core::BodyReleasedIn{handle(), req_id});
    });
}

void Gateway::shed(Time deadline) {
    shedding_ = true;
    if (world_.faults() && world_.dice.percent(10)) return;  // until it is killed
    end_when_done(deadline);
}

void Gateway::end_when_done(Time deadline) {
    node_.after(*this, 10 * kMs, [this, deadline] {
        if ((open_.empty() && asked_.empty()) || node_.now() >= deadline)
            return die("exit 0", false, 0);
        end_when_done(deadline);
    });
}

}  // namespace hf::sim
