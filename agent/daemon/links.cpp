// One live instance: its walls, its link, what it says, how it ended (part of Daemon).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/daemon/handed_files.hpp"
#include "agent/daemon/memory_room.hpp"
#include "agent/log/log.hpp"
#include "agent/port/translate.hpp"

namespace hf::daemon {

namespace {
// Set above the core's own ids, which count from 1: names the Configure of a generation.
constexpr std::uint64_t kConfigureBit = 1ULL << 63U;
// Dumps of stalled processes that are kept; older ones are overwritten.
constexpr unsigned kDumpsMax = 16;
constexpr std::size_t kDumpFileBytesMax = 64 * 1024;
// Exit status of a process that its second filter ended (abi/sdk/lockdown.hpp).
constexpr int kForbiddenExit = 159;

}  // namespace

port::ChannelSizes sizes_of(core::Kind kind) {
    constexpr std::uint32_t kMiB = 1U << 20U;
    switch (kind) {
        // Requests and replies of up to 64 KiB each way: room for 48 open ones at three quarters of the ring.
        case core::Kind::Gateway:
        case core::Kind::Storage:
        case core::Kind::Runtime:
            return {4 * kMiB, 4 * kMiB};
        default:
            return {kMiB, kMiB};
    }
}

namespace {

abi::Kind abi_kind(core::Kind kind) {
    return port::kind_of(kind);
}

std::string read_file(const std::string& path) {
    std::ifstream in(path);
    std::string out(kDumpFileBytesMax, '\0');
    in.read(out.data(), static_cast<std::streamsize>(out.size()));
    out.resize(static_cast<std::size_t>(in.gcount()));
    return out;
}
}  // namespace

std::string Daemon::full_name(const Link& link) const {
    return link.slot + "/" + std::to_string(link.seat);
}

process::SpawnSpec Daemon::spec_of(const core::Spawn& action, const Link& link) const {
    process::SpawnSpec spec;
    spec.name = full_name(link);
    spec.binary = builds_.file(action.build).string();
    spec.args = {"--kind", core::kind_name(action.kind)};
    // Stable per seat, so that a store's files stay readable for its next generation.
    spec.uid_index = action.handle.index + 1;
    for (const auto& [slot, plugin] : config_.plugins) {
        if (config::slot_name(slot) != action.slot) continue;
        spec.memory_bytes = plugin.memory_max;
        spec.pids = plugin.pids_max;
    }
    switch (action.kind) {
        case core::Kind::Gateway:
            spec.profile = "gateway-http";
            spec.network = true;
            spec.open_files = 16384;  // connections_max and some
            break;
        case core::Kind::Storage:
            if (action.build.use == "storage-s3") {
                spec.profile = "storage-s3";
                spec.network = true;
                spec.open_files = 1024;  // connections_max twice, and some
                break;
            }
            spec.profile = "storage-local";
            spec.host_pids = true;
            spec.binds.push_back({store_dir(config_).string(), "/store", true, true});
            break;
        case core::Kind::Runtime:
            spec.profile = "runtime-wasm";
            spec.binds.push_back({paths_.modules().string(), "/modules", false, false});
            break;
        case core::Kind::Placement:
            spec.profile = "placement";
            break;
        default:
            spec.profile = "drain";
            break;
    }
    return spec;
}

void Daemon::spawn(const core::Spawn& action) {
    auto link = std::make_unique<Link>();
    link->handle = action.handle;
    link->kind = action.kind;
    link->slot = action.slot;
    link->seat = action.seat;
    link->build = action.build;
    link->spawned = monotonic_ns();
    const auto failed = [&](const std::string& why) {
        log::error(
            "daemon", "an instance could not be started", {{"plugin", action.slot}, {"why", why}});
        core::Exited exited;
        exited.from = action.handle;
        exited.summary = "could not be started: " + why;
        exited.spawn_failed = true;
        step(std::move(exited));
    };
    std::error_code error;
    if (!std::filesystem::exists(builds_.file(action.build), error)) {
        // Somebody cleared the directory; the file it came from may still be the same.
        const auto again = builds_.keep(action.build.binary);
        if (!again) return failed(again.error().message);
        if (*again != action.build.binary_hash)
            return failed("the copy of its build is gone, and " + action.build.binary +
                          " has changed since (was " + action.build.binary_hash + ", is " + *again +
                          ")");
    }
    auto channel = port::Channel::create(
        pool_, sizes_of(action.kind), action.handle.generation, abi_kind(action.kind));
    if (!channel) return failed(channel.error().message);
    link->channel = std::move(channel).value();
    auto files = open_files_for(action.kind, action.build);
    if (!files) return failed(files.error().message);
    process::SpawnSpec spec = spec_of(action, *link);
    spec.control = link->channel->take_plugin_end();
    auto process = spawner_->spawn(
        std::move(spec), [this, handle = action.handle](const process::ExitReport& report) {
            exited(handle, report);
        });
    if (!process) return failed(process.error().message);
    link->process = std::move(process).value();
    std::vector<std::pair<std::string, int>> extra;
    if (action.kind == core::Kind::Gateway)
        for (const Listener& listener : listeners_)
            extra.emplace_back(listener.name, listener.fd.get());
    for (const auto& [name, file] : *files) extra.emplace_back(name, file.get());
    // A process that is gone already hears nothing; its exit report follows.
    (void)link->channel->attach(extra);
    link->bell = std::make_unique<loop::Poll>(
        &loop_, link->channel->bell_fd(), [this, handle = action.handle] {
            if (Link* found = link_of(handle)) (void)drain(*found);
        });
    channels_.push_back(link->channel.get());
    remember_running(*link, link->process->jail_pid());
    links_.emplace(action.handle.generation, std::move(link));
    pool_.keep(sizes_of(action.kind));
}

void Daemon::remember_running(Link& link, pid_t pid) {
    if (pid == 0) return;
    link.remembered.push_back(pid);
    if (auto added = running_.add(pid, full_name(link));
        !added && added.error().code != Code::NotFound)
        log::warn(
            "daemon", "a running process was not written down", {{"why", added.error().message}});
}

void Daemon::forget_running(const Link& link) {
    for (const pid_t pid : link.remembered) {
        if (auto removed = running_.remove(pid); !removed)
            log::warn("daemon",
                      "an ended process was not struck off",
                      {{"why", removed.error().message}});
    }
}

void Daemon::configure(Link& link) {
    remember_running(link, link.process->pid());
    auto& welcome = link.channel->builder();
    const auto node = welcome.CreateString(config_.node.id);
    (void)link.channel->notify(abi::CreateWelcome(welcome, 0, link.handle.generation, node));

    auto& fbb = link.channel->builder();
    std::vector<flatbuffers::Offset<abi::Setting>> settings;
    for (const auto& [key, value] : link.build.settings) {
        const bool own_dir = link.kind == core::Kind::Storage && key == "path";
        const auto name = fbb.CreateString(key);
        const auto text = fbb.CreateString(own_dir ? std::string("/store") : value);
        settings.push_back(abi::CreateSetting(fbb, name, text));
    }
    std::vector<flatbuffers::Offset<abi::Module>> modules;
    if (link.kind == core::Kind::Runtime) {
        // What an operator deploys must load; a class that was served before takes only itself down.
        const bool candidate = link.build.modules != runtime_build()->modules;
        const RuntimeTable& table = table_named(link.build.modules);
        for (const auto& [class_name, entry] : table.modules) {
            const ModuleLimits& limits = table.limits.at(class_name);
            const bool known = noted_.modules.contains(class_name) &&
                               noted_.modules.at(class_name) == entry &&
                               noted_.limits.at(class_name) == limits;
            const auto name = fbb.CreateString(class_name);
            const auto file = fbb.CreateString("/modules/" + entry.file());
            const auto hash = fbb.CreateString(entry.key);
            const auto vouched = fbb.CreateString(entry.meta_sha256);
            modules.push_back(abi::CreateModule(fbb,
                                                name,
                                                file,
                                                hash,
                                                limits.state_bytes_max,
                                                limits.pages_max,
                                                limits.cpu_us,
                                                limits.wall_us,
                                                limits.body_bytes_max,
                                                vouched,
                                                candidate && !known));
        }
    }
    const auto policy = fbb.CreateString(link.build.policy);
    const auto settings_list = fbb.CreateVector(settings);
    const auto module_list = fbb.CreateVector(modules);
    const auto tenant = fbb.CreateString(config_.node.tenant);
    const auto app = fbb.CreateString(config_.node.app);
    const std::uint64_t seed = random_word();
    const auto listeners =
        static_cast<std::uint16_t>(link.kind == core::Kind::Gateway ? listeners_.size() : 0);
    const port::Sent sent = link.channel->request(
        kConfigureBit | link.handle.generation,
        abi::CreateConfigure(fbb, policy, settings_list, seed, tenant, app, module_list, listeners),
        0,
        0);
    if (sent == port::Sent::TooLarge)
        step(core::ReadyIn{
            link.handle, false, "its settings and classes are larger than one record of 64 KiB"});
}

void Daemon::received(Link& link, const port::Received& record) {
    switch (record.type) {
        case abi::Body::Log: {
            const auto& line = record.as<abi::Log>();
            const std::string unit = line.unit() == nullptr ? "" : line.unit()->str() + ": ";
            auto level = log::Level::Info;
            if (line.level() == abi::LogLevel::Trace || line.level() == abi::LogLevel::Debug)
                level = log::Level::Debug;
            if (line.level() == abi::LogLevel::Warn) level = log::Level::Warn;
            if (line.level() == abi::LogLevel::Error) level = log::Level::Error;
            log::plugin_line(level, full_name(link), unit + line.text()->str());
            return;
        }
        case abi::Body::Fault:
            if (!link.last_words.empty())
                return;  // it gives up once; a flood of last words must not fill the log
            link.last_words = record.as<abi::Fault>().reason()->str();
            if (link.last_words.empty()) link.last_words = "(without a word)";
            log::warn("daemon",
                      "a plugin gives up",
                      {{"plugin", full_name(link)}, {"why", link.last_words}});
            return;
        case abi::Body::Counters: {
            const auto* values = record.as<abi::Counters>().values();
            if (values == nullptr) return;
            constexpr std::size_t kNamesMax =
                64;  // of one instance; a flood of names must not grow the registry
            for (const auto* counter : *values) {
                const std::string name = counter->name()->str();
                if (link.counters.size() < kNamesMax || link.counters.contains(name))
                    link.counters[name] = counter->value();
            }
            return;
        }
        case abi::Body::Query:
            return answer_query(link, record);
        default:
            break;
    }
    if (auto event = port::to_event(link.handle, record)) step(std::move(*event));
}

void Daemon::exited(Handle handle, const process::ExitReport& report) {
    Link* link = link_of(handle);
    if (link == nullptr) return;
    // What it had answered before it died counts, with all checks; after a broken rule nothing more does.
    if (link->violation.empty()) {
        const auto drained = link->channel->drain_final(
            [&](const port::Received& record) { received(*link, record); });
        if (!drained) {
            // Its last words broke the rules: that is how it ended, whatever the exit status looks like.
            link->violation = drained.error().message;
            step(core::Violated{handle, link->violation});
        }
    }
    core::Exited event;
    event.from = handle;
    event.summary = report.summary();
    event.by_fault = report.by_fault() && !report.by_supervisor;
    event.on_its_own = report.on_its_own();
    event.current = link->channel->current_request();
    if (report.exit_code == kForbiddenExit && link->channel->forbidden_syscall() != 0)
        event.by_fault = true;
    if (!link->last_words.empty()) event.summary += " (" + link->last_words + ")";
    last_exit_[link->slot + "/" + std::to_string(link->seat)] = {
        handle.generation, event.summary, report.stderr_tail};

    forget_running(*link);
    // The names are its own: each generation could bring new ones, until no honest series finds room.
    registry_.forget("holdfast_plugin_counter", {"plugin", link->slot});
    link->bell.reset();
    channels_.erase(std::remove(channels_.begin(), channels_.end(), link->channel.get()),
                    channels_.end());
    const auto it = links_.find(handle.generation);
    dead_.push_back(std::move(it->second));  // its channel may be on the call stack of a drain
    links_.erase(it);
    step(std::move(event));
}

// What /proc tells of a stalled process, for whoever has to explain it.
void Daemon::dump(const Link& link, const std::string& why) {
    static unsigned next = 0;
    const pid_t pid = link.process ? link.process->pid() : 0;
    if (pid == 0) return;
    const auto path = paths_.dumps() / ("dump-" + std::to_string(next++ % kDumpsMax) + ".txt");
    std::ofstream out(path);
    out << "plugin " << full_name(link) << " generation " << link.handle.generation << " pid "
        << pid << "\nwhy: " << why << "\nopen requests: " << link.channel->open_requests().size()
        << "\ncurrent: " << link.channel->current_request()
        << "\nprogress: " << link.channel->progress() << "\n";
    for (const char* name : {"status", "wchan", "syscall", "stack", "schedstat", "maps"})
        out << "--- " << name << "\n"
            << read_file("/proc/" + std::to_string(pid) + "/" + name) << "\n";
    log::warn("daemon", "dump written", {{"plugin", full_name(link)}, {"file", path.string()}});
}

}  // namespace hf::daemon
