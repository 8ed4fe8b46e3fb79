// nodes/<id> as lines of text, a form that older nodes of the seed's format read too. They take the header and at most
// eight lines and drop an empty line 7 or 8, so ours begin at line 10. The header is not counted:
//
//   wasmkeep-node 2
//   1  node id
//   2  HTTP address, where clients and peers reach it
//   3  empty   (the format gives no meaning we could rely on; another writer's text is kept)
//   4  empty   (likewise)
//   5  tenant
//   6  app     (nodes with different ones never exchange units)
//   7  where other nodes reach it, when that is not line 2; 8 pins, which we have none of
//   9  serving | draining | drained | stuck; missing or empty from a node that does not know draining
//   10 and on: key=value, in any order; a line or key this version does not know is kept
//
// A field never contains a control byte: that is what holds the lines apart.
#include <array>
#include <charconv>
#include <string>
#include <vector>

#include "abi/base/check.hpp"
#include "agent/records/encodings.hpp"

namespace hf::records {

namespace {

constexpr std::string_view kHeader = "wasmkeep-node 2";
constexpr std::size_t kFixedLines = 9;
// Nine names and a dozen numbers; a thousand times that is still read at once.
constexpr std::size_t kNodeBytesMax = 64 * 1024;
constexpr std::size_t kCapabilitiesMax = 64;

[[nodiscard]] bool clean(std::string_view text) {
    for (const char c : text)
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
    return true;
}

[[nodiscard]] Error corrupt(const std::string& why) {
    return fail(Code::Corrupt, "node record: " + why);
}

void put_line(std::string& out, std::string_view text) {
    HF_CHECK(clean(text), "a line of a node record carries no control byte");
    out += text;
    out += '\n';
}

[[nodiscard]] std::string_view other_line(const core::NodeRecord& record, int number) {
    const auto found = record.other_lines.find(number);
    return found == record.other_lines.end() ? std::string_view() : std::string_view(found->second);
}

[[nodiscard]] std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> out;
    while (!text.empty()) {
        const std::size_t at = text.find(separator);
        out.push_back(text.substr(0, at));
        text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
    }
    return out;
}

[[nodiscard]] bool parse_number(std::string_view text, std::uint64_t& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size();
}

// What a key of line 10 and on is stored into; exactly one member is set.
struct Place {
    std::string_view key;
    std::uint64_t* number = nullptr;
    std::string* text = nullptr;
    bool seen = false;
};

// Reads one line from 10 on; false: its value is not what the key says, or the key came before.
[[nodiscard]] bool take_line(std::string_view line,
                             std::span<Place> places,
                             core::NodeRecord& out) {
    const std::size_t equals = line.find('=');
    for (Place& place : places) {
        if (equals == std::string_view::npos || line.substr(0, equals) != place.key) continue;
        const std::string_view value = line.substr(equals + 1);
        if (place.seen || !clean(value)) return false;
        place.seen = true;
        if (place.number != nullptr) return parse_number(value, *place.number);
        *place.text = value;
        return true;
    }
    out.unknown += std::string(line) + '\n';
    return true;
}

}  // namespace

Bytes encode_node(const core::NodeRecord& record) {
    std::string out;
    put_line(out, kHeader);
    put_line(out, record.id);
    put_line(out, record.http_address);
    put_line(out, other_line(record, 3));
    put_line(out, other_line(record, 4));
    put_line(out, record.tenant);
    put_line(out, record.app);
    put_line(out, other_line(record, 7));
    put_line(out, other_line(record, 8));
    put_line(out, record.state);
    put_line(out, "incarnation=" + std::to_string(record.incarnation));
    put_line(out, "instance=" + record.instance);
    put_line(out, "machine=" + record.machine);
    put_line(out, "boot=" + record.boot);
    put_line(out, "lease_seq=" + std::to_string(record.lease_seq));
    put_line(out, "ttl_ms=" + std::to_string(record.ttl_ms));
    put_line(out, "store=" + record.store_id);
    std::string capabilities;
    for (const std::string& one : record.capabilities) {
        HF_CHECK(!one.empty() && one.find(',') == std::string::npos, "a capability is one word");
        capabilities += (capabilities.empty() ? "" : ",") + one;
    }
    put_line(out, "capabilities=" + capabilities);
    if (record.dead) put_line(out, "dead=" + std::to_string(*record.dead));
    put_line(out, "reaped=" + std::to_string(record.reaped));
    out += record.unknown;
    return {out.begin(), out.end()};
}

Result<core::NodeRecord> decode_node(BytesView bytes) {
    if (bytes.size() > kNodeBytesMax)
        return corrupt("is " + std::to_string(bytes.size()) + " bytes long");
    const auto lines = split(as_text(bytes), '\n');
    if (lines.empty() || lines[0] != kHeader)
        return corrupt("does not begin with '" + std::string(kHeader) + "'");

    core::NodeRecord out;
    out.state.clear();
    const std::array<std::string*, kFixedLines + 1> known = {nullptr,
                                                             &out.id,
                                                             &out.http_address,
                                                             nullptr,
                                                             nullptr,
                                                             &out.tenant,
                                                             &out.app,
                                                             nullptr,
                                                             nullptr,
                                                             &out.state};
    if (lines.size() <= 6) return corrupt("ends before its line 6");
    for (std::size_t i = 1; i < lines.size() && i <= kFixedLines; ++i) {
        if (!clean(lines[i]))
            return corrupt("line " + std::to_string(i) + " carries a control byte");
        if (known[i] != nullptr)
            *known[i] = lines[i];
        else if (!lines[i].empty())
            out.other_lines.emplace(static_cast<int>(i), lines[i]);
    }

    std::string capabilities;
    std::uint64_t dead = 0;
    std::array<Place, 10> places = {{{"incarnation", &out.incarnation, nullptr},
                                     {"instance", nullptr, &out.instance},
                                     {"machine", nullptr, &out.machine},
                                     {"boot", nullptr, &out.boot},
                                     {"lease_seq", &out.lease_seq, nullptr},
                                     {"ttl_ms", &out.ttl_ms, nullptr},
                                     {"store", nullptr, &out.store_id},
                                     {"capabilities", nullptr, &capabilities},
                                     {"dead", &dead, nullptr},
                                     {"reaped", &out.reaped, nullptr}}};
    for (std::size_t i = kFixedLines + 1; i < lines.size(); ++i)
        if (!take_line(lines[i], places, out))
            return corrupt("line " + std::to_string(i) + " has a value it cannot have");
    if (places[8].seen) out.dead = dead;
    for (const std::string_view one : split(capabilities, ','))
        if (!one.empty()) out.capabilities.emplace_back(one);
    if (out.capabilities.size() > kCapabilitiesMax)
        return corrupt("lists more than 64 capabilities");
    return out;
}

}  // namespace hf::records
