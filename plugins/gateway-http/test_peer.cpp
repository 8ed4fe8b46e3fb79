// The part of TestSupervisor that asks other nodes.
#include <algorithm>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/ring/bodies.hpp"
#include "plugins/gateway-http/test_supervisor.hpp"

namespace hf::gateway {

namespace {

// Apart from those of Configure.
constexpr std::uint64_t kFirst = 1000;
constexpr std::int64_t kNsPerMs = 1'000'000;

}  // namespace

std::string describe_origin(const abi::PeerOrigin& origin) {
    constexpr const char* kAsks[] = {"request", "call", "message", "settled", "alarm"};
    std::string text = kAsks[static_cast<std::size_t>(origin.ask())];
    text += " of " + origin.node()->str();
    if (origin.chain() != nullptr)
        for (const auto* unit : *origin.chain()) text += ", for " + unit->str();
    if (origin.source() != nullptr)
        text += ", source " + origin.source()->str() + ", n " + std::to_string(origin.n());
    if (origin.http()) text += ", http";
    if (origin.last()) text += ", last";
    if (origin.due_ms() != 0)
        text += ", due " + std::to_string(origin.due_ms()) + ", nonce " +
                std::to_string(origin.nonce());
    return text;
}

std::uint64_t TestSupervisor::call_peer(PeerAsked asked) {
    const std::uint64_t number = kFirst + peer_calls_++;
    command([this, number, asked = std::move(asked)] {
        auto& fbb = channel_->builder();
        const auto peer = fbb.CreateString(asked.peer);
        const auto target = fbb.CreateString(asked.target);
        const auto class_name = fbb.CreateString(asked.class_name);
        const auto name = fbb.CreateString(asked.name);
        const auto event = fbb.CreateVector(asked.event.data(), asked.event.size());
        const auto node = fbb.CreateString(options_.node);
        const auto chain = fbb.CreateVectorOfStrings(asked.chain);
        const auto source = asked.source.empty() ? flatbuffers::Offset<flatbuffers::String>()
                                                 : fbb.CreateString(asked.source);
        const auto origin = abi::CreatePeerOrigin(fbb,
                                                  node,
                                                  asked.ask,
                                                  chain,
                                                  source,
                                                  asked.n,
                                                  asked.http,
                                                  asked.last,
                                                  asked.due_ms,
                                                  asked.nonce);
        std::uint64_t token = 0;
        if (!asked.large.empty()) {
            auto file = ring::sealed_body("hf-test-call", as_bytes(asked.large));
            HF_CHECK(file.ok(), "a test needs memory");
            token = channel_->carry(std::make_shared<const port::SealedBody>(
                std::move(file).value(), asked.large.size()));
        }
        const auto sent = channel_->request(
            number,
            abi::CreatePeerCall(
                fbb, peer, target, class_name, name, event, origin, token, asked.large.size()),
            monotonic_ns() + asked.within_ms * kNsPerMs,
            0);
        HF_CHECK(sent == port::Sent::Now || sent == port::Sent::Queued, "a call fits");
    });
    return number;
}

void TestSupervisor::handle_peer_replied(const port::Received& received) {
    const auto& replied = received.as<abi::PeerReplied>();
    PeerSaid said;
    said.outcome = replied.outcome();
    said.status = replied.status();
    said.reason = replied.reason();
    said.retry_after_ms = replied.retry_after_ms();
    if (replied.text() != nullptr) said.text = replied.text()->str();
    if (replied.body() != nullptr)
        said.body = as_text(BytesView(replied.body()->data(), replied.body()->size()));
    if (replied.headers() != nullptr) {
        FlatReader reader(BytesView(replied.headers()->data(), replied.headers()->size()));
        std::string_view name;
        std::string_view value;
        while (!reader.done()) {
            HF_CHECK(reader.field(name) && reader.field(value), "the headers are well-formed");
            said.headers.emplace(name, value);
        }
    }
    if (received.attached) {
        said.large = true;
        said.body.resize(received.attached->bytes());
        HF_CHECK(ring::read_body(received.attached->fd(), said.body.data(), said.body.size(), 0),
                 "a large body can be read");
    }
    const std::lock_guard lock(mutex_);
    seen_.said.emplace(received.reply_to, std::move(said));
}

TestSupervisor::PeerSaid TestSupervisor::peer_said(std::uint64_t number) {
    const bool came = wait_until([&](const Seen& seen) { return seen.said.contains(number); },
                                 std::chrono::seconds(20));
    HF_CHECK(came, "every call is answered");
    return seen().said.at(number);
}

}  // namespace hf::gateway
