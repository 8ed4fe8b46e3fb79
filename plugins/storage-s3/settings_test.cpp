// Settings: what is taken, what is refused and with which words; credentials files.
#include "plugins/storage-s3/settings.hpp"

#include <doctest/doctest.h>

#include "plugins/storage-s3/credentials.hpp"

namespace hf::s3 {
namespace {

using Given = std::vector<std::pair<std::string_view, std::string_view>>;

Settings good(Given given) {
    if (std::none_of(
            given.begin(), given.end(), [](const auto& one) { return one.first == "bucket"; }))
        given.emplace_back("bucket", "my-bucket");
    const auto read = read_settings(given);
    REQUIRE_MESSAGE(read.ok(), read.error().message);
    return *read;
}

// The sentence names the setting and holds `part`.
void refused(Given given, std::string_view name, std::string_view part) {
    if (name != "bucket") given.emplace_back("bucket", "my-bucket");
    const auto read = read_settings(given);
    REQUIRE_FALSE(read.ok());
    CAPTURE(read.error().message);
    CHECK(read.error().message.find(name) != std::string::npos);
    CHECK(read.error().message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a bucket is all that must be said") {
    const Settings settings = good({});
    CHECK(settings.endpoint.text() == "https://s3.us-east-1.amazonaws.com");
    CHECK(settings.virtual_host());
    CHECK(settings.url_base() == "https://my-bucket.s3.us-east-1.amazonaws.com");
    CHECK(settings.path_of("a b/c") == "/a%20b/c");
    CHECK(settings.path_of("") == "/");
    CHECK(settings.attempt_timeout_ms == 5'000);
    CHECK(settings.key_bytes_max() == 1024);
    CHECK(good({{"region", "eu-west-1"}}).endpoint.text() == "https://s3.eu-west-1.amazonaws.com");
    // What is not set anywhere comes as nothing.
    CHECK(good({{"endpoint", ""}, {"region", ""}, {"prefix", ""}, {"ca_file", ""}}).region ==
          "us-east-1");
}

TEST_CASE("the bucket goes into the host or into the path") {
    const Settings path = good({{"endpoint", "http://127.0.0.1:7480"}, {"prefix", "prod/"}});
    CHECK_FALSE(path.virtual_host());
    CHECK(path.authority() == "127.0.0.1:7480");
    CHECK(path.url_base() == "http://127.0.0.1:7480");
    CHECK(path.path_of("k") == "/my-bucket/k");
    CHECK(path.path_of("") == "/my-bucket");
    CHECK(path.key_bytes_max() == 1024 - 5);
    const Settings host =
        good({{"endpoint", "https://store.example:9000"}, {"addressing", "virtual"}});
    CHECK(host.authority() == "my-bucket.store.example:9000");
    CHECK(host.url_base() == "https://my-bucket.store.example:9000");
    CHECK(host.path_of("k") == "/k");
    // A dot would be outside of the certificate's wildcard.
    CHECK_FALSE(good({{"bucket", "my.bucket"}}).virtual_host());
    refused({{"endpoint", "http://127.0.0.1:80"}, {"addressing", "virtual"}}, "addressing", "path");
    refused({{"endpoint", "http://[::1]:80"}, {"addressing", "virtual"}}, "addressing", "path");
    refused({{"addressing", "host"}}, "addressing", "\"auto\", \"path\", \"virtual\"");
}

TEST_CASE("endpoints are a scheme, a host and a port") {
    const auto text = [](std::string_view from) {
        const auto parsed = parse_endpoint(from);
        return parsed ? parsed->text() : "refused";
    };
    CHECK(text("https://s3.example") == "https://s3.example");
    CHECK(text("https://s3.example:443/") == "https://s3.example");
    CHECK(text("http://s3.example:80") == "http://s3.example");
    CHECK(text("http://s3.example:443") == "http://s3.example:443");
    CHECK(text("http://[::1]:9000") == "http://[::1]:9000");
    CHECK(text("http://[::1]") == "http://[::1]");
    for (const char* bad : {"s3.example",
                            "ftp://s3.example",
                            "https://",
                            "https://:9000",
                            "http://h:0",
                            "http://h:65536",
                            "http://h:1x",
                            "http://h:",
                            "http://h/path",
                            "http://u@h",
                            "http://h?x",
                            "http://[::1",
                            "http://[x]",
                            "http://[::1]9",
                            "http://h ost",
                            "http://h\xC3\xBC",
                            "http://h#f"}) {
        CAPTURE(bad);
        CHECK(text(bad) == "refused");
    }
    refused({{"endpoint", "s3.example"}}, "endpoint", "http://127.0.0.1:7480");
}

TEST_CASE("names are judged") {
    refused({}, "bucket", "missing");
    for (const char* bad : {"ab",
                            "Upper",
                            "-a-b",
                            "a_b",
                            "a/b",
                            "ab-",
                            "0123456789012345678901234567890123456789012345678901234567890123"})
        refused({{"bucket", bad}}, "bucket", "3 to 63");
    for (const char* bad : {"/a/", "a", "a//b/", "a b/", "\xC3\xBC/"})
        refused({{"prefix", bad}}, "prefix", "256");
    refused({{"prefix", std::string(256, 'a') + '/'}}, "prefix", "256");
    CHECK(good({{"prefix", "a/b.c_d-e/"}}).prefix == "a/b.c_d-e/");
    refused({{"region", "eu west"}}, "region", "eu-central-1");
    refused({{"colour", "red"}}, "colour", "connections_max");
    refused({{"etag_form", "weak"}}, "etag_form", "\"bare\"");
    refused({{"probe", "no"}}, "probe", "\"skip\"");
}

TEST_CASE("numbers have ranges") {
    for (const char* bad : {"", "x", "5s", "-1", "99", "15001", "99999999999999999999"})
        refused({{"attempt_timeout", bad}}, "attempt_timeout", "100 to 15000");
    refused({{"connections_max", "0"}}, "connections_max", "1 to 256");
    refused({{"requests_open_max", "4097"}}, "requests_open_max", "1 to 4096");
    refused({{"attempts_max", "1"}}, "attempts_max", "2 to 100");
    refused(
        {{"attempt_timeout", "9000"}, {"operation_timeout", "8000"}}, "attempt_timeout", "longer");
    refused({{"connect_timeout", "6000"}}, "connect_timeout", "longer");
    const Settings settings = good({{"connect_timeout", "100"}, {"attempt_timeout", "200"}});
    CHECK(settings.connect_timeout_ms == 100);
    CHECK(settings.attempt_timeout_ms == 200);
}

TEST_CASE("keys come in pairs") {
    refused({{"access_key_id", "A"}}, "secret_access_key", "together");
    refused({{"session_token", "t"}}, "session_token", "access_key_id");
    refused({{"access_key_id", "A\nx: y"}, {"secret_access_key", "B"}}, "access_key_id", "plain");
    CHECK(good({{"access_key_id", "A"}, {"secret_access_key", "B"}}).secret_access_key == "B");
}

TEST_CASE("a credentials file has profiles") {
    constexpr std::string_view kFile =
        "# keys\n[default]\naws_access_key_id = AK\r\naws_secret_access_key=S=K/+\n\n"
        "[ other ]\naws_access_key_id=OK\naws_secret_access_key=OS\naws_session_token = T\n"
        "region = x\n[half]\naws_access_key_id=HK";
    const auto first = parse_credentials(kFile, "default", "f");
    REQUIRE(first.ok());
    CHECK(first->access_key_id == "AK");
    CHECK(first->secret_access_key == "S=K/+");
    CHECK(first->session_token.empty());
    const auto other = parse_credentials(kFile, "other", "f");
    REQUIRE(other.ok());
    CHECK(other->access_key_id == "OK");
    CHECK(other->session_token == "T");
    const auto none = parse_credentials(kFile, "prod", "/etc/keys");
    REQUIRE_FALSE(none.ok());
    CHECK(none.error().message.find("[prod]") != std::string::npos);
    CHECK(none.error().message.find("/etc/keys") != std::string::npos);
    const auto half = parse_credentials(kFile, "half", "f");
    REQUIRE_FALSE(half.ok());
    CHECK(half.error().message.find("aws_secret_access_key") != std::string::npos);
    for (const std::string_view odd : {"", "[", "[]", "=", "[default", "\n\n"})
        CHECK_FALSE(parse_credentials(odd, "default", "f").ok());
}

}  // namespace hf::s3
