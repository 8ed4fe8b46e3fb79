// A policy is a function: its test needs no node, no link and no other process.
#include <array>
#include <cstdio>

#include "least_busy.hpp"

namespace {

int failures = 0;

void check(bool ok, const char* what) {
    if (ok) return;
    std::fprintf(stderr, "failed: %s\n", what);
    ++failures;
}

}  // namespace

int main() {
    std::array<hf::sdk::Candidate, 3> places{};
    for (std::uint32_t i = 0; i < places.size(); ++i) places[i].id = i + 10;
    hf::sdk::PlaceView want;
    want.subject = "actor/default/counter/alice";
    want.candidates = places;
    LeastBusy policy;

    places[0].inflight = 4;
    places[1].inflight = 2;
    places[2].inflight = 3;
    check(policy.place(want).choice == 11, "the shortest queue wins");
    places[2].weight = 2;
    check(policy.place(want).choice == 12, "a queue counts for the place's weight");
    places[2].capacity = places[2].resident = 5;
    want.explain = true;
    const auto out = policy.place(want);
    check(out.choice == 11 && out.rejections.size() == 1 && out.rejections[0].candidate == 12,
          "a full place is passed over");

    for (std::uint32_t i = 0; i < places.size(); ++i) {
        places[i] = {};
        places[i].id = i + 10;
    }
    std::array<int, 3> counts{};
    for (want.seed = 0; want.seed < 3000; ++want.seed) ++counts[policy.place(want).choice - 10];
    for (const int count : counts) check(count > 850 && count < 1150, "ties are spread");

    places[0].inflight = 9;
    check(policy.configure({{"slack", "9"}}).ok(), "slack is a setting");
    places[1].resident = places[2].resident = 1;
    check(policy.place(want).choice == 10, "within the slack fewer units win");
    check(!policy.configure({{"slakc", "9"}}).ok(), "a misspelt setting is refused");

    for (auto& place : places) place.capacity = place.resident = 1;
    check(policy.place(want).none, "nobody is an answer too");
    return failures == 0 ? 0 : 1;
}
