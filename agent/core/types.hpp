// Words and settings of the core. Plain structs, standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "abi/base/handle.hpp"

namespace hf::core {

// Nanoseconds of the host's CLOCK_MONOTONIC; the simulator's clock in tests.
using Time = std::int64_t;
inline constexpr Time kMs = 1'000'000;
inline constexpr Time kSecond = 1'000 * kMs;
inline constexpr Time kNever = INT64_MAX;

// Names one request of ours on any link; unique for the life of the core.
using OpId = std::uint64_t;
// Names one unit in this core; never reused.
using UnitId = std::uint64_t;

enum class Kind : std::uint8_t { None, Gateway, Storage, Runtime, Placement, Drain };
[[nodiscard]] const char* kind_name(Kind kind);

// What exactly runs in a slot: what a swap changes and what a bad build is remembered by.
struct Build {
    std::string use;     // shipped plugin's name, or a label for a foreign binary
    std::string binary;  // absolute path
    std::string binary_hash;
    std::string policy;  // empty for kinds without policies
    std::vector<std::pair<std::string, std::string>> settings;
    // A runtime's: names the table of classes and modules it is configured with; empty: the one the node started with.
    std::string modules = {};
    // (binary hash, kind, policy, configuration): two builds with the same identity are the same build.
    [[nodiscard]] std::string identity() const;
    [[nodiscard]] std::string label() const { return policy.empty() ? use : use + "/" + policy; }
    // The head of the content's hash: enough for a person to tell two builds apart.
    [[nodiscard]] std::string short_hash() const;
    // "scheduler/pinned (build 735c1f20, instance=1)": for people; long settings are cut.
    [[nodiscard]] std::string described() const;
};

// A build that the node does not choose again by itself.
struct BadBuild {
    std::string slot;   // where it went wrong
    std::string build;  // Build::described()
    std::string why;
};
using BadBuilds = std::map<std::string, BadBuild>;  // by Build::identity()

struct SlotSpec {
    std::string name;  // "gateway", "storage", "runtime", "placement", "drain"
    Kind kind = Kind::None;
    std::uint32_t instances = 1;
    Build build;
};

// What a class's actors may rely on when an event was accepted.
enum class Mailbox : std::uint8_t {
    Durable,  // a request accepted for later is in the journal first; others are run again after a runtime's death
    Buffered,  // a request accepted for later is in memory only
    Volatile   // nothing is accepted for later, nothing is run again
};

struct ClassSpec {
    std::string name;
    std::int64_t wall_limit = 5 * kSecond;
    std::uint32_t state_bytes_max = 48 * 1024;
    Mailbox mailbox = Mailbox::Durable;
    std::uint64_t body_bytes_max = 48 * 1024;  // of a request and of its answer
    std::int64_t evict_after = 600 * kSecond;  // without an event: out of the runtime's memory
    bool served = true;  // false: it was taken away; its place in the list stays
};

// Every bound of the core, with its default. The configuration room fills it from agent.toml.
struct Limits {
    std::size_t mailbox_events = 128;       // waiting events of one unit
    std::size_t mailbox_bytes = 1U << 20U;  // and their bytes
    std::size_t accepted_events = 4096;     // all events accepted and not yet answered
    std::size_t accepted_bytes = 64U << 20U;
    std::size_t units_max = 100'000;     // units known at once; idle ones are forgotten beyond
    std::size_t sockets_max = 20'000;    // WebSockets of all gateways: of one and its successor
    std::size_t outbox_messages = 1024;  // of one unit, sent and not applied yet
    std::size_t outbox_bytes =
        2U << 20U;  // and their bytes: with state and marks a base holds them
    // Requests accepted for later and not applied yet; all of them are in memory too.
    std::size_t journal_events = 65'536;
    std::size_t journal_bytes = 64U << 20U;
    std::size_t journal_events_per_actor = 1024;
    std::size_t run_ahead_events = 32;  // protocol: executed but not yet stored
    std::size_t run_ahead_bytes = 1U << 20U;
    std::size_t checkpoint_entries = 256;  // entries after which a base is taken
    std::size_t checkpoint_bytes = 1U << 20U;
    std::size_t entry_bytes = 48 * 1024;  // changes merged into one entry
    std::uint32_t runtime_inflight =
        64;  // per instance: 64 x 64 KiB stays under a channel's private 8 MiB
    std::uint32_t storage_inflight = 96;  // as above; the rest waits in the core
    std::uint32_t resident_units_max =
        20'000;  // per runtime instance: 2-3 mappings a unit, 65 530 a process
    Time place_deadline = 50 * kMs;
    bool place_required =
        false;  // a question the policy did not answer fails instead of the default
    Time policy_stall = 1 * kSecond;  // an answer later than this is a stall, not slowness
    Time stall_grace = 2 * kSecond;
    Time storage_stall = 20 * kSecond;  // a full fsync on a tired disk takes seconds
    Time ready_timeout = 10 * kSecond;
    Time shed_deadline = 30 * kSecond;
    Time hold_idle = 3600 * kSecond;
    std::uint32_t swap_answers = 64;
    Time swap_window = 2 * kSecond;
    std::uint64_t bulk_bytes = 512ULL << 20U;  // of all large bodies that are open
    // States on their way between store and runtimes: eight of the largest. Each may lie in memory four times.
    std::size_t states_bytes = 32U << 20U;
};

// The node's lease on its own record, on which all its holds hang (protocol 3). Times on a clock that counts suspend.
struct LeaseSpec {
    Time ttl = 0;  // 0: none; the store is this node's alone
    Time renew = 3 * kSecond;
    Time grace = 2 * kSecond;                // what others wait beyond ttl
    Time poll = 1 * kSecond + 500 * kMs;     // how often others' records are listed
    [[nodiscard]] bool none() const { return ttl == 0; }
};

struct Config {
    std::string node_id;
    std::string instance_id;  // random id of the data directory
    std::string http_address;
    std::string machine;
    std::string boot;
    std::string tenant = "default";
    std::string app = "default";
    std::vector<SlotSpec> slots;
    std::vector<ClassSpec> classes;
    Limits limits;
    LeaseSpec lease;
    std::string peer_address;  // host:port where other nodes reach this one; empty: none does
    bool restart_intensity = true;  // false: no back-off, no count
    bool leftovers_reaped =
        true;                   // the daemon killed and waited for what an earlier incarnation left
    std::uint64_t seed_hi = 0;  // for write ids, nonces and jitter
    std::uint64_t seed_lo = 0;
};

// A seedable generator (splitmix64 over two lanes); never used for secrets.
class Random {
public:
    Random(std::uint64_t hi, std::uint64_t lo) : hi_(hi), lo_(lo) {}
    std::uint64_t next();
    // 0 <= result < bound; bound > 0.
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }

private:
    std::uint64_t hi_;
    std::uint64_t lo_;
};

}  // namespace hf::core
