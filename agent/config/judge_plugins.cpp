// The part of the judge that knows what plugins may be told.
#include <algorithm>
#include <utility>

#include "agent/config/judge.hpp"
#include "agent/config/names.hpp"
#include "agent/config/text_rules.hpp"

namespace hf::config {

namespace {

[[nodiscard]] std::string list_of(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) out += (out.empty() ? "\"" : ", \"") + word + "\"";
    return out;
}

[[nodiscard]] bool needed(Slot slot) {
    return slot == Slot::Gateway || slot == Slot::Storage || slot == Slot::Runtime;
}

}  // namespace

void Judge::read_plugins(Config& out) {
    const Item* plugins = table_at(root_, "plugin", "plugin");
    std::vector<std::string> slots;
    for (const Slot slot : kSlots) slots.emplace_back(slot_name(slot));
    bool any = false;
    if (plugins != nullptr) {
        for (const Member& member : plugins->members) {
            any = true;
            if (std::find(slots.begin(), slots.end(), member.key) == slots.end()) {
                const auto near = nearest(member.key, slots);
                const std::string hint = near ? "; did you mean [plugin." + *near + "]?"
                                              : "; the slots are " + list_of(slots);
                complaints_->add(member.place,
                                 "unknown table [plugin." + printable(member.key) + "]" + hint);
            }
        }
    }
    if (!any && root_->find("plugin") == nullptr) {
        complaints_->add({},
                         "no [plugin.*] table is declared: a node needs at least [plugin.gateway], "
                         "[plugin.storage] and [plugin.runtime]");
        return;
    }
    if (plugins == nullptr) return;  // complained about
    for (const Slot slot : kSlots) {
        const std::string name(slot_name(slot));
        const Item* table = table_at(plugins, name, "plugin." + name);
        if (table != nullptr) {
            Place place = table->place;
            for (const Member& member : plugins->members)
                if (member.key == name) place = member.place;
            out.plugins.emplace(slot, read_plugin(slot, *table, place, out));
        } else if (needed(slot) && plugins->find(name) == nullptr) {
            complaints_->add({},
                             "no [plugin." + name + "] table: a node needs a " + name +
                                 " plugin, for instance use = " + list_of(shipped_names(slot)));
        }
    }
}

// The shipped plugin a table names; nullptr for a third party's, or after a complaint.
const Shipped* Judge::choose(Slot slot, const Item& table, Place place, const std::string& name) {
    const Item* use = table.find("use");
    const bool own_binary = table.find("binary") != nullptr;
    if (use == nullptr) {
        if (!own_binary)
            complaints_->add(place,
                             "'" + name + ".use' is missing: " + list_of(shipped_names(slot)) +
                                 ", or binary = \"/path\" for a plugin of your own");
        return nullptr;
    }
    if (use->kind != Item::Kind::String) return nullptr;  // the rule complains
    const Shipped* shipped = find_shipped(slot, use->text);
    if (shipped == nullptr && !own_binary) {
        const auto names = shipped_names(slot);
        const auto near = nearest(use->text, names);
        complaints_->add(
            use->place,
            "'" + name + ".use' is \"" + printable(use->text) + "\", which is no " +
                std::string(slot_name(slot)) + " plugin we ship" +
                (near ? "; did you mean \"" + *near + "\"?" : "; known: " + list_of(names) + ".") +
                " A plugin of your own needs binary = \"/path\"");
    }
    return shipped;
}

PluginConfig Judge::read_plugin(Slot slot, const Item& table, Place place, const Config& so_far) {
    const std::string name = "plugin." + std::string(slot_name(slot));
    PluginConfig out;
    out.slot = slot;
    const std::size_t before = effective_.size();
    const Shipped* shipped = choose(slot, table, place, name);
    const bool third_party = shipped == nullptr && table.find("binary") != nullptr;

    const auto common = slot_rules(slot);
    std::vector<Rule> rules(common.begin(), common.end());
    if (shipped != nullptr) rules.insert(rules.end(), shipped->own.begin(), shipped->own.end());
    const bool settings_allowed = third_party || (shipped != nullptr && !shipped->policies.empty());
    // Unknown `use`: one complaint is enough, its keys cannot be judged.
    if (shipped == nullptr && !third_party) {
        Item known_only;
        for (const Member& member : table.members)
            if (std::any_of(common.begin(), common.end(), [&](const Rule& rule) {
                    return rule.key == member.key;
                }))
                known_only.members.push_back(member);
        static_cast<void>(read(name, &known_only, rules));
        return out;
    }
    Values values = read(name,
                         &table,
                         rules,
                         settings_allowed ? std::set<std::string, std::less<>>{"settings"}
                                          : std::set<std::string, std::less<>>{});
    if (values.contains("policy")) read_policy(shipped, name, place, values);
    if (const auto path = values.find("path"); path != values.end() && !path->second.given) {
        path->second.text = (so_far.node.data / "store").string();
        path->second.good = true;
    }
    if (const auto bucket = values.find("bucket");
        bucket != values.end() && bucket->second.text.empty() && !bucket->second.given)
        complaints_->add(place, "'" + name + ".bucket' is missing: the bucket's name at the store");
    // Unless it is told apart, the gateway waits as long as the node does.
    if (const auto wait = values.find("request_timeout");
        wait != values.end() && !wait->second.given) {
        wait->second.number = so_far.limits.request_timeout.count();
        wait->second.text = format_duration(wait->second.number);
    }
    if (slot == Slot::Placement || slot == Slot::Drain) out.deadline = so_far.limits.place_deadline;
    finish_plugin(shipped, name, values, out);

    for (const Rule& rule : rules) record(name, rule.key, values.find(rule.key)->second);
    if (settings_allowed)
        if (const Item* settings = table_at(&table, "settings", name + ".settings"))
            read_settings(name + ".settings", shipped, *settings, out);
    if (effective_.size() > before && !values.find("use")->second.given)
        effective_.insert(effective_.begin() + static_cast<std::ptrdiff_t>(before),
                          {name, "use", out.use, {}});
    return out;
}

void Judge::read_policy(const Shipped* shipped,
                        const std::string& name,
                        Place place,
                        Values& values) {
    Value& policy = values.find("policy")->second;
    if (shipped == nullptr) return;  // a third party names its policies itself
    const auto known = shipped->policy_names();
    if (known.empty()) return;
    if (!policy.given) {
        policy.text = known.front();
        policy.good = true;
        return;
    }
    if (!policy.good || std::find(known.begin(), known.end(), policy.text) != known.end()) return;
    const auto near = nearest(policy.text, known);
    complaints_->add(policy.place.line == 0 ? place : policy.place,
                     "'" + name + ".policy' must be one of " + list_of(known) + "; \"" +
                         printable(policy.text) + "\" is unknown" +
                         (near ? " (did you mean \"" + *near + "\"?)" : ""));
}

void Judge::finish_plugin(const Shipped* shipped,
                          const std::string& name,
                          const Values& values,
                          PluginConfig& out) {
    const auto value = [&](std::string_view key) -> const Value* {
        const auto found = values.find(key);
        return found == values.end() ? nullptr : &found->second;
    };
    if (const Value* binary = value("binary"); binary->given) {
        if (const Item* plugin = root_->find("plugin"))
            if (const Item* table = plugin->find(slot_name(out.slot)))
                if (const Item* raw = table->find("binary");
                    raw != nullptr && binary->good && raw->text[0] != '/')
                    complaints_->add(binary->place,
                                     "'" + name + ".binary' must be an absolute path; \"" +
                                         printable(raw->text) + "\" is relative");
        must_be_file(name + ".binary", *binary, true);
        out.binary = binary->text;
    }
    out.use = value("use")->given ? value("use")->text : out.binary.filename().string();
    if (const Value* policy = value("policy")) out.policy = policy->text;
    if (const Value* count = value("instances"))
        out.instances = static_cast<std::uint32_t>(count->number);
    out.memory_max = static_cast<std::uint64_t>(value("memory_max")->number);
    out.pids_max = static_cast<std::uint32_t>(value("pids_max")->number);
    if (const Value* required = value("required")) out.required = required->number != 0;
    if (const Value* listen = value("listen")) out.listen = listen->listen;
    if (const Value* cluster = value("cluster_listen"); cluster != nullptr && cluster->good)
        out.cluster_listen = cluster->listen.front();
    if (shipped != nullptr)
        for (const Rule& rule : shipped->own)
            out.settings.emplace_back(std::string(rule.key), value(rule.key)->base_text(rule.type));
}

// What a policy of ours takes is known here; a node that found out would serve without it.
void Judge::judge_policy_settings(const std::string& name,
                                  const Shipped& shipped,
                                  const std::string& policy,
                                  const Item& settings) {
    const auto names = shipped.policy_names();
    if (std::find(names.begin(), names.end(), policy) == names.end()) return;  // complained about
    std::vector<std::string> known;
    for (const Rule& rule : shipped.settings_of(policy)) known.emplace_back(rule.key);
    for (const Member& member : settings.members) {
        const auto rules = shipped.settings_of(policy);
        const auto rule = std::find_if(
            rules.begin(), rules.end(), [&](const Rule& one) { return one.key == member.key; });
        if (rule != rules.end()) {
            static_cast<void>(values_.read(name, *rule, &member));
            continue;
        }
        const auto near = nearest(member.key, known);
        complaints_->add(member.place,
                         "'" + name + '.' + printable(member.key) + "': policy " + policy +
                             " has no such setting; " +
                             (near            ? "did you mean '" + *near + "'?"
                              : known.empty() ? "it has none"
                                              : "it has " + list_of(known)));
    }
}

void Judge::read_settings(const std::string& name,
                          const Shipped* shipped,
                          const Item& settings,
                          PluginConfig& out) {
    if (shipped != nullptr) judge_policy_settings(name, *shipped, out.policy, settings);
    std::size_t bytes = 0;
    for (const Member& member : settings.members) {
        const Item& item = member.value;
        const std::string key = printable(member.key);
        if (item.kind == Item::Kind::Table || item.kind == Item::Kind::Array ||
            item.kind == Item::Kind::DateTime) {
            complaints_->add(item.place,
                             "'" + name + '.' + key +
                                 "' must be text, a number, true or false, not " + shown(item));
            continue;
        }
        if (member.key.empty() || member.key.size() > kSettingKeyBytesMax ||
            item.text.size() > kSettingTextBytesMax) {
            complaints_->add(member.place,
                             "'" + name + '.' + key +
                                 "' must have a key of 1 to 64 bytes and a value of at most 1024");
            continue;
        }
        bytes += member.key.size() + item.text.size();
        out.settings.emplace_back(member.key, item.text);
        effective_.push_back(
            {name, member.key, item.text, {Origin::Kind::File, item.place.line, {}}});
    }
    if (settings.members.size() > kFreeSettingsMax || bytes > kSettingsBytesMax)
        complaints_->add(settings.place,
                         "[" + name + "] must have at most " + std::to_string(kFreeSettingsMax) +
                             " settings of together " + format_size(kSettingsBytesMax));
}

}  // namespace hf::config
