// The rings alone: what a hostile side may write into each word, and that honest records survive any sequence of sizes,
// wraps and batches. Both sides over plain memory in one process.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "abi/layout/atomics.hpp"
#include "abi/ring/ring.hpp"

using namespace hf;
using ring::Consumer;
using ring::Fault;
using ring::Producer;

namespace {

constexpr std::uint32_t kCapacity = 4096;
constexpr std::uint32_t kRecordMax = kCapacity / 8;
constexpr std::uint64_t kNoLimit = ~std::uint64_t{0};

// A writer's segment and the reader's header.
struct Pair {
    layout::SegmentHeader writer{};
    layout::SegmentHeader reader{};
    alignas(64) std::array<std::uint8_t, kCapacity> data{};
    Producer out{data, writer, reader, kRecordMax};
    Consumer in{data, reader, writer, kRecordMax};

    bool send(std::uint64_t id, std::size_t bytes, std::uint64_t fill_max = kNoLimit) {
        const Bytes payload(bytes, static_cast<std::uint8_t>(id));
        return out.write({static_cast<std::uint32_t>(bytes), 1, 0, id}, payload, fill_max);
    }
    void forge_header(std::uint64_t offset, const layout::RecordHeader& header) {
        std::memcpy(data.data() + offset, &header, sizeof(header));
    }
    void forge_tail(std::uint64_t tail) { layout::exchange_full(writer.producer.tail, tail); }
    Fault read_fault() {
        layout::RecordHeader header{};
        BytesView payload;
        for (;;) {
            const Consumer::Next next = in.next(header, payload);
            if (next == Consumer::Next::Faulty) return in.fault();
            if (next == Consumer::Next::Empty) return Fault::None;
        }
    }
};

struct Seen {
    std::uint64_t id;
    std::size_t bytes;
    bool intact;
};

std::vector<Seen> read_all(Consumer& in) {
    std::vector<Seen> out;
    layout::RecordHeader header{};
    BytesView payload;
    while (in.next(header, payload) == Consumer::Next::Record) {
        bool intact = true;
        for (const std::uint8_t byte : payload)
            intact = intact && byte == static_cast<std::uint8_t>(header.req_id);
        out.push_back({header.req_id, payload.size(), intact});
    }
    return out;
}

}  // namespace

TEST_CASE("writer_moves_tail_back") {
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(1, 32));
    pair->out.publish();
    CHECK(pair->read_fault() == Fault::None);
    pair->forge_tail(16);
    CHECK(pair->read_fault() == Fault::TailMovedBack);
    // Faulty for good, also when the word is put right again.
    pair->forge_tail(48);
    CHECK(pair->read_fault() == Fault::TailMovedBack);
}

TEST_CASE("writer_sets_tail_beyond_capacity") {
    for (const std::uint64_t tail :
         {std::uint64_t{kCapacity + 16}, ~std::uint64_t{15}, std::uint64_t{1} << 63U}) {
        auto pair = std::make_unique<Pair>();
        pair->forge_tail(tail);
        CHECK(pair->read_fault() == Fault::TailBeyondCapacity);
    }
}

TEST_CASE("writer_sets_tail_off_alignment") {
    for (std::uint64_t tail = 1; tail < 16; ++tail) {
        auto pair = std::make_unique<Pair>();
        pair->forge_tail(tail);
        CHECK(pair->read_fault() == Fault::TailNotAligned);
    }
}

TEST_CASE("record_claims_more_than_was_published") {
    auto pair = std::make_unique<Pair>();
    pair->forge_header(0, {100, 1, 0, 0});
    pair->forge_tail(32);
    CHECK(pair->read_fault() == Fault::LengthBeyondTail);
}

TEST_CASE("record_claims_more_than_the_limit") {
    for (const std::uint32_t length :
         {kRecordMax, kRecordMax + 1, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFEU, 0xFFFFFFF0U}) {
        auto pair = std::make_unique<Pair>();
        pair->forge_header(0, {length, 1, 0, 0});
        pair->forge_tail(kCapacity);
        CHECK(pair->read_fault() == Fault::LengthBeyondLimit);
    }
}

TEST_CASE("record_runs_over_the_ring_end") {
    auto pair = std::make_unique<Pair>();
    while (kCapacity - (pair->writer.producer.tail % kCapacity) > 64) {
        REQUIRE(pair->send(1, 32));
        pair->out.publish();
        CHECK(pair->read_fault() == Fault::None);
    }
    const std::uint64_t offset = pair->writer.producer.tail % kCapacity;
    pair->forge_header(offset, {200, 1, 0, 0});
    pair->forge_tail(pair->writer.producer.tail + 256);
    CHECK(pair->read_fault() == Fault::LengthBeyondRing);
}

TEST_CASE("padding_at_the_start_would_cost_a_whole_lap") {
    auto pair = std::make_unique<Pair>();
    pair->forge_header(0, {layout::kPadding, 0, 0, 0});
    pair->forge_tail(kCapacity);
    CHECK(pair->read_fault() == Fault::PaddingAtStart);
}

TEST_CASE("padding_after_padding") {
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(1, 32));
    pair->out.publish();
    CHECK(pair->read_fault() == Fault::None);
    pair->forge_header(48, {layout::kPadding, 0, 0, 0});
    pair->forge_header(0, {layout::kPadding, 0, 0, 0});
    pair->forge_tail(48 + kCapacity);
    CHECK(pair->read_fault() == Fault::PaddingAtStart);
}

TEST_CASE("padding_published_without_a_record_behind_it") {
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(1, 32));
    pair->out.publish();
    CHECK(pair->read_fault() == Fault::None);
    pair->forge_header(48, {layout::kPadding, 0, 0, 0});
    SUBCASE("up to the ring's end") {
        pair->forge_tail(kCapacity);
    }
    SUBCASE("not even that far") {
        pair->forge_tail(64);
    }
    CHECK(pair->read_fault() == Fault::LengthBeyondTail);
}

TEST_CASE("record_with_unknown_flags") {
    auto pair = std::make_unique<Pair>();
    pair->forge_header(0, {16, 1, 0x8000, 0});
    pair->forge_tail(32);
    CHECK(pair->read_fault() == Fault::FlagsNotZero);
}

TEST_CASE("record_of_zero_bytes_is_a_record") {
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(9, 0));
    pair->out.publish();
    const auto seen = read_all(pair->in);
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].bytes == 0);
}

TEST_CASE("reader_sees_head_beyond_capacity") {
    struct Forged {
        std::uint64_t head;
        Fault fault;
    };
    // 256 bytes are published; the writer looks at head only when it needs room.
    for (const Forged forged : {Forged{272, Fault::HeadBeyondTail},
                                Forged{~std::uint64_t{15}, Fault::HeadBeyondTail},
                                Forged{24, Fault::HeadNotAligned}}) {
        auto pair = std::make_unique<Pair>();
        REQUIRE(pair->send(1, 240));
        pair->out.publish();
        layout::exchange_full(pair->reader.consumer.head, forged.head);
        CHECK_FALSE(pair->send(2, 240, 256));
        CHECK(pair->out.fault() == forged.fault);
    }
}

TEST_CASE("reader_moves_head_back") {
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(1, 240));
    pair->out.publish();
    layout::exchange_full(pair->reader.consumer.head, std::uint64_t{256});
    REQUIRE(pair->send(2, 240, 256));
    pair->out.publish();
    layout::exchange_full(pair->reader.consumer.head, std::uint64_t{128});
    CHECK_FALSE(pair->send(3, 240, 256));
    CHECK(pair->out.fault() == Fault::HeadMovedBack);
}

TEST_CASE("reader_changes_nothing_the_writer_has_not_published") {
    // A head past what was published, though within what is written, would let the writer overwrite unread bytes.
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(1, 240));
    layout::exchange_full(pair->reader.consumer.head, std::uint64_t{256});
    CHECK_FALSE(pair->send(2, 240, 256));
    CHECK(pair->out.fault() == Fault::HeadBeyondTail);
}

TEST_CASE("writer_dies_before_publishing") {
    auto pair = std::make_unique<Pair>();
    REQUIRE(pair->send(1, 64));
    pair->out.publish();
    REQUIRE(pair->send(2, 64));  // never published
    const auto seen = read_all(pair->in);
    REQUIRE(seen.size() == 1);
    CHECK(seen[0].id == 1);
}

TEST_CASE("fill_limit_leaves_room_for_what_is_reserved") {
    auto pair = std::make_unique<Pair>();
    std::uint64_t id = 0;
    while (pair->send(++id, 48, kCapacity / 4)) {
    }
    CHECK(pair->out.used() == kCapacity / 4);
    CHECK(pair->send(id, 48));
}

TEST_CASE("records_survive_every_sequence_of_sizes_and_batches") {
    const bool held = rc::check("what goes in comes out, once, whole and in order", [] {
        auto pair = std::make_unique<Pair>();
        std::deque<std::pair<std::uint64_t, std::size_t>> expected;
        std::uint64_t id = 0;
        std::size_t unpublished = 0;
        const auto steps = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5));
        for (const int step : steps) {
            if (step <= 2) {
                const auto bytes = *rc::gen::inRange<std::size_t>(
                    0, kRecordMax - sizeof(layout::RecordHeader) + 1);
                if (pair->send(id + 1, bytes)) {
                    expected.emplace_back(++id, bytes);
                    ++unpublished;
                } else {
                    // Refused only when the unread bytes, padding and the record really do not fit.
                    RC_ASSERT(pair->out.used() + 2 * kRecordMax > kCapacity);
                }
            } else if (step == 3) {
                pair->out.publish();
                unpublished = 0;
            } else {
                for (const Seen& seen : read_all(pair->in)) {
                    RC_ASSERT(!expected.empty());
                    RC_ASSERT(seen.id == expected.front().first);
                    RC_ASSERT(seen.bytes == expected.front().second);
                    RC_ASSERT(seen.intact);
                    expected.pop_front();
                }
                RC_ASSERT(pair->in.fault() == Fault::None);
                RC_ASSERT(expected.size() == unpublished);
                pair->in.publish_head();
            }
        }
    });
    CHECK(held);
}

TEST_CASE("hostile_bytes_never_pass_the_reader's_bounds") {
    const bool held = rc::check(
        "any header words and any ring bytes end in a record within bounds or in a fault", [] {
            auto pair = std::make_unique<Pair>();
            const auto words = *rc::gen::container<std::vector<std::uint32_t>>(
                64,
                rc::gen::oneOf(rc::gen::arbitrary<std::uint32_t>(),
                               rc::gen::inRange<std::uint32_t>(0, 2 * kRecordMax),
                               rc::gen::just(layout::kPadding)));
            for (std::size_t at = 0; at < kCapacity; at += 64)
                std::memcpy(pair->data.data() + at, &words[at / 64], sizeof(std::uint32_t));
            pair->forge_tail(
                *rc::gen::oneOf(rc::gen::arbitrary<std::uint64_t>(),
                                rc::gen::map(rc::gen::inRange<std::uint64_t>(0, kCapacity / 16 + 2),
                                             [](std::uint64_t units) { return units * 16; })));
            layout::RecordHeader header{};
            BytesView payload;
            std::size_t records = 0;
            while (pair->in.next(header, payload) == Consumer::Next::Record) {
                RC_ASSERT(payload.size() + sizeof(header) <= kRecordMax);
                RC_ASSERT(++records <= kCapacity / layout::kRecordAlign);
            }
        });
    CHECK(held);
}

TEST_CASE("both_sides_as_threads") {
    auto pair = std::make_unique<Pair>();
    constexpr std::uint64_t kRecords = 20'000;
    const auto size_of = [](std::uint64_t id) {
        return static_cast<std::size_t>(id * 7919 % (kRecordMax - 16));
    };
    std::thread writer([&] {
        for (std::uint64_t id = 1; id <= kRecords;) {
            if (pair->send(id, size_of(id))) {
                if (++id % 3 == 0) pair->out.publish();
            } else {
                pair->out.publish();
                std::this_thread::yield();
            }
        }
        pair->out.publish();
    });
    std::uint64_t next = 1;
    bool good = true;
    while (next <= kRecords && pair->in.fault() == Fault::None) {
        for (const Seen& seen : read_all(pair->in)) {
            good = good && seen.intact && seen.id == next && seen.bytes == size_of(next);
            ++next;
        }
        pair->in.publish_head();
        std::this_thread::yield();
    }
    writer.join();
    CHECK(good);
    CHECK(next == kRecords + 1);
}
