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

TEST_CASE("certificate and key come together") {
    CHECK(read_settings({{"tls_certificate", "/c.pem"}, {"tls_key", "/k.pem"}})->tls_key ==
          "/k.pem");
    CHECK_FALSE(read_settings({{"tls_certificate", "/c.pem"}}).ok());
    CHECK_FALSE(read_settings({{"tls_key", "/k.pem"}}).ok());
    CHECK(read_settings({{"tls_certificate", ""}, {"tls_key", ""}}).ok());
}

}  // namespace hf::gateway
