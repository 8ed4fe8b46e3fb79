// Asks the placement policy where a unit shall live, one question at a time: the answer depends on the counts that the
// answer before it changed. A policy that is dead, late, lying or absent costs nobody an answer: the same question is
// decided by the built-in rendezvous, which cannot be removed.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "agent/core/env.hpp"
#include "agent/core/events.hpp"
#include "agent/core/supervision.hpp"

namespace hf::core {

// Highest random weight over (subject, node, instance); the candidate whose capacity is used up is left out.
// Answers the candidate's position, or nothing when all are full.
[[nodiscard]] std::optional<std::size_t> place_by_default(const std::string& subject,
                                                          const std::vector<Candidate>& candidates);

class Placer {
public:
    using Done =
        std::function<void(UnitId unit, std::optional<Handle> where, const std::string& why_not)>;
    using Offer = std::function<std::vector<Candidate>()>;

    // offer() gives the candidates of this moment; done() is called exactly once for each ask(), maybe at once.
    Placer(Env& env, Supervision& supervision, Offer offer, Done done)
        : env_(env), supervision_(supervision), offer_(std::move(offer)), done_(std::move(done)) {}

    void ask(UnitId unit, std::string subject, std::string class_name);
    // False: not one of ours.
    bool answered(const PlacedIn& answer);
    void policy_gone(Handle policy);
    void tick();
    [[nodiscard]] Time next_deadline() const;

private:
    struct Question {
        UnitId unit = 0;
        std::string subject;
        std::string class_name;
    };
    struct Open {
        OpId op = 0;
        Handle policy;
        Question question;
        std::vector<Candidate> candidates;
        Time asked = 0;
        bool decided =
            false;  // late: the default answered; kept to recognise the answer or the stall
        bool excused = false;  // the node itself stood still meanwhile: one more limit to answer in
        Time stall_at = 0;
    };

    void next();
    [[nodiscard]] std::string policy_label() const;
    void decide_by_default(const Question& question, const std::vector<Candidate>& candidates);

    Env& env_;
    Supervision& supervision_;
    Offer offer_;
    Done done_;
    std::deque<Question> waiting_;
    std::optional<Open> open_;
    std::uint64_t sequence_ = 0;
    bool busy_ = false;  // inside next()
};

}  // namespace hf::core
