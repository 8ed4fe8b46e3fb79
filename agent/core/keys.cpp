#include "agent/core/keys.hpp"

#include <charconv>
#include <string>
#include <utility>

#include "abi/base/hash.hpp"
#include "abi/base/limits.hpp"

namespace hf::core {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
// 20 decimal digits hold every 64-bit number, so keys sort as their numbers do.
constexpr std::size_t kDecimalDigits = 20;
constexpr std::size_t kNonceDigits = 16;  // a 64-bit number in hexadecimal

[[nodiscard]] bool stays(char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

// -1: not a lower-case hex digit.
[[nodiscard]] int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

void append_hex(std::string& out, char byte) {
    const auto value = static_cast<std::uint8_t>(byte);
    out += kHexDigits[value >> 4U];
    out += kHexDigits[value & 0xFU];
}

[[nodiscard]] std::string decimal20(std::uint64_t number) {
    const std::string digits = std::to_string(number);
    return std::string(kDecimalDigits - digits.size(), '0') + digits;
}

[[nodiscard]] std::optional<std::uint64_t> parse_decimal20(std::string_view text) {
    if (text.size() != kDecimalDigits) return std::nullopt;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

[[nodiscard]] std::string hex16(std::uint64_t number) {
    std::string out(kNonceDigits, '0');
    for (std::size_t i = kNonceDigits; i-- > 0; number >>= 4U) out[i] = kHexDigits[number & 0xFU];
    return out;
}

[[nodiscard]] std::optional<std::uint64_t> parse_hex16(std::string_view text) {
    if (text.size() != kNonceDigits) return std::nullopt;
    std::uint64_t number = 0;
    for (const char c : text) {
        const int digit = hex_value(c);
        if (digit < 0) return std::nullopt;
        number = number << 4U | static_cast<std::uint64_t>(digit);
    }
    return number;
}

// Cuts `rest` at the first '/' and answers what stood before it; nothing when there is none.
[[nodiscard]] std::optional<std::string_view> take_part(std::string_view& rest) {
    const std::size_t slash = rest.find('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string_view part = rest.substr(0, slash);
    rest.remove_prefix(slash + 1);
    return part;
}

// Cuts `rest` at the last '/' and answers what stood behind it.
[[nodiscard]] std::optional<std::string_view> take_last(std::string_view& rest) {
    const std::size_t slash = rest.rfind('/');
    if (slash == std::string_view::npos) return std::nullopt;
    const std::string_view part = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    return part;
}

[[nodiscard]] bool take_prefix(std::string_view& rest, std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
}

[[nodiscard]] bool plain_name(std::string_view text) {
    if (text.empty()) return false;
    for (const char c : text)
        if (!stays(c)) return false;
    return true;
}

// `apps/<app>/<what>/`: answers the app and leaves what follows.
[[nodiscard]] std::optional<std::string> take_app(std::string_view& rest, std::string_view what) {
    if (!take_prefix(rest, "apps/")) return std::nullopt;
    const auto app = take_part(rest);
    if (!app || !plain_name(*app)) return std::nullopt;
    const auto kind = take_part(rest);
    if (!kind || *kind != what) return std::nullopt;
    return std::string(*app);
}

// `<prefix><id>` with an id that may not contain a separator.
[[nodiscard]] std::optional<std::string> parse_id(std::string_view key, std::string_view prefix) {
    if (!take_prefix(key, prefix) || key.empty() || key.find('/') != std::string_view::npos)
        return std::nullopt;
    return std::string(key);
}

[[nodiscard]] Result<std::string> make_unit(std::string_view kind,
                                            std::string_view tenant,
                                            std::string_view group,
                                            std::string_view name) {
    if (tenant.empty() || group.empty() || name.empty())
        return fail(Code::Invalid,
                    "the name of an " + std::string(kind) + " must not have an empty part");
    // Before anything is copied: a raw name is never longer than its escaped form.
    if (tenant.size() + group.size() + name.size() > kUnitBytesMax)
        return fail(Code::Invalid,
                    "the name is longer than " + std::to_string(kUnitBytesMax) +
                        " bytes with tenant and class");
    std::string unit(kind);
    for (const std::string_view part : {tenant, group, name}) unit += '/' + escape_part(part);
    if (unit.size() > kUnitBytesMax)
        return fail(Code::Invalid,
                    "the escaped name takes " + std::to_string(unit.size()) + " bytes, at most " +
                        std::to_string(kUnitBytesMax) + " are allowed: '" +
                        std::string(unit.substr(0, 60)) + "...'");
    return unit;
}

}  // namespace

std::string escape_part(std::string_view raw) {
    std::string out;
    out.reserve(raw.size());
    for (const char c : raw) {
        if (stays(c)) {
            out += c;
        } else {
            out += '.';
            append_hex(out, c);
        }
    }
    return out;
}

std::optional<std::string> unescape_part(std::string_view escaped) {
    std::string out;
    out.reserve(escaped.size());
    for (std::size_t i = 0; i < escaped.size(); ++i) {
        if (stays(escaped[i])) {
            out += escaped[i];
            continue;
        }
        if (escaped[i] != '.' || escaped.size() - i < 3) return std::nullopt;
        const int high = hex_value(escaped[i + 1]);
        const int low = hex_value(escaped[i + 2]);
        if (high < 0 || low < 0) return std::nullopt;
        const auto byte = static_cast<char>(static_cast<std::uint8_t>(high << 4 | low));
        if (stays(byte)) return std::nullopt;
        out += byte;
        i += 2;
    }
    return out;
}

Result<std::string> actor_unit(std::string_view tenant,
                               std::string_view class_name,
                               std::string_view name) {
    return make_unit("actor", tenant, class_name, name);
}

Result<std::string> shard_unit(std::string_view tenant,
                               std::string_view type,
                               std::uint32_t number) {
    return make_unit("shard", tenant, type, std::to_string(number));
}

Result<std::string> coordinator_unit(std::string_view tenant, std::string_view type) {
    return make_unit("shard", tenant, type, "coord");
}

std::optional<UnitName> parse_unit(std::string_view unit) {
    if (unit.size() > kUnitBytesMax) return std::nullopt;
    UnitName out;
    if (take_prefix(unit, "shard/"))
        out.kind = UnitName::Kind::Shard;
    else if (!take_prefix(unit, "actor/"))
        return std::nullopt;
    const auto tenant = take_part(unit);
    const auto group = take_part(unit);
    if (!tenant || !group || tenant->empty() || group->empty() || unit.empty()) return std::nullopt;
    auto raw_tenant = unescape_part(*tenant);
    auto raw_group = unescape_part(*group);
    auto raw_name = unescape_part(unit);  // a further '/' fails here
    if (!raw_tenant || !raw_group || !raw_name) return std::nullopt;
    out.tenant = std::move(*raw_tenant);
    out.group = std::move(*raw_group);
    out.name = std::move(*raw_name);
    if (out.kind == UnitName::Kind::Shard && out.name != "coord") {
        std::uint32_t number = 0;
        const char* const last = out.name.data() + out.name.size();
        const auto [end, error] = std::from_chars(out.name.data(), last, number);
        if (error != std::errc() || end != last || std::to_string(number) != out.name)
            return std::nullopt;
    }
    return out;
}

std::uint32_t alarm_shard(std::string_view unit) {
    return static_cast<std::uint32_t>(fnv1a64(unit) % kAlarmShards);
}

namespace key {

std::string store() {
    return "store";
}
std::string node(std::string_view id) {
    return nodes_prefix() + std::string(id);
}
std::string nodes_prefix() {
    return "nodes/";
}
std::string drain(std::string_view node_id) {
    return "control/drain/" + std::string(node_id);
}
std::string cordon(std::string_view node_id) {
    return "control/cordon/" + std::string(node_id);
}
std::string move(std::string_view tenant,
                 std::string_view class_name,
                 std::string_view name,
                 std::string_view target_node) {
    std::string out = "control/move/" + escape_part(tenant) + '/' + escape_part(class_name) + '/';
    for (const char c : name) append_hex(out, c);
    return out + '/' + std::string(target_node);
}
std::string control_prefix() {
    return "control/";
}
std::string hold(std::string_view app, std::string_view unit) {
    return holds_prefix(app) + std::string(unit);
}
std::string holds_prefix(std::string_view app) {
    return "apps/" + std::string(app) + "/holds/";
}
std::string entry(std::string_view app, std::string_view unit, std::uint64_t seq) {
    return log_prefix(app, unit) + decimal20(seq);
}
std::string log_prefix(std::string_view app, std::string_view unit) {
    return "apps/" + std::string(app) + "/log/" + std::string(unit) + '/';
}
std::string alarm(std::string_view app,
                  std::string_view unit,
                  std::int64_t due_ms,
                  std::uint64_t nonce) {
    // An alarm before 1970 is simply due.
    const std::uint64_t due = due_ms < 0 ? 0 : static_cast<std::uint64_t>(due_ms);
    return alarms_prefix(app, alarm_shard(unit)) + decimal20(due) + '/' + std::string(unit) + '/' +
           hex16(nonce);
}
std::string alarms_prefix(std::string_view app, std::uint32_t shard) {
    return "apps/" + std::string(app) + "/alarms/" + std::to_string(shard) + '/';
}

}  // namespace key

std::optional<std::string> parse_node_key(std::string_view key) {
    return parse_id(key, "nodes/");
}
std::optional<std::string> parse_drain_key(std::string_view key) {
    return parse_id(key, "control/drain/");
}
std::optional<std::string> parse_cordon_key(std::string_view key) {
    return parse_id(key, "control/cordon/");
}

std::optional<MoveKey> parse_move_key(std::string_view key) {
    if (!take_prefix(key, "control/move/")) return std::nullopt;
    const auto tenant = take_part(key);
    const auto class_name = take_part(key);
    const auto name = take_part(key);
    if (!tenant || !class_name || !name || name->empty() || name->size() % 2 != 0)
        return std::nullopt;
    if (key.empty() || key.find('/') != std::string_view::npos) return std::nullopt;
    auto raw_tenant = unescape_part(*tenant);
    auto raw_class = unescape_part(*class_name);
    if (!raw_tenant || !raw_class || raw_tenant->empty() || raw_class->empty()) return std::nullopt;
    MoveKey out{std::move(*raw_tenant), std::move(*raw_class), {}, std::string(key)};
    for (std::size_t i = 0; i < name->size(); i += 2) {
        const int high = hex_value((*name)[i]);
        const int low = hex_value((*name)[i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        out.name += static_cast<char>(static_cast<std::uint8_t>(high << 4 | low));
    }
    return out;
}

std::optional<HoldKey> parse_hold_key(std::string_view key) {
    auto app = take_app(key, "holds");
    if (!app || !parse_unit(key)) return std::nullopt;
    return HoldKey{std::move(*app), std::string(key)};
}

std::optional<EntryKey> parse_entry_key(std::string_view key) {
    auto app = take_app(key, "log");
    if (!app) return std::nullopt;
    const auto last = take_last(key);
    if (!last || !parse_unit(key)) return std::nullopt;
    const auto seq = parse_decimal20(*last);
    if (!seq || *seq == 0 || *seq > kLogSeqMost) return std::nullopt;
    return EntryKey{std::move(*app), std::string(key), *seq};
}

std::optional<AlarmKey> parse_alarm_key(std::string_view key) {
    auto app = take_app(key, "alarms");
    if (!app) return std::nullopt;
    const auto shard = take_part(key);
    const auto due_text = take_part(key);
    const auto nonce_text = take_last(key);
    if (!shard || !due_text || !nonce_text || !parse_unit(key)) return std::nullopt;
    const std::uint32_t wanted = alarm_shard(key);
    if (*shard != std::to_string(wanted)) return std::nullopt;
    const auto due = parse_decimal20(*due_text);
    const auto nonce = parse_hex16(*nonce_text);
    if (!due || !nonce || *due > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
    return AlarmKey{
        std::move(*app), wanted, static_cast<std::int64_t>(*due), std::string(key), *nonce};
}

}  // namespace hf::core
