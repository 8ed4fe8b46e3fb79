#include "plugins/gateway-http/route.hpp"

#include <array>

#include "abi/base/limits.hpp"

namespace hf::gateway {

namespace {

constexpr std::string_view kActorPrefix = "/actor/";
constexpr std::string_view kActorMethods = "GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS";
constexpr std::string_view kPageMethods = "GET, HEAD";

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// False: a '%' without two hex digits behind it.
bool percent_decode(std::string_view text, std::string& out) {
    out.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out.push_back(text[i]);
            continue;
        }
        if (text.size() - i < 3) return false;
        const int high = hex_value(text[i + 1]);
        const int low = hex_value(text[i + 2]);
        if (high < 0 || low < 0) return false;
        out.push_back(static_cast<char>(high * 16 + low));
        i += 2;
    }
    return true;
}

bool starts_with_scheme(std::string_view target, std::string_view scheme) {
    if (target.size() < scheme.size()) return false;
    for (std::size_t i = 0; i < scheme.size(); ++i)
        // Letters differ from their capitals by this bit; "://" has it set already.
        if ((target[i] | 0x20) != scheme[i]) return false;
    return true;
}

void refuse(Route& route,
            std::uint16_t status,
            std::string_view text,
            std::string_view allow = {}) {
    route.kind = RouteKind::Refused;
    route.status = status;
    route.text = text;
    route.allow = allow;
}

void find_actor(std::string_view rest, std::string_view tenant, Route& route) {
    const std::size_t class_end = rest.find('/');
    if (class_end == std::string_view::npos)
        return refuse(route, 404, "an actor's path is /actor/<class>/<name>");
    const std::string_view after = rest.substr(class_end + 1);
    const std::size_t name_end = after.find('/');
    const std::string_view name = after.substr(0, name_end);
    if (!percent_decode(rest.substr(0, class_end), route.class_name) ||
        !percent_decode(name, route.name))
        return refuse(route, 400, "a '%' in the path must be followed by two hex digits");
    if (route.class_name.empty()) return refuse(route, 400, "the actor's class is empty");
    if (route.name.empty()) return refuse(route, 400, "the actor's name is empty");
    // "actor/<tenant>/<class>/<name>", each part escaped by itself.
    constexpr std::size_t kFixed = std::string_view("actor///").size();
    if (kFixed + escaped_bytes(tenant) + escaped_bytes(route.class_name) +
            escaped_bytes(route.name) >
        kUnitBytesMax)
        return refuse(route,
                      400,
                      "class and name together are too long: tenant, class and name may take 392 "
                      "bytes, where any byte but A-Z a-z 0-9 _ - counts three");
    static_assert(kUnitBytesMax - kFixed == 392, "the sentence above names this number");
    route.kind = RouteKind::Actor;
    route.path =
        name_end == std::string_view::npos ? std::string_view("/") : after.substr(name_end);
}

}  // namespace

std::size_t escaped_bytes(std::string_view text) {
    std::size_t bytes = 0;
    for (const char c : text) {
        const bool plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                           (c >= '0' && c <= '9') || c == '_' || c == '-';
        bytes += plain ? 1 : 3;
    }
    return bytes;
}

bool split_target(std::string_view target, TargetParts& parts) {
    parts = {};
    if (target == "*") {
        parts.path = target;
        return true;
    }
    if (target.find('#') != std::string_view::npos) return false;
    std::string_view rest = target;
    if (rest.empty()) return false;
    if (rest.front() != '/') {
        for (const std::string_view scheme :
             {std::string_view("http://"), std::string_view("https://")}) {
            if (!starts_with_scheme(target, scheme)) continue;
            rest = target.substr(scheme.size());
            const std::size_t end = rest.find_first_of("/?");
            parts.authority = rest.substr(0, end);
            rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
            break;
        }
        // No user information: it would reach actors and logs.
        if (parts.authority.empty() || parts.authority.find('@') != std::string_view::npos)
            return false;
    }
    const std::size_t query = rest.find('?');
    parts.path = rest.substr(0, query);
    if (parts.path.empty()) parts.path = "/";
    if (query != std::string_view::npos) parts.query = rest.substr(query);
    return true;
}

void find_route(Method method, const TargetParts& parts, std::string_view tenant, Route& route) {
    route.query = parts.query;
    route.status = 0;
    if (method == Method::Unknown) return refuse(route, 501, "the method is not known here");
    if (parts.path == "*") {
        if (method != Method::Options)
            return refuse(route, 400, "the target \"*\" goes with OPTIONS only");
        route.kind = RouteKind::Options;
        route.allow = kActorMethods;
        return;
    }
    const bool actor = parts.path.starts_with(kActorPrefix);
    if (method == Method::NotAllowed)
        return refuse(
            route, 405, "the method is not allowed here", actor ? kActorMethods : kPageMethods);
    if (actor) return find_actor(parts.path.substr(kActorPrefix.size()), tenant, route);
    constexpr std::array<std::string_view, 3> kPages{"/healthz", "/readyz", "/metrics"};
    for (const std::string_view page : kPages) {
        if (parts.path != page) continue;
        if (method != Method::Get && method != Method::Head)
            return refuse(route, 405, "this page can only be read", kPageMethods);
        route.kind = RouteKind::Page;
        route.page = page.substr(1);
        return;
    }
    refuse(route, 404, "no such path; actors are at /actor/<class>/<name>");
}

}  // namespace hf::gateway
