// What the tests of this plugin share: a directory that goes away, modules from text, and a loaded host in this process.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "plugins/runtime-wasm/engine/slots.hpp"
#include "plugins/runtime-wasm/engine/worker.hpp"
#include "plugins/runtime-wasm/module/loader.hpp"
#include "plugins/runtime-wasm/serve/residents.hpp"

namespace hf::wasm::testing {

class TempDir {
public:
    TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    ~TempDir();
    [[nodiscard]] std::string path() const { return path_.string(); }
    [[nodiscard]] std::string operator/(std::string_view name) const {
        return (path_ / name).string();
    }

private:
    std::filesystem::path path_;
};

// Text to binary with every feature on, so that modules beyond our policy can be written too. Aborts on a typo.
Bytes wasm_of(const std::string& wat);

// The clock of every event that a Stage runs.
inline constexpr std::int64_t kNowMs = 1'700'000'000'000;

// What holdfast-wasm-build said on both outputs, and its exit code.
struct Said {
    int exit = -1;
    std::string text;
};
Said run_builder(const std::string& arguments);
void write_file(const std::string& path, BytesView bytes);

// A whole actor around `body`: two pages of memory, marker, actor_alloc answering 1024. `body` may start with imports
// given in `imports`.
std::string actor(const std::string& imports, const std::string& body);
// All imports of guest ABI v1, under $kv_get and so on.
extern const char* const kAllImports;

// One worker for the whole test process, and everything that refers to it.
struct Host {
    hf_host_v1 calls{};
    SlotPool pool{200};
    std::unique_ptr<Worker> worker;
    TempDir cache;
    std::vector<std::unique_ptr<LoadedModule>> modules;

    Host();
    // Builds and loads; the error's message otherwise.
    Result<const Program*> load(const Bytes& wasm);
};
Host& host();

// While it lives, events are preempted after so long.
struct Slices {
    explicit Slices(std::int64_t ns) { host().worker->preempt_after(ns); }
    Slices(const Slices&) = delete;
    Slices& operator=(const Slices&) = delete;
    ~Slices() { host().worker->preempt_after(0); }
};

// A class and its residents for one module.
struct Stage {
    explicit Stage(const Bytes& wasm,
                   Deadlines deadlines = {50'000'000, 2'000'000'000},
                   std::uint32_t pages_max = 64);
    ActorClass actor_class;
    Residents residents;
    std::string error;  // the module could not be built or loaded

    // Opens an empty unit.
    void open(std::uint64_t activation);
    // One event, with as many slices as it takes; `activation` is opened when it is not there.
    Ran run(std::uint64_t activation, std::uint32_t kind = 1, const Bytes& event = {});
    // Its first slice, and a further one.
    Ran begin(std::uint64_t activation, std::uint32_t kind = 1, const Bytes& event = {});
    Ran go_on(std::uint64_t activation, std::int64_t deadline_ns = 0);
    // The answer to the call that the event of `activation` waits for.
    Ran answer(std::uint64_t activation,
               std::uint32_t n,
               std::string_view payload,
               std::int32_t code = 0);
    [[nodiscard]] static std::string body(const Ran& ran);
};

// An HTTP event in flat fields.
Bytes http_event(std::string_view method,
                 std::string_view url,
                 std::string_view body = {},
                 const std::vector<std::pair<std::string_view, std::string_view>>& headers = {});

}  // namespace hf::wasm::testing
