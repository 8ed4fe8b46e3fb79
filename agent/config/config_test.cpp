// What a good file means: defaults, values, origins, overrides, and good files that look odd.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/config/config.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/config/rules.hpp"
#include "agent/config/test_file.hpp"

using namespace hf::config;
using namespace hf::config::test;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view kPluginsS3 =
    "[plugin.gateway]\nuse = \"gateway-http\"\n[plugin.runtime]\nuse = \"runtime-wasm\"\n"
    "[plugin.storage]\nuse = \"storage-s3\"\nbucket = \"b-1\"\nprofile = \"own\"\n"
    "attempt_timeout = \"1500ms\"\n";

Config good(std::string_view text, const Variables& variables = {}) {
    Checked checked = check_text(text, variables);
    for (const Problem& problem : checked.problems) MESSAGE(problem.text());
    REQUIRE(checked.config);
    return std::move(*checked.config);
}

const Effective* find(const Config& config, std::string_view table, std::string_view key) {
    for (const Effective& one : config.effective)
        if (one.table == table && one.key == key) return &one;
    return nullptr;
}

std::string read_all(const std::string& path) {
    std::ifstream file(path);
    REQUIRE_MESSAGE(file.good(), path);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

}  // namespace

TEST_CASE("three_plugins_and_nothing_else_give_the_documented_defaults") {
    const Config config = good(kPlugins);
    CHECK(!config.node.id.empty());
    CHECK(config.node.data == "/var/lib/holdfast");
    CHECK(config.node.tenant == "default");
    CHECK(config.node.app == "default");
    CHECK(config.node.role == "wasmkeep");
    CHECK(config.node.lease.none());
    CHECK(config.node.advertise.empty());
    CHECK(config.limits.mailbox_events == 128);
    CHECK(config.limits.mailbox_bytes == 1U << 20U);
    CHECK(config.limits.accepted_events == 4096);
    CHECK(config.limits.accepted_bytes == 64U << 20U);
    CHECK(config.limits.request_timeout == 30s);
    CHECK(config.limits.place_deadline == 50ms);
    CHECK(config.limits.run_ahead_events == 32);
    CHECK(config.limits.run_ahead_bytes == 1U << 20U);
    CHECK(config.limits.checkpoint_entries == 256);
    CHECK(config.limits.checkpoint_bytes == 1U << 20U);
    CHECK(config.limits.units_max == 100000);
    CHECK(config.limits.hold_idle == 1h);
    CHECK(config.limits.ready_timeout == 10s);
    CHECK(config.limits.shed_deadline == 30s);
    CHECK(config.limits.stall_grace == 2s);
    CHECK(config.restart.intensity);
    CHECK(config.jail.uid_base == 900000);
    CHECK(config.log.level == LogLevel::Info);
    CHECK(config.log.file_bytes_max == 16U << 20U);
    CHECK(config.log.files == 4);
    CHECK(config.swap.answers == 64);
    CHECK(config.swap.window == 2s);
    CHECK(config.plugins.size() == 3);
    CHECK(config.plugin(Slot::Placement) == nullptr);
    CHECK(config.classes.empty());
    const PluginConfig& gateway = *config.plugin(Slot::Gateway);
    CHECK(gateway.listen == std::vector<Endpoint>{{"127.0.0.1", 8080}});
    CHECK(gateway.setting("body_timeout") == "30000");
    CHECK(gateway.setting("body_bytes_max") == "49152");
    CHECK(gateway.setting("listen").empty());
    CHECK(gateway.binary.empty());
    CHECK(config.plugin(Slot::Storage)->setting("path") == "/var/lib/holdfast/store");
    CHECK(config.plugin(Slot::Storage)->setting("map_bytes") == "17179869184");
    CHECK(config.plugin(Slot::Runtime)->instances == 1);
    CHECK(config.plugin(Slot::Runtime)->memory_max == 4ULL << 30U);
    CHECK(config.plugin(Slot::Storage)->pids_max == 64);
    CHECK(gateway.setting("memory_max").empty());  // the supervisor's, not the plugin's
    CHECK(config.plugin(Slot::Runtime)->setting("resident_units_max") == "20000");
}

TEST_CASE("values_of_the_file_arrive_with_their_line") {
    const Config config = good(
        "[node]\nid = \"node-1.example\"\ndata = \"var\"\n[limits]\nrequest_timeout = \"1500ms\"\n"
        "[plugin.gateway]\nuse = \"gateway-http\"\nlisten = [\"localhost:0\", "
        "\"[::1]:8080\"]\nidle_timeout = \"1m\"\n"
        "[plugin.storage]\nuse = \"storage-local\"\nmap_bytes = \"64MB\"\n"
        "[plugin.runtime]\nuse = \"runtime-wasm\"\ninstances = 64\n"
        "[plugin.placement]\nuse = \"scheduler\"\npolicy = \"pinned\"\nrequired = true\n"
        "[plugin.placement.settings]\nnode = \"n ü\"\ninstance = 2\n"
        "[plugin.drain]\nuse = \"scheduler\"\n"
        "[class.counter]\nmodule = \"m/counter.wasm\"\nwall_limit = \"2s\"\nmemory_max = "
        "\"1MiB\"\nstate_max = \"4KiB\"\n");
    CHECK(config.node.id == "node-1.example");
    CHECK(config.node.data == config.file.parent_path() / "var");
    CHECK(config.limits.request_timeout == 1500ms);
    const PluginConfig& gateway = *config.plugin(Slot::Gateway);
    CHECK(gateway.listen == std::vector<Endpoint>{{"127.0.0.1", 0}, {"::1", 8080}});
    CHECK(gateway.listen[1].text() == "[::1]:8080");
    CHECK(gateway.setting("request_timeout") == "1500");  // follows the node's
    CHECK(gateway.setting("idle_timeout") == "60000");
    CHECK(config.plugin(Slot::Storage)->setting("map_bytes") == "64000000");
    CHECK(config.plugin(Slot::Runtime)->instances == 64);
    const PluginConfig& placement = *config.plugin(Slot::Placement);
    CHECK(placement.policy == "pinned");
    CHECK(placement.required);
    CHECK(placement.deadline == 50ms);
    const std::vector<std::pair<std::string, std::string>> settings = {{"node", "n ü"},
                                                                       {"instance", "2"}};
    CHECK(placement.settings == settings);
    CHECK(config.plugin(Slot::Drain)->policy == "paced");
    const ClassConfig& counter = config.classes.at("counter");
    CHECK(counter.module == config.file.parent_path() / "m/counter.wasm");
    CHECK(counter.cpu_limit == 100ms);
    CHECK(counter.wall_limit == 2s);
    CHECK(counter.memory_max == 1U << 20U);
    CHECK(counter.state_max == 4096);
    CHECK(counter.concurrency == 1);
    CHECK(counter.persistence == "durable");
    CHECK(counter.evict_after == 10min);
    REQUIRE(find(config, "limits", "request_timeout"));
    CHECK(find(config, "limits", "request_timeout")->origin.line == 5);
    CHECK(find(config, "plugin.placement.settings", "instance")->value == "2");
    CHECK(find(config, "class.counter", "cpu_limit")->origin.kind == Origin::Kind::Default);
}

TEST_CASE("the_environment_wins_and_says_so") {
    const Variables variables = {{"HOLDFAST_DATA", "/tmp/x y"},
                                 {"HOLDFAST_LISTEN", "0.0.0.0:1,[::]:2"}};
    const Config config = good("[node]\ndata = \"/other\"\n" + std::string(kPlugins), variables);
    CHECK(config.node.data == "/tmp/x y");
    CHECK(config.plugin(Slot::Storage)->setting("path") == "/tmp/x y/store");
    CHECK(config.plugin(Slot::Gateway)->listen == std::vector<Endpoint>{{"0.0.0.0", 1}, {"::", 2}});
    CHECK(find(config, "node", "data")->origin.variable == "HOLDFAST_DATA");
    CHECK(show_text(config).find("# environment HOLDFAST_LISTEN") != std::string::npos);
    CHECK(good(kPlugins, {{"HOLDFAST_DATA", ""}}).node.data == "/var/lib/holdfast");
    CHECK(complaints(kPlugins, {{"HOLDFAST_LISTEN", "example.org:80"}})
              .starts_with("environment HOLDFAST_LISTEN: must be an address"));
}

TEST_CASE("good_files_that_look_odd_work") {
    CHECK(complaints("\xEF\xBB\xBF" + std::string(kPlugins)).empty());
    std::string crlf;
    for (const char c : kPlugins) crlf += c == '\n' ? std::string("\r\n") : std::string(1, c);
    CHECK(complaints(crlf).empty());
    CHECK(complaints(with_plugins("[node]\r\nid = \"a\"\r\n")).empty());
    std::string no_newline(kPlugins);
    no_newline.pop_back();
    CHECK(complaints(no_newline).empty());
    CHECK(complaints(with_plugins("node.id = \"a\"\nlimits = { units_max = 1_000 }")).empty());
}

TEST_CASE("paths_with_spaces_and_umlauts_work") {
    const Directory directory("mit Leerzeichen und ü");
    directory.write(std::string("\0asm\1\0\0\0", 8), "zähler 1.wasm");
    const auto file = directory.write(
        with_plugins("[class.c]\nmodule = \"zähler 1.wasm\"\n[node]\ndata = \"da ten\""),
        "agent ü.toml");
    const auto config = load(file, options({}, true));
    REQUIRE_MESSAGE(config.ok(), config.error().message);
    CHECK(config->classes.at("c").module == directory.path() / "zähler 1.wasm");
    CHECK(config->node.data == directory.path() / "da ten");
    CHECK(show_text(*config).find("agent ü.toml:2") != std::string::npos);
}

TEST_CASE("files_the_configuration_names_must_be_there") {
    const Directory directory;
    directory.write("#!/bin/sh\n", "tool");
    const auto check_with = [&](const std::string& text) {
        std::string out;
        for (const Problem& problem : check(directory.write(text), options({}, true)).problems)
            out += problem.message + '\n';
        return out;
    };
    CHECK(check_with(with_plugins("[class.c]\nmodule = \"absent.wasm\""))
              .find("'class.c.module' names ") == 0);
    CHECK(check_with(with_plugins("[class.c]\nmodule = \".\"")).find("it is not a file") !=
          std::string::npos);
    CHECK(check_with(with_plugins("[class.c]\nmodule = \"tool\""))
              .find("which is no WebAssembly module of version 1") != std::string::npos);
    directory.write("", "empty");
    CHECK(check_with(with_plugins("[class.c]\nmodule = \"empty\""))
              .find("which is no WebAssembly module") != std::string::npos);
    directory.write(std::string("\0asm\1\0\0\0", 8), "module");
    CHECK(check_with(with_plugins("[class.c]\nmodule = \"module\"")).empty());
    const std::string own =
        "[plugin.placement]\nbinary = \"" + (directory.path() / "tool").string() + "\"\n";
    CHECK(check_with(with_plugins(own)).find("cannot be run: Permission denied") !=
          std::string::npos);
}

TEST_CASE("a_plugin_of_your_own_gets_its_settings_as_written") {
    const Config config = good(
        "[plugin.placement]\nbinary = \"/opt/my policy\"\npolicy = \"best fit\"\n"
        "[plugin.placement.settings]\nanything = \"10s\"\nn = 0x10\nw = 0.5\nf = true\n" +
        std::string(kPlugins));
    const PluginConfig& placement = *config.plugin(Slot::Placement);
    CHECK(placement.binary == "/opt/my policy");
    CHECK(placement.use == "my policy");
    CHECK(placement.policy == "best fit");
    CHECK(placement.setting("anything") == "10s");
    CHECK(placement.setting("n") == "16");
    CHECK(placement.setting("w") == "0.5");
    CHECK(placement.setting("f") == "true");
    // A shipped plugin's name with another build of it keeps that plugin's rules.
    const Config build = good("[plugin.placement]\nuse = \"scheduler\"\nbinary = \"/opt/s\"\n" +
                              std::string(kPlugins));
    CHECK(build.plugin(Slot::Placement)->policy == "rendezvous");

    const auto bad = [](const std::string& text) { return complaints(with_plugins(text)); };
    CHECK(bad("[plugin.drain]\nbinary = \"rel/ative\"").find("must be an absolute path") !=
          std::string::npos);
    CHECK(bad("[plugin.drain]\nbinary = \"/x\"\npace = 3")
              .find("unknown key 'pace' in [plugin.drain]") != std::string::npos);
    CHECK(bad("[plugin.drain]\nbinary = \"/x\"\n[plugin.drain.settings]\na = [1]")
              .find("not a list") != std::string::npos);
    CHECK(bad("[plugin.drain]\nbinary = \"/x\"\n[plugin.drain.settings]\na = 2020-01-01")
              .find("date") != std::string::npos);
    CHECK(bad("[plugin.drain]\nuse = \"nonsense\"")
              .find("known: \"scheduler\". A plugin of your own needs") != std::string::npos);
    CHECK(bad("[plugin.drain]\npolicy = \"paced\"").find("'plugin.drain.use' is missing") !=
          std::string::npos);
    std::string many = "[plugin.drain]\nbinary = \"/x\"\n[plugin.drain.settings]\n";
    for (int i = 0; i < 65; ++i) many += "k" + std::to_string(i) + " = 1\n";
    CHECK(bad(many).find("at most 64 settings") != std::string::npos);
}

TEST_CASE("settings_of_shipped_policies_are_judged_as_the_policies_do") {
    const auto with = [](const std::string& slot, const std::string& policy, const char* settings) {
        return complaints(with_plugins("[plugin." + slot + "]\nuse = \"scheduler\"\npolicy = \"" +
                                       policy + "\"\n[plugin." + slot + ".settings]\n" + settings));
    };
    CHECK(
        with("placement", "rendezvous", "in_flight_max = 3") ==
        "agent.toml:5:1: 'plugin.placement.settings.in_flight_max': policy rendezvous has no such "
        "setting; it has none\n");
    CHECK(with("placement", "pinned", "instnace = 3").find("did you mean 'instance'?") !=
          std::string::npos);
    CHECK(with("placement", "pinned", "x = 3").find("it has \"instance\", \"node\"") !=
          std::string::npos);
    CHECK(with("placement", "pinned", "instance = -1").find("is out of range") !=
          std::string::npos);
    CHECK(with("placement", "pinned", "node = \"\"").find("must be a name") != std::string::npos);
    CHECK(with("drain", "paced", "in_flight_max = 0").find("from 1 to 1024") != std::string::npos);
    CHECK(with("drain", "paced", "in_flight_max = \"8\"").find("without quotes") !=
          std::string::npos);
    CHECK(with("placement", "pinned", "instance = 3\nnode = \"n\"").empty());
    CHECK(with("drain", "paced", "in_flight_max = 1024").empty());
}

TEST_CASE("addresses_are_literals_with_a_port") {
    const auto bad = [](const std::string& value) {
        return complaints("[plugin.gateway]\nuse = \"gateway-http\"\nlisten = " + value +
                          "\n[plugin.storage]\nuse = \"storage-local\"\n[plugin.runtime]\nuse = "
                          "\"runtime-wasm\"\n");
    };
    for (const char* value : {"\"8080\"",
                              "\":8080\"",
                              "\"*:8080\"",
                              "\"example.org:80\"",
                              "\"1.2.3.4\"",
                              "\"1.2.3.4:\"",
                              "\"1.2.3.4:65536\"",
                              "\"1.2.3.4:080\"",
                              "\"1.2.3.4:-1\"",
                              "\"::1:80\"",
                              "\"[::1]\"",
                              "\"[1.2.3.4]:80\"",
                              "\"1.2.3:80\"",
                              "\"\"",
                              "[]",
                              "[1]",
                              "8080",
                              "[\"1.1.1.1:1\", \"1.1.1.1:1\"]"})
        CHECK_MESSAGE(bad(value).find("agent.toml:3:") == 0, value);
    CHECK(bad("\"::1:80\"").find("needs brackets") != std::string::npos);
    CHECK(bad("[\"127.0.0.1:0\", \"127.0.0.1:0\"]").empty());  // two ports of the system's choice
}

TEST_CASE("classes_are_judged_one_by_one_and_against_themselves") {
    const auto bad = [](const std::string& text) { return complaints(with_plugins(text)); };
    CHECK(bad("[class.c]\ncpu_limit = \"1s\"").find("1:8: 'class.c.module' is missing") !=
          std::string::npos);
    CHECK(bad("[class.c]\nmodule = \"m\"\ncpu_limit = \"6s\"")
              .find("must not be longer than its wall_limit (5s)") != std::string::npos);
    CHECK(
        bad("[class.c]\nmodule = \"m\"\nmemory_max = \"100KB\"").find("multiple of a wasm page") !=
        std::string::npos);
    CHECK(bad("[class.c]\nmodule = \"m\"\nstate_max = \"4097KiB\"").find("from 1KiB to 4MiB") !=
          std::string::npos);
    CHECK(bad("[class.c]\nmodule = \"m\"\nconcurrency = 2").find("must be the whole number 1;") !=
          std::string::npos);
    CHECK(bad("[class.c]\nmodule = \"\"").find("'class.c.module'") != std::string::npos);
    CHECK(bad("[class.\"a/b\"]\nmodule = \"m\"").find("class 'a/b' must have a name") !=
          std::string::npos);
    CHECK(bad("[class.\"\"]\nmodule = \"m\"").find("class '' must have a name") !=
          std::string::npos);
    CHECK(bad("[class]\nc = 1").find("'class.c' must be a table") != std::string::npos);
    CHECK(bad("[class.c]\nmodule = \"m\"\nmemory = \"1MiB\"").find("did you mean 'memory_max'?") ==
          std::string::npos);
    CHECK(
        bad("[class.c]\nmodule = \"m\"\nmemory_mx = \"1MiB\"").find("did you mean 'memory_max'?") !=
        std::string::npos);
}

TEST_CASE("a_bucket_at_an_s3_store_has_settings_of_its_own") {
    const Variables variables = {{"AWS_REGION", "eu-west-1"},
                                 {"AWS_PROFILE", "prod"},
                                 {"AWS_SHARED_CREDENTIALS_FILE", "/keys"}};
    const Config config =
        good(std::string(kPluginsS3) +
                 "[node]\ndata = \"/d\"\nlease = \"10s\"\n[class.c]\nmodule = \"m\"\n",
             variables);
    const PluginConfig& storage = *config.plugin(Slot::Storage);
    CHECK(storage.use == "storage-s3");
    CHECK(storage.setting("bucket") == "b-1");
    CHECK(storage.setting("endpoint").empty());
    CHECK(storage.setting("prefix").empty());
    CHECK(storage.setting("region") == "eu-west-1");
    CHECK(storage.setting("profile") == "own");  // what the file says wins over what stands in
    CHECK(storage.setting("credentials_file") == "/keys");
    CHECK(storage.setting("attempt_timeout") == "1500");
    CHECK(storage.setting("operation_timeout") == "10000");
    CHECK(storage.setting("path").empty());
    CHECK(find(config, "plugin.storage", "region")->origin.variable == "AWS_REGION");
    const auto bad = [&](const std::string& line) {
        return complaints(
            "[plugin.gateway]\nuse = \"gateway-http\"\n[plugin.runtime]\nuse = "
            "\"runtime-wasm\"\n[plugin.storage]\nuse = \"storage-s3\"\n" +
            line);
    };
    CHECK(bad("").find("'plugin.storage.bucket' is missing") != std::string::npos);
    CHECK(bad("bucket = \"b-1\"\nprefix = \"a b/\"").find("without blanks") != std::string::npos);
    CHECK(bad("bucket = \"b-1\"\npath = \"x\"").find("unknown key 'path'") != std::string::npos);
    CHECK(bad("bucket = \"b-1\"\nattempt_timeout = \"16s\"").find("from 100ms to 15s") !=
          std::string::npos);
}

TEST_CASE("show_tells_every_value_and_its_origin") {
    const Config config = good(with_plugins("[node]\nid = \"a\""));
    const std::string text = show_text(config);
    CHECK(text.find("id = a                                        # agent.toml:2") !=
          std::string::npos);
    CHECK(text.find("[plugin.gateway]\nuse = gateway-http") != std::string::npos);
    const auto json = nlohmann::json::parse(show_json(config));
    CHECK(json["file"] == config.file.string());
    CHECK(json["values"].size() == config.effective.size());
    CHECK(json["values"][0] ==
          nlohmann::json{
              {"table", "node"}, {"key", "id"}, {"value", "a"}, {"origin", "file"}, {"line", 2}});
    const Config other =
        good(std::string(kPluginsS3) + "[node]\nlease = \"10s\"\nadvertise = \"node-1:80\"\n");
    for (const FixedTable& table : fixed_tables())
        for (const Rule& rule : table.rules)
            CHECK_MESSAGE(find(other, table.name, rule.key), rule.key);
    CHECK(find(config, "node", "lease_renew") == nullptr);  // what means nothing is not shown
    for (const Shipped& shipped : shipped_plugins())
        for (const Rule& rule : shipped.own) {
            // Files and texts that are not set are not shown.
            const bool s3 = shipped.name == "storage-s3";
            if ((s3 || shipped.slot == Slot::Gateway) && rule.fallback.empty()) continue;
            CHECK_MESSAGE(find(s3 ? other : config,
                               "plugin." + std::string(slot_name(shipped.slot)),
                               rule.key),
                          rule.key);
        }
}

TEST_CASE("a_class_that_no_file_has_is_as_one_that_says_nothing_but_its_module") {
    const Config config = good(with_plugins("[class.c]\nmodule = \"m\""));
    const ClassConfig& said = config.classes.at("c");
    const ClassConfig made = default_class("c");
    CHECK(made.name == "c");
    CHECK(made.cpu_limit == said.cpu_limit);
    CHECK(made.wall_limit == said.wall_limit);
    CHECK(made.memory_max == said.memory_max);
    CHECK(made.state_max == said.state_max);
    CHECK(made.concurrency == said.concurrency);
    CHECK(made.persistence == said.persistence);
    CHECK(is_class_name("a-B_9"));
    for (const char* bad : {"", "a/b", "a.b", "a b"}) CHECK_FALSE(is_class_name(bad));
    CHECK_FALSE(is_class_name(std::string(65, 'a')));
}

TEST_CASE("every_default_passes_its_own_rule") {
    const Config config = good(with_plugins(
        "[plugin.placement]\nuse = \"scheduler\"\n[plugin.drain]\nuse = \"scheduler\"\n"
        "[class.c]\nmodule = \"m\""));
    for (const Effective& one : config.effective)
        CHECK_MESSAGE(!one.value.empty(), one.table << '.' << one.key);
}

TEST_CASE("the_reference_names_every_key_with_its_default") {
    const std::string reference = read_all(HF_SOURCE_ROOT "/docs/configuration.md");
    const auto check_rules = [&](std::span<const Rule> rules) {
        for (const Rule& rule : rules) {
            CHECK_MESSAGE(
                reference.find("| `" + std::string(rule.key) + "` |") != std::string::npos,
                rule.key);
            if (!rule.fallback.empty())
                CHECK_MESSAGE(
                    reference.find("`" + std::string(rule.fallback) + "`") != std::string::npos,
                    rule.key);
        }
    };
    for (const FixedTable& table : fixed_tables()) check_rules(table.rules);
    for (const Slot slot : kSlots) check_rules(slot_rules(slot));
    for (const Shipped& shipped : shipped_plugins()) check_rules(shipped.own);
    check_rules(class_rules());
}

TEST_CASE("the_examples_are_good") {
    std::size_t seen = 0;
    for (const auto& entry : std::filesystem::directory_iterator(HF_SOURCE_ROOT "/examples")) {
        if (entry.path().extension() != ".toml") continue;
        ++seen;
        for (const Problem& problem : check(entry.path(), options()).problems)
            FAIL_CHECK(problem.text());
    }
    CHECK(seen >= 2);
}
