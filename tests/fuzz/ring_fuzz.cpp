// Both ends of a ring against a peer that writes anything into its own segment, at any moment between two calls: its
// indices, the records' headers and the bytes. The reader must stay within the ring and within a record's bound, and end in a
// fault that stays; the writer must never lay a record over one that an honest head has not freed.
#include <cstring>
#include <deque>
#include <memory>

#include "abi/layout/atomics.hpp"
#include "abi/ring/ring.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using hf::Bytes;
using hf::BytesView;
using hf::fuzz::Feed;
using hf::fuzz::must;
using hf::fuzz::Seed;
using hf::layout::RecordHeader;
using hf::ring::Consumer;
using hf::ring::Fault;
using hf::ring::Producer;

constexpr std::uint32_t kCapacity = 4096;
constexpr std::uint32_t kRecordMax = kCapacity / 8;

enum Op : std::uint8_t {
    kTail,
    kTailNear,
    kRingBytes,
    kForgeHeader,
    kRead,
    kFree,
    kHead,
    kHeadNear,
    kWrite,
    kPublish,
    kOps
};

// Memory of exactly the ring's size, so that a byte beyond is seen.
struct RingBytes {
    RingBytes() : at(static_cast<std::uint8_t*>(std::aligned_alloc(64, kCapacity))) {
        std::memset(at, 0, kCapacity);
    }
    ~RingBytes() { std::free(at); }
    RingBytes(const RingBytes&) = delete;
    RingBytes& operator=(const RingBytes&) = delete;
    [[nodiscard]] std::span<std::uint8_t> span() const { return {at, kCapacity}; }
    std::uint8_t* at;
};

// We read what the peer writes.
class Reading {
public:
    void op(std::uint8_t op, Feed& feed) {
        switch (op) {
            case kTail:
                tail(feed.u64());
                break;
            case kTailNear:
                tail(std::uint64_t{feed.u16()} * 16);
                break;
            case kRingBytes: {
                const std::size_t at = feed.u16() % kCapacity;
                const BytesView bytes =
                    feed.bytes(std::min<std::size_t>(feed.u8(), kCapacity - at));
                if (!bytes.empty()) std::memcpy(ring_.at + at, bytes.data(), bytes.size());
                break;
            }
            case kForgeHeader: {
                const std::size_t at = feed.u8() % (kCapacity / 16) * 16;
                const RecordHeader header{feed.u32(), feed.u16(), feed.u8(), feed.u8()};
                std::memcpy(ring_.at + at, &header, sizeof header);
                break;
            }
            case kRead:
                read(feed.u8());
                break;
            default:
                (void)in_.visible();
                (void)in_.visible_full();
                (void)in_.publish_head();
                if (in_.fault() == Fault::None) (void)in_.used();
                must(reader_.consumer.head % hf::layout::kRecordAlign == 0);
                break;
        }
    }

private:
    void tail(std::uint64_t value) {
        hf::layout::exchange_full(writer_.producer.tail, value);
        since_tail_ = 0;
    }
    void read(unsigned count) {
        RecordHeader header{};
        BytesView payload;
        for (unsigned i = 0; i < count; ++i) {
            const bool was_faulty = in_.fault() != Fault::None;
            const Consumer::Next next = in_.next(header, payload);
            must(!was_faulty || next == Consumer::Next::Faulty);
            must((next == Consumer::Next::Faulty) == (in_.fault() != Fault::None));
            if (next != Consumer::Next::Record) return;
            must(payload.size() == header.length && header.flags == 0);
            must(payload.size() + sizeof header <= kRecordMax);
            // SAFETY: an address as a number, to look at its lowest bits.
            must(reinterpret_cast<std::uintptr_t>(payload.data()) % 64 == 0);
            unsigned sum = 0;
            for (const std::uint8_t byte : payload) sum += byte;
            sum_ = sum;
            // Without a new tail there is at most one lap to read.
            must(++since_tail_ <= 2 * kCapacity / hf::layout::kRecordAlign);
        }
    }

    hf::layout::SegmentHeader writer_{};
    hf::layout::SegmentHeader reader_{};
    RingBytes ring_;
    Consumer in_{ring_.span(), reader_, writer_, kRecordMax};
    std::size_t since_tail_ = 0;
    volatile unsigned sum_ = 0;
};

// We write, the peer says how far it has read.
class Writing {
public:
    void op(std::uint8_t op, Feed& feed) {
        switch (op) {
            case kHead:
                hf::layout::exchange_full(reader_.consumer.head, feed.u64());
                break;
            case kHeadNear:
                hf::layout::exchange_full(reader_.consumer.head, std::uint64_t{feed.u16()} * 16);
                break;
            case kWrite:
                write(feed.u16() % (kRecordMax - sizeof(RecordHeader) + 1), feed.u16());
                break;
            default:
                (void)out_.publish();
                (void)out_.head_moved();
                (void)out_.used();
                break;
        }
        look();
    }

private:
    struct Written {
        std::uint64_t begin;  // of its header, counted from the start
        std::uint32_t id;
        std::uint32_t size;
    };

    void write(std::size_t size, std::uint64_t fill_max) {
        Bytes payload(size);
        ++id_;
        for (std::size_t i = 0; i < size; ++i) payload[i] = byte_of(id_, i);
        const RecordHeader header{static_cast<std::uint32_t>(size), 1, 0, id_};
        if (!out_.write(header, payload, fill_max)) return;
        const std::uint64_t need = hf::layout::record_bytes(size);
        const std::uint64_t to_end = kCapacity - tail_ % kCapacity;
        if (need > to_end) tail_ += to_end;
        records_.push_back({tail_, id_, static_cast<std::uint32_t>(size)});
        tail_ += need;
    }

    // What the peer may have freed at most, by its own words when they could be believed; all behind that must be whole.
    void look() {
        const std::uint64_t head = reader_.consumer.head;
        if (head > freed_ && head <= writer_.producer.tail && head % 16 == 0) freed_ = head;
        while (!records_.empty() && records_.front().begin < freed_) records_.pop_front();
        for (const Written& each : records_) {
            const std::size_t at = each.begin % kCapacity;
            RecordHeader header{};
            std::memcpy(&header, ring_.at + at, sizeof header);
            must(header.length == each.size && header.req_id == each.id);
            for (std::size_t i = 0; i < each.size; ++i)
                must(ring_.at[at + sizeof header + i] == byte_of(each.id, i));
        }
        must(tail_ - freed_ <= kCapacity);
        must(writer_.producer.tail <= tail_);
    }

    static std::uint8_t byte_of(std::uint32_t id, std::size_t at) {
        return static_cast<std::uint8_t>(id * 31 + at);
    }

    hf::layout::SegmentHeader writer_{};
    hf::layout::SegmentHeader reader_{};
    RingBytes ring_;
    Producer out_{ring_.span(), writer_, reader_, kRecordMax};
    std::deque<Written> records_;
    std::uint64_t tail_ = 0;
    std::uint64_t freed_ = 0;
    std::uint32_t id_ = 0;
};

std::vector<Bytes> seeds() {
    Seed honest;
    honest.u8(kForgeHeader).u8(0).u32(40).u16(3).u8(0).u8(1);
    honest.u8(kForgeHeader).u8(4).u32(hf::layout::kPadding).u16(0).u8(0).u8(0);
    honest.u8(kTailNear).u16(4).u8(kRead).u8(2).u8(kFree);
    Seed lap;
    for (int i = 0; i < 12; ++i) lap.u8(kWrite).u16(400).u16(0xffff);
    lap.u8(kPublish).u8(kHeadNear).u16(26).u8(kWrite).u16(400).u16(0xffff).u8(kPublish);
    Seed lies;
    lies.u8(kTail).u64(~std::uint64_t{0}).u8(kRead).u8(1);
    lies.u8(kHead).u64(~std::uint64_t{0}).u8(kWrite).u16(10).u16(20).u8(kPublish);
    Seed end;
    end.u8(kForgeHeader).u8(0).u32(kRecordMax - 16).u16(1).u8(0).u8(0).u8(kTailNear).u16(32);
    end.u8(kRead).u8(1).u8(kFree).u8(kTailNear).u16(256).u8(kRead).u8(9).u8(kFree);
    std::vector<Bytes> out{honest.bytes(), lap.bytes(), lies.bytes(), end.bytes()};
    // Read up to the ring's last two slots, where one record fits and the other would run over the end.
    for (const std::uint32_t last : {16U, 200U}) {
        Seed over;
        for (unsigned i = 0; i < 7; ++i)
            over.u8(kForgeHeader).u8(i * 32).u32(kRecordMax - 16).u16(1).u8(0).u8(0);
        over.u8(kForgeHeader).u8(224).u32(464).u16(1).u8(0).u8(0);
        over.u8(kForgeHeader).u8(254).u32(last).u16(1).u8(0).u8(0);
        over.u8(kTailNear).u16(254).u8(kRead).u8(8).u8(kFree).u8(kTailNear).u16(300).u8(kRead);
        out.push_back(over.u8(1).bytes());
    }
    return out;
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return seeds();
}

void hf::fuzz::take(BytesView input) {
    const auto reading = std::make_unique<Reading>();
    const auto writing = std::make_unique<Writing>();
    for (Feed feed(input); !feed.empty();) {
        const std::uint8_t op = feed.u8() % kOps;
        if (op <= kFree)
            reading->op(op, feed);
        else
            writing->op(op, feed);
    }
}
