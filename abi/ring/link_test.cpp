// What surrounds the rings: the table of open requests, the wake policy, mappings, and the sleep protocol between threads.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <map>
#include <thread>

#include "abi/layout/atomics.hpp"
#include "abi/ring/endpoint.hpp"
#include "abi/ring/open_table.hpp"

using namespace hf;

namespace {

constexpr std::uint32_t kRing = layout::kRingBytesMin;

UniqueFd memory(std::size_t bytes) {
    UniqueFd fd(::memfd_create("hf-test", MFD_CLOEXEC));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    return fd;
}

ring::Mapping map(const UniqueFd& fd, ring::Access access) {
    auto mapped = ring::Mapping::map(fd.get(), layout::segment_bytes(kRing), access);
    REQUIRE(mapped.ok());
    return std::move(mapped).value();
}

struct Link {
    std::unique_ptr<ring::Endpoint> left;
    std::unique_ptr<ring::Endpoint> right;
};

Link make_link(bool spin) {
    const UniqueFd a = memory(layout::segment_bytes(kRing));
    const UniqueFd b = memory(layout::segment_bytes(kRing));
    std::array<int, 2> to_right{};
    std::array<int, 2> to_left{};
    REQUIRE(::pipe2(to_right.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    REQUIRE(::pipe2(to_left.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    ring::EndpointParts left;
    left.own = map(a, ring::Access::ReadWrite);
    left.peer = map(b, ring::Access::ReadOnly);
    left.ring.reset(to_right[1]);
    left.hear.reset(to_left[0]);
    ring::EndpointParts right;
    right.own = map(b, ring::Access::ReadWrite);
    right.peer = map(a, ring::Access::ReadOnly);
    right.ring.reset(to_left[1]);
    right.hear.reset(to_right[0]);
    for (ring::EndpointParts* parts : {&left, &right}) {
        parts->own_ring_bytes = parts->peer_ring_bytes = kRing;
        parts->spin_ns = ring::kSpinNsMin;
        parts->spin = spin;
    }
    return {std::make_unique<ring::Endpoint>(std::move(left)),
            std::make_unique<ring::Endpoint>(std::move(right))};
}

// Sends `value` as a record without bytes, waits for one back. False when a sleep lasted longer than it ever should.
bool send_value(ring::Endpoint& end, std::uint64_t value) {
    const bool fits = end.out().write({0, 1, 0, value}, {}, ~std::uint64_t{0});
    end.flush();
    return fits;
}
bool receive_value(ring::Endpoint& end, std::uint64_t& value) {
    layout::RecordHeader header{};
    BytesView payload;
    for (;;) {
        end.awake();
        if (end.in().next(header, payload) == ring::Consumer::Next::Record) {
            value = header.req_id;
            return true;
        }
        if (!end.before_block(true, false)) continue;
        pollfd fd{end.bell_fd(), POLLIN, 0};
        constexpr int kLostMs =
            10'000;  // a lost wake-up lasts for ever: any bound tells it from a slow machine
        if (::poll(&fd, 1, kLostMs) == 0) return false;
    }
}

}  // namespace

TEST_CASE("a_sleeper_never_misses_a_record") {
    for (const bool spin : {false, true}) {
        Link link = make_link(spin);
        constexpr std::uint64_t kRounds = 20'000;
        std::thread peer([&] {
            std::uint64_t value = 0;
            while (value < kRounds && receive_value(*link.right, value) &&
                   send_value(*link.right, value)) {
            }
        });
        bool good = true;
        std::uint64_t value = 0;
        for (std::uint64_t i = 1; i <= kRounds && good; ++i)
            good = send_value(*link.left, i) && receive_value(*link.left, value) && value == i;
        if (!good) (void)send_value(*link.left, kRounds);
        peer.join();
        CHECK(good);
    }
}

TEST_CASE("a_starved_writer_is_woken_by_room") {
    Link link = make_link(false);
    constexpr std::uint64_t kRecords = 20'000;
    const Bytes payload(1000, 7);
    std::thread reader([&] {
        std::uint64_t seen = 0;
        layout::RecordHeader header{};
        BytesView got;
        while (seen < kRecords) {
            link.right->awake();
            while (link.right->in().next(header, got) == ring::Consumer::Next::Record) ++seen;
            link.right->flush();
            if (seen < kRecords && link.right->before_block(false, false)) {
                pollfd fd{link.right->bell_fd(), POLLIN, 0};
                if (::poll(&fd, 1, 10'000) == 0) return;
            }
        }
    });
    bool good = true;
    for (std::uint64_t id = 1; id <= kRecords && good;) {
        link.left->awake();
        if (link.left->out().write({1000, 1, 0, id}, payload, kRing)) {
            ++id;
            continue;
        }
        if (!link.left->before_block(false, true)) continue;
        pollfd fd{link.left->bell_fd(), POLLIN, 0};
        good = ::poll(&fd, 1, 10'000) > 0;
    }
    link.left->flush();
    reader.join();
    CHECK(good);
}

TEST_CASE("a_sleep_is_rung_once") {
    Link link = make_link(false);
    REQUIRE(link.right->before_block(false, false));
    for (std::uint64_t i = 1; i <= 10; ++i) REQUIRE(send_value(*link.left, i));
    std::array<std::uint8_t, 16> dings{};
    CHECK(::read(link.right->bell_fd(), dings.data(), dings.size()) == 1);
}

TEST_CASE("nobody_rings_a_peer_that_is_awake") {
    Link link = make_link(false);
    REQUIRE(send_value(*link.left, 1));
    pollfd fd{link.right->bell_fd(), POLLIN, 0};
    CHECK(::poll(&fd, 1, 0) == 0);
}

TEST_CASE("a_full_bell_does_not_block_the_ringer") {
    Link link = make_link(false);
    std::uint64_t value = 0;
    // The hearer never empties its bell, but sleeps again and again, as a hostile peer may.
    for (std::uint64_t i = 1; i <= 100'000; ++i) {
        link.right->fall_asleep(false);
        REQUIRE(link.left->out().write({0, 1, 0, i}, {}, ~std::uint64_t{0}));
        link.left->flush();
        layout::RecordHeader header{};
        BytesView payload;
        REQUIRE(link.right->in().next(header, payload) == ring::Consumer::Next::Record);
        link.right->in().publish_head();
        value = header.req_id;
    }
    CHECK(value == 100'000);
}

TEST_CASE("a_ring_on_an_unread_bell_is_still_an_event") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    const UniqueFd hear(ends[0]);
    const UniqueFd ring(ends[1]);
    const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    REQUIRE(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, hear.get(), &event) == 0);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(::write(ring.get(), "!", 1) == 1);
        CHECK(::epoll_wait(epoll.get(), &event, 1, 0) == 1);
        CHECK(::epoll_wait(epoll.get(), &event, 1, 0) == 0);
    }
}

TEST_CASE("open_requests_are_found_and_kept_in_order") {
    const bool held = rc::check("the table agrees with a plain list", [] {
        ring::OpenTable table;
        std::vector<std::uint64_t> model;
        std::uint64_t last = 0;
        const auto steps = *rc::gen::container<std::vector<std::pair<bool, std::uint32_t>>>(
            rc::gen::pair(rc::gen::weightedElement<bool>({{3, true}, {2, false}}),
                          rc::gen::arbitrary<std::uint32_t>()));
        for (const auto& [insert, word] : steps) {
            if (insert) {
                last += 1 + word % 3 * 256;  // collisions of the low bits
                table.insert({last, word, 1, 0});
                model.push_back(last);
            } else if (!model.empty()) {
                const auto at = model.begin() + static_cast<std::ptrdiff_t>(word % model.size());
                RC_ASSERT(table.erase(*at));
                RC_ASSERT(table.find(*at) == nullptr);
                model.erase(at);
            }
        }
        std::vector<std::uint64_t> order;
        table.for_each([&](const ring::OpenRequest& open) { order.push_back(open.id); });
        RC_ASSERT(order == model);
        RC_ASSERT(table.size() == model.size());
        for (const std::uint64_t id : model) RC_ASSERT(table.find(id) != nullptr);
        RC_ASSERT(!table.erase(last + 1));
    });
    CHECK(held);
}

TEST_CASE("no_spin_for_a_peer_on_the_same_cpu") {
    ring::SpinPolicy policy(ring::kSpinNsDefault, true);
    cpu_set_t before;
    REQUIRE(::sched_getaffinity(0, sizeof(before), &before) == 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    REQUIRE(::sched_setaffinity(0, sizeof(one), &one) == 0);
    CHECK_FALSE(policy.wanted(static_cast<std::uint32_t>(::sched_getcpu())));
    CHECK(policy.wanted(static_cast<std::uint32_t>(::sched_getcpu()) + 1));
    CHECK_FALSE(ring::spin_allowed());
    REQUIRE(::sched_setaffinity(0, sizeof(before), &before) == 0);
}

TEST_CASE("bad_luck_turns_the_spin_off_but_for_a_probe") {
    ring::SpinPolicy policy(ring::kSpinNsDefault, true);
    constexpr std::uint32_t kElsewhere = 12345;
    for (int i = 0; i < 8; ++i) policy.failed();
    int spins = 0;
    for (int i = 0; i < 640; ++i) spins += policy.wanted(kElsewhere) ? 1 : 0;
    CHECK(spins == 10);
    policy.succeeded();
    CHECK(policy.wanted(kElsewhere));
    policy.preempted();
    CHECK_FALSE(policy.wanted(kElsewhere));
    CHECK_FALSE(ring::SpinPolicy(0, true).wanted(kElsewhere));
    CHECK_FALSE(ring::SpinPolicy(ring::kSpinNsDefault, false).wanted(kElsewhere));
}

TEST_CASE("the_measured_wake_is_within_bounds") {
    const std::uint32_t ns = ring::measure_wake_ns();
    CHECK(ns >= ring::kSpinNsMin);
    CHECK(ns <= ring::kSpinNsMax);
}

TEST_CASE("a_file_shorter_than_the_segment_is_refused") {
    const UniqueFd fd = memory(8192);
    const auto mapped =
        ring::Mapping::map(fd.get(), layout::segment_bytes(kRing), ring::Access::ReadOnly);
    REQUIRE_FALSE(mapped.ok());
    CHECK(mapped.error().code == Code::Corrupt);
}
