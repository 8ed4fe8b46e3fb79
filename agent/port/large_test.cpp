// States that no record holds, between the core's structs and the link: out to storage and runtime, and back.
#include "agent/port/large.hpp"

#include "abi/base/limits.hpp"
#include "abi/ring/bodies.hpp"
#include "agent/port/channel_rig.hpp"
#include "agent/port/translate.hpp"

using namespace hf;
using namespace hf::port;

namespace {

Bytes numbered(std::size_t size) {
    Bytes out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::uint8_t>(i * 7 + i / 251);
    return out;
}

// What the instance gets beside the record it read last.
Bytes beside(const Link& link, ring::BodyInbox& inbox, std::uint64_t token, std::uint64_t bytes) {
    UniqueFd file;
    REQUIRE(inbox.take(link.plugin->control_fd(), token, bytes, file) == nullptr);
    Bytes out(bytes);
    REQUIRE(ring::read_body(file.get(), out.data(), out.size(), 0));
    return out;
}

void answer_get(const Link& link, std::uint64_t id, BytesView body, std::uint64_t token) {
    auto file = ring::sealed_body("hf-test-object", body);
    REQUIRE(file.ok());
    REQUIRE(ring::send_body(link.plugin->control_fd(), {token, body.size(), file->get()}) ==
            ring::BodySent::Yes);
    auto& fbb = link.plugin->builder();
    Lies lies;
    lies.reply_to = id;
    REQUIRE(link.plugin->send(
        abi::CreateGot(fbb, abi::Outcome::Applied, 0, 0, nullptr, 0, token, body.size()), lies));
}

}  // namespace

TEST_CASE("an object goes to storage in the record up to the inline limit, and beside it above") {
    Link link(abi::Kind::Storage);
    ring::BodyInbox inbox;
    core::OpId op = 0;
    for (const std::size_t size : {std::size_t{0},
                                   kInlineObjectBytesMax,
                                   kInlineObjectBytesMax + 1,
                                   kRecordBytesMax,
                                   kObjectBytesMax}) {
        CAPTURE(size);
        core::StoreRequest put;
        put.op = ++op;
        put.verb = core::StoreVerb::Put;
        put.key = std::string(1000, 'k');
        put.etag = std::string(34, 'e');
        put.body = numbered(size);
        REQUIRE(send(*link, put) == Sent::Now);
        (*link).flush();
        const abi::Envelope* envelope = link.plugin->receive();
        REQUIRE(envelope != nullptr);
        const abi::Put* got = envelope->body_as_Put();
        const bool large = size > kInlineObjectBytesMax;
        CHECK((got->body_token() != 0) == large);
        CHECK(got->body_bytes() == (large ? size : 0));
        const Bytes body = large ? beside(link, inbox, got->body_token(), size)
                           : got->body() == nullptr
                               ? Bytes()
                               : Bytes(got->body()->begin(), got->body()->end());
        CHECK(body == put.body);
        Lies lies;
        lies.reply_to = op;
        REQUIRE(link.plugin->send(abi::CreateStored(link.plugin->builder(), abi::Outcome::Applied),
                                  lies));
        CHECK(link.rule() == "");
    }
}

TEST_CASE("an object comes from storage beside its record") {
    Link link(abi::Kind::Storage);
    const Bytes body = numbered(kObjectBytesMax);
    REQUIRE(link.get(1) == Sent::Now);
    answer_get(link, 1, body, 1);
    core::StoreAnswer answer;
    const auto drained = link.channel->drain(kBudget, [&](const Received& received) {
        auto event = to_event({}, received);
        REQUIRE(event.has_value());
        answer = std::get<core::StoreAnswer>(std::move(*event));
    });
    REQUIRE(drained.ok());
    CHECK(answer.outcome == core::Outcome::Applied);
    CHECK(answer.body == body);
}

TEST_CASE("an object larger than any ends the link by name, so does one with two bodies") {
    SUBCASE("too large") {
        Link link(abi::Kind::Storage);
        REQUIRE(link.get(1) == Sent::Now);
        answer_get(link, 1, Bytes(kObjectBytesMax + 1), 1);
        CHECK(link.rule() == "an object larger than any store keeps");
    }
    SUBCASE("two bodies") {
        Link link(abi::Kind::Storage);
        REQUIRE(link.get(1) == Sent::Now);
        auto& fbb = link.plugin->builder();
        const auto small = fbb.CreateVector(Bytes(3, 1));
        Lies lies;
        lies.reply_to = 1;
        REQUIRE(link.plugin->send(
            abi::CreateGot(fbb, abi::Outcome::Applied, small, 0, nullptr, 0, 1, 3), lies));
        CHECK(link.rule() == "an answer with two bodies");
    }
    SUBCASE("a state too large") {
        Link link(abi::Kind::Runtime);
        core::Checkpoint ask;
        ask.op = 1;
        REQUIRE(send(*link, ask) == Sent::Now);
        auto file = ring::sealed_body("hf-test-state", Bytes(kObjectBytesMax + 1));
        REQUIRE(file.ok());
        REQUIRE(ring::send_body(link.plugin->control_fd(), {1, kObjectBytesMax + 1, file->get()}) ==
                ring::BodySent::Yes);
        auto& fbb = link.plugin->builder();
        Lies lies;
        lies.reply_to = 1;
        REQUIRE(link.plugin->send(
            abi::CreateCheckpointed(fbb, 0, true, 0, 0, 1, kObjectBytesMax + 1), lies));
        CHECK(link.rule() == "an object larger than any store keeps");
    }
}

TEST_CASE("a state goes to its runtime beside the piece, and comes back from it") {
    Link link(abi::Kind::Runtime);
    ring::BodyInbox inbox;
    core::Activate activate;
    activate.op = 1;
    activate.unit = "actor/default/c/a";
    activate.class_name = "c";
    activate.name = "a";
    activate.activation = 7;
    activate.entries.push_back({5, true, numbered(3U << 20U)});
    REQUIRE(send(*link, activate, "default") == Sent::Now);
    (*link).flush();
    const abi::Envelope* envelope = link.plugin->receive();
    REQUIRE(envelope != nullptr);
    const abi::Activate* piece = envelope->body_as_Activate();
    REQUIRE(piece->entries()->size() == 1);
    CHECK(piece->entries()->Get(0)->base());
    CHECK(piece->entries()->Get(0)->changes() == nullptr);
    CHECK(beside(link, inbox, piece->body_token(), piece->body_bytes()) ==
          activate.entries.front().changes);
    Lies lies;
    lies.reply_to = 1;
    REQUIRE(link.plugin->send(abi::CreateActivated(link.plugin->builder(), 7), lies));
    CHECK(link.rule() == "");

    core::Checkpoint ask;
    ask.op = 2;
    ask.activation = 7;
    REQUIRE(send(*link, ask) == Sent::Now);
    const Bytes state = numbered(kStateBytesMax);
    auto file = ring::sealed_body("hf-test-state", state);
    REQUIRE(file.ok());
    REQUIRE(ring::send_body(link.plugin->control_fd(), {1, state.size(), file->get()}) ==
            ring::BodySent::Yes);
    lies.reply_to = 2;
    REQUIRE(link.plugin->send(
        abi::CreateCheckpointed(link.plugin->builder(), 7, true, 0, 0, 1, state.size()), lies));
    core::CheckpointedIn base;
    const auto drained = link.channel->drain(kBudget, [&](const Received& received) {
        auto event = to_event({}, received);
        REQUIRE(event.has_value());
        base = std::get<core::CheckpointedIn>(std::move(*event));
    });
    REQUIRE(drained.ok());
    CHECK(base.ok);
    CHECK(base.base == state);
}
