// From the tree of a file to a Config: which tables and keys there may be, what must be there, and which values must fit
// each other. Private to this room.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "agent/config/config.hpp"
#include "agent/config/rules.hpp"
#include "agent/config/toml_reader.hpp"
#include "agent/config/values.hpp"

namespace hf::config {

class Judge {
public:
    // `base` is the directory of the file; all arguments outlive the Judge.
    Judge(const Item& root,
          std::filesystem::path base,
          const Options& options,
          Complaints& complaints)
        : root_(&root),
          base_(base),
          options_(&options),
          complaints_(&complaints),
          values_(std::move(base), options, complaints) {}

    // Complains about everything it finds; the Config counts only when there were no complaints.
    [[nodiscard]] Config judge();

private:
    using Values = std::map<std::string, Value, std::less<>>;

    void check_top_level();
    void unknown_key(std::string_view table,
                     const Member& member,
                     const std::vector<std::string>& known);
    // The named table, or nullptr when absent or no table (complained about).
    [[nodiscard]] const Item* table_at(const Item* parent,
                                       std::string_view name,
                                       const std::string& full_name);
    // Reads every rule of a table and refuses every other key but those of `more`.
    [[nodiscard]] Values read(const std::string& name,
                              const Item* table,
                              const std::vector<Rule>& rules,
                              const std::set<std::string, std::less<>>& more = {});
    void record(const std::string& table, std::string_view key, const Value& value);

    void read_fixed(Config& out);
    void fill_node(const Values& values, Config& out);
    static void fill_limits(const Values& values, Config& out);

    // judge_cluster.cpp
    void fill_lease(Values& values, LeaseConfig& out);
    void check_cluster(const Config& out);
    [[nodiscard]] const Item* plugin_item(Slot slot, std::string_view key) const;

    void read_plugins(Config& out);
    [[nodiscard]] PluginConfig read_plugin(Slot slot,
                                           const Item& table,
                                           Place place,
                                           const Config& so_far);
    [[nodiscard]] const Shipped* choose(Slot slot,
                                        const Item& table,
                                        Place place,
                                        const std::string& name);
    void finish_plugin(const Shipped* shipped,
                       const std::string& name,
                       const Values& values,
                       PluginConfig& out);
    void read_policy(const Shipped* shipped, const std::string& name, Place place, Values& values);
    void judge_policy_settings(const std::string& name,
                               const Shipped& shipped,
                               const std::string& policy,
                               const Item& settings);
    void read_settings(const std::string& name,
                       const Shipped* shipped,
                       const Item& settings,
                       PluginConfig& out);

    void read_classes(Config& out);
    [[nodiscard]] ClassConfig read_class(const Member& member);
    bool must_be_file(const std::string& name, const Value& value, bool executable);
    void must_be_wasm(const std::string& name, const Value& value);

    const Item* root_;
    std::filesystem::path base_;
    const Options* options_;
    Complaints* complaints_;
    ValueReader values_;
    std::vector<Effective> effective_;
    Values node_;  // what [node] said, for what must fit the plugins
};

}  // namespace hf::config
