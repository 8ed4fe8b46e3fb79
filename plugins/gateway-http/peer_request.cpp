#include "plugins/gateway-http/peer_request.hpp"

#include <algorithm>
#include <cctype>

#include "abi/base/limits.hpp"
#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/http_write.hpp"

namespace hf::gateway {

namespace {

// A name of the DNS is 253 bytes at most; with brackets, colon and port.
constexpr std::size_t kAddressMax = 262;
constexpr std::size_t kMethodMax = 32;

std::string text_of(const flatbuffers::String* text) {
    return text == nullptr ? std::string() : text->str();
}

BytesView view_of(const flatbuffers::Vector<std::uint8_t>* bytes) {
    return bytes == nullptr ? BytesView() : BytesView(bytes->data(), bytes->size());
}

std::string in_path(std::string_view part) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::string out;
    for (const char c : part) {
        const auto byte = static_cast<unsigned char>(c);
        if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
            out += c;
            continue;
        }
        out += '%';
        out += kDigits[byte >> 4U];
        out += kDigits[byte & 15U];
    }
    return out;
}

std::string lowered(std::string_view name) {
    std::string out(name);
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) {
        return static_cast<char>(std::tolower(c));
    });
    return out;
}

// What may stand between "HTTP/1.1" and the method.
bool is_url(std::string_view url) {
    return url.starts_with('/') && std::all_of(url.begin(), url.end(), [](char c) {
               const auto byte = static_cast<unsigned char>(c);
               return byte > 0x20 && byte != 0x7F && c != '#';
           });
}

Result<void> read_headers(FlatReader& reader, PeerFields& headers) {
    std::uint32_t count = 0;
    if (!reader.u32(count)) return fail(Code::Invalid, "the event of the request ends early");
    for (std::uint32_t i = 0; i < count; ++i) {
        std::string_view name;
        std::string_view value;
        if (!reader.field(name) || !reader.field(value))
            return fail(Code::Invalid, "the event of the request ends early");
        std::string lower = lowered(name);
        if (!is_field_name(lower) || !is_field_value(value))
            return fail(Code::Invalid, "a header of the request is not one");
        if (is_digested(lower) && !is_of_handshake(lower))
            headers.emplace_back(std::move(lower), std::string(value));
    }
    return {};
}

// Method, url, headers and body of a client.
Result<void> read_event(BytesView event, PeerRequest& out) {
    FlatReader reader(event);
    std::string_view method;
    std::string_view url;
    if (!reader.field(method) || !reader.field(url))
        return fail(Code::Invalid, "the event of the request ends early");
    if (!is_field_name(method) || method.size() > kMethodMax)
        return fail(Code::Invalid, "the method of the request is not one");
    if (!is_url(url)) return fail(Code::Invalid, "the path of the request is not one");
    HF_TRY(read_headers(reader, out.headers));
    std::string_view body;
    if (!reader.field(body) || !reader.done())
        return fail(Code::Invalid, "the event of the request ends early, or late");
    out.method = method;
    out.target += url;
    out.body = body;
    return {};
}

Result<Origin> origin_of(const abi::PeerCall& call) {
    const abi::PeerOrigin* const table = call.origin();
    if (table == nullptr || table->node()->size() == 0)
        return fail(Code::Invalid, "the call does not say which node asks");
    if (table->ask() > abi::PeerAsk::MAX)
        return fail(Code::Invalid, "what is asked is not known to this gateway");
    Origin origin;
    origin.node = table->node()->str();
    origin.ask = table->ask();
    if (table->chain() != nullptr)
        for (const flatbuffers::String* const unit : *table->chain()) {
            if (unit->size() == 0 || unit->size() > kUnitBytesMax ||
                unit->string_view().find(',') != std::string_view::npos ||
                !is_field_value(unit->string_view()) || origin.chain.size() == kChainMax)
                return fail(Code::Invalid, "the chain of the call is not one of 16 units at most");
            origin.chain.push_back(unit->str());
        }
    origin.source = text_of(table->source());
    origin.n = table->n();
    origin.http = table->http();
    origin.last = table->last();
    origin.due_ms = table->due_ms();
    origin.nonce = table->nonce();
    return origin;
}

}  // namespace

bool is_peer_address(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || text.size() > kAddressMax) return false;
    const std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    const bool literal = host.starts_with('[') && host.ends_with(']');
    const auto fits = [&](char c) {
        if (literal)
            return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == ':' || c == '.';
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.' || c == '_';
    };
    const std::string_view inner = literal ? host.substr(1, host.size() - 2) : host;
    return !inner.empty() && std::all_of(inner.begin(), inner.end(), fits) && !port.empty() &&
           port.size() <= 5 &&
           std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<PeerRequest> read_peer_call(const abi::PeerCall& call) {
    PeerRequest out;
    const std::string peer = text_of(call.peer());
    if (!is_peer_address(peer))
        return fail(Code::Invalid, "the other node's address \"" + peer + "\" is no host:port");
    out.url = "http://" + peer + "/";
    const std::string class_name = text_of(call.class_name());
    const std::string name = text_of(call.name());
    if (class_name.empty() || name.empty())
        return fail(Code::Invalid, "the call does not say which actor it is about");
    out.target = "/actor/" + in_path(class_name) + "/" + in_path(name);
    HF_ASSIGN(out.origin, origin_of(call));
    const BytesView event = view_of(call.event());
    if (out.origin.ask == abi::PeerAsk::Request) {
        HF_TRY(read_event(event, out));
    } else {
        out.method = "POST";
        const Bytes body =
            out.origin.ask == abi::PeerAsk::Alarm ? alarm_body(out.origin, event) : Bytes();
        out.body = as_text(body.empty() ? event : BytesView(body));
    }
    // What libcurl would say by itself is not signed.
    const bool has_host = std::any_of(out.headers.begin(),
                                      out.headers.end(),
                                      [](const auto& header) { return header.first == "host"; });
    if (!has_host) out.headers.emplace_back("host", peer);
    return out;
}

}  // namespace hf::gateway
