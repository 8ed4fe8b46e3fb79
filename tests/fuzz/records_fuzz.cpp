// Any bytes as a stored record or key: what a decoder takes, its encoder must give back in a form that decodes to the
// same; what it does not take is Corrupt. The first byte chooses the decoder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "agent/core/keys.hpp"
#include "agent/records/records.hpp"

namespace {

using hf::BytesView;

template <class Decode>
void settle(const Decode& decode, BytesView bytes) {
    const auto& codec = hf::records::codec();
    const auto got = decode(bytes);
    if (!got.ok()) {
        if (got.error().code != hf::Code::Corrupt) std::abort();
        return;
    }
    const hf::Bytes once = codec.encode(*got);
    const auto again = decode(once);
    if (!again.ok() || codec.encode(*again) != once) std::abort();
}

void keys(std::string_view text) {
    using namespace hf::core;
    if (const auto got = parse_entry_key(text);
        got && key::entry(got->app, got->unit, got->seq) != text)
        std::abort();
    if (const auto got = parse_alarm_key(text);
        got && key::alarm(got->app, got->unit, got->due_ms, got->nonce) != text)
        std::abort();
    if (const auto got = parse_hold_key(text); got && key::hold(got->app, got->unit) != text)
        std::abort();
    if (const auto got = parse_move_key(text);
        got && key::move(got->tenant, got->class_name, got->name, got->target_node) != text)
        std::abort();
    if (const auto got = unescape_part(text); got && escape_part(*got) != text) std::abort();
    if (unescape_part(escape_part(text)) != text) std::abort();
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const auto& codec = hf::records::codec();
    const BytesView bytes(data + 1, size - 1);
    switch (data[0] % 5) {
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
    return 0;
}
