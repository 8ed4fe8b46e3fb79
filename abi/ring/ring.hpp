// One ring of records between one writer and one reader, over memory that only the writer can write. The reader's
// position lives in the reader's own segment. Both classes keep private copies of every index, read the peer's words once
// and range-check them; a broken rule leaves the ring faulty for good and is reported, never asserted.
//
// If the writer dies, records up to its last published tail are whole and can still be read. If the reader dies, the
// writer finds no more room, and nothing else happens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "abi/base/bytes.hpp"
#include "abi/layout/segment.hpp"

namespace hf::ring {

// What a peer did to the ring that no correct peer does. The text is for metrics and reports.
enum class Fault : std::uint8_t {
    None,
    TailMovedBack,
    TailBeyondCapacity,
    TailNotAligned,
    HeadMovedBack,
    HeadBeyondTail,
    HeadNotAligned,
    LengthBeyondTail,
    LengthBeyondRing,
    LengthBeyondLimit,
    PaddingAtStart,
    FlagsNotZero,
};
[[nodiscard]] const char* text_of(Fault fault);

// The writing end. Records become visible together at publish().
class Producer {
public:
    // `data` is the ring in this side's own segment (a power of two), `own` that segment's header, `peer` the other's.
    Producer(std::span<std::uint8_t> data,
             layout::SegmentHeader& own,
             const layout::SegmentHeader& peer,
             std::uint32_t record_max);

    // Appends a record unless the ring would then hold more than `fill_max` bytes. The payload must fit record_max.
    // False: no room (or the peer's head is faulty, see fault()); nothing was written.
    [[nodiscard]] bool write(const layout::RecordHeader& header,
                             BytesView payload,
                             std::uint64_t fill_max);
    // Whether write() would find room for a payload of this size now.
    [[nodiscard]] bool fits(std::size_t payload_bytes, std::uint64_t fill_max);
    // Makes everything written visible, with a full fence. False: there was nothing new.
    bool publish();
    [[nodiscard]] bool unpublished() const { return tail_ != published_; }
    // Bytes between the reader and this writer, after a fresh look at the reader's head.
    [[nodiscard]] std::uint64_t used();
    // True when the reader's head moved since the last look. Pairs with the reader's full fence in publish_head().
    [[nodiscard]] bool head_moved() const;
    [[nodiscard]] Fault fault() const { return fault_; }

private:
    void look_at_head();

    std::span<std::uint8_t> data_;
    layout::SegmentHeader& own_;
    const layout::SegmentHeader& peer_;
    std::uint32_t record_max_;
    std::uint64_t tail_ = 0;       // written, perhaps not yet visible
    std::uint64_t published_ = 0;  // what own_.producer.tail says
    std::uint64_t head_ = 0;       // the last believable head of the reader
    Fault fault_ = Fault::None;
};

// The reading end. Every record is copied to a private buffer before anybody looks at it.
class Consumer {
public:
    // `data` is the ring in the peer's segment, `own` this side's header (for head), `peer` the peer's (for tail).
    Consumer(std::span<const std::uint8_t> data,
             layout::SegmentHeader& own,
             const layout::SegmentHeader& peer,
             std::uint32_t record_max);

    enum class Next : std::uint8_t { Record, Empty, Faulty };
    // Takes the next record; `payload` stays good until the next call and is aligned to 64 bytes.
    [[nodiscard]] Next next(layout::RecordHeader& header, BytesView& payload);
    // True when records are visible that next() has not returned (or a fault waits to be found). One load.
    [[nodiscard]] bool visible() const;
    // The same with a full fence's strength, for the last look before sleep.
    [[nodiscard]] bool visible_full() const;
    // Gives the space of everything read back to the writer, with a full fence. False: nothing was read since.
    bool publish_head();
    [[nodiscard]] std::uint32_t peer_cpu() const;
    // Bytes that wait to be read, as far as this side has looked.
    [[nodiscard]] std::uint64_t used();
    [[nodiscard]] Fault fault() const { return fault_; }

private:
    bool look_at_tail();
    Next fail(Fault fault) {
        fault_ = fault;
        return Next::Faulty;
    }

    std::span<const std::uint8_t> data_;
    layout::SegmentHeader& own_;
    const layout::SegmentHeader& peer_;
    std::uint32_t record_max_;
    std::uint64_t head_ = 0;       // everything before is copied out
    std::uint64_t published_ = 0;  // what own_.consumer.head says
    std::uint64_t tail_ = 0;       // the last believable tail of the writer
    Fault fault_ = Fault::None;
    struct FreeAligned {
        void operator()(std::uint8_t* bytes) const;
    };
    std::unique_ptr<std::uint8_t[], FreeAligned> copy_;
};

}  // namespace hf::ring
