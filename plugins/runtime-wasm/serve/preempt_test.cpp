// Events that compute for long are put aside so that others have a turn: what they compute stays the same, their limits
// hold, and one that is given up leaves nothing.
#include <doctest/doctest.h>

#include <ctime>

#include "abi/base/clock.hpp"
#include "abi/ring/bodies.hpp"
#include "plugins/runtime-wasm/testing/machine.hpp"

namespace hf::wasm {

using namespace testing;  // NOLINT(google-build-using-namespace): the machine's steps

namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kUs = 1'000;
constexpr std::uint32_t kCall = static_cast<std::uint32_t>(Kind::Call);

std::int64_t cpu_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

void burn_cpu(std::int64_t ns) {
    for (const std::int64_t end = cpu_ns() + ns; cpu_ns() < end;) {
    }
}

std::size_t preempted() {
    return host().worker->preempted();
}

// Floating point, 64-bit integers and blocks of memory: registers of every width are in use at any time. Answers to a
// call with 24 bytes of what came out.
const std::string kComputes = R"(
    (func (export "actor_event") (param i32 i32 i32) (result i32)
      (local $i i32) (local $x f64) (local $y f32) (local $h i64)
      (local.set $x (f64.const 1)) (local.set $y (f32.const 3)) (local.set $h (i64.const 1469598103934665603))
      (loop $l
        (local.set $x (f64.add (f64.mul (local.get $x) (f64.const 1.0000001)) (f64.sqrt (f64.convert_i32_u (local.get $i)))))
        (local.set $y (f32.div (f32.add (local.get $y) (f32.const 1.5)) (f32.const 1.25)))
        (local.set $h (i64.mul (i64.xor (local.get $h) (i64.reinterpret_f64 (local.get $x))) (i64.const 1099511628211)))
        (if (i32.eqz (i32.and (local.get $i) (i32.const 1023)))
          (then
            (memory.fill (i32.const 8192) (i32.wrap_i64 (local.get $h)) (i32.const 30000))
            (memory.copy (i32.const 40000) (i32.const 8192) (i32.const 30000))
            (local.set $h (i64.add (local.get $h) (i64.load (i32.const 69000))))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $l (i32.lt_u (local.get $i) (i32.const 3000000))))
      (f64.store (i32.const 0) (local.get $x))
      (f32.store (i32.const 8) (local.get $y))
      (i64.store (i32.const 16) (local.get $h))
      (drop (call $reply (i32.const 0) (i32.const 24)))
      (i32.const 0)))";

const std::string kLoops = R"(
    (func (export "actor_event") (param i32 i32 i32) (result i32) (loop (br 0)) (i32.const 0)))";

}  // namespace

TEST_CASE("an_event_in_slices_computes_what_it_computes_in_one_go") {
    Stage stage(wasm_of(actor(kAllImports, kComputes)), {5'000 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const std::string whole = Stage::body(stage.run(1, kCall));
    REQUIRE(whole.size() == 24);
    const Slices slices(50 * kUs);
    // Three of them take turns, each on a stack of its own.
    int given_way = 0;
    Ran ran[3];
    for (std::uint64_t unit = 2; unit <= 4; ++unit) ran[unit - 2] = stage.begin(unit, kCall);
    for (int open = 3; open > 0;) {
        open = 0;
        for (std::uint64_t unit = 2; unit <= 4; ++unit) {
            Ran& last = ran[unit - 2];
            if (last.ended != Ended::Preempted) continue;
            CHECK(stage.residents.waiting(unit));
            ++given_way;
            ++open;
            last = stage.go_on(unit);
            if (last.ended == Ended::Ok) CHECK(Stage::body(last) == whole);
        }
    }
    for (const Ran& last : ran) CHECK(last.ended == Ended::Ok);
    CHECK(given_way > 30);
    CHECK(preempted() == 0);
}

TEST_CASE("the_cpu_limit_counts_all_slices_together") {
    Stage stage(wasm_of(actor("", kLoops)), {50 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(250 * kUs);
    const std::int64_t before = cpu_ns();
    Ran ran = stage.begin(1);
    int given_way = 0;
    for (; ran.ended == Ended::Preempted; ++given_way) ran = stage.go_on(1);
    CHECK(ran.ended == Ended::CpuDeadline);
    CHECK(ran.error == "cpu_limit: the event used more than 50 ms of CPU time");
    CHECK(ran.elapsed_ns >= 50 * kMs);
    const std::int64_t used = cpu_ns() - before;
    CHECK(used >= 50 * kMs);
    CHECK(used < 100 * kMs);
    CHECK(given_way >= 10);
    CHECK(stage.begin(1).ended == Ended::Preempted);  // served afresh
    stage.residents.drop(1);
}

// A slice's end and the CPU's deadline come at the same moment now and then: the next event has its slices all the same.
TEST_CASE("a_cpu_deadline_that_cuts_off_the_end_of_a_slice_leaves_the_clock_running") {
    Stage stage(wasm_of(actor("", kLoops)), {5 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(20 * kUs);
    for (std::uint64_t unit = 1; unit <= 200; ++unit) {
        Ran ran = stage.begin(unit);
        REQUIRE(ran.ended == Ended::Preempted);
        while (ran.ended == Ended::Preempted) ran = stage.go_on(unit);
        CHECK(ran.ended == Ended::CpuDeadline);
        stage.residents.drop(unit);
    }
}

TEST_CASE("a_loop_around_host_calls_gives_way") {
    Stage stage(wasm_of(actor(kAllImports, R"(
        (func (export "actor_event") (param i32 i32 i32) (result i32)
          (loop (drop (call $kv_put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 30000))) (br 0))
          (i32.const 0)))")),
                {50 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(100 * kUs);
    for (std::uint64_t unit = 1; unit <= 20; ++unit)
        CHECK(stage.begin(unit).ended == Ended::Preempted);
    // What it wrote is nobody's yet.
    CHECK(stage.residents.checkpoint(1).error().code == Code::Busy);
    for (std::uint64_t unit = 1; unit <= 20; ++unit) stage.residents.drop(unit);
    CHECK(preempted() == 0);
}

TEST_CASE("a_stack_that_is_nearly_used_up_ends_as_it_would_have") {
    Stage stage(wasm_of(machine()), {5'000 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(kSliceNsMin);
    for (int i = 0; i < 200; ++i) {
        CHECK(stage.run(1, 1, program({recurse()})).error ==
              "trap: call stack exhausted (256 KiB)");
        CHECK(stage.run(1, 1, program({recurse_alone()})).error ==
              "trap: call stack exhausted (256 KiB)");
    }
}

TEST_CASE("only_the_wall_clock_of_its_own_slices_counts_but_the_requests_end_stays") {
    Stage stage(wasm_of(actor("", kLoops)), {5'000 * kMs, 40 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(250 * kUs);
    REQUIRE(stage.begin(1).ended == Ended::Preempted);
    burn_cpu(60 * kMs);
    CHECK(stage.go_on(1).ended == Ended::Preempted);
    const Ran late = stage.go_on(1, monotonic_ns() - 1);
    CHECK(late.ended == Ended::WallDeadline);
    CHECK_FALSE(stage.residents.waiting(1));
    const Ran ended = stage.run(1);
    CHECK(ended.ended == Ended::WallDeadline);
    CHECK(ended.elapsed_ns >= 40 * kMs);
}

TEST_CASE("beyond_so_many_an_event_runs_to_its_end_in_one_go") {
    Stage stage(wasm_of(actor("", kLoops)), {20 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(100 * kUs);
    for (std::uint64_t unit = 1; unit <= kPreemptedMax; ++unit)
        CHECK(stage.begin(unit).ended == Ended::Preempted);
    CHECK(preempted() == kPreemptedMax);
    CHECK(stage.begin(90).ended == Ended::CpuDeadline);
    for (std::uint64_t unit = 1; unit <= kPreemptedMax; ++unit) stage.residents.drop(unit);
    CHECK(preempted() == 0);
    CHECK(stage.begin(90).ended == Ended::Preempted);
    stage.residents.drop(90);
}

TEST_CASE("nothing_else_of_its_actor_runs_meanwhile") {
    Stage stage(wasm_of(actor("", kLoops)), {5'000 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(100 * kUs);
    REQUIRE(stage.begin(1).ended == Ended::Preempted);
    const Ran second = stage.begin(1);
    CHECK(second.ended == Ended::Failed);
    CHECK(second.error == "an event of this actor runs: the next one comes after it");
    CHECK(stage.residents.checkpoint(1).error().message ==
          "an event of this actor runs: its state is in between");
    CHECK(stage.answer(1, 0, "x").ended == Ended::NotResident);
    CHECK(stage.residents.go_on(1, {2, 1}, 0).ended == Ended::NotResident);
    stage.residents.drop(1);
    CHECK(stage.go_on(1).ended == Ended::NotResident);
}

// The event and its large body are the caller's and gone by the time the guest has made room for them.
TEST_CASE("what_a_guest_is_slow_to_make_room_for_comes_whole") {
    const std::string slow = std::string("(module ") + kAllImports + R"(
        (memory (export "memory") 2)
        (func (export "actor_abi_v1"))
        (func (export "actor_alloc") (param i32) (result i32) (local $i i32)
          (local.set $i (i32.const 4000000))
          (loop $l (local.set $i (i32.sub (local.get $i) (i32.const 1))) (i32.store (i32.const 8) (local.get $i)) (br_if $l (local.get $i)))
          (i32.const 1024))
        (func (export "actor_event") (param i32 i32 i32) (result i32)
          (drop (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (local.get 1) (local.get 2)))
          (i32.const 0))))";
    Stage stage(wasm_of(slow), {5'000 * kMs, 20'000 * kMs});
    REQUIRE(stage.error == "");
    const Slices slices(100 * kUs);
    Bytes event(3'000, 7);
    REQUIRE(stage.begin(1, 1, event).ended == Ended::Preempted);
    event.assign(event.size(), 9);
    Ran ran = stage.go_on(1);
    while (ran.ended == Ended::Preempted) ran = stage.go_on(1);
    CHECK(Stage::body(ran) == std::string(3'000, 7));

    auto file = ring::make_body("hf-test-body");
    REQUIRE(file.ok());
    const std::string large(20'000, 'x');
    REQUIRE(ring::append_body(file->get(), large.data(), large.size()).ok());
    REQUIRE(ring::seal_body(file->get()).ok());
    stage.actor_class.body_max = 30'000;
    stage.open(2);
    Bytes head(12, 0);
    ran =
        stage.residents.run(2, 1, head, kNowMs, 0, {1, 2}, {std::move(file).value(), large.size()});
    REQUIRE(ran.ended == Ended::Preempted);
    head.assign(head.size(), 9);
    while (ran.ended == Ended::Preempted) ran = stage.go_on(2);
    std::string whole(8, '\0');
    const auto size = static_cast<std::uint32_t>(large.size());
    whole.append(reinterpret_cast<const char*>(&size), sizeof(size));
    CHECK(Stage::body(ran) == whole + large);
}

}  // namespace hf::wasm
