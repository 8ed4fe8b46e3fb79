// The plugin's process between fork and exec.
#pragma once

#include <sys/types.h>

#include "abi/layout/jail_spec.hpp"
#include "jail/profiles.hpp"
#include "jail/walls.hpp"

namespace hf::jail {

struct ChildPlan {
    const layout::JailSpec* spec = nullptr;
    const Profile* profile = nullptr;  // null: no filter (tests only)
    const Landlock* landlock = nullptr;
    pid_t jail = 0;         // getpid() of the parent
    int start_socket = -1;  // to the parent: the filter's listener, or the sentence why it failed
};

// Never returns: runs the plugin, or says why not and exits.
[[noreturn]] void run_child(const ChildPlan& plan);

}  // namespace hf::jail
