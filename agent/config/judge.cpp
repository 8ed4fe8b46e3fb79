#include "agent/config/judge.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "agent/config/names.hpp"
#include "agent/config/text_rules.hpp"

namespace hf::config {

namespace {

constexpr std::int64_t kWasmPage = 64LL * 1024;

[[nodiscard]] const Value& at(const std::map<std::string, Value, std::less<>>& values,
                              std::string_view key) {
    return values.find(key)->second;
}

[[nodiscard]] Millis millis(const std::map<std::string, Value, std::less<>>& values,
                            std::string_view key) {
    return Millis(at(values, key).number);
}

template <class T>
[[nodiscard]] T number(const std::map<std::string, Value, std::less<>>& values,
                       std::string_view key) {
    return static_cast<T>(at(values, key).number);  // the rule's range fits T
}

[[nodiscard]] std::string host_name() {
    std::array<char, HOST_NAME_MAX + 1> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data())
                                                            : std::string();
}

[[nodiscard]] std::vector<std::string> keys_of(const std::vector<Rule>& rules) {
    std::vector<std::string> out;
    for (const Rule& rule : rules) out.emplace_back(rule.key);
    return out;
}

void fill_class(const std::map<std::string, Value, std::less<>>& values, ClassConfig& out) {
    out.cpu_limit = millis(values, "cpu_limit");
    out.wall_limit = millis(values, "wall_limit");
    out.memory_max = number<std::uint64_t>(values, "memory_max");
    out.state_max = number<std::uint64_t>(values, "state_max");
    out.concurrency = number<std::uint32_t>(values, "concurrency");
    out.persistence = at(values, "persistence").text;
    out.mailbox = at(values, "mailbox").text;
    out.body_max = number<std::uint64_t>(values, "body_max");
    out.evict_after = millis(values, "evict_after");
}

}  // namespace

Config Judge::judge() {
    Config out;
    check_top_level();
    read_fixed(out);
    read_plugins(out);
    read_classes(out);
    check_cluster(out);
    out.effective = std::move(effective_);
    return out;
}

void Judge::check_top_level() {
    std::vector<std::string> known;
    for (const FixedTable& table : fixed_tables()) known.emplace_back(table.name);
    known.insert(known.end(), {"plugin", "class"});
    for (const Member& member : root_->members) {
        if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
        const bool table = member.value.kind == Item::Kind::Table;
        const std::string what =
            table ? "unknown table [" + printable(member.key) + "]"
                  : "unknown key '" + printable(member.key) + "' outside any table";
        complaints_->add(member.place, what + guess(member.key, known));
    }
}

void Judge::unknown_key(std::string_view table,
                        const Member& member,
                        const std::vector<std::string>& known) {
    const std::string hint = guess(member.key, known);
    // Where nothing known is near, it may be meant for the plugin itself.
    const bool own = hint.starts_with("; known here") &&
                     std::find(known.begin(), known.end(), "settings") != known.end();
    complaints_->add(member.place,
                     "unknown key '" + printable(member.key) + "' in [" + std::string(table) + ']' +
                         hint +
                         (own ? "; what the plugin itself defines belongs in [" +
                                    std::string(table) + ".settings]"
                              : ""));
}

const Item* Judge::table_at(const Item* parent,
                            std::string_view name,
                            const std::string& full_name) {
    if (parent == nullptr) return nullptr;
    for (const Member& member : parent->members) {
        if (member.key != name) continue;
        if (member.value.kind == Item::Kind::Table) return &member.value;
        const bool list = member.value.kind == Item::Kind::Array;
        complaints_->add(
            member.place,
            "'" + full_name + "' must be one table [" + full_name + "], not " +
                shown(member.value) +
                (list && full_name.starts_with("plugin.") ? "; a slot holds one plugin" : ""));
    }
    return nullptr;
}

void Judge::record(const std::string& table, std::string_view key, const Value& value) {
    if (value.good) effective_.push_back({table, std::string(key), value.text, value.origin});
}

Judge::Values Judge::read(const std::string& name,
                          const Item* table,
                          const std::vector<Rule>& rules,
                          const std::set<std::string, std::less<>>& more) {
    Values out;
    for (const Rule& rule : rules) {
        const Member* member = nullptr;
        if (table != nullptr)
            for (const Member& one : table->members)
                if (one.key == rule.key) member = &one;
        out.insert_or_assign(std::string(rule.key), values_.read(name, rule, member));
    }
    if (table != nullptr) {
        std::vector<std::string> known = keys_of(rules);
        known.insert(known.end(), more.begin(), more.end());
        for (const Member& member : table->members)
            if (!out.contains(member.key) && !more.contains(member.key))
                unknown_key(name, member, known);
    }
    return out;
}

void Judge::read_fixed(Config& out) {
    for (const FixedTable& fixed : fixed_tables()) {
        const std::string name(fixed.name);
        Values values =
            read(name, table_at(root_, name, name), {fixed.rules.begin(), fixed.rules.end()});
        if (name == "node") {
            Value& id = values.find("id")->second;
            if (!id.given) {
                id = values_.read("node", Rule{"id", Type::NodeId, host_name()}, nullptr);
                if (!id.good)
                    complaints_->add({},
                                     "'node.id' is not set and this machine's host name cannot "
                                     "serve: it must be " +
                                         allowed(fixed.rules[0]));
            }
            fill_lease(values, out.node.lease);
            fill_node(values, out);
            node_ = values;
        } else if (name == "limits") {
            fill_limits(values, out);
        } else if (name == "restart") {
            out.restart.intensity = at(values, "intensity").text == "on";
        } else if (name == "jail") {
            out.jail.uid_base = number<std::uint32_t>(values, "uid_base");
        } else if (name == "log") {
            const std::string& level = at(values, "level").text;
            out.log.level = level == "debug"   ? LogLevel::Debug
                            : level == "warn"  ? LogLevel::Warn
                            : level == "error" ? LogLevel::Error
                                               : LogLevel::Info;
            out.log.file_bytes_max = number<std::uint64_t>(values, "file_bytes_max");
            out.log.files = number<std::uint32_t>(values, "files");
        } else {
            out.swap.answers = number<std::uint32_t>(values, "answers");
            out.swap.window = millis(values, "window");
        }
        for (const Rule& rule : fixed.rules) record(name, rule.key, at(values, rule.key));
    }
}

void Judge::fill_node(const Values& values, Config& out) {
    out.node.id = at(values, "id").text;
    out.node.data = at(values, "data").text;
    out.node.tenant = at(values, "tenant").text;
    out.node.app = at(values, "app").text;
    out.node.role = at(values, "role").text;
    out.node.advertise = at(values, "advertise").text;
}

void Judge::fill_limits(const Values& values, Config& out) {
    LimitsConfig& limits = out.limits;
    limits.mailbox_events = number<std::uint32_t>(values, "mailbox_events");
    limits.mailbox_bytes = number<std::uint64_t>(values, "mailbox_bytes");
    limits.accepted_events = number<std::uint32_t>(values, "accepted_events");
    limits.accepted_bytes = number<std::uint64_t>(values, "accepted_bytes");
    limits.request_timeout = millis(values, "request_timeout");
    limits.place_deadline = millis(values, "place_deadline");
    limits.run_ahead_events = number<std::uint32_t>(values, "run_ahead_events");
    limits.run_ahead_bytes = number<std::uint64_t>(values, "run_ahead_bytes");
    limits.checkpoint_entries = number<std::uint32_t>(values, "checkpoint_entries");
    limits.checkpoint_bytes = number<std::uint64_t>(values, "checkpoint_bytes");
    limits.units_max = number<std::uint32_t>(values, "units_max");
    limits.journal_events = number<std::uint32_t>(values, "journal_events");
    limits.journal_bytes = number<std::uint64_t>(values, "journal_bytes");
    limits.journal_events_per_actor = number<std::uint32_t>(values, "journal_events_per_actor");
    limits.hold_idle = millis(values, "hold_idle");
    limits.ready_timeout = millis(values, "ready_timeout");
    limits.shed_deadline = millis(values, "shed_deadline");
    limits.stall_grace = millis(values, "stall_grace");
    limits.bulk_bytes = number<std::uint64_t>(values, "bulk_bytes");
}

// False after a complaint, or when there is nothing to look at.
bool Judge::must_be_file(const std::string& name, const Value& value, bool executable) {
    if (!options_->check_files || !value.good) return false;
    struct stat facts {};
    std::string wrong;
    const bool found = ::stat(value.text.c_str(), &facts) == 0;
    if (found && !S_ISREG(facts.st_mode))
        wrong = "it is not a file";
    else if (!found || ::access(value.text.c_str(), executable ? X_OK : R_OK) != 0)
        wrong = std::generic_category().message(errno);
    if (!wrong.empty())
        complaints_->add(value.place,
                         "'" + name + "' names " + printable(value.text) + ", which cannot be " +
                             (executable ? "run: " : "read: ") + wrong);
    return wrong.empty();
}

// The head alone; what a node would say of the rest takes the builder, and `holdfast build` asks it.
void Judge::must_be_wasm(const std::string& name, const Value& value) {
    if (!must_be_file(name, value, false)) return;
    constexpr std::string_view kHead("\0asm\1\0\0\0", 8);
    std::array<char, kHead.size()> head{};
    std::ifstream(value.text, std::ios::binary).read(head.data(), head.size());
    if (std::string_view(head.data(), head.size()) != kHead)
        complaints_->add(value.place,
                         "'" + name + "' names " + printable(value.text) +
                             ", which is no WebAssembly module of version 1; `holdfast build "
                             "FILE` judges a whole module");
}

void Judge::read_classes(Config& out) {
    const Item* classes = table_at(root_, "class", "class");
    if (classes == nullptr) return;
    if (classes->members.size() > kClassesMax)
        complaints_->add(classes->members[kClassesMax].place,
                         "more than " + std::to_string(kClassesMax) + " classes are declared");
    for (const Member& member : classes->members) {
        const std::string name = "class." + printable(member.key);
        Value checked = values_.read("class", Rule{"name", Type::Name, member.key}, nullptr);
        if (!checked.good || member.key.empty()) {
            complaints_->add(member.place,
                             "class '" + printable(member.key) + "' must have " +
                                 allowed(Rule{"", Type::Name, ""}));
        } else if (member.value.kind != Item::Kind::Table) {
            complaints_->add(
                member.place,
                "'" + name + "' must be a table [" + name + "], not " + shown(member.value));
        } else {
            out.classes.emplace(member.key, read_class(member));
        }
    }
}

ClassConfig default_class(const std::string& name) {
    const Options options{[](const char*) { return std::nullopt; }, false};
    Complaints complaints("");
    const ValueReader reader({}, options, complaints);
    std::map<std::string, Value, std::less<>> values;
    for (const Rule& rule : class_rules())
        values.emplace(std::string(rule.key), reader.read("class." + name, rule, nullptr));
    ClassConfig out;
    fill_class(values, out);
    out.name = name;
    return out;
}

bool is_class_name(std::string_view name) {
    constexpr std::size_t kNameBytesMax = 64;
    return !name.empty() && name.size() <= kNameBytesMax &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-';
           });
}

ClassConfig Judge::read_class(const Member& member) {
    const std::string table = "class." + member.key;
    const auto rules = class_rules();
    Values values = read(table, &member.value, {rules.begin(), rules.end()});
    const Value& module = at(values, "module");
    if (!module.given)
        complaints_->add(member.place,
                         "'" + table + ".module' is missing: the path of the class's wasm module");
    must_be_wasm(table + ".module", module);

    ClassConfig out;
    out.name = member.key;
    out.module = module.text;
    fill_class(values, out);

    const Value& cpu = at(values, "cpu_limit");
    const Value& wall = at(values, "wall_limit");
    if (cpu.good && wall.good && cpu.number > wall.number)
        complaints_->add(cpu.given ? cpu.place : wall.place,
                         "'" + table + ".cpu_limit' (" + cpu.text +
                             ") must not be longer than its wall_limit (" + wall.text + ")");
    const Value& memory = at(values, "memory_max");
    if (memory.good && memory.number % kWasmPage != 0)
        complaints_->add(memory.place,
                         "'" + table + ".memory_max' (" + memory.text +
                             ") must be a multiple of a wasm page, 64KiB");
    const Value& body = at(values, "body_max");
    if (body.good && memory.good && body.number >= memory.number)
        complaints_->add(body.given ? body.place : memory.place,
                         "'" + table + ".body_max' (" + body.text +
                             ") must be smaller than its memory_max (" + memory.text +
                             "): an actor has a whole body in its memory");
    for (const Rule& rule : rules) record(table, rule.key, at(values, rule.key));
    return out;
}

}  // namespace hf::config
