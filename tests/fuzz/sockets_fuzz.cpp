// libFuzzer on what a WebSocket's client may send: its handshake, judged, and its frames. The first byte of the input is the
// size of the pieces in which the frames are fed a second time; both ways must hear the same. The bound of a message is small,
// so that it is reached.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/gateway-http/fields.hpp"
#include "plugins/gateway-http/frames.hpp"
#include "plugins/gateway-http/upgrade.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace hf::gateway;  // NOLINT(google-build-using-namespace): the room under test
using hf::fuzz::must;

constexpr std::size_t kMessageBytesMax = 300;

std::vector<std::string> hear(std::string_view input, std::size_t piece) {
    FrameReader reader(kMessageBytesMax);
    std::vector<std::string> heard;
    while (!input.empty()) {
        std::string_view part = input.substr(0, piece);
        input.remove_prefix(part.size());
        for (;;) {
            std::size_t consumed = 0;
            const FrameReader::Got got = reader.read(part, consumed);
            must(consumed <= part.size());
            part.remove_prefix(consumed);
            must(reader.held_bytes() <= kMessageBytesMax);
            if (got == FrameReader::Got::NeedMore) break;
            if (got == FrameReader::Got::Message) {
                const std::string_view text = hf::as_text(reader.message());
                must(reader.is_binary() || is_utf8(text));
                heard.push_back((reader.is_binary() ? "b" : "t") + std::string(text));
            } else {
                const bool broken = got == FrameReader::Got::Broken;
                must(is_close_code(reader.code()) || (!broken && reader.code() == kCloseNoCode));
                must(is_utf8(reader.reason()));
                hf::Bytes out;
                write_close(out, reader.code(), close_reason_of(reader.reason()));
                heard.push_back((broken ? "!" : "c") + std::to_string(reader.code()));
            }
        }
        must(part.empty());
    }
    return heard;
}

void judge_handshake(std::string_view input) {
    static const Settings settings;
    std::string bytes = "GET /actor/a/b HTTP/1.1\r\nHost: h\r\n" + std::string(input) + "\r\n\r\n";
    RequestParser parser(settings);
    Head head;
    std::size_t consumed = 0;
    if (parser.read_head(bytes.data(), bytes.size(), consumed, head) != Parsed::Done) return;
    (void)has_preference(head, "respond-async");
    std::string_view why;
    const Handshake handshake = read_handshake(head, why);
    must(why.empty() == (handshake == Handshake::None || handshake == Handshake::Good));
    if (handshake != Handshake::Good) return;
    const Offer offer = read_offer(head);
    must(offer.accept.size() == 28);
    hf::Bytes out;
    must(write_upgraded(out, offer, {}));
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return {};
}

void hf::fuzz::take(BytesView input) {
    if (input.empty()) return;
    const std::string_view bytes = as_text(input.subspan(1));
    const std::size_t piece = 1 + input[0] % 32U;
    must(hear(bytes, bytes.size()) == hear(bytes, piece));
    judge_handshake(bytes);
}
