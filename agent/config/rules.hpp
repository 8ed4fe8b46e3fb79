// Every table and key of agent.toml as data: type, default, range. The judge walks these; docs/configuration.md is tested
// against them. Private to this room.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/config/config.hpp"

namespace hf::config {

enum class Type : std::uint8_t {
    Name,      // [A-Za-z0-9_-], 1..64 bytes: becomes part of keys in the store
    NodeId,    // Name, and '.' beyond the first byte
    Path,      // made absolute, relative to the file
    Word,      // one of `words`
    Label,     // free text of printable characters, 1..64 bytes
    Count,     // whole number, least..most
    Duration,  // text with unit, least..most in ms
    Size,      // text with unit, least..most in bytes
    Switch,    // true or false
    Listen,    // address or list of addresses
    Lease,     // "none", or text with unit, least..most in ms
    Address,   // host:port where somebody else reaches this node
    Text,      // printable characters without blanks, at most 270 bytes, or nothing
};

struct Rule {
    std::string_view key;
    Type type = Type::Count;
    // As in the file, without quotes; empty: worked out, or must be given.
    std::string_view fallback = {};
    std::int64_t least = 0;
    std::int64_t most = 0;
    std::string_view words = {};     // "a|b"
    std::string_view variable = {};  // of the environment, wins over the file
    std::string_view stand_in = {};  // of the environment, where the file says nothing
};

[[nodiscard]] std::span<const Rule> node_rules();
[[nodiscard]] std::span<const Rule> limits_rules();
[[nodiscard]] std::span<const Rule> restart_rules();
[[nodiscard]] std::span<const Rule> jail_rules();
[[nodiscard]] std::span<const Rule> log_rules();
[[nodiscard]] std::span<const Rule> swap_rules();
[[nodiscard]] std::span<const Rule> class_rules();

// The tables with fixed names, in the order of the documentation.
struct FixedTable {
    std::string_view name;
    std::span<const Rule> rules;
};
[[nodiscard]] std::span<const FixedTable> fixed_tables();

inline constexpr Slot kSlots[] = {
    Slot::Gateway, Slot::Storage, Slot::Runtime, Slot::Placement, Slot::Drain};

// What every plugin of a slot may have, whoever wrote it.
[[nodiscard]] std::span<const Rule> slot_rules(Slot slot);

// A policy of ours and what its [plugin.<slot>.settings] may hold; no rule has a default there.
struct ShippedPolicy {
    std::string_view name;
    std::span<const Rule> settings;
};

// A plugin of ours. `own` goes to it as settings.
struct Shipped {
    std::string_view name;
    Slot slot;
    std::span<const Rule> own;
    std::span<const ShippedPolicy> policies;  // the first is the default; empty: has none
    [[nodiscard]] std::vector<std::string> policy_names() const;
    [[nodiscard]] std::span<const Rule> settings_of(std::string_view policy) const;
};
[[nodiscard]] std::span<const Shipped> shipped_plugins();
[[nodiscard]] const Shipped* find_shipped(Slot slot, std::string_view name);
[[nodiscard]] std::vector<std::string> shipped_names(Slot slot);

[[nodiscard]] std::vector<std::string> split_words(std::string_view words);

}  // namespace hf::config
