// The records that holds, logs and nodes leave in the bucket (protocol 2), as plain structs.
// Encodings live in agent/records; the core calls them through Codec so that it links no library.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/result.hpp"

namespace hf::core {

// Names one attempt to write one version of one object; (0, 0) names none.
struct WriteId {
    std::uint64_t hi = 0;
    std::uint64_t lo = 0;
    friend bool operator==(const WriteId&, const WriteId&) = default;
    [[nodiscard]] bool none() const { return hi == 0 && lo == 0; }
};

enum class HoldState { Free, Held };

struct Snapshot {
    std::string reference;
    std::uint64_t generation = 0;
    std::string state;
};

// apps/<app>/holds/<unit>, JSON. Only ever changed by conditional writes; never deleted (R1).
struct HoldRecord {
    std::uint32_t version = 1;
    std::uint64_t epoch = 0;
    HoldState state = HoldState::Free;
    std::string owner;              // node id
    std::uint64_t incarnation = 0;  // of the owner
    std::uint64_t term = 0;
    std::string nonce;  // 32 hex digits, the write_id of the last change
    std::map<std::string, std::uint64_t> applied;
    std::optional<Snapshot> snapshot;
    std::string unknown;  // a JSON object of fields this version does not know; survives a rewrite
};

enum class EntryKind : std::uint8_t { Changes = 0, Base = 1, Seal = 2 };

struct EntryAlarm {
    std::int64_t due_ms = 0;
    std::uint64_t nonce = 0;
};

struct OutboxItem {
    std::uint64_t n = 0;
    std::string target;
    std::string method;
    Bytes payload;
};

// apps/<app>/log/<unit>/<20-digit seq>, one flatbuffer (abi/schema/log.fbs), written if-absent.
struct LogEntry {
    std::uint16_t version = 1;
    std::string unit;  // escaped
    std::uint64_t epoch = 0;
    std::uint64_t seq = 0;
    WriteId write_id;
    EntryKind kind = EntryKind::Changes;
    std::uint64_t base_seq = 0;  // Base: everything up to and including this is covered
    std::vector<Bytes> changes;  // opaque ChangeSets in event order
    std::optional<EntryAlarm> alarm;
    bool alarm_cleared = false;
    std::vector<std::pair<std::string, std::uint64_t>> applied;
    std::vector<OutboxItem> outbox;
    std::vector<std::pair<std::string, std::uint64_t>> outbox_done;
    // Marks that nobody asks for any more: their sources have stored that these messages are done.
    std::vector<std::pair<std::string, std::uint64_t>> settled = {};
    std::uint64_t sealed_incarnation = 0;  // Seal: the incarnation it fences, 0 = none
    std::string sealed_node;               // and whose: incarnations count per node
};

// `store`, JSON.
struct StoreRecord {
    std::string id;                  // 32 hex digits, random
    std::string mode = "exclusive";  // or "shared"
    std::string unknown;
};

// nodes/<id>: text, header `wasmkeep-node 2` (protocol 2). Lines 1-6 and 9 as the ADR states them, from 10 on key=value.
struct NodeRecord {
    std::string id;
    std::string http_address;  // where clients and peers reach it
    std::string tenant;
    std::string app;
    std::string state = "serving";  // line 9: serving, draining, drained, stuck
    std::uint64_t incarnation = 0;
    std::string instance;  // random id of the data directory
    std::string machine;
    std::string boot;
    std::uint64_t lease_seq = 0;
    std::uint64_t ttl_ms = 0;  // 0: lease = none
    std::string store_id;
    std::vector<std::string> capabilities;
    std::optional<std::uint64_t> dead;  // by the peer that fenced it
    std::uint64_t reaped = 0;
    std::string unknown;  // lines this version does not know, verbatim
    std::map<int, std::string>
        other_lines;  // lines 3, 4, 7 and 8 as another writer left them; survive a rewrite

    static constexpr int kClusterLine = 7;  // where peers reach it, when that is not where clients do
    [[nodiscard]] const std::string& peer_address() const {
        const auto cluster = other_lines.find(kClusterLine);
        const bool own = cluster != other_lines.end() && !cluster->second.empty();
        return own ? cluster->second : http_address;
    }
};

// Pure functions between structs and bytes. The same struct always gives the same bytes.
class Codec {
public:
    virtual ~Codec() = default;
    [[nodiscard]] virtual Bytes encode(const HoldRecord& record) const = 0;
    [[nodiscard]] virtual Bytes encode(const LogEntry& entry) const = 0;
    [[nodiscard]] virtual Bytes encode(const StoreRecord& record) const = 0;
    [[nodiscard]] virtual Bytes encode(const NodeRecord& record) const = 0;
    [[nodiscard]] virtual Result<HoldRecord> decode_hold(BytesView bytes) const = 0;
    [[nodiscard]] virtual Result<LogEntry> decode_entry(BytesView bytes) const = 0;
    [[nodiscard]] virtual Result<StoreRecord> decode_store(BytesView bytes) const = 0;
    [[nodiscard]] virtual Result<NodeRecord> decode_node(BytesView bytes) const = 0;
};

}  // namespace hf::core
