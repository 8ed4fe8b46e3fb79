#include "agent/daemon/deployments.hpp"

#include <nlohmann/json.hpp>

#include "agent/config/config.hpp"

namespace hf::daemon {

namespace {
using nlohmann::json;

bool is_hash_or_empty(const json& object, const char* key) {
    const json value = object.value(key, json());
    return value.is_string() &&
           (value.get<std::string>().empty() || modules::is_sha256(value.get<std::string>()));
}

Result<void> judge(const json& document) {
    if (!document.is_object() || !document.value("classes", json()).is_object())
        return fail(Code::Corrupt, "it has no object `classes`");
    const json& classes = document["classes"];
    if (classes.size() > config::kClassesMax)
        return fail(Code::Corrupt, "it has more classes than a node serves");
    for (const auto& [name, one] : classes.items()) {
        if (!config::is_class_name(name))
            return fail(Code::Corrupt, "'" + name.substr(0, 64) + "' is no name of a class");
        if (!one.is_object() || !one.value("source", json()).is_string() ||
            !is_hash_or_empty(one, "wasm") || !is_hash_or_empty(one, "before") ||
            !is_hash_or_empty(one, "file") || one["wasm"].get<std::string>().empty())
            return fail(Code::Corrupt, "what is said of class " + name + " names no module");
    }
    return {};
}
}  // namespace

std::string table_id(const ModuleTable& table, const std::string& besides) {
    std::string text = besides;
    for (const auto& [name, entry] : table)
        text.append("\n").append(name).append(" ").append(entry.meta_sha256);
    constexpr std::size_t kDigits = 32;
    return modules::sha256_hex(as_bytes(text)).substr(0, kDigits);
}

std::string shown(const std::string& wasm) {
    constexpr std::size_t kDigits = 12;  // of 64
    return wasm.empty() ? "none" : wasm.substr(0, kDigits);
}

Result<void> Deployments::load(std::string& note) {
    json document;
    HF_ASSIGN(const control::StateFile::Found found, file_.load(document, note, judge));
    if (found != control::StateFile::Found::Good) return {};
    for (const auto& [name, one] : document["classes"].items())
        by_class_[name] = {one["wasm"].get<std::string>(),
                           one["before"].get<std::string>(),
                           one["file"].get<std::string>(),
                           one["source"].get<std::string>()};
    return {};
}

Result<void> Deployments::save() {
    if (!unsaved_) return {};
    json classes = json::object();
    for (const auto& [name, one] : by_class_)
        classes[name] = {
            {"wasm", one.wasm}, {"before", one.before}, {"file", one.file}, {"source", one.source}};
    HF_TRY(file_.save({{"classes", std::move(classes)}}));
    unsaved_ = false;
    return {};
}

std::string Deployments::choose(const std::string& class_name,
                                const std::string& file_now,
                                bool& overtaken) {
    const auto found = by_class_.find(class_name);
    overtaken = found != by_class_.end() && found->second.file != file_now;
    if (overtaken) {
        forget(class_name);
        return file_now;
    }
    return found == by_class_.end() ? file_now : found->second.wasm;
}

const Deployment* Deployments::of(const std::string& class_name) const {
    const auto found = by_class_.find(class_name);
    return found == by_class_.end() ? nullptr : &found->second;
}

}  // namespace hf::daemon
