#include "agent/config/text_rules.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace hf::config;

TEST_CASE("measures_come_back_from_their_text") {
    for (const std::int64_t millis :
         {1LL, 250LL, 1000LL, 1500LL, 60'000LL, 90'000LL, 3'600'000LL, 86'400'000LL}) {
        const Measure measure = parse_duration(format_duration(millis));
        CHECK(measure.fault == Measure::Fault::None);
        CHECK(measure.value == millis);
    }
    std::mt19937_64 random(1);
    for (int i = 0; i < 10000; ++i) {
        const auto bytes = static_cast<std::int64_t>(random() >> (1 + random() % 60));
        CHECK(parse_size(format_size(bytes)).value == bytes);
    }
    CHECK(format_duration(90'000) == "90s");
    CHECK(format_duration(3'600'000) == "1h");
    CHECK(format_size(49152) == "48KiB");
    CHECK(format_size(1000) == "1000B");
    CHECK(parse_size("64KB").value == 64000);
}

TEST_CASE("the_nearest_name_is_one_a_person_may_have_meant") {
    const std::vector<std::string> names = {"request_timeout", "place_deadline", "id", "data"};
    CHECK(nearest("request-timeout", names) == "request_timeout");
    CHECK(nearest("REQUEST_TIMEOUT", names) == "request_timeout");
    CHECK(nearest("requesttimeot", names) == "request_timeout");
    CHECK(nearest("di", names) == "id");
    CHECK(nearest("dat", names) == "data");
    CHECK(!nearest("zzzzzzzz", names));
    CHECK(!nearest("", names));
    CHECK(!nearest(std::string(1000, 'a'), names));
}

TEST_CASE("foreign_text_reaches_no_terminal_as_it_is") {
    CHECK(printable("plain ü") == "plain ü");
    CHECK(printable("\x1b[2J") == "\\x1b[2J");
    CHECK(printable("\xff") == "\\xff");
    CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");
    CHECK(printable(std::string(100, 'a')) == std::string(60, 'a') + "...");
    std::mt19937_64 random(2);
    for (int i = 0; i < 10000; ++i) {
        std::string bytes(random() % 80, '\0');
        for (char& c : bytes) c = static_cast<char>(random());
        const std::string shown = printable(bytes);
        CHECK(std::all_of(shown.begin(), shown.end(), [](char c) {
            return static_cast<unsigned char>(c) >= 0x20;
        }));
    }
}
