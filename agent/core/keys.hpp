// Names of things in the store (protocol 2): how a unit is escaped and which key each record has. Builders and parsers are
// pure and agree with each other: what a builder made, its parser takes apart, and a parser takes nothing else.
// A key read from a listing is the store's allegation: a parser answers nothing for what is not exactly of its form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "abi/base/result.hpp"

namespace hf::core {

// `A-Za-z0-9_-` stay, any other byte becomes '.' and two lower-case hex digits; so twins (NFC and NFD, upper and lower
// case) stay apart, and no part contains a separator.
[[nodiscard]] std::string escape_part(std::string_view raw);
// Only what escape_part makes: upper-case digits, an escaped plain byte or a bare odd byte answer nothing.
[[nodiscard]] std::optional<std::string> unescape_part(std::string_view escaped);

// A unit taken apart, raw. Actor: `group` is the class. Shard: `group` is the type, `name` the number or "coord".
struct UnitName {
    enum class Kind : std::uint8_t { Actor, Shard } kind = Kind::Actor;
    std::string tenant;
    std::string group;
    std::string name;
    friend bool operator==(const UnitName&, const UnitName&) = default;
};

// The escaped unit, `actor/<tenant>/<class>/<name>`. Invalid: an empty part, or more than kUnitBytesMax bytes; the message
// is fit for the caller at the door.
Result<std::string> actor_unit(std::string_view tenant,
                               std::string_view class_name,
                               std::string_view name);
Result<std::string> shard_unit(std::string_view tenant,
                               std::string_view type,
                               std::uint32_t number);
Result<std::string> coordinator_unit(std::string_view tenant, std::string_view type);
[[nodiscard]] std::optional<UnitName> parse_unit(std::string_view unit);

// A shard of the alarm index: fnv1a-64 of the escaped unit, mod 64.
inline constexpr std::uint32_t kAlarmShards = 64;
[[nodiscard]] std::uint32_t alarm_shard(std::string_view unit);

namespace key {

[[nodiscard]] std::string store();  // "store"
[[nodiscard]] std::string node(std::string_view id);
[[nodiscard]] std::string nodes_prefix();  // "nodes/"
[[nodiscard]] std::string drain(std::string_view node_id);
[[nodiscard]] std::string cordon(std::string_view node_id);
[[nodiscard]] std::string move(std::string_view tenant,
                               std::string_view class_name,
                               std::string_view name,
                               std::string_view target_node);
[[nodiscard]] std::string control_prefix();  // "control/"
// `app` is a plain name ([A-Za-z0-9_-], checked where the configuration is read), `unit` is escaped.
[[nodiscard]] std::string hold(std::string_view app, std::string_view unit);
[[nodiscard]] std::string holds_prefix(std::string_view app);
[[nodiscard]] std::string entry(std::string_view app, std::string_view unit, std::uint64_t seq);
[[nodiscard]] std::string log_prefix(std::string_view app,
                                     std::string_view unit);  // ends in '/': its entries only
[[nodiscard]] std::string alarm(std::string_view app,
                                std::string_view unit,
                                std::int64_t due_ms,
                                std::uint64_t nonce);
[[nodiscard]] std::string alarms_prefix(std::string_view app, std::uint32_t shard);

}  // namespace key

// A log's highest number: its messages are numbered by 4096 times it. Nobody writes as many; a store that lists one lies.
inline constexpr std::uint64_t kLogSeqMost = UINT64_MAX / 4096;

struct EntryKey {
    std::string app;
    std::string unit;
    std::uint64_t seq = 0;
};
struct AlarmKey {
    std::string app;
    std::uint32_t shard = 0;
    std::int64_t due_ms = 0;
    std::string unit;
    std::uint64_t nonce = 0;
};
struct HoldKey {
    std::string app;
    std::string unit;
};
struct MoveKey {
    std::string tenant;
    std::string class_name;
    std::string name;
    std::string target_node;
};
[[nodiscard]] std::optional<std::string> parse_node_key(std::string_view key);    // the id
[[nodiscard]] std::optional<std::string> parse_drain_key(std::string_view key);   // the id
[[nodiscard]] std::optional<std::string> parse_cordon_key(std::string_view key);  // the id
[[nodiscard]] std::optional<MoveKey> parse_move_key(std::string_view key);
[[nodiscard]] std::optional<HoldKey> parse_hold_key(std::string_view key);
[[nodiscard]] std::optional<EntryKey> parse_entry_key(std::string_view key);
// Also answers nothing when the shard is not the unit's.
[[nodiscard]] std::optional<AlarmKey> parse_alarm_key(std::string_view key);

}  // namespace hf::core
