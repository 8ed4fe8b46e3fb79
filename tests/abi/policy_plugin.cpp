// A policy binary as an outside author would write it, with the second filter in force; tests look at what its views hold.
#include <string>

#include "abi/sdk/policy.hpp"

namespace {

using namespace hf::sdk;

// Chooses the candidate whose label "want" equals the class, and explains with what it saw.
class Seer final : public PlacementPolicy {
public:
    hf::Result<void> configure(const Settings& settings) override {
        for (const auto& [key, value] : settings)
            if (key != "mode") return hf::fail(hf::Code::Invalid, "unknown setting " + key);
        return {};
    }
    PlaceOutcome place(const PlaceView& want) override {
        PlaceOutcome out = PlaceOutcome::nobody("nobody wants " + std::string(want.class_name));
        for (const Candidate& candidate : want.candidates) {
            bool fits = false;
            for (const auto& [key, value] : candidate.labels)
                fits = fits || (key == "want" && value == want.class_name);
            if (fits && out.none) {
                out.none = false;
                out.choice = candidate.id;
                out.reason = std::string(want.subject) + " on " + std::string(candidate.node);
            }
            if (!fits && want.explain)
                out.rejections.push_back(
                    {candidate.id, "label: seed " + std::to_string(want.seed)});
        }
        return out;
    }
};

class AllAtOnce final : public DrainPolicy {
public:
    DrainStep next(const DrainView& view) override {
        DrainStep out;
        for (const Resident& resident : view.residents)
            if (!resident.busy) out.hand_over.push_back(resident.id);
        out.wait_ms = view.peers;
        out.give_up = view.peers == 0;
        if (out.give_up) out.reason = "no eligible peer";
        return out;
    }
};

}  // namespace

int main(int argc, char** argv) {
    const PolicyEntry entries[] = {
        {"seer", []() -> PlacementPolicy* { return new Seer(); }, nullptr},
        {"blind", []() -> PlacementPolicy* { return new Seer(); }, nullptr},
        {"all-at-once", nullptr, []() -> DrainPolicy* { return new AllAtOnce(); }},
    };
    return run_policies(entries, "test-policies", "3.1", argc, argv);
}
