// What storage-s3 is told, by name, as the supervisor hands it over: decimal digits, durations in milliseconds. Responsible
// for names, ranges, defaults and for what does not go together; not for opening files, not for asking the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/result.hpp"

namespace hf::s3 {

enum class Addressing : std::uint8_t { Auto, Path, Virtual };
enum class EtagForm : std::uint8_t { Auto, Quoted, Bare };
enum class ProbeMode : std::uint8_t { Strict, Skip };

// Where requests go. `authority` is host and, unless it is the scheme's own, port: what Host says and what is signed.
struct Endpoint {
    bool tls = true;
    std::string host;  // of an IPv6 literal with its brackets
    std::uint16_t port = 443;
    std::string authority;                   // "s3.example:9000"
    [[nodiscard]] std::string text() const;  // "https://s3.example:9000"
};

// "https://host", "http://host:port", "http://[::1]:9000". No path, user or query.
[[nodiscard]] Result<Endpoint> parse_endpoint(std::string_view text);

// All of a prefix and a key is at most 1024 bytes in S3; the longest key of a node takes less than 600.
inline constexpr std::size_t kPrefixBytesMax = 256;
inline constexpr std::size_t kKeyBytesMax = 1024;
// A request that is answered later than this counts as a stalled plugin in the supervisor (20 s): every wait ends before.
inline constexpr std::int64_t kWaitMsMax = 15'000;

struct Settings {
    Endpoint endpoint;
    std::string region = "us-east-1";
    std::string bucket;
    std::string prefix;  // before every key; empty or ends with '/'
    Addressing addressing = Addressing::Auto;
    EtagForm etag_form = EtagForm::Auto;
    ProbeMode probe = ProbeMode::Strict;

    // One source: both keys here, or a file in the form of ~/.aws/credentials, which may come as a descriptor.
    std::string access_key_id;
    std::string secret_access_key;
    std::string session_token;
    std::string credentials_file;
    std::string profile = "default";

    std::string ca_file;  // PEM; may come as a descriptor; empty: the system's

    std::int64_t connect_timeout_ms = 2'000;
    // One exchange; a store that takes longer for 52 KiB is as good as away.
    std::int64_t attempt_timeout_ms = 5'000;
    // One operation with all its attempts, pauses and looks.
    std::int64_t operation_timeout_ms = 10'000;
    // Kept alive and used again. Ninety-six operations are open at most; a third of them at once fills any one server.
    std::size_t connections_max = 32;
    // Operations that are open here; the supervisor keeps 96.
    std::size_t requests_open_max = 1'024;
    // HTTP requests of one operation, looks included.
    std::size_t attempts_max = 12;

    // How `bucket` is named: part of the host, or of the path.
    [[nodiscard]] bool virtual_host() const;
    [[nodiscard]] std::string authority() const;  // Host
    [[nodiscard]] std::string url_base() const;   // "https://bucket.host" or "http://host"
    [[nodiscard]] std::string path_of(
        std::string_view key) const;  // encoded, "/bucket/key" or "/key"
    [[nodiscard]] std::size_t key_bytes_max() const { return kKeyBytesMax - prefix.size(); }
};

// Unknown names, non-digits, values out of range and what contradicts itself are refused with a sentence that says what is
// allowed.
[[nodiscard]] Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& given);

}  // namespace hf::s3
