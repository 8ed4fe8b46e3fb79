#include "plugins/gateway-http/settings.hpp"

#include <array>
#include <charconv>

#include "abi/base/limits.hpp"

namespace hf::gateway {

namespace {

// One setting: where it goes and what it may be. Exactly one of the two members is set.
struct Known {
    std::string_view name;
    std::size_t Settings::*size;
    std::int64_t Settings::*millis;
    std::uint64_t least;
    std::uint64_t most;
};

constexpr std::uint64_t kDayMs = 86'400'000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

// Least values are what one plain request of a browser needs; most values are what a record, a process's descriptors or
// patience allow.
constexpr std::array<Known, 23> kKnown{{
    {"header_bytes_max", &Settings::header_bytes_max, nullptr, 256, kHeaderBytesMax},
    {"header_count_max", &Settings::header_count_max, nullptr, 1, 1000},
    {"body_bytes_max", &Settings::body_bytes_max, nullptr, 0, kLargeBodyBytesMax},
    {"target_bytes_max", &Settings::target_bytes_max, nullptr, 64, std::uint64_t{8} * 1024},
    {"connections_max", &Settings::connections_max, nullptr, 1, 1'000'000},
    {"requests_open_max", &Settings::requests_open_max, nullptr, 1, 65'536},
    {"body_rate_min", &Settings::body_rate_min, nullptr, 0, std::uint64_t{1024} * 1024},
    {"header_timeout", nullptr, &Settings::header_timeout_ms, 10, kDayMs},
    {"body_timeout", nullptr, &Settings::body_timeout_ms, 10, kDayMs},
    {"idle_timeout", nullptr, &Settings::idle_timeout_ms, 10, kDayMs},
    {"request_timeout", nullptr, &Settings::request_timeout_ms, 10, kEventWaitMsMax},
    {"write_timeout", nullptr, &Settings::write_timeout_ms, 10, kDayMs},
    {"connections_per_client_max", &Settings::connections_per_client_max, nullptr, 0, 1'000'000},
    {"sockets_max", &Settings::sockets_max, nullptr, 0, 1'000'000},
    {"message_bytes_max", &Settings::message_bytes_max, nullptr, 1, kPayloadBytesMax},
    {"socket_buffer_max", &Settings::socket_buffer_max, nullptr, kRecordBytesMax, kGiB},
    {"sockets_memory_max", &Settings::sockets_memory_max, nullptr, kMiB, 64 * kGiB},
    {"ping_interval", nullptr, &Settings::ping_interval_ms, 10, kDayMs},
    {"pong_timeout", nullptr, &Settings::pong_timeout_ms, 10, kDayMs},
    {"close_timeout", nullptr, &Settings::close_timeout_ms, 10, kDayMs},
    {"bodies_memory_max", &Settings::bodies_memory_max, nullptr, kMiB, 64 * kGiB},
    {"peer_connections", &Settings::peer_connections, nullptr, 1, 1024},
    {"peer_connect_timeout", nullptr, &Settings::peer_connect_timeout_ms, 10, 60'000},
}};

// Text, taken as it is.
struct KnownText {
    std::string_view name;
    std::string Settings::*text;
};
constexpr std::array<KnownText, 4> kKnownTexts{{{"tls_certificate", &Settings::tls_certificate},
                                                {"tls_key", &Settings::tls_key},
                                                {"peer_secret_file", &Settings::peer_secret_file},
                                                {"cluster_listen", &Settings::cluster_listen}}};

std::string known_names() {
    std::string names;
    for (const Known& known : kKnown) names += std::string(known.name) + ", ";
    for (const KnownText& known : kKnownTexts) names += std::string(known.name) + ", ";
    names.resize(names.size() - 2);
    return names;
}

Result<void> read_one(Settings& settings, std::string_view name, std::string_view text) {
    for (const Known& known : kKnown) {
        if (known.name != name) continue;
        std::uint64_t value = 0;
        const char* last = text.data() + text.size();
        const auto [end, error] = std::from_chars(text.data(), last, value);
        if (error != std::errc() || end != last || value < known.least || value > known.most)
            return fail(Code::Invalid,
                        "setting " + std::string(name) + " = \"" + std::string(text) +
                            "\": a number from " + std::to_string(known.least) + " to " +
                            std::to_string(known.most) + " is allowed");
        if (known.size != nullptr)
            settings.*known.size = value;
        else
            settings.*known.millis = static_cast<std::int64_t>(value);
        return {};
    }
    for (const KnownText& known : kKnownTexts) {
        if (known.name != name) continue;
        settings.*known.text = text;
        return {};
    }
    return fail(Code::Invalid,
                "unknown setting \"" + std::string(name) + "\"; known are " + known_names());
}

}  // namespace

Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& given) {
    Settings settings;
    for (const auto& [name, text] : given) HF_TRY(read_one(settings, name, text));
    if (settings.tls_certificate.empty() != settings.tls_key.empty())
        return fail(Code::Invalid, "tls_certificate and tls_key are set together or not at all");
    if (!settings.cluster_listen.empty() && settings.peer_secret_file.empty())
        return fail(
            Code::Invalid,
            "cluster_listen needs peer_secret_file: without it this node takes no calls from "
            "others");
    // Calls between nodes are signed, not encrypted: where clients speak TLS, nodes need a socket that does not.
    if (!settings.peer_secret_file.empty() && settings.cluster_listen.empty() &&
        !settings.tls_certificate.empty())
        return fail(Code::Invalid,
                    "with tls_certificate and peer_secret_file, cluster_listen is needed: calls "
                    "between nodes speak plain HTTP, and listen speaks TLS");
    return settings;
}

Result<std::string> read_secret(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r\n";
    const std::size_t first = text.find_first_not_of(kBlank);
    if (first == std::string_view::npos)
        text = {};
    else
        text = text.substr(first, text.find_last_not_of(kBlank) - first + 1);
    if (text.size() < kSecretBytesMin || text.size() > kSecretBytesMax)
        return fail(
            Code::Invalid,
            "peer_secret_file holds " + std::to_string(text.size()) +
                " bytes; a secret of 32 to 4096 is allowed, for instance from `openssl rand "
                "-hex 32`");
    return std::string(text);
}

}  // namespace hf::gateway
