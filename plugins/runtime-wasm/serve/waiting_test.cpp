// Events that wait for an answer on stacks of their own: others run meanwhile, limits hold across the wait, and one that
// is given up leaves nothing.
#include <doctest/doctest.h>

#include <ctime>

#include "abi/base/clock.hpp"
#include "plugins/runtime-wasm/testing/machine.hpp"

namespace hf::wasm {

using namespace testing;  // NOLINT(google-build-using-namespace): the machine's steps

namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr Text kNone{0, 0};

// One module for all cases; each gives its own deadlines and works on units of its own.
struct Hall : Stage {
    explicit Hall(Deadlines deadlines = {5'000 * kMs, 20'000 * kMs})
        : Stage(wasm_of(machine()), deadlines) {
        REQUIRE(error == "");
    }
    Ran does(std::uint64_t unit, const std::vector<Step>& steps) {
        return run(unit, 1, program(steps));
    }
    // An event that stands in its first call.
    Ran waits(std::uint64_t unit, std::vector<Step> after = {}, std::vector<Step> before = {}) {
        before.push_back(call(kTarget, kMethod, kValue));
        before.insert(before.end(), after.begin(), after.end());
        Ran ran = does(unit, before);
        CHECK(ran.ended == Ended::Calling);
        return ran;
    }
};

std::size_t parked() {
    return host().worker->parked();
}

std::int64_t cpu_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

// Burns that much CPU time of this thread in `unit`, event by event.
void burn_for(Hall& hall, std::uint64_t unit, std::int64_t ns) {
    for (const std::int64_t end = cpu_ns() + ns; cpu_ns() < end;)
        CHECK(hall.does(unit, {burn(100'000)}).ended == Ended::Ok);
}

// Rounds of burn() that take about that long; on a busy machine half of it or twice as much.
std::uint32_t rounds_for(Hall& hall, std::int64_t ns) {
    constexpr std::uint32_t kProbe = 20'000'000;
    std::int64_t best = INT64_MAX;
    for (int i = 0; i < 5; ++i) best = std::min(best, hall.does(900, {burn(kProbe)}).elapsed_ns);
    return static_cast<std::uint32_t>(static_cast<double>(ns) * kProbe / static_cast<double>(best));
}

}  // namespace

TEST_CASE("a_call_waits_while_other_actors_run_and_goes_on_with_its_answer") {
    Hall hall;
    Ran ran = hall.waits(
        1,
        {result(0), word(kFree), call(kTarget, kNone, kKey, 250), get(kKey), word(kFree)},
        {put(kKey, kValue)});
    CHECK(ran.output->call.n == 1);
    CHECK(ran.output->call.what.target == "bank/alice");
    CHECK(ran.output->call.what.method == "pay");
    CHECK(as_text(ran.output->call.what.payload) == "value");
    CHECK(ran.timeout_ms > 15'000);
    CHECK(ran.timeout_ms <= 20'000);
    CHECK(ran.changes.empty());
    CHECK(parked() == 1);
    for (std::uint64_t other = 2; other < 20; ++other)
        CHECK(results(hall.does(other, {put(kKey, kValue), get(kKey)})) == Words{0, 5});
    ran = hall.answer(1, 1, "abcd");
    CHECK(ran.ended == Ended::Calling);
    CHECK(ran.output->call.n == 2);
    CHECK(ran.output->call.what.method.empty());
    CHECK(ran.timeout_ms == 250);
    CHECK(hall.does(2, {get(kKey)}).ended == Ended::Ok);
    ran = hall.answer(1, 2, "", -6);
    CHECK(results(ran) == Words{0, 0, 4, 0x64636261, -6, 5, 0x756c6176});
    CHECK_FALSE(ran.changes.empty());
    CHECK(parked() == 0);
    CHECK(results(hall.does(1, {get(kKey)})) == Words{5});
}

TEST_CASE("only_the_answer_to_the_waiting_call_is_taken_and_nothing_else_runs_meanwhile") {
    Hall hall;
    (void)hall.waits(1, {}, {put(kKey, kValue)});
    CHECK(hall.answer(1, 2, "x").ended == Ended::NotResident);
    CHECK(hall.answer(1, 0, "x").ended == Ended::NotResident);
    CHECK(hall.answer(2, 1, "x").ended == Ended::NotResident);
    CHECK(hall.residents.resume(1, {2, 1}, 1, 0, {}, 0).ended == Ended::NotResident);
    const Ran second = hall.does(1, {get(kKey)});
    CHECK(second.ended == Ended::Failed);
    CHECK(second.error ==
          "an event of this actor waits for the answer to its call: the next one comes after it");
    CHECK(hall.residents.checkpoint(1).error().code == Code::Busy);
    CHECK(hall.residents.waiting(1));
    CHECK(results(hall.answer(1, 1, "x")) == Words{0, 0});
    CHECK(hall.answer(1, 1, "x").ended == Ended::NotResident);
    CHECK_FALSE(hall.residents.waiting(1));
    CHECK(hall.residents.checkpoint(1).ok());
}

TEST_CASE("as_many_wait_as_may_and_the_next_is_told_to_come_later") {
    Hall hall;
    for (std::uint64_t unit = 1; unit <= 40; ++unit)
        (void)hall.waits(unit, {result(0), word(kFree)});
    CHECK(parked() == 40);
    CHECK(results(hall.does(41, {call(kTarget, kMethod, kValue), put(kKey, kValue)})) ==
          Words{-4, 0});
    // In another order than they came in, each with its own answer on its own stack.
    for (std::uint64_t unit = 40; unit >= 1; --unit) {
        const std::string text(4, static_cast<char>('A' + unit));
        CHECK(results(hall.answer(unit, 1, text))[2] ==
              0x01010101 * static_cast<std::int32_t>('A' + unit));
        if (unit == 40) (void)hall.waits(41);
    }
    CHECK(results(hall.answer(41, 1, "")) == Words{0});
    CHECK(parked() == 0);
}

TEST_CASE("a_waiting_event_that_is_dropped_gives_everything_back") {
    Hall hall;
    const std::size_t mapped = hall.residents.mapped();
    for (int round = 0; round < 100; ++round) {
        (void)hall.waits(1, {}, {put(kKey, kValue), list(kNone, kNone, 0, 0)});
        CHECK(parked() == 1);
        if (round % 2 == 0)
            hall.residents.drop(1);
        else
            hall.open(1);  // the same activation anew
        CHECK(parked() == 0);
        CHECK(hall.answer(1, 1, "x").ended == Ended::NotResident);
        CHECK(results(hall.does(1, {get(kKey)})) == Words{-1});
    }
    hall.residents.drop(1);
    CHECK(hall.residents.mapped() == mapped);
    for (std::uint64_t unit = 1; unit <= 20; ++unit) (void)hall.waits(unit);
    // The rest goes with the hall.
}

TEST_CASE("what_stops_a_resumed_event_undoes_all_of_it_and_the_next_starts_afresh") {
    CHECK(parked() == 0);
    Hall hall({50 * kMs, 20'000 * kMs});
    const struct {
        Step step;
        Ended ended;
        const char* error;
    } cases[] = {
        {trap(), Ended::Trapped, "trap: unreachable instruction executed"},
        {finish(-42), Ended::Failed, "the actor's handler answered -42"},
        {abort(kValue), Ended::Failed, "abort: value"},
        {get(kKey, kMemoryEnd, 1), Ended::Trapped, "trap: out of bounds memory or table access"},
        {recurse(), Ended::Trapped, "trap: call stack exhausted (256 KiB)"},
        {recurse_alone(), Ended::Trapped, "trap: call stack exhausted (256 KiB)"},
        {spin(), Ended::CpuDeadline, "cpu_limit: the event used more than 50 ms of CPU time"},
        {result(7), Ended::Ok, ""},
    };
    // One that waits all the while, deep in its own stack as it is.
    (void)hall.waits(99, {recurse()});
    for (const auto& each : cases) {
        (void)hall.waits(1,
                         {put(kKey, kKey), send(kTarget, kMethod, kValue), alarm_set(5), each.step},
                         {put(kKey, kValue)});
        const Ran ran = hall.answer(1, 1, "x");
        CHECK_MESSAGE(ran.ended == each.ended, ran.error);
        CHECK(ran.error == each.error);
        CHECK(ran.changes.empty() == (each.ended != Ended::Ok));
        if (each.ended == Ended::Ok) continue;
        CHECK(results(hall.does(1, {get(kKey), alarm_get()})) == Words{-1, 0});
    }
    CHECK(hall.answer(99, 1, "").error == "trap: call stack exhausted (256 KiB)");
    CHECK(parked() == 0);
}

TEST_CASE("a_stack_overflow_is_that_of_the_stack_that_runs") {
    Hall hall;
    for (std::uint64_t unit = 1; unit <= 10; ++unit)
        (void)hall.waits(unit,
                         unit % 2 == 0 ? std::vector<Step>{recurse_alone()} : std::vector<Step>{});
    CHECK(hall.does(11, {recurse()}).error == "trap: call stack exhausted (256 KiB)");
    for (std::uint64_t unit = 1; unit <= 10; ++unit) {
        const Ran ran = hall.answer(unit, 1, "");
        if (unit % 2 == 0)
            CHECK(ran.error == "trap: call stack exhausted (256 KiB)");
        else
            CHECK(results(ran) == Words{0});
        CHECK(hall.does(11, {recurse_alone()}).error == "trap: call stack exhausted (256 KiB)");
    }
}

TEST_CASE("the_cpu_limit_counts_what_an_event_ran_before_and_after_its_call") {
    Hall hall({200 * kMs, 20'000 * kMs});
    // Not before the limit, but for what a first leg is charged too much (a tick); after it by a few ticks of the kernel.
    const auto at_the_limit = [](std::int64_t used) {
        CHECK(used >= 180 * kMs);
        CHECK(used < 260 * kMs);
    };
    const std::uint32_t rounds = rounds_for(hall, 80 * kMs);
    std::int64_t start = cpu_ns();
    (void)hall.waits(1, {spin()}, {burn(rounds)});
    CHECK(cpu_ns() - start > 20 * kMs);
    CHECK(hall.answer(1, 1, "").ended == Ended::CpuDeadline);
    at_the_limit(cpu_ns() - start);
    // Many short legs add up as well.
    std::vector<Step> legs;
    for (int i = 0; i < 250; ++i) {
        legs.push_back(burn(rounds / 20));
        legs.push_back(call(kTarget, kMethod, kNone));
    }
    start = cpu_ns();
    Ran ran = hall.waits(3, legs);
    std::uint32_t n = 1;
    while (ran.ended == Ended::Calling && n < 250) ran = hall.answer(3, n++, "");
    CHECK(ran.ended == Ended::CpuDeadline);
    at_the_limit(cpu_ns() - start);
}

TEST_CASE("what_others_run_while_an_event_waits_is_not_on_its_account") {
    Hall hall({200 * kMs, 20'000 * kMs});
    const std::uint32_t rounds = rounds_for(hall, 40 * kMs);
    (void)hall.waits(1, {burn(rounds)}, {burn(rounds)});
    burn_for(hall, 2, 400 * kMs);
    CHECK(hall.answer(1, 1, "").ended == Ended::Ok);
}

TEST_CASE("the_wall_limit_runs_on_while_an_event_waits") {
    Hall hall({5'000 * kMs, 150 * kMs});
    (void)hall.waits(1, {}, {put(kKey, kValue)});
    burn_for(hall, 2, 200 * kMs);
    Ran ran = hall.answer(1, 1, "late");
    CHECK(ran.ended == Ended::WallDeadline);
    CHECK(ran.error == "wall_limit: the event took more than 150 ms");
    CHECK(ran.changes.empty());
    CHECK(parked() == 0);
    CHECK(results(hall.does(1, {get(kKey)})) == Words{-1});
    // One that is resumed in time and then takes too long ends while it runs.
    const std::int64_t start = monotonic_ns();
    (void)hall.waits(1, {spin()});
    ran = hall.answer(1, 1, "");
    CHECK(ran.ended == Ended::WallDeadline);
    CHECK(monotonic_ns() - start >= 150 * kMs);
    // The timer of one that waits does not hit another that runs.
    (void)hall.waits(1);
    burn_for(hall, 2, 170 * kMs);
    hall.residents.drop(1);
    // The one timer may have gone off for somebody else meanwhile.
    (void)hall.waits(4, {spin()});
    const std::int64_t soon = monotonic_ns() + 10 * kMs;
    CHECK(hall.residents.run(5, 1, {}, 0, soon).ended == Ended::NotResident);
    hall.open(5);
    CHECK(hall.residents.run(5, 1, program({}), 0, soon).ended == Ended::Ok);
    while (monotonic_ns() < soon + 10 * kMs) {
    }
    CHECK(hall.answer(4, 1, "").ended == Ended::WallDeadline);
    // The asker's own deadline may be the earlier one.
    (void)hall.waits(3);
    CHECK(hall.residents.resume(3, {1, 3}, 1, 0, {}, 1).ended == Ended::WallDeadline);
}

TEST_CASE("256_calls_one_after_the_other_and_the_last_answers_are_kept") {
    Hall hall;
    std::vector<Step> steps(256, call(kTarget, kMethod, kNone));
    steps.push_back(call(kTarget, kMethod, kNone));
    for (const std::uint32_t handle : {0u, 249u, 251u, 255u, 256u, 0xffffffffu})
        steps.push_back(result(handle));
    Ran ran = hall.does(1, steps);
    const std::string answer(48 * 1024, 'a');
    for (std::uint32_t n = 1; n <= 256; ++n) {
        REQUIRE(ran.ended == Ended::Calling);
        REQUIRE(ran.output->call.n == n);
        ran = hall.answer(1, n, answer);
    }
    const Words words = results(ran);
    CHECK(words[255] == 255);
    CHECK(words[256] == -3);
    CHECK(Words(words.end() - 6, words.end()) == Words{-1, -1, 49152, 49152, -2, -2});
    steps.resize(257);
    steps.push_back(finish(-1));
    ran = hall.does(1, steps);
    for (std::uint32_t n = 1; n <= 256; ++n) ran = hall.answer(1, n, "");
    CHECK(ran.ended == Ended::Limit);
    CHECK(ran.error == "limit calls_max: 256 allowed, 257 asked for");
}

TEST_CASE("a_fresh_memory_after_a_failed_wait_is_seeded_anew") {
    Stage stage(wasm_of(actor(kAllImports, R"(
        (data (i32.const 16) "a/b")
        (func (export "actor_fresh") (call $random (i32.const 64) (i32.const 8)))
        (func (export "actor_event") (param $kind i32) (param $p i32) (param $l i32) (result i32)
          (if (local.get $l) (then
            (drop (call $call (i32.const 16) (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)))
            unreachable))
          (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 8))))")));
    REQUIRE(stage.error == "");
    const std::string first = Stage::body(stage.run(1));
    CHECK(first != std::string(8, '\0'));
    CHECK(Stage::body(stage.run(1)) == first);
    CHECK(stage.run(1, 1, Bytes(1)).ended == Ended::Calling);
    CHECK(stage.answer(1, 1, "").ended == Ended::Trapped);
    const std::string second = Stage::body(stage.run(1));
    CHECK(second != first);
    // Given up by a drop: the unit starts from the image as well.
    CHECK(stage.run(1, 1, Bytes(1)).ended == Ended::Calling);
    stage.residents.drop(1);
    CHECK(Stage::body(stage.run(1)) != second);
}

}  // namespace hf::wasm
