// Guests that trap, loop, recurse and grow: each ends inside its limits, the next event is served afresh.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

using testing::actor;
using testing::kAllImports;
using testing::Stage;
using testing::wasm_of;

namespace {

constexpr std::int64_t kMs = 1'000'000;

std::int64_t thread_cpu_ns() {
    timespec ts{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return std::int64_t{ts.tv_sec} * 1'000'000'000 + ts.tv_nsec;
}

// actor_event whose event's first byte picks a function $k1 .. $k7.
std::string by_kind(int kinds) {
    std::string out =
        R"((func (export "actor_event") (param i32) (param $p i32) (param $l i32) (result i32) (local $kind i32)
        (local.set $kind (i32.load8_u (local.get $p))))";
    for (int kind = 1; kind <= kinds; ++kind)
        out += "(if (i32.eq (local.get $kind) (i32.const " + std::to_string(kind) +
               ")) (then (return (call $k" + std::to_string(kind) + "))))";
    return out + "(i32.const -9))";
}

Ran pick(Stage& stage, std::uint64_t activation, std::uint32_t function) {
    return stage.run(activation, 1, Bytes{static_cast<std::uint8_t>(function)});
}

}  // namespace

TEST_CASE("each_trap_ends_the_event_by_name_and_the_next_one_is_served") {
    Stage stage(wasm_of(actor("", by_kind(7) + R"(
        (type $t (func (result i32)))
        (type $other (func (param i64)))
        (table 3 funcref)
        (elem (i32.const 0) $k7 $wrong)
        (func $wrong (param i64))
        (func $k1 (result i32) unreachable)
        (func $k2 (result i32) (i32.div_s (i32.const 1) (i32.const 0)))
        (func $k3 (result i32) (i32.div_s (i32.const 0x80000000) (i32.const -1)))
        (func $k4 (result i32) (i32.trunc_f32_s (f32.const nan)))
        (func $k5 (result i32) (i32.load offset=33554431 (i32.const 0xffffffff)))
        (func $k6 (result i32) (call_indirect (type $t) (i32.const 1)))
        (func $k7 (result i32) (i32.const 0)))")));
    REQUIRE(stage.error == "");
    const char* const texts[] = {"unreachable",
                                 "divide by zero",
                                 "integer overflow",
                                 "NaN",
                                 "out of bounds",
                                 "call_indirect"};
    for (std::uint32_t kind = 1; kind <= 6; ++kind) {
        const Ran ran = pick(stage, 1, kind);
        CHECK(ran.ended == Ended::Trapped);
        CHECK_MESSAGE(ran.error.find(texts[kind - 1]) != std::string::npos, ran.error);
        CHECK(pick(stage, 1, 7).ended == Ended::Ok);
    }
}

TEST_CASE("wild_addresses_of_every_kind_end_in_the_actors_own_slot") {
    Stage stage(wasm_of(actor("", by_kind(5) + R"(
        (func $k1 (result i32) (i32.store (i32.const 131072) (i32.const 1)) (i32.const 0))
        (func $k2 (result i32) (i64.store offset=33554431 (i32.const 0xfffffff8) (i64.const 1)) (i32.const 0))
        (func $k3 (result i32) (memory.fill (i32.const 131071) (i32.const 1) (i32.const 2)) (i32.const 0))
        (func $k4 (result i32) (memory.copy (i32.const 0) (i32.const 0xfffffff0) (i32.const 64)) (i32.const 0))
        (func $k5 (result i32) (i32.store (i32.const 131068) (i32.const 1)) (i32.const 0)))")));
    REQUIRE(stage.error == "");
    for (std::uint32_t kind = 1; kind <= 4; ++kind)
        CHECK(pick(stage, 1, kind).error == "trap: out of bounds memory or table access");
    CHECK(pick(stage, 1, 5).ended == Ended::Ok);
}

TEST_CASE("loops_of_every_kind_end_at_the_cpu_deadline") {
    Stage stage(wasm_of(actor("", by_kind(4) + R"(
        (global $g (mut i32) (i32.const 0))
        (func $k1 (result i32) (loop (br 0)) (i32.const 0))
        (func $k2 (result i32) (loop (memory.fill (i32.const 0) (i32.const 7) (i32.const 131072)) (br 0)) (i32.const 0))
        (func $k3 (result i32) (loop (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1))) (br 0)) (i32.const 0))
        (func $k4 (result i32) (i32.const 0)))")));
    REQUIRE(stage.error == "");
    for (std::uint32_t kind = 1; kind <= 3; ++kind) {
        const std::int64_t before = thread_cpu_ns();
        const Ran ran = pick(stage, 1, kind);
        CHECK(ran.ended == Ended::CpuDeadline);
        CHECK(ran.error == "cpu_limit: the event used more than 50 ms of CPU time");
        // Never before the limit; after it by a few ticks of the kernel, which runs at 100 to 1000 a second.
        const std::int64_t used = thread_cpu_ns() - before;
        CHECK(used >= 50 * kMs);
        CHECK(used < 100 * kMs);
        MESSAGE("loop " << kind << " stopped after " << static_cast<double>(used) / 1e6
                        << " ms of 50");
        CHECK(pick(stage, 1, 4).ended == Ended::Ok);
    }
}

TEST_CASE("a_loop_around_host_calls_ends_at_the_cpu_deadline") {
    Stage stage(wasm_of(actor(kAllImports, R"(
        (func (export "actor_event") (param i32 i32 i32) (result i32)
          (loop (drop (call $kv_put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 64))) (drop (call $now_ms)) (br 0))
          (i32.const 0)))")));
    REQUIRE(stage.error == "");
    const Ran ran = stage.run(1);
    CHECK(ran.ended == Ended::CpuDeadline);
    CHECK(ran.state_bytes == 0);
    CHECK(ran.changes.empty());
}

TEST_CASE("the_wall_deadline_ends_an_event_whose_cpu_limit_is_far_away") {
    Stage stage(wasm_of(actor("", R"(
        (func (export "actor_event") (param i32 i32 i32) (result i32) (loop (br 0)) (i32.const 0)))")),
                Deadlines{60'000 * kMs, 40 * kMs});
    REQUIRE(stage.error == "");
    const Ran ran = stage.run(1);
    CHECK(ran.ended == Ended::WallDeadline);
    CHECK(ran.error == "wall_limit: the event took more than 40 ms");
    CHECK(ran.elapsed_ns >= 40 * kMs);
}

TEST_CASE("many_short_events_are_never_taken_for_one_long_one") {
    // Each burns a few hundred microseconds; together far more than one event's limit of 10 ms.
    Stage stage(wasm_of(actor("", R"(
        (func (export "actor_event") (param i32 i32 i32) (result i32) (local $i i32)
          (local.set $i (i32.const 200000))
          (loop $l (local.set $i (i32.sub (local.get $i) (i32.const 1))) (i32.store (i32.const 8) (local.get $i)) (br_if $l (local.get $i)))
          (i32.const 0)))")),
                Deadlines{10 * kMs, 2'000 * kMs});
    REQUIRE(stage.error == "");
    int stopped = 0;
    for (int i = 0; i < 1000; ++i) stopped += stage.run(1).ended == Ended::Ok ? 0 : 1;
    CHECK(stopped == 0);
}

TEST_CASE("recursion_of_every_kind_ends_and_the_shadow_stack_is_whole_again") {
    std::string wide = "(func $k3 (result i32) ";
    for (int i = 0; i < 900; ++i) wide += "(local $v" + std::to_string(i) + " i64)";
    for (int i = 0; i < 900; ++i)
        wide += "(local.set $v" + std::to_string(i) + " (i64.load (i32.const " +
                std::to_string(8 * i) + ")))";
    wide += "(drop (call $k3))";
    for (int i = 0; i < 900; ++i)
        wide += "(i64.store (i32.const " + std::to_string(8 * i) + ") (local.get $v" +
                std::to_string(i) + "))";
    wide += "(i32.const 0))";
    Stage stage(wasm_of(actor(kAllImports, by_kind(5) + wide + R"(
        (global $sp (mut i32) (i32.const 4096))
        (func $k1 (result i32) (global.set $sp (i32.sub (global.get $sp) (i32.const 16))) (i32.add (call $k1) (i32.const 1)))
        (func $k2 (result i32) (i32.add (call $k2b) (i32.const 1)))
        (func $k2b (result i32) (i32.add (call $k2) (i32.const 2)))
        (func $k4 (result i32)
          (drop (call $kv_put (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 8)))
          (i32.add (call $k4) (i32.const 1)))
        (func $k5 (result i32) (i32.sub (global.get $sp) (i32.const 4096))))")));
    REQUIRE(stage.error == "");
    for (std::uint32_t kind = 1; kind <= 4; ++kind) {
        const Ran ran = pick(stage, 1, kind);
        CHECK(ran.ended == Ended::Trapped);
        CHECK_MESSAGE(ran.error == "trap: call stack exhausted (256 KiB)", kind);
        CHECK_MESSAGE(pick(stage, 1, 5).ended == Ended::Ok, "the stack pointer stayed low");
    }
}

TEST_CASE("frames_larger_than_the_guard_meet_it_by_their_probes") {
    // 10 000 values of 8 bytes live across the call: a frame of 80 KB, the guard has 64.
    std::string deep = "(func $k1 (result i32) ";
    for (int i = 0; i < 10'000; ++i) deep += "(i64.load (i32.const 8)) ";
    deep += "call $k1 drop ";
    for (int i = 1; i < 10'000; ++i) deep += "i64.add ";
    Stage stage(wasm_of(
        actor("", by_kind(2) + deep + "i32.wrap_i64) (func $k2 (result i32) (i32.const 0))")));
    REQUIRE(stage.error == "");
    CHECK(pick(stage, 1, 1).error == "trap: call stack exhausted (256 KiB)");
    CHECK(pick(stage, 1, 2).ended == Ended::Ok);
}

TEST_CASE("memory_grows_up_to_the_class_limit_and_is_small_again_after_a_failure") {
    Stage stage(wasm_of(actor("", by_kind(3) + R"(
        (func $k1 (result i32) (local $n i32)
          (loop $l (if (i32.ne (memory.grow (i32.const 1)) (i32.const -1)) (then
            (i32.store (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 4)) (i32.const 1))
            (local.set $n (i32.add (local.get $n) (i32.const 1))) (br $l))))
          (local.get $n))
        (func $k2 (result i32) (i32.sub (memory.size) (i32.const 10)))
        (func $k3 (result i32) (drop (memory.grow (i32.const 60000))) unreachable))")),
                Deadlines{200 * kMs, 2'000 * kMs},
                10);
    REQUIRE(stage.error == "");
    CHECK(pick(stage, 1, 1).ended == Ended::Ok);
    CHECK(pick(stage, 1, 2).ended == Ended::Ok);  // size 10: rc 0
    const Ran ran = pick(stage, 1, 3);
    CHECK(ran.error ==
          "trap: unreachable instruction executed (memory.grow beyond memory_max, 10 pages, was "
          "refused)");
    CHECK(pick(stage, 1, 2).error == "the actor's handler answered -8");  // two pages again
}

TEST_CASE("two_actors_with_indirect_calls_keep_their_data_apart") {
    Stage stage(wasm_of(actor(kAllImports, by_kind(2) + R"(
        (type $t (func (result i32)))
        (table 2 2 funcref)
        (elem (i32.const 0) $bump $tell)
        (global $calls (mut i32) (i32.const 0))
        (func $bump (result i32)
          (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
          (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
          (i32.const 0))
        (func $tell (result i32)
          (i32.store (i32.const 128) (i32.add (i32.load (i32.const 64)) (i32.mul (global.get $calls) (i32.const 16))))
          (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 128) (i32.const 1)))
        (func $k1 (result i32) (call_indirect (type $t) (i32.const 0)))
        (func $k2 (result i32) (call_indirect (type $t) (i32.const 1))))")));
    REQUIRE(stage.error == "");
    for (int i = 0; i < 3; ++i) CHECK(pick(stage, 1, 1).ended == Ended::Ok);
    CHECK(pick(stage, 2, 1).ended == Ended::Ok);
    CHECK(Stage::body(pick(stage, 1, 2)) == "\x33");
    CHECK(Stage::body(pick(stage, 2, 2)) == "\x11");
    CHECK(Stage::body(pick(stage, 3, 2)) == std::string(1, '\0'));
}

TEST_CASE("an_imported_function_in_a_table_acts_on_the_running_actor") {
    Stage stage(wasm_of(actor(kAllImports, R"(
        (type $put (func (param i32 i32 i32 i32) (result i32)))
        (table 1 funcref)
        (elem (i32.const 0) $kv_put)
        (func (export "actor_event") (param i32 i32 i32) (result i32)
          (call_indirect (type $put) (i32.const 0) (i32.const 1) (i32.const 0) (i32.const 8) (i32.const 0))))")));
    REQUIRE(stage.error == "");
    CHECK(stage.run(1).ended == Ended::Ok);
    CHECK(stage.run(1).state_bytes == 1 + 8 + kPairOverheadBytes);
    stage.open(2);
    CHECK(stage.residents.checkpoint(2)->size() < 64);
}

TEST_CASE("a_fault_of_the_host_itself_ends_the_process_by_its_signal") {
    (void)testing::host();  // its directory is this process's to remove
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        testing::Stage stage(wasm_of(actor(
            "",
            R"((func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0)))")));
        (void)stage.run(1);
        Instance instance(*stage.actor_class.program, testing::host().pool, 2);
        if (!instance.map().ok()) ::_exit(1);
        testing::host().worker->run(instance,
                                    [](Instance&, void* arg) -> std::uint32_t {
                                        return *static_cast<volatile std::uint32_t*>(arg);
                                    },
                                    // SAFETY: never mapped (vm.mmap_min_addr); that is the test
                                    reinterpret_cast<void*>(0x1000),
                                    {1'000'000'000, 1'000'000'000});
        ::_exit(2);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGSEGV);
}

TEST_CASE("an_event_whose_slice_is_over_before_it_begins_is_not_taken_for_another") {
    Stage stage(wasm_of(actor(kAllImports, R"(
        (func (export "actor_event") (param i32) (param $p i32) (param i32) (result i32)
          (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (local.get $p) (i32.const 1))))")));
    REQUIRE(stage.error == "");
    Ran ran[3];
    {
        const testing::Slices slices(1);
        for (std::uint8_t n = 0; n < 3; ++n) {
            // The timer is late now and then, and the event over before it.
            for (int tries = 0; tries < 1000 && ran[n].ended == Ended::Ok; ++tries)
                ran[n] = stage.begin(n + 1U, 1, Bytes{n});
            REQUIRE(ran[n].ended == Ended::Preempted);
        }
    }
    for (std::uint8_t n = 0; n < 3; ++n) {
        ran[n] = stage.go_on(n + 1U);
        CHECK(ran[n].ended == Ended::Ok);
        CHECK(Stage::body(ran[n]) == std::string(1, static_cast<char>(n)));
    }
}

}  // namespace hf::wasm
