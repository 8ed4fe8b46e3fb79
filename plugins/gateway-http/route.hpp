// Which part of the node a request is for, from method and target alone. Pure: no connection, no buffer but the caller's.
// /actor/<class>/<name>[/path][?query] is an actor, /healthz /readyz /metrics are the supervisor's pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "plugins/gateway-http/method.hpp"

namespace hf::gateway {

// What request line and Host say about the target: origin form, absolute form or "*".
struct TargetParts {
    std::string_view authority;  // absolute form only
    std::string_view path;       // "/" at least, or "*"
    std::string_view query;      // with its '?', empty when absent
};

// False: neither origin form, absolute form with http or https, nor "*".
[[nodiscard]] bool split_target(std::string_view target, TargetParts& parts);

enum class RouteKind : std::uint8_t { Actor, Page, Options, Refused };

struct Route {
    RouteKind kind = RouteKind::Refused;
    std::string class_name;    // Actor: percent-decoded
    std::string name;          // Actor: percent-decoded, any bytes
    std::string_view path;     // Actor: what follows the name as sent, "/" at least
    std::string_view query;    // as sent, with its '?'
    std::string_view page;     // Page: "healthz", "readyz" or "metrics"
    std::uint16_t status = 0;  // Refused
    std::string_view text;     // Refused: one sentence
    std::string_view allow;    // Refused with 405: the methods that are allowed
};

// Bytes of the unit's escaped spelling: A-Za-z0-9_- count one, every other byte three.
[[nodiscard]] std::size_t escaped_bytes(std::string_view text);

// `tenant` counts towards the unit's length. Fills `route`, whose strings keep their capacity between calls; its views
// point into `parts`.
void find_route(Method method, const TargetParts& parts, std::string_view tenant, Route& route);

}  // namespace hf::gateway
