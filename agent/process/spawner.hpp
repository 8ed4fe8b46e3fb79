// Starts processes through the jail and tells how they ended. Knows nothing of plugins, links or policies.
// Spawns happen on the loop thread only (the jail's pdeathsig is bound to the thread that forked).
#pragma once

#include <sys/types.h>
#include <uv.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::process {

struct Bind {
    std::string source;  // on the host
    std::string target;  // absolute, inside the jail
    bool writable = false;
    bool owned = false;  // chown the source (a directory) to the instance's uid when root
};

// Everything the jail is told. One spec, one process.
struct SpawnSpec {
    std::string name;  // "runtime-wasm/0", for reports
    std::string
        profile;  // seccomp profile: gateway-http storage-local storage-s3 runtime-wasm placement drain builder
    std::string binary;             // absolute host path
    std::vector<std::string> args;  // without argv[0]
    std::vector<Bind> binds;        // besides the read-only system libraries
    std::uint32_t uid_index = 0;    // uid = uid_base + this, when root
    bool network = false;           // keeps the host's network namespace (gateway)
    bool host_pids = false;         // keeps the host's pid namespace (LMDB's process-shared locks)
    bool scratch = false;           // a private writable tmpfs at /tmp (builder)
    std::uint64_t address_space_bytes = 0;  // rlimits; 0: unlimited where the engine needs it
    std::uint64_t cpu_seconds = 0;
    std::uint64_t file_bytes = 0;
    std::uint32_t open_files = 256;
    std::uint32_t wall_ms = 0;  // killed after this, 0: no limit (builder)
    UniqueFd control;           // becomes descriptor 3; may be invalid (builder)
    UniqueFd standard_output;   // the builder's answer; invalid: joined with stderr
    // Of all its processes together, by a control group where there is one; 0: not limited.
    std::uint64_t memory_bytes = 0;
    std::uint32_t pids = 0;
};

// How a process ended. Words are ready for an operator.
struct ExitReport {
    std::string name;
    bool started = false;  // the plugin was born
    pid_t pid =
        0;  // of the plugin as the host sees it; 0 also when it was gone before anybody looked
    int exit_code = -1;  // valid when signal == 0
    int signal = 0;
    bool by_supervisor = false;  // we sent the signal
    std::string syscall;         // named by seccomp: "ptrace", empty otherwise
    std::string failure;         // the jail's own sentence when it could not start the plugin
    std::string stderr_tail;     // last 4 KiB
    std::int64_t lived_ms = 0;
    // Killed by the kernel because it was over this memory limit; 0: it was not.
    std::uint64_t out_of_memory_bytes = 0;
    // One line: "killed by signal 9 (Killed)", "seccomp: ptrace", "exit code 1: <last stderr line>".
    [[nodiscard]] std::string summary() const;
    // Died of its own fault in a way that may be blamed on a request: SEGV, BUS, ILL, FPE, ABRT, SYS, or OOM kill.
    [[nodiscard]] bool by_fault() const;
    // It started, and left without a signal and without being asked by one.
    [[nodiscard]] bool on_its_own() const;
};

class Process {
public:
    virtual ~Process() = default;
    [[nodiscard]] virtual pid_t pid()
        const = 0;  // the plugin itself, as the host sees it; 0 until the jail reported it
    [[nodiscard]] virtual pid_t jail_pid() const = 0;
    virtual void kill_now() = 0;  // SIGKILL to plugin and jail; the exit callback follows
    [[nodiscard]] virtual const std::vector<std::string>& missing_walls()
        const = 0;  // in words, for status
};

// A line of the process's stderr, already cut at 4 KiB; at most `stderr_lines_per_second` reach it, the rest are counted.
using LineSink =
    std::function<void(const std::string& name, const std::string& line, std::uint64_t dropped)>;

class Spawner {
public:
    struct Options {
        std::string jail_binary;
        std::uint32_t uid_base = 900000;
        std::uint32_t stderr_lines_per_second = 100;
        std::string cgroup = {};  // the node group's name, see cgroup.hpp; empty: none
    };
    static Result<std::unique_ptr<Spawner>> create(uv_loop_t* loop,
                                                   Options options,
                                                   LineSink lines);
    virtual ~Spawner() = default;
    // on_exit is called once, on the loop thread, after the process is reaped and never from within spawn().
    // The Process stays valid until the owner drops it.
    virtual Result<std::unique_ptr<Process>> spawn(
        SpawnSpec spec, std::function<void(const ExitReport&)> on_exit) = 0;
    // Walls this machine cannot give at all ("no user namespaces: ..."), for status.
    [[nodiscard]] virtual const std::vector<std::string>& missing_walls() const = 0;
    // What control groups limit here, in words; empty when nothing.
    [[nodiscard]] virtual std::string cgroups_in_force() const = 0;
};

}  // namespace hf::process
