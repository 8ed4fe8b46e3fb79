// Two nodes on one bucket, with a network between their gateways. For tests only.
#pragma once

#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/keys.hpp"
#include "agent/core/test_actors.hpp"

namespace hf::core::testing {

[[nodiscard]] Config leased_config(const std::string& node);

// One node with its scripts.
struct Node {
    Node(const std::string& id, const std::shared_ptr<TestBucket>& bucket, Time start = kSecond);

    Rig rig;
    Actors actors;
};

class Pair {
public:
    enum class Network { Good, Down, AnswersLost, Silent };

    Pair();
    ~Pair();
    Pair(const Pair&) = delete;
    Pair& operator=(const Pair&) = delete;
    Rig& rig(const std::string& id) { return nodes.at(id)->rig; }
    Actors& actors(const std::string& id) { return nodes.at(id)->actors; }
    void join(Node& node);
    // The machine is gone: nothing of it is heard again.
    void kill(const std::string& id);

    void run_for(Time span);
    // What is on its way arrives.
    void carry();
    // A request through node `id`; what it was answered when all has come to rest.
    std::uint64_t ask(const std::string& id, const std::string& name);
    [[nodiscard]] const ReplyOut* reply(const std::string& id, std::uint64_t req) {
        return rig(id).reply(req);
    }
    [[nodiscard]] Time now() const { return nodes.begin()->second->rig.now; }
    [[nodiscard]] HoldRecord hold(const std::string& name) const;
    [[nodiscard]] NodeRecord record(const std::string& id) const;

    std::shared_ptr<TestBucket> bucket;
    TableCodec codec;
    std::map<std::string, std::unique_ptr<Node>> nodes;
    std::vector<PeerCall> calls;  // all that were made
    Network network = Network::Good;

private:
    struct Open {
        Node* asker = nullptr;
        PeerCall call;
        Node* target = nullptr;
        std::uint64_t req_id = 0;
    };
    void hand_over(const Open& open) const;
    static void answer(const Open& open, PeerOutcome outcome, ReplyOut reply);

    std::vector<Open> open_;
    std::vector<std::unique_ptr<Node>> dead_;
    std::uint64_t last_req_ = 1'000'000;
};

// How node `id` answered that request; it has.
inline ReplyReason reason(Pair& pair, const std::string& id, std::uint64_t req) {
    REQUIRE(pair.reply(id, req) != nullptr);
    return pair.reply(id, req)->reason;
}

}  // namespace hf::core::testing
