// Starts the jail itself: one clone and one exec, with nothing in between that could go wrong in a program with threads.
//
// As root the jail is born as pid 1 of a new pid namespace; as an ordinary user inside a user namespace that maps just
// this user, where that is allowed. Descriptors reach it by number (abi/layout/jail_spec.hpp), and no others do.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::process {

struct LaunchFds {
    int standard_output = -1;
    int standard_error = -1;
    int control = -1;  // may be -1
    int spec = -1;
    int report = -1;
    int network = -1;  // may be -1
    // `cgroup.procs` files of the groups it enters before it becomes the jail; at most kCgroupsMax.
    std::vector<int> cgroups;
};
// Hierarchies that limit something: memory and processes may lie in two.
inline constexpr std::size_t kCgroupsMax = 2;

struct Launched {
    pid_t pid = 0;
    UniqueFd pidfd;
};

// Which walls the kernel lets this process build.
struct Ability {
    bool namespaces = false;
    bool user_namespace = false;  // needed for them: we are not root
    std::string reason;           // why not
};

// An empty network namespace for all instances without network: making and unmaking one for each costs more than all
// other walls together. Nothing is in it but a loopback that is down. Root only.
[[nodiscard]] Result<UniqueFd> make_empty_network();

// Tries once, with a child that ends at once.
[[nodiscard]] Ability find_ability();
// Likewise: whether a child gets into these groups.
[[nodiscard]] Result<void> try_cgroups(const std::vector<int>& doors);

[[nodiscard]] Result<Launched> launch(const std::string& jail_binary,
                                      const std::string& name,
                                      const Ability& ability,
                                      bool host_pids,
                                      const LaunchFds& fds);

// Waits for the end and reaps. The status is as from waitpid.
[[nodiscard]] Result<int> reap(const UniqueFd& pidfd);

}  // namespace hf::process
