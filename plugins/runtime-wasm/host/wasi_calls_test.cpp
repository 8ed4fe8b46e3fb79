// What a program with a C library gets from us: lines of the log, the event's clock, randomness, and an end by name.
#include <doctest/doctest.h>

#include "plugins/runtime-wasm/module/meta.hpp"
#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

using testing::actor;
using testing::http_event;
using testing::kAllImports;
using testing::Stage;
using testing::wasm_of;

namespace {

Stage& libc() {
    static Stage instance([] {
        auto wasm = read_file(HF_WASI_ALL_WASM, 8u << 20);
        REQUIRE(wasm.ok());
        return std::move(wasm).value();
    }());
    REQUIRE(instance.error == "");
    return instance;
}

Ran ask(const std::string& path) {
    return libc().run(1, 1, http_event("GET", path));
}

std::vector<std::string> lines(const Ran& ran) {
    std::vector<std::string> out;
    for (const LogLine& line : ran.output->logs)
        out.push_back(std::to_string(line.level) + " " + line.text);
    return out;
}

// fd_write with vectors of the test's own; the result is the handler's.
Stage& writer() {
    static Stage instance(wasm_of(actor(
        std::string(kAllImports) +
            R"((import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
               (import "wasi_snapshot_preview1" "fd_fdstat_get" (func $stat (param i32 i32) (result i32)))
               (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
               (import "wasi_snapshot_preview1" "random_get" (func $rand (param i32 i32) (result i32)))
               (import "wasi_snapshot_preview1" "args_sizes_get" (func $args (param i32 i32) (result i32))))",
        R"((data (i32.const 16) "one\ntwo")
           (func (export "actor_event") (param i32) (param $p i32) (param $l i32) (result i32) (local $op i32)
             (local.set $op (i32.load (local.get $p)))
             (if (i32.eq (local.get $op) (i32.const 1)) (then (return (call $write
               (i32.load offset=4 (local.get $p)) (i32.add (local.get $p) (i32.const 16)) (i32.load offset=8 (local.get $p)) (i32.load offset=12 (local.get $p))))))
             (if (i32.eq (local.get $op) (i32.const 2)) (then (return (call $stat (i32.load offset=4 (local.get $p)) (i32.load offset=8 (local.get $p))))))
             (if (i32.eq (local.get $op) (i32.const 3)) (then (return (call $clock (i32.load offset=4 (local.get $p)) (i64.const 0) (i32.load offset=8 (local.get $p))))))
             (if (i32.eq (local.get $op) (i32.const 4)) (then (return (call $rand (i32.load offset=4 (local.get $p)) (i32.load offset=8 (local.get $p))))))
             (call $args (i32.load offset=4 (local.get $p)) (i32.load offset=8 (local.get $p)))))")));
    REQUIRE(instance.error == "");
    return instance;
}

Ran write_words(const std::vector<std::uint32_t>& words) {
    Bytes event;
    FlatWriter out(event);
    for (const std::uint32_t word : words) out.u32(word);
    return writer().run(1, 1, event);
}

}  // namespace

TEST_CASE("printed_lines_become_lines_of_the_log") {
    CHECK(lines(ask("/print")) ==
          std::vector<std::string>{"2 a line", "2 and 1 more", "3 an error"});
    CHECK(ask("/ok").output->logs.empty());
}

TEST_CASE("a_c_library_has_the_events_clock_randomness_and_no_files") {
    CHECK(Stage::body(ask("/clock")) == std::to_string(testing::kNowMs) + "\n");
    const std::string first = Stage::body(ask("/random"));
    CHECK(first.size() == 16);
    CHECK(first != Stage::body(ask("/random")));
    const Ran all = ask("/all");
    CHECK(all.ended == Ended::Ok);
    CHECK(Stage::body(all) == "1\n");
    // The last failure is fd_renumber's or a file's: whatever it is, a number was kept.
    REQUIRE(all.output->logs.size() == 1);
    CHECK(all.output->logs[0].text.starts_with("errno "));
}

TEST_CASE("a_program_that_ends_itself_ends_its_event_by_name") {
    Ran ran = ask("/exit");
    CHECK(ran.ended == Ended::Failed);
    CHECK(ran.error == "proc_exit: the program ended itself with code 3");
    ran = ask("/abort");
    CHECK(ran.ended == Ended::Trapped);
    CHECK(ask("/ok").ended == Ended::Ok);
}

TEST_CASE("wild_vectors_trap_and_nonsense_is_an_error_number") {
    constexpr std::uint32_t kEnd = 131'072;
    CHECK(lines(write_words({1, 1, 2, 64, 16, 7, 16, 4})) ==
          std::vector<std::string>{"2 one", "2 twoone"});
    const auto rc = [](const std::vector<std::uint32_t>& words) {
        const Ran ran = write_words(words);
        return ran.error == "" ? std::string("0 or a number") : ran.error;
    };
    // Standard input, and a descriptor that is none: EBADF, 8, which is no failure of the event.
    CHECK(write_words({1, 0, 1, 64, 16, 7}).output->logs.empty());
    CHECK(write_words({1, 3, 1, 64, 16, 7}).output->logs.empty());
    const std::string oob = "trap: out of bounds memory or table access";
    CHECK(rc({1, 1, 1, 64, kEnd, 1}) == oob);
    CHECK(rc({1, 1, 1, 64, 16, 0xffffffff}) == oob);
    CHECK(rc({1, 1, 1, kEnd - 3, 16, 1}) == oob);
    CHECK(rc({1, 2, 20'000, 64, 16, 1}) == "0 or a number");
    CHECK(rc({2, 1, kEnd - 23}) == oob);
    CHECK(rc({2, 1, 256}) == "0 or a number");
    CHECK(rc({3, 0, kEnd - 7}) == oob);
    CHECK(rc({3, 2, 64}) == "0 or a number");
    CHECK(rc({4, kEnd, 1}) == oob);
    CHECK(rc({4, 0, 65'537}) == "limit random_bytes: 65536 allowed, 65537 asked for");
    CHECK(rc({5, 64, kEnd - 3}) == oob);
    // A wild vector after a good one: nothing of it reaches the log.
    const Ran half = write_words({1, 1, 2, 64, 16, 4, kEnd, 1});
    CHECK(half.error == oob);
    CHECK(half.output->logs.empty());
    // However much is written, what one event logs is bounded.
    const Ran much = write_words({1, 1, 2, 64, 0, 131'072, 16, 4});
    CHECK(much.ended == Ended::Ok);
    CHECK(much.output->logs.size() <= kLogLinesPerEventMax);
}

}  // namespace hf::wasm
