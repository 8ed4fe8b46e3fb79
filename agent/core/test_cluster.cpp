#include "agent/core/test_cluster.hpp"

#include <algorithm>

namespace hf::core::testing {

Config leased_config(const std::string& node) {
    Config config = small_config();
    config.node_id = node;
    config.instance_id = "instance-of-" + node;
    config.http_address = node + ".example:80";
    config.lease = {3 * kSecond, 1 * kSecond, 1 * kSecond, 500 * kMs};
    return config;
}

Node::Node(const std::string& id, const std::shared_ptr<TestBucket>& bucket, Time start)
    : rig(leased_config(id), {}, {}, {"stream-of-" + id, 1, {}}, bucket, start), actors(rig) {}

Pair::Pair() : bucket(std::make_shared<TestBucket>()) {
    nodes.emplace("n1", std::make_unique<Node>("n1", bucket));
    nodes.emplace("n2", std::make_unique<Node>("n2", bucket));
    for (auto& [id, node] : nodes) join(*node);
    run_for(kSecond);  // they see each other
}
Pair::~Pair() = default;

void Pair::join(Node& node) {
    node.actors.others = [this, &node](const Action& action) {
        const auto* call = std::get_if<PeerCall>(&action);
        if (call == nullptr) return false;
        calls.push_back(*call);
        open_.push_back({&node, *call, nullptr, 0});
        return true;
    };
}

void Pair::kill(const std::string& id) {
    std::erase_if(open_, [&](const Open& open) { return open.asker == nodes.at(id).get(); });
    dead_.push_back(std::move(nodes.at(id)));
    nodes.erase(id);
}

void Pair::run_for(Time span) {
    const Time until = now() + span;
    while (now() < until) {
        carry();
        Time next = until;
        for (auto& [id, node] : nodes) next = std::min(next, node->rig.core.next_deadline());
        next = std::max(next, now());
        for (auto& [id, node] : nodes) node->rig.run_to(next);
        carry();
        if (next == until) return;
    }
}

void Pair::carry() {
    bool moved = network != Network::Silent;
    while (moved) {
        moved = false;
        for (std::size_t i = 0; i < open_.size(); ++i) {
            Open open = open_[i];
            if (open.target == nullptr) {
                const auto target = nodes.find(open.call.target);
                if (network == Network::Down || target == nodes.end()) {
                    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
                    answer(open, PeerOutcome::NotSent, {});
                    moved = true;
                    break;
                }
                open.target = target->second.get();
                open.req_id = ++last_req_;
                open_[i] = open;
                hand_over(open);
                moved = true;
                break;
            }
            const ReplyOut* reply = open.target->rig.reply(open.req_id);
            if (reply == nullptr) continue;
            open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
            const bool lost = network == Network::AnswersLost;
            answer(open, lost ? PeerOutcome::Unknown : PeerOutcome::Answered, *reply);
            moved = true;
            break;
        }
    }
}

std::uint64_t Pair::ask(const std::string& id, const std::string& name) {
    const auto req = rig(id).ask(name, now() + 10 * kSecond);
    carry();
    return req;
}

HoldRecord Pair::hold(const std::string& name) const {
    const auto& object = bucket->objects.at(key::hold("default", "actor/default/counter/" + name));
    return *codec.decode_hold(object.body);
}

NodeRecord Pair::record(const std::string& id) const {
    return *codec.decode_node(bucket->objects.at(key::node(id)).body);
}

void Pair::hand_over(const Open& open) const {
    RequestIn request;
    request.from = open.target->rig.serving(Kind::Gateway);
    request.req_id = open.req_id;
    request.class_name = open.call.class_name;
    request.name = open.call.name;
    request.event = open.call.event;
    request.deadline = open.call.deadline;
    request.origin = open.call.origin;
    open.target->rig.feed(std::move(request));
}

void Pair::answer(const Open& open, PeerOutcome outcome, ReplyOut reply) {
    open.asker->rig.feed(PeerRepliedIn{open.call.to, open.call.op, outcome, std::move(reply)});
}

}  // namespace hf::core::testing
