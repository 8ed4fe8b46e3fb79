// Bounds that both sides of a link know by name. Each says where its number comes from.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hf {

// A record's hard limit, header and envelope included (design 2.6).
inline constexpr std::size_t kRecordBytesMax = 64 * 1024;
// Inline in a record: body, value, merged entry.
// 48 KiB leaves a quarter of the record to keys, headers and envelopes.
inline constexpr std::size_t kPayloadBytesMax = 48 * 1024;
// A body above that travels as a sealed memory file beside the ring: its most, wherever a configuration says how much of
// it is taken. A guest's memory ends at 4 GiB, and a quarter of it is more than one event should ever be.
inline constexpr std::uint64_t kLargeBodyBytesMax = 1024ULL * 1024 * 1024;
// An object of a store that travels in a record: a full payload, and around it the unit's name (400 bytes), 64 merged changes
// at up to 32 bytes each, and the entry's head; rounded up to a page. With key and envelope it still fits a record.
inline constexpr std::size_t kInlineObjectBytesMax = kPayloadBytesMax + 4 * 1024;
// A unit's whole state between two events. It is written whole by each compaction and read whole by each activation: at 4 MiB
// that takes some 20 ms of the processes on its way.
inline constexpr std::size_t kStateBytesMax = 4UL * 1024 * 1024;
// The largest object of a store, a unit's base: a state, 2 MiB for the marks of 4096 senders with the longest names, and as
// much for messages on their way. Above kInlineObjectBytesMax it travels as a large body does.
inline constexpr std::size_t kObjectBytesMax = kStateBytesMax + 4UL * 1024 * 1024;
// Response headers of an actor and request headers that reach it: what is left beside a full body.
inline constexpr std::size_t kHeaderBytesMax = 12 * 1024;
// An escaped unit; S3 keys end at 1024 bytes and a key carries prefix, sequence and nonce too (protocol 2).
inline constexpr std::size_t kUnitBytesMax = 400;
// How long an accepted event may wait for its answer: the longest request_timeout of a gateway, and what the supervisor
// takes when a gateway names no deadline or a later one.
inline constexpr std::int64_t kEventWaitMsMax = 24LL * 3600 * 1000;
// Verifier: our depth and table bounds, not flatbuffers' defaults (style, "Around shared memory").
inline constexpr unsigned kVerifyDepthMax = 8;
inline constexpr unsigned kVerifyTablesDefault = 64;
// Minors of the schema that this build speaks; Greet names the plugin's range, Welcome the one both use.
inline constexpr std::uint16_t kSchemaMinorMin = 0;
inline constexpr std::uint16_t kSchemaMinorMax = 0;
// Candidates inline in one Place (design 2, ABI table).
inline constexpr std::size_t kCandidatesMax = 64;

}  // namespace hf
