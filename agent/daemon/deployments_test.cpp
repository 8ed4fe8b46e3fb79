// What was deployed wins over the file until the file says something newer, and survives what may happen to its record.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "agent/daemon/class_settings.hpp"
#include "agent/daemon/deployments.hpp"

using namespace hf;
using daemon::Deployment;
using daemon::Deployments;
using daemon::ModuleTable;
namespace fs = std::filesystem;

namespace {

std::string hash(const char* text) {
    return modules::sha256_hex(as_bytes(text));
}

struct Place {
    fs::path path;
    Place() {
        std::string name = (fs::temp_directory_path() / "hf-deployments-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Place() { fs::remove_all(path); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    [[nodiscard]] fs::path file() const { return path / "deployed.json"; }
};

}  // namespace

TEST_CASE("a_deploy_wins_over_the_file_until_its_module_changes") {
    const Place place;
    {
        Deployments kept(place.file());
        kept.set("counter", Deployment{hash("v2"), hash("v1"), hash("v1"), "/tmp/v2.wasm"});
        kept.set("extra", Deployment{hash("x"), "", "", "/tmp/x.wasm"});
        REQUIRE(kept.save().ok());
    }
    std::string note;
    bool overtaken = false;
    Deployments kept(place.file());
    REQUIRE(kept.load(note).ok());
    CHECK(note.empty());
    CHECK(kept.choose("counter", hash("v1"), overtaken) == hash("v2"));
    CHECK_FALSE(overtaken);
    CHECK(kept.of("counter")->before == hash("v1"));
    CHECK(kept.choose("extra", "", overtaken) == hash("x"));
    CHECK(kept.choose("other", hash("o"), overtaken) == hash("o"));
    CHECK_FALSE(overtaken);
    // The file names another module now, or has the class at all.
    CHECK(kept.choose("counter", hash("v3"), overtaken) == hash("v3"));
    CHECK(overtaken);
    CHECK(kept.of("counter") == nullptr);
    CHECK(kept.choose("extra", hash("y"), overtaken) == hash("y"));
    CHECK(overtaken);
}

TEST_CASE("a_class_that_the_file_no_longer_has_goes_with_its_deploy") {
    const Place place;
    Deployments kept(place.file());
    kept.set("counter", Deployment{hash("v2"), hash("v1"), hash("v1"), ""});
    bool overtaken = false;
    CHECK(kept.choose("counter", "", overtaken).empty());
    CHECK(overtaken);
}

TEST_CASE("a_record_that_is_damaged_or_names_what_is_no_module_is_set_aside") {
    const std::string good = hash("v2");
    const std::vector<std::string> records = {
        "{",
        "{}",
        R"({"classes": []})",
        R"({"classes": {"counter": {"wasm": "../x", "before": "", "file": "", "source": ""}}})",
        R"({"classes": {"counter": {"wasm": "", "before": "", "file": "", "source": ""}}})",
        R"({"classes": {"a/b": {"wasm": ")" + good +
            R"(", "before": "", "file": "", "source": ""}}})",
        R"({"classes": {"counter": {"wasm": ")" + good + R"(", "before": 7}}})"};
    for (const std::string& text : records) {
        CAPTURE(text);
        const Place place;
        std::ofstream(place.file()) << text;
        Deployments kept(place.file());
        std::string note;
        REQUIRE(kept.load(note).ok());
        CHECK_FALSE(note.empty());
        CHECK(kept.all().empty());
        CHECK(fs::exists(place.file().string() + ".bad-1"));
    }
}

TEST_CASE("what_could_not_be_written_down_is_written_by_the_next_call") {
    const Place place;
    Deployments kept(place.file());
    kept.set("counter", Deployment{hash("v2"), hash("v1"), "", ""});
    fs::create_directory(place.file().string() + ".tmp");  // stands where the draft would
    CHECK_FALSE(kept.save().ok());
    CHECK_FALSE(fs::exists(place.file()));
    fs::remove(place.file().string() + ".tmp");
    REQUIRE(kept.save().ok());
    std::string note;
    Deployments again(place.file());
    REQUIRE(again.load(note).ok());
    REQUIRE(again.of("counter") != nullptr);
    CHECK(again.of("counter")->wasm == hash("v2"));
}

TEST_CASE("each_limit_that_a_runtime_is_told_makes_another_build_and_no_other_setting_does") {
    const auto text = [](const config::ClassConfig& one) {
        return daemon::module_limits(one).text();
    };
    const config::ClassConfig plain = config::default_class("counter");
    config::ClassConfig other = plain;
    other.mailbox = "volatile";
    other.evict_after *= 2;
    CHECK(text(other) == text(plain));
    for (const auto change : {+[](config::ClassConfig& one) { one.cpu_limit *= 2; },
                              +[](config::ClassConfig& one) { one.wall_limit *= 2; },
                              +[](config::ClassConfig& one) { one.memory_max *= 2; },
                              +[](config::ClassConfig& one) { one.state_max /= 2; },
                              +[](config::ClassConfig& one) { one.body_max *= 2; }}) {
        other = plain;
        change(other);
        CHECK(text(other) != text(plain));
    }
}

TEST_CASE("what_a_runtime_is_told_keeps_its_limits_and_the_core_goes_by_them") {
    const ModuleTable modules = {{"counter", {hash("k"), hash("w"), hash("m")}}};
    config::Config config;
    config.classes["counter"] = config::default_class("counter");
    const daemon::RuntimeTable before = daemon::runtime_table(modules, config);
    config::ClassConfig& file = config.classes["counter"];
    file.body_max *= 2;
    file.wall_limit *= 2;
    file.mailbox = "volatile";
    const daemon::RuntimeTable after = daemon::runtime_table(modules, config);
    CHECK(before.id() != after.id());
    CHECK_FALSE(before == after);
    // A class that the file does not have runs with the defaults.
    CHECK(before.id() == daemon::runtime_table(modules, config::Config()).id());
    for (const auto* table : {&before, &after}) {
        const daemon::ModuleLimits& limits = table->limits.at("counter");
        const core::ClassSpec spec = daemon::class_spec(file, limits);
        CHECK(spec.mailbox == core::Mailbox::Volatile);
        CHECK(spec.body_bytes_max == limits.body_bytes_max);
        CHECK(spec.wall_limit == std::int64_t{limits.wall_us} * 1000);
    }
}

TEST_CASE("a_table_is_named_by_what_it_holds_and_by_the_limits_beside_it") {
    ModuleTable table = {{"counter", {hash("k"), hash("w"), hash("m")}}};
    const std::string id = daemon::table_id(table, "limits");
    CHECK(id == daemon::table_id(table, "limits"));
    CHECK(id != daemon::table_id(table, "others"));
    table["counter"].meta_sha256 = hash("n");
    CHECK(id != daemon::table_id(table, "limits"));
}
