// Guest ABI v1 from the guest's side: results, limits, bad pointers, and what an event leaves.
#include <doctest/doctest.h>

#include "plugins/runtime-wasm/testing/machine.hpp"

namespace hf::wasm {

using namespace testing;  // NOLINT(google-build-using-namespace): the machine's steps

namespace {

Bytes code(const std::vector<Step>& steps) {
    return program(steps);
}

Stage& stage() {
    static Stage instance(wasm_of(machine()));
    REQUIRE(instance.error == "");
    return instance;
}

Step get(std::uint32_t key, std::uint32_t len, std::uint32_t out, std::uint32_t cap) {
    return {1, key, len, out, cap};
}
Step put(std::uint32_t key, std::uint32_t len, std::uint32_t value, std::uint32_t size) {
    return {2, key, len, value, size};
}

}  // namespace

TEST_CASE("keys_come_and_go_and_lengths_are_full_lengths") {
    Stage& at = stage();
    CHECK(results(at.run(1,
                         1,
                         code({get(16, 3, 64, 8),
                               put(16, 3, 32, 5),
                               get(16, 3, 64, 8),
                               get(16, 3, 64, 2),
                               {3, 16, 3},
                               {3, 16, 3},
                               put(16, 3, 32, 4)}))) == Words{-1, 0, 5, 5, 0, -1, 0});
    CHECK(results(at.run(1, 1, code({get(16, 3, 64, 0)}))) == Words{4});
    CHECK(at.run(1, 1, code({get(16, 3, 64, 0)})).changes.empty());
}

TEST_CASE("arguments_that_make_no_sense_are_answered_and_wild_pointers_trap") {
    Stage& at = stage();
    CHECK(results(at.run(2,
                         1,
                         code({get(16, 0, 64, 8),
                               put(16, 0, 32, 1),
                               {3, 16, 0},
                               {4, 199, 0, 0, 0},
                               {4, 600, 0, 0, 0}}))) == Words{-2, -2, -2, -2, -2});
    // Headers of 5 bytes at 0 that do not parse as flat pairs.
    CHECK(results(at.run(2, 1, code({{4, 200, 5, 0, 0}}))) == Words{-2});
    const Step wild[] = {get(0xfffffff0, 64, 0, 0),
                         get(16, 3, 131070, 8),
                         put(16, 3, 131071, 2),
                         {3, 131072, 1},
                         {4, 200, 0, 4, 0xffffffff},
                         {5, 2, 0xffffffff, 1},
                         {6, 131070, 8},
                         {7, 200000, 1}};
    for (const Step& step : wild) {
        const Ran ran = at.run(2, 1, code({put(16, 3, 32, 5), step}));
        CHECK(ran.error == "trap: out of bounds memory or table access");
        CHECK(ran.changes.empty());
    }
    CHECK(results(at.run(2, 1, code({get(16, 3, 64, 8)}))) == Words{-1});
}

TEST_CASE("limits_answer_minus_three_and_a_failing_event_tells_their_name") {
    Stage& at = stage();
    CHECK(results(
              at.run(3, 1, code({put(0, 513, 32, 1), put(16, 3, 0, 49153), put(0, 512, 32, 1)}))) ==
          Words{-3, -3, 0});
    Ran ran = at.run(3, 1, code({put(16, 3, 0, 49153), {9, 0xffffffff}}));
    CHECK(ran.ended == Ended::Limit);
    CHECK(ran.error == "limit value_bytes: 49152 allowed, 49153 asked for");
    ran = at.run(3, 1, code({put(0, 513, 32, 1), {9, 0xffffffff}}));
    CHECK(ran.error == "limit key_bytes: 512 allowed, 513 asked for");
    ran = at.run(3, 1, code({{4, 200, 0, 0, 49153}, {9, 0xffffffff}}));
    CHECK(ran.error == "limit reply_bytes: 49152 allowed, 49153 asked for");
    // Reply and changes share one record: whichever comes second is told.
    ran = at.run(3, 1, code({put(16, 3, 0, 30000), {4, 200, 0, 0, 40000}, {9, 0xffffffff}}));
    CHECK(ran.error.starts_with("limit event_output_bytes: 61440 allowed"));
    ran = at.run(3, 1, code({{4, 200, 0, 0, 40000}, put(16, 3, 0, 30000), {9, 0xffffffff}}));
    CHECK(ran.error.starts_with("limit event_output_bytes"));
    ran = at.run(3, 1, code({{6, 0, 65537}}));
    CHECK(ran.ended == Ended::Limit);
    CHECK(ran.error == "limit random_bytes: 65536 allowed, 65537 asked for");
}

TEST_CASE("failures_of_every_kind_leave_neither_of_two_writes") {
    Stage& at = stage();
    CHECK(at.run(4, 1, code({put(16, 3, 32, 5)})).ended == Ended::Ok);
    const Step endings[] = {{9, 0xffffffd6}, {7, 32, 5}, get(0xffffffff, 9, 0, 0)};
    const char* const words[] = {"the actor's handler answered -42",
                                 "abort: value",
                                 "trap: out of bounds memory or table access"};
    for (int i = 0; i < 3; ++i) {
        const Ran ran =
            at.run(4, 1, code({put(16, 3, 32, 1), put(16, 1, 32, 5), {3, 16, 3}, endings[i]}));
        CHECK(ran.error == words[i]);
        CHECK(ran.changes.empty());
        CHECK(ran.output->replied == false);
        CHECK(results(at.run(4, 1, code({get(16, 3, 64, 8), get(16, 1, 64, 8)}))) == Words{5, -1});
    }
}

TEST_CASE("one_reply_an_event_and_none_is_none") {
    Stage& at = stage();
    const Ran twice = at.run(5, 1, code({{4, 418, 0, 32, 5}, {4, 200, 0, 32, 5}}));
    CHECK(twice.output->reply_status == 418);
    CHECK(Stage::body(twice) == "value");
    const Ran silent = at.run(5, 1, code({{9, 0}}));
    CHECK(silent.ended == Ended::Ok);
    CHECK_FALSE(silent.output->replied);
}

TEST_CASE("clock_randomness_and_log_are_the_events") {
    Stage& at = stage();
    CHECK(results(at.run(6, 1, code({{8, 1'700'000'000}, {8, 1}}))) == Words{1, 0});
    const Ran a = at.run(6, 1, code({{6, 32000, 16}, {4, 200, 0, 32000, 16}}));
    const std::string first = Stage::body(a);
    const Ran b = at.run(6, 1, code({{6, 32000, 16}, {4, 200, 0, 32000, 16}}));
    CHECK(first.size() == 16);
    CHECK(first != Stage::body(b));
    std::vector<Step> lines(20, Step{5, 9, 32, 5});
    lines.push_back({5, 1, 0, 2000});
    const Ran loud = at.run(6, 1, code(lines));
    CHECK(loud.output->logs.size() == kLogLinesPerEventMax);
    CHECK(loud.output->logs_dropped == 5);
    CHECK(loud.output->logs[0].level == 4);
    CHECK(loud.output->logs[0].text == "value");
}

TEST_CASE("an_event_without_room_or_with_a_wild_buffer_fails_by_name") {
    Stage none(wasm_of(R"((module (memory (export "memory") 1) (func (export "actor_abi_v1"))
        (func (export "actor_alloc") (param i32) (result i32) (i32.const 0))
        (func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0))))"));
    CHECK(none.run(1, 1, Bytes(7)).error == "the actor has no room for an event of 7 bytes");
    Stage wild(wasm_of(R"((module (memory (export "memory") 1) (func (export "actor_abi_v1"))
        (func (export "actor_alloc") (param i32) (result i32) (i32.const 65530))
        (func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0))))"));
    CHECK(wild.run(1, 1, Bytes(7)).error ==
          "actor_alloc answered a buffer outside the actor's memory");
    CHECK(wild.run(1, 1, Bytes(6)).ended == Ended::Ok);
    CHECK(wild.run(1, 0, {}).ended == Ended::Failed);
    CHECK(wild.run(1, 9, {}).ended == Ended::Failed);
}

TEST_CASE("fresh_is_called_once_for_each_mapping_and_free_after_each_event") {
    Stage at(wasm_of(R"((module )" + std::string(kAllImports) +
                     R"( (memory (export "memory") 1) (func (export "actor_abi_v1"))
        (func (export "actor_alloc") (param i32) (result i32) (i32.const 1024))
        (func (export "actor_fresh") (i32.store8 (i32.const 8) (i32.add (i32.load8_u (i32.const 8)) (i32.const 1))))
        (func (export "actor_free") (param i32 i32) (i32.store8 (i32.const 9) (i32.add (i32.load8_u (i32.const 9)) (local.get 1))))
        (func (export "actor_event") (param $k i32) (param i32 i32) (result i32)
          (if (i32.eq (local.get $k) (i32.const 2)) (then unreachable))
          (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 8) (i32.const 2)))))"));
    REQUIRE(at.error == "");
    CHECK(Stage::body(at.run(1, 1, Bytes(3))) == std::string("\x01\x00", 2));
    CHECK(Stage::body(at.run(1, 1, Bytes(3))) == std::string("\x01\x03", 2));
    CHECK(at.run(1, 2).ended == Ended::Trapped);
    CHECK(Stage::body(at.run(1, 1, Bytes(3))) == std::string("\x01\x00", 2));
}

TEST_CASE("units_are_bounded_pieces_are_in_order_and_a_drop_frees_everything") {
    Stage& at = stage();
    const std::size_t before = at.residents.mapped();
    const std::size_t units = at.residents.count();
    for (std::uint64_t id = 100; id < 100 + 100 - units; ++id) {
        at.open(id);
        (void)at.run(id, 1, code({}));
    }
    const auto over = at.residents.open(9999, "u", at.actor_class);
    CHECK(over.error().message == "limit resident_units_max: 100 units are resident here");
    for (std::uint64_t id = 100; id < 200; ++id) at.residents.drop(id);
    CHECK(at.residents.mapped() == before);
    CHECK(at.residents.count() == units);
    CHECK(at.run(1, 1, code({})).ended == Ended::Ok);
    CHECK(at.residents.run(100, 1, {}, 0, 0).ended == Ended::NotResident);

    REQUIRE(at.residents.open(7000, "u", at.actor_class).ok());
    CHECK(at.residents.run(7000, 1, {}, 0, 0).ended == Ended::NotResident);
    CHECK_FALSE(at.residents.part(7000, 1, false).ok());
    CHECK(at.residents.part(7000, 0, false).ok());
    CHECK(at.residents.part(7000, 1, true).ok());
    CHECK(at.residents.run(7000, 1, code({}), 0, 1).ended == Ended::WallDeadline);
    CHECK(at.residents.run(7000, 1, code({}), 0, 0).ended == Ended::Ok);
}

}  // namespace hf::wasm
