#include "plugins/gateway-http/peer_text.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <charconv>

#include "abi/base/check.hpp"
#include "abi/base/hex.hpp"
#include "abi/base/limits.hpp"
#include "plugins/gateway-http/event.hpp"

namespace hf::gateway {

namespace {

constexpr std::string_view kVersion = "v1";
constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kOnceDigits = 32;
constexpr std::array<std::string_view, 5> kAsks{"request", "call", "message", "settled", "alarm"};
static_assert(static_cast<std::size_t>(abi::PeerAsk::MAX) + 1 == kAsks.size());

// The names behind the prefix.
constexpr std::string_view kForwarded = "forwarded";
constexpr std::string_view kAlarm = "alarm-handoff";
constexpr std::string_view kNode = "node";
constexpr std::string_view kTarget = "target";
constexpr std::string_view kTenant = "tenant";
constexpr std::string_view kApp = "app";
constexpr std::string_view kAsk = "ask";
constexpr std::string_view kChain = "chain";
constexpr std::string_view kSource = "source";
constexpr std::string_view kNumber = "n";
constexpr std::string_view kHttp = "http";
constexpr std::string_view kLast = "last";
constexpr std::string_view kTime = "time";
constexpr std::string_view kOnce = "once";
constexpr std::string_view kDeadline = "deadline-ms";
constexpr std::string_view kFieldsDigest = "fields";

std::string name_of(std::string_view rest) {
    return std::string(kPeerPrefix) + std::string(rest);
}

std::string_view value_of(const PeerFields& fields, std::string_view rest) {
    for (const auto& [name, value] : fields)
        if (name.size() == kPeerPrefix.size() + rest.size() && name.ends_with(rest) &&
            name.starts_with(kPeerPrefix))
            return value;
    return {};
}

template <class Number>
bool read_number(std::string_view text, Number& value) {
    const char* const last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    return !text.empty() && text.front() != '-' && error == std::errc() && end == last;
}

bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    });
}

bool is_flag(std::string_view text) {
    return text.empty() || text == "1";
}

int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool read_chain(std::string_view text, std::vector<std::string>& chain) {
    chain.clear();
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        const std::string_view unit = text.substr(0, end);
        if (unit.empty() || unit.size() > kUnitBytesMax || chain.size() == kChainMax) return false;
        chain.emplace_back(unit);
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return true;
}

PeerFields sorted(PeerFields fields) {
    std::stable_sort(fields.begin(), fields.end(), [](const auto& a, const auto& b) {
        return a.first < b.first;
    });
    return fields;
}

}  // namespace

abi::PeerAsk ask_of(std::string_view name) {
    for (std::size_t i = 0; i < kAsks.size(); ++i)
        if (kAsks[i] == name) return static_cast<abi::PeerAsk>(i);
    return abi::PeerAsk::Request;
}

PeerFields peer_fields(const PeerFacts& facts) {
    const Origin& origin = facts.origin;
    PeerFields fields;
    const auto add = [&](std::string_view name, std::string value) {
        fields.emplace_back(name_of(name), std::move(value));
    };
    if (origin.ask == abi::PeerAsk::Request) add(kForwarded, "1");
    if (origin.ask == abi::PeerAsk::Alarm) add(kAlarm, "1");
    add(kNode, to_field(origin.node));
    add(kTarget, to_field(facts.target));
    add(kTenant, to_field(facts.tenant));
    add(kApp, to_field(facts.app));
    add(kAsk, std::string(kAsks[static_cast<std::size_t>(origin.ask)]));
    std::string chain;
    for (const std::string& unit : origin.chain) chain += (chain.empty() ? "" : ",") + unit;
    if (!chain.empty()) add(kChain, std::move(chain));
    if (!origin.source.empty()) {
        add(kSource, to_field(origin.source));
        add(kNumber, std::to_string(origin.n));
    }
    if (origin.http) add(kHttp, "1");
    if (origin.last) add(kLast, "1");
    add(kTime, std::to_string(facts.time_ms));
    add(kOnce, facts.once);
    add(kDeadline, std::to_string(facts.deadline_ms));
    if (!facts.fields_sha256.empty()) add(kFieldsDigest, facts.fields_sha256);
    return fields;
}

std::string_view read_peer_fields(const PeerFields& fields, PeerFacts& facts) {
    Origin& origin = facts.origin;
    origin = {};
    origin.node = from_field(value_of(fields, kNode));
    facts.target = from_field(value_of(fields, kTarget));
    facts.tenant = from_field(value_of(fields, kTenant));
    facts.app = from_field(value_of(fields, kApp));
    facts.once = value_of(fields, kOnce);
    facts.fields_sha256 = value_of(fields, kFieldsDigest);
    const std::string_view ask = value_of(fields, kAsk);
    const std::string_view number = value_of(fields, kNumber);
    const std::string_view http = value_of(fields, kHttp);
    const std::string_view last = value_of(fields, kLast);
    if (origin.node.empty()) return "x-wasmkeep-node is missing";
    if (std::find(kAsks.begin(), kAsks.end(), ask) == kAsks.end())
        return "x-wasmkeep-ask is request, call, message, settled or alarm";
    origin.ask = ask_of(ask);
    if ((value_of(fields, kForwarded) == "1") != (origin.ask == abi::PeerAsk::Request))
        return "x-wasmkeep-forwarded goes with a request, and with nothing else";
    if ((value_of(fields, kAlarm) == "1") != (origin.ask == abi::PeerAsk::Alarm))
        return "x-wasmkeep-alarm-handoff goes with an alarm, and with nothing else";
    if (!read_chain(value_of(fields, kChain), origin.chain))
        return "x-wasmkeep-chain is at most 16 units";
    origin.source = from_field(value_of(fields, kSource));
    const bool numbered =
        origin.ask == abi::PeerAsk::Message || origin.ask == abi::PeerAsk::Settled;
    if (numbered && origin.source.empty()) return "x-wasmkeep-source is missing";
    if ((numbered || !number.empty()) && !read_number(number, origin.n))
        return "x-wasmkeep-n is not a number";
    if (!is_flag(http) || !is_flag(last))
        return "x-wasmkeep-http and x-wasmkeep-last are 1, if there";
    origin.http = http == "1";
    origin.last = last == "1";
    if (!read_number(value_of(fields, kTime), facts.time_ms))
        return "x-wasmkeep-time is not a number";
    if (facts.once.size() != kOnceDigits || !is_hex(facts.once))
        return "x-wasmkeep-once is not 32 hexadecimal digits";
    if (!read_number(value_of(fields, kDeadline), facts.deadline_ms))
        return "x-wasmkeep-deadline-ms is not a number";
    return {};
}

Bytes alarm_body(const Origin& origin, BytesView event) {
    Bytes body;
    FlatWriter writer(body);
    writer.u64(static_cast<std::uint64_t>(origin.due_ms));
    writer.u64(origin.nonce);
    writer.raw(event);
    return body;
}

bool read_alarm(BytesView body, Origin& origin) {
    FlatReader reader(body);
    std::uint64_t due = 0;
    if (!reader.u64(due) || !reader.u64(origin.nonce)) return false;
    origin.due_ms = static_cast<std::int64_t>(due);
    return true;
}

std::string canonical_text(std::string_view method,
                           std::string_view target,
                           const PeerFields& fields,
                           std::string_view body_sha256) {
    std::string text;
    const auto line = [&](std::string_view part) { text.append(part).append("\n"); };
    line(kVersion);
    line(method);
    line(target);
    line(value_of(fields, kTenant));
    line(value_of(fields, kApp));
    for (const auto& [name, value] : sorted(fields))
        if (name.starts_with(kPeerPrefix) && name != kPeerSignature)
            text.append(name).append(":").append(value).append("\n");
    return text.append(body_sha256);
}

std::string signature_of(std::string_view secret, std::string_view text) {
    std::array<std::uint8_t, kDigestBytes> mac{};
    unsigned size = 0;
    const BytesView bytes = as_bytes(text);
    HF_CHECK(HMAC(EVP_sha256(),
                  secret.data(),
                  static_cast<int>(secret.size()),
                  bytes.data(),
                  bytes.size(),
                  mac.data(),
                  &size) != nullptr &&
                 size == mac.size(),
             "HMAC-SHA-256 is always there");
    return std::string(kVersion) + "=" + hex(mac);
}

bool is_signature(std::string_view given, std::string_view secret, std::string_view text) {
    const std::string right = signature_of(secret, text);
    return given.size() == right.size() &&
           CRYPTO_memcmp(given.data(), right.data(), right.size()) == 0;
}

bool is_digested(std::string_view name) {
    return !is_reserved(name) && !is_hop_by_hop(name) && name != "content-length" &&
           name != "expect";
}

std::string fields_digest(const PeerFields& fields) {
    Sha256 digest;
    for (const auto& [name, value] : sorted(fields))
        if (is_digested(name)) digest.add(as_bytes(name + ":" + value + "\n"));
    return digest.hex_digest();
}

std::string to_field(std::string_view text) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        // A blank at an end would be cut off on the way.
        const bool inner_blank = c == ' ' && !out.empty() && &c != &text.back();
        if (inner_blank || (byte > 0x20 && byte < 0x7F && c != '%')) {
            out += c;
        } else {
            out += '%';
            out += kDigits[byte >> 4U];
            out += kDigits[byte & 15U];
        }
    }
    return out;
}

std::string from_field(std::string_view value) {
    std::string out;
    for (std::size_t i = 0; i < value.size(); ++i) {
        const bool escaped = value[i] == '%' && value.size() - i >= 3 && digit(value[i + 1]) >= 0 &&
                             digit(value[i + 2]) >= 0;
        if (!escaped) {
            out += value[i];
            continue;
        }
        out += static_cast<char>(digit(value[i + 1]) * 16 + digit(value[i + 2]));
        i += 2;
    }
    return out;
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    HF_CHECK(
        context_ != nullptr &&
            EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_.get()), EVP_sha256(), nullptr) == 1,
        "SHA-256 is always there");
}

void Sha256::Free::operator()(void* context) const {
    EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context));
}

void Sha256::add(BytesView bytes) {
    HF_CHECK(
        EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_.get()), bytes.data(), bytes.size()) == 1,
        "a digest takes any bytes");
}

std::string Sha256::hex_digest() {
    std::array<std::uint8_t, kDigestBytes> digest{};
    unsigned size = 0;
    HF_CHECK(
        EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_.get()), digest.data(), &size) == 1 &&
            size == digest.size(),
        "a digest ends once");
    return hex(digest);
}

}  // namespace hf::gateway
