// Which calls of other nodes are let in. Responsible for that each was signed with the cluster's secret, is for this node, is
// fresh, and is used once; for what is wrong with one that is not, in words. Not for connections, nor for what a call does.
//
// The numbers of calls that were used live in this process. After a restart one of before could be used again, so what was
// signed before this process began is stale, too: a node whose clock is behind by some seconds is refused for as many.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plugins/gateway-http/http_parse.hpp"
#include "plugins/gateway-http/once_table.hpp"
#include "plugins/gateway-http/peer_text.hpp"

namespace hf::gateway {

// Whom a socket to listen on is for.
enum class DoorFor : std::uint8_t {
    Everybody,  // clients, and other nodes where there is a secret
    Clients,    // there is another one for nodes
    Nodes,
};

// A request that says that a node sent it. Nothing of it is to be believed before PeerDoor::check.
class PeerClaim {
public:
    [[nodiscard]] static bool is_made_by(const Head& head);
    // `head` is not needed afterwards.
    explicit PeerClaim(const Head& head);

    // What its body will be: decides where the body goes, and is checked with the rest.
    [[nodiscard]] abi::PeerAsk ask() const { return ask_; }
    // The body, as it comes.
    void add_body(BytesView bytes) { body_.add(bytes); }

private:
    friend class PeerDoor;
    std::string method_;
    std::string target_;
    std::string signature_;
    PeerFields fields_;  // those between nodes
    std::string fields_sha256_;
    bool twice_ = false;  // one of them is there more than once
    abi::PeerAsk ask_ = abi::PeerAsk::Request;
    Sha256 body_;
};

class PeerDoor {
public:
    static constexpr std::int64_t kSkewMs = 30'000;

    struct Facts {
        std::string secret;  // empty: this node takes no calls from others
        std::string node;
        std::string tenant;
        std::string app;
        std::int64_t started_ms = 0;  // Unix, of this process
    };
    struct Verdict {
        std::string refused;  // empty: it is let in
        bool full = false;    // refused for want of room, not for what it is
        Origin origin;
        std::int64_t deadline_ms = 0;  // from now on
    };

    explicit PeerDoor(Facts facts) : facts_(std::move(facts)) {}
    [[nodiscard]] bool has_secret() const { return !facts_.secret.empty(); }
    // What a request is told that came to the wrong socket, whatever it says; empty: it may go on.
    [[nodiscard]] std::string_view wrong_door(DoorFor door, bool claims) const;
    // With all of the body. A claim is checked once.
    [[nodiscard]] Verdict check(PeerClaim& claim, std::int64_t unix_ms, std::int64_t now_ns);

private:
    Facts facts_;
    OnceTable used_;
};

}  // namespace hf::gateway
