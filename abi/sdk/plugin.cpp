// The command line, the plugin's own loop and the Driver for foreign ones, around a Session.
#include "abi/sdk/plugin.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>

#include "abi/layout/attach.hpp"
#include "abi/sdk/session.hpp"
#include "abi/sdk/start.hpp"

namespace hf::sdk {

namespace {

// Batches between two looks at descriptors while records keep coming: at most some ten milliseconds of a busy link.
constexpr int kBatchesPerPoll = 64;
constexpr int kExitUsage = 2;

// What the command line asks for: go on, or end with `code`.
struct Start {
    bool go = false;
    int code = 0;
};

Start refuse(const Identity& identity, const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", identity.name.c_str(), why.c_str());
    return {false, kExitUsage};
}

bool is_control_socket(int fd) {
    int type = 0;
    socklen_t bytes = sizeof(type);
    return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

std::string kind_name(abi::Kind kind) {
    std::string name = abi::EnumNameKind(kind);
    for (char& c : name)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    return name;
}

Start read_arguments(const Identity& identity, int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--version") {
            std::printf("%s %s\n", identity.name.c_str(), identity.version.c_str());
            return {false, 0};
        }
        if (argument == "--help") {
            std::printf("%s: a %s plugin of holdfast. holdfastd starts it; agent.toml says how.\n",
                        identity.name.c_str(),
                        kind_name(identity.kind).c_str());
            return {false, 0};
        }
        if (argument == "--kind") {
            const std::string_view kind = i + 1 < argc ? argv[++i] : "";
            if (kind != kind_name(identity.kind))
                return refuse(identity,
                              "--kind " + std::string(kind) + " is not its kind, which is " +
                                  kind_name(identity.kind));
            continue;
        }
        return refuse(identity,
                      "unknown argument " + std::string(argument) +
                          "; it knows --kind, --version and --help");
    }
    if (!is_control_socket(layout::kControlFd))
        return refuse(
            identity,
            "is started by holdfastd and not by hand: descriptor 3 is no link to a supervisor");
    return {true, 0};
}

Result<std::unique_ptr<Session>> attach_session(Plugin& plugin, const Identity& identity) {
    // Nothing this process starts may hold the link open.
    (void)::fcntl(layout::kControlFd, F_SETFD, FD_CLOEXEC);
    return Session::attach(plugin, identity, UniqueFd(layout::kControlFd));
}

class SessionDriver final : public Driver {
public:
    explicit SessionDriver(std::unique_ptr<Session> session) : session_(std::move(session)) {}
    [[nodiscard]] int fd() const override { return session_->poll_fd(); }
    void step() override {
        session_->poll(0);
        session_->drain();
    }
    [[nodiscard]] bool before_block() override { return session_->before_block(); }
    [[nodiscard]] bool should_exit() const override { return session_->should_exit(); }
    [[nodiscard]] int exit_code() const override { return session_->exit_code(); }
    [[nodiscard]] Context& context() override { return *session_; }

private:
    std::unique_ptr<Session> session_;
};

}  // namespace

std::unique_ptr<Session> start_session(Plugin& plugin, int argc, char** argv, int& exit_code) {
    const Identity identity = plugin.identity();
    const Start start = read_arguments(identity, argc, argv);
    exit_code = start.code;
    if (!start.go) return nullptr;
    auto attached = attach_session(plugin, identity);
    if (attached) return std::move(attached).value();
    exit_code = attached.error().code == Code::PeerGone ? 0 : 1;
    if (exit_code != 0)
        std::fprintf(stderr, "%s: %s\n", identity.name.c_str(), attached.error().message.c_str());
    return nullptr;
}

int run_plugin(Plugin& plugin, int argc, char** argv) {
    int code = 0;
    const std::unique_ptr<Session> session = start_session(plugin, argc, argv, code);
    if (!session) return code;
    int batches = 0;
    while (!session->should_exit()) {
        if (!session->work() && session->before_block()) {
            session->poll(session->wait_ms());
            batches = 0;
        } else if (++batches >= kBatchesPerPoll) {
            session->poll(0);
            batches = 0;
        }
        session->drain();
    }
    return session->exit_code();
}

Result<std::unique_ptr<Driver>> Driver::attach(Plugin& plugin, int argc, char** argv) {
    const Identity identity = plugin.identity();
    const Start start = read_arguments(identity, argc, argv);
    // Help, version and usage have said their sentence: there is nothing for the caller to add.
    if (!start.go) std::exit(start.code);
    HF_ASSIGN(std::unique_ptr<Session> session, attach_session(plugin, identity));
    return std::unique_ptr<Driver>(new SessionDriver(std::move(session)));
}

}  // namespace hf::sdk
