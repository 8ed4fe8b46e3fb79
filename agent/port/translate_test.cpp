// One message to many connections, from what a runtime answers to what a gateway reads: nothing lost, in order, kept once.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/port/translate.hpp"

#include <numeric>

#include "agent/port/channel_rig.hpp"

using namespace hf;
using namespace hf::port;

namespace {

using Numbers = std::vector<std::uint64_t>;

core::SocketSend message(Numbers connections, Bytes data) {
    core::SocketSend out;
    out.connections = std::move(connections);
    out.data = std::move(data);
    return out;
}

// What a gateway that reads on and on is told, in order; each record has the next number.
struct Heard {
    Numbers connections;
    std::vector<std::size_t> sizes;
    std::size_t closes = 0;
    std::uint64_t seq = 0;

    void read(FakePlugin& plugin) {
        while (const abi::Envelope* envelope = plugin.receive()) {
            CHECK(envelope->seq() == ++seq);
            if (envelope->body_type() == abi::Body::CloseSocket) ++closes;
            if (envelope->body_type() != abi::Body::SocketSend) continue;
            const auto* sent = envelope->body_as_SocketSend();
            connections.push_back(sent->connection());
            sizes.push_back(sent->data() == nullptr ? 0 : sent->data()->size());
        }
        plugin.end().flush();  // it has read them
    }
    void read_all(Link& link) {
        for (int turn = 0; turn < 1000; ++turn) {
            (*link).flush();
            read(*link.plugin);
            if ((*link).usage().queued_records == 0) return read(*link.plugin);
        }
        FAIL("the queue does not empty");
    }
};

Numbers up_to(std::uint64_t count) {
    Numbers out(count);
    std::iota(out.begin(), out.end(), 0);
    return out;
}

}  // namespace

TEST_CASE("the_connections_of_a_runtimes_command_reach_the_core") {
    Link link(abi::Kind::Runtime);
    core::Deliver deliver;
    deliver.op = 1;
    deliver.activation = 4;
    REQUIRE(port::send(*link, deliver, 0) == Sent::Now);
    (*link).flush();
    auto& fbb = link.plugin->builder();
    const auto data = fbb.CreateVector(Bytes{1, 2});
    const auto also = fbb.CreateVector(Numbers{8, 9, 7});
    const std::vector commands{abi::CreateSocketCommand(fbb, 7, false, 0, true, data, also),
                               abi::CreateSocketCommand(fbb, 8, true, 1000)};
    const auto sockets = fbb.CreateVector(commands);
    abi::DeliveredBuilder table(fbb);
    table.add_activation(4);
    table.add_sockets(sockets);
    Lies lies;
    lies.reply_to = 1;
    REQUIRE(link.plugin->send(table.Finish(), lies));
    std::optional<core::Event> event;
    REQUIRE((*link)
                .drain(kBudget,
                       [&](const Received& record) {
                           event = port::to_event(Handle{1, kGeneration}, record);
                       })
                .ok());
    REQUIRE(event.has_value());
    const auto* answer = std::get_if<core::DeliveredIn>(&*event);
    REQUIRE(answer != nullptr);
    REQUIRE(answer->sockets.size() == 2);
    CHECK(answer->sockets[0].connection == 7);
    CHECK(answer->sockets[0].also == Numbers{8, 9, 7});
    CHECK(answer->sockets[0].data == Bytes{1, 2});
    CHECK(answer->sockets[0].binary);
    CHECK(answer->sockets[1].close);
    CHECK(answer->sockets[1].also.empty());
}

TEST_CASE("each_connection_of_a_message_gets_a_record_of_its_own_in_their_order") {
    Link link(abi::Kind::Gateway);
    CHECK(port::send(*link, message({5, 0, 7, 5}, {1, 2, 3})) == Sent::Now);
    CHECK(port::send(*link, message({}, {1})) == Sent::Now);
    CHECK(port::send(*link, message({0}, {})) == Sent::Now);
    CHECK(port::send(*link, core::CloseSocket{{}, 5, 1000, ""}) == Sent::Now);
    Heard heard;
    heard.read_all(link);
    CHECK(heard.connections == Numbers{5, 0, 7, 5, 0});
    CHECK(heard.sizes == std::vector<std::size_t>{3, 3, 3, 3, 0});
    CHECK(heard.closes == 1);
}

TEST_CASE("a_message_to_many_beyond_the_ring_waits_once_and_nothing_overtakes_it") {
    Link link(abi::Kind::Gateway);
    constexpr std::size_t kBytes = 40'000;
    constexpr std::uint64_t kMany = 200;  // 8 MB, sixteen times the ring
    CHECK(port::send(*link, message(up_to(kMany), Bytes(kBytes, 7))) == Sent::Queued);
    CHECK((*link).usage().queued_records == 1);
    CHECK((*link).usage().queued_bytes < kBytes + 512 + kMany * 8);
    CHECK(port::send(*link, message({1000, 1001}, {1})) == Sent::Queued);
    CHECK(port::send(*link, core::CloseSocket{{}, 5, 1000, ""}) == Sent::Queued);
    Heard heard;
    heard.read_all(link);
    Numbers expected = up_to(kMany);
    expected.insert(expected.end(), {1000, 1001});
    CHECK(heard.connections == expected);
    CHECK(heard.closes == 1);
    CHECK((*link).usage().queued_bytes == 0);
}

TEST_CASE("messages_to_many_for_a_gateway_that_does_not_read_are_bounded_in_memory") {
    Link link(abi::Kind::Gateway);
    const Bytes data(48U * 1024U, 7);
    std::size_t messages = 0;
    Sent sent = Sent::Now;
    while ((sent = port::send(*link, message(up_to(1000), data))) != Sent::Busy) ++messages;
    CHECK((*link).usage().queued_bytes <= 8U << 20U);
    CHECK(messages > 100);  // a copy for each connection would have been too much at the first
    CHECK((*link).usage().queued_records == messages);
    CHECK(port::send(*link, message({1}, Bytes(70'000, 1))) == Sent::TooLarge);
}
