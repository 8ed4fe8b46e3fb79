// A policy written in C over the shared library, as a real process behind a real link, second filter in force.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <sys/wait.h>

#include <string>

#include "tests/abi/rig.hpp"

using namespace hf;

namespace {

constexpr port::ChannelSizes kSmall{512U * 1024U, 512U * 1024U};

struct Load {
    std::uint32_t resident;
    bool cordoned;
};

void ask(port::Channel& channel, std::uint64_t id, const std::vector<Load>& loads) {
    auto& fbb = channel.builder();
    std::vector<flatbuffers::Offset<abi::Candidate>> list;
    for (std::uint32_t i = 0; i < loads.size(); ++i) {
        std::vector<flatbuffers::Offset<abi::Setting>> labels;
        if (loads[i].cordoned) labels.push_back(abi::CreateSettingDirect(fbb, "cordoned", "yes"));
        list.push_back(abi::CreateCandidateDirect(
            fbb, 10 + i, "n", i, 1, false, loads[i].resident, 4, 0, 1, &labels));
    }
    const auto candidates = fbb.CreateVector(list);
    const auto subject = fbb.CreateString("actor/t/c/a");
    channel.request(id, abi::CreatePlace(fbb, subject, 0, 0, candidates, id), 0, 0);
    channel.flush();
}

}  // namespace

TEST_CASE("policy_in_c") {
    port::SegmentPool pool;
    auto started = rig::start(pool,
                              kSmall,
                              1,
                              abi::Kind::Placement,
                              HF_C_POLICY,
                              {"--kind", "placement"},
                              {"least-loaded", {{"mode", "plain"}}, {}, -1});
    REQUIRE_MESSAGE(started.ready, started.error);
    port::Channel& channel = *started.channel;
    ask(channel, 1, {{3, false}, {1, false}, {0, true}});
    ask(channel, 2, {{4, false}, {9, false}});
    std::uint64_t answers = 0;
    std::uint64_t logs = 0;
    CHECK(rig::run_until(
        channel,
        [&](const port::Received& received) {
            if (received.type == abi::Body::Log) ++logs;
            if (received.type != abi::Body::Placed) return;
            ++answers;
            const auto& placed = received.as<abi::Placed>();
            if (received.reply_to == 1) CHECK(placed.choice() == 11);
            CHECK(placed.none() == (received.reply_to == 2));
        },
        [&] { return answers == 2; },
        20'000));
    CHECK(logs == 1);
    channel.notify(abi::CreateStop(channel.builder()));
    channel.flush();
    const int status = started.child.reap();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("policy_in_c_refuses_its_configuration") {
    port::SegmentPool pool;
    const auto started = rig::start(pool,
                                    kSmall,
                                    1,
                                    abi::Kind::Placement,
                                    HF_C_POLICY,
                                    {"--kind", "placement"},
                                    {"other", {}, {}, -1});
    CHECK_FALSE(started.ready);
    CHECK(started.error == "this plugin knows the policy least-loaded only");
}
