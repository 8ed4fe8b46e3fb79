// holdfast config reload and SIGHUP: agent.toml again, all of it or nothing (part of Daemon). What is wrong with the file, a
// key that needs a restart, a runtime that does not come up under the new limits: each leaves every old setting in force.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"

namespace hf::daemon {

namespace {
using nlohmann::json;

// Which keys may change while the node runs; docs/configuration.md lists them. What a runtime is told of a class changes
// with its runtime.
enum class Reach : std::uint8_t { Live, WithRuntime, Restart };

Reach reach_of(const std::string& table, const std::string& key) {
    // The gateway's own default as well, which it is told when it starts.
    // And the journal's file is laid out for its size.
    if (table == "limits")
        return key == "request_timeout" || key == "journal_bytes" ? Reach::Restart : Reach::Live;
    if (table == "log" || table == "swap") return Reach::Live;
    if (!table.starts_with("class.")) return Reach::Restart;
    if (key == "mailbox" || key == "evict_after") return Reach::Live;
    const bool limit = key == "cpu_limit" || key == "wall_limit" || key == "memory_max" ||
                       key == "state_max" || key == "body_max";
    return limit ? Reach::WithRuntime : Reach::Restart;
}

using Values = std::map<std::string, config::Effective>;
Values values_of(const config::Config& config) {
    Values out;
    for (const config::Effective& one : config.effective)
        out.emplace(one.table + "." + one.key, one);
    return out;
}

std::string joined(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
    return out;
}
}  // namespace

log::Options Daemon::log_options(const config::Config& config, const Paths& paths) {
    log::Options options;
    options.level = static_cast<log::Level>(config.log.level);
    options.file = paths.data / "log" / "holdfastd.log";
    options.file_bytes_max = config.log.file_bytes_max;
    options.files = config.log.files;
    return options;
}

void Daemon::reload(std::optional<control::Responder> responder) {
    if (const std::string* why = why_busy()) {
        log::warn("daemon", "the configuration is not read again", {{"why", *why}});
        if (responder) responder->fail(fail(Code::Busy, *why));
        return;
    }
    reload_ = Reload{std::move(responder), config_, {}, ""};
    config::Checked checked = config::check(config_.file);
    if (!checked.config) {
        std::string lines;
        for (const config::Problem& problem : checked.problems)
            lines += (lines.empty() ? "" : "\n") + problem.text();
        return reload_ended(false, lines);
    }
    reload_->config = std::move(*checked.config);
    const Values before = values_of(config_);
    const Values after = values_of(reload_->config);
    std::vector<std::string> restart;
    bool with_runtime = false;
    const auto look = [&](const std::string& key,
                          const config::Effective& one,
                          const std::string* was,
                          const std::string* is) {
        const Reach reach =
            was == nullptr || is == nullptr ? Reach::Restart : reach_of(one.table, one.key);
        if (reach == Reach::Restart) return restart.push_back(key);
        with_runtime = with_runtime || reach == Reach::WithRuntime;
        reload_->changed.push_back({key, *was, *is});
    };
    for (const auto& [key, value] : before) {
        const auto now = after.find(key);
        const std::string* is = now == after.end() ? nullptr : &now->second.value;
        if (is == nullptr || *is != value.value) look(key, value, &value.value, is);
    }
    for (const auto& [key, value] : after)
        if (!before.contains(key)) look(key, value, nullptr, &value.value);
    if (!restart.empty())
        return reload_ended(false,
                            "a restart of the node is needed for " + joined(restart) +
                                "; nothing was changed (plugins change live by `holdfast swap`, "
                                "modules by `holdfast deploy`)");
    if (reload_->changed.empty()) return reload_ended(true, "nothing in it has changed");
    if (auto opened = log::init(log_options(reload_->config, paths_)); !opened) {
        static_cast<void>(log::init(log_options(config_, paths_)));
        return reload_ended(false, opened.error().message);
    }
    if (!with_runtime) return apply_reload();
    swap_modules(served(), reload_->responder, [this](const core::CommandDone& done) {
        if (done.ok) return apply_reload();
        static_cast<void>(log::init(log_options(config_, paths_)));
        reload_ended(false, "the runtime does not run under the new limits: " + done.text);
    });
}

void Daemon::apply_reload() {
    config_ = reload_->config;
    step(core::ConfigChanged{core_limits(config_), class_specs(config_)});
    std::vector<std::string> lines;
    for (const auto& [key, was, is] : reload_->changed)
        lines.push_back(key + " " + was + " -> " + is);
    reload_ended(true, "changed: " + joined(lines));
}

void Daemon::reload_ended(bool ok, const std::string& text) {
    const Reload reload = std::move(*reload_);
    reload_.reset();
    last_reload_ = LastReload{ok, text, monotonic_ns()};
    log::write(ok ? log::Level::Info : log::Level::Error,
               "daemon",
               ok ? "the configuration was read again" : "the configuration stays as it was",
               {{ok ? "what" : "why", text}});
    trim_modules();
    if (!reload.responder) return;
    if (!ok) return reload.responder->fail(fail(Code::Refused, text));
    json changed = json::array();
    for (const auto& [key, was, is] : reload.changed)
        changed.push_back({{"key", key}, {"old", was}, {"new", is}});
    reload.responder->done({{"text", text}, {"changed", std::move(changed)}});
}

}  // namespace hf::daemon
