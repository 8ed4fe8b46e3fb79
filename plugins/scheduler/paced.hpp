// Drain `paced`: hands residents over in the order of the window, never more than in_flight_max at a time, and never
// gives up. A unit whose hand-over failed before goes behind those never tried, so that one unit that cannot leave
// does not hold up the rest.
//   in_flight_max = N   1..1024, 16 when not given; the supervisor's own bound counts too, the smaller one wins
#pragma once

#include <cstdint>

#include "abi/sdk/policy.hpp"

namespace hf::scheduler {

class Paced final : public sdk::DrainPolicy {
public:
    Result<void> configure(const sdk::Settings& settings) override;
    sdk::DrainStep next(const sdk::DrainView& view) override;

private:
    // 16 open hand-overs keep one group commit of the store full without making a unit wait long behind the others.
    static constexpr std::uint32_t kInFlightDefault = 16;
    std::uint32_t in_flight_max_ = kInFlightDefault;
};

}  // namespace hf::scheduler
