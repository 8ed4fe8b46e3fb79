#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/core/keys.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <set>
#include <string>

#include "abi/base/limits.hpp"

using namespace hf::core;

namespace {

std::string random_bytes(std::mt19937_64& random, std::size_t most) {
    std::string out(1 + random() % most, '\0');
    // Half of them from the bytes that matter to a path, so that collisions would show.
    static constexpr std::string_view kSpicy = "./%+ -_aA0\n";
    for (char& c : out)
        c = random() % 2 == 0 ? static_cast<char>(random() & 0xFFU)
                              : kSpicy[random() % kSpicy.size()];
    return out;
}

}  // namespace

TEST_CASE("escaping_keeps_plain_bytes_and_spells_out_every_other") {
    CHECK(escape_part("Az09_-") == "Az09_-");
    CHECK(escape_part("a.b") == "a.2eb");
    CHECK(escape_part("a/b") == "a.2fb");
    CHECK(escape_part("%2F") == ".252F");
    CHECK(escape_part("..") == ".2e.2e");
    CHECK(escape_part(std::string_view("\0\n\xff", 3)) == ".00.0a.ff");
    CHECK(escape_part("ü") == ".c3.bc");
    CHECK(escape_part("").empty());
}

TEST_CASE("every_byte_sequence_comes_back_and_twins_never_meet") {
    std::mt19937_64 random(7);
    std::set<std::string> raw_seen;
    std::set<std::string> escaped_seen;
    for (int i = 0; i < 20000; ++i) {
        const std::string raw = random_bytes(random, 12);
        const std::string escaped = escape_part(raw);
        CHECK(escaped.find_first_of("/% \n\\?#") == std::string::npos);
        REQUIRE(unescape_part(escaped) == raw);
        raw_seen.insert(raw);
        escaped_seen.insert(escaped);
    }
    CHECK(raw_seen.size() == escaped_seen.size());
}

TEST_CASE("unescaping_takes_only_what_escaping_makes") {
    for (const char* bad :
         {".", ".2", ".2E", ".FF", ".zz", ".61", "a b", "a/b", "%41", ".5f", "x.0"})
        CHECK_MESSAGE(!unescape_part(bad), bad);
    // Whatever it does take, escaping gives back unchanged.
    std::mt19937_64 random(11);
    for (int i = 0; i < 20000; ++i) {
        const std::string bytes = random_bytes(random, 6);
        if (const auto raw = unescape_part(bytes)) REQUIRE(escape_part(*raw) == bytes);
    }
}

TEST_CASE("units_have_their_documented_form") {
    CHECK(actor_unit("default", "counter", "alice").value() == "actor/default/counter/alice");
    CHECK(actor_unit("default", "counter", "a+b/ü").value() ==
          "actor/default/counter/a.2bb.2f.c3.bc");
    CHECK(shard_unit("default", "cart", 63).value() == "shard/default/cart/63");
    CHECK(coordinator_unit("default", "cart").value() == "shard/default/cart/coord");
    CHECK(parse_unit("actor/default/counter/a.2bb") ==
          UnitName{UnitName::Kind::Actor, "default", "counter", "a+b"});
    CHECK(parse_unit("shard/default/cart/coord")->kind == UnitName::Kind::Shard);
}

TEST_CASE("a_unit_of_400_bytes_passes_and_one_more_is_refused_at_the_door") {
    const std::string head = "actor/t/c/";
    CHECK(actor_unit("t", "c", std::string(hf::kUnitBytesMax - head.size(), 'x')).ok());
    const auto over = actor_unit("t", "c", std::string(hf::kUnitBytesMax - head.size() + 1, 'x'));
    REQUIRE(!over.ok());
    CHECK(over.error().code == hf::Code::Invalid);
    CHECK(over.error().message.find("400") != std::string::npos);
    CHECK(!actor_unit("t", "c", std::string(200, '/')).ok());  // short raw, 600 bytes escaped
    CHECK(!actor_unit("t", "c", std::string(1U << 20U, 'x')).ok());
    for (const auto& [t, c, n] : {std::tuple{"", "c", "n"}, {"t", "", "n"}, {"t", "c", ""}})
        CHECK(!actor_unit(t, c, n).ok());
}

TEST_CASE("malformed_units_are_not_taken_apart") {
    for (const char* bad : {"",
                            "actor",
                            "actor/",
                            "actor/t/c",
                            "actor/t/c/",
                            "actor//c/n",
                            "actor/t//n",
                            "actor/t/c/n/x",
                            "Actor/t/c/n",
                            "other/t/c/n",
                            "actor/t/c/a b",
                            "shard/t/c/01",
                            "shard/t/c/-1",
                            "shard/t/c/x",
                            "shard/t/c/4294967296"})
        CHECK_MESSAGE(!parse_unit(bad), bad);
    CHECK(!parse_unit("actor/t/c/" + std::string(400, 'x')));
}

TEST_CASE("keys_have_their_documented_bytes") {
    CHECK(key::store() == "store");
    CHECK(key::node("n1") == "nodes/n1");
    CHECK(key::drain("n1") == "control/drain/n1");
    CHECK(key::cordon("n1") == "control/cordon/n1");
    CHECK(key::move("t", "c", "aé", "n2") == "control/move/t/c/61c3a9/n2");
    CHECK(key::hold("app", "actor/t/c/n") == "apps/app/holds/actor/t/c/n");
    CHECK(key::entry("app", "actor/t/c/n", 7) == "apps/app/log/actor/t/c/n/00000000000000000007");
    CHECK(key::log_prefix("app", "actor/t/c/n") == "apps/app/log/actor/t/c/n/");
    CHECK(key::entry("app", "actor/t/c/n", std::numeric_limits<std::uint64_t>::max()) ==
          "apps/app/log/actor/t/c/n/18446744073709551615");
    // FNV-1a of "actor/t/c/n", worked out apart from this code: 0xd65cf05aa7f6ba66, mod 64 = 38.
    CHECK(key::alarm("app", "actor/t/c/n", 1764471600000, 0xabcULL) ==
          "apps/app/alarms/38/00000001764471600000/actor/t/c/n/0000000000000abc");
    CHECK(key::alarm("app", "actor/t/c/n", -5, 0).find("/00000000000000000000/") !=
          std::string::npos);
}

TEST_CASE("what_a_builder_makes_its_parser_takes_apart") {
    std::mt19937_64 random(3);
    for (int i = 0; i < 5000; ++i) {
        const std::string name = random_bytes(random, 40);
        const std::string unit = actor_unit("default", "counter", name).value();
        const std::uint64_t seq = 1 + random() % kLogSeqMost;
        const auto due = static_cast<std::int64_t>(random() >> 1U);
        const std::uint64_t nonce = random();

        const auto entry = parse_entry_key(key::entry("app-1", unit, seq));
        REQUIRE(entry);
        CHECK(entry->app == "app-1");
        CHECK(entry->unit == unit);
        CHECK(entry->seq == seq);

        const auto alarm = parse_alarm_key(key::alarm("app-1", unit, due, nonce));
        REQUIRE(alarm);
        CHECK(alarm->unit == unit);
        CHECK(alarm->due_ms == due);
        CHECK(alarm->nonce == nonce);
        CHECK(alarm->shard == alarm_shard(unit));

        const auto hold = parse_hold_key(key::hold("app-1", unit));
        REQUIRE(hold);
        CHECK(hold->unit == unit);
        CHECK(parse_unit(unit)->name == name);

        const auto move = parse_move_key(key::move("default", "counter", name, "node-2"));
        REQUIRE(move);
        CHECK(move->name == name);
        CHECK(move->target_node == "node-2");
    }
}

TEST_CASE("a_damaged_key_is_taken_by_no_parser_or_is_a_key_that_its_builder_makes") {
    std::mt19937_64 random(5);
    const std::string entry = key::entry("app", "actor/t/c/n.2e", 42);
    const std::string alarm = key::alarm("app", "actor/t/c/n.2e", 1234, 5);
    for (int i = 0; i < 20000; ++i) {
        std::string bytes = i % 2 == 0 ? entry : alarm;
        const std::size_t at = random() % bytes.size();
        switch (random() % 3) {
            case 0:
                bytes[at] = static_cast<char>(random() & 0xFFU);
                break;
            case 1:
                bytes.erase(at, 1 + random() % 3);
                break;
            default:
                bytes.insert(at, 1, "/.0aF"[random() % 5]);
                break;
        }
        if (const auto got = parse_entry_key(bytes))
            CHECK(key::entry(got->app, got->unit, got->seq) == bytes);
        if (const auto got = parse_alarm_key(bytes))
            CHECK(key::alarm(got->app, got->unit, got->due_ms, got->nonce) == bytes);
        if (const auto got = parse_hold_key(bytes)) CHECK(key::hold(got->app, got->unit) == bytes);
    }
    // What no log can hold: there is nothing behind the last number, and nothing in place of the first.
    CHECK(parse_entry_key(key::entry("app", "actor/t/c/n", kLogSeqMost)));
    CHECK(!parse_entry_key(key::entry("app", "actor/t/c/n", kLogSeqMost + 1)));
    CHECK(!parse_entry_key(key::entry("app", "actor/t/c/n", UINT64_MAX)));
    CHECK(!parse_entry_key(key::entry("app", "actor/t/c/n", 0)));
    CHECK(!parse_node_key("nodes/"));
    CHECK(!parse_node_key("nodes/a/b"));
    CHECK(parse_node_key("nodes/a") == "a");
    CHECK(parse_drain_key("control/drain/a") == "a");
    CHECK(!parse_cordon_key("control/drain/a"));
}
