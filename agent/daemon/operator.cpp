// What an operator may ask over the control socket (part of Daemon). Shapes of the answers: docs/operations.md.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/daemon/requests.hpp"
#include "agent/log/log.hpp"

namespace hf::daemon {

namespace {
using nlohmann::json;
// A policy is named by a word; the name stands in sentences and in the memory of bad builds.
constexpr std::size_t kPolicyBytesMax = 64;

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings::iterator find_setting(Settings& settings, const std::string& key) {
    return std::find_if(settings.begin(), settings.end(), [&](const auto& setting) {
        return setting.first == key;
    });
}

// Takes out what the operator named with `unset`; a slip of the pen is told, not passed over.
Result<void> remove_settings(const json& keys, Settings& settings) {
    if (!keys.is_array()) return fail(Code::Invalid, "'unset' must be a list of keys");
    for (const json& key : keys) {
        const std::string name = key.is_string() ? key.get<std::string>() : key.dump();
        const auto at = find_setting(settings, name);
        if (at != settings.end()) {
            settings.erase(at);
            continue;
        }
        std::string known;
        for (const auto& [one, value] : settings) known += (known.empty() ? "" : ", ") + one;
        return fail(Code::Invalid,
                    "there is no setting '" + name.substr(0, config::kSettingKeyBytesMax) +
                        "' to take out; there is " + (known.empty() ? "none" : known));
    }
    return {};
}

// Takes out what is unset and puts what is set over the build's own settings, within the bounds that hold for agent.toml.
Result<void> apply_settings(const json& request, core::Build& build) {
    if (const auto unset = request.find("unset"); unset != request.end())
        HF_TRY(remove_settings(*unset, build.settings));
    const json given = request.value("settings", json::object());
    if (!given.is_object())
        return fail(Code::Invalid, "'settings' must be an object of keys and values");
    for (const auto& [key, value] : given.items()) {
        if (value.is_structured() || value.is_null())
            return fail(Code::Invalid,
                        "setting '" + key.substr(0, config::kSettingKeyBytesMax) +
                            "' must be text, a number, true or false");
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        if (key.empty() || key.size() > config::kSettingKeyBytesMax ||
            text.size() > config::kSettingTextBytesMax)
            return fail(Code::Invalid,
                        "a setting must have a key of 1 to 64 bytes and a value of at most 1024");
        const auto at = find_setting(build.settings, key);
        if (at == build.settings.end()) {
            build.settings.emplace_back(key, text);
        } else {
            at->second = text;
        }
    }
    std::size_t bytes = 0;
    for (const auto& [key, text] : build.settings) bytes += key.size() + text.size();
    if (build.settings.size() > config::kFreeSettingsMax || bytes > config::kSettingsBytesMax)
        return fail(Code::Invalid, "at most 64 settings of together 8 KiB");
    return {};
}

// What runs and with what.
json build_json(const core::Build& build) {
    json settings = json::object();
    for (const auto& [key, text] : build.settings) settings[key] = text;
    return {{"use", build.use},
            {"binary", build.binary},
            {"build", build.short_hash()},
            {"binary_hash", build.binary_hash},
            {"policy", build.policy.empty() ? json(nullptr) : json(build.policy)},
            {"settings", std::move(settings)}};
}

}  // namespace

void Daemon::register_operations() {
    control_->on("status",
                 [this](const json&, const control::Responder& r) { r.done(status_json()); });
    control_->on("cluster",
                 [this](const json&, const control::Responder& r) { r.done(cluster_json()); });
    control_->on("plugins",
                 [this](const json&, const control::Responder& r) { r.done(plugins_json()); });
    control_->on("actors", [this](const json& request, const control::Responder& r) {
        show_actors(request, r);
    });
    control_->on("actor", [this](const json& request, const control::Responder& r) {
        show_actor(request, r);
    });
    control_->on("letters", [this](const json&, const control::Responder& r) { show_letters(r); });
    control_->on("config-show", [this](const json&, const control::Responder& r) {
        r.done(json::parse(config::show_json(config_)));
    });
    control_->on("config-reload", [this](const json&, const control::Responder& r) { reload(r); });
    control_->on("deploy",
                 [this](const json& request, const control::Responder& r) { deploy(request, r); });
    control_->on("swap",
                 [this](const json& request, const control::Responder& r) { swap(request, r); });
    control_->on("rollback", [this](const json& request, const control::Responder& r) {
        commands_.emplace(++last_command_, Command{r, text_of(request, "plugin")});
        step(core::RollbackCommand{last_command_, text_of(request, "plugin")});
    });
    for (const bool drain : {true, false}) {
        control_->on(drain ? "drain" : "undrain",
                     [this, drain](const json& request, const control::Responder& r) {
                         const std::string node = text_of(request, "node");
                         commands_.emplace(++last_command_, Command{r, node});
                         step(core::DrainCommand{last_command_, node, drain});
                     });
    }
    control_->on("reset", [this](const json& request, const control::Responder& r) {
        commands_.emplace(++last_command_, Command{r, text_of(request, "plugin")});
        step(core::ResetCommand{last_command_, text_of(request, "plugin")});
    });
}

// Starts from the build that runs: what the operator does not name stays as it is. A policy's settings belong to the
// program and the policy: another of either starts with what is given here alone.
void Daemon::swap(const json& request, const control::Responder& responder) {
    const std::string name = text_of(request, "plugin");
    const auto& slots = core_->supervision().slots();
    const auto slot = std::find_if(
        slots.begin(), slots.end(), [&](const auto& s) { return s.spec.name == name; });
    if (slot == slots.end())
        return responder.fail(fail(Code::NotFound, core_->supervision().no_slot(name)));
    const bool has_policies =
        slot->spec.kind == core::Kind::Placement || slot->spec.kind == core::Kind::Drain;
    core::Build build = slot->current;
    const std::string policy = text_of(request, "policy");
    const std::string binary = text_of(request, "binary");
    const bool fresh = request.value("fresh", json()) == true;
    if (!has_policies && !policy.empty())
        return responder.fail(
            fail(Code::Invalid, name + " has no policies; --binary and --set change it"));
    if (!has_policies && fresh)
        return responder.fail(
            fail(Code::Invalid, name + " has no policy whose settings could be left out"));
    if (policy.size() > kPolicyBytesMax)
        return responder.fail(fail(Code::Invalid, "a policy's name has at most 64 bytes"));
    if (!policy.empty()) build.policy = policy;
    bool another = false;
    if (!binary.empty()) {
        if (binary.front() != '/')
            return responder.fail(fail(Code::Invalid, "binary must be an absolute path"));
        const std::string program = std::filesystem::path(binary).filename().string();
        // agent.toml may have its own name for it.
        another = program != std::filesystem::path(build.binary).filename().string();
        if (another) build.use = program;
        build.binary = binary;
    }
    another = another || build.policy != slot->current.policy;
    if (has_policies && (another || fresh)) build.settings.clear();
    if (auto applied = apply_settings(request, build); !applied)
        return responder.fail(applied.error());
    const auto path_of = [](const core::Build& of) {
        const auto found = std::find_if(of.settings.begin(), of.settings.end(), [](const auto& s) {
            return s.first == "path";
        });
        return found == of.settings.end() ? std::string() : found->second;
    };
    if (slot->spec.kind == core::Kind::Storage && path_of(build) != path_of(slot->current))
        return responder.fail(fail(
            Code::Refused, "the store's path belongs to the node; it cannot be changed by a swap"));
    // Without a binary it is the content that serves, whatever became of the file since.
    if (!binary.empty()) {
        auto hash = builds_.keep(build.binary);
        if (!hash) return responder.fail(hash.error());
        build.binary_hash = *hash;
    }
    commands_.emplace(++last_command_, Command{responder, name});
    step(core::SwapCommand{last_command_, name, std::move(build)});
}

void Daemon::command_done(const core::CommandDone& action) {
    const auto it = commands_.find(action.command);
    if (it == commands_.end()) return;
    const Command command = std::move(it->second);
    commands_.erase(it);
    if (command.done) {
        command.done(action);
    } else if (action.ok) {
        json result = {{"text", action.text}};
        for (const auto& slot : core_->supervision().slots()) {
            if (slot.spec.name != command.slot) continue;
            result["plugin"] = slot.spec.name;
            result.update(build_json(slot.current));
        }
        // A roll-back of the runtime may take a deploy back.
        if (auto noted = note_modules(); !noted)
            command.responder->fail(noted.error());
        else
            command.responder->done(result);
    } else {
        command.responder->fail(fail(Code::Refused, action.text));
    }
    forget_unused_builds();
}

void Daemon::forget_unused_builds() {
    std::set<std::filesystem::path> wanted;
    for (const auto& slot : core_->supervision().slots()) {
        for (const core::Build* build : {&slot.spec.build,
                                         &slot.current,
                                         slot.previous ? &*slot.previous : nullptr,
                                         slot.swap ? &slot.swap->build : nullptr}) {
            if (build != nullptr) wanted.insert(builds_.file(*build));
        }
    }
    builds_.keep_only(wanted);
}

json Daemon::status_json() const {
    const core::Stats& stats = core_->stats();
    json policies = json::object();
    for (const auto& slot : core_->supervision().slots()) {
        if (slot.spec.kind != core::Kind::Placement && slot.spec.kind != core::Kind::Drain)
            continue;
        const bool serves = core_->supervision().serving_one(slot.spec.kind).valid();
        policies[slot.spec.name] = serves ? slot.current.policy : "built-in default";
    }
    for (const char* name : {"placement", "drain"}) {
        if (!policies.contains(name)) policies[name] = "built-in default";
    }
    json links = json::array();
    json walls = json::array();
    for (const std::string& wall : spawner_->missing_walls()) walls.push_back(wall);
    for (const auto& [generation, link] : links_) {
        const auto usage = link->channel->usage();
        links.push_back({{"plugin", full_name(*link)},
                         {"generation", generation},
                         {"to_plugin_bytes", usage.to_plugin_bytes},
                         {"from_plugin_bytes", usage.from_plugin_bytes},
                         {"queued_records", usage.queued_records},
                         {"queued_bytes", usage.queued_bytes},
                         {"open_requests", usage.open_requests}});
        for (const std::string& wall : link->process->missing_walls()) {
            const std::string sentence = full_name(*link) + ": " + wall;
            if (std::find(walls.begin(), walls.end(), json(sentence)) == walls.end())
                walls.push_back(sentence);
        }
    }
    json loaded = {{"file", config_.file.string()}};
    if (last_reload_)
        loaded["last_reload"] = {{"ok", last_reload_->ok},
                                 {"text", last_reload_->text},
                                 {"ago_ms", (monotonic_ns() - last_reload_->at) / core::kMs}};
    json listen = json::array();
    for (const Listener& listener : listeners_)
        if (!listener.cluster) listen.push_back(listener.address);
    json status = {
        {"node", config_.node.id},
        {"version", HOLDFAST_VERSION},
        {"role", config_.node.role},
        {"store", core_->store_id()},
        {"incarnation", core_->incarnation()},
        {"ready", core_->ready()},
        {"not_ready_because", core_->not_ready_because()},
        {"uptime_ms", (monotonic_ns() - started_) / core::kMs},
        {"listen", listen},
        {"policies", policies},
        {"control_groups", spawner_->cgroups_in_force()},
        {"config", loaded},
        {"classes", classes_json()},
        {"missing_walls", walls},
        {"accepted", stats.accepted},
        {"answered", stats.answered},
        {"open_events", core_->units().accepted_open()},
        {"units", core_->units().size()},
        {"journal", journal_json()},
        {"bulk",
         {{"bodies", core_->units().bulk().count()}, {"bytes", core_->units().bulk().bytes()}}},
        {"states",
         {{"bytes", core_->units().states().bytes()},
          {"waiting", core_->units().states().waiting()}}},
        {"stats",
         {{"refused_busy", stats.refused_busy},
          {"deadline", stats.deadline},
          {"undone", stats.undone},
          {"redelivered", stats.redelivered},
          {"poisoned", stats.poisoned},
          {"commits", stats.commits},
          {"commit_unknown", stats.commit_unknown},
          {"fenced", stats.fenced},
          {"bases", stats.bases},
          {"acquires", stats.acquires},
          {"loads", stats.loads},
          {"placed_by_policy", stats.placed_by_policy},
          {"placed_by_default", stats.placed_by_default},
          {"place_late", stats.place_late},
          {"place_invalid", stats.place_invalid},
          {"restarts", stats.restarts},
          {"calls", stats.calls},
          {"calls_refused", stats.calls_refused},
          {"alarms_fired", stats.alarms_fired},
          {"alarms_failed", stats.alarms_failed},
          {"alarms_refused", stats.alarms_refused},
          {"messages_sent", stats.messages_sent},
          {"messages_applied", stats.messages_applied},
          {"messages_dead", stats.messages_dead},
          {"journalled", stats.journalled},
          {"journal_applied", stats.journal_applied},
          {"buffered_lost", stats.buffered_lost},
          {"evicted", stats.evicted},
          {"stops", stats.stops},
          {"stops_failed", stats.stops_failed},
          {"leases_lost", stats.leases_lost},
          {"passed_on", stats.passed_on},
          {"passed_on_broken", stats.passed_on_broken},
          {"taken_over", stats.taken_over},
          {"stale_messages", stats.stale_messages}}},
        {"links", links}};
    status.update(lease_json());
    return status;
}

json Daemon::plugins_json() const {
    json rows = json::array();
    const auto& supervision = core_->supervision();
    const core::Time now = monotonic_ns();
    for (const auto& slot : supervision.slots()) {
        json instances = json::array();
        std::uint64_t restarts = 0;
        std::string state = "restarting";
        bool all_failed = true;
        json main_pid = nullptr;
        std::uint64_t generation = 0;
        for (std::uint32_t seat_no = 0; seat_no < slot.seats.size(); ++seat_no) {
            const auto& seat = slot.seats[seat_no];
            restarts += seat.restarts;
            all_failed = all_failed && seat.failed;
            const auto* instance = supervision.find(seat.main);
            json row = {{"index", seat_no}, {"restarts", seat.restarts}};
            if (instance != nullptr) {
                const auto it = links_.find(seat.main.generation);
                const pid_t pid =
                    it == links_.end() || !it->second->process ? 0 : it->second->process->pid();
                row["generation"] = seat.main.generation;
                row["pid"] = pid;
                row["state"] = core::phase_name(instance->phase);
                row["uptime_ms"] = (now - instance->spawned) / core::kMs;
                row["open_requests"] = instance->open_requests;
                if (slot.spec.kind == core::Kind::Runtime)
                    row["resident"] = core_->units().resident_on(seat.main);
                if (generation == 0) {
                    generation = seat.main.generation;
                    main_pid = pid;
                    state = core::phase_name(instance->phase);
                }
            } else {
                row["state"] = seat.failed ? "failed" : "restarting";
            }
            if (const auto last = last_exit_.find(slot.spec.name + "/" + std::to_string(seat_no));
                last != last_exit_.end()) {
                row["last_exit"] = last->second.summary;
                row["last_stderr"] = last->second.stderr_tail;
            }
            instances.push_back(std::move(row));
        }
        if (all_failed) state = "failed";
        json bad = json::array();
        for (const auto& [identity, what] : supervision.bad_builds()) {
            if (what.slot == slot.spec.name)
                bad.push_back({{"build", what.build}, {"why", what.why}});
        }
        json row = {{"name", slot.spec.name},
                    {"kind", core::kind_name(slot.spec.kind)},
                    {"previous", slot.previous ? json(slot.previous->described()) : json(nullptr)},
                    {"generation", generation},
                    {"pid", main_pid},
                    {"state", state},
                    {"restarts", restarts},
                    {"last_exit", slot.last_exit.empty() ? json(nullptr) : json(slot.last_exit)},
                    {"last_exit_build",
                     slot.last_exit.empty() ? json(nullptr) : json(slot.last_exit_build)},
                    {"reason", slot.reason.empty() ? json(nullptr) : json(slot.reason)},
                    {"bad_builds", bad},
                    {"instances", instances}};
        row.update(build_json(slot.current));
        if (slot.spec.kind == core::Kind::Runtime) row["classes"] = classes_json();
        if (slot.swap)
            row["swap"] = {{"to", slot.swap->build.label()}, {"answers", slot.swap->answers}};
        rows.push_back(std::move(row));
    }
    json remembered = json::array();
    for (const auto& [identity, what] : supervision.bad_builds())
        remembered.push_back({{"identity", identity},
                              {"plugin", what.slot},
                              {"build", what.build},
                              {"why", what.why}});
    return {{"plugins", rows}, {"remembered_bad_builds", remembered}};
}

}  // namespace hf::daemon
