// The builder as a process, and what becomes of its files: hits, misses, damage, images.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

using testing::actor;
using testing::kAllImports;
using testing::run_builder;
using testing::Stage;
using testing::TempDir;
using testing::wasm_of;
using testing::write_file;

namespace {

constexpr const char* kEvent =
    R"((func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0)))";

struct Shelf {
    TempDir dir;
    std::string cache = dir / "cache";
    std::string module = dir / "m.wasm";
    explicit Shelf(const Bytes& wasm) {
        std::filesystem::create_directory(cache);
        write_file(module, wasm);
    }
    [[nodiscard]] testing::Said build() const {
        return run_builder("--module " + module + " --cache " + cache);
    }
    [[nodiscard]] std::string load(const std::string& so, const std::string& key) const {
        const auto loaded = load_module(
            so, key, testing::host().calls, *testing::host().worker, testing::host().pool);
        return loaded ? "loaded" : loaded.error().message;
    }
};

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

void damage(const std::string& path) {
    auto bytes = read_file(path, 1u << 30);
    REQUIRE(bytes.ok());
    (*bytes)[bytes->size() / 2] ^= 1;
    write_file(path, *bytes);
}

}  // namespace

TEST_CASE("the_same_module_is_built_once_and_another_one_anew") {
    const Shelf shelf(wasm_of(actor("", kEvent)));
    const auto first = nlohmann::json::parse(shelf.build().text);
    CHECK(first["cached"] == false);
    const auto second = nlohmann::json::parse(shelf.build().text);
    CHECK(second["cached"] == true);
    CHECK(first["key"] == second["key"]);
    write_file(shelf.module, wasm_of(actor("", std::string(kEvent) + "(func)")));
    const auto other = nlohmann::json::parse(shelf.build().text);
    CHECK(other["cached"] == false);
    CHECK(other["key"] != first["key"]);
    // Nothing but finished files, and nothing left in /tmp by name.
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(shelf.cache)) {
        const std::string extension = entry.path().extension();
        CHECK((extension == ".so" || extension == ".image" || extension == ".meta"));
        ++files;
    }
    CHECK(files == 6);
}

TEST_CASE("what_is_built_goes_to_its_own_directory_when_there_is_one") {
    const Shelf shelf(wasm_of(actor("", kEvent)));
    const std::string out = shelf.dir / "out";
    std::filesystem::create_directory(out);
    const auto said = nlohmann::json::parse(
        run_builder("--module " + shelf.module + " --cache " + shelf.cache + " --out " + out).text);
    CHECK(said["cached"] == false);
    CHECK(said["so"] == out + "/" + said["key"].get<std::string>() + ".so");
    CHECK(std::filesystem::is_empty(shelf.cache));
    CHECK(std::filesystem::exists(said["meta"].get<std::string>()));
}

TEST_CASE("two_builds_from_scratch_give_the_same_bytes") {
    const Bytes wasm = wasm_of(actor(
        kAllImports,
        std::string(kEvent) + "(global (mut i64) (i64.const 3)) (data (i32.const 5) \"hi\")"));
    const Shelf a(wasm);
    const Shelf b(wasm);
    const auto first = nlohmann::json::parse(a.build().text);
    const auto second = nlohmann::json::parse(b.build().text);
    for (const char* part : {"so", "image", "meta"})
        CHECK(*read_file(first[part], 1u << 30) == *read_file(second[part], 1u << 30));
}

TEST_CASE("damaged_files_are_not_loaded_and_the_builder_heals_them") {
    for (const char* part : {"so", "image", "meta"}) {
        const Shelf shelf(wasm_of(actor("", kEvent)));
        const auto built = nlohmann::json::parse(shelf.build().text);
        const std::string so = built["so"];
        const std::string key = built["key"];
        CHECK(shelf.load(so, key) == "loaded");
        CHECK(has(shelf.load(so, std::string(64, '0')), "asked for was 0000"));
        CHECK(has(shelf.load(so, ""), "asked for was none"));
        damage(built[part]);
        CHECK_MESSAGE(shelf.load(so, key) != "loaded", part);
        CHECK(nlohmann::json::parse(shelf.build().text)["cached"] == false);
        CHECK(shelf.load(so, key) == "loaded");
        std::filesystem::remove(std::string(built[part]));
        CHECK(shelf.load(so, key) != "loaded");
    }
}

TEST_CASE("the_builder_says_what_is_wrong_by_exit_code_and_sentence") {
    const Shelf shelf(wasm_of(actor("", "")));
    testing::Said said = shelf.build();
    CHECK(said.exit == 3);
    CHECK(said.text ==
          "module refused: export \"actor_event\" is missing: guest ABI v1 needs a function (i32 "
          "i32 i32) -> (i32)");
    CHECK(std::filesystem::is_empty(shelf.cache));
    CHECK(run_builder("").exit == 2);
    CHECK(run_builder("--module").exit == 2);
    CHECK(run_builder("--modul x").exit == 2);
    CHECK(run_builder("--module /nonexistent/m.wasm --cache " + shelf.cache).exit == 4);
    write_file(shelf.module, wasm_of(actor("", kEvent)));
    CHECK(run_builder("--module " + shelf.module + " --cache /nonexistent").exit == 4);
    said = run_builder("--inspect " + shelf.module);
    CHECK(said.exit == 0);
    CHECK(nlohmann::json::parse(said.text)["memory_pages"] == 2);
    write_file(shelf.module, Bytes(9u << 20, 0));
    said = run_builder("--inspect " + shelf.module);
    CHECK(said.exit == 3);
    CHECK(has(said.text, "at most 8388608"));
}

TEST_CASE("without_a_compiler_the_tool_says_so_and_refuses_no_module") {
    const Shelf shelf(wasm_of(actor("", kEvent)));
    // The environment of one command only: /bin/sh runs the builder by its full path, gcc is looked up in PATH.
    std::FILE* pipe = ::popen(("PATH=/nonexistent " HF_WASM_BUILDER " --module " + shelf.module +
                               " --cache " + shelf.cache + " 2>&1")
                                  .c_str(),
                              "r");
    REQUIRE(pipe != nullptr);
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
        text.push_back(static_cast<char>(c));
    const int status = ::pclose(pipe);
    CHECK(WEXITSTATUS(status) == 4);
    CHECK(has(text, "gcc is not there"));
}

TEST_CASE("all_actors_start_from_the_prepared_image_and_change_only_their_own") {
    Stage stage(wasm_of(actor(kAllImports, R"(
        (global $g (mut i32) (i32.const 1))
        (global $f (mut f64) (f64.const 0.5))
        (data (i32.const 4096) "seed")
        (start $s)
        (func $s (i32.store8 (i32.const 4100) (i32.const 83)))
        (func (export "_initialize") (i32.store8 (i32.const 4101) (i32.const 73)))
        (func (export "actor_prepare")
          (global.set $g (i32.const 80))
          (global.set $f (f64.const 2.0))
          (drop (memory.grow (i32.const 1)))
          (i32.store8 (i32.const 131072) (i32.const 71)))
        (func (export "actor_event") (param i32 i32 i32) (result i32)
          (i32.store8 (i32.const 4102) (global.get $g))
          (i32.store8 (i32.const 4103) (i32.load8_u (i32.const 131072)))
          (i32.store8 (i32.const 4104) (i32.add (i32.const 48) (i32.trunc_f64_u (global.get $f))))
          (i32.store8 (i32.const 4105) (i32.add (i32.const 48) (memory.size)))
          (global.set $g (i32.const 81))
          (i32.store8 (i32.const 131072) (i32.const 72))
          (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 4096) (i32.const 10))))")));
    REQUIRE(stage.error == "");
    CHECK(Stage::body(stage.run(1)) == "seedSIPG23");
    CHECK(Stage::body(stage.run(1)) == "seedSIQH23");
    CHECK(Stage::body(stage.run(2)) == "seedSIPG23");
}

TEST_CASE("an_image_phase_that_loops_traps_or_asks_the_world_refuses_the_module") {
    const auto refusal = [](const std::string& code) {
        const Shelf shelf(wasm_of(actor(kAllImports, std::string(kEvent) + code)));
        const testing::Said said = shelf.build();
        CHECK(said.exit == 3);
        return said.text;
    };
    CHECK(refusal("(start $s) (func $s (loop (br 0)))") ==
          "module refused: while the image was made, the start function stopped: it used more than "
          "2 s of CPU time");
    CHECK(has(refusal("(func (export \"_initialize\") unreachable)"),
              "_initialize stopped: trap: unreachable"));
    CHECK(has(refusal("(func (export \"actor_prepare\") (drop (call $now_ms)))"),
              "now_ms is not allowed while the image is made"));
    CHECK(
        has(refusal("(func (export \"actor_prepare\") (call $random (i32.const 0) (i32.const 4)))"),
            "random is not allowed"));
    CHECK(has(refusal("(func (export \"actor_prepare\") (drop (call $kv_put (i32.const 0) "
                      "(i32.const 1) (i32.const 0) (i32.const 1))))"),
              "kv_put is not allowed"));
    CHECK(has(refusal("(data (i32.const 131071) \"ab\")"),
              "instantiating the module stopped: trap: out of bounds"));
}

}  // namespace hf::wasm
