#include "plugins/gateway-http/settings.hpp"

#include <doctest/doctest.h>

namespace hf::gateway {

TEST_CASE("settings are read by name") {
    const auto settings = read_settings({{"body_bytes_max", "1000"}, {"idle_timeout", "2500"}});
    REQUIRE(settings.ok());
    CHECK(settings->body_bytes_max == 1000);
    CHECK(settings->idle_timeout_ms == 2500);
    CHECK(settings->header_count_max == 100);
    CHECK(settings->sockets_max == 10'000);
    CHECK(read_settings({{"socket_buffer_max", "65536"}})->socket_buffer_max == 65536);
    CHECK_FALSE(read_settings({{"socket_buffer_max", "65535"}}).ok());
    CHECK_FALSE(read_settings({{"message_bytes_max", "0"}}).ok());
}

TEST_CASE("an unknown setting is refused with the known ones") {
    const auto settings = read_settings({{"body_byte_max", "1000"}});
    REQUIRE_FALSE(settings.ok());
    CHECK(settings.error().message.find("\"body_byte_max\"") != std::string::npos);
    CHECK(settings.error().message.find("body_bytes_max, target_bytes_max") != std::string::npos);
}

TEST_CASE("values out of range or not numbers are refused") {
    for (const char* text :
         {"", "-1", "1.5", "10 ", "48KiB", "1073741825", "99999999999999999999"}) {
        CAPTURE(text);
        const auto settings = read_settings({{"body_bytes_max", text}});
        REQUIRE_FALSE(settings.ok());
        CHECK(settings.error().message.find("from 0 to 1073741824") != std::string::npos);
    }
}

TEST_CASE("calls between nodes need a secret, and a socket without TLS") {
    const auto settings = read_settings(
        {{"peer_secret_file", "/s"}, {"cluster_listen", "10.0.0.1:9"}, {"peer_connections", "4"}});
    REQUIRE(settings.ok());
    CHECK(settings->peer_connections == 4);
    CHECK(settings->peer_connect_timeout_ms == 1000);
    CHECK_FALSE(read_settings({{"cluster_listen", "10.0.0.1:9"}}).ok());
    CHECK_FALSE(
        read_settings({{"peer_secret_file", "/s"}, {"tls_certificate", "/c"}, {"tls_key", "/k"}})
            .ok());
    CHECK(read_settings({{"peer_secret_file", "/s"},
                         {"cluster_listen", "10.0.0.1:9"},
                         {"tls_certificate", "/c"},
                         {"tls_key", "/k"}})
              .ok());
}

TEST_CASE("a secret is trimmed, and neither short nor endless") {
    const std::string good(32, 's');
    CHECK(*read_secret("\n " + good + " \r\n") == good);
    CHECK(read_secret(std::string(4096, 's')).ok());
    for (const std::string& bad :
         {std::string(), std::string(" \n"), std::string(31, 's'), std::string(4097, 's')}) {
        const auto secret = read_secret(bad);
        REQUIRE_FALSE(secret.ok());
        CHECK(secret.error().message.find("32 to 4096") != std::string::npos);
        CHECK(secret.error().message.find("sss") == std::string::npos);
    }
}

TEST_CASE("certificate and key come together") {
    CHECK(read_settings({{"tls_certificate", "/c.pem"}, {"tls_key", "/k.pem"}})->tls_key ==
          "/k.pem");
    CHECK_FALSE(read_settings({{"tls_certificate", "/c.pem"}}).ok());
    CHECK_FALSE(read_settings({{"tls_key", "/k.pem"}}).ok());
    CHECK(read_settings({{"tls_certificate", ""}, {"tls_key", ""}}).ok());
}

}  // namespace hf::gateway
