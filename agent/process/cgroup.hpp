// Limits on memory and processes, by control groups: one interface over version 2 and version 1, which a machine may mix.
//
// Under the supervisor's own group of each hierarchy lies one node group, `holdfast-<id>`; in it each process of the jail
// gets a group of its own. The jail is born outside and enters by itself between clone and exec, before a line of the
// jail's or the plugin's code runs: whatever they start is inside. A group goes when its process is reaped; what an
// earlier supervisor left under this name is killed and removed at the next start.
//
// Version 2 gives controllers only to groups whose parent holds no process: where the supervisor's own group does, the
// supervisor moves itself to a leaf beside the node group, and back at the end.
//
// Without a group that may be written everything runs all the same; `missing()` says what is not limited and why.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "abi/base/unique_fd.hpp"

namespace hf::process {

// 0: not limited. Swap is off where there is a memory limit.
struct CgroupLimits {
    std::uint64_t memory_bytes = 0;
    std::uint32_t pids = 0;  // processes and threads, the jail's own included
};

// The groups of one process, one in each hierarchy. Its end removes them: by then everything inside must be reaped.
class Cgroup {
public:
    Cgroup() = default;
    ~Cgroup();
    Cgroup(const Cgroup&) = delete;
    Cgroup& operator=(const Cgroup&) = delete;

    // Open `cgroup.procs` files: who writes "0" to each is inside.
    [[nodiscard]] std::vector<int> doors() const;
    // The kernel has ended a process of it because it was over its memory limit.
    [[nodiscard]] bool out_of_memory() const;
    [[nodiscard]] const CgroupLimits& limits() const { return limits_; }
    // Limits that could not be set, in words.
    [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }

private:
    friend class Cgroups;
    CgroupLimits limits_;
    std::vector<std::string> dirs_;
    std::vector<UniqueFd> doors_;
    std::string oom_file_;  // where the kernel counts its kills
    std::vector<std::string> missing_;
    std::function<int(const std::string&)> remove_;
    std::shared_ptr<std::set<std::string>> owned_;
};

// The node's group. One for each supervisor; its name belongs to it alone.
class Cgroups {
public:
    struct Options {
        std::string name;  // "holdfast-<id>"; empty: no groups are wanted
        // Where the kernel tells of hierarchies and of our own place in them.
        std::string mounts = "/proc/self/mountinfo";
        std::string own = "/proc/self/cgroup";
        // mkdir, rmdir and one write to a file that is there; each answers 0 or an errno. Tests on plain directories play
        // the kernel here.
        std::function<int(const std::string& path)> make;
        std::function<int(const std::string& path)> remove;
        std::function<int(const std::string& path, const std::string& text)> write;
    };
    explicit Cgroups(Options options);
    ~Cgroups();
    Cgroups(const Cgroups&) = delete;
    Cgroups& operator=(const Cgroups&) = delete;

    // "memory and processes, cgroup v2 /sys/fs/cgroup/holdfast-1f"; empty when nothing is.
    [[nodiscard]] std::string in_force() const;
    [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }
    // Nothing when there are no groups here at all.
    [[nodiscard]] std::unique_ptr<Cgroup> make(const std::string& name, const CgroupLimits& limits);
    // This machine lets nobody in after all; `why` as found by trying.
    void give_up(const std::string& why);

private:
    struct Hierarchy {
        std::string own;  // our own group's directory
        int version = 0;
        bool memory = false;
        bool pids = false;
        std::string node;        // own/<name>
        std::string supervisor;  // version 2: the leaf we moved to, empty when we did not
    };
    void find();
    [[nodiscard]] std::string open_node(Hierarchy& hierarchy);
    [[nodiscard]] std::string open_controllers(Hierarchy& hierarchy);
    void clear_leftovers(const std::string& node) const;
    enum class Sweep : std::uint8_t { All, NobodysOwn };
    void sweep(const std::string& node, Sweep what) const;
    void close_node(const Hierarchy& hierarchy) const;
    void limit(Cgroup& group, const Hierarchy& hierarchy, const std::string& dir) const;

    Options options_;
    std::vector<Hierarchy> hierarchies_;
    std::vector<std::string> missing_;
    // Directories of every Cgroup that there is: one whose processes have died is empty, and its owner has yet to ask why.
    std::shared_ptr<std::set<std::string>> owned_ = std::make_shared<std::set<std::string>>();
    std::uint64_t made_ = 0;
};

}  // namespace hf::process
