#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "abi/base/hash.hpp"
#include "plugins/scheduler/eligible.hpp"
#include "plugins/scheduler/least_loaded.hpp"
#include "plugins/scheduler/paced.hpp"
#include "plugins/scheduler/pinned.hpp"
#include "plugins/scheduler/rendezvous.hpp"
#include "plugins/scheduler/two_choices.hpp"

using hf::sdk::Candidate;
using hf::sdk::PlaceOutcome;
using hf::sdk::PlaceView;
using namespace hf::scheduler;

namespace {

constexpr int kSubjects = 10'000;

std::vector<Candidate> one_node(std::uint32_t instances) {
    std::vector<Candidate> out(instances);
    for (std::uint32_t i = 0; i < instances; ++i) {
        out[i].id = 100 + i;
        out[i].node = "node-a";
        out[i].instance = i;
        out[i].generation = 7 + i;
        out[i].local = true;
    }
    return out;
}

std::string subject(int n) {
    return "actor/default/counter/u" + std::to_string(n);
}

PlaceOutcome ask(hf::sdk::PlacementPolicy& policy,
                 const std::string& unit,
                 const std::vector<Candidate>& candidates,
                 std::uint64_t seed = 1,
                 bool explain = false) {
    PlaceView view;
    view.subject = unit;
    view.class_name = "counter";
    view.seed = seed;
    view.explain = explain;
    view.candidates = candidates;
    return policy.place(view);
}

std::map<std::uint32_t, int> spread(hf::sdk::PlacementPolicy& policy,
                                    const std::vector<Candidate>& candidates) {
    std::map<std::uint32_t, int> counts;
    for (int n = 0; n < kSubjects; ++n) {
        const PlaceOutcome out =
            ask(policy, subject(n), candidates, hf::mix64(static_cast<std::uint64_t>(n)));
        REQUIRE_FALSE(out.none);
        ++counts[out.choice];
    }
    return counts;
}

template <class T>
void full_and_weightless_are_rejected_with_a_reason() {
    T policy;
    auto candidates = one_node(4);
    candidates[0].capacity = 10;
    candidates[0].resident = 10;
    candidates[1].capacity = 10;
    candidates[1].resident = 4'000'000'000U;
    candidates[2].weight = 0;
    candidates[3].capacity = 11;
    candidates[3].resident = 10;
    for (std::uint64_t seed = 0; seed < 200; ++seed)
        REQUIRE(ask(policy, subject(static_cast<int>(seed)), candidates, seed).choice == 103);

    CHECK(ask(policy, "u", candidates).rejections.empty());
    const auto told = ask(policy, "u", candidates, 1, true);
    REQUIRE(told.rejections.size() == 3);
    CHECK(told.rejections[0].candidate == 100);
    CHECK(told.rejections[0].reason == "full: 10 of 10 units");
    CHECK(told.rejections[2].reason == "weight 0: takes no new units");

    candidates.pop_back();
    const auto nobody = ask(policy, "u", candidates, 1, true);
    CHECK(nobody.none);
    CHECK(nobody.reason == "none of 3 candidates fits: 2 full, 1 of weight 0");
    CHECK(nobody.rejections.size() == 3);
    CHECK(ask(policy, "u", {}).reason == "no candidates were offered");
}

template <class T>
void same_view_and_seed_give_the_same_answer_from_a_fresh_process() {
    auto candidates = one_node(16);
    for (std::uint32_t i = 0; i < 16; ++i) candidates[i].resident = (i * 7) % 5;
    T old_one;
    for (int n = 0; n < 500; ++n) {
        T fresh;
        const auto seed = hf::mix64(static_cast<std::uint64_t>(n) * 31);
        REQUIRE(ask(old_one, subject(n), candidates, seed).choice ==
                ask(fresh, subject(n), candidates, seed).choice);
    }
}

}  // namespace

TEST_CASE("full places and places of weight 0 are never chosen") {
    full_and_weightless_are_rejected_with_a_reason<Rendezvous>();
    full_and_weightless_are_rejected_with_a_reason<TwoChoices>();
    full_and_weightless_are_rejected_with_a_reason<LeastLoaded>();
}

TEST_CASE("the same view and seed give the same answer") {
    same_view_and_seed_give_the_same_answer_from_a_fresh_process<Rendezvous>();
    same_view_and_seed_give_the_same_answer_from_a_fresh_process<TwoChoices>();
    same_view_and_seed_give_the_same_answer_from_a_fresh_process<LeastLoaded>();
}

TEST_CASE("policies without settings refuse a key by name") {
    Rendezvous rendezvous;
    CHECK(rendezvous.configure({}).ok());
    const auto refused = rendezvous.configure({{"instnace", "1"}});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().message.find("instnace") != std::string::npos);
    TwoChoices two;
    CHECK_FALSE(two.configure({{"a", "b"}}).ok());
    LeastLoaded least;
    CHECK_FALSE(least.configure({{"a", "b"}}).ok());
}

TEST_CASE("affinity is fixed for ever: a changed hash would move every unit at an upgrade") {
    CHECK(affinity("actor/default/counter/alice", "node-a", 0) == 12565781513699601691ULL);
    CHECK(affinity("actor/default/counter/alice", "node-a", 1) !=
          affinity("actor/default/counter/alice", "node-a", 0));
}

TEST_CASE("rendezvous spreads evenly and honours weights") {
    Rendezvous policy;
    auto candidates = one_node(8);
    // 1250 expected each, standard deviation 33: +-130 is four of them.
    for (const auto& [id, count] : spread(policy, candidates)) CHECK(std::abs(count - 1250) < 130);

    candidates = one_node(3);
    candidates[1].weight = 2;
    candidates[2].weight = 5;
    auto counts = spread(policy, candidates);
    CHECK(std::abs(counts[100] - 1250) < 130);
    CHECK(std::abs(counts[101] - 2500) < 180);
    CHECK(std::abs(counts[102] - 6250) < 200);
}

TEST_CASE("rendezvous spreads over instances of several nodes with similar names") {
    Rendezvous policy;
    std::vector<Candidate> candidates;
    const std::array<std::string, 4> nodes{"n1", "n2", "n3", "n4"};
    for (std::uint32_t i = 0; i < 8; ++i) {
        Candidate candidate;
        candidate.id = i;
        candidate.node = nodes[i / 2];
        candidate.instance = i % 2;
        candidates.push_back(candidate);
    }
    const auto counts = spread(policy, candidates);
    REQUIRE(counts.size() == 8);
    for (const auto& [id, count] : counts) CHECK(std::abs(count - 1250) < 130);
}

TEST_CASE("rendezvous moves only the subjects of the place that went away") {
    Rendezvous policy;
    const auto before = one_node(8);
    auto after = before;
    after.erase(after.begin() + 3);
    int moved = 0;
    for (int n = 0; n < kSubjects; ++n) {
        const auto old_choice = ask(policy, subject(n), before).choice;
        const auto new_choice = ask(policy, subject(n), after).choice;
        if (old_choice != 103) REQUIRE(new_choice == old_choice);
        moved += old_choice == 103 ? 1 : 0;
    }
    CHECK(std::abs(moved - 1250) < 130);
}

TEST_CASE("rendezvous looks neither at the order nor at ids, generations and load") {
    Rendezvous policy;
    const auto candidates = one_node(8);
    auto changed = candidates;
    std::reverse(changed.begin(), changed.end());
    for (auto& candidate : changed) {
        candidate.id += 1000;
        candidate.generation += 1;
        candidate.resident = candidate.instance * 100;
    }
    for (int n = 0; n < 1000; ++n)
        REQUIRE(ask(policy, subject(n), changed).choice ==
                ask(policy, subject(n), candidates).choice + 1000);
}

TEST_CASE("least-loaded takes the fewest units for the weight") {
    LeastLoaded policy;
    auto candidates = one_node(3);
    candidates[0].resident = 5;
    candidates[1].resident = 4;
    candidates[2].resident = 9;
    CHECK(ask(policy, "u", candidates).choice == 101);
    candidates[2].weight = 3;
    CHECK(ask(policy, "u", candidates).choice == 102);
    candidates[1].inflight = 50;  // events do not count here
    candidates[2].weight = 1;
    CHECK(ask(policy, "u", candidates).choice == 101);
}

TEST_CASE("least-loaded spreads ties instead of filling the first place") {
    LeastLoaded policy;
    auto candidates = one_node(4);
    candidates[0].resident = 1;
    candidates[1].resident = candidates[2].resident = 0;
    candidates[3].resident = 0;
    candidates[3].weight = 4;
    auto counts = spread(policy, candidates);
    CHECK(counts.count(100) == 0);
    CHECK(std::abs(counts[101] - 1667) < 160);
    CHECK(std::abs(counts[103] - 6667) < 200);

    // Filling up one by one stays level.
    candidates = one_node(5);
    for (int n = 0; n < 1000; ++n)
        ++candidates[ask(policy, subject(n), candidates).choice - 100].resident;
    for (const auto& candidate : candidates) CHECK(candidate.resident == 200);
}

TEST_CASE("two-choices draws every pair and prefers the emptier place") {
    TwoChoices policy;
    auto candidates = one_node(4);
    for (std::uint32_t i = 0; i < 4; ++i) candidates[i].resident = i;
    // With distinct draws the k-th emptiest of n wins (n-k) of n(n-1)/2 pairs: 3/6, 2/6, 1/6 and never.
    auto counts = spread(policy, candidates);
    CHECK(std::abs(counts[100] - 5000) < 200);
    CHECK(std::abs(counts[101] - 3333) < 190);
    CHECK(std::abs(counts[102] - 1667) < 160);
    CHECK(counts.count(103) == 0);
}

TEST_CASE("two-choices keeps the fullest place near the mean when filling up") {
    TwoChoices policy;
    auto candidates = one_node(50);
    for (int n = 0; n < kSubjects; ++n) {
        const auto out =
            ask(policy, "same-subject", candidates, hf::mix64(static_cast<std::uint64_t>(n)));
        ++candidates[out.choice - 100].resident;
    }
    // The mean is 200; one choice alone would reach about 200 + 3 * 14.
    for (const auto& candidate : candidates) CHECK(candidate.resident <= 208);
}

TEST_CASE("two-choices compares load relative to weight and capacity, events included") {
    TwoChoices policy;
    auto candidates = one_node(2);
    candidates[0].resident = 10;
    candidates[1].resident = 4;
    candidates[1].inflight = 7;
    CHECK(ask(policy, "u", candidates).choice == 100);
    candidates[1].weight = 2;
    CHECK(ask(policy, "u", candidates).choice == 101);
    candidates[0].capacity = 1000;
    candidates[1].capacity = 20;
    CHECK(ask(policy, "u", candidates).choice == 100);
    candidates[1].capacity = 0;  // only one has a capacity: weights decide
    CHECK(ask(policy, "u", candidates).choice == 101);
}

TEST_CASE("two-choices spreads ties and handles 64 places") {
    TwoChoices policy;
    const auto counts = spread(policy, one_node(64));
    CHECK(counts.size() == 64);
    for (const auto& [id, count] : counts) CHECK(std::abs(count - 156) < 63);
}

TEST_CASE("pinned takes instance 0 unless told otherwise") {
    Pinned policy;
    CHECK(ask(policy, "u", one_node(4)).choice == 100);
    REQUIRE(policy.configure({{"instance", "2"}}).ok());
    CHECK(ask(policy, "u", one_node(4)).choice == 102);
    const auto told = ask(policy, "u", one_node(4), 1, true);
    REQUIRE(told.rejections.size() == 3);
    CHECK(told.rejections[0].reason == "pinned elsewhere");
}

TEST_CASE("pinned never falls back to another place") {
    Pinned policy;
    REQUIRE(policy.configure({{"instance", "4"}, {"node", "node-a"}}).ok());
    auto out = ask(policy, "u", one_node(4), 1, true);
    CHECK(out.none);
    CHECK(out.reason == "pinned to instance 4 of node node-a, which is not offered");
    CHECK(out.rejections.size() == 4);
    auto candidates = one_node(5);
    candidates[4].capacity = candidates[4].resident = 3;
    out = ask(policy, "u", candidates);
    CHECK(out.none);
    CHECK(out.reason == "pinned to instance 4 of node node-a, which takes no more units");
}

TEST_CASE("pinned to a node uses all its instances; without a node this node comes first") {
    Pinned policy;
    auto candidates = one_node(4);
    for (auto& candidate : candidates) candidate.local = candidate.id == 102;
    candidates[2].node = candidates[3].node = "node-b";
    candidates[2].instance = 0;
    CHECK(ask(policy, "u", candidates).choice == 102);
    REQUIRE(policy.configure({{"node", "node-a"}}).ok());
    const auto counts = spread(policy, candidates);
    CHECK(counts.size() == 2);
    CHECK(counts.count(100) == 1);
    CHECK(counts.count(101) == 1);
}

TEST_CASE("pinned refuses settings it does not understand") {
    Pinned policy;
    for (const std::string bad : {"", "-1", "1.5", "1 ", "0x1", "4294967296", "one"})
        CHECK_FALSE(policy.configure({{"instance", bad}}).ok());
    CHECK_FALSE(policy.configure({{"node", ""}}).ok());
    CHECK_FALSE(policy.configure({{"instnace", "1"}}).ok());
    CHECK(policy.configure({{"instance", "4294967295"}}).ok());
}

namespace {

std::vector<hf::sdk::Resident> window(std::uint32_t count) {
    std::vector<hf::sdk::Resident> out(count);
    for (std::uint32_t i = 0; i < count; ++i) out[i].id = i;
    return out;
}

hf::sdk::DrainView drain_view(const std::vector<hf::sdk::Resident>& residents) {
    hf::sdk::DrainView view;
    view.residents = residents;
    view.remaining = static_cast<std::uint32_t>(residents.size());
    view.in_flight_max = 1000;
    view.peers = 1;
    return view;
}

}  // namespace

TEST_CASE("paced hands over in the order of the window, never beyond the bound") {
    Paced policy;
    const auto residents = window(100);
    auto view = drain_view(residents);
    auto step = policy.next(view);
    REQUIRE(step.hand_over.size() == 16);
    for (std::uint32_t i = 0; i < 16; ++i) CHECK(step.hand_over[i] == i);
    view.in_flight = 13;
    CHECK(policy.next(view).hand_over.size() == 3);
    view.in_flight = 16;
    step = policy.next(view);
    CHECK(step.hand_over.empty());
    CHECK(step.wait_ms == 50);
    view.in_flight = 4'000'000'000U;
    CHECK(policy.next(view).hand_over.empty());
    view.in_flight = 0;
    view.in_flight_max = 5;
    CHECK(policy.next(view).hand_over.size() == 5);
    REQUIRE(policy.configure({{"in_flight_max", "64"}}).ok());
    view.in_flight_max = 0;
    CHECK(policy.next(view).hand_over.size() == 64);
}

TEST_CASE("a unit that could not leave does not hold up the others") {
    Paced policy;
    REQUIRE(policy.configure({{"in_flight_max", "3"}}).ok());
    auto residents = window(5);
    residents[0].attempts = 9;
    residents[0].busy = true;
    residents[2].attempts = 1;
    const auto step = policy.next(drain_view(residents));
    CHECK(step.hand_over == std::vector<std::uint32_t>{1, 3, 4});
    REQUIRE(policy.configure({{"in_flight_max", "16"}}).ok());
    CHECK(policy.next(drain_view(residents)).hand_over ==
          std::vector<std::uint32_t>{1, 3, 4, 0, 2});
}

TEST_CASE("paced waits without a peer and never gives up") {
    Paced policy;
    const auto residents = window(5);
    auto view = drain_view(residents);
    view.peers = 0;
    view.elapsed_ms = 1'000'000'000;
    view.deadline_ms = 1;
    const auto step = policy.next(view);
    CHECK(step.hand_over.empty());
    CHECK_FALSE(step.give_up);
    CHECK(step.wait_ms == 50);
    CHECK(step.reason == "no eligible peer to hand over to");
    CHECK_FALSE(policy.next(drain_view({})).give_up);
}

TEST_CASE("paced refuses a bound outside its range") {
    Paced policy;
    for (const std::string bad : {"0", "1025", "many", ""})
        CHECK_FALSE(policy.configure({{"in_flight_max", bad}}).ok());
    CHECK_FALSE(policy.configure({{"inflight_max", "3"}}).ok());
}
