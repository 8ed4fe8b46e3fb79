// libFuzzer on the gateway's parser and gate. The first byte of the input is the size of the pieces in which the rest is fed a
// second time; both ways must end alike. What passes becomes an event, which must read back.
#include <string>
#include <string_view>

#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/http_parse.hpp"
#include "plugins/gateway-http/route.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace hf::gateway;  // NOLINT(google-build-using-namespace): the room under test
using hf::fuzz::must;

struct Outcome {
    std::size_t requests = 0;
    unsigned status = 0;  // of the refusal that ended it
    std::string bytes;    // every body
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

void check_event(const Head& head) {
    TargetParts parts;
    if (!split_target(head.target, parts)) return;
    Route route;
    find_route(head.method, parts, "default", route);
    if (route.kind != RouteKind::Actor) return;
    must(!route.class_name.empty() && !route.name.empty());
    hf::Bytes event;
    begin_event(event, head, parts, route);
    end_event(event, event.size());
    hf::FlatReader reader(event);
    std::string_view field;
    std::uint32_t count = 0;
    must(reader.field(field) && reader.field(field) && field.starts_with('/') && reader.u32(count));
    for (std::uint32_t i = 0; i < 2 * count; ++i) {
        must(reader.field(field));
        must(field.find('\n') == std::string_view::npos &&
             field.find('\r') == std::string_view::npos);
        if (i % 2 == 0) must(!is_reserved(field) && !is_hop_by_hop(field));
    }
    must(reader.field(field) && field.empty() && reader.done());
}

Outcome run(std::string_view input, std::size_t piece) {
    static const Settings settings;
    Outcome outcome;
    RequestParser parser(settings);
    Head head;
    hf::Bytes body;
    std::string kept;
    bool in_body = false;
    while (!input.empty()) {
        const std::size_t size = std::min(piece, input.size());
        kept += input.substr(0, size);
        input.remove_prefix(size);
        for (;;) {
            std::size_t consumed = 0;
            const Parsed parsed = in_body
                                      ? parser.read_body(kept.data(), kept.size(), consumed, &body)
                                      : parser.read_head(kept.data(), kept.size(), consumed, head);
            must(consumed <= kept.size() && body.size() <= settings.body_bytes_max);
            if (parsed == Parsed::Refused) {
                outcome.status = parser.refusal().status;
                return outcome;
            }
            if (parsed == Parsed::Done && !in_body) check_event(head);
            kept.erase(0, consumed);
            if (parsed == Parsed::NeedMore) break;
            if (!in_body && head.has_body) {
                in_body = true;
                continue;
            }
            ++outcome.requests;
            outcome.bytes += hf::as_text(body);
            outcome.bytes += '|';
            body.clear();
            in_body = false;
            parser.reset();
        }
    }
    return outcome;
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return {};
}

void hf::fuzz::take(BytesView input) {
    if (input.size() < 2) return;
    const std::string_view bytes = as_text(input.subspan(1));
    const std::size_t piece = std::size_t{input[0]} % 16 + 1;
    must(run(bytes, bytes.size()) == run(bytes, piece));
}
