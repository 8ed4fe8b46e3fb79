#include "plugins/gateway-http/gateway.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "abi/base/unique_fd.hpp"

namespace hf::gateway {

namespace {

// Descriptors that are no connections: std streams, the link's and the loop's (about ten), two for each listener; and the
// large bodies of both ways.
constexpr std::size_t kOtherDescriptors = 32 + 2 * kLargeBodiesMax;
constexpr std::int64_t kNsPerMs = 1'000'000;
// Of the descriptors at most the fourth part is kept for connections to other nodes.
constexpr std::size_t kPeersShare = 4;

template <class Handle>
Gateway& owner(Handle* handle) {
    return *static_cast<Gateway*>(handle->data);
}

Result<Settings> settings_of(const abi::Configure& configure) {
    std::vector<std::pair<std::string_view, std::string_view>> given;
    if (configure.settings() != nullptr)
        for (const abi::Setting* const setting : *configure.settings())
            given.emplace_back(setting->key()->string_view(), setting->value()->string_view());
    return read_settings(given);
}

// A client over the process's limit would be dropped without a word; better to stop at a count that can be told.
void fit_descriptors(Settings& settings, sdk::Context& context) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const std::size_t peers =
        settings.peer_secret_file.empty()
            ? 0
            : std::min<std::size_t>(PeerClient::kPeersMax * settings.peer_connections,
                                    limit.rlim_cur / kPeersShare);
    const std::size_t others = kOtherDescriptors + peers;
    const std::size_t room = limit.rlim_cur > others + 1 ? limit.rlim_cur - others : 1;
    if (room >= settings.connections_max) return;
    context.log(abi::LogLevel::Warn,
                "connections_max = " + std::to_string(settings.connections_max) + " is more than " +
                    std::to_string(limit.rlim_cur) + " descriptors allow; using " +
                    std::to_string(room));
    settings.connections_max = room;
}

// The file that `setting` names: by the descriptor of the setting's name where the supervisor passed one (it may read what
// this process may not), else by its path.
Result<std::string> read_pem(std::string_view setting,
                             const std::string& path,
                             sdk::Context& context) {
    const int passed = context.passed_fd(setting);
    UniqueFd opened;
    if (passed < 0) {
        opened = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!opened.valid())
            return fail_errno(errno, "cannot open " + std::string(setting) + " = " + path);
    }
    const int fd = passed < 0 ? opened.get() : passed;
    std::string text(kPemBytesMax + 1, '\0');
    std::size_t size = 0;
    // The descriptor's place in the file is shared with other generations.
    for (ssize_t got = 1; got > 0 && size < text.size(); size += static_cast<std::size_t>(got)) {
        got = ::pread(fd, text.data() + size, text.size() - size, static_cast<off_t>(size));
        if (got < 0) return fail_errno(errno, "cannot read " + std::string(setting));
    }
    if (size > kPemBytesMax)
        return fail(
            Code::Invalid,
            std::string(setting) + " is larger than " + std::to_string(kPemBytesMax) + " bytes");
    text.resize(size);
    return text;
}

Result<std::string> secret_of(const Settings& settings, sdk::Context& context) {
    if (settings.peer_secret_file.empty()) return std::string();
    HF_ASSIGN(std::string text, read_pem("peer_secret_file", settings.peer_secret_file, context));
    auto secret = read_secret(text);
    ::explicit_bzero(text.data(), text.size());
    return secret;
}

// The second socket is for other nodes alone, where there is one for them.
DoorFor door_of(const Settings& settings, unsigned listener) {
    if (settings.cluster_listen.empty()) return DoorFor::Everybody;
    return listener == 1 ? DoorFor::Nodes : DoorFor::Clients;
}

Result<std::unique_ptr<TlsKeys>> tls_of(const Settings& settings, sdk::Context& context) {
    if (settings.tls_certificate.empty()) return std::unique_ptr<TlsKeys>();
    HF_ASSIGN(const std::string certificate,
              read_pem("tls_certificate", settings.tls_certificate, context));
    HF_ASSIGN(std::string key, read_pem("tls_key", settings.tls_key, context));
    auto made = TlsKeys::create(certificate, key);
    ::explicit_bzero(key.data(), key.size());
    return made;
}

}  // namespace

Gateway::Gateway() {
    HF_CHECK(uv_loop_init(&loop_) == 0, "a loop needs epoll and one descriptor");
}

sdk::Identity Gateway::identity() const {
    sdk::Identity identity;
    identity.kind = abi::Kind::Gateway;
    identity.name = "gateway-http";
    identity.version = HF_VERSION;
    return identity;
}

Result<void> Gateway::configure(const abi::Configure& configure, sdk::Context& context) {
    context_ = &context;
    HF_ASSIGN(Settings settings, settings_of(configure));
    fit_descriptors(settings, context);
    if (configure.listeners() == 0)
        return fail(Code::Invalid, "gateway-http was given no socket to listen on; set `listen`");
    if (!settings.cluster_listen.empty() && configure.listeners() < 2)
        return fail(Code::Invalid,
                    "cluster_listen is set, and the supervisor passed no second socket for it");
    std::vector<Listening> sockets;
    for (unsigned i = 0; i < configure.listeners(); ++i) {
        const std::string name = "listener" + std::to_string(i);
        const int fd = context.passed_fd(name);
        if (fd < 0)
            return fail(Code::NotFound, "the supervisor passed no descriptor named " + name);
        sockets.push_back({fd, door_of(settings, i)});
    }
    PeerDoor::Facts facts;
    HF_ASSIGN(facts.secret, secret_of(settings, context));
    facts.node = context.node_id();
    if (configure.tenant() != nullptr) facts.tenant = configure.tenant()->str();
    if (configure.app() != nullptr) facts.app = configure.app()->str();
    facts.started_ms = wall_ms();
    HF_ASSIGN(std::unique_ptr<TlsKeys> tls, tls_of(settings, context));
    server_ = std::make_unique<Server>(loop_, settings, facts, std::move(tls), context);
    if (!facts.secret.empty()) HF_TRY(open_peers(settings, facts, context));
    return server_->listen(sockets);
}

Result<void> Gateway::open_peers(const Settings& settings,
                                 const PeerDoor::Facts& facts,
                                 sdk::Context& context) {
    PeerClient::Options options;
    options.secret = facts.secret;
    options.tenant = facts.tenant;
    options.app = facts.app;
    options.connections_max = settings.peer_connections;
    options.connect_timeout_ms = settings.peer_connect_timeout_ms;
    HF_ASSIGN(
        peers_,
        PeerClient::create(std::move(options), server_->requests(), server_->counters(), context));
    peers_poll_.data = this;
    if (const int error = uv_poll_init(&loop_, &peers_poll_, peers_->fd()); error != 0)
        return fail_errno(-error, "watching connections to other nodes");
    (void)uv_poll_start(&peers_poll_, UV_READABLE, [](uv_poll_t* handle, int, int) {
        owner(handle).peers_->step();
    });
    return {};
}

void Gateway::handle(const sdk::Message& message) {
    switch (message.type) {
        case abi::Body::Reply:
        case abi::Body::Queried:
        case abi::Body::SocketTaken:
            return server_->answer(message);
        case abi::Body::PeerCall:
            return call_peer(message);
        case abi::Body::SocketSend:
            return server_->socket_send(message.as<abi::SocketSend>());
        case abi::Body::CloseSocket:
            return server_->socket_close(message.as<abi::CloseSocket>());
        default:
            return;
    }
}

void Gateway::call_peer(const sdk::Message& message) {
    if (peers_ != nullptr) return peers_->call(message);
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const auto text =
        builder.CreateString("this node has no peer_secret_file, and calls no others");
    context_->reply(
        message.req_id,
        abi::CreatePeerReplied(
            builder, abi::PeerOutcome::NotSent, 0, abi::ReplyReason::Ok, 0, 0, 0, text));
}

void Gateway::batch_done() {
    server_->batch_done();
}

void Gateway::shed_started(std::int64_t deadline_ns) {
    shedding_ = true;
    if (server_ != nullptr) server_->shed(deadline_ns);
    if (deadline_ns == 0) return;
    // The SDK looks at the deadline only when it is stepped.
    const std::int64_t left_ms =
        std::max<std::int64_t>(0, deadline_ns - monotonic_ns()) / kNsPerMs + 1;
    uv_update_time(&loop_);
    (void)uv_timer_start(
        &shed_end_,
        [](uv_timer_t* timer) { owner(timer).step(); },
        static_cast<std::uint64_t>(left_ms),
        0);
}

bool Gateway::shed_done() {
    return server_ == nullptr || server_->is_empty();
}

void Gateway::step() {
    more_ = false;
    driver_->step();
}

void Gateway::before_block() {
    if (server_ != nullptr) server_->before_block();
    // The last connection may have gone without a word from the supervisor.
    if (shedding_ && shed_done()) step();
    if (driver_->should_exit()) return uv_stop(&loop_);
    more_ = !driver_->before_block();
    if (more_)
        (void)uv_idle_start(&busy_, [](uv_idle_t*) {});
    else
        (void)uv_idle_stop(&busy_);
}

int Gateway::run(sdk::Driver& driver) {
    driver_ = &driver;
    (void)uv_prepare_init(&loop_, &prepare_);
    (void)uv_check_init(&loop_, &check_);
    (void)uv_idle_init(&loop_, &busy_);
    (void)uv_timer_init(&loop_, &shed_end_);
    prepare_.data = check_.data = shed_end_.data = link_.data = this;
    if (uv_poll_init(&loop_, &link_, driver.fd()) != 0) return 1;
    (void)uv_poll_start(
        &link_, UV_READABLE, [](uv_poll_t* handle, int, int) { owner(handle).step(); });
    (void)uv_prepare_start(&prepare_, [](uv_prepare_t* handle) { owner(handle).before_block(); });
    (void)uv_check_start(&check_, [](uv_check_t* handle) {
        if (owner(handle).more_) owner(handle).step();
    });
    while (!driver.should_exit()) (void)uv_run(&loop_, UV_RUN_DEFAULT);
    // After Stop or a late shed: the last words, as far as the kernel takes them at once.
    if (server_ != nullptr) server_->give_up();
    return driver.exit_code();
}

}  // namespace hf::gateway
