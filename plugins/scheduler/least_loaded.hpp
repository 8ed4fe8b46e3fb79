// Placement `least-loaded`: the place with the fewest units for its weight. Ties go by rendezvous, so that many
// first touches that see the same figures do not all run to the first place in the list.
#pragma once

#include "abi/sdk/policy.hpp"

namespace hf::scheduler {

class LeastLoaded final : public sdk::PlacementPolicy {
public:
    Result<void> configure(const sdk::Settings& settings) override;
    sdk::PlaceOutcome place(const sdk::PlaceView& want) override;
};

}  // namespace hf::scheduler
