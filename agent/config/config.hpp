// agent.toml as plain structs. Responsible for reading the file strictly (an unknown key, a missing unit or a value out of
// range is refused with its place and the nearest known name), for defaults, for the overrides from the environment, and
// for telling where each effective value came from. Not for opening anything the file names but the file itself, and not
// for starting or reloading: a caller keeps its old Config when a new one does not load.
// Pure towards the process: no state, no thread; any thread may call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::config {

// What a plugin may be given as free settings, in the file or by a swap: Configure carries all of them in one record of
// 64 KiB beside the modules.
inline constexpr std::size_t kFreeSettingsMax = 64;
inline constexpr std::size_t kSettingKeyBytesMax = 64;
inline constexpr std::size_t kSettingTextBytesMax = 1024;
inline constexpr std::size_t kSettingsBytesMax = 8 * 1024;

// Every class is a module in one Configure record of 64 KiB; an entry takes at most 500 bytes.
inline constexpr std::size_t kClassesMax = 100;

using Millis = std::chrono::milliseconds;

// What a node is made of; each is filled by at most one plugin. Without `placement` or `drain` the supervisor's built-in
// default policies decide; the other three must be declared.
enum class Slot : std::uint8_t { Gateway, Storage, Runtime, Placement, Drain };
[[nodiscard]] std::string_view slot_name(Slot slot);  // "gateway"

// How the node keeps its units on a store that others use too: by a record that it renews. All are 0 without one.
struct LeaseConfig {
    Millis ttl{0};  // 0: none, the store is this node's alone
    Millis renew{0};
    Millis grace{0};  // what others wait beyond ttl
    Millis poll{0};   // how often the others' records are looked at
    [[nodiscard]] bool none() const { return ttl.count() == 0; }
};

struct NodeConfig {
    std::string id;              // [A-Za-z0-9_-][A-Za-z0-9_.-]*, <= 64; default: the host's name
    std::filesystem::path data;  // absolute; HOLDFAST_DATA wins over the file
    std::string tenant;          // [A-Za-z0-9_-], <= 64
    std::string app;             // likewise: a part of every key in the store
    std::string role;            // "wasmkeep"
    LeaseConfig lease;
    std::string advertise;  // host:port where other nodes reach this one; empty: where it listens
};

struct LimitsConfig {
    std::uint32_t mailbox_events = 0;  // one unit
    std::uint64_t mailbox_bytes = 0;
    std::uint32_t accepted_events = 0;  // the whole node
    std::uint64_t accepted_bytes = 0;
    Millis request_timeout{0};
    Millis place_deadline{0};
    std::uint32_t run_ahead_events = 0;
    std::uint64_t run_ahead_bytes = 0;
    std::uint32_t checkpoint_entries = 0;
    std::uint64_t checkpoint_bytes = 0;
    std::uint32_t units_max = 0;
    std::uint32_t journal_events = 0;
    std::uint64_t journal_bytes = 0;
    std::uint32_t journal_events_per_actor = 0;
    Millis hold_idle{0};
    Millis ready_timeout{0};
    Millis shed_deadline{0};
    Millis stall_grace{0};
    std::uint64_t bulk_bytes = 0;  // all large bodies that are open
};

struct RestartConfig {
    bool intensity = true;  // "off": neither back-off nor count (storms in tests)
};

struct JailConfig {
    std::uint32_t uid_base = 0;
};

enum class LogLevel : std::uint8_t { Debug, Info, Warn, Error };

struct LogConfig {
    LogLevel level = LogLevel::Info;
    std::uint64_t file_bytes_max = 0;  // one file
    std::uint32_t files = 0;  // the current one included: disk use <= file_bytes_max * files
};

struct SwapConfig {
    std::uint32_t answers = 0;  // a stage ends after this many answers ...
    Millis window{0};           // ... or this long
};

// An address to listen on. `host` is an IP literal without brackets; "localhost" was turned into 127.0.0.1.
struct Endpoint {
    std::string host;
    std::uint16_t port = 0;                  // 0: the system chooses
    [[nodiscard]] std::string text() const;  // "[::1]:8080"
    friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct PluginConfig {
    Slot slot = Slot::Gateway;
    std::string use;  // the shipped plugin's name, or the name given to a third party's binary
    std::filesystem::path binary;  // absolute; empty: the shipped one, beside holdfastd
    std::string policy;            // placement and drain; empty for the others
    std::uint32_t instances = 1;   // runtime: 1..64; 1 for the others
    std::uint64_t memory_max = 0;  // bytes, of one instance
    std::uint32_t pids_max = 0;    // its processes and threads
    Millis deadline{0};            // placement and drain: limits.place_deadline; 0 for the others
    bool required =
        false;  // placement: a call the policy did not answer fails instead of using the default
    std::vector<Endpoint>
        listen;  // gateway: sockets the supervisor opens, in this order listener0, listener1, ...
    std::optional<Endpoint> cluster_listen;  // gateway-http: a socket for other nodes alone
    // For Configure.settings: the shipped plugin's own keys with defaults filled in, then [plugin.<slot>.settings] in the
    // file's order. Normalised to base units: durations in whole milliseconds, sizes in whole bytes, both as decimal
    // digits; paths absolute. `listen`, `instances`, `policy` and `required` are the supervisor's and not among them.
    // Free settings are handed over as written (numbers and booleans as TOML prints them).
    std::vector<std::pair<std::string, std::string>> settings;
    [[nodiscard]] std::string_view setting(std::string_view key) const;  // empty when absent
};

struct ClassConfig {
    std::string name;              // [A-Za-z0-9_-], <= 64
    std::filesystem::path module;  // absolute; a relative one counts from the toml file's directory
    Millis cpu_limit{0};           // per event
    Millis wall_limit{0};
    std::uint64_t memory_max = 0;  // bytes, whole wasm pages
    std::uint64_t state_max = 0;   // bytes
    std::uint32_t concurrency = 1;
    std::string persistence;     // "durable"
    std::string mailbox;         // "durable", "buffered", "volatile"
    std::uint64_t body_max = 0;  // bytes, of a request and of its answer
    Millis evict_after{0};       // without an event: out of the runtime's memory
};

// A class that agent.toml does not have, with the limits of one that says nothing but its module.
[[nodiscard]] ClassConfig default_class(const std::string& name);
[[nodiscard]] bool is_class_name(std::string_view name);

struct Origin {
    enum class Kind : std::uint8_t { Default, File, Environment } kind = Kind::Default;
    std::uint32_t line = 0;  // File
    std::string variable;    // Environment
};

// One effective value as a person would write it, and who set it.
struct Effective {
    std::string table;  // "plugin.gateway"
    std::string key;    // "request_timeout"
    std::string value;  // "30s"
    Origin origin;
};

struct Config {
    std::filesystem::path file;  // absolute
    NodeConfig node;
    LimitsConfig limits;
    RestartConfig restart;
    JailConfig jail;
    LogConfig log;
    SwapConfig swap;
    std::map<Slot, PluginConfig> plugins;
    std::map<std::string, ClassConfig> classes;
    std::vector<Effective> effective;  // every value, in the order of the documentation

    [[nodiscard]] const PluginConfig* plugin(Slot slot) const;  // nullptr: not declared
};

// One thing wrong with the file. `text()` is "agent.toml:3:1: unknown key ...": file:line:column, or the file alone when
// the trouble has no place in it.
struct Problem {
    std::string file;
    std::uint32_t line = 0;  // from 1; 0: the file as a whole
    std::uint32_t column = 0;
    std::string message;
    [[nodiscard]] std::string text() const;
};

struct Options {
    // Reads a variable; unset: the process's environment. A variable set to nothing counts as not set.
    std::function<std::optional<std::string>(const char* name)> environment;
    // Also looks whether modules and third-party binaries are there.
    bool check_files = true;
};

struct Checked {
    std::optional<Config> config;  // set when there are no problems
    // In the file's order, at most 20; one more says how many are not told.
    std::vector<Problem> problems;
    bool readable =
        true;  // false: the file could not be read at all (missing, directory, permission)
};

// Reads and judges a file; never throws.
[[nodiscard]] Checked check(const std::filesystem::path& file, const Options& options = {});

// The same, as one failure: every problem on a line of its own. NotFound/Io when the file cannot be read, else Invalid.
[[nodiscard]] Result<Config> load(const std::filesystem::path& file, const Options& options = {});

// Every effective value with its origin: "default", "agent.toml:12" or "environment HOLDFAST_DATA".
[[nodiscard]] std::string show_text(const Config& config);
[[nodiscard]] std::string show_json(
    const Config& config);  // {"file", "values": [{table, key, value, origin, line?}]}

}  // namespace hf::config
