#include "agent/process/cgroup.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

namespace hf::process {
namespace {

// The kernel takes killed processes out of their group a moment after they are reaped; rmdir says EBUSY until then.
constexpr int kTries = 100;
constexpr int kTryMs = 10;
// On the loop, where nobody may wait for long.
constexpr int kQuickTries = 3;

std::string words_of(int error) {
    return std::strerror(error);
}

int make_directory(const std::string& path) {
    return ::mkdir(path.c_str(), 0755) == 0 ? 0 : errno;
}

int remove_directory(const std::string& path) {
    return ::rmdir(path.c_str()) == 0 ? 0 : errno;
}

// 0 or an errno.
int write_to(const std::string& path, const std::string& text) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd.valid()) return errno;
    return ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0
                                                                                            : errno;
}

bool exists(const std::string& path) {
    return ::access(path.c_str(), F_OK) == 0;
}

// Whether a list of words with any of these separators has this one.
bool has_word(const std::string& list, const std::string& word) {
    std::string plain = list;
    std::replace(plain.begin(), plain.end(), ',', ' ');
    std::istringstream words(plain);
    for (std::string one; words >> one;)
        if (one == word) return true;
    return false;
}

std::string line_of(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

// mountinfo writes blanks and the like as \040.
std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            out.push_back(
                static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8)));
            i += 3;
        } else {
            out.push_back(text[i]);
        }
    }
    return out;
}

struct Mount {
    std::string root;   // the part of the hierarchy that is seen here
    std::string point;  // and where
    std::string type;   // cgroup, cgroup2
    std::string options;
};

std::vector<Mount> cgroup_mounts(const std::string& file) {
    std::vector<Mount> out;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        const std::size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        std::istringstream head(line.substr(0, dash));
        std::istringstream tail(line.substr(dash + 3));
        std::string skipped;
        Mount mount;
        head >> skipped >> skipped >> skipped >> mount.root >> mount.point;
        tail >> mount.type >> skipped >> mount.options;
        mount.root = unescaped(mount.root);
        mount.point = unescaped(mount.point);
        if (mount.type == "cgroup" || mount.type == "cgroup2") out.push_back(std::move(mount));
    }
    return out;
}

// Our own group of the hierarchy that has this controller; of version 2 with an empty name. Empty: not told.
std::string own_path(const std::string& file, const std::string& controller) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string names = line.substr(first + 1, second - first - 1);
        if (controller.empty() ? names.empty() : has_word(names, controller))
            return line.substr(second + 1);
    }
    return "";
}

std::string directory_of(const Mount& mount, const std::string& own) {
    std::string below = own;
    if (mount.root != "/" && below.starts_with(mount.root)) below = below.substr(mount.root.size());
    while (below.ends_with('/')) below.pop_back();
    return mount.point + below;
}

std::vector<std::string> groups_in(const std::string& node) {
    std::vector<std::string> out;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(node, error))
        if (entry.is_directory(error)) out.push_back(entry.path().string());
    return out;
}

void kill_all_in(const std::string& group) {
    std::ifstream in(group + "/cgroup.procs");
    // 0: a process that our pid namespace does not see.
    for (long pid = 0; in >> pid;)
        if (pid > 1 && pid != ::getpid()) ::kill(static_cast<pid_t>(pid), SIGKILL);
}

void pause(int millis) {
    ::poll(nullptr, 0, millis);
}

}  // namespace

Cgroup::~Cgroup() {
    doors_.clear();
    // One that is busy for longer goes with the next sweep.
    for (const std::string& dir : dirs_) {
        owned_->erase(dir);
        for (int tries = 0; remove_(dir) == EBUSY && tries < kQuickTries; ++tries) pause(1);
    }
}

std::vector<int> Cgroup::doors() const {
    std::vector<int> out;
    for (const UniqueFd& door : doors_) out.push_back(door.get());
    return out;
}

bool Cgroup::out_of_memory() const {
    std::ifstream in(oom_file_);
    std::string key;
    std::uint64_t value = 0;
    while (in >> key >> value)
        if (key == "oom_kill" && value > 0) return true;
    return false;
}

Cgroups::Cgroups(Options options) : options_(std::move(options)) {
    if (!options_.make) options_.make = make_directory;
    if (!options_.remove) options_.remove = remove_directory;
    if (!options_.write) options_.write = write_to;
    if (options_.name.empty()) return;
    find();
    std::vector<Hierarchy> usable;
    for (Hierarchy& hierarchy : hierarchies_) {
        const std::string why = open_node(hierarchy);
        if (why.empty()) {
            usable.push_back(std::move(hierarchy));
            continue;
        }
        const char* what = hierarchy.memory && hierarchy.pids ? "memory nor processes"
                           : hierarchy.memory                 ? "memory"
                                                              : "processes";
        missing_.push_back(std::string("no limit on ") + what + ": " + why);
    }
    hierarchies_ = std::move(usable);
}

Cgroups::~Cgroups() {
    for (const Hierarchy& hierarchy : hierarchies_) close_node(hierarchy);
}

void Cgroups::find() {
    for (const char* controller : {"memory", "pids"}) {
        const std::string name = controller;
        Hierarchy found;
        for (const Mount& mount : cgroup_mounts(options_.mounts)) {
            const bool first = mount.type == "cgroup";
            if (first && !has_word(mount.options, name)) continue;
            const std::string own = own_path(options_.own, first ? name : "");
            if (own.empty()) continue;
            const std::string dir = directory_of(mount, own);
            if (!first && !has_word(line_of(dir + "/cgroup.controllers"), name)) continue;
            found.own = dir;
            found.version = first ? 1 : 2;
            break;
        }
        if (found.version == 0) {
            missing_.push_back("no limit on " + std::string(name == "memory" ? name : "processes") +
                               ": no control group of this machine has the controller " + name);
            continue;
        }
        auto same = std::find_if(hierarchies_.begin(),
                                 hierarchies_.end(),
                                 [&](const Hierarchy& one) { return one.own == found.own; });
        if (same == hierarchies_.end()) same = hierarchies_.insert(same, std::move(found));
        (name == "memory" ? same->memory : same->pids) = true;
    }
}

// Empty, or why not.
std::string Cgroups::open_node(Hierarchy& hierarchy) {
    hierarchy.node = hierarchy.own + "/" + options_.name;
    clear_leftovers(hierarchy.node);
    if (hierarchy.version == 2)
        if (std::string why = open_controllers(hierarchy); !why.empty()) return why;
    if (const int error = options_.make(hierarchy.node); error != 0 && error != EEXIST)
        return "cannot make the control group " + hierarchy.node + ": " + words_of(error);
    if (hierarchy.version == 1) return "";
    const std::string control = hierarchy.node + "/cgroup.subtree_control";
    for (const char* name : {"memory", "pids"}) {
        if (name == std::string("memory") ? !hierarchy.memory : !hierarchy.pids) continue;
        if (const int error = options_.write(control, std::string("+") + name); error != 0) {
            std::string why = "cannot hand on the controller " + std::string(name) + " in " +
                              control + ": " + words_of(error);
            close_node(hierarchy);
            return why;
        }
    }
    return "";
}

// Version 2: the groups below our own one get the controllers. Empty, or why not.
std::string Cgroups::open_controllers(Hierarchy& hierarchy) {
    const std::string control = hierarchy.own + "/cgroup.subtree_control";
    const std::string wanted =
        std::string(hierarchy.memory ? "+memory " : "") + (hierarchy.pids ? "+pids" : "");
    int error = options_.write(control, wanted);
    if (error == EBUSY) {
        // It holds processes, which must be us alone.
        const std::string leaf = hierarchy.node + "-supervisor";
        if (const int made = options_.make(leaf); made != 0 && made != EEXIST)
            return "cannot make the control group " + leaf + ": " + words_of(made);
        if (const int moved = options_.write(leaf + "/cgroup.procs", "0"); moved != 0)
            return "cannot move to the control group " + leaf + ": " + words_of(moved);
        hierarchy.supervisor = leaf;
        error = options_.write(control, wanted);
        if (error != 0) close_node(hierarchy);
    }
    if (error == 0) return "";
    return "cannot hand on controllers in " + control + ": " + words_of(error) +
           (error == EBUSY ? " (other processes are in that group)" : "");
}

void Cgroups::clear_leftovers(const std::string& node) const {
    for (int tries = 0; tries < kTries && exists(node); ++tries) {
        const auto groups = groups_in(node);
        for (const std::string& group : groups) kill_all_in(group);
        sweep(node, Sweep::All);
        if (options_.remove(node) == 0 || groups.empty()) return;
        pause(kTryMs);
    }
}

void Cgroups::sweep(const std::string& node, Sweep what) const {
    // One with a process inside says EBUSY and stays.
    for (const std::string& group : groups_in(node))
        if (what == Sweep::All || !owned_->contains(group)) (void)options_.remove(group);
}

void Cgroups::close_node(const Hierarchy& hierarchy) const {
    for (int tries = 0; tries < kTries && exists(hierarchy.node); ++tries) {
        if (tries != 0) pause(kTryMs);
        sweep(hierarchy.node, Sweep::All);
        (void)options_.remove(hierarchy.node);
    }
    if (hierarchy.supervisor.empty()) return;
    // Back to where we were found; what stays behind is empty.
    (void)options_.write(hierarchy.own + "/cgroup.subtree_control", "-memory -pids");
    if (options_.write(hierarchy.own + "/cgroup.procs", "0") == 0)
        (void)options_.remove(hierarchy.supervisor);
}

std::string Cgroups::in_force() const {
    std::string out;
    for (const Hierarchy& one : hierarchies_) {
        if (!out.empty()) out += "; ";
        out += one.memory && one.pids ? "memory and processes"
               : one.memory           ? "memory"
                                      : "processes";
        out += ", cgroup v" + std::to_string(one.version) + " " + one.node;
    }
    return out;
}

void Cgroups::give_up(const std::string& why) {
    for (const Hierarchy& hierarchy : hierarchies_) close_node(hierarchy);
    hierarchies_.clear();
    missing_.push_back("no limit on memory nor processes: " + why);
}

std::unique_ptr<Cgroup> Cgroups::make(const std::string& name, const CgroupLimits& limits) {
    if (hierarchies_.empty()) return nullptr;
    for (const Hierarchy& hierarchy : hierarchies_) sweep(hierarchy.node, Sweep::NobodysOwn);
    auto group = std::make_unique<Cgroup>();
    group->remove_ = options_.remove;
    group->owned_ = owned_;
    group->limits_ = limits;
    std::string leaf = name + "." + std::to_string(++made_);
    std::replace(leaf.begin(), leaf.end(), '/', '-');
    for (const Hierarchy& hierarchy : hierarchies_) {
        const std::string dir = hierarchy.node + "/" + leaf;
        if (const int error = options_.make(dir); error != 0) {
            group->missing_.push_back("no control group " + dir + ": " + words_of(error));
            continue;
        }
        group->dirs_.push_back(dir);
        owned_->insert(dir);
        limit(*group, hierarchy, dir);
        UniqueFd door(::open((dir + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
        if (door.valid())
            group->doors_.push_back(std::move(door));
        else
            group->missing_.push_back("no way into the control group " + dir + ": " +
                                      words_of(errno));
    }
    return group;
}

void Cgroups::limit(Cgroup& group, const Hierarchy& hierarchy, const std::string& dir) const {
    const auto set = [&](const char* file, const std::string& value, const char* what) {
        const std::string path = dir + "/" + file;
        if (const int error = options_.write(path, value); error != 0)
            group.missing_.push_back(std::string("no limit on ") + what + ": writing " + value +
                                     " to " + path + ": " + words_of(error));
    };
    const CgroupLimits& limits = group.limits_;
    if (hierarchy.memory && limits.memory_bytes != 0) {
        const std::string bytes = std::to_string(limits.memory_bytes);
        const bool second = hierarchy.version == 2;
        set(second ? "memory.max" : "memory.limit_in_bytes", bytes, "memory");
        // Missing where the kernel has no swap accounting, and then nothing can be said.
        const char* swap = second ? "memory.swap.max" : "memory.memsw.limit_in_bytes";
        if (exists(dir + "/" + swap)) set(swap, second ? "0" : bytes, "swap");
        // The jail without its plugin, or the other way round, is of no use.
        if (exists(dir + "/memory.oom.group")) set("memory.oom.group", "1", "memory as one");
        group.oom_file_ = dir + (second ? "/memory.events" : "/memory.oom_control");
    }
    if (hierarchy.pids && limits.pids != 0)
        set("pids.max", std::to_string(limits.pids), "processes");
}

}  // namespace hf::process
