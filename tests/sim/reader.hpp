// Rebuilds a unit's state from the bucket alone, by the protocol's words and without a line of the core's fold: an entry of
// an epoch below an earlier seal's does not count, the newest base replaces what came before, from it on there is no hole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/sim/bucket.hpp"

namespace hf::sim {

struct UnitState {
    std::vector<std::uint64_t> ids;  // of the adds, in order
    std::string trouble;             // empty: the log is sound
};

[[nodiscard]] UnitState read_unit(const Bucket& bucket,
                                  const core::Codec& codec,
                                  const std::string& app,
                                  const std::string& unit);

}  // namespace hf::sim
