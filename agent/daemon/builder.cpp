// Modules are built, or found built, before the first runtime starts (part of Daemon). The compiler runs in a jail of its
// own with time and memory limits, sees one module and the cache, and answers one line of JSON.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "agent/daemon/daemon.hpp"
#include "agent/log/log.hpp"

namespace hf::daemon {

namespace {
constexpr std::uint32_t kBuilderUid = 1000;  // beside every seat's
constexpr std::uint32_t kBuilderWallMs =
    300'000;  // the largest module measured takes 25 s, on a loaded machine x 10
constexpr std::uint64_t kBuilderCpuSeconds = 240;
// The image phase reserves a 4 GiB slot and its guards; gcc -O1 needs 0.7 GiB for a 0.9 MB module.
constexpr std::uint64_t kBuilderAddressBytes = 16ULL << 30U;
constexpr std::uint64_t kBuilderFileBytes = 1ULL << 30U;
// gcc's 0.7 GiB twice, and what it reads and writes.
constexpr std::uint64_t kBuilderMemoryBytes = 2ULL << 30U;
constexpr std::uint32_t kBuilderPids = 64;  // gcc, cc1, as, collect2, ld, one after the other
constexpr std::size_t kAnswerBytesMax = 64 * 1024;
}  // namespace

void Daemon::build_next_module() {
    if (modules_.size() == to_build_.size()) {
        builder_.reset();
        tell_clock();
        step(journal_->take_content());
        step(core::StartNode{});
        return;
    }
    const config::ClassConfig& wasm = *to_build_[modules_.size()];
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
        log::error("builder", "no pipe for the builder's answer");
        return finish(1);
    }
    builder_output_.reset(pipe[0]);
    process::SpawnSpec spec;
    spec.name = "builder/" + wasm.name;
    spec.profile = "builder";
    spec.binary = paths_.builder();
    spec.args = {"--module", "/in/module.wasm", "--cache", "/cache"};
    spec.binds = {{wasm.module.string(), "/in/module.wasm", false, false},
                  {paths_.modules().string(), "/cache", true, true}};
    spec.uid_index = kBuilderUid;
    spec.scratch = true;
    spec.wall_ms = kBuilderWallMs;
    spec.cpu_seconds = kBuilderCpuSeconds;
    spec.address_space_bytes = kBuilderAddressBytes;
    spec.file_bytes = kBuilderFileBytes;
    spec.memory_bytes = kBuilderMemoryBytes;
    spec.pids = kBuilderPids;
    spec.standard_output.reset(pipe[1]);
    log::info("builder", "building", {{"class", wasm.name}, {"module", wasm.module.string()}});
    auto process = spawner_->spawn(
        std::move(spec), [this](const process::ExitReport& report) { module_built(report); });
    if (!process) {
        log::error(
            "builder", "the builder could not be started", {{"why", process.error().message}});
        return finish(1);
    }
    builder_ = std::move(process).value();
}

void Daemon::module_built(const process::ExitReport& report) {
    const config::ClassConfig& wasm = *to_build_[modules_.size()];
    std::string answer(kAnswerBytesMax, '\0');
    const ssize_t got = ::read(builder_output_.get(), answer.data(), answer.size());
    answer.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    builder_output_.reset();
    const auto refuse = [&](std::string why) {
        while (why.ends_with('\n')) why.pop_back();
        log::error(
            "builder",
            "class " + wasm.name + ": module " + wasm.module.string() + " is not used: " + why);
        finish(1);
    };
    if (report.signal != 0 || report.exit_code != 0)
        return refuse(report.stderr_tail.empty() ? report.summary() : report.stderr_tail);
    const auto document = nlohmann::json::parse(answer, nullptr, false);
    if (!document.is_object() || !document.value("key", nlohmann::json()).is_string())
        return refuse("the builder answered something that is no object with a key");
    BuiltModule module;
    module.class_name = wasm.name;
    module.key = document["key"].get<std::string>();
    module.file = "/modules/" + module.key + ".so";
    log::info("builder",
              "built",
              {{"class", wasm.name},
               {"key", module.key},
               {"cached", document.value("cached", false)},
               {"millis", document.value("millis", 0)}});
    modules_.push_back(std::move(module));
    build_next_module();
}

}  // namespace hf::daemon
