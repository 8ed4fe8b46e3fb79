// What the shell sees. Scripts branch on these: never renumber, only add.
#pragma once

namespace hf::cli {

enum class Exit : int {
    Ok = 0,
    No =
        1,  // the node understood and says no: refused, not found, busy, a swap that was rolled back
    Usage = 2,        // the command line, a file it names, or agent.toml is wrong
    Unreachable = 3,  // no node behind the control socket, or what answers there is not one
    Timeout = 4,      // a node is there but did not answer in time; what was asked may still happen
};

}  // namespace hf::cli
