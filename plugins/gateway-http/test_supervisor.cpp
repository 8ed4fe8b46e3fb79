#include "plugins/gateway-http/test_supervisor.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "abi/base/bytes.hpp"
#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/ring/bodies.hpp"

namespace hf::gateway {

namespace {

constexpr std::uint64_t kGeneration = 7;
constexpr std::uint64_t kConfigureId = 1;
constexpr std::size_t kBudget = 256;
constexpr int kPatienceMs = 10'000;  // sanitizer builds on a busy machine
constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::string_view kHundred =
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123"
    "456789";

BytesView view_of(const flatbuffers::Vector<std::uint8_t>& bytes) {
    return {bytes.data(), bytes.size()};
}

// `port` 0: the system chooses, and it is told.
UniqueFd listen_on(std::uint16_t& port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int one = 1;
    (void)::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    // SAFETY: the socket calls take any address by its common head.
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    HF_CHECK(::bind(fd.get(), generic, size) == 0 && ::listen(fd.get(), 4096) == 0 &&
                 ::getsockname(fd.get(), generic, &size) == 0,
             "a test needs a loopback port");
    port = ntohs(address.sin_port);
    return fd;
}

}  // namespace

Bytes one_header(std::string_view name, std::string_view value) {
    Bytes bytes;
    FlatWriter writer(bytes);
    writer.field(name);
    writer.field(value);
    return bytes;
}

std::string describe_event(BytesView event, std::string_view& body) {
    FlatReader reader(event);
    std::string_view method;
    std::string_view url;
    std::uint32_t count = 0;
    HF_CHECK(reader.field(method) && reader.field(url) && reader.u32(count),
             "the event is well-formed");
    std::string text = std::string(method) + " " + std::string(url) + "|";
    for (std::uint32_t i = 0; i < count; ++i) {
        std::string_view name;
        std::string_view value;
        HF_CHECK(reader.field(name) && reader.field(value), "the event is well-formed");
        text += std::string(name) + "=" + std::string(value) + "|";
    }
    HF_CHECK(reader.field(body) && reader.done(), "the event is well-formed");
    return text + std::string(body);
}

TestSupervisor::TestSupervisor(const Options& options) : options_(options) {
    if (const char* const other = std::getenv("HOLDFAST_TEST_GATEWAY")) options_.binary = other;
    bell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    port_ = options.port;
    listener_ = listen_on(port_);
    std::vector<std::pair<std::string, int>> passed{{"listener0", listener_.get()}};
    if (options.second_listener) {
        cluster_listener_ = listen_on(cluster_port_);
        passed.emplace_back("listener1", cluster_listener_.get());
    }
    auto created = port::Channel::create(pool_, options.sizes, kGeneration, abi::Kind::Gateway);
    HF_CHECK(created.ok(), "a test needs a link");
    channel_ = std::move(created).value();
    child_ = rig::Child(options_.binary, {"--kind", "gateway"}, channel_->take_plugin_end());
    HF_CHECK(channel_->attach(passed).ok(), "a test needs a link");
    thread_ = std::thread([this] { run(); });
    wait_until([this](const Seen&) { return ready_ || !error_.empty(); });
}

TestSupervisor::~TestSupervisor() {
    ends_ = true;
    command([] {});
    thread_.join();
}

void TestSupervisor::run() {
    while (!ends_) {
        const auto more =
            channel_->drain(kBudget, [this](const port::Received& received) { handle(received); });
        std::vector<std::function<void()>> commands;
        {
            const std::lock_guard lock(mutex_);
            if (!more.ok()) {
                seen_.fault = more.error().message;
                if (error_.empty()) error_ = seen_.fault;
            }
            commands.swap(commands_);
            ++seen_.turns;
        }
        for (const auto& command : commands) command();
        changed_.notify_all();
        channel_->flush();
        if ((more.ok() && *more) || !channel_->before_block()) continue;
        std::array<pollfd, 3> fds{pollfd{channel_->bell_fd(), POLLIN, 0},
                                  pollfd{bell_.get(), POLLIN, 0},
                                  pollfd{channel_->control_fd(), POLLIN, 0}};
        (void)::poll(fds.data(), fds.size(), -1);
        std::uint64_t count = 0;
        if ((fds[1].revents & POLLIN) != 0) (void)!::read(bell_.get(), &count, sizeof(count));
        if ((fds[2].revents & POLLHUP) == 0) continue;
        (void)channel_->drain_final([this](const port::Received& received) { handle(received); });
        const std::lock_guard lock(mutex_);
        if (error_.empty()) error_ = "the process ended";
        changed_.notify_all();
        return;
    }
}

void TestSupervisor::handle(const port::Received& received) {
    if (received.type == abi::Body::Greet) {
        auto& fbb = channel_->builder();
        channel_->notify(abi::CreateWelcome(fbb, 0, kGeneration, fbb.CreateString(options_.node)));
        auto& again = channel_->builder();
        std::vector<flatbuffers::Offset<abi::Setting>> settings;
        for (const auto& [key, value] : options_.settings)
            settings.push_back(abi::CreateSettingDirect(again, key.c_str(), value.c_str()));
        const auto list = again.CreateVector(settings);
        const auto tenant = again.CreateString("default");
        const auto app = again.CreateString("app");
        const std::uint16_t listeners = options_.second_listener ? 2 : 1;
        channel_->request(kConfigureId,
                          abi::CreateConfigure(again, 0, list, 42, tenant, app, 0, listeners),
                          0,
                          0);
        return;
    }
    if (received.type == abi::Body::Request) {
        {
            const std::lock_guard lock(mutex_);
            ++seen_.requests;
            seen_.deadline_ns = received.deadline_ns;
            seen_.durable = received.as<abi::Request>().durable();
            if (received.attached) seen_.bodies.push_back(received.attached->bytes());
            if (const auto* origin = received.as<abi::Request>().origin(); origin != nullptr)
                seen_.origins.push_back(describe_origin(*origin));
        }
        return handle_request(received.req_id, received.as<abi::Request>(), received.attached);
    }
    if (received.type == abi::Body::SocketOpened)
        return handle_opened(received.req_id, received.as<abi::SocketOpened>());
    if (received.type == abi::Body::SocketMessage)
        return handle_message(received.req_id, received.as<abi::SocketMessage>());
    if (received.type == abi::Body::SocketClosed)
        return handle_closed(received.as<abi::SocketClosed>());
    if (received.type == abi::Body::PeerReplied) return handle_peer_replied(received);
    const std::lock_guard lock(mutex_);
    switch (received.type) {
        case abi::Body::Ready: {
            const auto& ready = received.as<abi::Ready>();
            if (ready.error() != nullptr) error_ = ready.error()->str();
            ready_ = ready.ok();
            return;
        }
        case abi::Body::Query: {
            ++seen_.queries;
            auto& fbb = channel_->builder();
            const std::string page = received.as<abi::Query>().page()->str();
            const auto type = fbb.CreateString("text/plain");
            const auto body = fbb.CreateVector(as_bytes(page).data(), page.size());
            channel_->reply(received.req_id, abi::CreateQueried(fbb, 200, type, body));
            return;
        }
        case abi::Body::Cancelled:
            ++seen_.cancelled;
            return;
        case abi::Body::BodyReleased:
            ++seen_.released;
            return;
        case abi::Body::Log:
            seen_.logs.push_back(received.as<abi::Log>().text()->str());
            return;
        case abi::Body::Counters:
            for (const abi::Counter* counter : *received.as<abi::Counters>().values())
                seen_.counters[counter->name()->str()] = counter->value();
            return;
        default:
            return;
    }
}

void TestSupervisor::reply(std::uint64_t id, unsigned status, BytesView headers, BytesView body) {
    auto& fbb = channel_->builder();
    const auto header_bytes = fbb.CreateVector(headers.data(), headers.size());
    const auto body_bytes = fbb.CreateVector(body.data(), body.size());
    const auto sent = channel_->reply(id,
                                      abi::CreateReply(fbb,
                                                       static_cast<std::uint16_t>(status),
                                                       abi::ReplyReason::Ok,
                                                       0,
                                                       header_bytes,
                                                       body_bytes));
    HF_CHECK(sent == port::Sent::Now || sent == port::Sent::Queued, "a reply fits");
}

void TestSupervisor::reply_large(std::uint64_t id, std::shared_ptr<const port::SealedBody> body) {
    auto& fbb = channel_->builder();
    const std::uint64_t bytes = body->bytes();
    const std::uint64_t token = channel_->carry(std::move(body));
    const auto sent = channel_->reply(
        id, abi::CreateReply(fbb, 200, abi::ReplyReason::Ok, 0, 0, 0, 0, token, bytes));
    HF_CHECK(sent == port::Sent::Now || sent == port::Sent::Queued, "a reply fits");
}

void TestSupervisor::handle_request(std::uint64_t id,
                                    const abi::Request& request,
                                    const std::shared_ptr<const port::SealedBody>& attached) {
    const std::string class_name = request.class_name()->str();
    // Such an event is no HTTP.
    if (const auto* origin = request.origin();
        origin != nullptr && origin->ask() != abi::PeerAsk::Request && class_name == "echo")
        return reply(id, 0, {}, view_of(*request.event()));
    if (class_name == "body" && attached) return reply_large(id, attached);
    if (class_name == "large") {
        const auto bytes = static_cast<std::size_t>(std::atoll(request.name()->c_str()));
        auto file = ring::make_body("hf-test-answer");
        std::string block;
        for (std::size_t i = 0; i < std::size_t{251} * 1024; ++i) block += pattern(i);
        for (std::size_t at = 0; at < bytes; at += block.size())
            HF_CHECK(
                ring::append_body(file->get(), block.data(), std::min(block.size(), bytes - at))
                    .ok(),
                "a test needs memory");
        HF_CHECK(ring::seal_body(file->get()).ok(), "a test's file can be sealed");
        return reply_large(
            id, std::make_shared<const port::SealedBody>(std::move(file).value(), bytes));
    }
    answer_as(request.class_name()->str(),
              request.name()->str(),
              id,
              view_of(*request.event()),
              request.client()->string_view());
}

void TestSupervisor::answer_as(const std::string& class_name,
                               const std::string& name,
                               std::uint64_t id,
                               BytesView event,
                               std::string_view client) {
    static const Bytes kType = one_header("Content-Type", "text/plain");
    if (class_name == "fixed") return reply(id, 200, kType, as_bytes(kHundred));
    std::string_view body;
    const std::string text = describe_event(event, body);
    if (class_name == "echo") return reply(id, 200, kType, as_bytes(text));
    if (class_name == "body") return reply(id, 200, kType, as_bytes(body));
    if (class_name == "status")
        return reply(id, static_cast<unsigned>(std::atoi(name.c_str())), kType, as_bytes(kHundred));
    if (class_name == "header") return reply(id, 200, one_header("x", name), {});
    if (class_name == "size")
        return reply(id,
                     200,
                     kType,
                     as_bytes(std::string(static_cast<std::size_t>(std::atoi(name.c_str())), 's')));
    if (class_name == "hold") {
        const std::lock_guard lock(mutex_);
        held_.push_back(id);
        seen_.held = held_.size();
        seen_.client = client;
        return;
    }
    auto& fbb = channel_->builder();
    const auto reason = static_cast<abi::ReplyReason>(std::atoi(name.c_str()));
    const auto why = fbb.CreateString("why: " + name);
    channel_->reply(id, abi::CreateReply(fbb, 0, reason, 1500, 0, 0, why));
}

void TestSupervisor::command(std::function<void()> what) {
    {
        const std::lock_guard lock(mutex_);
        commands_.push_back(std::move(what));
    }
    const std::uint64_t one = 1;
    (void)!::write(bell_.get(), &one, sizeof(one));
}

TestSupervisor::Seen TestSupervisor::seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
}

bool TestSupervisor::wait_until(const std::function<bool(const Seen&)>& done,
                                std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return done(seen_); });
}

void TestSupervisor::release() {
    command([this] {
        std::vector<std::uint64_t> held;
        std::vector<std::uint64_t> late;
        {
            const std::lock_guard lock(mutex_);
            held.swap(held_);
            late.swap(late_);
            seen_.held = 0;
            seen_.sockets += late.size();
        }
        for (const std::uint64_t id : held) reply(id, 200, {}, as_bytes("released"));
        for (const std::uint64_t id : late) reply(id, kSwitching, {}, {});
    });
}

void TestSupervisor::shed(std::int64_t within_ms) {
    command([this, within_ms] {
        const std::int64_t deadline = within_ms == 0 ? 0 : monotonic_ns() + within_ms * kNsPerMs;
        channel_->notify(abi::CreateShed(channel_->builder(), deadline));
    });
}

void TestSupervisor::stop() {
    command([this] { channel_->notify(abi::CreateStop(channel_->builder())); });
}

std::uint64_t TestSupervisor::memory_kib() const {
    std::ifstream status("/proc/" + std::to_string(child_.pid()) + "/status");
    std::string word;
    std::uint64_t value = 0;
    while (status >> word)
        if (word == "VmRSS:") status >> value;
    return value;
}

bool TestSupervisor::keeps_less_than(std::uint64_t kib) const {
#if defined(__SANITIZE_ADDRESS__)
    std::printf("skipped: the sanitizer keeps what was freed, %llu KiB say nothing\n",
                static_cast<unsigned long long>(memory_kib()));
    return kib != 0;
#else
    return memory_kib() < kib;
#endif
}

int TestSupervisor::exit_code() {
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, child_.pid(), 0)));
    pollfd ended{process.get(), POLLIN, 0};
    if (::poll(&ended, 1, kPatienceMs) != 1) return -1;
    siginfo_t info{};
    // Left to be reaped by its owner.
    if (::waitid(P_PID, static_cast<id_t>(child_.pid()), &info, WEXITED | WNOWAIT) != 0) return -1;
    return info.si_code == CLD_EXITED ? info.si_status : -1;
}

}  // namespace hf::gateway
