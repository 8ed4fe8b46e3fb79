// Placement `pinned`: everything goes to one named place, for debugging and for machines whose instances differ.
//   instance = N   runtime instance of a node (0 when neither setting is given)
//   node = X       only that node; without `instance` any of its instances, by rendezvous
// Without `node`, this node is preferred. When the place is absent or full the answer is "nobody" with the reason;
// it never falls back to another place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "abi/sdk/policy.hpp"

namespace hf::scheduler {

class Pinned final : public sdk::PlacementPolicy {
public:
    Result<void> configure(const sdk::Settings& settings) override;
    sdk::PlaceOutcome place(const sdk::PlaceView& want) override;

private:
    [[nodiscard]] bool matches(const sdk::Candidate& place) const;
    [[nodiscard]] std::string pin_text() const;

    std::optional<std::uint32_t> instance_ = 0;
    std::string node_;  // empty: any node
};

}  // namespace hf::scheduler
