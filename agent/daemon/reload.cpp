// holdfast config reload and SIGHUP: agent.toml again, all of it or nothing (part of Daemon). What is wrong with the file, a
// key that needs a restart, a policy that refuses its new settings, a runtime that does not come up under the new limits:
// each leaves every old setting in force. Policies are swapped first, one after the other: theirs is the likeliest no, and
// they are taken back in a moment; a runtime moves its actors.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"

namespace hf::daemon {

namespace {
using nlohmann::json;

// Which keys may change while the node runs; docs/configuration.md lists them. What a runtime is told of
// a class changes with its runtime, a policy's settings by a swap.
enum class Reach : std::uint8_t { Live, WithPolicy, Restart };

// Whose policy and settings stand in this table.
std::optional<config::Slot> policy_of(const std::string& table, const std::string& key) {
    for (const config::Slot slot : {config::Slot::Placement, config::Slot::Drain}) {
        const std::string plugin = "plugin." + std::string(config::slot_name(slot));
        if (table == plugin + ".settings" || (table == plugin && key == "policy")) return slot;
    }
    return std::nullopt;
}

Reach reach_of(const std::string& table, const std::string& key) {
    // The gateway's own default as well, which it is told when it starts.
    // And the journal's file is laid out for its size.
    if (table == "limits")
        return key == "request_timeout" || key == "journal_bytes" ? Reach::Restart : Reach::Live;
    if (table == "log" || table == "swap") return Reach::Live;
    if (policy_of(table, key)) return Reach::WithPolicy;
    if (!table.starts_with("class.")) return Reach::Restart;
    const bool live = key == "mailbox" || key == "evict_after" || key == "cpu_limit" ||
                      key == "wall_limit" || key == "memory_max" || key == "state_max" ||
                      key == "body_max";
    return live ? Reach::Live : Reach::Restart;
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

// agent.toml may have its own name for it.
std::string program_of(const core::Build& build) {
    return std::filesystem::path(build.binary).filename().string();
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
    reload_ = Reload{std::move(responder), config_};
    config::Checked checked = config::check(config_.file);
    if (!checked.config) {
        std::string lines;
        for (const config::Problem& problem : checked.problems)
            lines += (lines.empty() ? "" : "\n") + problem.text();
        return reload_ended(false, lines);
    }
    reload_->config = std::move(*checked.config);
    if (auto comparable = compare_config(); !comparable)
        return reload_ended(false, comparable.error().message);
    if (reload_->changed.empty() && !reload_->with_runtime)
        return reload_ended(true, "nothing in it has changed");
    if (auto opened = log::init(log_options(reload_->config, paths_)); !opened)
        return take_policies_back(opened.error().message);
    reload_next();
}

// What has changed, and what has to be done for it; Refused when it needs a restart.
Result<void> Daemon::compare_config() {
    const Values before = values_of(config_);
    const Values after = values_of(reload_->config);
    std::vector<std::string> restart;
    std::set<config::Slot> policies;
    const auto look = [&](const std::string& key,
                          const config::Effective& one,
                          const std::optional<std::string>& was,
                          const std::optional<std::string>& is) {
        const Reach reach = reach_of(one.table, one.key);
        // Of what the node itself reads each key is always there, unless its table comes or goes.
        if (reach == Reach::Restart || (reach != Reach::WithPolicy && !(was && is)))
            return restart.push_back(key);
        if (const auto slot = policy_of(one.table, one.key)) policies.insert(*slot);
        reload_->changed.push_back({key, was, is});
    };
    for (const auto& [key, value] : before) {
        const auto now = after.find(key);
        if (now == after.end())
            look(key, value, value.value, std::nullopt);
        else if (now->second.value != value.value)
            look(key, value, value.value, now->second.value);
    }
    for (const auto& [key, value] : after)
        if (!before.contains(key)) look(key, value, std::nullopt, value.value);
    if (!restart.empty())
        return fail(Code::Refused,
                    "a restart of the node is needed for " + joined(restart) +
                        "; nothing was changed (plugins change live by `holdfast swap`, "
                        "modules by `holdfast deploy`)");
    for (const config::Slot slot : policies) HF_TRY(plan_policy(slot));
    // A roll-back may have taken it to these limits already, or away from them.
    reload_->with_runtime =
        runtime_table(served(), reload_->config).limits != served_table().limits;
    return {};
}

// The program is the one that serves. What an operator has swapped in is not agent.toml's: its settings would not fit.
Result<void> Daemon::plan_policy(config::Slot which) {
    const std::string name(config::slot_name(which));
    const auto& slots = core_->supervision().slots();
    const auto slot = std::find_if(
        slots.begin(), slots.end(), [&](const auto& one) { return one.spec.name == name; });
    const config::PluginConfig* file = reload_->config.plugin(which);
    // A table that comes or goes has a `use` that does.
    HF_CHECK(slot != slots.end() && file != nullptr, "a slot without its table needs a restart");
    PolicyChange change{name, slot->current};
    change.build.policy = file->policy;
    change.build.settings = file->settings;
    const bool program = program_of(slot->current) == program_of(slot->spec.build);
    const bool runs_so = program && change.build.identity() == slot->current.identity() &&
                         core_->supervision().serving_one(slot->spec.kind).valid();
    if (!runs_so && (!program || slot->current.policy != slot->spec.build.policy))
        return fail(Code::Refused,
                    name + " runs " + slot->current.label() + " by a swap, and agent.toml has " +
                        "other settings for " + slot->spec.build.label() +
                        "; nothing was changed (`holdfast rollback " + name +
                        "` or `holdfast swap " + name + "` go back to that policy)");
    change.swap = !runs_so;
    change.before = slot->current;
    change.previous = slot->previous;
    reload_->policies.push_back(std::move(change));
    return {};
}

// One policy after the other, then the runtime, then all the rest at once.
void Daemon::reload_next() {
    Reload& reload = *reload_;
    if (reload.policies_done < reload.policies.size()) {
        const PolicyChange& change = reload.policies[reload.policies_done];
        if (!change.swap) {
            ++reload.policies_done;
            return reload_next();
        }
        return swap_policy({0, change.slot, change.build}, [this](const core::CommandDone& done) {
            const std::string& slot = reload_->policies[reload_->policies_done].slot;
            if (!done.ok)
                return take_policies_back(
                    "the " + slot + " policy does not run with its new settings: " + done.text);
            ++reload_->policies_done;
            reload_next();
        });
    }
    if (!reload.with_runtime) return apply_reload();
    swap_modules(served(), reload.responder, [this](const core::CommandDone& done) {
        if (done.ok) return apply_reload();
        take_policies_back("the runtime does not run under the new limits: " + done.text);
    });
}

// `done` hears how it ended; its own number is given here.
void Daemon::swap_policy(core::SwapCommand command,
                         std::function<void(const core::CommandDone&)> done) {
    command.command = ++last_command_;
    commands_.emplace(last_command_, Command{reload_->responder, command.slot, std::move(done)});
    step(std::move(command));
}

// All or nothing: the last that was swapped goes first. What an operator has put in its place meanwhile stays.
void Daemon::take_policies_back(const std::string& why) {
    Reload& reload = *reload_;
    while (reload.policies_done > 0) {
        const PolicyChange& change = reload.policies[--reload.policies_done];
        const auto& slots = core_->supervision().slots();
        const auto slot = std::find_if(slots.begin(), slots.end(), [&](const auto& one) {
            return one.spec.name == change.slot;
        });
        if (!change.swap || slot->current.identity() != change.build.identity()) continue;
        return swap_policy({0, change.slot, change.before, true, change.previous},
                           [this, why, name = change.slot](const core::CommandDone& done) {
                               if (done.ok) return take_policies_back(why);
                               take_policies_back(why + "; and " + name +
                                                  " could not be taken back: " + done.text);
                           });
    }
    static_cast<void>(log::init(log_options(config_, paths_)));
    reload_ended(false, why);
}

void Daemon::apply_reload() {
    config_ = reload_->config;
    noted_ = served_table();
    core::ConfigChanged changed{core_limits(config_), class_specs(config_)};
    for (const PolicyChange& one : reload_->policies)
        changed.builds.emplace_back(one.slot, one.build);
    step(std::move(changed));
    const auto shown = [](const std::optional<std::string>& value) {
        return value.value_or("(none)");
    };
    std::vector<std::string> lines;
    for (const Changed& one : reload_->changed)
        lines.push_back(one.key + " " + shown(one.was) + " -> " + shown(one.is));
    if (lines.empty()) lines.emplace_back("the runtime's limits, back to the file's");
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
    const auto value = [](const std::optional<std::string>& one) {
        return one ? json(*one) : json(nullptr);
    };
    for (const Changed& one : reload.changed)
        changed.push_back({{"key", one.key}, {"old", value(one.was)}, {"new", value(one.is)}});
    reload.responder->done({{"text", text}, {"changed", std::move(changed)}});
}

}  // namespace hf::daemon
