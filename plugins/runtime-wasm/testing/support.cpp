#include "plugins/runtime-wasm/testing/support.hpp"

#include <sys/wait.h>
#include <unistd.h>
#include <wabt/binary-writer.h>
#include <wabt/ir.h>
#include <wabt/stream.h>
#include <wabt/wast-lexer.h>
#include <wabt/wast-parser.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "abi/base/check.hpp"

namespace hf::wasm::testing {

namespace {
constexpr std::int64_t kTickNs = 2'000'000;
constexpr std::size_t kParkedMax = 40;
}  // namespace

const char* const kAllImports = R"(
  (import "actor" "kv_get" (func $kv_get (param i32 i32 i32 i32) (result i32)))
  (import "actor" "kv_put" (func $kv_put (param i32 i32 i32 i32) (result i32)))
  (import "actor" "kv_delete" (func $kv_delete (param i32 i32) (result i32)))
  (import "actor" "kv_list" (func $kv_list (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "actor" "kv_next" (func $kv_next (param i32 i32 i32) (result i32)))
  (import "actor" "kv_close" (func $kv_close (param i32) (result i32)))
  (import "actor" "reply" (func $reply (param i32 i32) (result i32)))
  (import "actor" "http_reply" (func $http_reply (param i32 i32 i32 i32 i32) (result i32)))
  (import "actor" "alarm_set" (func $alarm_set (param i64) (result i32)))
  (import "actor" "alarm_get" (func $alarm_get (result i64)))
  (import "actor" "alarm_clear" (func $alarm_clear (result i32)))
  (import "actor" "call" (func $call (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "actor" "result_read" (func $result_read (param i32 i32 i32) (result i32)))
  (import "actor" "send" (func $send (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "actor" "entity_send" (func $entity_send (param i32 i32 i32 i32 i32 i32) (result i32)))
  (import "actor" "entity_ask" (func $entity_ask (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
  (import "actor" "ws_send" (func $ws_send (param i64 i32 i32 i32) (result i32)))
  (import "actor" "ws_close" (func $ws_close (param i64 i32 i32 i32) (result i32)))
  (import "actor" "passivate" (func $passivate (result i32)))
  (import "actor" "log" (func $log (param i32 i32 i32)))
  (import "actor" "now_ms" (func $now_ms (result i64)))
  (import "actor" "random" (func $random (param i32 i32)))
  (import "actor" "abort" (func $abort (param i32 i32))))";

TempDir::TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "hf-wasm-test-XXXXXX").string();
    HF_CHECK(::mkdtemp(name.data()) != nullptr, "a test needs a temporary directory");
    path_ = name;
}

TempDir::~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

Bytes wasm_of(const std::string& wat) {
    wabt::Errors errors;
    auto lexer = wabt::WastLexer::CreateBufferLexer("test.wat", wat.data(), wat.size(), &errors);
    wabt::Features features;
    features.EnableAll();
    wabt::WastParseOptions options(features);
    std::unique_ptr<wabt::Module> module;
    if (wabt::Failed(wabt::ParseWatModule(lexer.get(), &module, &errors, &options))) {
        std::fprintf(
            stderr, "%s\n%s\n", errors.empty() ? "?" : errors[0].message.c_str(), wat.c_str());
        HF_CHECK(false, "the test's module text does not parse");
    }
    wabt::MemoryStream stream;
    wabt::WriteBinaryOptions write;
    write.features = features;
    HF_CHECK(wabt::Succeeded(wabt::WriteBinaryModule(&stream, module.get(), write)),
             "writing a module");
    return stream.output_buffer().data;
}

std::string actor(const std::string& imports, const std::string& body) {
    return "(module " + imports +
           R"((memory (export "memory") 2)
              (func (export "actor_abi_v1"))
              (func (export "actor_alloc") (param i32) (result i32) (i32.const 1024)))" +
           body + ")";
}

Host::Host() {
    fill_engine_calls(calls);
    fill_guest_calls(calls);
    auto made = Worker::create(kTickNs, kParkedMax);
    HF_CHECK(made.ok(), "a worker for the tests");
    worker = std::move(made).value();
}

Said run_builder(const std::string& arguments) {
    // NOLINTNEXTLINE(cert-env33-c): the test's own command line, no outside text in it
    std::FILE* pipe =
        ::popen((std::string(HF_WASM_BUILDER) + " " + arguments + " 2>&1").c_str(), "r");
    HF_CHECK(pipe != nullptr, "starting the builder");
    Said said;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
        said.text.push_back(static_cast<char>(c));
    const int status = ::pclose(pipe);
    said.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (!said.text.empty() && said.text.back() == '\n') said.text.pop_back();
    return said;
}

void write_file(const std::string& path, BytesView bytes) {
    std::ofstream(path, std::ios::binary)
        .write(as_text(bytes).data(), static_cast<std::streamsize>(bytes.size()));
}

Result<const Program*> Host::load(const Bytes& wasm) {
    const std::string file = cache / "module.wasm";
    write_file(file, wasm);
    const Said said = run_builder("--module " + file + " --cache " + cache.path());
    if (said.exit != 0) return fail(Code::Refused, said.text);
    const auto json = nlohmann::json::parse(said.text);
    HF_ASSIGN(LoadedModule module, load_module(json["so"], json["key"], calls, *worker, pool));
    modules.push_back(std::make_unique<LoadedModule>(std::move(module)));
    return static_cast<const Program*>(modules.back()->program.get());
}

Host& host() {
    static Host instance;
    return instance;
}

Stage::Stage(const Bytes& wasm, Deadlines deadlines, std::uint32_t pages_max)
    : residents(*host().worker, host().pool, 100) {
    actor_class.name = "test";
    actor_class.state_max = 48 * 1024;
    actor_class.pages_max = pages_max;
    actor_class.deadlines = deadlines;
    const auto program = host().load(wasm);
    if (program)
        actor_class.program = *program;
    else
        error = program.error().message;
}

void Stage::open(std::uint64_t activation) {
    HF_CHECK(error.empty(), error.c_str());
    HF_CHECK(
        residents.open(activation, "actor/t/test/" + std::to_string(activation), actor_class).ok(),
        "opening a unit");
    HF_CHECK(residents.part(activation, 0, true).ok(), "opening a unit");
}

Ran Stage::run(std::uint64_t activation, std::uint32_t kind, const Bytes& event) {
    Ran ran = begin(activation, kind, event);
    while (ran.ended == Ended::Preempted) ran = go_on(activation);
    return ran;
}

Ran Stage::begin(std::uint64_t activation, std::uint32_t kind, const Bytes& event) {
    if (residents.unit(activation).empty()) open(activation);
    return residents.run(activation, kind, event, kNowMs, 0, {1, activation});
}

Ran Stage::go_on(std::uint64_t activation, std::int64_t deadline_ns) {
    return residents.go_on(activation, {1, activation}, deadline_ns);
}

Ran Stage::answer(std::uint64_t activation,
                  std::uint32_t n,
                  std::string_view payload,
                  std::int32_t code) {
    return residents.resume(activation, {1, activation}, n, code, as_bytes(payload), 0);
}

std::string Stage::body(const Ran& ran) {
    return std::string(as_text(ran.output->reply_body));
}

Bytes http_event(std::string_view method,
                 std::string_view url,
                 std::string_view body,
                 const std::vector<std::pair<std::string_view, std::string_view>>& headers) {
    Bytes out;
    FlatWriter writer(out);
    writer.field(method);
    writer.field(url);
    writer.u32(static_cast<std::uint32_t>(headers.size()));
    for (const auto& [name, value] : headers) {
        writer.field(name);
        writer.field(value);
    }
    writer.field(body);
    return out;
}

}  // namespace hf::wasm::testing
