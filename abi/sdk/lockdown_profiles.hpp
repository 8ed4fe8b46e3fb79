// The second filter of each kind as data: what a plugin still needs when its start is over, with a reason per rule.
#pragma once

#include <string_view>
#include <vector>

#include "abi/layout/seccomp_rule.hpp"
#include "envelope_generated.h"

namespace hf::sdk {

struct LockdownProfile {
    std::string_view name;
    abi::Kind kind;
    std::vector<layout::Rules> allow;
    std::vector<layout::Rules> forbid;
};

[[nodiscard]] const std::vector<LockdownProfile>& lockdown_profiles();
// The profile of that name within the kind, else the first of the kind; null for a kind without one.
[[nodiscard]] const LockdownProfile* find_lockdown(abi::Kind kind, std::string_view name);

}  // namespace hf::sdk
