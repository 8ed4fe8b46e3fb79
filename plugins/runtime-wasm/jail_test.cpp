// The builder and the plugin inside the walls that holdfastd gives them: profile, own root, own uid.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "agent/process/spawner.hpp"
#include "agent/process/test_loop.hpp"
#include "plugins/runtime-wasm/testing/runtime_process.hpp"

namespace hf::wasm {

using process::ExitReport;
using process::SpawnSpec;
using testing::http_event;
using testing::ModuleFile;
using testing::TempDir;

namespace {

// Apart from the numbers that other tests use at the same time.
constexpr std::uint32_t kUidBase = 930'000;

struct Room {
    process::testing::Loop loop;
    std::string lines;
    std::unique_ptr<process::Spawner> spawner;
    Room() {
        process::Spawner::Options options;
        options.jail_binary = HF_JAIL;
        options.uid_base = kUidBase;
        auto made = process::Spawner::create(
            loop.get(),
            options,
            [this](const std::string&, const std::string& line, std::uint64_t) {
                lines += line + "\n";
            });
        REQUIRE(made.ok());
        spawner = std::move(made).value();
    }
};

struct Built {
    ExitReport report;
    std::string output;
    std::string lines;
};

// As the supervisor does: module and cache read-only, what is built in a directory of its own, scratch at /tmp.
Built build_in_jail(const std::string& folder, const std::filesystem::path& cache) {
    Room room;
    const std::filesystem::path fresh = cache / "incoming";
    std::filesystem::create_directory(fresh);
    std::array<int, 2> pipe{};
    REQUIRE(::pipe2(pipe.data(), O_CLOEXEC) == 0);
    const UniqueFd in(pipe[0]);
    SpawnSpec spec;
    spec.name = "builder";
    spec.profile = "builder";
    spec.binary = HF_WASM_BUILDER;
    spec.args = {"--module", "/module/m.wasm", "--cache", "/cache", "--out", "/out"};
    spec.binds = {{folder, "/module", false, false},
                  {cache.string(), "/cache", false, false},
                  {fresh.string(), "/out", true, true}};
    spec.uid_index = 1;
    spec.scratch = true;
    spec.cpu_seconds = 200;
    spec.wall_ms = 100'000;
    spec.standard_output = UniqueFd(pipe[1]);
    Built out;
    bool ended = false;
    auto started = room.spawner->spawn(std::move(spec), [&](const ExitReport& report) {
        out.report = report;
        ended = true;
    });
    REQUIRE_MESSAGE(started.ok(), started.error().message);
    REQUIRE(room.loop.until([&] { return ended; }, 120'000));
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = ::read(in.get(), buffer.data(), buffer.size())) > 0;)
        out.output.append(buffer.data(), static_cast<std::size_t>(got));
    out.lines = room.lines;
    started->reset();
    room.spawner.reset();
    for (const auto& made : std::filesystem::directory_iterator(fresh))
        std::filesystem::rename(made.path(), cache / made.path().filename());
    std::filesystem::remove(fresh);
    return out;
}

}  // namespace

TEST_CASE("a_module_is_built_in_the_builders_jail_and_served_in_the_runtimes") {
    if (::geteuid() != 0) {
        MESSAGE("skipped: the jail's own root and uids need root");
        return;
    }
    const TempDir dir;
    std::filesystem::create_directory(dir / "cache");
    std::filesystem::create_directory(dir / "modules");
    std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
    std::filesystem::copy(HF_COUNTER_WASM, dir / "modules/m.wasm");

    const Built built = build_in_jail(dir / "modules", dir / "cache");
    REQUIRE_MESSAGE(built.report.exit_code == 0, built.report.summary() << "\n" << built.lines);
    const auto json = nlohmann::json::parse(built.output);
    CHECK(json["cached"] == false);
    const std::string key = json["key"];
    const auto meta = read_file(dir / ("cache/" + key + ".meta"), kMetaBytesMax);
    REQUIRE(meta.ok());
    CHECK(nlohmann::json::parse(build_in_jail(dir / "modules", dir / "cache").output)["cached"] ==
          true);

    // A guest that loops in its start function ends inside the image deadline, in the jail too.
    testing::write_file(dir / "modules/m.wasm",
                        testing::wasm_of(testing::actor("", R"((start $s) (func $s (loop (br 0)))
        (func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0)))")));
    const Built looping = build_in_jail(dir / "modules", dir / "cache");
    CHECK(looping.report.exit_code == 3);
    CHECK_MESSAGE(
        looping.lines.find("the start function stopped: it used more than 2 s of CPU time") !=
            std::string::npos,
        looping.lines);

    Room room;
    std::unique_ptr<process::Process> jailed;
    ExitReport report;
    bool ended = false;
    const auto start = [&](UniqueFd control) -> pid_t {
        SpawnSpec spec;
        spec.name = "runtime-wasm/0";
        spec.profile = "runtime-wasm";
        spec.binary = HF_RUNTIME_WASM;
        spec.args = {"--kind", "runtime"};
        spec.binds = {{dir / "cache", "/cache", false, false}};
        spec.uid_index = 2;
        spec.control = std::move(control);
        auto started = room.spawner->spawn(std::move(spec), [&](const ExitReport& told) {
            report = told;
            ended = true;
        });
        REQUIRE_MESSAGE(started.ok(), started.error().message);
        jailed = std::move(started).value();
        REQUIRE(room.loop.until([&] { return jailed->pid() != 0 || ended; }));
        REQUIRE_MESSAGE(!ended, report.summary() << "\n" << room.lines);
        return jailed->pid();
    };
    {
        testing::Runtime runtime(start,
                                 {{"counter",
                                   "/cache/" + key + ".so",
                                   key,
                                   32,
                                   100'000,
                                   2'000'000,
                                   0,
                                   sha256_hex(*meta)}});
        REQUIRE_MESSAGE(runtime.ready, runtime.error << room.lines);
        CHECK(runtime.activate(1, "counter").empty());
        const auto code = runtime.executable_maps();
        CHECK(runtime.deliver(1, http_event("POST", "/")).body == "1\n");
        CHECK(runtime.deliver(1, http_event("POST", "/")).body == "2\n");
        CHECK(runtime.executable_maps() == code);
    }
    // The link's end is the plugin's end; a plugin that was in a system call its filter forbids would say so here.
    CHECK(room.loop.until([&] { return ended; }));
    CHECK(report.signal == 0);
    CHECK(report.exit_code == 0);
    CHECK(report.syscall.empty());
    jailed.reset();
    room.spawner.reset();
}

}  // namespace hf::wasm
