// Addresses to listen on. Literals only: a name would need a resolver in the supervisor and could change under it.
// Private to this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "agent/config/config.hpp"

namespace hf::config {

// A gateway hands each socket over at its start; eight cover two families on four networks.
inline constexpr std::size_t kEndpointsMax = 8;

// Appends the addresses of `text` ("host:port", or several joined by ',') to `list` and their canonical form to `shown`.
// Answers what is wrong, or nothing.
[[nodiscard]] std::string listen_into(std::string_view text,
                                      std::vector<Endpoint>& list,
                                      std::string& shown);

}  // namespace hf::config
