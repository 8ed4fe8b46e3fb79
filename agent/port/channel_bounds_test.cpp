// The bounds the supervisor's end keeps for itself, what a death leaves, and what the instance is given.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "abi/layout/atomics.hpp"
#include "agent/port/channel_rig.hpp"
#include "agent/port/segments.hpp"

using namespace hf;
using namespace hf::port;

TEST_CASE("answers_wait_for_no_queued_request") {
    Link link(abi::Kind::Gateway);
    link.ask(1);
    CHECK(link.rule() == "");
    // PeerCall answers may take 64 KiB each: two fit a gateway's share of P, the third waits.
    std::uint64_t id = 0;
    Sent sent = Sent::Now;
    while (sent == Sent::Now) {
        auto& fbb = (*link).builder();
        const auto peer = fbb.CreateString("p");
        sent = (*link).request(++id, abi::CreatePeerCall(fbb, peer, peer), 0, 0);
    }
    CHECK(sent == Sent::Queued);
    CHECK(id == 3);
    CHECK((*link).reply(1, abi::CreateReply((*link).builder(), 200)) == Sent::Now);
    (*link).flush();
    layout::RecordHeader header{};
    std::uint64_t seq = 0;
    std::vector<abi::Body> types;
    while (const abi::Envelope* envelope = link.plugin->receive(&header)) {
        CHECK(envelope->seq() == ++seq);
        types.push_back(envelope->body_type());
    }
    CHECK(types ==
          std::vector<abi::Body>{abi::Body::PeerCall, abi::Body::PeerCall, abi::Body::Reply});
    // An answer gives its credit back: the queued request goes out with the next number.
    Lies lies;
    lies.reply_to = 1;
    REQUIRE(link.plugin->send(
        abi::CreatePeerReplied(link.plugin->builder(), abi::PeerOutcome::Answered, 200), lies));
    CHECK(link.rule() == "");
    (*link).flush();
    const abi::Envelope* envelope = link.plugin->receive(&header);
    REQUIRE(envelope != nullptr);
    CHECK(envelope->seq() == ++seq);
    CHECK(header.req_id == 3);
}

TEST_CASE("answers_beyond_the_ring_wait_in_private_memory_and_arrive_in_order") {
    Link link(abi::Kind::Gateway);
    constexpr std::uint64_t kAsked = 64;  // their answers take 3 MiB, six times the ring
    for (std::uint64_t id = 1; id <= kAsked; ++id) link.ask(id);
    CHECK(link.rule() == "");
    Sent last = Sent::Now;
    const std::vector<std::uint8_t> body(48U * 1024U, 7);
    for (std::uint64_t id = 1; id <= kAsked; ++id) {
        auto& fbb = (*link).builder();
        const auto bytes = fbb.CreateVector(body);
        last = (*link).reply(id, abi::CreateReply(fbb, 200, abi::ReplyReason::Ok, 0, 0, bytes));
    }
    CHECK(last == Sent::Queued);
    CHECK((*link).usage().queued_records > 0);
    std::uint64_t seq = 0;
    std::uint64_t next = 0;
    for (int turn = 0; turn < 64 && next < kAsked; ++turn) {
        (*link).flush();
        while (const abi::Envelope* envelope = link.plugin->receive()) {
            CHECK(envelope->seq() == ++seq);
            CHECK(envelope->reply_to() == ++next);
        }
        link.plugin->end().flush();  // it has read them
    }
    CHECK(next == kAsked);
    CHECK((*link).usage().queued_bytes == 0);
}

TEST_CASE("queued_requests_go_out_in_order") {
    Link link;
    constexpr std::uint64_t kRequests = 500;
    for (std::uint64_t id = 1; id <= kRequests; ++id) REQUIRE(link.get(id) != Sent::Busy);
    std::uint64_t next = 1;
    for (int turn = 0; turn < 1000 && next <= kRequests; ++turn) {
        (*link).flush();
        layout::RecordHeader header{};
        while (const abi::Envelope* envelope = link.plugin->receive(&header)) {
            REQUIRE(header.req_id == next);
            REQUIRE(envelope->seq() == next);
            ++next;
            link.answer(header.req_id);
        }
        link.plugin->end().flush();
        REQUIRE(link.rule() == "");
    }
    CHECK(next == kRequests + 1);
    CHECK(link.answered.size() == kRequests);
    CHECK((*link).usage().queued_records == 0);
    CHECK((*link).usage().queued_bytes == 0);
}

TEST_CASE("private_queue_is_bounded_by_count") {
    Link link;
    std::uint64_t id = 0;
    Sent sent = Sent::Now;
    while (sent != Sent::Busy) sent = link.get(++id);
    CHECK((*link).usage().queued_records == 4096);
    // What was refused is not open.
    CHECK((*link).open_requests().size() == id - 1);
    CHECK((*link).open_requests().front().first == 1);
}

TEST_CASE("private_queue_is_bounded_by_bytes") {
    Link link;
    std::uint64_t id = 0;
    const std::string key(48'000, 'k');
    while (link.get(++id, key) != Sent::Busy) {
    }
    CHECK((*link).usage().queued_bytes <= 8U << 20U);
    CHECK((*link).usage().queued_bytes > (8U << 20U) - 50'000U);
}

TEST_CASE("late_answer_after_the_caller_gave_up") {
    Link link;
    link.get(5);
    link.get(6);
    (*link).abandon(5);
    CHECK((*link).open_requests().size() == 1);
    link.answer(5);
    link.answer(6);
    CHECK(link.rule() == "");
    CHECK(link.answered == std::vector<std::uint64_t>{6});
    CHECK((*link).usage().late_answers == 1);
    // Only once: a second late answer is an answer to nothing.
    link.answer(5);
    CHECK(link.rule() == "an answer to no open request");
}

TEST_CASE("request_given_up_in_the_queue_is_never_sent") {
    Link link;
    std::uint64_t id = 0;
    while (link.get(++id) == Sent::Now) {
    }
    const std::uint64_t first_queued = id;
    CHECK(link.get(++id) == Sent::Queued);
    (*link).abandon(first_queued);
    link.answer(1);
    CHECK(link.rule() == "");
    (*link).flush();
    layout::RecordHeader header{};
    std::uint64_t last = 0;
    while (link.plugin->receive(&header) != nullptr) last = header.req_id;
    CHECK(last == first_queued + 1);
}

TEST_CASE("message_beyond_the_record_limit") {
    Link link;
    CHECK(link.get(1, std::string(70'000, 'k')) == Sent::TooLarge);
    CHECK((*link).open_requests().empty());
    Link gateway(abi::Kind::Gateway);
    gateway.ask(1);
    CHECK(gateway.rule() == "");
    auto& fbb = (*gateway).builder();
    const auto body = fbb.CreateVector(Bytes(70'000, 1));
    CHECK((*gateway).reply(1, abi::CreateReply(fbb, 200, abi::ReplyReason::Ok, 0, 0, body)) ==
          Sent::TooLarge);
    // The answer is still due, and a smaller one passes.
    CHECK((*gateway).reply(1, abi::CreateReply((*gateway).builder(), 500)) == Sent::Now);
}

TEST_CASE("budget_bounds_one_turn") {
    Link link;
    for (int i = 0; i < 10; ++i) link.log();
    const auto some = link.drain(4);
    REQUIRE(some.ok());
    CHECK(*some);
    const auto rest = link.drain(100);
    REQUIRE(rest.ok());
    CHECK_FALSE(*rest);
}

TEST_CASE("answers_published_before_death_count") {
    Link link;
    for (std::uint64_t id = 1; id <= 3; ++id) link.get(id);
    (*link).flush();
    link.answer(1);
    Lies lies;
    lies.reply_to = 2;
    auto& fbb = link.plugin->builder();
    REQUIRE(link.plugin->send(abi::CreateGot(fbb), lies, false));  // written, never published
    link.plugin->hang_up();
    CHECK((*link)
              .drain_final(
                  [&](const Received& received) { link.answered.push_back(received.reply_to); })
              .ok());
    CHECK(link.answered == std::vector<std::uint64_t>{1});
    const auto open = (*link).open_requests();
    REQUIRE(open.size() == 2);
    CHECK(open[0] == std::pair{std::uint64_t{2}, abi::Body::Get});
    CHECK(open[1] == std::pair{std::uint64_t{3}, abi::Body::Get});
    pollfd fd{(*link).control_fd(), POLLIN, 0};
    CHECK(::poll(&fd, 1, 0) == 1);
    CHECK((fd.revents & POLLHUP) != 0);
}

TEST_CASE("the_loop_is_woken_only_when_it_sleeps") {
    Link link;
    pollfd fd{(*link).bell_fd(), POLLIN, 0};
    link.log();
    CHECK(::poll(&fd, 1, 0) == 0);
    CHECK_FALSE((*link).before_block());
    CHECK(link.rule() == "");
    CHECK((*link).before_block());
    link.log();
    CHECK(::poll(&fd, 1, 0) == 1);
    CHECK(link.rule() == "");
    CHECK(::poll(&fd, 1, 0) == 0);
}

TEST_CASE("several_links_block_together") {
    Link first;
    Link second;
    std::array<Channel*, 2> both{first.channel.get(), second.channel.get()};
    CHECK(Channel::before_block_all(both));
    second.log();
    CHECK_FALSE(Channel::before_block_all(both));
    CHECK(first.rule() == "");
    CHECK(second.rule() == "");
    CHECK(Channel::before_block_all(both));
    layout::exchange_full(first.plugin->end().own().producer.tail, std::uint64_t{8});
    CHECK_FALSE(Channel::before_block_all(both));
    CHECK(first.rule() == "tail not aligned");
    CHECK(Channel::before_block_all(both));
}

TEST_CASE("reports_of_the_instance_are_read") {
    Link link;
    auto& report = link.plugin->end().own().report;
    layout::store_relaxed(report.current, std::uint64_t{77});
    layout::store_relaxed(report.progress, std::uint64_t{5});
    layout::store_relaxed(report.forbidden_syscall, 102U);
    CHECK((*link).current_request() == 77);
    CHECK((*link).progress() == 5);
    CHECK((*link).forbidden_syscall() == 102);
}

TEST_CASE("segments_are_sealed_against_the_instance") {
    auto made = port::make_segment_pair(kSmall);
    REQUIRE(made.ok());
    const int s = made->to_plugin_fd.get();
    const int p = made->from_plugin_fd.get();
    const std::size_t bytes = layout::segment_bytes(kSmall.to_plugin_bytes);
    CHECK(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s, 0) == MAP_FAILED);
    void* readable = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, s, 0);
    REQUIRE(readable != MAP_FAILED);
    CHECK(::mprotect(readable, bytes, PROT_READ | PROT_WRITE) != 0);
    ::munmap(readable, bytes);
    const std::uint8_t byte = 1;
    CHECK(::pwrite(s, &byte, 1, 0) < 0);
    CHECK(::fallocate(s, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0);
    for (const int fd : {s, p}) {
        CHECK(::ftruncate(fd, 4096) != 0);
        CHECK(::ftruncate(fd, static_cast<off_t>(bytes) * 2) != 0);
        CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) != 0);
        CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    // The supervisor's own mapping keeps its right to write.
    made->to_plugin.data()[layout::kHeaderBytes] = 1;
}

TEST_CASE("everything_passed_on_is_close_on_exec_here_and_closed_after") {
    std::array<bool, 256> inherited{};
    for (int fd = 0; fd < 256; ++fd)
        inherited[static_cast<std::size_t>(fd)] = ::fcntl(fd, F_GETFD) >= 0;
    port::SegmentPool pool;
    auto made = Channel::create(pool, kSmall, 1, abi::Kind::Storage);
    REQUIRE(made.ok());
    const auto open_fds = [] {
        int count = 0;
        for (int fd = 0; fd < 256; ++fd)
            if (::fcntl(fd, F_GETFD) >= 0) ++count;
        return count;
    };
    const UniqueFd plugin_end = (*made)->take_plugin_end();
    for (int fd = 3; fd < 256; ++fd) {
        const int flags = ::fcntl(fd, F_GETFD);
        if (flags >= 0 && !inherited[static_cast<std::size_t>(fd)])
            CHECK((flags & FD_CLOEXEC) != 0);
    }
    const int before = open_fds();
    REQUIRE((*made)->attach({}).ok());
    CHECK(open_fds() == before - 4);
}

TEST_CASE("named_descriptors_arrive_by_name") {
    port::SegmentPool pool;
    auto made = Channel::create(pool, kSmall, 1, abi::Kind::Gateway);
    REQUIRE(made.ok());
    const UniqueFd plugin_end = (*made)->take_plugin_end();
    REQUIRE((*made)->attach({{"listener0", 0}, {"listener1", 1}}).ok());
    auto got = sdk::receive_attachment(plugin_end.get());
    REQUIRE(got.ok());
    REQUIRE(got->extras.size() == 2);
    CHECK(got->extras[1].first == "listener1");
    CHECK(got->extras[1].second.valid());
}

TEST_CASE("supervisor_dies_before_the_attach_message") {
    port::SegmentPool pool;
    auto made = Channel::create(pool, kSmall, 1, abi::Kind::Storage);
    REQUIRE(made.ok());
    const UniqueFd plugin_end = (*made)->take_plugin_end();
    made = fail(Code::PeerGone, "gone");
    const auto got = sdk::receive_attachment(plugin_end.get());
    REQUIRE_FALSE(got.ok());
    CHECK(got.error().code == Code::PeerGone);
}

TEST_CASE("ring_sizes_outside_the_limits") {
    port::SegmentPool pool;
    for (const std::uint32_t bytes : {0U, 4096U, 512U * 1024U - 1U, 3U << 20U, 128U << 20U})
        CHECK_FALSE(
            Channel::create(pool, {bytes, kSmall.from_plugin_bytes}, 1, abi::Kind::Storage).ok());
}

TEST_CASE("the_pool_hands_out_fresh_memory") {
    port::SegmentPool pool;
    pool.keep(kSmall);
    for (std::uint64_t generation = 1; generation <= 5; ++generation) {
        auto made = Channel::create(pool, kSmall, generation, abi::Kind::Storage);
        REQUIRE(made.ok());
        FakePlugin plugin(**made);
        CHECK(plugin.facts().generation == generation);
        CHECK(layout::load_relaxed(plugin.end().peer().producer.tail) == 0);
        auto& fbb = plugin.builder();
        const auto text = fbb.CreateString("line");
        REQUIRE(plugin.send(abi::CreateLog(fbb, abi::LogLevel::Info, text)));
    }
}
