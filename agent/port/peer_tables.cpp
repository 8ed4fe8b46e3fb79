#include "agent/port/peer_tables.hpp"

#include <string>
#include <utility>

#include "agent/port/translate.hpp"

namespace hf::port {

namespace {

std::string text(const flatbuffers::String* string) {
    return string == nullptr ? std::string() : string->str();
}

Bytes bytes(const flatbuffers::Vector<std::uint8_t>* vector) {
    return vector == nullptr ? Bytes() : Bytes(vector->begin(), vector->end());
}

// SAFETY of the casts between them: both enums list the same in the same order, asserted here.
static_assert(static_cast<int>(core::PeerAsk::Request) == static_cast<int>(abi::PeerAsk::Request));
static_assert(static_cast<int>(core::PeerAsk::Alarm) == static_cast<int>(abi::PeerAsk::Alarm));
static_assert(abi::PeerAsk::MAX == abi::PeerAsk::Alarm);
static_assert(static_cast<int>(core::ReplyReason::Internal) ==
              static_cast<int>(abi::ReplyReason::Internal));

core::PeerOutcome outcome_of(abi::PeerOutcome outcome) {
    switch (outcome) {
        case abi::PeerOutcome::Answered:
            return core::PeerOutcome::Answered;
        case abi::PeerOutcome::NotSent:
            return core::PeerOutcome::NotSent;
        case abi::PeerOutcome::Unknown:
            break;
    }
    return core::PeerOutcome::
        Unknown;  // also what a number outside the enum means: nothing is proven
}

}  // namespace

std::optional<core::PeerOrigin> origin_from(const abi::PeerOrigin& table) {
    if (table.ask() > abi::PeerAsk::MAX) return std::nullopt;
    core::PeerOrigin origin;
    origin.node = text(table.node());
    origin.ask = static_cast<core::PeerAsk>(table.ask());
    if (table.chain() != nullptr) {
        for (const auto* unit : *table.chain()) origin.chain.push_back(text(unit));
    }
    origin.source = text(table.source());
    origin.n = table.n();
    origin.http = table.http();
    origin.last = table.last();
    origin.due_ms = table.due_ms();
    origin.nonce = table.nonce();
    return origin;
}

flatbuffers::Offset<abi::PeerOrigin> origin_of(flatbuffers::FlatBufferBuilder& fbb,
                                               const core::PeerOrigin& origin) {
    const auto node = fbb.CreateString(origin.node);
    const auto chain = origin.chain.empty() ? 0 : fbb.CreateVectorOfStrings(origin.chain);
    const auto source = origin.source.empty() ? 0 : fbb.CreateString(origin.source);
    return abi::CreatePeerOrigin(fbb,
                                 node,
                                 static_cast<abi::PeerAsk>(origin.ask),
                                 chain,
                                 source,
                                 origin.n,
                                 origin.http,
                                 origin.last,
                                 origin.due_ms,
                                 origin.nonce);
}

core::Event peer_replied(Handle from, const Received& record) {
    const auto& table = record.as<abi::PeerReplied>();
    core::PeerRepliedIn event;
    event.from = from;
    event.op = record.reply_to;
    event.outcome = outcome_of(table.outcome());
    event.reply.status = table.status();
    // A reason that this version does not know is still an answer.
    event.reply.reason = table.reason() > abi::ReplyReason::MAX
                             ? core::ReplyReason::Internal
                             : static_cast<core::ReplyReason>(table.reason());
    event.reply.retry_after_ms = table.retry_after_ms();
    event.reply.headers = bytes(table.headers());
    event.reply.body = bytes(table.body());
    event.reply.text = text(table.text());
    event.reply.attached = record.attached;
    return event;
}

Sent send(Channel& channel, const core::PeerCall& action) {
    auto& fbb = channel.builder();
    const auto peer = fbb.CreateString(action.address);
    const auto target = fbb.CreateString(action.target);
    const auto class_name = fbb.CreateString(action.class_name);
    const auto name = fbb.CreateString(action.name);
    const auto event =
        action.event.empty() ? 0 : fbb.CreateVector(action.event.data(), action.event.size());
    const auto origin = origin_of(fbb, action.origin);
    std::uint64_t token = 0;
    std::uint64_t size = 0;
    if (action.attached != nullptr) {
        // SAFETY: the core only has handles that to_event gave it, which are of this class.
        token = channel.carry(std::static_pointer_cast<const SealedBody>(action.attached));
        size = action.attached->bytes();
    }
    return channel.request(
        action.op,
        abi::CreatePeerCall(fbb, peer, target, class_name, name, event, origin, token, size),
        action.deadline,
        action.trace);
}

}  // namespace hf::port
