#include "plugins/gateway-http/peer_door.hpp"

#include <algorithm>

namespace hf::gateway {

namespace {

PeerDoor::Verdict refuse(std::string why) {
    PeerDoor::Verdict verdict;
    verdict.refused = std::move(why);
    return verdict;
}

}  // namespace

bool PeerClaim::is_made_by(const Head& head) {
    return std::any_of(head.fields.begin(), head.fields.end(), [](const Field& field) {
        return field.name == kPeerSignature;
    });
}

PeerClaim::PeerClaim(const Head& head) : method_(head.method_text), target_(head.target) {
    PeerFields others;
    for (const Field& field : head.fields) {
        if (!field.name.starts_with(kPeerPrefix)) {
            others.emplace_back(field.name, field.value);
            continue;
        }
        const bool known = std::any_of(fields_.begin(), fields_.end(), [&](const auto& other) {
            return other.first == field.name;
        });
        twice_ = twice_ || known;
        fields_.emplace_back(field.name, field.value);
        if (field.name == kPeerSignature) signature_ = field.value;
        if (field.name == std::string(kPeerPrefix) + "ask") ask_ = ask_of(field.value);
    }
    fields_sha256_ = fields_digest(others);
}

std::string_view PeerDoor::wrong_door(DoorFor door, bool claims) const {
    if (claims && !has_secret()) return "this node takes no calls from others";
    if (claims && door == DoorFor::Clients)
        return "calls between nodes are taken at this node's cluster address only";
    if (!claims && door == DoorFor::Nodes) return "this address takes calls between nodes only";
    return {};
}

PeerDoor::Verdict PeerDoor::check(PeerClaim& claim, std::int64_t unix_ms, std::int64_t now_ns) {
    if (!has_secret()) return refuse("this node takes no calls from others");
    const std::string text =
        canonical_text(claim.method_, claim.target_, claim.fields_, claim.body_.hex_digest());
    if (claim.twice_ || !is_signature(claim.signature_, facts_.secret, text))
        return refuse("the signature is not of this cluster's secret");
    PeerFacts facts;
    const std::string_view broken = read_peer_fields(claim.fields_, facts);
    if (!facts.fields_sha256.empty() && facts.fields_sha256 != claim.fields_sha256_)
        return refuse("a header field is not as it was signed");
    if (facts.target != facts_.node)
        return refuse("this is node " + facts_.node + ", not " + facts.target);
    if (facts.tenant != facts_.tenant || facts.app != facts_.app)
        return refuse("this node serves tenant " + facts_.tenant + " and app " + facts_.app +
                      ", not tenant " + facts.tenant + " and app " + facts.app);
    if (!broken.empty()) return refuse(std::string(broken));
    const bool is_request = facts.origin.ask == abi::PeerAsk::Request;
    if (!is_request && claim.method_ != "POST")
        return refuse("what is not a client's request is sent as POST");
    const std::int64_t skew =
        facts.time_ms > unix_ms ? facts.time_ms - unix_ms : unix_ms - facts.time_ms;
    if (skew > kSkewMs)
        return refuse("it was signed " + std::to_string(skew / 1000) + " s " +
                      (facts.time_ms > unix_ms ? "ahead of" : "behind") +
                      " this node's clock; 30 s are allowed");
    if (facts.time_ms < facts_.started_ms)
        return refuse(
            "it was signed before this gateway began, which cannot know whether it was used");
    switch (used_.use(facts.once, now_ns)) {
        case OnceTable::Seen::First:
            break;
        case OnceTable::Seen::Before:
            return refuse("it was used before");
        case OnceTable::Seen::Full: {
            Verdict verdict =
                refuse("65536 calls of other nodes came within a minute; nothing was done");
            static_assert(OnceTable::kMost == 65536, "the sentence names this number");
            verdict.full = true;
            return verdict;
        }
    }
    return {{}, false, std::move(facts.origin), facts.deadline_ms};
}

}  // namespace hf::gateway
