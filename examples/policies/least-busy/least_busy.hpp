// A placement policy as an outside author writes it: installed headers only. It looks at events instead of units: the place
// with the shortest queue for its weight wins, and of equal ones the one with fewer units.
//   slack = N   queues that differ by no more than N count as equal (0 when not given)
#pragma once

#include <cstdint>
#include <string>

#include "abi/base/hash.hpp"
#include "abi/sdk/policy.hpp"

class LeastBusy final : public hf::sdk::PlacementPolicy {
public:
    hf::Result<void> configure(const hf::sdk::Settings& settings) override {
        for (const auto& [key, value] : settings) {
            // Refuse what is not understood: a misspelt setting must not pass in silence.
            if (key != "slack" || value.empty() || value.size() > 6 ||
                value.find_first_not_of("0123456789") != std::string::npos)
                return hf::fail(hf::Code::Invalid,
                                "least-busy: \"" + key + "\" = \"" + value + "\" is not slack = N");
            slack_ = static_cast<std::uint32_t>(std::stoul(value));
        }
        return {};
    }

    // Only the view may matter here: no clock, file or random device, so that a replayed request gets the same answer.
    hf::sdk::PlaceOutcome place(const hf::sdk::PlaceView& want) override {
        hf::sdk::PlaceOutcome out;
        const hf::sdk::Candidate* best = nullptr;
        for (const auto& place : want.candidates) {
            if (place.capacity != 0 && place.resident >= place.capacity) {
                if (want.explain) out.rejections.push_back({place.id, "full"});
            } else if (best == nullptr || better(place, *best, want.seed)) {
                best = &place;
            }
        }
        if (best == nullptr) {
            out.none = true;
            out.reason = "every place is full";
        } else {
            out.choice = best->id;
        }
        return out;
    }

private:
    [[nodiscard]] bool better(const hf::sdk::Candidate& a,
                              const hf::sdk::Candidate& b,
                              std::uint64_t seed) const {
        const std::uint64_t queue_a = queue(a);
        const std::uint64_t queue_b = queue(b);
        if (queue_a != queue_b) return queue_a < queue_b;
        if (a.resident != b.resident) return a.resident < b.resident;
        // A tie is broken by the seed, not by position: else every tie would go to the first place.
        return hf::mix64(seed ^ a.id) < hf::mix64(seed ^ b.id);
    }
    [[nodiscard]] std::uint64_t queue(const hf::sdk::Candidate& place) const {
        const std::uint64_t weight = place.weight == 0 ? 1 : place.weight;
        return place.inflight / weight / (slack_ + std::uint64_t{1});
    }

    std::uint32_t slack_ = 0;
};
