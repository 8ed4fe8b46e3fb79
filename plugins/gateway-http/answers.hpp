// Which status and which words a client gets for what became of its request. Pure.
#pragma once

#include <cstdint>

#include "envelope_generated.h"
#include "plugins/gateway-http/counters.hpp"
#include "plugins/gateway-http/http_parse.hpp"
#include "plugins/gateway-http/http_write.hpp"
#include "plugins/gateway-http/route.hpp"
#include "plugins/gateway-http/upgrade.hpp"

namespace hf::gateway {

// An answer of the gateway itself, to a client or another node.
void write_answer(Bytes& out, const Framing& framing, const LocalAnswer& answer);

// The supervisor's answers as bytes.
struct Written {
    std::uint16_t status = 0;
    bool body_follows = false;  // its large body is to be sent behind it
};
// `large`: the size of the body that came beside it, 0: none did.
Written write_reply(Bytes& out,
                    const Framing& asked,
                    const abi::Reply& reply,
                    std::uint64_t large = 0);
// The status that was written.
std::uint16_t write_queried(Bytes& out, const Framing& framing, const abi::Queried& queried);

[[nodiscard]] LocalAnswer refused_route(const Route& route);
[[nodiscard]] LocalAnswer event_too_large();
[[nodiscard]] LocalAnswer durable_too_large();  // it has to fit the journal, and so a record
// 503 promises that the event did not and will not take effect; where that is not known it is 504.
[[nodiscard]] LocalAnswer no_answer();  // asked, and nothing came
[[nodiscard]] LocalAnswer no_credit();  // could not be asked in time
[[nodiscard]] LocalAnswer ends_now();   // not asked, and this process ends
[[nodiscard]] LocalAnswer no_room(std::string_view text);
[[nodiscard]] LocalAnswer refused_handshake(Handshake handshake, std::string_view why);
[[nodiscard]] LocalAnswer bad_handshake();                     // the actor's part of it
[[nodiscard]] LocalAnswer refused_call(std::string_view why);  // of another node
[[nodiscard]] Count count_of(const Refusal& refusal);

}  // namespace hf::gateway
