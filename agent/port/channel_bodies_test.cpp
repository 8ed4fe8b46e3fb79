// Large bodies over a link: what an instance may name, and what it is given.
#include <fcntl.h>
#include <unistd.h>

#include <string_view>

#include "abi/ring/bodies.hpp"
#include "agent/port/channel_rig.hpp"

using namespace hf;
using namespace hf::port;

namespace {

constexpr std::string_view kText = "a body that is large, let us say";

UniqueFd file_of(bool sealed = true) {
    auto file = ring::make_body("hf-test-body");
    REQUIRE(file.ok());
    REQUIRE(ring::append_body(file->get(), kText.data(), kText.size()).ok());
    if (sealed) REQUIRE(ring::seal_body(file->get()).ok());
    return std::move(file).value();
}

struct BodyLink : Link {
    explicit BodyLink(abi::Kind kind) : Link(kind) {}
    void send_file(std::uint64_t token, const UniqueFd& file) const {
        REQUIRE(ring::send_body(plugin->control_fd(), {token, kText.size(), file.get()}) ==
                ring::BodySent::Yes);
    }
    // A gateway's request that names a body.
    void ask_with(std::uint64_t id,
                  std::uint64_t token,
                  std::uint64_t bytes = kText.size(),
                  bool durable = false) const {
        auto& fbb = plugin->builder();
        const auto name = fbb.CreateString("n");
        const auto event = fbb.CreateVector(Bytes(8, 1));
        Lies lies;
        lies.req_id = id;
        REQUIRE(plugin->send(abi::CreateRequest(fbb, name, name, event, 0, durable, token, bytes),
                             lies));
    }
    std::string take() {
        const auto result = channel->drain(
            kBudget, [this](const Received& received) { attached = received.attached; });
        return result ? "" : result.error().message;
    }
    Sent deliver(std::uint64_t id, const std::shared_ptr<const SealedBody>& body) const {
        auto& fbb = channel->builder();
        const auto event = fbb.CreateVector(Bytes(8, 1));
        const std::uint64_t token = channel->carry(body);
        return channel->request(
            id,
            abi::CreateDeliver(
                fbb, 1, nullptr, 1, abi::EventKind::Http, event, 0, token, body->bytes()),
            0,
            0);
    }
    std::shared_ptr<const SealedBody> attached;
};

}  // namespace

TEST_CASE("a request's body is handed over with it") {
    BodyLink link(abi::Kind::Gateway);
    link.send_file(1, file_of());
    link.ask_with(1, 1);
    CHECK(link.take() == "");
    REQUIRE(link.attached != nullptr);
    CHECK(link.attached->bytes() == kText.size());
    std::string text(kText.size(), '\0');
    CHECK(ring::read_body(link.attached->fd(), text.data(), text.size(), 0));
    CHECK(text == kText);
    link.ask_with(2, 0);
    CHECK(link.take() == "");
    CHECK(link.attached == nullptr);
}

TEST_CASE("a body that is none ends the link by name") {
    SUBCASE("never sent") {
        BodyLink link(abi::Kind::Gateway);
        link.ask_with(1, 1);
        CHECK(link.take() == "a large body's token without its descriptor");
    }
    SUBCASE("named twice") {
        BodyLink link(abi::Kind::Gateway);
        link.send_file(1, file_of());
        link.ask_with(1, 1);
        link.ask_with(2, 1);
        CHECK(link.take() == "a large body's token without its descriptor");
    }
    SUBCASE("not sealed") {
        BodyLink link(abi::Kind::Gateway);
        link.send_file(1, file_of(false));
        link.ask_with(1, 1);
        CHECK(link.take() == "a large body that is not sealed");
    }
    SUBCASE("of another size") {
        BodyLink link(abi::Kind::Gateway);
        link.send_file(1, file_of());
        link.ask_with(1, 1, kText.size() + 1);
        CHECK(link.take() == "a large body of another size than declared");
    }
    SUBCASE("no memory file") {
        BodyLink link(abi::Kind::Gateway);
        link.send_file(1, UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
        link.ask_with(1, 1);
        CHECK(link.take() == "a large body that is no memory file");
    }
    SUBCASE("of a durable request") {
        BodyLink link(abi::Kind::Gateway);
        link.send_file(1, file_of());
        link.ask_with(1, 1, kText.size(), true);
        CHECK(link.take() == "a durable request with a large body");
    }
}

TEST_CASE("an event's body reaches the instance before its record does") {
    BodyLink link(abi::Kind::Runtime);
    const auto body = std::make_shared<const SealedBody>(file_of(), kText.size());
    CHECK(link.deliver(1, body) == Sent::Now);
    CHECK(body.use_count() == 1);  // what is sent is not kept
    (*link).flush();
    const abi::Envelope* envelope = link.plugin->receive();
    REQUIRE(envelope != nullptr);
    const abi::Deliver* deliver = envelope->body_as_Deliver();
    REQUIRE(deliver->body_token() != 0);
    ring::BodyInbox inbox;
    UniqueFd got;
    CHECK(
        inbox.take(link.plugin->control_fd(), deliver->body_token(), deliver->body_bytes(), got) ==
        nullptr);
}

TEST_CASE("what waits for room keeps its body until it is sent") {
    BodyLink link(abi::Kind::Runtime);
    const auto body = std::make_shared<const SealedBody>(file_of(), kText.size());
    std::uint64_t id = 0;
    std::uint64_t in_ring = 0;
    while (link.deliver(++id, body) == Sent::Now) ++in_ring;
    CHECK(body.use_count() == 2);
    (*link).flush();
    ring::BodyInbox inbox;
    // Each answer gives its room to the one that waits.
    for (std::uint64_t n = 1; n <= id; ++n) {
        CAPTURE(n);
        const abi::Envelope* envelope = link.plugin->receive();
        REQUIRE(envelope != nullptr);
        const abi::Deliver* deliver = envelope->body_as_Deliver();
        UniqueFd got;
        CHECK(inbox.take(
                  link.plugin->control_fd(), deliver->body_token(), deliver->body_bytes(), got) ==
              nullptr);
        Lies lies;
        lies.reply_to = n;
        REQUIRE(link.plugin->send(abi::CreateDelivered(link.plugin->builder(), 1), lies));
        CHECK(link.take() == "");
        (*link).flush();
    }
    CHECK(body.use_count() == 1);
    CHECK((*link).open_requests().empty());
}

TEST_CASE("an answer has one body") {
    BodyLink link(abi::Kind::Runtime);
    const auto body = std::make_shared<const SealedBody>(file_of(), kText.size());
    REQUIRE(link.deliver(1, body) == Sent::Now);
    link.send_file(1, file_of());
    auto& fbb = link.plugin->builder();
    const auto small = fbb.CreateVector(Bytes(3, 1));
    abi::DeliveredBuilder answer(fbb);
    answer.add_reply_body(small);
    answer.add_body_token(1);
    answer.add_body_bytes(kText.size());
    Lies lies;
    lies.reply_to = 1;
    REQUIRE(link.plugin->send(answer.Finish(), lies));
    CHECK(link.take() == "an answer with two bodies");
}
