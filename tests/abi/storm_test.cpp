// Storms over a real link: the plugin process is killed, or stopped and continued, at random moments while calls are
// open. Unanswered requests are sent again to the successor, oldest first, so over the whole storm answers must come in
// exactly the order of the requests: none lost, none twice, none torn, none out of place.
// HOLDFAST_LONG=1 makes 2000 deaths of 200; HOLDFAST_SEED repeats a run.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>

#include "abi/base/bytes.hpp"
#include "abi/base/clock.hpp"
#include "abi/base/hash.hpp"
#include "tests/abi/rig.hpp"

using namespace hf;

namespace {

constexpr port::ChannelSizes kSizes{512U * 1024U, 4096U * 1024U};
constexpr std::size_t kOutstanding = 64;
// Longer than any schedule of a busy machine; a wedge lasts for ever.
constexpr int kWedgedMs = 30'000;
constexpr std::int64_t kNsPerUs = 1000;

bool long_run() {
    return std::getenv("HOLDFAST_LONG") != nullptr;
}

std::uint64_t seed() {
    const char* text = std::getenv("HOLDFAST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10)
                           : static_cast<std::uint64_t>(monotonic_ns());
}

// Names its id and is of any length: most are small, some wrap the ring quickly.
std::string key_of(std::uint64_t id) {
    const std::uint64_t mixed = mix64(id);
    const std::size_t bytes = mixed % 16 == 0 ? 1 + mixed / 16 % 20'000 : 16 + mixed / 16 % 200;
    std::string key = std::to_string(id) + ":";
    while (key.size() < bytes) key.push_back(static_cast<char>('a' + mix64(id + key.size()) % 26));
    return key;
}

struct Storm {
    explicit Storm(std::uint64_t first_seed) : random(first_seed) {}

    port::SegmentPool pool;
    std::mt19937_64 random;
    rig::Started plugin;
    std::uint64_t generation = 0;
    std::uint64_t sent = 0;        // ids 1..sent were asked
    std::uint64_t answered = 0;    // ids 1..answered have their answer
    std::uint64_t in_process = 0;  // answered by this process
    std::string wrong;

    void send(std::uint64_t id) {
        auto& fbb = plugin.channel->builder();
        const auto key = fbb.CreateString(key_of(id));
        const port::Sent how = plugin.channel->request(id, abi::CreateGet(fbb, key), 0, id);
        if (how == port::Sent::Busy || how == port::Sent::TooLarge) wrong = "a request was refused";
    }
    void receive(const port::Received& received) {
        if (received.type != abi::Body::Got) return;
        const std::uint64_t id = answered + 1;
        if (received.reply_to != id) {
            wrong = "answer " + std::to_string(received.reply_to) + " where " + std::to_string(id) +
                    " is due";
            return;
        }
        const auto& got = received.as<abi::Got>();
        const std::string key = key_of(id);
        if (got.body() == nullptr || as_text({got.body()->data(), got.body()->size()}) != key ||
            got.write_id() == nullptr || got.write_id()->hi() != fnv1a64(key))
            wrong = "answer " + std::to_string(id) + " is torn";
        ++answered;
        ++in_process;
    }
    void start() {
        plugin = rig::start(
            pool, kSizes, ++generation, abi::Kind::Storage, HF_ECHO_PLUGIN, {"--kind", "storage"});
        in_process = 0;
        if (!plugin.ready) wrong = "start: " + plugin.error;
        for (std::uint64_t id = answered + 1; id <= sent; ++id) send(id);
    }
    // Keeps calls open until `until` says so.
    void load(const std::function<bool()>& until) {
        std::string fault;
        const bool ended = rig::run_until(
            *plugin.channel,
            [this](const port::Received& received) { receive(received); },
            [&] {
                while (sent - answered < kOutstanding && wrong.empty()) send(++sent);
                plugin.channel->flush();
                return !wrong.empty() || until();
            },
            kWedgedMs,
            &fault);
        if (!ended && wrong.empty())
            wrong =
                fault.empty() ? "wedged with " + std::to_string(sent - answered) + " open" : fault;
    }
    void kill() {
        plugin.child.signal(SIGKILL);
        const int status = plugin.child.reap();
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
            wrong = "the plugin ended by itself";
        const auto drained = plugin.channel->drain_final(
            [this](const port::Received& received) { receive(received); });
        if (!drained) wrong = drained.error().message;
        // What the channel says is open is what has no answer, in order.
        const auto open = plugin.channel->open_requests();
        if (open.size() != sent - answered || (!open.empty() && open.front().first != answered + 1))
            wrong = "open requests do not match";
        for (std::size_t i = 1; i < open.size(); ++i)
            if (open[i].first != open[i - 1].first + 1) wrong = "open requests out of order";
    }
};

}  // namespace

TEST_CASE("killed_at_random_moments") {
    const std::uint64_t first = seed();
    Storm storm(first);
    storm.pool.keep(kSizes);
    const int kills = long_run() ? 2000 : 200;
    for (int i = 0; i < kills && storm.wrong.empty(); ++i) {
        storm.start();
        // From before the first answer to several laps of the rings.
        const std::int64_t moment =
            monotonic_ns() +
            static_cast<std::int64_t>(storm.random() % (i % 4 == 0 ? 200 : 20'000)) * kNsPerUs;
        storm.load([&] { return monotonic_ns() >= moment; });
        if (storm.wrong.empty()) storm.kill();
    }
    if (storm.wrong.empty()) {
        storm.start();
        const std::uint64_t last = storm.sent;
        storm.load([&] { return storm.answered >= last; });
    }
    MESSAGE("seed " << first << ": " << kills << " deaths, " << storm.answered << " calls");
    CHECK_MESSAGE(storm.wrong.empty(), storm.wrong << ", HOLDFAST_SEED=" << first);
    CHECK(storm.answered > static_cast<std::uint64_t>(kills));
}

TEST_CASE("stopped_and_continued_at_random_moments") {
    const std::uint64_t first = seed();
    Storm storm(first);
    storm.start();
    const int stops = long_run() ? 300 : 60;
    for (int i = 0; i < stops && storm.wrong.empty(); ++i) {
        std::int64_t moment =
            monotonic_ns() + static_cast<std::int64_t>(storm.random() % 3000) * kNsPerUs;
        storm.load([&] { return monotonic_ns() >= moment; });
        storm.plugin.child.signal(SIGSTOP);
        // Requests go on meanwhile; the loop blocks in between as the daemon's would.
        moment = monotonic_ns() + static_cast<std::int64_t>(storm.random() % 8000) * kNsPerUs;
        while (monotonic_ns() < moment && storm.wrong.empty()) {
            if (const auto more = storm.plugin.channel->drain(
                    256, [&](const port::Received& received) { storm.receive(received); });
                !more)
                storm.wrong = more.error().message;
            if (storm.plugin.channel->before_block()) (void)rig::wait_for(*storm.plugin.channel, 1);
        }
        storm.plugin.child.signal(SIGCONT);
        const std::uint64_t due = storm.sent;
        storm.load([&] { return storm.answered >= due; });
    }
    MESSAGE("seed " << first << ": " << stops << " stops, " << storm.answered << " calls");
    CHECK_MESSAGE(storm.wrong.empty(), storm.wrong << ", HOLDFAST_SEED=" << first);
}

TEST_CASE("single_calls_with_sleep_between_lose_no_wakeup") {
    // One call at a time, each side asleep when the other rings, on one CPU and on two.
    for (const bool same_cpu : {true, false}) {
        Storm storm(1);
        storm.start();
        REQUIRE_MESSAGE(storm.plugin.ready, storm.plugin.error);
        cpu_set_t before;
        REQUIRE(::sched_getaffinity(0, sizeof(before), &before) == 0);
        if (same_cpu) {
            cpu_set_t one;
            CPU_ZERO(&one);
            CPU_SET(0, &one);
            REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
            REQUIRE(::sched_setaffinity(storm.plugin.child.pid(), sizeof(one), &one) == 0);
        }
        const std::uint64_t calls = long_run() ? 1'000'000 : 20'000;
        std::int64_t longest = 0;
        for (std::uint64_t i = 0; i < calls && storm.wrong.empty(); ++i) {
            const std::int64_t start = monotonic_ns();
            storm.send(++storm.sent);
            std::string fault;
            if (!rig::run_until(
                    *storm.plugin.channel,
                    [&](const port::Received& received) { storm.receive(received); },
                    [&] { return storm.answered == storm.sent; },
                    kWedgedMs,
                    &fault))
                storm.wrong = "call " + std::to_string(i) + " hangs " + fault;
            longest = std::max(longest, monotonic_ns() - start);
        }
        REQUIRE(::sched_setaffinity(0, sizeof(before), &before) == 0);
        MESSAGE(std::string(same_cpu ? "one CPU" : "two CPUs")
                << ": " << calls << " calls, longest " << longest / kNsPerUs << " us");
        CHECK_MESSAGE(storm.wrong.empty(), storm.wrong);
    }
}
