// For the tests of this room: spawns the attack probe and collects what became of it.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/process/spawner.hpp"
#include "agent/process/test_loop.hpp"

namespace hf::process::testing {

struct Ask {
    std::vector<std::string> probe{};
    std::string profile = "placement";
    bool unfiltered = false;
    bool network = false;
    bool host_pids = false;
    std::vector<Bind> binds{};
    std::uint32_t wall_ms = 0;
    std::string binary = ATTACK_PROBE;
};

struct Outcome {
    ExitReport report;
    std::vector<std::string> lines;
    std::uint64_t dropped = 0;
    std::vector<std::string> walls;
    int calls = 0;  // of on_exit
    [[nodiscard]] std::string text() const {
        std::string all;
        for (const std::string& line : lines) all += line + "\n";
        return all;
    }
    [[nodiscard]] bool said(const std::string& what) const {
        return text().find(what) != std::string::npos;
    }
};

// A loop and a spawner. Everything it started has ended when it goes.
class Room {
public:
    explicit Room(std::uint32_t lines_per_second = 100'000) {
        for (const bool unfiltered : {false, true}) {
            Spawner::Options options;
            options.jail_binary = unfiltered ? UNFILTERED_JAIL : HOLDFAST_JAIL;
            options.uid_base = 910000;
            options.stderr_lines_per_second = lines_per_second;
            auto made = Spawner::create(
                loop.get(),
                options,
                [this](const std::string& name, const std::string& line, std::uint64_t dropped) {
                    if (watched_ == nullptr) return;
                    watched_->lines.push_back(line);
                    watched_->dropped += dropped;
                });
            if (!made) std::abort();
            (unfiltered ? unfiltered_ : spawner_) = std::move(made).value();
        }
    }

    // The outcome must outlive the process.
    Result<std::unique_ptr<Process>> start(const Ask& ask, Outcome& outcome) {
        watched_ = &outcome;
        SpawnSpec spec;
        spec.name = ask.profile + "/0";
        spec.profile = (ask.unfiltered ? "unfiltered:" : "") + ask.profile;
        spec.binary = ask.binary;
        spec.args = ask.probe;
        spec.network = ask.network;
        spec.host_pids = ask.host_pids;
        spec.binds = ask.binds;
        spec.uid_index = 3;
        spec.wall_ms = ask.wall_ms;
        if (ask.profile == "builder") spec.scratch = true;
        Spawner& spawner = ask.unfiltered ? *unfiltered_ : *spawner_;
        return spawner.spawn(std::move(spec), [&outcome](const ExitReport& report) {
            ++outcome.calls;
            outcome.report = report;
        });
    }

    Outcome run(const Ask& ask) {
        Outcome outcome;
        auto process = start(ask, outcome);
        if (!process) {
            watched_ = nullptr;
            outcome.report.failure = "spawn: " + process.error().message;
            return outcome;
        }
        if (!loop.until([&] { return outcome.calls > 0; })) {
            outcome.report.failure = "the test waited too long";
            process.value()->kill_now();
            loop.until([&] { return outcome.calls > 0; });
        }
        outcome.walls = process.value()->missing_walls();
        watched_ = nullptr;  // it goes with our caller
        return outcome;
    }

    Spawner& spawner() { return *spawner_; }

    // False, and said so, where this machine gives this user no namespaces.
    bool namespaces_or_say() const {
        for (const std::string& wall : spawner_->missing_walls())
            if (wall.rfind("no namespaces", 0) == 0) {
                std::printf("skipped: %s\n", wall.c_str());
                return false;
            }
        return true;
    }

    Loop loop;

private:
    std::unique_ptr<Spawner> spawner_;
    std::unique_ptr<Spawner> unfiltered_;
    Outcome* watched_ = nullptr;
};

inline std::string slurp(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

inline std::size_t open_fds() {
    std::size_t count = 0;
    DIR* dir = ::opendir("/proc/self/fd");
    while (::readdir(dir) != nullptr) ++count;
    ::closedir(dir);
    return count;
}

// A line "Key:\tvalue" of /proc/<pid>/status.
inline std::string status_field(pid_t pid, const std::string& key) {
    std::ifstream in("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(in, line);)
        if (line.rfind(key + ":", 0) == 0) {
            const std::size_t start = line.find_first_not_of(" \t", key.size() + 1);
            return start == line.npos ? "" : line.substr(start);
        }
    return "";
}

// Runs no more: reaped, or a body that whoever inherited it has not buried yet.
inline bool ended(pid_t pid) {
    const std::string state = status_field(pid, "State");
    return state.empty() || state[0] == 'Z' || state[0] == 'X';
}

// No body of ours lies about.
inline bool no_zombie() {
    siginfo_t info{};
    const int rc = ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    if (rc == 0 && info.si_pid != 0)
        std::printf("zombie %d: %s",
                    info.si_pid,
                    slurp("/proc/" + std::to_string(info.si_pid) + "/stat").c_str());
    return rc != 0 || info.si_pid == 0;
}

// Pids of running (not zombie) processes of the tests' jails: as root by their uids, else by name among our own.
inline std::vector<pid_t> alive_in_jails() {
    std::vector<pid_t> found;
    const std::string own = std::to_string(::geteuid());
    DIR* dir = ::opendir("/proc");
    while (const dirent* entry = ::readdir(dir)) {
        const int pid = std::atoi(entry->d_name);
        if (pid <= 0 || ended(pid)) continue;
        const std::string uid = status_field(pid, "Uid");
        const std::string name = status_field(pid, "Name");
        const bool ours = ::geteuid() == 0
                              ? uid.rfind("9100", 0) == 0
                              : uid.rfind(own + "\t", 0) == 0 &&
                                    (name == "attack_probe" || name == "holdfast-jail" ||
                                     name == "unfiltered-jail");
        if (ours) found.push_back(pid);
    }
    ::closedir(dir);
    return found;
}

}  // namespace hf::process::testing
