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

// Host as written and port; answers what is wrong.
[[nodiscard]] std::string split(std::string_view text, std::string& host, std::uint16_t& port) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return "has no port";
    host = text.substr(0, colon);
    const std::string_view digits = text.substr(colon + 1);
    unsigned number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number > 65535 ||
        (digits.size() > 1 && digits[0] == '0'))
        return "has no port from 0 to 65535 behind its last ':'";
    port = static_cast<std::uint16_t>(number);
    return {};
}

[[nodiscard]] bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// A name as resolvers take it (RFC 1123). One whose last part is a number is a broken address.
[[nodiscard]] bool is_host_name(std::string_view host) {
    constexpr std::size_t kHostBytesMax = 253;
    constexpr std::size_t kLabelBytesMax = 63;
    if (host.empty() || host.size() > kHostBytesMax) return false;
    std::string_view label;
    for (;;) {
        const std::size_t dot = host.find('.');
        label = host.substr(0, dot);
        if (label.empty() || label.size() > kLabelBytesMax || label.front() == '-' ||
            label.back() == '-' || !std::all_of(label.begin(), label.end(), [](char c) {
                return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
            }))
            return false;
        if (dot == std::string_view::npos) break;
        host.remove_prefix(dot + 1);
    }
    return !std::all_of(label.begin(), label.end(), is_digit);
}

[[nodiscard]] std::string parse_one(std::string_view text, Endpoint& out) {
    std::string host;
    if (std::string wrong = split(text, host, out.port); !wrong.empty()) return wrong;
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

std::string address_into(std::string_view text, std::string& shown) {
    Endpoint literal;
    std::string host;
    if (std::string wrong = split(text, host, literal.port); !wrong.empty()) return wrong;
    if (literal.port == 0) return "has port 0, which is none that others could be told";
    if (is_host_name(host)) {
        shown = text;
        return {};
    }
    if (std::string wrong = parse_one(text, literal); !wrong.empty())
        return wrong.starts_with("needs brackets")
                   ? wrong
                   : "has no host name or IP address before its port";
    if (is_unspecified(literal)) return "is every address of a machine and none that others reach";
    shown = literal.text();
    return {};
}

bool is_unspecified(const Endpoint& endpoint) {
    return endpoint.host == "0.0.0.0" || endpoint.host == "::";
}

}  // namespace hf::config
