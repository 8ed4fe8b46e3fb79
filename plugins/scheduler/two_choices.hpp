// Placement `two-choices`: two different places drawn at random, the less loaded one is taken. Spreads nearly as evenly
// as looking at all of them, and figures that are a little old do not send everybody to the same place.
#pragma once

#include "abi/sdk/policy.hpp"

namespace hf::scheduler {

class TwoChoices final : public sdk::PlacementPolicy {
public:
    Result<void> configure(const sdk::Settings& settings) override;
    // All randomness comes from want.seed.
    sdk::PlaceOutcome place(const sdk::PlaceView& want) override;
};

}  // namespace hf::scheduler
