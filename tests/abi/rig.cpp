#include "tests/abi/rig.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"

namespace hf::rig {

namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::size_t kDrainBudget = 256;

}  // namespace

Child::Child(const std::string& binary,
             const std::vector<std::string>& args,
             UniqueFd control,
             int error_fd) {
    std::vector<char*> argv{const_cast<char*>(binary.c_str())};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    // dup2 onto the same number would keep close-on-exec; the socket is moved away from 3 first.
    const UniqueFd high(control.valid() ? ::fcntl(control.get(), F_DUPFD_CLOEXEC, 10) : -1);
    if (high.valid())
        ::posix_spawn_file_actions_adddup2(&actions, high.get(), 3);
    else
        ::posix_spawn_file_actions_addclose(&actions, 3);
    if (error_fd >= 0) ::posix_spawn_file_actions_adddup2(&actions, error_fd, 2);
    const int failed =
        ::posix_spawn(&pid_, binary.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    HF_CHECK(failed == 0, "the plugin binary of the test cannot be started");
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

Child& Child::operator=(Child&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
}

Child::~Child() {
    if (pid_ == 0) return;
    signal(SIGKILL);
    reap();
}

void Child::signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
}

int Child::reap() {
    int status = 0;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
}

std::string read_all(int fd) {
    std::string out;
    std::array<char, 4096> part{};
    for (ssize_t got = 0; (got = ::read(fd, part.data(), part.size())) > 0;)
        out.append(part.data(), static_cast<std::size_t>(got));
    return out;
}

Pipe make_pipe() {
    std::array<int, 2> ends{};
    HF_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, "a pipe for the test");
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool wait_for(port::Channel& channel, int timeout_ms) {
    std::array<pollfd, 2> fds{pollfd{channel.bell_fd(), POLLIN, 0},
                              pollfd{channel.control_fd(), POLLIN, 0}};
    return ::poll(fds.data(), fds.size(), timeout_ms) > 0;
}

bool run_until(port::Channel& channel,
               const Handler& handler,
               const std::function<bool()>& done,
               int timeout_ms,
               std::string* fault) {
    const std::int64_t deadline = monotonic_ns() + timeout_ms * kNsPerMs;
    for (;;) {
        const auto more = channel.drain(kDrainBudget, handler);
        if (!more) {
            if (fault != nullptr) *fault = more.error().message;
            return false;
        }
        channel.flush();
        if (done()) return true;
        const std::int64_t left = (deadline - monotonic_ns()) / kNsPerMs;
        if (left <= 0) return false;
        if (!*more && channel.before_block()) {
            std::array<pollfd, 2> fds{pollfd{channel.bell_fd(), POLLIN, 0},
                                      pollfd{channel.control_fd(), POLLIN, 0}};
            (void)::poll(fds.data(), fds.size(), static_cast<int>(left));
            if ((fds[1].revents & POLLHUP) != 0) {
                (void)channel.drain_final(handler);
                return done();
            }
        }
    }
}

Started start(port::SegmentPool& pool,
              const port::ChannelSizes& sizes,
              std::uint64_t generation,
              abi::Kind kind,
              const std::string& binary,
              const std::vector<std::string>& args,
              const Setup& setup) {
    Started out;
    auto created = port::Channel::create(pool, sizes, generation, kind);
    HF_CHECK(created.ok(), "a link for the test cannot be made");
    out.channel = std::move(created).value();
    out.child = Child(binary, args, out.channel->take_plugin_end(), setup.error_fd);
    const auto attached = out.channel->attach(setup.extra);
    HF_CHECK(attached.ok(), "the attach message of the test cannot be sent");
    port::Channel& channel = *out.channel;
    bool answered = false;
    const auto handler = [&](const port::Received& received) {
        if (received.type == abi::Body::Greet) {
            auto& fbb = channel.builder();
            const auto node = fbb.CreateString("test-node");
            channel.notify(abi::CreateWelcome(fbb, 0, generation, node));
            auto& again = channel.builder();
            std::vector<flatbuffers::Offset<abi::Setting>> settings;
            for (const auto& [key, value] : setup.settings)
                settings.push_back(abi::CreateSettingDirect(again, key.c_str(), value.c_str()));
            const auto list = again.CreateVector(settings);
            const auto policy = again.CreateString(setup.policy);
            channel.request(kConfigureId, abi::CreateConfigure(again, policy, list, 42), 0, 0);
        } else if (received.type == abi::Body::Ready) {
            const auto& ready = received.as<abi::Ready>();
            answered = true;
            out.ready = ready.ok();
            if (ready.error() != nullptr) out.error = ready.error()->str();
        }
    };
    constexpr int kStartMs = 20'000;  // generous: sanitizer builds on a busy machine
    std::string fault;
    if (!run_until(
            channel, handler, [&] { return answered; }, kStartMs, &fault) &&
        !answered)
        out.error = fault.empty() ? "no Ready" : fault;
    return out;
}

}  // namespace hf::rig
