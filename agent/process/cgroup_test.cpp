// Control groups on trees of plain files, where the test plays the kernel, and the real ones of this machine.
#include "agent/process/cgroup.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "agent/process/spawner.hpp"
#include "agent/process/test_jail.hpp"

namespace hf::process::testing {
namespace {

namespace fs = std::filesystem;

std::string text_of(const std::string& path) {
    std::ifstream in(path);
    std::string out;
    std::getline(in, out, '\0');
    return out;
}

// A machine with any hierarchies; each group it makes has the files of its version.
class Machine {
public:
    Machine() {
        char name[] = "/tmp/holdfast-cgroup-XXXXXX";
        if (::mkdtemp(name) == nullptr) std::abort();
        root_ = name;
    }
    ~Machine() { fs::remove_all(root_); }
    Machine(const Machine&) = delete;
    Machine& operator=(const Machine&) = delete;

    void mount_first(const std::string& controller, const std::string& own) {
        const std::string point = root_ + "/" + controller;
        line("/ " + point + " rw - cgroup cgroup rw," + controller, "5:" + controller + ":" + own);
        fs::create_directories(point + own);
        fill(point + own, 1);
    }
    void mount_second(const std::string& controllers, const std::string& own) {
        const std::string point = root_ + "/unified";
        line("/ " + point + " rw - cgroup2 cgroup2 rw", "0::" + own);
        fs::create_directories(point + own);
        fill(point + own, 2);
        std::ofstream(point + own + "/cgroup.controllers") << controllers << '\n';
    }
    Cgroups::Options options() {
        Cgroups::Options out;
        out.name = "holdfast-1f";
        out.mounts = root_ + "/mountinfo";
        out.own = root_ + "/own";
        out.make = [this](const std::string& path) {
            if (fs::exists(path)) return EEXIST;
            std::error_code error;
            if (read_only || !fs::create_directory(path, error)) return EROFS;
            fill(path, path.find("/unified/") == std::string::npos ? 1 : 2);
            return 0;
        };
        out.remove = [this](const std::string& path) {
            for (const auto& entry : fs::directory_iterator(path))
                if (entry.is_directory()) return EBUSY;
            if (populated.contains(path)) return EBUSY;
            fs::remove_all(path);
            return 0;
        };
        out.write = [this](const std::string& path, const std::string& text) {
            const fs::path group = fs::path(path).parent_path();
            const bool control = fs::path(path).filename() == "cgroup.subtree_control";
            if (control && text[0] == '+' && populated.contains(group.string())) return EBUSY;
            if (fs::path(path).filename() == "cgroup.procs") {
                populated.erase(ours);
                ours = group.string();
                populated.insert(ours);
                return 0;
            }
            if (!fs::exists(path)) return ENOENT;
            std::ofstream(path) << text;
            return 0;
        };
        return out;
    }
    [[nodiscard]] std::string at(const std::string& path) const { return root_ + "/" + path; }
    [[nodiscard]] std::size_t groups() const {
        std::size_t count = 0;
        for (const auto& entry : fs::recursive_directory_iterator(root_))
            count += entry.is_directory() && entry.path().filename() != "unified" ? 1U : 0U;
        return count;
    }

    bool read_only = false;
    std::string ours;  // where the supervisor is
    std::set<std::string> populated;

private:
    void line(const std::string& mount, const std::string& own) {
        std::ofstream(root_ + "/mountinfo", std::ios::app) << "36 31 0:33 " << mount << '\n';
        std::ofstream(root_ + "/own", std::ios::app) << own << '\n';
    }
    static void fill(const std::string& dir, int version) {
        std::vector<std::string> files = {"cgroup.procs", "pids.max"};
        if (version == 1) {
            files.insert(
                files.end(),
                {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"});
        } else {
            files.insert(files.end(),
                         {"memory.max",
                          "memory.swap.max",
                          "memory.oom.group",
                          "memory.events",
                          "cgroup.subtree_control"});
        }
        for (const std::string& file : files) std::ofstream(dir + "/" + file) << "";
    }
    std::string root_;
};

constexpr std::uint64_t kMiB = 1ULL << 20U;

TEST_CASE("version 2 alone: one group holds both limits, and nothing is left of it") {
    Machine machine;
    machine.mount_second("cpu memory pids", "/system.slice/holdfast.service");
    const std::string own = machine.at("unified/system.slice/holdfast.service");
    const std::size_t before = machine.groups();
    {
        Cgroups groups(machine.options());
        CHECK(groups.missing().empty());
        CHECK(groups.in_force() == "memory and processes, cgroup v2 " + own + "/holdfast-1f");
        CHECK(text_of(own + "/cgroup.subtree_control") == "+memory +pids");
        const auto group = groups.make("runtime/0", {64 * kMiB, 32});
        REQUIRE(group != nullptr);
        CHECK(group->missing().empty());
        CHECK(group->doors().size() == 1);
        const std::string dir = own + "/holdfast-1f/runtime-0.1";
        CHECK(text_of(dir + "/memory.max") == "67108864");
        CHECK(text_of(dir + "/memory.swap.max") == "0");
        CHECK(text_of(dir + "/memory.oom.group") == "1");
        CHECK(text_of(dir + "/pids.max") == "32");
        CHECK_FALSE(group->out_of_memory());
        std::ofstream(dir + "/memory.events") << "low 0\nmax 12\noom 1\noom_kill 1\n";
        CHECK(group->out_of_memory());
    }
    CHECK(machine.groups() == before);
}

TEST_CASE("a group whose process has died stays until it is known why, whoever starts meanwhile") {
    Machine machine;
    machine.mount_second("memory pids", "/own");
    Cgroups groups(machine.options());
    auto dead = groups.make("runtime/0", {kMiB, 8});
    REQUIRE(dead);
    std::ofstream(machine.at("unified/own/holdfast-1f/runtime-0.1/memory.events"))
        << "oom_kill 1\n";
    const auto other = groups.make("storage/0", {kMiB, 8});
    CHECK(dead->out_of_memory());
    dead.reset();
    CHECK_FALSE(fs::exists(machine.at("unified/own/holdfast-1f/runtime-0.1")));
}

TEST_CASE("version 2 with the supervisor inside: it moves to a leaf and comes back") {
    Machine machine;
    machine.mount_second("memory pids", "/holdfast.service");
    const std::string own = machine.at("unified/holdfast.service");
    machine.ours = own;
    machine.populated = {own};
    {
        Cgroups groups(machine.options());
        CHECK(groups.missing().empty());
        CHECK(machine.ours == own + "/holdfast-1f-supervisor");
        CHECK(groups.make("gateway/0", {64 * kMiB, 0}) != nullptr);
    }
    CHECK(machine.ours == own);
    CHECK_FALSE(fs::exists(own + "/holdfast-1f-supervisor"));
}

TEST_CASE("version 2 with strangers inside: no group, a reason, and the supervisor where it was") {
    Machine machine;
    machine.mount_second("memory pids", "/session");
    const std::string own = machine.at("unified/session");
    machine.ours = own;
    machine.populated = {own};
    auto options = machine.options();
    const auto kernel = options.write;
    options.write = [&](const std::string& path, const std::string& text) {
        const int error = kernel(path, text);
        machine.populated.insert(own);  // somebody stays
        return error;
    };
    Cgroups groups(options);
    REQUIRE(groups.missing().size() == 1);
    CHECK(groups.missing()[0].find(
              "no limit on memory nor processes: cannot hand on controllers in ") == 0);
    CHECK(groups.missing()[0].find("other processes are in that group") != std::string::npos);
    CHECK(groups.make("gateway/0", {}) == nullptr);
    CHECK(machine.ours == own);
}

TEST_CASE("version 1: a group in each hierarchy, swap limited with the memory") {
    Machine machine;
    machine.mount_first("memory", "/box/7");
    machine.mount_first("pids", "/");
    machine.mount_second("", "/");
    const std::size_t before = machine.groups();
    {
        Cgroups groups(machine.options());
        CHECK(groups.missing().empty());
        CHECK(groups.in_force() == "memory, cgroup v1 " + machine.at("memory/box/7/holdfast-1f") +
                                       "; processes, cgroup v1 " + machine.at("pids/holdfast-1f"));
        const auto group = groups.make("runtime/0", {64 * kMiB, 32});
        REQUIRE(group != nullptr);
        CHECK(group->doors().size() == 2);
        const std::string dir = machine.at("memory/box/7/holdfast-1f/runtime-0.1");
        CHECK(text_of(dir + "/memory.limit_in_bytes") == "67108864");
        CHECK(text_of(dir + "/memory.memsw.limit_in_bytes") == "67108864");
        CHECK(text_of(machine.at("pids/holdfast-1f/runtime-0.1/pids.max")) == "32");
        std::ofstream(dir + "/memory.oom_control")
            << "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n";
        CHECK(group->out_of_memory());
    }
    CHECK(machine.groups() == before);
}

TEST_CASE("a controller that is nowhere, and a tree that may not be written, are told") {
    Machine machine;
    machine.mount_first("memory", "/");
    SUBCASE("one missing, the other in force") {
        Cgroups groups(machine.options());
        REQUIRE(groups.missing().size() == 1);
        CHECK(groups.missing()[0] ==
              "no limit on processes: no control group of this machine has the controller pids");
        const auto group = groups.make("a", {kMiB, 8});
        REQUIRE(group != nullptr);
        CHECK(group->doors().size() == 1);
    }
    SUBCASE("read-only") {
        machine.mount_first("pids", "/");
        machine.read_only = true;
        Cgroups groups(machine.options());
        CHECK(groups.missing().size() == 2);
        CHECK(groups.missing()[0] == "no limit on memory: cannot make the control group " +
                                         machine.at("memory/holdfast-1f") + ": " +
                                         std::strerror(EROFS));
        CHECK(groups.in_force().empty());
        CHECK(groups.make("a", {kMiB, 8}) == nullptr);
    }
    SUBCASE("a limit the kernel does not take") {
        machine.mount_first("pids", "/");
        auto options = machine.options();
        const auto kernel = options.write;
        options.write = [&](const std::string& path, const std::string& text) {
            return fs::path(path).filename() == "pids.max" ? EINVAL : kernel(path, text);
        };
        Cgroups groups(options);
        const auto group = groups.make("a", {kMiB, 8});
        REQUIRE(group != nullptr);
        REQUIRE(group->missing().size() == 1);
        CHECK(group->missing()[0].find("no limit on processes: writing 8 to ") == 0);
    }
}

TEST_CASE("what an earlier supervisor left under this name goes at the start") {
    Machine machine;
    machine.mount_first("memory", "/");
    machine.mount_first("pids", "/");
    fs::create_directories(machine.at("memory/holdfast-1f/runtime-0.4"));
    fs::create_directories(machine.at("memory/holdfast-2e/runtime-0.4"));
    Cgroups groups(machine.options());
    CHECK_FALSE(fs::exists(machine.at("memory/holdfast-1f/runtime-0.4")));
    CHECK(fs::exists(machine.at("memory/holdfast-2e/runtime-0.4")));  // another node's
}

// --- the real ones -----------------------------------------------------------------------------------------------------

std::string own_name() {
    return "holdfast-test-" + std::to_string(::getpid());
}

std::vector<std::string> left_of(const std::string& name) {
    std::vector<std::string> out;
    std::error_code error;
    for (auto it = fs::recursive_directory_iterator(
             "/sys/fs/cgroup", fs::directory_options::skip_permission_denied, error);
         it != fs::recursive_directory_iterator();
         it.increment(error)) {
        if (error) break;
        if (it->path().filename().string().find(name) == 0) out.push_back(it->path().string());
    }
    return out;
}

bool memory_or_say(const Cgroups& groups) {
    if (groups.in_force().find("memory") != std::string::npos) return true;
    for (const std::string& why : groups.missing()) std::printf("skipped: %s\n", why.c_str());
    return false;
}

// Enters the groups, then takes as much memory.
int take_memory(const std::vector<int>& doors, std::size_t bytes) {
    const pid_t child = ::fork();
    if (child == 0) {
        for (const int door : doors)
            if (::write(door, "0", 1) != 1) ::_exit(3);
        auto* memory = static_cast<volatile char*>(std::malloc(bytes));
        if (memory == nullptr) ::_exit(4);
        for (std::size_t i = 0; i < bytes; i += 4096) memory[i] = 1;
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
}

TEST_CASE("who is over the real limit is killed, it is told apart, and the group goes") {
    {
        Cgroups::Options options;
        options.name = own_name();
        Cgroups groups(options);
        if (!memory_or_say(groups)) return;
        const auto group = groups.make("greedy/0", {32 * kMiB, 0});
        REQUIRE(group != nullptr);
        CHECK(group->missing().empty());
        const int modest = take_memory(group->doors(), 8 * kMiB);
        CHECK(WIFEXITED(modest));
        CHECK(WEXITSTATUS(modest) == 0);
        CHECK_FALSE(group->out_of_memory());
        const int greedy = take_memory(group->doors(), 128 * kMiB);
        REQUIRE(WIFSIGNALED(greedy));
        CHECK(WTERMSIG(greedy) == SIGKILL);
        CHECK(group->out_of_memory());
    }
    CHECK(left_of(own_name()).empty());
}

TEST_CASE("a jailed process over its limit is reported as out of memory, by its own fault") {
    Room plain;
    Spawner::Options options;
    options.jail_binary = HOLDFAST_JAIL;
    options.uid_base = 910000;
    options.cgroup = own_name();
    {
        auto spawner = Spawner::create(plain.loop.get(), options, nullptr);
        REQUIRE(spawner.ok());
        if (spawner.value()->cgroups_in_force().find("memory") == std::string::npos) {
            std::printf("skipped: no memory groups\n");
            return;
        }
        for (const bool host_pids : {false, true}) {
            SpawnSpec spec;
            spec.name = "greedy/0";
            spec.profile = host_pids ? "storage-local" : "runtime-wasm";
            spec.binary = ATTACK_PROBE;
            spec.args = {"take-memory", "128"};
            spec.host_pids = host_pids;
            spec.uid_index = 3;
            spec.memory_bytes = 32 * kMiB;
            spec.pids = 16;
            ExitReport seen;
            int calls = 0;
            auto process = spawner.value()->spawn(std::move(spec), [&](const ExitReport& report) {
                seen = report;
                ++calls;
            });
            REQUIRE(process.ok());
            REQUIRE(plain.loop.until([&] { return calls > 0; }));
            CHECK(seen.summary() == "killed: out of memory (limit 32MiB)");
            CHECK(seen.by_fault());
            for (const std::string& wall : process.value()->missing_walls())
                CHECK_MESSAGE(wall.find("limit on") == std::string::npos, wall);
        }
        const auto left = left_of(own_name());
        for (const std::string& dir : left)
            CHECK_MESSAGE(fs::path(dir).filename() == own_name(), dir);  // the node's own alone
        for (const std::string& dir : left)
            for (const auto& entry : fs::directory_iterator(dir)) CHECK_FALSE(entry.is_directory());
    }
    CHECK(left_of(own_name()).empty());
}

}  // namespace
}  // namespace hf::process::testing
