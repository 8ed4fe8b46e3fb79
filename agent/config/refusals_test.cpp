// Mistakes people make in agent.toml. Each is refused with file:line:column, the key, and what would have been right.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>

#include "agent/config/test_file.hpp"

using namespace hf::config;
using namespace hf::config::test;

namespace {

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// One complaint, at that place, with those words.
void refused(std::string_view text,
             std::string_view place,
             std::initializer_list<std::string_view> words) {
    const std::string got = complaints(text);
    CAPTURE(text);
    CAPTURE(got);
    CHECK(got.starts_with("agent.toml:" + std::string(place)));
    CHECK(got.find('\n') + 1 == got.size());
    for (const std::string_view word : words) CHECK_MESSAGE(has(got, word), word);
}

std::string limit(std::string_view line) {
    return with_plugins("[limits]\n" + std::string(line));
}

}  // namespace

TEST_CASE("misspelt_table_names_the_nearest_table") {
    refused(with_plugins("[plugin.storge]\nuse = \"storage-local\""),
            "1:9: ",
            {"unknown table [plugin.storge]", "did you mean [plugin.storage]?"});
    refused(
        with_plugins("[limit]\n"), "1:2: ", {"unknown table [limit]", "did you mean 'limits'?"});
    refused(with_plugins("[qqqqqq]\n"),
            "1:2: ",
            {"unknown table [qqqqqq]", "known here: node, limits"});
    CHECK(has(
        complaints(
            "[plugin.storge]\nuse = \"storage-local\"\n[plugin.gateway]\nuse = \"gateway-http\"\n"
            "[plugin.runtime]\nuse = \"runtime-wasm\"\n"),
        "no [plugin.storage] table: a node needs a storage plugin, for instance use = "
        "\"storage-local\""));
}

TEST_CASE("misspelt_key_names_the_nearest_key") {
    refused(with_plugins("[node]\nstroage = \"s3\""),
            "2:1: ",
            {"unknown key 'stroage' in [node]; did you mean 'storage'?", "[plugin.storage]"});
    refused(with_plugins("[node]\ntennant = \"x\""),
            "2:1: ",
            {"'tennant' in [node]; did you mean 'tenant'?"});
    refused(limit("request-timeout = \"10s\""), "2:1: ", {"did you mean 'request_timeout'?"});
    refused(limit("Request_Timeout = \"10s\""), "2:1: ", {"did you mean 'request_timeout'?"});
    refused("stroage = \"s3\"\n" + std::string(kPlugins),
            "1:1: ",
            {"unknown key 'stroage' outside any table"});
}

TEST_CASE("what_the_parser_quotes_of_the_file_reaches_no_terminal_as_it_is") {
    refused("[plugin.storage]\nrequired = fals\x04\n", "2:", {"not valid TOML", "fals\\x04"});
}
TEST_CASE("key_in_the_wrong_table_says_where_it_belongs") {
    refused(with_plugins("[node]\nmap_bytes = \"1GiB\""),
            "2:1: ",
            {"'map_bytes' in [node]; it belongs in [plugin.storage]"});
    refused(with_plugins("[node]\nrequest_timeout = \"1s\""),
            "2:1: ",
            {"it belongs in [limits] or [plugin.gateway]"});
    refused(limit("listen = \"127.0.0.1:80\""), "2:1: ", {"it belongs in [plugin.gateway]"});
}

TEST_CASE("names_of_plugins_are_case_sensitive_and_the_nearest_is_named") {
    const std::string text =
        "[plugin.gateway]\nuse = \"gateway-http\"\n[plugin.storage]\nuse = \"Storage-local\"\n"
        "[plugin.runtime]\nuse = \"runtime-wasm\"\n";
    refused(text,
            "4:7: ",
            {"'plugin.storage.use' is \"Storage-local\"", "did you mean \"storage-local\"?"});
    refused(with_plugins("[log]\nlevel = \"Info\""),
            "2:9: ",
            {"\"Info\"", "did you mean \"info\"?", "\"debug\""});
    refused(with_plugins("[plugin.placement]\nuse = \"scheduler\"\npolicy = \"Rendezvous\""),
            "3:10: ",
            {"'plugin.placement.policy'", "did you mean \"rendezvous\"?", "\"least-loaded\""});
    refused(with_plugins("[node]\nrole = \"shard-region\""),
            "2:8: ",
            {"'node.role' must be \"wasmkeep\""});
}

TEST_CASE("the_same_key_or_table_twice_is_refused") {
    refused(with_plugins("[node]\nid = \"a\"\nid = \"b\""), "3:", {"cannot redefine", "'id'"});
    refused(with_plugins("[limits]\n[node]\n[limits]"), "3:1: ", {"cannot redefine", "'limits'"});
    refused(with_plugins("[plugin.gateway.x]\n[plugin.gateway.x]"), "2:1: ", {"cannot redefine"});
    refused("[plugin]\nstorage.use = \"storage-local\"\n" + std::string(kPlugins),
            "5:1: ",
            {"'plugin.storage'"});
    refused("plugin.storage.use = \"storage-local\"\n" + std::string(kPlugins),
            "4:1: ",
            {"cannot redefine"});
}

TEST_CASE("durations_need_a_unit_a_whole_number_and_their_range") {
    const auto bad = [](std::string_view value, std::string_view word) {
        refused(limit("request_timeout = " + std::string(value)),
                "2:19: ",
                {"'limits.request_timeout'", "from 100ms to 1h", "(ms, s, m, h)", word});
    };
    bad("\"10\"", "the string \"10\" has no unit");
    bad("10", "the number 10 ");
    bad("10.5", "the number 10.5 ");
    bad("-1", "the number -1 ");
    bad("0", "the number 0 ");
    bad("\"10.5s\"", "is not a whole number (use a smaller unit)");
    bad("\"-1s\"", "is negative");
    bad("\"0s\"", "is out of range");
    bad("\"61m\"", "is out of range");
    bad("\"10S\"", "unknown unit 'S' (did you mean 's'?)");
    bad("\"s\"", "is not a number with a unit");
    bad("\"010s\"", "is not a number with a unit");
    bad("\"\"", "is empty");
    bad("\"99999999999999999999h\"", "is too large");
    bad("\"9223372036854775807h\"", "is too large");
    bad("2026-01-01", "the date or time 2026-01-01");
    bad("12:00:00", "the date or time 12:00:00");
    bad("true", "true is not text");
    bad("[\"10s\"]", "a list");
    bad("{ s = 10 }", "a table");
}

TEST_CASE("counts_and_sizes_are_range_checked_with_the_range_named") {
    for (const char* value :
         {"\"10\"", "10.5", "-1", "0", "65537", "9223372036854775807", "inf", "nan", "1979-05-27"})
        refused(limit("mailbox_events = " + std::string(value)),
                "2:18: ",
                {"'limits.mailbox_events'", "from 1 to 65536"});
    for (const char* value :
         {"\"10\"", "10", "\"1kib\"", "\"1.5GiB\"", "\"-1MiB\"", "\"1TiB\"", "\"1 MiB\""})
        refused(limit("mailbox_bytes = " + std::string(value)),
                "2:17: ",
                {"'limits.mailbox_bytes'", "from 64KiB to 1GiB"});
    refused(limit("mailbox_bytes = \"99999999999TiB\""), "2:17: ", {"too large"});
}

TEST_CASE("numbers_that_toml_does_not_know_are_refused_where_they_stand") {
    refused(limit("mailbox_events = 01"), "2:", {"leading zero"});
    refused(limit("mailbox_events = 1__0"), "2:", {"underscore"});
    refused(limit("mailbox_events = 99999999999999999999"), "2:", {});
    refused(with_plugins("node = { id = \"a\", }"), "1:", {"dangling comma"});
    refused(limit("mailbox_events ="), "2:", {});
    refused(with_plugins("[node"), "1:", {});
}

TEST_CASE("a_slot_holds_one_plugin") {
    const std::string rest =
        "[plugin.gateway]\nuse = \"gateway-http\"\n[plugin.runtime]\nuse = \"runtime-wasm\"\n";
    refused(
        "[[plugin.storage]]\nuse = \"storage-local\"\n[[plugin.storage]]\nuse = "
        "\"storage-local\"\n" +
            rest,
        "1:",
        {"'plugin.storage' must be one table", "a slot holds one plugin"});
    refused("[plugin.storage]\nuse = [\"storage-local\", \"other\"]\n" + rest,
            "2:7: ",
            {"'plugin.storage.use'", "a list"});
    refused("[plugin.storage]\nuse = \"storage-local\"\n[plugin.storage]\nuse = \"x\"\n" + rest,
            "3:",
            {"cannot redefine"});
    refused("plugin = 3\n", "1:1: ", {"'plugin' must be one table"});
    refused(with_plugins("[[node]]\nid = \"a\""),
            "1:",
            {"'node' must be one table [node], not a list"});
}

TEST_CASE("bytes_that_are_no_text_are_refused") {
    using namespace std::string_literals;
    refused(with_plugins("[node]\nid = \"a\0b\""s), "2:8: ", {"NUL byte"});
    refused("\0"s + std::string(kPlugins), "1:1: ", {"NUL byte"});
    for (const char* bytes :
         {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
        const std::string got =
            complaints(with_plugins("[node]\nid = \"" + std::string(bytes) + "\""));
        CAPTURE(got);
        CHECK(got.starts_with("agent.toml:2:"));
        CHECK(!has(got, bytes));  // nor does a terminal get to see them
    }
    // An escape sequence in a quoted key is spelt out.
    refused(with_plugins("[node]\n\"\\u001b[31m\" = 1"), "2:1: ", {"unknown key '\\x1b[31m'"});
    refused(
        with_plugins("[node]\ndata = \"a\\u0000b\""), "2:8: ", {"'node.data'", "is not a path"});
}

TEST_CASE("keys_nested_without_end_are_refused_and_dots_elsewhere_are_not") {
    std::string deep = "a";
    for (int i = 0; i < 200000; ++i) deep += ".a";
    refused(deep + " = 1\n", "1:", {"nested deeper than 16"});
    refused("[" + deep + "]\n", "1:", {"nested deeper than 16"});
    refused("x = {" + deep + " = 1}\n", "1:", {"nested deeper than 16"});
    const std::string dots(100, '.');
    CHECK(complaints("# " + dots + "\n[node]\ndata = \"/x" + dots + "\" # " + dots + "\n" +
                     std::string(kPlugins))
              .empty());
    CHECK(complaints("[node]\ndata = '/x" + dots + "'\n" + std::string(kPlugins)).empty());
    const std::string brackets = "x = " + std::string(100000, '[') + '\n';
    CHECK(!complaints(brackets).empty());
}

TEST_CASE("files_that_are_none_are_refused_at_once") {
    const Directory directory;
    const auto text_of = [&](const std::filesystem::path& path) {
        const auto result = load(path, options());
        REQUIRE(!result.ok());
        return std::pair(result.error().code, result.error().message);
    };
    CHECK(text_of(directory.path() / "absent.toml").first == hf::Code::NotFound);
    CHECK(has(text_of(directory.path() / "absent.toml").second,
              "absent.toml: the file does not exist"));
    CHECK(has(text_of(directory.path()).second, "is a directory"));
    CHECK(text_of(directory.path()).first == hf::Code::Io);
    REQUIRE(::mkfifo((directory.path() / "fifo").c_str(), 0600) == 0);
    CHECK(has(text_of(directory.path() / "fifo").second, "not a regular file"));
    const auto big = directory.write(std::string(10'000'000, '#'), "big.toml");
    CHECK(has(text_of(big).second, "larger than 1MiB"));
    CHECK(text_of(big).first == hf::Code::Invalid);
    std::filesystem::create_symlink("nowhere", directory.path() / "dangling");
    CHECK(has(text_of(directory.path() / "dangling").second, "does not exist"));
    if (::geteuid() != 0) {
        const auto locked = directory.write("", "locked.toml");
        ::chmod(locked.c_str(), 0);
        CHECK(has(text_of(locked).second, "Permission denied"));
    }
}

TEST_CASE("an_empty_file_is_refused_because_it_declares_no_plugin") {
    for (const char* text : {"", "\n", "# nothing\n", "[node]\nid = \"a\"\n"})
        CHECK(
            complaints(text) ==
            "agent.toml: no [plugin.*] table is declared: a node needs at least [plugin.gateway], "
            "[plugin.storage] and [plugin.runtime]\n");
}

TEST_CASE("all_mistakes_are_told_in_the_files_order_and_at_most_20") {
    const Checked three =
        check_text(with_plugins("[node]\nidd = 1\n[limits]\nunits_max = 0\nhold_idle = 1\n"));
    REQUIRE(three.problems.size() == 3);
    CHECK(three.problems[0].line == 2);
    CHECK(three.problems[1].line == 4);
    CHECK(three.problems[2].line == 5);
    std::string many = "[limits]\n";
    for (int i = 0; i < 50; ++i) many += "k" + std::to_string(i) + " = 1\n";
    // The first by place, though the class at the end is judged last and the plugin in between.
    const Checked cut = check_text(with_plugins("[class.\"a/b\"]\nx = 1\n" + many));
    REQUIRE(cut.problems.size() == 21);
    CHECK(cut.problems.front().message.find("class 'a/b'") == 0);
    CHECK(cut.problems[19].line == 22);
    CHECK(cut.problems.back().text() == "agent.toml: and at least 31 more mistakes");
}
