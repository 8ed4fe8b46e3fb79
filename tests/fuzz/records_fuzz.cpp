// Any bytes as a stored record or key: what a decoder takes, its encoder must give back in a form that decodes to the
// same; what it does not take is Corrupt. The first byte chooses the decoder.
#include "agent/core/keys.hpp"
#include "agent/records/records.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using hf::BytesView;
using hf::fuzz::must;

template <class Decode>
void settle(const Decode& decode, BytesView bytes) {
    const auto& codec = hf::records::codec();
    const auto got = decode(bytes);
    if (!got.ok()) {
        must(got.error().code == hf::Code::Corrupt);
        return;
    }
    const hf::Bytes once = codec.encode(*got);
    const auto again = decode(once);
    must(again.ok() && codec.encode(*again) == once);
}

void keys(std::string_view text) {
    using namespace hf::core;
    if (const auto got = parse_entry_key(text))
        must(key::entry(got->app, got->unit, got->seq) == text);
    if (const auto got = parse_alarm_key(text))
        must(key::alarm(got->app, got->unit, got->due_ms, got->nonce) == text);
    if (const auto got = parse_hold_key(text)) must(key::hold(got->app, got->unit) == text);
    if (const auto got = parse_move_key(text))
        must(key::move(got->tenant, got->class_name, got->name, got->target_node) == text);
    if (const auto got = unescape_part(text)) must(escape_part(*got) == text);
    must(unescape_part(escape_part(text)) == text);
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return {};
}

void hf::fuzz::take(BytesView input) {
    if (input.empty()) return;
    const auto& codec = records::codec();
    const BytesView bytes = input.subspan(1);
    switch (input[0] % 5) {
        case 0:
            settle([&](BytesView b) { return codec.decode_entry(b); }, bytes);
            break;
        case 1:
            settle([&](BytesView b) { return codec.decode_hold(b); }, bytes);
            break;
        case 2:
            settle([&](BytesView b) { return codec.decode_store(b); }, bytes);
            break;
        case 3:
            settle([&](BytesView b) { return codec.decode_node(b); }, bytes);
            break;
        default:
            keys(hf::as_text(bytes));
            break;
    }
}
