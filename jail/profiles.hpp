// The first seccomp filter of each kind of plugin, and the few walls that depend on the kind. Data only: one table per
// profile in its own file, each row with the reason for it.
#pragma once

#include <string_view>
#include <vector>

#include "abi/layout/seccomp_rule.hpp"

namespace hf::jail {

struct Profile {
    std::string_view name;
    std::vector<layout::Rules> allow;
    std::vector<layout::Rules> forbid;
    bool proc = false;          // /proc of its own pid namespace, processes only
    bool alternatives = false;  // /etc/alternatives: cc and ld are links through it
    bool name_service = false;  // resolv.conf, hosts, nsswitch.conf
    bool may_exec = false;  // else the jail lets exactly one execve through: the plugin's own start
};

// Null when there is no such profile.
[[nodiscard]] const Profile* find_profile(std::string_view name);
[[nodiscard]] const std::vector<Profile>& all_profiles();

// What every program needs from its first instruction on, the plugin's side of a link included (profile_common.cpp).
extern const layout::Rules kAllowCommon;
extern const layout::Rules kAllowThreads;
extern const layout::Rules kAllowGatewayHttp;
extern const layout::Rules kAllowStorageLocal;
extern const layout::Rules kAllowStorageS3;
extern const layout::Rules kAllowRuntimeWasm;
extern const layout::Rules kAllowPolicy;
extern const layout::Rules kAllowBuilder;
extern const layout::Rules kForbiddenToBuilder;

}  // namespace hf::jail
