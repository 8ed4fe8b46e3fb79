// What nodes ask of each other over a gateway's link: nothing of it is lost or made up on the way.
#include "agent/port/peer_tables.hpp"

#include "abi/ring/bodies.hpp"
#include "agent/port/channel_rig.hpp"
#include "agent/port/translate.hpp"

using namespace hf;
using namespace hf::port;

namespace {

constexpr Handle kGateway{1, kGeneration};

core::PeerOrigin origin() {
    core::PeerOrigin out;
    out.node = "n1";
    out.ask = core::PeerAsk::Call;
    out.chain = {"actor/t/c/a", "actor/t/c/b"};
    out.source = "actor/t/c/s";
    out.n = 7;
    out.http = true;
    out.last = true;
    out.due_ms = 1'700'000'000'000;
    out.nonce = 9;
    return out;
}

void same(const core::PeerOrigin& one, const core::PeerOrigin& other) {
    CHECK(one.node == other.node);
    CHECK(one.ask == other.ask);
    CHECK(one.chain == other.chain);
    CHECK(one.source == other.source);
    CHECK(one.n == other.n);
    CHECK(one.http == other.http);
    CHECK(one.last == other.last);
    CHECK(one.due_ms == other.due_ms);
    CHECK(one.nonce == other.nonce);
}

UniqueFd file_of(std::string_view text) {
    auto file = ring::make_body("hf-test-body");
    REQUIRE(file.ok());
    REQUIRE(ring::append_body(file->get(), text.data(), text.size()).ok());
    REQUIRE(ring::seal_body(file->get()).ok());
    return std::move(file).value();
}

// The one event that what the gateway sent means.
std::optional<core::Event> heard(const Link& link) {
    std::optional<core::Event> event;
    REQUIRE((*link)
                .drain(kBudget, [&](const Received& record) { event = to_event(kGateway, record); })
                .ok());
    return event;
}

Sent call(const Link& link, core::OpId op, core::AttachmentRef attached = nullptr) {
    core::PeerCall action;
    action.op = op;
    action.address = "10.0.0.2:8080";
    action.target = "n2";
    action.class_name = "counter";
    action.name = "alice";
    action.event = {1, 2, 3};
    action.origin = origin();
    action.deadline = 77;
    action.trace = 5;
    action.attached = std::move(attached);
    return port::send(*link, action);
}

}  // namespace

TEST_CASE("a_call_to_another_node_reaches_the_gateway_whole") {
    Link link(abi::Kind::Gateway);
    REQUIRE(call(link, 3) == Sent::Now);
    (*link).flush();
    const abi::Envelope* envelope = link.plugin->receive();
    REQUIRE(envelope != nullptr);
    CHECK(envelope->deadline_ns() == 77);
    CHECK(envelope->trace_id() == 5);
    const abi::PeerCall* told = envelope->body_as_PeerCall();
    REQUIRE(told != nullptr);
    CHECK(told->peer()->str() == "10.0.0.2:8080");
    CHECK(told->target()->str() == "n2");
    CHECK(told->class_name()->str() == "counter");
    CHECK(told->name()->str() == "alice");
    REQUIRE(told->event() != nullptr);
    CHECK(Bytes(told->event()->begin(), told->event()->end()) == Bytes{1, 2, 3});
    CHECK(told->body_token() == 0);
    REQUIRE(told->origin() != nullptr);
    const auto back = origin_from(*told->origin());
    REQUIRE(back.has_value());
    same(*back, origin());
}

TEST_CASE("a_large_body_goes_beside_the_call_and_comes_beside_its_answer") {
    constexpr std::string_view kText = "a body that is large, let us say";
    Link link(abi::Kind::Gateway);
    REQUIRE(call(link, 3, std::make_shared<const SealedBody>(file_of(kText), kText.size())) ==
            Sent::Now);
    (*link).flush();
    const abi::Envelope* envelope = link.plugin->receive();
    REQUIRE(envelope != nullptr);
    const abi::PeerCall* told = envelope->body_as_PeerCall();
    REQUIRE(told->body_token() != 0);
    CHECK(told->body_bytes() == kText.size());
    ring::BodyInbox inbox;
    UniqueFd got;
    CHECK(inbox.take(link.plugin->control_fd(), told->body_token(), told->body_bytes(), got) ==
          nullptr);

    const UniqueFd answer = file_of(kText);
    REQUIRE(ring::send_body(link.plugin->control_fd(), {1, kText.size(), answer.get()}) ==
            ring::BodySent::Yes);
    abi::PeerRepliedBuilder table(link.plugin->builder());
    table.add_status(200);
    table.add_body_token(1);
    table.add_body_bytes(kText.size());
    Lies lies;
    lies.reply_to = 3;
    REQUIRE(link.plugin->send(table.Finish(), lies));
    const auto event = heard(link);
    REQUIRE(event.has_value());
    const auto* replied = std::get_if<core::PeerRepliedIn>(&*event);
    REQUIRE(replied != nullptr);
    CHECK(replied->op == 3);
    REQUIRE(replied->reply.attached != nullptr);
    CHECK(replied->reply.attached->bytes() == kText.size());
}

TEST_CASE("an_answer_with_two_bodies_or_a_body_that_never_came_ends_the_link") {
    Link link(abi::Kind::Gateway);
    REQUIRE(call(link, 3) == Sent::Now);
    auto& fbb = link.plugin->builder();
    Lies lies;
    lies.reply_to = 3;
    SUBCASE("two") {
        const UniqueFd file = file_of("x");
        REQUIRE(ring::send_body(link.plugin->control_fd(), {1, 1, file.get()}) ==
                ring::BodySent::Yes);
        const auto body = fbb.CreateVector(Bytes{1});
        REQUIRE(link.plugin->send(
            abi::CreatePeerReplied(
                fbb, abi::PeerOutcome::Answered, 200, abi::ReplyReason::Ok, 0, 0, body, 0, 1, 1),
            lies));
        CHECK(link.rule() == "an answer with two bodies");
    }
    SUBCASE("none") {
        REQUIRE(link.plugin->send(
            abi::CreatePeerReplied(
                fbb, abi::PeerOutcome::Answered, 200, abi::ReplyReason::Ok, 0, 0, 0, 0, 1, 1),
            lies));
        CHECK(link.rule() == "a large body's token without its descriptor");
    }
}

TEST_CASE("what_became_of_a_call_is_never_made_better_than_it_was") {
    const auto reply = [](abi::PeerOutcome outcome, abi::ReplyReason reason) {
        Link link(abi::Kind::Gateway);
        REQUIRE(call(link, 3) == Sent::Now);
        auto& fbb = link.plugin->builder();
        const auto headers = fbb.CreateVector(Bytes{1});
        const auto body = fbb.CreateVector(Bytes{2, 3});
        const auto text = fbb.CreateString("why");
        Lies lies;
        lies.reply_to = 3;
        REQUIRE(link.plugin->send(
            abi::CreatePeerReplied(fbb, outcome, 503, reason, 1000, headers, body, text), lies));
        const auto event = heard(link);
        REQUIRE(event.has_value());
        REQUIRE(std::holds_alternative<core::PeerRepliedIn>(*event));
        return std::get<core::PeerRepliedIn>(*event);
    };
    const auto answered = reply(abi::PeerOutcome::Answered, abi::ReplyReason::Unavailable);
    CHECK(answered.op == 3);
    CHECK(answered.from == kGateway);
    CHECK(answered.outcome == core::PeerOutcome::Answered);
    CHECK(answered.reply.status == 503);
    CHECK(answered.reply.reason == core::ReplyReason::Unavailable);
    CHECK(answered.reply.retry_after_ms == 1000);
    CHECK(answered.reply.headers == Bytes{1});
    CHECK(answered.reply.body == Bytes{2, 3});
    CHECK(answered.reply.text == "why");
    CHECK(reply(abi::PeerOutcome::NotSent, abi::ReplyReason::Ok).outcome ==
          core::PeerOutcome::NotSent);
    CHECK(reply(abi::PeerOutcome::Unknown, abi::ReplyReason::Ok).outcome ==
          core::PeerOutcome::Unknown);
    // Numbers outside of the enumerations.
    CHECK(reply(static_cast<abi::PeerOutcome>(9), abi::ReplyReason::Ok).outcome ==
          core::PeerOutcome::Unknown);
    CHECK(reply(abi::PeerOutcome::Answered, static_cast<abi::ReplyReason>(99)).reply.reason ==
          core::ReplyReason::Internal);
}

TEST_CASE("a_request_that_another_node_passed_on_says_so") {
    const auto request = [](const core::PeerOrigin* from, abi::PeerAsk ask) {
        Link link(abi::Kind::Gateway);
        auto& fbb = link.plugin->builder();
        const auto name = fbb.CreateString("n");
        const auto event = fbb.CreateVector(Bytes(8, 1));
        flatbuffers::Offset<abi::PeerOrigin> table;
        if (from != nullptr) {
            core::PeerOrigin asked = *from;
            asked.ask = static_cast<core::PeerAsk>(ask);
            table = origin_of(fbb, asked);
        }
        Lies lies;
        lies.req_id = 1;
        REQUIRE(link.plugin->send(abi::CreateRequest(fbb, name, name, event, 0, false, 0, 0, table),
                                  lies));
        auto out = heard(link);
        REQUIRE(out.has_value());
        return *out;
    };
    const core::PeerOrigin asked = origin();
    const auto passed = request(&asked, abi::PeerAsk::Call);
    REQUIRE(std::holds_alternative<core::RequestIn>(passed));
    REQUIRE(std::get<core::RequestIn>(passed).origin.has_value());
    same(*std::get<core::RequestIn>(passed).origin, origin());
    const auto own = request(nullptr, abi::PeerAsk::Request);
    REQUIRE(std::holds_alternative<core::RequestIn>(own));
    CHECK_FALSE(std::get<core::RequestIn>(own).origin.has_value());
    CHECK(std::holds_alternative<core::Violated>(request(&asked, static_cast<abi::PeerAsk>(77))));
}

TEST_CASE("a_listing_tells_the_stores_own_times") {
    Link link(abi::Kind::Storage);
    core::StoreRequest list;
    list.verb = core::StoreVerb::List;
    list.op = 4;
    list.key = "nodes/";
    list.limit = 10;
    REQUIRE(port::send(*link, list) == Sent::Now);
    auto& fbb = link.plugin->builder();
    const std::vector objects{
        abi::CreateObjectDirect(fbb, "nodes/a", 5, "\"e\"", 1'700'000'000'123)};
    Lies lies;
    lies.reply_to = 4;
    REQUIRE(link.plugin->send(
        abi::CreateListed(
            fbb, abi::Outcome::Applied, fbb.CreateVector(objects), false, 1'700'000'001'000),
        lies));
    const auto event = heard(link);
    REQUIRE(event.has_value());
    const auto* answer = std::get_if<core::StoreAnswer>(&*event);
    REQUIRE(answer != nullptr);
    REQUIRE(answer->objects.size() == 1);
    CHECK(answer->objects[0].modified_ms == 1'700'000'000'123);
    CHECK(answer->store_time_ms == 1'700'000'001'000);
}
