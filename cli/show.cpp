#include "cli/show.hpp"

#include <algorithm>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cli/text.hpp"

namespace hf::cli {

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

void print_pairs(std::ostream& out, const Pairs& pairs) {
    std::size_t widest = 0;
    for (const auto& [key, value] : pairs) widest = std::max(widest, key.size());
    for (const auto& [key, value] : pairs)
        out << key << std::string(widest + 2 - key.size(), ' ') << value << '\n';
}

// The list at `key`; empty when there is none.
const Json& list(const Json& object, const char* key) {
    static const Json kNone = Json::array();
    if (!object.is_object()) return kNone;
    const auto found = object.find(key);
    return found != object.end() && found->is_array() ? *found : kNone;
}

// A table of objects whose shape is the node's business: one column per key, names before numbers, each in the order in which
// they first appear.
void print_objects(std::ostream& out, const Json& objects) {
    std::vector<std::string> keys;
    std::set<std::string> seen;
    for (const Json& object : objects)
        for (const auto& [key, value] : object.items())
            if (object.is_object() && seen.insert(key).second) keys.push_back(key);
    if (keys.empty()) {
        for (const Json& one : objects) out << line_of(one) << '\n';
        return;
    }
    std::stable_partition(keys.begin(), keys.end(), [&objects](const std::string& key) {
        return std::any_of(objects.begin(), objects.end(), [&key](const Json& object) {
            const auto found = object.find(key);
            return found != object.end() && found->is_string();
        });
    });
    std::vector<std::string> heads;
    for (const std::string& key : keys) heads.push_back(printable(key));
    Table table(heads);
    for (const Json& object : objects) {
        std::vector<std::string> cells;
        for (const std::string& key : keys) cells.push_back(field(object, key));
        table.row(std::move(cells));
    }
    table.print(out);
}

// "fill=100, spread=2"
std::string settings_of(const Json& plugin) {
    const auto found = plugin.is_object() ? plugin.find("settings") : plugin.end();
    if (!plugin.is_object() || found == plugin.end() || !found->is_object() || found->empty())
        return "-";
    std::string out;
    for (const auto& [key, value] : found->items())
        out += (out.empty() ? "" : ", ") + printable(key) + "=" + line_of(value);
    return out;
}

// Where the settings come from, and how the last attempt to read them again ended.
std::string reload_of(const Json& status) {
    const auto config = status.is_object() ? status.find("config") : status.end();
    if (!status.is_object() || config == status.end()) return "-";
    std::string file = field(*config, "file");
    const auto last = config->is_object() ? config->find("last_reload") : config->end();
    if (!config->is_object() || last == config->end()) return file;
    return file + ", read again " + duration_field(*last, "ago_ms") +
           " ago: " + (field(*last, "ok") == "yes" ? "" : "REFUSED, the old settings hold: ") +
           field(*last, "text");
}

// "10s, 8s left": how the node keeps what it holds. Of a node that has its store for itself: "none".
std::string lease_of(const Json& status) {
    const std::string lease = field(status, "lease");
    const std::string left = duration_field(status, "lease_left_ms");
    return left == "-" ? lease : lease + ", " + left + " left";
}

// "n2 alive, n3 gone", of the nodes that are not this one.
std::string others_of(const Json& status) {
    std::string out;
    for (const Json& node : list(status, "nodes"))
        if (field(node, "self") != "yes")
            out += (out.empty() ? "" : ", ") + field(node, "id") + " " + field(node, "view");
    return out.empty() ? "-" : out;
}

// What an operator has to know about one plugin beyond its row.
void add_notes(Pairs& notes, const std::string& name, const Json& plugin) {
    if (const auto reason = field(plugin, "reason"); reason != "-")
        notes.emplace_back(name, reason);
    // Settings of the other slots stand in agent.toml.
    if (const auto settings = settings_of(plugin); field(plugin, "policy") != "-")
        notes.emplace_back(name, "settings: " + settings);
    if (const auto exit = field(plugin, "last_exit"); exit != "-") {
        const auto build = field(plugin, "last_exit_build");
        notes.emplace_back(name, "last exit" + (build == "-" ? "" : " of " + build) + ": " + exit);
    }
    for (const Json& one : list(plugin, "classes"))
        notes.emplace_back(name,
                           "class " + field(one, "class") + ": module " + field(one, "module") +
                               (field(one, "deployed") == "yes" ? ", deployed" : ""));
    for (const Json& build : list(plugin, "bad_builds"))
        notes.emplace_back(
            name,
            "not chosen again by itself: " + field(build, "build") + ": " + field(build, "why"));
}

}  // namespace

void show_status(std::ostream& out, const Json& result) {
    const auto at = [&result](const char* key) { return field(result, key); };
    print_pairs(
        out,
        {{"node", at("node")},
         {"version", at("version")},
         {"role", at("role")},
         {"store", at("store")},
         {"incarnation", at("incarnation")},
         {"lease", lease_of(result)},
         {"other nodes", others_of(result)},
         {"ready",
          at("ready") == "no" && at("not_ready_because") != "-" ? "no: " + at("not_ready_because")
                                                                : at("ready")},
         {"listens on", at("listen")},
         {"up", duration_field(result, "uptime_ms")},
         {"policies", at("policies")},
         {"configuration", reload_of(result)},
         {"events accepted", at("accepted")},
         {"events answered", at("answered")},
         {"units", at("units")},
         {"journal", line_of(result.is_object() ? result.value("journal", Json()) : Json())},
         {"large bodies", at("bulk")},
         {"control groups", at("control_groups")},
         {"missing walls", list(result, "missing_walls").empty() ? "-" : "below"}});
    if (const Json& classes = list(result, "classes"); !classes.empty()) {
        out << '\n';
        Table table({"CLASS", "MODULE", "BEFORE", "FROM"});
        for (const Json& one : classes)
            table.row(
                {field(one, "class"),
                 field(one, "module"),
                 field(one, "before"),
                 (field(one, "deployed") == "yes" ? "deployed, " : "") + field(one, "source")});
        table.print(out);
    }
    // Each is a sentence of its own.
    if (const Json& walls = list(result, "missing_walls"); !walls.empty()) {
        out << "\nmissing walls\n";
        for (const Json& wall : walls)
            out << "  " << printable(wall.is_string() ? wall.get<std::string>() : wall.dump())
                << '\n';
    }
    if (const Json& links = list(result, "links"); !links.empty()) {
        out << "\nlinks\n";
        print_objects(out, links);
    }
}

void show_cluster(std::ostream& out, const Json& result) {
    Table table({"NODE", "ADDRESS", "STATE", "INCARNATION", "LEASE", "RENEWED", "VIEW"});
    for (const Json& node : list(result, "nodes")) {
        const std::string age = duration_field(node, "renewed_ms");
        table.row({field(node, "id"),
                   field(node, "address"),
                   field(node, "state"),
                   field(node, "incarnation"),
                   duration_field(node, "ttl_ms"),
                   age == "-" ? age : age + " ago",
                   field(node, "self") == "yes" ? "this node" : field(node, "view")});
    }
    table.print(out);
    if (field(result, "lease") == "none")
        out << "\nthis node has its store for itself (node.lease = \"none\")\n";
    else
        out << "\nlease of this node: " << lease_of(result) << '\n';
    const auto drain = result.is_object() ? result.find("drain") : result.end();
    if (!result.is_object() || drain == result.end() || field(*drain, "state") == "serving") return;
    out << "this node is " << field(*drain, "state") << ": left are " << field(*drain, "actors")
        << " actors (" << field(*drain, "under_way") << " on their way), " << field(*drain, "alarms")
        << " alarms and " << field(*drain, "requests") << " accepted requests\n";
}

void show_plugins(std::ostream& out, const Json& result) {
    Table table(
        {"NAME", "USE", "BUILD", "POLICY", "STATE", "GEN", "PID", "RESTARTS", "UNITS", "UP"});
    Pairs notes;
    for (const Json& plugin : list(result, "plugins")) {
        const std::string name = field(plugin, "name");
        const Json& instances = list(plugin, "instances");
        const Json only = instances.size() == 1 ? instances.front() : Json::object();
        table.row({name,
                   field(plugin, "use"),
                   field(plugin, "build"),
                   field(plugin, "policy"),
                   field(plugin, "state"),
                   // Of several instances each has its own, below.
                   instances.size() > 1 ? "" : field(plugin, "generation"),
                   instances.size() > 1 ? "" : field(plugin, "pid"),
                   field(plugin, "restarts"),
                   instances.size() > 1 ? "" : field(only, "resident"),
                   instances.size() > 1 ? "" : duration_field(only, "uptime_ms")});
        for (const Json& instance : instances) {
            if (instances.size() == 1) break;
            table.row({"  " + name + "/" + field(instance, "index"),
                       "",
                       "",
                       "",
                       field(instance, "state"),
                       field(instance, "generation"),
                       field(instance, "pid"),
                       field(instance, "restarts"),
                       field(instance, "resident"),
                       duration_field(instance, "uptime_ms")});
        }
        add_notes(notes, name, plugin);
    }
    // Of slots that this node no longer has; the others are told with their plugin.
    for (const Json& build : list(result, "remembered_bad_builds"))
        if (std::none_of(list(result, "plugins").begin(),
                         list(result, "plugins").end(),
                         [&](const Json& plugin) {
                             return field(plugin, "name") == field(build, "plugin");
                         }))
            notes.emplace_back("bad build", field(build, "build") + ": " + field(build, "why"));
    table.print(out);
    if (notes.empty()) return;
    out << '\n';
    print_pairs(out, notes);
}

void show_actors(std::ostream& out, const Json& result) {
    Table table({"CLASS", "NAME", "MODULE", "STATE", "EPOCH", "SEQ", "INSTANCE", "QUEUED", "IDLE"});
    std::string last;
    for (const Json& actor : list(result, "actors")) {
        table.row({field(actor, "class"),
                   field(actor, "name"),
                   field(actor, "module"),
                   field(actor, "state") == "elsewhere" ? "at " + field(actor, "node")
                                                        : field(actor, "state"),
                   field(actor, "epoch"),
                   field(actor, "seq"),
                   field(actor, "instance"),
                   field(actor, "queued"),
                   duration_field(actor, "idle_ms")});
        last = field(actor, "unit");
    }
    table.print(out);
    if (field(result, "more") == "yes") out << "\nmore: --after " << last << ", or --all\n";
}

void show_letters(std::ostream& out, const Json& result) {
    Table table({"AT", "SOURCE", "NUMBER", "TARGET", "METHOD", "BYTES", "WHY"});
    for (const Json& letter : list(result, "letters"))
        table.row({field(letter, "at"),
                   field(letter, "source"),
                   field(letter, "number"),
                   field(letter, "target"),
                   field(letter, "method"),
                   field(letter, "bytes"),
                   field(letter, "why")});
    table.print(out);
}

void show_config(std::ostream& out, const Json& result) {
    if (const auto file = field(result, "file"); file != "-") out << "# " << file << '\n';
    Table table({"KEY", "VALUE", "ORIGIN"});
    for (const Json& value : list(result, "values")) {
        const std::string in = field(value, "table");
        std::string origin = field(value, "origin");
        if (const auto at = field(value, "line"); origin == "file" && at != "-") origin += ":" + at;
        table.row(
            {(in == "-" ? "" : in + ".") + field(value, "key"), field(value, "value"), origin});
    }
    if (table.empty())
        show_fields(out, result);
    else
        table.print(out);
}

void show_outcome(std::ostream& out, const Json& result) {
    // A sentence needs no key, and says the rest in words.
    if (result.is_object() && result.contains("text"))
        out << field(result, "text") << '\n';
    else
        show_fields(out, result);
}

void show_reload(std::ostream& out, const Json& result) {
    if (list(result, "changed").empty()) return show_outcome(out, result);
    print_objects(out, list(result, "changed"));
}

void show_fields(std::ostream& out, const Json& result) {
    if (!result.is_object()) {
        if (!result.is_null()) out << line_of(result) << '\n';
        return;
    }
    Pairs pairs;
    for (const auto& [key, value] : result.items())
        pairs.emplace_back(printable(key), line_of(value));
    print_pairs(out, pairs);
}

}  // namespace hf::cli
