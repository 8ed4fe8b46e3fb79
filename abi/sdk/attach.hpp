// Receives the attach message on the control socket and maps the link. No more than that.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "abi/layout/segment.hpp"
#include "abi/ring/endpoint.hpp"

namespace hf::sdk {

// What a plugin is given. `facts_in` is S's line, `facts_out` P's; both are checked and copied.
struct Attachment {
    layout::ConstLine facts_in{};
    layout::ConstLine facts_out{};
    ring::EndpointParts parts;
    std::vector<std::pair<std::string, UniqueFd>> extras;
};

// Waits for the message. PeerGone when the supervisor closed its end first.
Result<Attachment> receive_attachment(int control_fd);

}  // namespace hf::sdk
