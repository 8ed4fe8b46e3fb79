// Addresses to listen on, which are literals: a name would need a resolver in the supervisor and could change under it. And
// those that others are told, which may be names.
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

// The text of one address where other machines reach this one: "host:port", host an IP literal or a name, port not 0.
// Answers what is wrong, or nothing and its canonical form in `shown`.
[[nodiscard]] std::string address_into(std::string_view text, std::string& shown);

// 0.0.0.0 and ::, on which one may listen and which nobody can reach.
[[nodiscard]] bool is_unspecified(const Endpoint& endpoint);

}  // namespace hf::config
