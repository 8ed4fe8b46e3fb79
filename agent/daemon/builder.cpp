// Modules are judged and compiled, or found compiled (part of Daemon). The compiler runs in a jail of its own with time and
// memory limits, one at a time; it sees a copy of one module, the cache read-only and an empty directory, and answers one
// line of JSON. What it answers and leaves is an allegation: agent/modules says which of it is used.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "abi/base/check.hpp"
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

// What a start serves: agent.toml's classes, each with what was deployed since if that is newer, and deployed ones besides.
Result<void> Daemon::choose_modules() {
    HF_ASSIGN(const modules::MacKey key, module_key(paths_));
    cache_ = std::make_unique<modules::Cache>(paths_.modules(), key);
    HF_TRY(cache_->open());
    std::string note;
    HF_TRY(deployments_.load(note));
    if (!note.empty()) log::warn("daemon", "what was deployed is forgotten", {{"why", note}});
    std::set<std::string> names;
    for (const auto& [name, wasm] : config_.classes) {
        names.insert(name);
        auto taken = cache_->take(wasm.module);
        if (!taken) return fail(taken.error().code, "class " + name + ": " + taken.error().message);
        file_wasm_[name] = *taken;
    }
    for (const auto& [name, deployment] : deployments_.all()) names.insert(name);
    for (const std::string& name : names) {
        const auto file = file_wasm_.find(name);
        const std::string file_now = file == file_wasm_.end() ? "" : file->second;
        bool overtaken = false;
        const std::string chosen = deployments_.choose(name, file_now, overtaken);
        if (overtaken)
            log::warn("daemon",
                      "agent.toml names another module than when one was deployed; the file holds",
                      {{"class", name}});
        if (chosen.empty()) continue;
        if (chosen != file_now) {
            if (auto good = cache_->check_copy(chosen); !good)
                return fail(good.error().code,
                            "class " + name +
                                " was deployed, and its module is lost: " + good.error().message +
                                "; move " + paths_.state("deployed.json").string() +
                                " away to serve what agent.toml says");
        }
        to_build_.emplace_back(name, chosen);
    }
    if (to_build_.size() > config::kClassesMax)
        return fail(Code::Invalid,
                    "agent.toml and what was deployed come to " + std::to_string(to_build_.size()) +
                        " classes, a node serves at most " + std::to_string(config::kClassesMax) +
                        ": take some out of agent.toml, or move " +
                        paths_.state("deployed.json").string() + " away to serve those alone");
    return deployments_.save();
}

std::string Daemon::module_shown(const std::string& class_name, const std::string& wasm) const {
    const Deployment* deployed = deployments_.of(class_name);
    if (deployed != nullptr && deployed->wasm == wasm && !deployed->source.empty())
        return deployed->source;
    const auto file = config_.classes.find(class_name);
    const auto named = file_wasm_.find(class_name);
    const bool of_file =
        file != config_.classes.end() && named != file_wasm_.end() && named->second == wasm;
    return of_file ? file->second.module.string() : wasm;
}

void Daemon::build_next_module() {
    ModuleTable& table = tables_[""].modules;
    if (table.size() == to_build_.size()) {
        started_serving_ = true;
        noted_ = tables_[""] = runtime_table(table, config_);
        trim_modules();
        tell_clock();
        step(journal_->take_content());
        step(core::ConfigChanged{core_limits(config_), class_specs(config_)});
        step(core::StartNode{});
        return;
    }
    // In the order of names, as the table is.
    const auto& [name, wasm] = to_build_[table.size()];
    const std::string shown = module_shown(name, wasm);
    start_build({name, wasm, shown, [this, name = name, shown](Result<modules::Entry> entry) {
                     if (!entry) {
                         log::error("builder",
                                    "class " + name + ": module " + shown +
                                        " is not used: " + entry.error().message);
                         return finish(1);
                     }
                     tables_[""].modules[name] = *entry;
                     build_next_module();
                 }});
}

void Daemon::start_build(BuildJob job) {
    HF_CHECK(!building_, "one module is built at a time");
    std::array<int, 2> pipe{};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
        return job.done(fail_errno(errno, "no pipe for the builder's answer"));
    builder_output_.reset(pipe[0]);
    process::SpawnSpec spec;
    spec.standard_output.reset(pipe[1]);
    // Without a pid namespace something the builder started may hold that end for ever: the loop must not wait for it.
    if (::fcntl(pipe[0], F_SETFL, O_NONBLOCK) != 0)
        return job.done(fail_errno(errno, "preparing the pipe for the builder's answer"));
    const auto staging = cache_->fresh_staging();
    if (!staging) return job.done(staging.error());
    const auto view = cache_->view(job.wasm_sha256);
    if (!view) return job.done(view.error());
    spec.name = "builder/" + job.class_name;
    spec.profile = "builder";
    spec.binary = paths_.builder();
    spec.args = {"--module", "/in/module.wasm", "--cache", "/cache", "--out", "/out"};
    spec.binds = {{cache_->copy(job.wasm_sha256).string(), "/in/module.wasm", false, false},
                  {view->string(), "/cache", false, false},
                  {staging->string(), "/out", true, true}};
    spec.uid_index = kBuilderUid;
    spec.scratch = true;
    spec.wall_ms = kBuilderWallMs;
    spec.cpu_seconds = kBuilderCpuSeconds;
    spec.address_space_bytes = kBuilderAddressBytes;
    spec.file_bytes = kBuilderFileBytes;
    spec.memory_bytes = kBuilderMemoryBytes;
    spec.pids = kBuilderPids;
    log::info("builder", "building", {{"class", job.class_name}, {"module", job.shown}});
    auto process = spawner_->spawn(
        std::move(spec), [this](const process::ExitReport& report) { build_ended(report); });
    if (!process)
        return job.done(fail(Code::Unavailable,
                             "the builder could not be started: " + process.error().message));
    building_ = std::move(job);
    builder_ = std::move(process).value();
}

void Daemon::build_ended(const process::ExitReport& report) {
    BuildJob job = std::move(*building_);
    building_.reset();
    std::string answer(kAnswerBytesMax, '\0');
    const ssize_t got = ::read(builder_output_.get(), answer.data(), answer.size());
    answer.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    builder_output_.reset();
    if (finished_) return;
    if (report.signal != 0 || report.exit_code != 0) {
        std::string why = report.stderr_tail.empty() ? report.summary() : report.stderr_tail;
        while (why.ends_with('\n')) why.pop_back();
        return job.done(fail(Code::Refused, why));
    }
    const auto document = nlohmann::json::parse(answer, nullptr, false);
    const auto said = [&](const char* key) {
        const auto found = document.is_object() ? document.find(key) : document.end();
        return document.is_object() && found != document.end() ? *found : nlohmann::json();
    };
    const std::string key = said("key").is_string() ? said("key").get<std::string>() : "";
    if (!modules::is_sha256(key))
        return job.done(
            fail(Code::Corrupt, "the builder answered something that is no object with a key"));
    const bool cached = said("cached") == true;
    auto entry = cached ? cache_->find(key, job.wasm_sha256) : cache_->adopt(key, job.wasm_sha256);
    if (!entry && cached && !job.again) {
        log::warn("builder",
                  "a compiled module is set aside and built anew",
                  {{"class", job.class_name}, {"why", entry.error().message}});
        cache_->set_aside(key, job.wasm_sha256);
        job.again = true;
        return start_build(std::move(job));
    }
    if (entry)
        log::info("builder",
                  "built",
                  {{"class", job.class_name},
                   {"key", key},
                   {"cached", cached},
                   {"millis",
                    said("millis").is_number_unsigned() ? said("millis").get<std::uint64_t>()
                                                        : std::uint64_t{0}}});
    job.done(std::move(entry));
}

}  // namespace hf::daemon
