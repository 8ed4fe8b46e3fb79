// Modules that must not reach the compiler, and the sentence each gets.
#include <doctest/doctest.h>

#include <algorithm>

#include "plugins/runtime-wasm/build/policy.hpp"
#include "plugins/runtime-wasm/build/translate.hpp"
#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

using testing::actor;
using testing::kAllImports;
using testing::wasm_of;

namespace {

constexpr const char* kEvent =
    R"((func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0)))";

std::string refusal(const Bytes& wasm) {
    const auto out = translate(wasm, true);
    return out ? "accepted" : out.error().message;
}

std::string refusal(const std::string& wat) {
    return refusal(wasm_of(wat));
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a_plain_actor_is_accepted_with_all_imports") {
    const auto out = translate(wasm_of(actor(kAllImports, kEvent)), true);
    REQUIRE_MESSAGE(out.ok(), out.error().message);
    CHECK(out->imports.size() == 23);
    CHECK(out->pages == 2);
    CHECK(has(out->c, "hf_module"));
    CHECK(has(out->c, "Z_actorZ_kv_get"));
}

TEST_CASE("names_that_would_be_C_are_refused_as_export_import_and_module") {
    const std::string evil = "a*/ int evil(void){return 7;} /*";
    CHECK(has(refusal(actor("", std::string(kEvent) + "(func (export \"" + evil + "\"))")),
              "names are 1 to 128"));
    CHECK(has(refusal(actor("(import \"actor\" \"" + evil + "\" (func))", kEvent)),
              "names are 1 to 128"));
    CHECK(has(refusal(actor("(import \"" + evil + "\" \"kv_get\" (func))", kEvent)),
              "names are 1 to 128"));
    for (const char* name : {"", "a b", "a\\nb", "\\00", "\xc3\xa4", "a\\\\", "?\?/", "\\22"})
        CHECK_MESSAGE(
            has(refusal(actor("", std::string(kEvent) + "(func (export \"" + name + "\"))")),
                "names are 1 to 128"),
            name);
    CHECK(has(refusal(actor(
                  "", std::string(kEvent) + "(func (export \"" + std::string(129, 'a') + "\"))")),
              "names are 1 to 128"));
    CHECK(refusal(actor(
              "", std::string(kEvent) + "(func (export \"" + std::string(128, 'a') + "\"))")) ==
          "accepted");
    CHECK(has(refusal(actor("", std::string(kEvent) + "(func (export \"__hf_g0\"))")), "reserved"));
}

TEST_CASE("the_name_section_never_reaches_the_C_text") {
    // $evil's name is kept in the binary's name section by hand: a custom section "name" with one function name.
    Bytes wasm = wasm_of(actor("", kEvent));
    const std::string name = "x*/evil_in_name_section/*";
    Bytes names = {4,
                   'n',
                   'a',
                   'm',
                   'e',
                   1,
                   static_cast<std::uint8_t>(name.size() + 3),
                   1,
                   0,
                   static_cast<std::uint8_t>(name.size())};
    names.insert(names.end(), name.begin(), name.end());
    wasm.push_back(0);
    wasm.push_back(static_cast<std::uint8_t>(names.size()));
    wasm.insert(wasm.end(), names.begin(), names.end());
    const auto out = translate(wasm, true);
    REQUIRE_MESSAGE(out.ok(), out.error().message);
    CHECK_FALSE(has(out->c, "evil_in_name_section"));
    CHECK_FALSE(has(out->header, "evil_in_name_section"));
}

TEST_CASE("compile_bombs_are_refused_before_the_compiler_sees_them") {
    std::string locals = "(func (local";
    for (int i = 0; i < 20000; ++i) locals += " i64";
    CHECK(refusal(actor("", std::string(kEvent) + locals + "))")) ==
          "function 3 has 20000 locals, at most 1000 are allowed");

    std::string deep = "(func ";
    for (int i = 0; i < 2000; ++i) deep += "(block ";
    deep += std::string(2000, ')') + ")";
    CHECK(has(refusal(actor("", std::string(kEvent) + deep)), "nested blocks, at most 1024"));

    std::string body = "(func (drop (i32.const 1))";
    for (int i = 0; i < 30000; ++i) body += "(drop (i32.const 1))";
    CHECK(has(refusal(actor("", std::string(kEvent) + body + ")")), "bytes, at most 65536"));

    std::string many;
    for (int i = 0; i < 20001; ++i) many += "(func)";
    CHECK(has(refusal(actor("", std::string(kEvent) + many)), "functions, at most 20000"));

    std::string wide = "(func (param";
    for (int i = 0; i < 129; ++i) wide += " i32";
    CHECK(has(refusal(actor("", std::string(kEvent) + wide + "))")), "parameters, at most 128"));

    CHECK(has(refusal(actor("", std::string(kEvent) + "(table 10001 funcref)")),
              "table entries, at most 10000"));
    CHECK(has(refusal(Bytes(9u << 20, 0)), "bytes, at most 8388608"));
}

TEST_CASE("features_beyond_wasm2c_are_refused_not_aborted_on") {
    CHECK(has(refusal(actor("", std::string(kEvent) + "(func (drop (v128.const i32x4 1 2 3 4)))")),
              "SIMD"));
    CHECK(
        has(refusal(actor("", std::string(kEvent) + "(func (param v128))")), "not a valid module"));
    CHECK(has(refusal(actor("", std::string(kEvent) + "(func (return_call 0))")),
              "not a valid module"));
    CHECK(has(refusal(R"((module (memory (export "memory") i64 1)))"), "not a valid module"));
    CHECK(has(refusal(R"((module (memory (export "memory") 1 1 shared)))"), "not a valid module"));
    CHECK(has(refusal(actor("", std::string(kEvent) + "(tag (param i32))")), "not a valid module"));
}

TEST_CASE("state_outside_memory_and_globals_is_refused") {
    const std::string tables =
        std::string(kEvent) + "(table 4 funcref) (elem $e func 0) (data $d \"x\")";
    const struct {
        const char* code;
        const char* name;
    } cases[] = {
        {"(func (data.drop $d))", "data.drop"},
        {"(func (elem.drop $e))", "elem.drop"},
        {"(func (drop (table.get 0 (i32.const 0))))", "table.get"},
        {"(func (table.set 0 (i32.const 0) (ref.null func)))", "ref.null"},
        {"(func (param $f i32) (table.init 0 $e (i32.const 0) (i32.const 0) (i32.const 1)))",
         "table.init"},
        {"(func (table.copy (i32.const 0) (i32.const 1) (i32.const 1)))", "table.copy"},
        {"(func (drop (ref.func 0)))", "ref.func"},
    };
    for (const auto& each : cases)
        CHECK_MESSAGE(has(refusal(actor("", tables + each.code)),
                          std::string("uses ") + each.name + ", which"),
                      each.name);
    CHECK(has(refusal(actor("", std::string(kEvent) + "(table 1 externref)")), "only funcref"));
    CHECK(
        has(refusal(actor("", std::string(kEvent) + "(global (mut externref) (ref.null extern))")),
            "only numbers"));
    CHECK(has(refusal(actor("", std::string(kEvent) + "(func (param funcref))")), "only numbers"));
}

TEST_CASE("an_initialiser_of_blocks_is_refused_before_the_library_asserts_on_it") {
    Bytes wasm = wasm_of(actor("", std::string(kEvent) + "(global (mut i64) (i64.const 1))"));
    const Bytes constant = {0x7e, 1, 0x42, 1, 0x0b};
    const auto at = std::search(wasm.begin(), wasm.end(), constant.begin(), constant.end());
    REQUIRE(at != wasm.end());
    at[2] = 0x02;  // block
    at[3] = 0x40;  // of no type: its end is what was the initialiser's
    CHECK(refusal(wasm) == "an initialiser uses block: only constants are allowed");
    at[2] = 0x7c;  // i64.add
    CHECK(has(refusal(wasm), "an initialiser uses i64.add"));
}

TEST_CASE("offsets_memories_and_types_have_bounds") {
    CHECK(has(
        refusal(actor(
            "", std::string(kEvent) + "(func (drop (i32.load offset=33554432 (i32.const 0))))")),
        "below 33554432"));
    CHECK(
        refusal(actor(
            "", std::string(kEvent) + "(func (drop (i32.load offset=33554431 (i32.const 0))))")) ==
        "accepted");
    CHECK(has(refusal(R"((module (memory (export "memory") 65536)))"),
              "65536 memory pages at the start, at most 4096"));
    CHECK(has(refusal(R"((module (import "env" "memory" (memory 1))))"), "not a function"));
    CHECK(
        has(refusal(R"((module (memory 1) (memory 1)))"), "the module has 2 memories, at most 1"));
    CHECK(has(refusal(R"((module))"), "exactly one"));
    CHECK(has(refusal(R"((module (memory 1)))"), "export its memory"));
    CHECK(has(refusal(actor("", "")), "\"actor_event\" is missing"));
    CHECK(
        has(refusal(actor(
                "", R"((func (export "actor_event") (param i32 i32) (result i32) (i32.const 0)))")),
            "(i32 i32) -> (i32), it must be (i32 i32 i32) -> (i32)"));
    CHECK(
        has(refusal(actor(R"((import "actor" "kv_get" (func (param i32) (result i32))))", kEvent)),
            "it must be (i32 i32 i32 i32) -> (i32)"));
    CHECK(has(refusal(actor(R"((import "actor" "sleep" (func (param i64))))", kEvent)),
              "is not known"));
    CHECK(
        has(refusal(actor(R"((import "env" "kv_get" (func (param i32 i32 i32 i32) (result i32))))",
                          kEvent)),
            "is not known"));
}

TEST_CASE("bytes_that_are_no_module_are_refused_in_one_sentence") {
    const Bytes good = wasm_of(actor(kAllImports, kEvent));
    CHECK(has(refusal(Bytes{}), "not a valid module"));
    const std::string text = "int main() { return 0; }\n";
    CHECK(has(refusal(Bytes(text.begin(), text.end())), "not a valid module"));
    int accepted = 0;
    for (std::size_t cut = 1; cut < good.size(); ++cut) {
        const std::string why =
            refusal(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(cut)));
        accepted += why == "accepted" ? 1 : 0;
        CHECK_FALSE(has(why, "\n"));
    }
    CHECK(accepted == 0);
    // Any single byte changed: refused or accepted, never a crash.
    for (std::size_t at = 0; at < good.size(); ++at) {
        Bytes bent = good;
        for (const int flip : {0x01, 0x80, 0xff}) {
            bent[at] = static_cast<std::uint8_t>(good[at] ^ flip);
            CHECK_FALSE(has(refusal(bent), "\n"));
        }
    }
}

}  // namespace hf::wasm
