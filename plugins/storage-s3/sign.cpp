#include "plugins/storage-s3/sign.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "abi/base/check.hpp"

namespace hf::s3 {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::string_view kService = "s3";
constexpr std::string_view kScopeEnd = "aws4_request";

bool plain(unsigned char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

std::string hex(BytesView bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const std::uint8_t byte : bytes) {
        text += kDigits[byte >> 4U];
        text += kDigits[byte & 15U];
    }
    return text;
}

int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

// Outer blanks away, inner runs of them to one.
std::string trimmed(std::string_view value) {
    std::string out;
    for (const char c : value) {
        const bool blank = c == ' ' || c == '\t';
        if (!blank)
            out += c;
        else if (!out.empty() && out.back() != ' ')
            out += ' ';
    }
    if (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

Pairs sorted(Pairs headers) {
    std::sort(headers.begin(), headers.end());
    return headers;
}

}  // namespace

std::string percent_encoded(std::string_view text, bool keep_slash) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    std::string out;
    out.reserve(text.size());
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (plain(byte) || (keep_slash && c == '/')) {
            out += c;
            continue;
        }
        out += '%';
        out += kDigits[byte >> 4U];
        out += kDigits[byte & 15U];
    }
    return out;
}

bool percent_decoded(std::string_view text, std::string& out) {
    out.clear();
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '+') {
            out += ' ';
        } else if (text[i] != '%') {
            out += text[i];
        } else {
            if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0)
                return false;
            out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
            i += 2;
        }
    }
    return true;
}

std::string canonical_query(const Pairs& query) {
    Pairs encoded;
    for (const auto& [name, value] : query)
        encoded.emplace_back(percent_encoded(name, false), percent_encoded(value, false));
    std::sort(encoded.begin(), encoded.end());
    std::string out;
    for (const auto& [name, value] : encoded)
        out.append(out.empty() ? "" : "&").append(name).append("=").append(value);
    return out;
}

std::string sha256_hex(BytesView bytes) {
    std::array<std::uint8_t, 32> digest{};
    unsigned size = 0;
    HF_CHECK(
        EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) == 1 &&
            size == digest.size(),
        "SHA-256 is always there");
    return hex(digest);
}

std::string amz_date(std::int64_t unix_s) {
    const auto seconds = static_cast<std::time_t>(unix_s);
    std::tm utc{};
    ::gmtime_r(&seconds, &utc);
    std::array<char, 32> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &utc);
    return {text.data(), size};
}

std::string signed_headers(const Pairs& headers) {
    std::string out;
    for (const auto& [name, value] : sorted(headers))
        out.append(out.empty() ? "" : ";").append(name);
    return out;
}

std::string canonical_request(const ToSign& request) {
    std::string out = request.method + '\n' + request.path + '\n' + request.query + '\n';
    for (const auto& [name, value] : sorted(request.headers))
        out.append(name).append(":").append(trimmed(value)).append("\n");
    return out + '\n' + signed_headers(request.headers) + '\n' + request.payload;
}

Signer::Mac Signer::mac(BytesView key, std::string_view text) {
    Mac out{};
    unsigned size = 0;
    const BytesView bytes = as_bytes(text);
    HF_CHECK(HMAC(EVP_sha256(),
                  key.data(),
                  static_cast<int>(key.size()),
                  bytes.data(),
                  bytes.size(),
                  out.data(),
                  &size) != nullptr &&
                 size == out.size(),
             "HMAC-SHA-256 is always there");
    return out;
}

const Signer::Mac& Signer::day_key(const std::string& day) {
    if (key_day_ == day) return key_;
    key_ = mac(as_bytes("AWS4" + credentials_.secret_access_key), day);
    for (const std::string_view part : {std::string_view(region_), kService, kScopeEnd})
        key_ = mac(key_, part);
    key_day_ = day;
    return key_;
}

std::string Signer::authorization(const ToSign& request, std::int64_t unix_s) {
    const std::string date = amz_date(unix_s);
    const std::string day = date.substr(0, 8);
    const std::string scope =
        day + '/' + region_ + '/' + std::string(kService) + '/' + std::string(kScopeEnd);
    const std::string to_sign = std::string(kAlgorithm) + '\n' + date + '\n' + scope + '\n' +
                                sha256_hex(as_bytes(canonical_request(request)));
    return std::string(kAlgorithm) + " Credential=" + credentials_.access_key_id + '/' + scope +
           ", SignedHeaders=" + signed_headers(request.headers) +
           ", Signature=" + hex(mac(day_key(day), to_sign));
}

}  // namespace hf::s3
