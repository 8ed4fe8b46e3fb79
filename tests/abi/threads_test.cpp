// Both ends of a link as two threads of one process, so that the thread sanitizer sees every access that the two
// processes of a real link make. A gateway's traffic: it asks, it is asked, it logs, it is posted to.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <string>
#include <thread>

#include "abi/base/bytes.hpp"
#include "abi/base/check.hpp"
#include "abi/sdk/lockdown.hpp"
#include "abi/sdk/session.hpp"
#include "agent/port/channel.hpp"

namespace hf::sdk {

// The plugin is a thread of the test: a filter would catch the test as well.
Result<void> lock_down(abi::Kind kind, const char* profile, volatile unsigned* report) {
    (void)kind;
    (void)profile;
    (void)report;
    return {};
}

}  // namespace hf::sdk

using namespace hf;

namespace {

constexpr port::ChannelSizes kSizes{1U << 20U, 1U << 20U};
constexpr std::uint64_t kConfigureId = 1ULL << 62U;
constexpr std::uint64_t kRequests = 5000;

std::string name_of(std::uint64_t id) {
    return "n" + std::to_string(id) + std::string(static_cast<std::size_t>(id * 131 % 3000), 'x');
}

// Asks kRequests times as fast as its credit lets it, and answers Listen meanwhile.
class Asker final : public sdk::Plugin {
public:
    [[nodiscard]] sdk::Identity identity() const override {
        return {abi::Kind::Gateway, "asker", "1", {}, {}};
    }
    Result<void> configure(const abi::Configure& configure, sdk::Context& context) override {
        (void)configure;
        context_ = &context;
        shared_ = &context;
        return {};
    }
    void handle(const sdk::Message& message) override {
        if (message.type == abi::Body::Listen) {
            auto& fbb = context_->builder();
            context_->reply(message.req_id,
                            abi::CreateListening(fbb, message.as<abi::Listen>().listener(), true));
            ask();
            return;
        }
        if (message.type != abi::Body::Reply) return;
        const auto& reply = message.as<abi::Reply>();
        wrong_ =
            wrong_ || open_.empty() || open_.front().first != message.reply_to ||
            reply.body() == nullptr ||
            as_text({reply.body()->data(), reply.body()->size()}) != name_of(open_.front().second);
        if (!open_.empty()) open_.pop_front();
        ++answered;
    }
    void batch_done() override {
        if (asked_ > 0) ask();
    }
    std::atomic<std::uint64_t> answered{0};
    std::atomic<std::uint64_t> busy{0};
    std::atomic<std::uint64_t> posted{0};
    [[nodiscard]] bool wrong() const { return wrong_; }
    sdk::Context* context() { return shared_; }

private:
    void ask() {
        while (asked_ < kRequests) {
            auto& fbb = context_->builder();
            const auto name = fbb.CreateString(name_of(asked_ + 1));
            const auto event = fbb.CreateVector(Bytes(16, 1));
            const auto id = context_->request(abi::CreateRequest(fbb, name, name, event), 0);
            if (!id) {
                ++busy;
                return;
            }
            open_.emplace_back(*id, ++asked_);
            if (asked_ % 64 == 0)
                context_->log(abi::LogLevel::Info, "asked " + std::to_string(asked_));
        }
    }
    sdk::Context* context_ = nullptr;
    std::atomic<sdk::Context*> shared_{nullptr};  // for the other threads
    std::uint64_t asked_ = 0;
    std::deque<std::pair<std::uint64_t, std::uint64_t>> open_;
    bool wrong_ = false;
};

void run_session(sdk::Session& session) {
    while (!session.should_exit()) {
        if (session.before_block()) session.poll(session.wait_ms());
        session.drain();
    }
}

}  // namespace

TEST_CASE("both_ends_as_threads") {
    port::SegmentPool pool;
    auto made = port::Channel::create(pool, kSizes, 9, abi::Kind::Gateway);
    REQUIRE(made.ok());
    port::Channel& channel = **made;
    UniqueFd control = channel.take_plugin_end();
    REQUIRE(channel.attach({}).ok());
    Asker asker;
    std::atomic<bool> attached{false};
    std::thread plugin([&] {
        auto session = sdk::Session::attach(asker, asker.identity(), std::move(control));
        HF_CHECK(session.ok(), "the test's session");
        attached = true;
        run_session(**session);
    });

    std::uint64_t logs = 0;
    std::uint64_t listening = 0;
    std::uint64_t listen_sent = 0;
    bool ready = false;
    const auto listen = [&] {
        ++listen_sent;
        channel.request(
            listen_sent,
            abi::CreateListen(channel.builder(), static_cast<std::uint16_t>(listen_sent)),
            0,
            0);
    };
    const auto handler = [&](const port::Received& received) {
        switch (received.type) {
            case abi::Body::Greet:
                channel.notify(abi::CreateWelcome(channel.builder(), 0, 9));
                channel.request(kConfigureId, abi::CreateConfigure(channel.builder()), 0, 0);
                break;
            case abi::Body::Ready: {
                ready = received.as<abi::Ready>().ok();
                listen();
                break;
            }
            case abi::Body::Log:
                ++logs;
                break;
            case abi::Body::Listening:
                ++listening;
                break;
            case abi::Body::Request: {
                const auto* name = received.as<abi::Request>().name();
                auto& fbb = channel.builder();
                const auto body = fbb.CreateVector(name->Data(), name->size());
                channel.reply(received.req_id,
                              abi::CreateReply(fbb, 200, abi::ReplyReason::Ok, 0, 0, body));
                if (received.req_id % 50 == 0) {
                    listen();
                    asker.context()->post([&] { ++asker.posted; });
                }
                break;
            }
            default:
                break;
        }
    };
    std::string fault;
    constexpr int kWedgedMs = 60'000;
    while (fault.empty() && (asker.answered < kRequests || listening < listen_sent || !ready)) {
        const auto more = channel.drain(256, handler);
        if (!more) fault = more.error().message;
        channel.flush();
        if (fault.empty() && !*more && channel.before_block()) {
            pollfd fd{channel.bell_fd(), POLLIN, 0};
            // The last answers are only counted on the other side: look again soon.
            if (::poll(&fd, 1, listening < listen_sent ? kWedgedMs : 1) == 0 &&
                listening < listen_sent)
                fault = "wedged";
        }
    }
    channel.notify(abi::CreateStop(channel.builder()));
    channel.flush();
    plugin.join();
    CHECK(fault == "");
    CHECK(asker.answered == kRequests);
    CHECK_FALSE(asker.wrong());
    CHECK(asker.busy > 0);
    CHECK(asker.posted > 0);
    CHECK(logs > 0);
    CHECK(channel.usage().open_requests == 0);
}
