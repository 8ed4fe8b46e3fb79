// What one node's gateway asks of another's, and the links between them: a question may not come through, come late, or come
// through and its answer not; none comes twice, because each may be used once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"
#include "tests/sim/history.hpp"
#include "tests/sim/instances.hpp"

namespace hf::sim {

class Network {
public:
    explicit Network(World& world) : world_(world) {}

    // A core asks for this: may it?
    void judge(const Node& from, const core::PeerCall& call);
    void send(Node& from, Gateway& gateway, const core::PeerCall& call);
    // The answer to a question of another node; false: it is a client's.
    bool answered(Node& at, const core::ReplyOut& reply, const AnswerTime& time);
    // What was open there is heard of no more.
    void gateway_gone(GatewayName gateway);
    void life_gone(std::size_t node, std::uint64_t life);

    // One way; between whom nothing gets through until then.
    void cut(std::size_t from, std::size_t to, Time until) { cuts_[{from, to}] = until; }

    // For the summary.
    [[nodiscard]] std::uint64_t asked() const { return asked_; }
    [[nodiscard]] std::uint64_t unknown() const { return unknown_; }
    [[nodiscard]] std::size_t open() const { return open_.size(); }

private:
    struct Question {
        Node* from = nullptr;
        std::uint64_t life = 0;
        Handle gateway;
        core::PeerCall call;
        std::uint64_t request = 0;  // of a client, that is passed on; 0: none
        bool done = false;
    };
    using Asking = std::shared_ptr<Question>;
    struct Answering {
        Asking question;
        Time deadline = 0;  // by the clock of who answers
    };

    [[nodiscard]] bool cut(const Node& from, const Node& to) const;
    void arrive(const Asking& question, Time left);
    void answer(const Asking& question,
                core::PeerOutcome outcome,
                core::ReplyOut reply,
                Time delay);
    void lost(const Asking& question, core::PeerOutcome outcome, Time delay);
    [[nodiscard]] Time delay();

    World& world_;
    std::map<std::pair<std::size_t, std::size_t>, Time> cuts_;
    using Name = std::pair<GatewayName, std::uint64_t>;  // who answers, and its request
    std::map<Name, Answering> open_;
    std::set<Name>
        cut_off_;  // their gateway died; a core that has not heard of that yet may answer
    std::uint64_t asked_ = 0;
    std::uint64_t unknown_ = 0;
};

}  // namespace hf::sim
