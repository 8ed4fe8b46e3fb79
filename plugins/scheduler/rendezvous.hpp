// Placement `rendezvous`: highest random weight. Needs no load figures, so it cannot herd, and every node that sees the
// same candidates names the same place. Taking a place away moves only the subjects that were on it.
#pragma once

#include "abi/sdk/policy.hpp"

namespace hf::scheduler {

class Rendezvous final : public sdk::PlacementPolicy {
public:
    Result<void> configure(const sdk::Settings& settings) override;
    sdk::PlaceOutcome place(const sdk::PlaceView& want) override;
};

}  // namespace hf::scheduler
