// A call of another node on a connection: taken at its head for what it says it is, and let in or refused when all of it is here
// (part of Connection).
#include <algorithm>
#include <utility>

#include "abi/base/clock.hpp"
#include "plugins/gateway-http/answers.hpp"
#include "plugins/gateway-http/connection.hpp"
#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/server.hpp"

namespace hf::gateway {

namespace {

// Beside a whole event a record holds names and envelope, and so much of what nodes say to each other.
constexpr std::size_t kOriginBytesMax = 2048;

std::size_t bytes_of(const Origin& origin) {
    constexpr std::size_t kEach = 16;  // length, offset, padding
    std::size_t bytes = origin.node.size() + origin.source.size();
    for (const std::string& unit : origin.chain) bytes += unit.size() + kEach;
    return bytes;
}

}  // namespace

// What is no client's request is its actor's event as it is, and so its body.
bool Connection::is_raw() const {
    return claim_ != nullptr && claim_->ask() != abi::PeerAsk::Request;
}

// False: it may not come by this socket, or is too large for a client's, and was answered.
bool Connection::come_in() {
    const Head& head = server_.head();
    const bool claims = PeerClaim::is_made_by(head);
    claim_.reset();
    if (claims) {
        claim_ = std::make_unique<PeerClaim>(head);
        framing_.peer = claim_->ask();
    } else if (parser_.narrow(head) == Parsed::Refused) {
        refuse();
        return false;
    }
    if (const std::string_view why = server_.peers().wrong_door(door_, claims); !why.empty()) {
        refuse_call(why);
        return false;
    }
    // What this process knows of used calls ends with it, so it takes none beside its successor.
    if (claims && server_.sheds()) {
        answer_early(ends_now());
        return false;
    }
    return true;
}

void Connection::refuse_call(std::string_view why) {
    server_.counters().add(Count::PeerCallsRefused);
    answer_early(refused_call(why));
}

// With all of the request. False: it was answered, and its places are to be given back.
bool Connection::is_let_in(Draft& draft) {
    if (claim_ == nullptr) return true;
    PeerDoor::Verdict verdict = server_.peers().check(*claim_, wall_ms(), monotonic_ns());
    const bool alarm = claim_->ask() == abi::PeerAsk::Alarm;
    if (verdict.refused.empty() && alarm && !read_alarm(draft.event, verdict.origin))
        verdict.refused = "an alarm's body begins with when it is due and its number";
    if (!verdict.refused.empty()) {
        server_.counters().add(Count::PeerCallsRefused);
        answer_locally(verdict.full ? no_room(verdict.refused) : refused_call(verdict.refused));
        return false;
    }
    if (alarm) draft.event.erase(draft.event.begin(), draft.event.begin() + kAlarmBytes);
    if (draft.event.size() + bytes_of(verdict.origin) > kEventBytesMax + kOriginBytesMax) {
        answer_locally(event_too_large());
        return false;
    }
    server_.counters().add(Count::PeerCallsTaken);
    draft.origin = std::move(verdict.origin);
    call_ms_ = std::max<std::int64_t>(1, verdict.deadline_ms);
    return true;
}

}  // namespace hf::gateway
