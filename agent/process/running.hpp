// One process from spawn to its last byte of stderr. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "abi/layout/jail_spec.hpp"
#include "agent/process/cgroup.hpp"
#include "agent/process/launch.hpp"
#include "agent/process/spawner.hpp"
#include "agent/process/stderr_lines.hpp"
#include "agent/process/watch.hpp"

namespace hf::process {

class Running {
public:
    struct Start {
        uv_loop_t* loop = nullptr;
        std::string name;
        Launched jail;
        UniqueFd report_socket;  // non-blocking, as the next
        UniqueFd error_pipe;
        bool own_pids = true;  // the jail is pid 1 of a namespace: its end is the end of all
        std::uint32_t wall_ms = 0;
        std::uint32_t lines_per_second = 0;
        std::unique_ptr<Cgroup> cgroup;  // may be none
    };
    // `ended` is called once, on the loop thread, after which nothing of the process is left.
    Running(Start start, LineSink lines, std::function<void(const ExitReport&)> ended);

    [[nodiscard]] Result<void> watch(uv_loop_t* loop, std::uint32_t wall_ms);
    void kill_now();
    // For the end of the supervisor: kills, waits for the end, tells nobody.
    void kill_and_wait();

    [[nodiscard]] pid_t pid() const { return report_.pid; }
    [[nodiscard]] pid_t jail_pid() const { return jail_.pid; }
    [[nodiscard]] const std::vector<std::string>& missing_walls() const { return missing_walls_; }

private:
    void report_readable();
    void take_report(BytesView bytes, UniqueFd fd);
    // Reads what is there, at most `budget` bytes; false at the end of the stream.
    bool error_readable(std::size_t budget);
    void jail_ended();
    void plugin_ended();
    void finish();
    void leave_cgroup();
    void signal_all();
    void wake_jail();

    uv_loop_t* loop_;
    Launched jail_;
    UniqueFd report_socket_;
    UniqueFd error_pipe_;
    UniqueFd plugin_pidfd_;
    bool own_pids_;
    bool jail_reaped_ = false;
    bool told_end_ = false;  // the jail reported Ended or Failed
    std::int64_t started_ms_;
    std::unique_ptr<Cgroup> cgroup_;
    StderrLines lines_;
    std::function<void(const ExitReport&)> ended_;
    ExitReport report_;
    std::vector<std::string> missing_walls_;
    Watch jail_watch_;
    Watch plugin_watch_;
    Watch report_watch_;
    Watch error_watch_;
    Watch wall_watch_;
};

}  // namespace hf::process
