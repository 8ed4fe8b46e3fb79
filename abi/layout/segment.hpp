// The shared bytes of a link. A link has two segments: S, which only the supervisor writes, and P, which only the plugin
// writes. Each is a header page and one ring of records towards the other side.
//
// One writer per segment, therefore per cache line and per page table: no lock, no read-modify-write between sides, and
// nothing to repair when a side dies at any instruction. A record exists when `tail` has passed it and not before.
//
// Every word a side reads from the other's segment is an allegation: it is loaded once into a local, range-checked there,
// and the local is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "abi/base/limits.hpp"

namespace hf::layout {

// "HFSEGM01" read as a little-endian number; a segment of another product or layout fails on the first word.
inline constexpr std::uint64_t kSegmentMagic = 0x31304D4745534648ULL;
// Changes when any offset, size or meaning below does. Both sides come from one release: no range is negotiated.
inline constexpr std::uint16_t kLayoutVersion = 1;
// The lines below, rounded up to one page so that the ring starts on its own.
inline constexpr std::size_t kHeaderBytes = 4096;
// Two lines of 64 bytes: the adjacent-line prefetcher pulls pairs, and two writers must not share a pair.
inline constexpr std::size_t kLineBytes = 128;

// Smallest and largest ring. A record takes at most an eighth of its ring (64 KiB of 512 KiB), so that padding at the end
// of a lap never costs more than that; 64 MiB is what a link may take of the node's memory at the very most.
inline constexpr std::uint32_t kRingBytesMin = 512U * 1024U;
inline constexpr std::uint32_t kRingBytesMax = 64U * 1024U * 1024U;

// Facts of the link. The supervisor writes them into both segments before the plugin sees either; copied once at attach
// and never read again, so a later change by the peer changes nothing.
struct alignas(kLineBytes) ConstLine {
    std::uint64_t magic;
    std::uint16_t layout_version;
    std::uint16_t header_bytes;
    std::uint32_t ring_bytes;  // a power of two
    std::uint64_t link_id;     // unique in this run of the supervisor
    std::uint64_t generation;  // of the instance
    std::uint32_t record_max;  // bytes of a record, its header included
    // Bytes of this ring that all else the writer sends must leave free for answers to the *reader's* requests.
    std::uint32_t answer_bytes;
    std::uint32_t
        spin_ns;  // cost of waking a sleeper on this machine, measured by the supervisor; 0: do not spin
    // Bytes that the reader may reserve for answers to its own requests, answer_bytes at least: the writer keeps in its
    // own memory what the ring has no room for, which is why an answer always fits. A plugin keeps none: the same.
    std::uint32_t answer_credit;
};

// Writer: the owner, once per batch. If it dies before the store of tail, the batch never existed; after it, every record
// up to tail is whole, because their bytes were stored before (release).
struct alignas(kLineBytes) ProducerLine {
    std::uint64_t
        tail;  // bytes published since the start; never wraps, always a multiple of kRecordAlign
    std::uint32_t
        cpu;  // where the owner last ran: the other side does not spin for a peer on its own CPU
};

// Writer: the owner, once per batch read. Its own position in the *other* segment's ring. If it dies before the store,
// the space counts as unread for ever, and the generation's segments go with it.
struct alignas(kLineBytes) ConsumerLine {
    std::uint64_t head;
};

// Writer: the owner, before and after it blocks. Read only by the side that is about to ring. If the owner dies asleep,
// the other side rings a bell nobody hears, once; its death is seen by pidfd.
struct alignas(kLineBytes) SleepLine {
    std::uint32_t
        ticket;  // odd: asleep. Each sleep is another odd number, so a ringer rings each sleep once
    std::uint32_t starved;  // 1: the owner has records to send and no room; ring when head moves
};

// Writer: the plugin (P); zero and unused in S. Reports for operators and the stall detector: no decision that protects
// the supervisor rests on them. A death between `current` and the work it names blames at worst the wrong request once.
struct alignas(kLineBytes) ReportLine {
    std::uint64_t current;   // req_id being worked on, 0: idle
    std::uint64_t progress;  // bumped with each batch and each change of current: the heartbeat
    std::uint32_t
        forbidden_syscall;  // number + 1 of the call that the second filter stopped, 0: none
};

struct SegmentHeader {
    ConstLine facts;
    ProducerLine producer;
    ConsumerLine consumer;
    SleepLine sleep;
    ReportLine report;
};

static_assert(offsetof(SegmentHeader, facts) == 0x000);
static_assert(offsetof(SegmentHeader, producer) == 0x080);
static_assert(offsetof(SegmentHeader, consumer) == 0x100);
static_assert(offsetof(SegmentHeader, sleep) == 0x180);
static_assert(offsetof(SegmentHeader, report) == 0x200);
static_assert(offsetof(ConstLine, ring_bytes) == 12 && offsetof(ConstLine, link_id) == 16 &&
              offsetof(ConstLine, generation) == 24 && offsetof(ConstLine, record_max) == 32 &&
              offsetof(ConstLine, answer_bytes) == 36 && offsetof(ConstLine, spin_ns) == 40);
static_assert(sizeof(SegmentHeader) == 5 * kLineBytes && sizeof(SegmentHeader) <= kHeaderBytes);
static_assert(std::is_trivially_copyable_v<SegmentHeader> &&
              std::is_standard_layout_v<SegmentHeader>);

// Every record: this header, then `length` bytes of one flatbuffer, then padding to the next multiple of kRecordAlign.
inline constexpr std::size_t kRecordAlign = 16;
// `length` of a record that only fills the ring up to its end; it has no bytes and the next record is at offset 0.
inline constexpr std::uint32_t kPadding = 0xFFFFFFFFU;

struct RecordHeader {
    std::uint32_t length;  // bytes after this header
    std::uint16_t type;    // number in the union Body
    std::uint16_t flags;   // none defined: zero
    std::uint64_t req_id;  // the sender's number of a request, 0 for everything else
};
static_assert(sizeof(RecordHeader) == kRecordAlign && std::is_trivially_copyable_v<RecordHeader>);
static_assert(offsetof(RecordHeader, type) == 4 && offsetof(RecordHeader, flags) == 6 &&
              offsetof(RecordHeader, req_id) == 8);

// What a record of `length` bytes takes in the ring.
[[nodiscard]] constexpr std::uint64_t record_bytes(std::uint64_t length) {
    return sizeof(RecordHeader) + ((length + kRecordAlign - 1) & ~std::uint64_t{kRecordAlign - 1});
}
// What an answer of at most `reply_max` bytes reserves.
[[nodiscard]] constexpr std::uint32_t reserve_bytes(std::uint32_t reply_max) {
    return (reply_max + (kRecordAlign - 1)) & ~std::uint32_t{kRecordAlign - 1};
}
[[nodiscard]] constexpr bool ring_size_allowed(std::uint32_t bytes) {
    return bytes >= kRingBytesMin && bytes <= kRingBytesMax && (bytes & (bytes - 1)) == 0;
}
[[nodiscard]] constexpr std::size_t segment_bytes(std::uint32_t ring_bytes) {
    return kHeaderBytes + ring_bytes;
}

}  // namespace hf::layout
