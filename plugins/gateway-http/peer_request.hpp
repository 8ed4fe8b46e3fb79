// A PeerCall as the HTTP request that it becomes, before it is signed. Pure. Responsible for that nothing of a call can be
// read as anything else on the wire: a name that is no field's, a value with a line end, an address that is none are refused.
#pragma once

#include <string>

#include "abi/base/result.hpp"
#include "envelope_generated.h"
#include "plugins/gateway-http/peer_text.hpp"

namespace hf::gateway {

struct PeerRequest {
    std::string url;     // of the other gateway, "http://host:port/"
    std::string method;  //
    std::string target;  // the request line's
    PeerFields headers;  // not those between nodes; Host is among them
    std::string body;    // what is in the record
    Origin origin;
};

// A failure is a sentence for whoever asked; nothing was sent.
[[nodiscard]] Result<PeerRequest> read_peer_call(const abi::PeerCall& call);
// "host:port", an address or a name.
[[nodiscard]] bool is_peer_address(std::string_view text);

}  // namespace hf::gateway
