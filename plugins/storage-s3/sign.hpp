// AWS Signature Version 4 for S3: canonical forms, hashes, the Authorization header. Responsible for that what is signed and
// what is sent are the same bytes: a URL is built from the encoded path and query that are signed. Pure but for OpenSSL's
// hashes; keeps the signing key of one day. Not for sending, and not for where credentials come from.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/bytes.hpp"

namespace hf::s3 {

struct Credentials {
    std::string access_key_id;
    std::string secret_access_key;
    std::string session_token;  // empty: these do not end
};

using Pairs = std::vector<std::pair<std::string, std::string>>;

// All but A-Z a-z 0-9 - . _ ~ become %XX; '/' stays when it separates the parts of a key. Each byte by itself, once.
[[nodiscard]] std::string percent_encoded(std::string_view text, bool keep_slash);
// %XX back to bytes, '+' to a space (services that encode a space so encode a plus as %2B). False: a broken escape.
[[nodiscard]] bool percent_decoded(std::string_view text, std::string& out);
// Names and values encoded, sorted by the encoded bytes, "name=" where there is no value. This is also what is sent.
[[nodiscard]] std::string canonical_query(const Pairs& query);
[[nodiscard]] std::string sha256_hex(BytesView bytes);
// "20130524T000000Z" of Unix seconds; years 1970 to 9999.
[[nodiscard]] std::string amz_date(std::int64_t unix_s);

// What is signed. Header names in lower case; host, x-amz-date and x-amz-content-sha256 are among them.
struct ToSign {
    std::string method;
    std::string path;     // encoded, begins with '/'
    std::string query;    // canonical_query()
    Pairs headers;        // of one name once
    std::string payload;  // sha256_hex() of the body
};

[[nodiscard]] std::string signed_headers(const Pairs& headers);
[[nodiscard]] std::string canonical_request(const ToSign& request);

class Signer {
public:
    Signer(Credentials credentials, std::string region)
        : credentials_(std::move(credentials)), region_(std::move(region)) {}

    // The value of Authorization. `unix_s` must be the second that x-amz-date tells.
    [[nodiscard]] std::string authorization(const ToSign& request, std::int64_t unix_s);
    [[nodiscard]] const Credentials& credentials() const { return credentials_; }
    [[nodiscard]] const std::string& region() const { return region_; }

private:
    using Mac = std::array<std::uint8_t, 32>;
    static Mac mac(BytesView key, std::string_view text);
    const Mac& day_key(const std::string& day);

    Credentials credentials_;
    std::string region_;
    std::string key_day_;  // "20130524": whose key `key_` is
    Mac key_{};
};

}  // namespace hf::s3
