// The gateway's bounds and time limits, by name, as the supervisor hands them over: decimal digits, sizes in bytes,
// durations in milliseconds. Responsible for names, ranges and defaults; not for applying them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/base/limits.hpp"
#include "abi/base/result.hpp"

namespace hf::gateway {

struct Settings {
    // Request header lines, without the request line. The rest of a record beside a full body.
    std::size_t header_bytes_max = kHeaderBytesMax;
    // Browsers send about 20, proxies add a few; 100 is what most servers allow.
    std::size_t header_count_max = 100;
    std::size_t body_bytes_max = kPayloadBytesMax;
    // 8000 octets is what HTTP asks servers to support at least.
    std::size_t target_bytes_max = std::size_t{8} * 1024;
    // Open client connections; each costs a descriptor and at most about 40 KiB while it misbehaves.
    std::size_t connections_max = 10'000;
    // Requests that are open at the supervisor, wait for room in the ring, or are sending a body:
    // each may keep one whole event (60 KiB) here, so 1024 of them keep 60 MiB at most.
    std::size_t requests_open_max = 1024;
    // A body slower than this over one look (10 s) is given up; body_timeout ends any body.
    std::size_t body_rate_min = 1024;  // bytes a second
    std::int64_t header_timeout_ms = 10'000;
    std::int64_t body_timeout_ms = 30'000;
    std::int64_t idle_timeout_ms = 75'000;
    std::int64_t request_timeout_ms = 30'000;
    std::int64_t write_timeout_ms = 30'000;
    // Connections of one peer address (IPv6: of one /64, which is what a household is given); 0: not counted.
    std::size_t connections_per_client_max = 0;
    // WebSockets that are open, asked for, or whose end the supervisor has not heard of yet.
    std::size_t sockets_max = 10'000;
    std::size_t message_bytes_max = kPayloadBytesMax;
    // What one client was sent and has not read: twenty of the largest messages.
    std::size_t socket_buffer_max = std::size_t{1024} * 1024;
    // And what all of them keep here together, both ways: 256 clients that read nothing.
    std::size_t sockets_memory_max = std::size_t{256} * 1024 * 1024;
    // Routers forget silent connections after a minute or more.
    std::int64_t ping_interval_ms = 30'000;
    std::int64_t pong_timeout_ms = 20'000;
    // A client answers a close as soon as it reads it.
    std::int64_t close_timeout_ms = 5'000;
    // Uploads that are too large for a record, from their first byte to the answer: eight of 64 MiB.
    std::size_t bodies_memory_max = std::size_t{512} * 1024 * 1024;
    // Files in PEM; both or neither. The supervisor may pass them as descriptors of these names, else they are opened here.
    std::string tls_certificate = {};
    std::string tls_key = {};
    // Calls between nodes: the file with the cluster's secret, passed or opened as those; empty: none out and none in.
    std::string peer_secret_file = {};
    // The address of the second socket, which takes calls of other nodes and nothing else; empty: there is none, and they come
    // where clients do.
    std::string cluster_listen = {};
    // Connections to one other node. Each carries one call at a time; what is beyond waits.
    std::size_t peer_connections = 16;
    // Nodes of a cluster are near each other; a call that was not sent may be tried at once.
    std::int64_t peer_connect_timeout_ms = 1'000;
};

// The secret is 32 bytes at least, as many as a digest has, and what nobody types by hand at most.
inline constexpr std::size_t kSecretBytesMin = 32;
inline constexpr std::size_t kSecretBytesMax = 4096;
// `text` without the blanks and line ends around it. A failure says what is wrong with it, and nothing of it.
[[nodiscard]] Result<std::string> read_secret(std::string_view text);

// How often a body's progress is looked at: long enough for a network that stalls for some seconds.
[[nodiscard]] inline std::int64_t body_look_ms(const Settings& settings) {
    return std::min<std::int64_t>(10'000, settings.body_timeout_ms);
}

// Unknown names, non-digits and values out of range are refused with a sentence that says what is allowed.
[[nodiscard]] Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& given);

}  // namespace hf::gateway
