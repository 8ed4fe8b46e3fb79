// What nodes say to each other beside a request, as header fields, and the signature over it. Pure: text in, text out.
// Responsible for that asker and asked build the same text from what went over the wire; not for clocks, uses or sending.
//
// The canonical text, each part ended by a line feed, but for the last:
//   v1, method, target with its query, tenant, app, then "name:value" of every field whose name begins with x-wasmkeep-,
//   but for the signature, sorted by name, and last the SHA-256 of the body in lower-case hexadecimal.
// The other fields are covered as well, by x-wasmkeep-fields: see fields_digest.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/bytes.hpp"
#include "envelope_generated.h"

namespace hf::gateway {

// Every field of this kind is one between nodes, whatever follows. Lower case.
inline constexpr std::string_view kPeerPrefix = "x-wasmkeep-";
inline constexpr std::string_view kPeerSignature = "x-wasmkeep-signature";

using PeerFields = std::vector<std::pair<std::string, std::string>>;  // names in lower case

// Who asks: abi::PeerOrigin by value.
struct Origin {
    std::string node;
    abi::PeerAsk ask = abi::PeerAsk::Request;
    std::vector<std::string> chain;
    std::string source;
    std::uint64_t n = 0;
    bool http = false;
    bool last = false;
    std::int64_t due_ms = 0;
    std::uint64_t nonce = 0;
};

// What a call says of itself.
struct PeerFacts {
    Origin origin;  // but for an alarm's due and nonce, which lead the body
    std::string target;
    std::string tenant;
    std::string app;
    std::int64_t time_ms = 0;        // Unix, when it was signed
    std::string once;                // 32 hex digits
    std::int64_t deadline_ms = 0;    // time that was left
    std::string fields_sha256 = {};  // empty: not told
};

// 16 units may wait for one call (protocol 4); a unit is at most 400 bytes.
inline constexpr std::size_t kChainMax = 16;
// Due and nonce, before an alarm's event.
inline constexpr std::size_t kAlarmBytes = 16;

// All fields of a call but its signature.
[[nodiscard]] PeerFields peer_fields(const PeerFacts& facts);
// Reads them back. Empty, or which one is not as it must be. Fields that are not known are passed over: they are signed.
[[nodiscard]] std::string_view read_peer_fields(const PeerFields& fields, PeerFacts& facts);
// The ask alone; Request when it is not told or not known.
[[nodiscard]] abi::PeerAsk ask_of(std::string_view name);

// An alarm's body, and back. False: it is shorter than what leads it.
[[nodiscard]] Bytes alarm_body(const Origin& origin, BytesView event);
[[nodiscard]] bool read_alarm(BytesView body, Origin& origin);

// `fields`: those of the call, the signature may be among them.
[[nodiscard]] std::string canonical_text(std::string_view method,
                                         std::string_view target,
                                         const PeerFields& fields,
                                         std::string_view body_sha256);
// "v1=" and the HMAC-SHA256 of the text in lower-case hexadecimal.
[[nodiscard]] std::string signature_of(std::string_view secret, std::string_view text);
// Takes as long whatever is wrong.
[[nodiscard]] bool is_signature(std::string_view given,
                                std::string_view secret,
                                std::string_view text);

// Of "name:value\n" of each field, sorted by name; those of one name stay in their order. Left out are the fields between
// nodes, those of the connection and Content-Length, which the body's digest makes up for.
[[nodiscard]] std::string fields_digest(const PeerFields& fields);
[[nodiscard]] bool is_digested(std::string_view name);

// A sentence or an id as a field's value, and back: what is not printable ASCII, and '%', as %XX.
[[nodiscard]] std::string to_field(std::string_view text);
[[nodiscard]] std::string from_field(std::string_view value);

// SHA-256 of what comes in pieces.
class Sha256 {
public:
    Sha256();
    void add(BytesView bytes);
    // Ends it.
    [[nodiscard]] std::string hex_digest();

private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
};

}  // namespace hf::gateway
