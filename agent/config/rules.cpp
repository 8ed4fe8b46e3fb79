#include "agent/config/rules.hpp"

#include <array>

#include "abi/base/limits.hpp"

namespace hf::config {

namespace {

constexpr std::int64_t kKiB = 1LL << 10U;
constexpr std::int64_t kMiB = 1LL << 20U;
constexpr std::int64_t kGiB = 1LL << 30U;
constexpr std::int64_t kTiB = 1LL << 40U;
constexpr std::int64_t kSecond = 1000;
constexpr std::int64_t kMinute = 60 * kSecond;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kDay = 24 * kHour;
constexpr auto kPayload = static_cast<std::int64_t>(kPayloadBytesMax);
constexpr auto kLargeBody = static_cast<std::int64_t>(kLargeBodyBytesMax);
constexpr auto kHeaders = static_cast<std::int64_t>(kHeaderBytesMax);

constexpr Rule kNode[] = {
    {"id", Type::NodeId},
    {"data", Type::Path, "/var/lib/holdfast", 0, 0, "", "HOLDFAST_DATA"},
    {"tenant", Type::Name, "default"},
    {"app", Type::Name, "default"},
    {"role", Type::Word, "wasmkeep", 0, 0, "wasmkeep"},
    // Below 3 s a slow disk looks like a dead node; above 5 min nobody waits for a takeover.
    {"lease", Type::Lease, "none", 3 * kSecond, 300 * kSecond},
    // Without them parts of the lease (judge_cluster.cpp); its upper ends as theirs.
    {"lease_renew", Type::Duration, {}, 100, 100 * kSecond},
    {"lease_grace", Type::Duration, {}, 100, 300 * kSecond},
    {"lease_poll", Type::Duration, {}, 100, 300 * kSecond},
    {"advertise", Type::Address},
};

// Upper ends keep the sum of all queues of a node within a few GiB and every wait within what an operator sits through.
constexpr Rule kLimits[] = {
    {"mailbox_events", Type::Count, "128", 1, 65536},
    // At least one event with a full body and its headers must fit.
    {"mailbox_bytes", Type::Size, "1MiB", 64 * kKiB, kGiB},
    {"accepted_events", Type::Count, "4096", 1, 1'000'000},
    {"accepted_bytes", Type::Size, "64MiB", 64 * kKiB, 16 * kGiB},
    {"request_timeout", Type::Duration, "30s", 100, kHour},
    {"place_deadline", Type::Duration, "50ms", 1, 10 * kSecond},
    // The protocol's own bound: at most 32 events or 1 MiB ahead of the store.
    {"run_ahead_events", Type::Count, "32", 1, 32},
    {"run_ahead_bytes", Type::Size, "1MiB", 64 * kKiB, kMiB},
    {"checkpoint_entries", Type::Count, "256", 1, 4096},
    {"checkpoint_bytes", Type::Size, "1MiB", 64 * kKiB, 64 * kMiB},
    {"units_max", Type::Count, "100000", 1, 10'000'000},
    // All of the journal is in memory too.
    {"journal_events", Type::Count, "65536", 1, 1'000'000},
    {"journal_bytes", Type::Size, "64MiB", 64 * kKiB, 4 * kGiB},
    {"journal_events_per_actor", Type::Count, "1024", 1, 1'000'000},
    {"hold_idle", Type::Duration, "1h", kSecond, 30 * kDay},
    {"ready_timeout", Type::Duration, "10s", 100, 10 * kMinute},
    {"shed_deadline", Type::Duration, "30s", 100, kHour},
    {"stall_grace", Type::Duration, "2s", 10, 10 * kMinute},
    {"bulk_bytes", Type::Size, "512MiB", kMiB, 64 * kGiB},
};

constexpr Rule kRestart[] = {{"intensity", Type::Word, "on", 0, 0, "on|off"}};

// Below 65536 live people and services; the upper end leaves room for the index of every instance in 31 bits.
constexpr Rule kJail[] = {{"uid_base", Type::Count, "900000", 65536, 2'000'000'000}};

constexpr Rule kLog[] = {
    {"level", Type::Word, "info", 0, 0, "debug|info|warn|error"},
    {"file_bytes_max", Type::Size, "16MiB", 64 * kKiB, 16 * kGiB},
    {"files", Type::Count, "4", 2, 100},
};

constexpr Rule kSwap[] = {
    {"answers", Type::Count, "64", 1, 100'000},
    {"window", Type::Duration, "2s", 10, 10 * kMinute},
};

constexpr Rule kClass[] = {
    {"module", Type::Path},
    {"cpu_limit", Type::Duration, "100ms", 1, 10 * kMinute},
    {"wall_limit", Type::Duration, "5s", 1, kHour},
    // One wasm page to all that 32 bits reach.
    {"memory_max", Type::Size, "16MiB", 64 * kKiB, 4 * kGiB},
    {"state_max", Type::Size, "48KiB", kKiB, static_cast<std::int64_t>(kStateBytesMax)},
    // A guest runs one event at a time.
    {"concurrency", Type::Count, "1", 1, 1},
    {"persistence", Type::Word, "durable", 0, 0, "durable"},
    {"mailbox", Type::Word, "durable", 0, 0, "durable|buffered|volatile"},
    // Up to the least of it a body lies in the record.
    {"body_max", Type::Size, "48KiB", kPayload, kLargeBody},
    {"evict_after", Type::Duration, "10m", kSecond, 30 * kDay},
};

constexpr FixedTable kFixed[] = {{"node", kNode},
                                 {"limits", kLimits},
                                 {"restart", kRestart},
                                 {"jail", kJail},
                                 {"log", kLog},
                                 {"swap", kSwap}};

constexpr Rule kUse = {"use", Type::Label};
constexpr Rule kBinary = {"binary", Type::Path};
constexpr Rule kPolicy = {"policy", Type::Label};

// Of one instance. 16 MiB is what a process needs to start and attach its link.
constexpr Rule memory_max(std::string_view standard) {
    return {"memory_max", Type::Size, standard, 16 * kMiB, 16 * kTiB};
}
// Processes and threads, the jail's own included; a few threads each, and room for a plugin of one's own.
constexpr Rule kPidsMax = {"pids_max", Type::Count, "64", 8, 32768};

// 10 000 connections of up to 64 KiB and 256 MiB of WebSockets.
constexpr Rule kGatewaySlot[] = {
    kUse,
    kBinary,
    {"listen", Type::Listen, "127.0.0.1:8080", 0, 0, "", "HOLDFAST_LISTEN"},
    memory_max("2GiB"),
    kPidsMax};
// What of the store's file lies in memory counts, and is given back when it is needed.
constexpr Rule kStorageSlot[] = {kUse, kBinary, memory_max("4GiB"), kPidsMax};
// 20 000 actors of 25 KiB are half a GiB; the rest is what they write into their own memory.
constexpr Rule kRuntimeSlot[] = {
    kUse, kBinary, {"instances", Type::Count, "1", 1, 64}, memory_max("4GiB"), kPidsMax};
constexpr Rule kPlacementSlot[] = {
    kUse, kBinary, kPolicy, {"required", Type::Switch, "false"}, memory_max("256MiB"), kPidsMax};
constexpr Rule kDrainSlot[] = {kUse, kBinary, kPolicy, memory_max("256MiB"), kPidsMax};

// The plugin judges again with the same ranges; its settings file says where the numbers come from.
constexpr Rule kGatewayHttp[] = {
    {"header_bytes_max", Type::Size, "12KiB", 256, kHeaders},
    {"header_count_max", Type::Count, "100", 1, 1000},
    {"body_bytes_max", Type::Size, "48KiB", 0, kLargeBody},
    {"target_bytes_max", Type::Size, "8KiB", 64, 8 * kKiB},
    {"connections_max", Type::Count, "10000", 1, 1'000'000},
    {"requests_open_max", Type::Count, "1024", 1, 65536},
    {"body_rate_min", Type::Size, "1KiB", 0, kMiB},
    {"header_timeout", Type::Duration, "10s", 10, kDay},
    {"body_timeout", Type::Duration, "30s", 10, kDay},
    {"idle_timeout", Type::Duration, "75s", 10, kDay},
    {"request_timeout", Type::Duration, "30s", 10, kEventWaitMsMax},
    {"write_timeout", Type::Duration, "30s", 10, kDay},
    {"connections_per_client_max", Type::Count, "0", 0, 1'000'000},
    {"sockets_max", Type::Count, "10000", 0, 1'000'000},
    {"message_bytes_max", Type::Size, "48KiB", 1, kPayload},
    {"socket_buffer_max", Type::Size, "1MiB", 64 * kKiB, kGiB},
    {"sockets_memory_max", Type::Size, "256MiB", kMiB, 64 * kGiB},
    {"ping_interval", Type::Duration, "30s", 10, kDay},
    {"pong_timeout", Type::Duration, "20s", 10, kDay},
    {"close_timeout", Type::Duration, "5s", 10, kDay},
    {"bodies_memory_max", Type::Size, "512MiB", kMiB, 64 * kGiB},
    // Opened by the daemon, which may read what an instance's user may not.
    {"tls_certificate", Type::Path},
    {"tls_key", Type::Path},
    // What nodes of one store say to each other. The secret is opened by the daemon as well.
    {"peer_secret_file", Type::Path},
    {"cluster_listen", Type::Listen},
    {"peer_connections", Type::Count, "16", 1, 1024},
    {"peer_connect_timeout", Type::Duration, "1s", 10, kMinute},
};
constexpr Rule kStorageLocal[] = {
    {"path", Type::Path},
    {"map_bytes", Type::Size, "16GiB", 4 * kMiB, 16 * kTiB},
};
// The plugin judges names again, and what goes together. Every wait ends before the supervisor calls a store stalled (20 s).
constexpr Rule kStorageS3[] = {
    {"endpoint", Type::Text, {}, 0, 0, "", "", "AWS_ENDPOINT_URL_S3"},
    {"region", Type::Text, "us-east-1", 0, 0, "", "", "AWS_REGION"},
    {"bucket", Type::Text},
    {"prefix", Type::Text},
    {"addressing", Type::Word, "auto", 0, 0, "auto|path|virtual"},
    {"etag_form", Type::Word, "auto", 0, 0, "auto|quoted|bare"},
    {"probe", Type::Word, "strict", 0, 0, "strict|skip"},
    // Opened by the daemon, which may read what an instance's user may not.
    {"credentials_file", Type::Path, {}, 0, 0, "", "", "AWS_SHARED_CREDENTIALS_FILE"},
    {"profile", Type::Label, "default", 0, 0, "", "", "AWS_PROFILE"},
    {"ca_file", Type::Path, "/etc/ssl/certs/ca-certificates.crt"},
    {"connect_timeout", Type::Duration, "2s", 10, 10 * kSecond},
    {"attempt_timeout", Type::Duration, "5s", 100, 15 * kSecond},
    {"operation_timeout", Type::Duration, "10s", 100, 15 * kSecond},
    {"connections_max", Type::Count, "32", 1, 256},
    {"requests_open_max", Type::Count, "1024", 1, 4096},
    {"attempts_max", Type::Count, "12", 2, 100},
};
// 2 to 3 mappings a unit and 2 a waiting event, 65 530 a process.
constexpr Rule kRuntimeWasm[] = {{"resident_units_max", Type::Count, "20000", 1, 20000},
                                 {"parked_events_max", Type::Count, "256", 1, 4096},
                                 {"slice_us", Type::Count, "250", 0, 100'000}};

// The policies judge again with the same ranges.
constexpr Rule kPinned[] = {{"instance", Type::Count, {}, 0, UINT32_MAX}, {"node", Type::Label}};
// 1024: the most residents one window can carry in a record.
constexpr Rule kPaced[] = {{"in_flight_max", Type::Count, {}, 1, 1024}};
constexpr ShippedPolicy kPlacementPolicies[] = {
    {"rendezvous", {}}, {"two-choices", {}}, {"least-loaded", {}}, {"pinned", kPinned}};
constexpr ShippedPolicy kDrainPolicies[] = {{"paced", kPaced}};

constexpr Shipped kShipped[] = {
    {"gateway-http", Slot::Gateway, kGatewayHttp, {}},
    {"storage-local", Slot::Storage, kStorageLocal, {}},
    {"storage-s3", Slot::Storage, kStorageS3, {}},
    {"runtime-wasm", Slot::Runtime, kRuntimeWasm, {}},
    {"scheduler", Slot::Placement, {}, kPlacementPolicies},
    {"scheduler", Slot::Drain, {}, kDrainPolicies},
};

}  // namespace

std::span<const Rule> node_rules() {
    return kNode;
}
std::span<const Rule> limits_rules() {
    return kLimits;
}
std::span<const Rule> restart_rules() {
    return kRestart;
}
std::span<const Rule> jail_rules() {
    return kJail;
}
std::span<const Rule> log_rules() {
    return kLog;
}
std::span<const Rule> swap_rules() {
    return kSwap;
}
std::span<const Rule> class_rules() {
    return kClass;
}
std::span<const FixedTable> fixed_tables() {
    return kFixed;
}

std::span<const Rule> slot_rules(Slot slot) {
    switch (slot) {
        case Slot::Gateway:
            return kGatewaySlot;
        case Slot::Storage:
            return kStorageSlot;
        case Slot::Runtime:
            return kRuntimeSlot;
        case Slot::Placement:
            return kPlacementSlot;
        case Slot::Drain:
            return kDrainSlot;
    }
    return {};
}

std::span<const Shipped> shipped_plugins() {
    return kShipped;
}

const Shipped* find_shipped(Slot slot, std::string_view name) {
    for (const Shipped& one : kShipped)
        if (one.slot == slot && one.name == name) return &one;
    return nullptr;
}

std::vector<std::string> Shipped::policy_names() const {
    std::vector<std::string> out;
    for (const ShippedPolicy& one : policies) out.emplace_back(one.name);
    return out;
}

std::span<const Rule> Shipped::settings_of(std::string_view policy) const {
    for (const ShippedPolicy& one : policies)
        if (one.name == policy) return one.settings;
    return {};
}

std::vector<std::string> shipped_names(Slot slot) {
    std::vector<std::string> out;
    for (const Shipped& one : kShipped)
        if (one.slot == slot) out.emplace_back(one.name);
    return out;
}

std::vector<std::string> split_words(std::string_view words) {
    std::vector<std::string> out;
    while (!words.empty()) {
        const std::size_t bar = words.find('|');
        out.emplace_back(words.substr(0, bar));
        words = bar == std::string_view::npos ? std::string_view() : words.substr(bar + 1);
    }
    return out;
}

}  // namespace hf::config
