// Remembers which processes run, in a file, so that the next supervisor can make sure that none of them still does.
//
// Instances die with their supervisor by themselves (pdeathsig, pid namespace). This is the proof: the next one finds
// each by pid, start time and boot, kills what is left and waits for its end. Written before the process is used; a
// process that was started but not yet written is covered by pdeathsig alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::process {

// One process, told apart from a later one of the same number.
struct InstanceMark {
    pid_t pid = 0;
    std::uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
    std::string boot_id;
    std::string name;
    friend bool operator==(const InstanceMark&, const InstanceMark&) = default;
};

// NotFound when no such process runs.
[[nodiscard]] Result<InstanceMark> mark_of(pid_t pid, const std::string& name);

// The file. One writer: the supervisor that holds the state directory.
class InstanceFile {
public:
    explicit InstanceFile(std::string path) : path_(std::move(path)) {}
    // Both rewrite the file and put it in place by rename. A process that has ended already is not added.
    [[nodiscard]] Result<void> add(pid_t pid, const std::string& name);
    [[nodiscard]] Result<void> remove(pid_t pid);

private:
    [[nodiscard]] Result<void> write() const;
    std::string path_;
    std::map<pid_t, InstanceMark> marks_;
};

struct LeftoverReport {
    std::vector<std::string> killed;  // "runtime-wasm/0 (pid 4711)"
    std::vector<std::string>
        survived;  // did not end in time: the previous incarnation is not reaped
    std::vector<std::string> problems;  // sentences: a bad line, where the file was set aside
    std::size_t gone = 0;               // ended already, or of an earlier boot
    // True: nothing that the previous supervisor recorded runs any more, and the record was whole.
    [[nodiscard]] bool reaped() const { return survived.empty() && problems.empty(); }
};

// Kills by SIGKILL what the file names and still runs, waits at most 5 s for all of it, and removes the file. A file
// that does not read is set aside as <path>.bad-<n>, its good lines still count. A missing file is an empty one.
[[nodiscard]] Result<LeftoverReport> kill_leftovers(const std::string& path);

}  // namespace hf::process
