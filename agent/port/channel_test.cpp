// The supervisor's end against an instance that breaks each rule in turn.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "abi/layout/atomics.hpp"
#include "agent/port/channel_rig.hpp"

using namespace hf;
using namespace hf::port;

TEST_CASE("a_call_and_its_answer") {
    Link link;
    CHECK(link.get(100, "key") == Sent::Now);
    CHECK(link.plugin->receive() == nullptr);  // not before flush
    (*link).flush();
    layout::RecordHeader header{};
    const abi::Envelope* envelope = link.plugin->receive(&header);
    REQUIRE(envelope != nullptr);
    CHECK(header.req_id == 100);
    CHECK(envelope->seq() == 1);
    CHECK(envelope->generation() == kGeneration);
    CHECK(envelope->body_as_Get()->key()->str() == "key");
    CHECK((*link).open_requests().size() == 1);
    link.answer(100);
    CHECK(link.rule() == "");
    CHECK(link.answered == std::vector<std::uint64_t>{100});
    CHECK((*link).open_requests().empty());
}

TEST_CASE("answer_to_an_id_never_asked") {
    Link link;
    link.answer(5);
    CHECK(link.rule() == "an answer to no open request");
    CHECK(link.answered.empty());
}

TEST_CASE("same_answer_twice") {
    Link link;
    link.get(5);
    link.answer(5);
    link.answer(5);
    CHECK(link.rule() == "an answer to no open request");
    CHECK(link.answered.size() == 1);
    // Nothing more is handed over, also when it would be right.
    link.log();
    CHECK(link.rule() == "an answer to no open request");
}

TEST_CASE("answer_to_a_request_still_in_the_private_queue") {
    Link link;
    std::uint64_t id = 0;
    while (link.get(++id) == Sent::Now) {
    }
    link.answer(id);
    CHECK(link.rule() == "an answer to no open request");
}

TEST_CASE("answer_of_another_type") {
    Link link;
    link.get(5);
    Lies lies;
    lies.reply_to = 5;
    REQUIRE(link.plugin->send(abi::CreateStored(link.plugin->builder()), lies));
    CHECK(link.rule() == "an answer of the wrong type");
}

TEST_CASE("answer_larger_than_declared") {
    Link link;
    auto& fbb = (*link).builder();
    const auto key = fbb.CreateString("k");
    CHECK((*link).request(5, abi::CreatePut(fbb, key), 0, 0) == Sent::Now);
    auto& out = link.plugin->builder();
    const auto reason = out.CreateString(std::string(1024, 'x'));
    Lies lies;
    lies.reply_to = 5;
    REQUIRE(
        link.plugin->send(abi::CreateStored(out, abi::Outcome::Refused, 0, nullptr, reason), lies));
    CHECK(link.rule() == "an answer larger than its request's reply_max");
}

TEST_CASE("gap_in_the_sequence") {
    Link link;
    Lies lies;
    lies.skip_seq = 1;
    link.log(lies);
    CHECK(link.rule() == "gap in the sequence numbers");
}

TEST_CASE("record_of_another_generation") {
    Link link;
    Lies lies;
    lies.generation = kGeneration - 1;
    link.log(lies);
    CHECK(link.rule() == "wrong generation");
}

TEST_CASE("message_that_only_the_supervisor_sends") {
    Link link;
    REQUIRE(link.plugin->send(abi::CreateStop(link.plugin->builder())));
    CHECK(link.rule() == "message not allowed from this side");
}

TEST_CASE("message_of_another_kind") {
    Link link;
    link.ask(1);
    CHECK(link.rule() == "message not allowed on a link of this kind");
}

TEST_CASE("record_type_differs_from_the_body") {
    Link link;
    Lies lies;
    lies.record_type = static_cast<std::uint16_t>(abi::Body::Fault);
    link.log(lies);
    CHECK(link.rule() != "");
}

TEST_CASE("request_ids_that_do_not_ascend") {
    Link link(abi::Kind::Gateway);
    link.ask(3);
    link.ask(3);
    CHECK(link.rule() == "a request id that does not ascend");
    CHECK(link.asked == std::vector<std::uint64_t>{3});
}

TEST_CASE("more_requests_than_there_is_room_for_answers") {
    Link link(abi::Kind::Gateway);
    constexpr std::uint64_t kMore = kGatewayCreditBytes / kRecordBytesMax + 1;
    for (std::uint64_t id = 1; id <= kMore && link.rule() == ""; ++id) link.ask(id);
    CHECK(link.asked.size() >= 1024);
    CHECK(link.asked.size() < kMore);
    CHECK(link.rule() == "more requests than the credit for their answers");
}

TEST_CASE("tail_forged_in_the_instance's_segment") {
    struct Forged {
        std::uint64_t tail;
        const char* rule;
    };
    for (const Forged forged : {Forged{kSmall.from_plugin_bytes + 16, "tail beyond capacity"},
                                Forged{~std::uint64_t{0}, "tail beyond capacity"},
                                Forged{8, "tail not aligned"}}) {
        Link link;
        layout::exchange_full(link.plugin->end().own().producer.tail, forged.tail);
        CHECK(link.rule() == forged.rule);
    }
}

TEST_CASE("head_forged_in_the_instance's_segment") {
    Link link;
    layout::exchange_full(link.plugin->end().own().consumer.head, std::uint64_t{1} << 40U);
    const auto put = [&](std::uint64_t id) {
        auto& fbb = (*link).builder();
        const auto key = fbb.CreateString("k");
        const auto body = fbb.CreateVector(Bytes(40'000, 1));
        return (*link).request(id, abi::CreatePut(fbb, key, body), 0, 0);
    };
    std::uint64_t id = 0;
    while (put(++id) == Sent::Now) (*link).flush();
    CHECK(link.rule() == "head beyond tail");
    CHECK((*link).before_block());  // a faulty link keeps no loop busy
}

TEST_CASE("nonsense_in_every_word_of_the_instance's_header") {
    for (std::size_t at = 0; at < sizeof(layout::SegmentHeader); at += 4) {
        for (const std::uint32_t word : {1U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
            Link link;
            // SAFETY: within the header, which is aligned to 4.
            auto* base = reinterpret_cast<std::uint8_t*>(&link.plugin->end().own());
            layout::exchange_full(*reinterpret_cast<std::uint32_t*>(base + at), word);
            link.get(1);
            (*link).flush();
            (void)link.drain();
            (void)(*link).before_block();
            (void)(*link).usage();
            (void)(*link).progress();
            (void)(*link).current_request();
            (void)(*link).forbidden_syscall();
            (void)(*link).drain_final([](const Received&) {});
            break;
        }
    }
}
