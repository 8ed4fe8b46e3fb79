#include "plugins/storage-s3/settings.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "plugins/storage-s3/sign.hpp"

namespace hf::s3 {
namespace {

// One setting: where it goes and what it may be. Exactly one of the two members is set.
struct Number {
    std::string_view name;
    std::size_t Settings::*count;
    std::int64_t Settings::*millis;
    std::uint64_t least;
    std::uint64_t most;
};
constexpr std::array<Number, 6> kNumbers{{
    {"connect_timeout", nullptr, &Settings::connect_timeout_ms, 10, 10'000},
    {"attempt_timeout", nullptr, &Settings::attempt_timeout_ms, 100, kWaitMsMax},
    {"operation_timeout", nullptr, &Settings::operation_timeout_ms, 100, kWaitMsMax},
    {"connections_max", &Settings::connections_max, nullptr, 1, 256},
    {"requests_open_max", &Settings::requests_open_max, nullptr, 1, 4'096},
    {"attempts_max", &Settings::attempts_max, nullptr, 2, 100},
}};

struct Text {
    std::string_view name;
    std::string Settings::*text;
};
constexpr std::array<Text, 9> kTexts{{
    {"region", &Settings::region},
    {"bucket", &Settings::bucket},
    {"prefix", &Settings::prefix},
    {"access_key_id", &Settings::access_key_id},
    {"secret_access_key", &Settings::secret_access_key},
    {"session_token", &Settings::session_token},
    {"credentials_file", &Settings::credentials_file},
    {"profile", &Settings::profile},
    {"ca_file", &Settings::ca_file},
}};

constexpr std::string_view kNames =
    "endpoint, region, bucket, prefix, addressing, etag_form, probe, access_key_id, "
    "secret_access_key, session_token, credentials_file, profile, ca_file, connect_timeout, "
    "attempt_timeout, operation_timeout, connections_max, requests_open_max, attempts_max";

std::string quoted(std::string_view text) {
    return '"' + std::string(text) + '"';
}

template <class Choice, std::size_t N>
Result<Choice> choose(std::string_view name,
                      std::string_view text,
                      const std::array<std::pair<std::string_view, Choice>, N>& choices) {
    std::string allowed;
    for (const auto& [word, choice] : choices) {
        if (word == text) return choice;
        allowed += (allowed.empty() ? "" : ", ") + quoted(word);
    }
    return fail(Code::Invalid,
                "setting " + std::string(name) + " = " + quoted(text) + ": one of " + allowed +
                    " is allowed");
}

bool lower_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool host_character(char c) {
    return lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

Result<void> read_number(Settings& settings, const Number& known, std::string_view text) {
    std::uint64_t value = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc() || end != last || value < known.least || value > known.most)
        return fail(Code::Invalid,
                    "setting " + std::string(known.name) + " = " + quoted(text) +
                        ": a number from " + std::to_string(known.least) + " to " +
                        std::to_string(known.most) +
                        (known.millis != nullptr ? " (ms) is allowed" : " is allowed"));
    if (known.count != nullptr)
        settings.*known.count = value;
    else
        settings.*known.millis = static_cast<std::int64_t>(value);
    return {};
}

Result<void> read_one(Settings& settings, std::string_view name, std::string_view text) {
    for (const Number& known : kNumbers)
        if (known.name == name) return read_number(settings, known, text);
    // What is not set anywhere comes as nothing: the default stays.
    for (const Text& known : kTexts) {
        if (known.name != name) continue;
        if (!text.empty()) settings.*known.text = text;
        return {};
    }
    if (name == "endpoint") {
        if (text.empty()) return {};
        HF_ASSIGN(settings.endpoint, parse_endpoint(text));
        return {};
    }
    if (name == "addressing") {
        HF_ASSIGN(settings.addressing,
                  choose(name,
                         text,
                         std::array{std::pair{std::string_view("auto"), Addressing::Auto},
                                    std::pair{std::string_view("path"), Addressing::Path},
                                    std::pair{std::string_view("virtual"), Addressing::Virtual}}));
        return {};
    }
    if (name == "etag_form") {
        HF_ASSIGN(settings.etag_form,
                  choose(name,
                         text,
                         std::array{std::pair{std::string_view("auto"), EtagForm::Auto},
                                    std::pair{std::string_view("quoted"), EtagForm::Quoted},
                                    std::pair{std::string_view("bare"), EtagForm::Bare}}));
        return {};
    }
    if (name == "probe") {
        HF_ASSIGN(settings.probe,
                  choose(name,
                         text,
                         std::array{std::pair{std::string_view("strict"), ProbeMode::Strict},
                                    std::pair{std::string_view("skip"), ProbeMode::Skip}}));
        return {};
    }
    return fail(Code::Invalid,
                "unknown setting " + quoted(name) + "; known are " + std::string(kNames));
}

Result<void> judge_names(const Settings& settings) {
    const std::string& bucket = settings.bucket;
    if (bucket.empty())
        return fail(Code::Invalid, "the setting bucket (its name at the store) is missing");
    if (bucket.size() < 3 || bucket.size() > 63 || !lower_or_digit(bucket.front()) ||
        !lower_or_digit(bucket.back()) || !std::all_of(bucket.begin(), bucket.end(), [](char c) {
            return lower_or_digit(c) || c == '-' || c == '.';
        }))
        return fail(Code::Invalid,
                    "setting bucket = " + quoted(bucket) +
                        ": 3 to 63 characters of a-z 0-9 . -, letters or digits at both ends");
    if (settings.region.size() > 64 ||
        !std::all_of(settings.region.begin(), settings.region.end(), host_character))
        return fail(Code::Invalid,
                    "setting region = " + quoted(settings.region) +
                        ": at most 64 letters, digits, - and _, as in \"eu-central-1\"");
    const std::string& prefix = settings.prefix;
    if (prefix.empty()) return {};
    if (prefix.size() > kPrefixBytesMax || prefix.front() == '/' || prefix.back() != '/' ||
        prefix.find("//") != std::string::npos ||
        !std::all_of(
            prefix.begin(), prefix.end(), [](char c) { return host_character(c) || c == '/'; }))
        return fail(Code::Invalid,
                    "setting prefix = " + quoted(prefix) + ": at most " +
                        std::to_string(kPrefixBytesMax) +
                        " characters of A-Z a-z 0-9 . _ - in parts that each end with '/', as in "
                        "\"prod/\"");
    return {};
}

Result<void> judge_credentials(const Settings& settings) {
    if (settings.access_key_id.empty() != settings.secret_access_key.empty())
        return fail(Code::Invalid,
                    "access_key_id and secret_access_key are set together or not at all");
    if (!settings.session_token.empty() && settings.access_key_id.empty())
        return fail(Code::Invalid, "session_token goes with access_key_id and secret_access_key");
    for (const std::string* text : {&settings.access_key_id, &settings.session_token})
        if (std::any_of(text->begin(), text->end(), [](char c) { return c <= ' ' || c > '~'; }))
            return fail(Code::Invalid,
                        "access_key_id and session_token are plain characters without blanks");
    return {};
}

}  // namespace

std::string Endpoint::text() const {
    return (tls ? "https://" : "http://") + authority;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
    const auto refuse = [&](std::string_view why) {
        return fail(Code::Invalid,
                    "setting endpoint = " + quoted(text) + ": " + std::string(why) +
                        "; it looks like \"https://s3.eu-central-1.amazonaws.com\" or "
                        "\"http://127.0.0.1:7480\"");
    };
    Endpoint out;
    std::string_view rest = text;
    if (rest.starts_with("https://")) {
        rest.remove_prefix(8);
    } else if (rest.starts_with("http://")) {
        rest.remove_prefix(7);
        out.tls = false;
        out.port = 80;
    } else {
        return refuse("it begins with neither https:// nor http://");
    }
    if (rest.ends_with('/')) rest.remove_suffix(1);
    if (rest.find_first_of("/?#@") != std::string_view::npos)
        return refuse("host and port are allowed, no path, query or user");
    std::size_t end = rest.find(':');
    if (rest.starts_with('[')) {
        end = rest.find(']');
        if (end == std::string_view::npos) return refuse("its '[' is not closed");
        const std::string_view inner = rest.substr(1, end - 1);
        if (inner.find(':') == std::string_view::npos ||
            inner.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos)
            return refuse("brackets hold an IPv6 address");
        ++end;
    }
    const std::string_view host = rest.substr(0, end);
    std::string_view port = end == std::string_view::npos ? std::string_view() : rest.substr(end);
    if (host.empty() || host.size() > 253 ||
        (host.front() != '[' && !std::all_of(host.begin(), host.end(), host_character)))
        return refuse("the host is missing or holds characters that no host has");
    out.host = host;
    const std::uint16_t standard = out.port;
    if (!port.empty()) {
        if (port.front() != ':') return refuse("a port follows its host after ':'");
        port.remove_prefix(1);
        const auto [last, error] =
            std::from_chars(port.data(), port.data() + port.size(), out.port);
        if (error != std::errc() || last != port.data() + port.size() || out.port == 0)
            return refuse("the port is a number from 1 to 65535");
    }
    out.authority = out.port == standard ? out.host : out.host + ':' + std::to_string(out.port);
    return out;
}

bool Settings::virtual_host() const {
    if (addressing != Addressing::Auto) return addressing == Addressing::Virtual;
    // A certificate's wildcard covers one label: a bucket with dots has to go into the path.
    return endpoint.host.ends_with(".amazonaws.com") && bucket.find('.') == std::string::npos;
}

std::string Settings::authority() const {
    return virtual_host() ? bucket + '.' + endpoint.authority : endpoint.authority;
}

std::string Settings::url_base() const {
    return (endpoint.tls ? "https://" : "http://") + authority();
}

std::string Settings::path_of(std::string_view key) const {
    std::string path = virtual_host() ? "/" : '/' + bucket + '/';
    if (key.empty() && !virtual_host()) path.pop_back();
    return path + percent_encoded(key, true);
}

Result<Settings> read_settings(
    const std::vector<std::pair<std::string_view, std::string_view>>& given) {
    Settings settings;
    for (const auto& [name, text] : given) HF_TRY(read_one(settings, name, text));
    HF_TRY(judge_names(settings));
    HF_TRY(judge_credentials(settings));
    if (settings.endpoint.host.empty()) {
        HF_ASSIGN(settings.endpoint,
                  parse_endpoint("https://s3." + settings.region + ".amazonaws.com"));
    }
    if (settings.virtual_host() &&
        (settings.endpoint.host.front() == '[' ||
         settings.endpoint.host.find_first_not_of("0123456789.") == std::string::npos))
        return fail(Code::Invalid,
                    "addressing = \"virtual\" puts the bucket's name before the endpoint's host, "
                    "which is an address: use \"path\"");
    if (settings.attempt_timeout_ms > settings.operation_timeout_ms)
        return fail(Code::Invalid,
                    "attempt_timeout (one try) is longer than operation_timeout (all of them)");
    if (settings.connect_timeout_ms > settings.attempt_timeout_ms)
        return fail(Code::Invalid,
                    "connect_timeout is longer than attempt_timeout, which contains it");
    return settings;
}

}  // namespace hf::s3
