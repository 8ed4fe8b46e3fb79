// Every function a module may import, called with zeroes: what each does while the image is made, and what constants answer.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "plugins/runtime-wasm/build/policy.hpp"
#include "plugins/runtime-wasm/build/translate.hpp"
#include "plugins/runtime-wasm/module/meta.hpp"
#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

using testing::actor;
using testing::host;
using testing::wasm_of;

namespace {

std::string type_text(std::string_view letters) {
    std::string out;
    for (const char each : letters) out += each == 'I' ? " i64" : " i32";
    return out;
}

// actor_event whose kind is the number of the import to call; answers the lower half of its result.
std::string all_imports_module() {
    std::string imports;
    std::string body =
        "(func (export \"actor_event\") (param $kind i32) (param i32 i32) (result i32)";
    std::size_t number = 0;
    for (const KnownImport& known : known_imports()) {
        const std::string id = "$f" + std::to_string(number);
        imports += "(import \"" + std::string(known.module) + "\" \"" + std::string(known.name) +
                   "\" (func " + id + " (param" + type_text(known.params) + ")" +
                   (known.result.empty() ? "" : " (result" + type_text(known.result) + ")") + "))";
        std::string call = "(call " + id;
        for (const char each : known.params)
            call += each == 'I' ? " (i64.const 0)" : " (i32.const 0)";
        call += ")";
        if (known.result == "I") call = "(i32.wrap_i64 " + call + ")";
        if (known.result.empty()) call += "(i32.const 0)";
        body += "(if (i32.eq (local.get $kind) (i32.const " + std::to_string(number++) +
                ")) (then (return " + call + ")))";
    }
    return actor(imports, body + "(i32.const -99))");
}

std::uint32_t event_of_kind(Instance& instance, void* kind) {
    return instance.module().actor_event(
        instance.guest(), *static_cast<std::uint32_t*>(kind), 0, 0);
}

}  // namespace

TEST_CASE("while_the_image_is_made_only_what_depends_on_nothing_may_be_called") {
    const auto program = host().load(wasm_of(all_imports_module()));
    REQUIRE_MESSAGE(program.ok(), program.error().message);
    // May be called: lines of the log, and constants. Ends the image by its own words: abort, proc_exit.
    const std::set<std::string_view> allowed = {
        "log", "fd_write", "fd_fdstat_get", "clock_res_get", "args_sizes_get", "environ_sizes_get"};
    const std::set<std::string_view> ends = {"abort", "proc_exit"};
    std::uint32_t kind = 0;
    std::size_t refused = 0;
    for (const KnownImport& known : known_imports()) {
        Event event;
        event.reset(nullptr, Kind::None, 0, 0);
        Instance instance(**program, host().pool, 2);
        REQUIRE(instance.map().ok());
        instance.event = &event;
        const Outcome outcome =
            host().worker->run(instance, event_of_kind, &kind, {1'000'000'000, 1'000'000'000});
        const std::string name(known.name);
        if (known.host.empty() || allowed.contains(known.name)) {
            CHECK_MESSAGE(outcome.stop == Stop::Done, name);
            if (known.host.empty()) CHECK_MESSAGE(outcome.value == known.answer, name);
        } else if (ends.contains(known.name)) {
            CHECK_MESSAGE(outcome.stop == Stop::Abort, name);
        } else {
            CHECK_MESSAGE(outcome.stop == Stop::Abort, name);
            CHECK(event.abort == name + " is not allowed while the image is made");
            ++refused;
        }
        ++kind;
    }
    CHECK(refused == 21 + 2);
}

TEST_CASE("every_import_that_wasi_libc_makes_is_known_with_its_type") {
    const auto wasm = read_file(HF_WASI_ALL_WASM, 8u << 20);
    REQUIRE(wasm.ok());
    const auto out = translate(*wasm, true);
    REQUIRE_MESSAGE(out.ok(), out.error().message);
    std::size_t wasi = 0;
    for (const std::string& import : out->imports)
        wasi += import.starts_with("wasi_snapshot_preview1.") ? 1 : 0;
    CHECK(wasi >= 45);
}

TEST_CASE("an_actor_in_cpp_needs_no_library_but_its_headers") {
    const auto wasm = read_file(HF_FREESTANDING_WASM, 8u << 20);
    REQUIRE(wasm.ok());
    const auto out = translate(*wasm, false);
    REQUIRE_MESSAGE(out.ok(), out.error().message);
    CHECK(out->imports.size() > 5);
    for (const std::string& import : out->imports) CHECK(import.starts_with("actor."));
    CHECK(std::count(out->exports.begin(), out->exports.end(), "actor_on_stop") == 1);
    CHECK(std::count(out->exports.begin(), out->exports.end(), "actor_on_restored") == 0);
}

}  // namespace hf::wasm
