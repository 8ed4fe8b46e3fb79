#include "abi/ring/ring.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "abi/base/check.hpp"
#include "abi/layout/atomics.hpp"

namespace hf::ring {

namespace {

using layout::RecordHeader;

// A cache line; flatbuffers need 8, and a line start keeps small records in one line.
constexpr std::align_val_t kCopyAlign{64};

std::uint32_t current_cpu() {
    const int cpu = ::sched_getcpu();
    return cpu < 0 ? ~0U : static_cast<std::uint32_t>(cpu);
}

}  // namespace

const char* text_of(Fault fault) {
    switch (fault) {
        case Fault::None:
            return "none";
        case Fault::TailMovedBack:
            return "tail moved back";
        case Fault::TailBeyondCapacity:
            return "tail beyond capacity";
        case Fault::TailNotAligned:
            return "tail not aligned";
        case Fault::HeadMovedBack:
            return "head moved back";
        case Fault::HeadBeyondTail:
            return "head beyond tail";
        case Fault::HeadNotAligned:
            return "head not aligned";
        case Fault::LengthBeyondTail:
            return "record length beyond the published bytes";
        case Fault::LengthBeyondRing:
            return "record length beyond the ring's end";
        case Fault::LengthBeyondLimit:
            return "record length beyond the record limit";
        case Fault::PaddingAtStart:
            return "padding at the ring's start";
        case Fault::FlagsNotZero:
            return "record flags not zero";
    }
    return "unknown";
}

Producer::Producer(std::span<std::uint8_t> data,
                   layout::SegmentHeader& own,
                   const layout::SegmentHeader& peer,
                   std::uint32_t record_max)
    : data_(data), own_(own), peer_(peer), record_max_(record_max) {
    layout::store_relaxed(own_.producer.cpu, current_cpu());
}

void Producer::look_at_head() {
    // Pairs with publish_head() of the reader: bytes before head are read and may be overwritten.
    const std::uint64_t head = layout::load_acquire(peer_.consumer.head);
    if (head < head_) {
        fault_ = Fault::HeadMovedBack;
    } else if (head > published_) {
        fault_ = Fault::HeadBeyondTail;
    } else if (head % layout::kRecordAlign != 0) {
        fault_ = Fault::HeadNotAligned;
    } else {
        head_ = head;
    }
}

bool Producer::write(const RecordHeader& header, BytesView payload, std::uint64_t fill_max) {
    const std::uint64_t need = layout::record_bytes(payload.size());
    HF_CHECK(sizeof(RecordHeader) + payload.size() <= record_max_,
             "a record larger than the link allows");
    const std::uint64_t offset = tail_ & (data_.size() - 1);
    const std::uint64_t to_end = data_.size() - offset;
    const std::uint64_t padding = need > to_end ? to_end : 0;
    fill_max = std::min<std::uint64_t>(fill_max, data_.size());
    if (tail_ + padding + need - head_ > fill_max) {
        look_at_head();
        if (fault_ != Fault::None || tail_ + padding + need - head_ > fill_max) return false;
    }
    std::uint8_t* at = data_.data() + offset;
    if (padding != 0) {
        const RecordHeader filler{layout::kPadding, 0, 0, 0};
        std::memcpy(at, &filler, sizeof(filler));
        at = data_.data();
    }
    std::memcpy(at, &header, sizeof(header));
    if (!payload.empty()) std::memcpy(at + sizeof(header), payload.data(), payload.size());
    tail_ += padding + need;
    return true;
}

bool Producer::fits(std::size_t payload_bytes, std::uint64_t fill_max) {
    const std::uint64_t need = layout::record_bytes(payload_bytes);
    const std::uint64_t to_end = data_.size() - (tail_ & (data_.size() - 1));
    const std::uint64_t taken = tail_ + (need > to_end ? to_end : 0) + need;
    fill_max = std::min<std::uint64_t>(fill_max, data_.size());
    if (taken - head_ > fill_max) look_at_head();
    return fault_ == Fault::None && taken - head_ <= fill_max;
}

bool Producer::publish() {
    if (tail_ == published_) return false;
    published_ = tail_;
    layout::store_relaxed(own_.producer.cpu, current_cpu());
    // Publishes the records' bytes (pairs with look_at_tail of the reader) and orders the look at the peer's sleep
    // ticket after it (pairs with the sleeper's exchange of that ticket).
    layout::exchange_full(own_.producer.tail, tail_);
    return true;
}

std::uint64_t Producer::used() {
    look_at_head();
    return tail_ - head_;
}

bool Producer::head_moved() const {
    return layout::load_full(peer_.consumer.head) != head_;
}

void Consumer::FreeAligned::operator()(std::uint8_t* bytes) const {
    ::operator delete[](bytes, kCopyAlign);
}

Consumer::Consumer(std::span<const std::uint8_t> data,
                   layout::SegmentHeader& own,
                   const layout::SegmentHeader& peer,
                   std::uint32_t record_max)
    : data_(data),
      own_(own),
      peer_(peer),
      record_max_(record_max),
      copy_(static_cast<std::uint8_t*>(::operator new[](record_max, kCopyAlign))) {}

bool Consumer::look_at_tail() {
    // Pairs with publish() of the writer: the bytes before tail are stored.
    const std::uint64_t tail = layout::load_acquire(peer_.producer.tail);
    if (tail < tail_) {
        fault_ = Fault::TailMovedBack;
    } else if (tail - head_ > data_.size()) {
        fault_ = Fault::TailBeyondCapacity;
    } else if (tail % layout::kRecordAlign != 0) {
        fault_ = Fault::TailNotAligned;
    } else {
        tail_ = tail;
    }
    return fault_ == Fault::None;
}

Consumer::Next Consumer::next(RecordHeader& header, BytesView& payload) {
    if (fault_ != Fault::None) return Next::Faulty;
    if (head_ == tail_) {
        if (!look_at_tail()) return Next::Faulty;
        if (head_ == tail_) return Next::Empty;
    }
    std::uint64_t offset = head_ & (data_.size() - 1);
    std::memcpy(&header, data_.data() + offset, sizeof(header));
    if (header.length == layout::kPadding) {
        // Padding runs to the ring's end, so the next record is at offset 0: at most one in each lap.
        const std::uint64_t padding = data_.size() - offset;
        if (offset == 0) return fail(Fault::PaddingAtStart);
        if (padding > tail_ - head_) return fail(Fault::LengthBeyondTail);
        head_ += padding;
        // A writer publishes padding only together with the record behind it.
        if (head_ == tail_) return fail(Fault::LengthBeyondTail);
        offset = 0;
        std::memcpy(&header, data_.data(), sizeof(header));
        if (header.length == layout::kPadding) return fail(Fault::PaddingAtStart);
    }
    // The header is in a local: the peer may change the ring from here on and only its own message suffers.
    const std::uint64_t length = header.length;
    const std::uint64_t total = layout::record_bytes(length);
    if (sizeof(RecordHeader) + length > record_max_) return fail(Fault::LengthBeyondLimit);
    if (total > data_.size() - offset) return fail(Fault::LengthBeyondRing);
    if (total > tail_ - head_) return fail(Fault::LengthBeyondTail);
    if (header.flags != 0) return fail(Fault::FlagsNotZero);
    std::memcpy(copy_.get(), data_.data() + offset + sizeof(RecordHeader), length);
    head_ += total;
    payload = {copy_.get(), static_cast<std::size_t>(length)};
    return Next::Record;
}

bool Consumer::visible() const {
    return head_ != tail_ || fault_ != Fault::None ||
           layout::load_acquire(peer_.producer.tail) != tail_;
}

bool Consumer::visible_full() const {
    return head_ != tail_ || fault_ != Fault::None ||
           layout::load_full(peer_.producer.tail) != tail_;
}

bool Consumer::publish_head() {
    if (head_ == published_) return false;
    published_ = head_;
    // Release: the copies are made before the writer may overwrite. Full: the look at the writer's `starved` comes after.
    layout::exchange_full(own_.consumer.head, head_);
    return true;
}

std::uint32_t Consumer::peer_cpu() const {
    return layout::load_relaxed(peer_.producer.cpu);
}

std::uint64_t Consumer::used() {
    if (fault_ == Fault::None) (void)look_at_tail();
    return tail_ - head_;
}

}  // namespace hf::ring
