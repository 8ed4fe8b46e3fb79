// holdfast deploy: another module for one class, on a node that serves (part of Daemon). The module is copied, judged and
// compiled by the jailed builder, then new runtime instances start beside the old ones; the core moves the actors over and
// back again if the new ones do not last (agent/core/swap.cpp). What then runs is written down before the operator hears
// of it, so a kill -9 at any moment leaves the old or the new one.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "agent/daemon/daemon.hpp"
#include "agent/daemon/requests.hpp"
#include "agent/log/log.hpp"

namespace hf::daemon {

namespace {
using nlohmann::json;
// Sets of instances that still end: four at once, with the one in charge and the new one, is what a node has memory for.
constexpr std::size_t kLeavingSetsMax = 2;
}  // namespace

const core::Build* Daemon::runtime_build() const {
    for (const auto& slot : core_->supervision().slots())
        if (slot.spec.kind == core::Kind::Runtime) return &slot.current;
    return nullptr;
}

const RuntimeTable& Daemon::table_named(const std::string& id) const {
    static const RuntimeTable kNone;
    const auto found = tables_.find(id);
    return found == tables_.end() ? kNone : found->second;
}

const RuntimeTable& Daemon::served_table() const {
    const core::Build* build = runtime_build();
    return table_named(build == nullptr ? "" : build->modules);
}

std::vector<core::ClassSpec> Daemon::class_specs(const config::Config& config) const {
    std::vector<core::ClassSpec> out;
    for (const auto& [name, limits] : served_table().limits)
        out.push_back(class_spec(class_in(config, name), limits));
    return out;
}

json Daemon::classes_json() const {
    json out = json::array();
    for (const auto& [name, entry] : served()) {
        const Deployment* deployed = deployments_.of(name);
        out.push_back(
            {{"class", name},
             {"module", shown(entry.wasm_sha256)},
             {"wasm_sha256", entry.wasm_sha256},
             {"deployed", deployed != nullptr},
             {"before",
              deployed == nullptr || deployed->before.empty() ? json(nullptr)
                                                              : json(shown(deployed->before))},
             {"source", module_shown(name, entry.wasm_sha256)}});
    }
    return out;
}

// One change of the runtime's modules at a time: each starts a whole set of instances beside those that run. Those before
// may have long events to end, so two sets of them may still be there.
const std::string* Daemon::why_busy() const {
    static const std::string kStops = "the node stops";
    static const std::string kStarts = "the node is still compiling its modules";
    static const std::string kDeploys = "a deploy is under way";
    static const std::string kReloads = "a reload of the configuration is under way";
    static const std::string kLeaving =
        "runtime instances of earlier versions have not ended yet; try again in a while";
    if (stop_asked_) return &kStops;
    if (!started_serving_) return &kStarts;
    if (deploy_) return &kDeploys;
    if (reload_) return &kReloads;
    std::size_t seats = 0;
    std::size_t leaving = 0;
    const auto& slots = core_->supervision().slots();
    for (const auto& slot : slots)
        if (slot.spec.kind == core::Kind::Runtime) seats += slot.seats.size();
    for (const auto& [generation, instance] : core_->supervision().instances())
        if (slots[instance.slot].spec.kind == core::Kind::Runtime && instance.ending) ++leaving;
    if (leaving > kLeavingSetsMax * seats) return &kLeaving;
    return nullptr;
}

void Daemon::deploy(const json& request, const control::Responder& responder) {
    const std::string name = text_of(request, "class");
    const std::string module = text_of(request, "module");
    const bool reset = request.value("reset", json()) == true;
    const bool back = request.value("rollback", json()) == true;
    if (const std::string* why = why_busy()) return responder.fail(fail(Code::Busy, *why));
    if (!config::is_class_name(name))
        return responder.fail(
            fail(Code::Invalid, "a class's name must be 1 to 64 of A-Z a-z 0-9 _ -"));
    if ((module.empty() ? 0 : 1) + (reset ? 1 : 0) + (back ? 1 : 0) != 1)
        return responder.fail(fail(Code::Invalid, "deploy wants a module, reset or rollback"));
    if (!module.empty() && module.front() != '/')
        return responder.fail(fail(Code::Invalid, "module must be an absolute path"));
    if (runtime_build() == nullptr)
        return responder.fail(fail(Code::Invalid, "this node has no runtime"));
    const auto runs = served().find(name);
    const Deployment* deployed = deployments_.of(name);
    if (runs == served().end() && (reset || back))
        return responder.fail(fail(Code::NotFound, "class " + name + " is not served here"));
    if (runs == served().end() && served().size() >= config::kClassesMax)
        return responder.fail(fail(Code::Busy,
                                   "this node serves " + std::to_string(config::kClassesMax) +
                                       " classes, which is all it may"));
    Deploy deploy{responder, name, "", "", module, reset, monotonic_ns()};
    if (runs != served().end()) deploy.before = runs->second.wasm_sha256;
    if (back) {
        if (deployed == nullptr || deployed->before.empty())
            return responder.fail(
                fail(Code::NotFound, "class " + name + " has no earlier module to go back to"));
        if (auto good = cache_->check_copy(deployed->before); !good)
            return responder.fail(good.error());
        deploy.after = deployed->before;
    }
    // What the file names now: a deploy wins over that, and what it names later over the deploy.
    if (const auto file = config_.classes.find(name); file != config_.classes.end()) {
        auto taken = cache_->take(file->second.module);
        if (taken) file_wasm_[name] = *taken;
        if (!taken && reset) return responder.fail(taken.error());
        if (reset) deploy.after = *taken;
    }
    if (!module.empty()) {
        auto taken = cache_->take(module);
        if (!taken) return responder.fail(taken.error());
        deploy.after = *taken;
    }
    deploy_ = std::move(deploy);
    if (deploy_->before == deploy_->after)
        return deploy_ended(true, name + " already runs module " + shown(deploy_->after));
    if (deploy_->after.empty()) {
        ModuleTable table = served();
        table.erase(name);
        return deploy_table(std::move(table));
    }
    deploy_module(deploy_->after);
}

void Daemon::deploy_module(const std::string& wasm) {
    deploy_->responder.progress("judging and compiling module " + shown(wasm));
    const std::string name = deploy_->class_name;
    const std::string from = deploy_->source.empty() ? module_shown(name, wasm) : deploy_->source;
    start_build({name, wasm, from, [this, name](Result<modules::Entry> entry) {
                     if (!entry) return deploy_ended(false, entry.error().message);
                     ModuleTable table = served();
                     table[name] = *entry;
                     deploy_table(std::move(table));
                 }});
}

void Daemon::deploy_table(ModuleTable table) {
    swap_modules(std::move(table), deploy_->responder, [this](const core::CommandDone& done) {
        std::string text = done.text;
        if (done.ok)
            text = deploy_->after.empty()
                       ? deploy_->class_name + " is not served any more"
                       : deploy_->class_name + " runs module " + shown(deploy_->after) + ", was " +
                             shown(deploy_->before);
        deploy_ended(done.ok, text);
    });
}

void Daemon::deploy_ended(bool ok, const std::string& text) {
    const Deploy deploy = *deploy_;
    std::string said = text;
    if (ok) {
        auto noted = note_modules();
        if (noted && deploy.reset) {
            deployments_.forget(deploy.class_name);
            noted = deployments_.save();
        }
        if (!noted) {
            ok = false;
            said += ", but this was not written down, and a restart would undo it: " +
                    noted.error().message;
        }
    } else {
        said = deploy.class_name + " stays at module " + shown(deploy.before) + ": " + text;
    }
    deploy_.reset();
    trim_modules();
    log::write(ok ? log::Level::Info : log::Level::Error, "deploy", said);
    if (!ok) return deploy.responder.fail(fail(Code::Refused, said));
    deploy.responder.done(
        {{"text", said},
         {"class", deploy.class_name},
         {"module", deploy.after.empty() ? json(nullptr) : json(shown(deploy.after))},
         {"wasm_sha256", deploy.after.empty() ? json(nullptr) : json(deploy.after)},
         {"before", deploy.before.empty() ? json(nullptr) : json(shown(deploy.before))},
         {"millis", (monotonic_ns() - deploy.since) / core::kMs}});
}

void Daemon::swap_modules(ModuleTable table,
                          std::optional<control::Responder> responder,
                          std::function<void(const core::CommandDone&)> done) {
    core::Build build = *runtime_build();
    RuntimeTable told = runtime_table(std::move(table), reload_ ? reload_->config : config_);
    build.modules = told.id();
    ++last_command_;
    tables_[build.modules] = std::move(told);
    std::string slot;
    for (const auto& one : core_->supervision().slots())
        if (one.spec.kind == core::Kind::Runtime) slot = one.spec.name;
    commands_.emplace(last_command_, Command{std::move(responder), slot, std::move(done)});
    step(core::SwapCommand{last_command_, slot, std::move(build)});
}

// Writes down what the runtime serves now if that is not what was written before, and tells the core of its classes and
// their limits.
Result<void> Daemon::note_modules() {
    const RuntimeTable& now = served_table();
    if (now == noted_) return deployments_.save();
    const auto wasm_in = [](const ModuleTable& table, const std::string& name) {
        const auto found = table.find(name);
        return found == table.end() ? std::string() : found->second.wasm_sha256;
    };
    std::set<std::string> names;
    for (const auto& [name, entry] : now.modules) names.insert(name);
    for (const auto& [name, entry] : noted_.modules) names.insert(name);
    for (const std::string& name : names) {
        const std::string before = wasm_in(noted_.modules, name);
        const std::string after = wasm_in(now.modules, name);
        if (before == after) continue;
        if (after.empty()) {
            deployments_.forget(name);
            continue;
        }
        Deployment deployment{after, before, "", ""};
        if (const auto file = file_wasm_.find(name); file != file_wasm_.end())
            deployment.file = file->second;
        if (deploy_ && deploy_->class_name == name) deployment.source = deploy_->source;
        deployments_.set(name, std::move(deployment));
    }
    noted_ = now;
    step(core::ConfigChanged{core_limits(config_), class_specs(config_)});
    return deployments_.save();
}

// What no build, instance, deployment or file names any more goes.
void Daemon::trim_modules() {
    std::set<std::string> ids = {""};
    for (const auto& slot : core_->supervision().slots()) {
        ids.insert(slot.current.modules);
        if (slot.previous) ids.insert(slot.previous->modules);
        if (slot.swap) ids.insert(slot.swap->build.modules);
    }
    for (const auto& [generation, link] : links_) ids.insert(link->build.modules);
    std::erase_if(tables_, [&](const auto& table) { return !ids.contains(table.first); });
    std::set<std::string> wasm;
    for (const auto& [id, table] : tables_)
        for (const auto& [name, entry] : table.modules) wasm.insert(entry.wasm_sha256);
    for (const auto& [name, deployment] : deployments_.all()) {
        wasm.insert(deployment.wasm);
        if (!deployment.before.empty()) wasm.insert(deployment.before);
    }
    for (const auto& [name, hash] : file_wasm_) wasm.insert(hash);
    cache_->trim(wasm);
}

}  // namespace hf::daemon
