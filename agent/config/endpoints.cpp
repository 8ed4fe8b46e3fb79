#include "agent/config/endpoints.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace hf::config {

namespace {

// The literal in the one way the system itself prints it; empty when it is none.
[[nodiscard]] std::string canonical(int family, const std::string& host) {
    std::array<unsigned char, sizeof(in6_addr)> address{};
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (::inet_pton(family, host.c_str(), address.data()) != 1) return {};
    if (::inet_ntop(family, address.data(), text.data(), text.size()) == nullptr) return {};
    return text.data();
}

[[nodiscard]] std::string parse_one(std::string_view text, Endpoint& out) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return "has no port";
    std::string host(text.substr(0, colon));
    const std::string_view port = text.substr(colon + 1);
    unsigned number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number > 65535 ||
        (port.size() > 1 && port[0] == '0'))
        return "has no port from 0 to 65535 behind its last ':'";
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        out.host = canonical(AF_INET6, host.substr(1, host.size() - 2));
        if (out.host.empty()) return "has no IPv6 address between its brackets";
    } else {
        if (host.find(':') != std::string::npos)
            return "needs brackets around its IPv6 address, as in \"[::1]:8080\"";
        if (host == "localhost") host = "127.0.0.1";
        out.host = canonical(AF_INET, host);
        if (out.host.empty()) return "has no IP address (or localhost) before its port";
    }
    out.port = static_cast<std::uint16_t>(number);
    return {};
}

}  // namespace

std::string Endpoint::text() const {
    const bool six = host.find(':') != std::string::npos;
    return (six ? '[' + host + ']' : host) + ':' + std::to_string(port);
}

std::string listen_into(std::string_view text, std::vector<Endpoint>& list, std::string& shown) {
    for (bool more = true; more;) {
        const std::size_t comma = text.find(',');
        more = comma != std::string_view::npos;
        Endpoint one;
        if (std::string wrong = parse_one(text.substr(0, comma), one); !wrong.empty()) return wrong;
        if (one.port != 0 && std::find(list.begin(), list.end(), one) != list.end())
            return "is given twice";
        if (list.size() == kEndpointsMax) return "is one too many";
        shown += (list.empty() ? "" : ",") + one.text();
        list.push_back(std::move(one));
        if (more) text.remove_prefix(comma + 1);
    }
    return {};
}

}  // namespace hf::config
