#include "agent/config/names.hpp"

#include <algorithm>
#include <utility>

#include "agent/config/rules.hpp"
#include "agent/config/text_rules.hpp"

namespace hf::config {

namespace {

struct Elsewhere {
    std::string name;
    std::string table;  // "[limits]"
    bool is_table = false;
};

void add_rules(std::vector<Elsewhere>& out, const std::string& table, std::span<const Rule> rules) {
    for (const Rule& rule : rules) out.push_back({std::string(rule.key), table, false});
}

[[nodiscard]] const std::vector<Elsewhere>& all_names() {
    static const std::vector<Elsewhere> kAll = [] {
        std::vector<Elsewhere> out;
        for (const FixedTable& table : fixed_tables()) {
            const std::string name = '[' + std::string(table.name) + ']';
            out.push_back({std::string(table.name), name, true});
            add_rules(out, name, table.rules);
        }
        for (const Slot slot : kSlots) {
            const std::string name = "[plugin." + std::string(slot_name(slot)) + ']';
            out.push_back({std::string(slot_name(slot)), name, true});
            add_rules(out, name, slot_rules(slot));
            for (const Shipped& shipped : shipped_plugins())
                if (shipped.slot == slot) add_rules(out, name, shipped.own);
        }
        add_rules(out, "[class.<name>]", class_rules());
        return out;
    }();
    return kAll;
}

}  // namespace

std::string guess(std::string_view key, const std::vector<std::string>& known) {
    std::string places;
    for (const Elsewhere& one : all_names())
        if (one.name == key && places.find(one.table) == std::string::npos)
            places += (places.empty() ? (one.is_table ? "; it is the table " : "; it belongs in ")
                                      : " or ") +
                      one.table;
    if (!places.empty()) return places;

    if (const auto near = nearest(key, known)) return "; did you mean '" + *near + "'?";

    std::vector<std::string> names;
    for (const Elsewhere& one : all_names()) names.push_back(one.name);
    if (const auto near = nearest(key, names)) {
        const auto found = std::find_if(all_names().begin(),
                                        all_names().end(),
                                        [&](const Elsewhere& one) { return one.name == *near; });
        return "; did you mean '" + *near + "'? It " +
               (found->is_table ? "is the table " : "belongs in ") + found->table;
    }

    std::string list;
    for (const std::string& name : known) list += (list.empty() ? "" : ", ") + name;
    return list.empty() ? "" : "; known here: " + list;
}

}  // namespace hf::config
