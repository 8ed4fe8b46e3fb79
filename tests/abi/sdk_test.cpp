// The plugin's end as a process: its command line, what it does when the supervisor dies, sheds, stops or breaks the
// rules, and when the plugin itself does.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>

#include "abi/base/clock.hpp"
#include "abi/layout/atomics.hpp"
#include "tests/abi/fake_supervisor.hpp"
#include "tests/abi/rig.hpp"

using namespace hf;
using rig::FakeSupervisor;

namespace {

constexpr port::ChannelSizes kSmall{512U * 1024U, 512U * 1024U};
constexpr int kWaitMs = 20'000;

struct Ended {
    int status = 0;
    std::string words;
    [[nodiscard]] int code() const { return WIFEXITED(status) ? WEXITSTATUS(status) : -1; }
    [[nodiscard]] int signal() const { return WIFSIGNALED(status) ? WTERMSIG(status) : 0; }
    [[nodiscard]] bool says(const std::string& text) const {
        return words.find(text) != std::string::npos;
    }
};

Ended by_hand(const std::string& binary,
              const std::vector<std::string>& args,
              UniqueFd control = {}) {
    rig::Pipe pipe = rig::make_pipe();
    rig::Child child(binary, args, std::move(control), pipe.write.get());
    pipe.write.reset();
    Ended out;
    out.words = rig::read_all(pipe.read.get());
    out.status = child.reap();
    return out;
}

// Runs the echo plugin under a supervisor that does `act`, and waits for its end.
Ended under(const std::function<void(FakeSupervisor&)>& act) {
    FakeSupervisor supervisor;
    rig::Pipe pipe = rig::make_pipe();
    rig::Child child(
        HF_ECHO_PLUGIN, {"--kind", "storage"}, supervisor.take_plugin_end(), pipe.write.get());
    pipe.write.reset();
    act(supervisor);
    Ended out;
    out.words = rig::read_all(pipe.read.get());
    out.status = child.reap();
    return out;
}

struct Running {
    port::SegmentPool pool;
    rig::Pipe pipe = rig::make_pipe();
    rig::Started plugin;

    explicit Running(const std::string& binary = HF_ECHO_PLUGIN,
                     abi::Kind kind = abi::Kind::Storage,
                     const std::string& kind_name = "storage",
                     rig::Setup setup = {}) {
        setup.error_fd = pipe.write.get();
        plugin = rig::start(pool, kSmall, 1, kind, binary, {"--kind", kind_name}, setup);
        pipe.write.reset();
    }
    void get(std::uint64_t id, const std::string& key) {
        auto& fbb = plugin.channel->builder();
        const auto text = fbb.CreateString(key);
        plugin.channel->request(id, abi::CreateGet(fbb, text), 0, 0);
        plugin.channel->flush();
    }
    // Until the answer to `id` is there; hands it to `look`.
    bool answer(std::uint64_t id, const std::function<void(const port::Received&)>& look = {}) {
        bool got = false;
        return rig::run_until(
            *plugin.channel,
            [&](const port::Received& received) {
                if (received.reply_to != id) return;
                got = true;
                if (look) look(received);
            },
            [&] { return got; },
            kWaitMs);
    }
    Ended end() {
        Ended out;
        out.words = rig::read_all(pipe.read.get());
        out.status = plugin.child.reap();
        return out;
    }
};

}  // namespace

TEST_CASE("started_by_hand") {
    CHECK(by_hand(HF_ECHO_PLUGIN, {"--version"}).code() == 0);
    CHECK(by_hand(HF_ECHO_PLUGIN, {"--help"}).code() == 0);
    const Ended alone = by_hand(HF_ECHO_PLUGIN, {"--kind", "storage"});
    CHECK(alone.code() == 2);
    CHECK(alone.says("holdfastd"));
    CHECK(by_hand(HF_ECHO_PLUGIN, {"--kind", "gateway"}).code() == 2);
    CHECK(by_hand(HF_ECHO_PLUGIN, {"--knid", "storage"}).says("unknown argument --knid"));
    CHECK(by_hand(HF_POLICY_PLUGIN, {}).code() == 2);
    CHECK(
        by_hand(HF_POLICY_PLUGIN, {"--kind", "storage"}).says("--kind placement or --kind drain"));
    CHECK(by_hand(HF_POLICY_PLUGIN, {"--version"}).code() == 0);
}

TEST_CASE("supervisor_dies_before_the_attach_message") {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    ::close(ends[0]);
    CHECK(by_hand(HF_ECHO_PLUGIN, {"--kind", "storage"}, UniqueFd(ends[1])).code() == 0);
}

TEST_CASE("attach_message_of_another_release") {
    const Ended ended = under([](FakeSupervisor& supervisor) {
        supervisor.message().layout_version = layout::kLayoutVersion + 1;
        supervisor.attach();
    });
    CHECK(ended.code() == 1);
    CHECK(ended.says("built together"));
}

TEST_CASE("attach_message_with_other_sizes_than_the_segments") {
    const Ended ended = under([](FakeSupervisor& supervisor) {
        supervisor.message().to_plugin_bytes *= 2;
        supervisor.attach();
    });
    CHECK(ended.code() == 1);
    CHECK(ended.says("bytes"));
}

TEST_CASE("supervisor_breaks_the_link's_rules") {
    struct Case {
        const char* words;
        std::function<void(FakeSupervisor&)> act;
    };
    const Case cases[] = {
        {"before Welcome", [](FakeSupervisor& s) { s.configure(); }},
        {"a second Welcome",
         [](FakeSupervisor& s) {
             s.welcome();
             s.welcome();
         }},
        {"before Configure",
         [](FakeSupervisor& s) {
             s.welcome();
             flatbuffers::FlatBufferBuilder fbb;
             s.send(fbb, abi::CreateGet(fbb, fbb.CreateString("k")), 9);
         }},
        {"a second Configure",
         [](FakeSupervisor& s) {
             s.welcome();
             s.configure(1);
             s.configure(2);
         }},
        {"id that is open already",
         [](FakeSupervisor& s) {
             s.welcome();
             s.configure();
             for (int i = 0; i < 2; ++i) {
                 flatbuffers::FlatBufferBuilder fbb;
                 s.send(fbb, abi::CreateGet(fbb, fbb.CreateString("!silent")), 9);
             }
         }},
        {"gap in the sequence",
         [](FakeSupervisor& s) {
             flatbuffers::FlatBufferBuilder fbb;
             s.send(fbb, abi::CreateWelcome(fbb), 0, 0, 1);
         }},
        {"no valid envelope", [](FakeSupervisor& s) { s.raw(Bytes(64, 0xFF), 2, 0); }},
        {"unknown message type", [](FakeSupervisor& s) { s.raw(Bytes(64, 0), 200, 0); }},
        {"not allowed from this side",
         [](FakeSupervisor& s) {
             flatbuffers::FlatBufferBuilder fbb;
             s.send(fbb, abi::CreateFault(fbb, fbb.CreateString("x")));
         }},
        {"link of this kind",
         [](FakeSupervisor& s) {
             flatbuffers::FlatBufferBuilder fbb;
             s.send(fbb, abi::CreateDrop(fbb), 9);
         }},
        {"tail not aligned",
         [](FakeSupervisor& s) {
             layout::exchange_full(s.end().own().producer.tail, std::uint64_t{8});
             s.raw({}, 1, 0);
             layout::exchange_full(s.end().own().producer.tail, std::uint64_t{24});
         }},
    };
    for (const Case& one : cases) {
        const Ended ended = under([&](FakeSupervisor& supervisor) {
            supervisor.attach();
            one.act(supervisor);
        });
        CAPTURE(one.words);
        CHECK(ended.code() == 70);
        CHECK_MESSAGE(ended.says(one.words), ended.words);
    }
}

TEST_CASE("supervisor_answers_what_was_never_asked") {
    const Ended ended = under([](FakeSupervisor& supervisor) {
        supervisor.attach();
        supervisor.welcome();
        supervisor.configure();
        flatbuffers::FlatBufferBuilder fbb;
        supervisor.send(fbb, abi::CreateReply(fbb), 0, 5);
    });
    CHECK(ended.code() == 70);
}

TEST_CASE("plugin_answers_twice") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.get(1, "!twice");
    const Ended ended = running.end();
    CHECK(ended.signal() == SIGABRT);
    CHECK(ended.says("answered twice"));
}

TEST_CASE("plugin_answers_more_than_reply_max") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.get(1, "!large");
    const Ended ended = running.end();
    CHECK(ended.signal() == SIGABRT);
    CHECK(ended.says("the answer to Get takes 661"));
    CHECK(ended.says("reply_max is 65536"));
}

TEST_CASE("plugin_dies_on_a_request_that_it_published_as_current") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.get(41, "!crash");
    CHECK(running.end().signal() == SIGSEGV);
    CHECK(running.plugin.channel->current_request() == 41);
    CHECK(running.plugin.channel->drain_final([](const port::Received&) {}).ok());
    CHECK(running.plugin.channel->open_requests().size() == 1);
}

TEST_CASE("supervisor_dies") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.plugin.channel.reset();
    CHECK(running.end().code() == 0);
}

TEST_CASE("stop_ends_at_once") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.get(1, "!silent");
    running.plugin.channel->notify(abi::CreateStop(running.plugin.channel->builder()));
    running.plugin.channel->flush();
    CHECK(running.end().code() == 0);
}

TEST_CASE("shed_finishes_what_is_open") {
    Running running;
    REQUIRE(running.plugin.ready);
    for (std::uint64_t id = 1; id <= 4; ++id) running.get(id, "key");
    running.plugin.channel->notify(abi::CreateShed(running.plugin.channel->builder(), 0));
    running.plugin.channel->flush();
    CHECK(running.end().code() == 0);
    std::uint64_t answers = 0;
    CHECK(running.plugin.channel
              ->drain_final([&](const port::Received& received) {
                  if (received.reply_to != 0) ++answers;
              })
              .ok());
    CHECK(answers == 4);
}

TEST_CASE("shed_ends_at_its_deadline") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.get(1, "!silent");
    constexpr std::int64_t kNs = 50'000'000;
    const std::int64_t deadline = monotonic_ns() + kNs;
    running.plugin.channel->notify(abi::CreateShed(running.plugin.channel->builder(), deadline));
    running.plugin.channel->flush();
    CHECK(running.end().code() == 0);
    CHECK(monotonic_ns() >= deadline);
}

TEST_CASE("an_idle_link_uses_no_time") {
    Running running;
    REQUIRE(running.plugin.ready);
    running.get(1, "key");
    CHECK(running.answer(1));
    // After its last wait began, the plugin's time stands still. Asked of the kernel, twice, a while apart.
    const auto used = [&] {
        clockid_t clock = 0;
        REQUIRE(::clock_getcpuclockid(running.plugin.child.pid(), &clock) == 0);
        timespec at{};
        REQUIRE(::clock_gettime(clock, &at) == 0);
        return at.tv_sec * 1'000'000'000 + at.tv_nsec;
    };
    (void)rig::wait_for(*running.plugin.channel, 50);
    const auto first = used();
    (void)rig::wait_for(*running.plugin.channel, 300);
    CHECK(used() == first);
}

TEST_CASE("policy_named_in_configure_must_exist") {
    Running running(HF_POLICY_PLUGIN, abi::Kind::Placement, "placement", {"sear", {}, {}, -1});
    CHECK_FALSE(running.plugin.ready);
    CHECK(running.plugin.error == "there is no policy \"sear\"; test-policies knows seer, blind");
    CHECK(running.end().code() == 1);
}

TEST_CASE("policy_refuses_a_setting") {
    Running running(
        HF_POLICY_PLUGIN, abi::Kind::Placement, "placement", {"seer", {{"mood", "x"}}, {}, -1});
    CHECK(running.plugin.error == "unknown setting mood");
}

TEST_CASE("placement_sees_what_was_sent") {
    Running running(
        HF_POLICY_PLUGIN, abi::Kind::Placement, "placement", {"seer", {{"mode", "x"}}, {}, -1});
    REQUIRE_MESSAGE(running.plugin.ready, running.plugin.error);
    const auto ask = [&](std::uint64_t id,
                         const std::string& class_name,
                         std::uint32_t count,
                         std::uint64_t sequence) {
        auto& fbb = running.plugin.channel->builder();
        std::vector<flatbuffers::Offset<abi::Candidate>> list;
        for (std::uint32_t i = 0; i < count; ++i) {
            const std::vector labels{
                abi::CreateSettingDirect(fbb, "want", ("c" + std::to_string(i)).c_str())};
            list.push_back(
                abi::CreateCandidateDirect(fbb, 100 + i, "node", i, 1, true, 1, 8, 0, 1, &labels));
        }
        const auto candidates = fbb.CreateVector(list);
        const auto subject = fbb.CreateString("actor/t/c/a");
        const auto name = fbb.CreateString(class_name);
        running.plugin.channel->request(
            id, abi::CreatePlace(fbb, subject, name, 0, candidates, sequence, true), 0, 0);
        running.plugin.channel->flush();
    };
    ask(1, "c2", 64, 1);
    std::string seeds;
    CHECK(running.answer(1, [&](const port::Received& received) {
        const auto& placed = received.as<abi::Placed>();
        CHECK(placed.choice() == 102);
        CHECK_FALSE(placed.none());
        CHECK(placed.reason()->str() == "actor/t/c/a on node");
        REQUIRE(placed.rejections() != nullptr);
        CHECK(placed.rejections()->size() == 63);
        seeds = placed.rejections()->Get(0)->reason()->str();
        REQUIRE(placed.counts() != nullptr);
        CHECK(placed.counts()->Get(0)->filter()->str() == "label");
        CHECK(placed.counts()->Get(0)->rejected() == 63);
    }));
    // The same sequence gives the same seed, another one another.
    for (const std::uint64_t sequence : {1, 2}) {
        ask(10 + sequence, "c2", 3, sequence);
        CHECK(running.answer(10 + sequence, [&](const port::Received& received) {
            const bool same =
                received.as<abi::Placed>().rejections()->Get(0)->reason()->str() == seeds;
            CHECK(same == (sequence == 1));
        }));
    }
    ask(20, "c9", 3, 4);
    CHECK(running.answer(
        20, [&](const port::Received& received) { CHECK(received.as<abi::Placed>().none()); }));
    ask(21, "c9", 0, 5);
    CHECK(running.answer(21, [&](const port::Received& received) {
        CHECK(received.as<abi::Placed>().none());
        CHECK(received.as<abi::Placed>().reason()->str() == "no candidates");
    }));
}

TEST_CASE("drain_sees_what_was_sent") {
    Running running(HF_POLICY_PLUGIN, abi::Kind::Drain, "drain", {"all-at-once", {}, {}, -1});
    REQUIRE_MESSAGE(running.plugin.ready, running.plugin.error);
    auto& fbb = running.plugin.channel->builder();
    std::vector<flatbuffers::Offset<abi::Resident>> residents;
    for (std::uint32_t i = 0; i < 5; ++i)
        residents.push_back(abi::CreateResidentDirect(fbb, i, "actor/t/c/a", i == 2));
    const std::vector peers{abi::CreatePeerDirect(fbb, 1, "n1", 0, false),
                            abi::CreatePeerDirect(fbb, 2, "n2", 0, true)};
    const auto request = abi::CreateNextDirect(fbb, &residents, 5, 0, 8, &peers);
    running.plugin.channel->request(7, request, 0, 0);
    running.plugin.channel->flush();
    CHECK(running.answer(7, [&](const port::Received& received) {
        const auto& step = received.as<abi::Step>();
        REQUIRE(step.hand_over() != nullptr);
        CHECK(step.hand_over()->size() == 4);
        CHECK(step.wait_ms() == 1);
        CHECK_FALSE(step.give_up());
    }));
}
