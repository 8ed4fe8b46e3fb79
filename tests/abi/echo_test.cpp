// A real plugin process behind a real Channel: typed calls, credits, queue, death and stop.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <csignal>

#include <map>
#include <string>

#include "abi/base/bytes.hpp"
#include "abi/base/hash.hpp"
#include "tests/abi/rig.hpp"

using namespace hf;

namespace {

constexpr port::ChannelSizes kSmall{512U * 1024U, 512U * 1024U};
constexpr int kWaitMs = 20'000;

port::Sent get(port::Channel& channel, std::uint64_t id, const std::string& key) {
    auto& fbb = channel.builder();
    const auto text = fbb.CreateString(key);
    return channel.request(id, abi::CreateGet(fbb, text), 0, id);
}

bool good(const port::Received& received, const std::string& key) {
    const auto& got = received.as<abi::Got>();
    return got.body() != nullptr && as_text({got.body()->data(), got.body()->size()}) == key &&
           got.write_id() != nullptr && got.write_id()->hi() == fnv1a64(key);
}

}  // namespace

TEST_CASE("typed_calls_are_answered_in_order") {
    port::SegmentPool pool;
    auto started =
        rig::start(pool, kSmall, 7, abi::Kind::Storage, HF_ECHO_PLUGIN, {"--kind", "storage"});
    REQUIRE_MESSAGE(started.ready, started.error);
    std::uint64_t answered = 0;
    bool intact = true;
    constexpr std::uint64_t kCalls = 5000;
    std::uint64_t sent = 0;
    const auto handler = [&](const port::Received& received) {
        ++answered;
        intact = intact && received.reply_to == answered &&
                 good(received, "key-" + std::to_string(answered));
    };
    const auto done = [&] {
        while (sent < kCalls && sent - answered < 64) {
            ++sent;
            REQUIRE(get(*started.channel, sent, "key-" + std::to_string(sent)) != port::Sent::Busy);
        }
        started.channel->flush();
        return answered == kCalls;
    };
    CHECK(rig::run_until(*started.channel, handler, done, kWaitMs));
    CHECK(answered == kCalls);
    CHECK(intact);
    CHECK(started.channel->usage().open_requests == 0);
}
