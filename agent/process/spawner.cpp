#include "agent/process/spawner.hpp"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "agent/process/cgroup.hpp"
#include "agent/process/launch.hpp"
#include "agent/process/running.hpp"

namespace hf::process {
namespace {

using layout::JailSpec;

// Processes at one time: a node has about ten, a swap doubles one, the builder adds a few. Beyond this somebody loops.
constexpr std::size_t kProcessesMax = 256;

Result<UniqueFd> spec_memfd(const JailSpec& spec) {
    HF_TRY(layout::check_jail_spec(spec));
    const Bytes bytes = layout::encode_jail_spec(spec);
    if (bytes.size() > layout::kJailSpecBytesMax)
        return fail(Code::Invalid, "jail spec of " + spec.name + " is larger than its bound");
    UniqueFd fd(::memfd_create("holdfast-jail-spec", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return fail_errno(errno, "memory for the jail's spec");
    if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        return fail_errno(errno, "writing the jail's spec");
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) !=
        0)
        return fail_errno(errno, "sealing the jail's spec");
    return fd;
}

struct Pair {
    UniqueFd ours;
    UniqueFd theirs;
};

Result<void> set_nonblocking(int fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return fail_errno(errno, "making a descriptor non-blocking");
    return {};
}

Result<Pair> error_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "a pipe for stderr");
    Pair pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
    HF_TRY(set_nonblocking(pair.ours.get()));
    return pair;
}

Result<Pair> report_pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail_errno(errno, "a socket for the jail's report");
    Pair pair{UniqueFd(ends[0]), UniqueFd(ends[1])};
    HF_TRY(set_nonblocking(pair.ours.get()));
    return pair;
}

Cgroups::Options cgroups_named(const std::string& name) {
    Cgroups::Options options;
    options.name = name;
    return options;
}

class JailedProcess final : public Process {
public:
    explicit JailedProcess(std::shared_ptr<Running> running) : running_(std::move(running)) {}
    [[nodiscard]] pid_t pid() const override { return running_->pid(); }
    [[nodiscard]] pid_t jail_pid() const override { return running_->jail_pid(); }
    void kill_now() override { running_->kill_now(); }
    [[nodiscard]] const std::vector<std::string>& missing_walls() const override {
        return running_->missing_walls();
    }

private:
    std::shared_ptr<Running> running_;
};

class JailSpawner final : public Spawner {
public:
    JailSpawner(uv_loop_t* loop, Options options, LineSink lines)
        : loop_(loop),
          options_(std::move(options)),
          lines_(std::move(lines)),
          ability_(find_ability()),
          cgroups_(cgroups_named(options_.cgroup)) {
        try_cgroups_once();
        find_missing_walls();
        // Without it each jail makes its own: slower, no wall less.
        if (ability_.namespaces && !ability_.user_namespace)
            if (auto network = make_empty_network(); network)
                empty_network_ = std::move(network).value();
    }
    ~JailSpawner() override {
        for (auto& [key, running] : running_) running->kill_and_wait();
    }
    JailSpawner(const JailSpawner&) = delete;
    JailSpawner& operator=(const JailSpawner&) = delete;

    Result<std::unique_ptr<Process>> spawn(SpawnSpec spec,
                                           std::function<void(const ExitReport&)> on_exit) override;
    [[nodiscard]] const std::vector<std::string>& missing_walls() const override {
        return missing_walls_;
    }

    [[nodiscard]] std::string cgroups_in_force() const override { return cgroups_.in_force(); }

private:
    void try_cgroups_once();
    void find_missing_walls();
    [[nodiscard]] JailSpec jail_spec(SpawnSpec& spec) const;

    uv_loop_t* loop_;
    Options options_;
    LineSink lines_;
    Ability ability_;
    Cgroups cgroups_;
    UniqueFd empty_network_;
    std::vector<std::string> missing_walls_;
    std::map<std::uint64_t, std::shared_ptr<Running>> running_;
    std::uint64_t next_key_ = 1;
};

// A machine may let us make a group and still let nobody in.
void JailSpawner::try_cgroups_once() {
    const auto group = cgroups_.make("try", {});
    if (!group) return;
    std::string why = group->missing().empty() ? "" : group->missing().front();
    if (auto entered = try_cgroups(group->doors()); why.empty() && !entered)
        why = entered.error().message;
    if (!why.empty()) cgroups_.give_up(why);
}

void JailSpawner::find_missing_walls() {
    for (const std::string& missing : cgroups_.missing()) missing_walls_.push_back(missing);
    if (!ability_.namespaces)
        missing_walls_.push_back(
            "no namespaces: instances see the host's files, processes and network as far as "
            "their uid may (" +
            ability_.reason + ")");
    if (::geteuid() != 0)
        missing_walls_.push_back("all instances share uid " + std::to_string(::geteuid()) +
                                 ": only root can give each its own");
    if (::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
        missing_walls_.push_back(std::string("no Landlock: ") + std::strerror(errno));
}

JailSpec JailSpawner::jail_spec(SpawnSpec& spec) const {
    JailSpec jail;
    jail.name = spec.name;
    jail.profile = std::move(spec.profile);
    jail.binary = std::move(spec.binary);
    jail.args = std::move(spec.args);
    for (Bind& bind : spec.binds)
        jail.binds.push_back(
            {std::move(bind.source), std::move(bind.target), bind.writable, bind.owned});
    jail.uid = ::geteuid() == 0 ? options_.uid_base + spec.uid_index : 0;
    jail.namespaces = ability_.namespaces;
    jail.user_namespace = ability_.user_namespace;
    jail.network = spec.network;
    jail.given_network = !spec.network && empty_network_.valid();
    jail.host_pids = spec.host_pids;
    jail.scratch = spec.scratch;
    jail.control = spec.control.valid();
    jail.address_space_bytes = spec.address_space_bytes;
    jail.cpu_seconds = spec.cpu_seconds;
    jail.file_bytes = spec.file_bytes;
    jail.open_files = spec.open_files;
    return jail;
}

Result<std::unique_ptr<Process>> JailSpawner::spawn(
    SpawnSpec spec, std::function<void(const ExitReport&)> on_exit) {
    if (running_.size() >= kProcessesMax)
        return fail(Code::Busy,
                    "more than " + std::to_string(kProcessesMax) + " processes at once");
    HF_ASSIGN(UniqueFd memfd, spec_memfd(jail_spec(spec)));
    HF_ASSIGN(Pair errors, error_pipe());
    HF_ASSIGN(Pair reports, report_pair());
    LaunchFds fds;
    fds.standard_output =
        spec.standard_output.valid() ? spec.standard_output.get() : errors.theirs.get();
    fds.standard_error = errors.theirs.get();
    fds.control = spec.control.get();
    fds.spec = memfd.get();
    fds.report = reports.theirs.get();
    if (!spec.network) fds.network = empty_network_.get();
    auto cgroup = cgroups_.make(spec.name, {spec.memory_bytes, spec.pids});
    if (cgroup) fds.cgroups = cgroup->doors();
    HF_ASSIGN(Launched launched,
              launch(options_.jail_binary, spec.name, ability_, spec.host_pids, fds));

    Running::Start start;
    start.loop = loop_;
    start.name = std::move(spec.name);
    start.jail = std::move(launched);
    start.report_socket = std::move(reports.ours);
    start.error_pipe = std::move(errors.ours);
    start.own_pids = ability_.namespaces && !spec.host_pids;
    start.lines_per_second = options_.stderr_lines_per_second;
    start.cgroup = std::move(cgroup);
    const std::uint64_t key = next_key_++;
    auto running = std::make_shared<Running>(
        std::move(start), lines_, [this, key, tell = std::move(on_exit)](const ExitReport& report) {
            // Stays alive until the caller's frame is left; the owner's Process may hold it longer.
            const auto node = running_.extract(key);
            if (tell) tell(report);
        });
    if (auto watched = running->watch(loop_, spec.wall_ms); !watched) {
        running->kill_and_wait();
        return watched.error();
    }
    running_.emplace(key, running);
    return std::unique_ptr<Process>(std::make_unique<JailedProcess>(std::move(running)));
}

}  // namespace

Result<std::unique_ptr<Spawner>> Spawner::create(uv_loop_t* loop, Options options, LineSink lines) {
    if (::access(options.jail_binary.c_str(), X_OK) != 0)
        return fail_errno(errno, "the jail's program " + options.jail_binary);
    return std::unique_ptr<Spawner>(
        std::make_unique<JailSpawner>(loop, std::move(options), std::move(lines)));
}

}  // namespace hf::process
