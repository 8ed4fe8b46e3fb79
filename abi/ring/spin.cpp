#include "abi/ring/spin.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "abi/base/unique_fd.hpp"
#include "abi/layout/atomics.hpp"

namespace hf::ring {

namespace {

// 1.5 CPUs: below it the spinner's time comes out of its peer's.
bool quota_allows(double quota, double period) {
    return period <= 0 || quota / period >= 1.5;
}

// Reads "QUOTA PERIOD" or "max PERIOD" (v2), or QUOTA of v1 with its period in a second file.
bool group_allows(const std::string& directory, bool v2) {
    double quota = -1;
    double period = 0;
    if (v2) {
        std::ifstream file(directory + "/cpu.max");
        std::string word;
        if (!(file >> word >> period) || word == "max") return true;
        std::istringstream(word) >> quota;
    } else {
        std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
        std::ifstream(directory + "/cpu.cfs_period_us") >> period;
    }
    return quota <= 0 || quota_allows(quota, period);
}

// Every group from this process's own up to the root may set a quota.
bool cgroups_allow() {
    std::ifstream file("/proc/self/cgroup");
    std::string line;
    while (std::getline(file, line)) {
        const std::size_t first = line.find(':');
        const std::size_t second = line.find(':', first == std::string::npos ? first : first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool v2 = controllers.empty();
        if (!v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
        std::string path = line.substr(second + 1);
        const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
        for (;;) {
            if (!group_allows(root + path, v2)) return false;
            const std::size_t slash = path.rfind('/');
            if (slash == std::string::npos || path.size() <= 1) break;
            path.resize(slash);
        }
    }
    return true;
}

// The two CPUs between which the wake is measured; false when there are not two.
bool pick_cpus(std::array<int, 2>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) != 0) return false;
    std::size_t found = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; ++cpu)
        if (CPU_ISSET(cpu, &set)) cpus[found++] = cpu;
    return found == 2;
}

void pin_self(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(cpu), &set);
    (void)::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set);
}

bool pass_token(
    int fd_in, int fd_out, bool first, int rounds, std::array<std::int64_t, 16>* times) {
    std::uint64_t token = 1;
    for (int i = 0; i < rounds; ++i) {
        const std::int64_t start = monotonic_ns();
        if (first && ::write(fd_out, &token, sizeof(token)) != sizeof(token)) return false;
        if (::read(fd_in, &token, sizeof(token)) != sizeof(token)) return false;
        token = 1;
        if (!first && ::write(fd_out, &token, sizeof(token)) != sizeof(token)) return false;
        if (times != nullptr) (*times)[static_cast<std::size_t>(i)] = monotonic_ns() - start;
    }
    return true;
}

}  // namespace

bool spin_allowed() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (::sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2) return false;
    return cgroups_allow();
}

std::uint32_t measure_wake_ns() {
    constexpr int kRounds =
        16;  // the median of 16 stands a few preemptions; about a millisecond in all
    std::array<int, 2> cpus{};
    const UniqueFd there(::eventfd(0, EFD_CLOEXEC));
    const UniqueFd back(::eventfd(0, EFD_CLOEXEC));
    if (!pick_cpus(cpus) || !there.valid() || !back.valid()) return kSpinNsDefault;
    std::array<std::int64_t, kRounds> times{};
    bool measured = false;
    std::thread peer([&] {
        pin_self(cpus[1]);
        (void)pass_token(there.get(), back.get(), false, kRounds, nullptr);
    });
    std::thread self([&] {
        pin_self(cpus[0]);
        measured = pass_token(back.get(), there.get(), true, kRounds, &times);
    });
    self.join();
    peer.join();
    if (!measured) return kSpinNsDefault;
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    // A round is two wakes.
    const std::int64_t wake = times[kRounds / 2] / 2;
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(wake, kSpinNsMin, kSpinNsMax));
}

SpinPolicy::SpinPolicy(std::uint32_t budget_ns, bool allowed)
    : budget_ns_(std::clamp(budget_ns, kSpinNsMin, kSpinNsMax)),
      allowed_(allowed && budget_ns != 0) {}

bool SpinPolicy::wanted(std::uint32_t peer_cpu) {
    if (!allowed_ || peer_cpu == static_cast<std::uint32_t>(::sched_getcpu())) return false;
    if (score_ > 0) return true;
    return ++waits_ % kProbeEvery == 0;
}

}  // namespace hf::ring
