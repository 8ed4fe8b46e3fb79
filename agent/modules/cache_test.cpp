// What is loaded was made here: no byte of a compiled module that this node did not vouch for gets through.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "agent/modules/cache.hpp"

using namespace hf;
using modules::Cache;
using modules::Entry;
namespace fs = std::filesystem;

namespace {

constexpr modules::MacKey kKey = {1, 2, 3};
const std::string kWasm = modules::sha256_hex(as_bytes("a module"));
const std::string kName = modules::sha256_hex(as_bytes("a module and its tools"));

struct Place {
    fs::path path;
    Place() {
        std::string name = (fs::temp_directory_path() / "hf-modules-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~Place() { fs::remove_all(path); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
};

void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}
std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}
std::string meta_of(const std::string& key, const std::string& wasm, const std::string& so) {
    return nlohmann::json{{"key", key},
                          {"wasm_sha256", wasm},
                          {"so_sha256", modules::sha256_hex(as_bytes(so))},
                          {"image_sha256", modules::sha256_hex(as_bytes("image"))}}
        .dump();
}
// As the builder leaves it.
void build(const Cache& cache, const std::string& key, const std::string& wasm) {
    const auto staging = cache.fresh_staging();
    REQUIRE(staging.ok());
    write(*staging / (key + ".so"), "code");
    write(*staging / (key + ".image"), "image");
    write(*staging / (key + ".meta"), meta_of(key, wasm, "code"));
}

}  // namespace

TEST_CASE("what_the_builder_made_is_found_again_by_whoever_has_the_key_of_the_node") {
    const Place place;
    const Cache cache(place.path, kKey);
    REQUIRE(cache.open().ok());
    CHECK(cache.find(kName, kWasm).error().code == Code::NotFound);
    build(cache, kName, kWasm);
    const auto adopted = cache.adopt(kName, kWasm);
    REQUIRE_MESSAGE(adopted.ok(), adopted.error().message);
    const auto found = cache.find(kName, kWasm);
    REQUIRE(found.ok());
    CHECK(*found == *adopted);
    CHECK(fs::exists(place.path / found->file()));
    CHECK(found->meta_sha256 == modules::sha256_hex(as_bytes(meta_of(kName, kWasm, "code"))));
    const Cache other(place.path, modules::MacKey{9});
    CHECK(other.find(kName, kWasm).error().code == Code::Corrupt);
}

TEST_CASE("an_entry_that_was_changed_exchanged_or_has_no_mac_is_not_found_good") {
    const Place place;
    const Cache cache(place.path, kKey);
    build(cache, kName, kWasm);
    REQUIRE(cache.adopt(kName, kWasm).ok());
    const auto path = [&](const char* extension) {
        return place.path / kWasm / (kName + extension);
    };
    const std::string meta = read(path(".meta"));
    const std::string mac = read(path(".mac"));
    SUBCASE("other code and a .meta that names its hash") {
        write(path(".so"), "evil");
        write(path(".meta"), meta_of(kName, kWasm, "evil"));
    }
    SUBCASE("one byte of the .meta") {
        write(path(".meta"), meta + " ");
    }
    SUBCASE("one digit of the MAC") {
        std::string other = mac;
        other[7] = other[7] == '0' ? '1' : '0';
        write(path(".mac"), other);
    }
    SUBCASE("a MAC cut short") {
        write(path(".mac"), mac.substr(0, 32));
    }
    SUBCASE("no MAC") {
        fs::remove(path(".mac"));
    }
    SUBCASE("another module's whole entry under this name") {
        const std::string other = modules::sha256_hex(as_bytes("other tools"));
        build(cache, other, kWasm);
        REQUIRE(cache.adopt(other, kWasm).ok());
        for (const char* extension : {".so", ".image", ".meta", ".mac"})
            fs::copy_file(place.path / kWasm / (other + extension),
                          path(extension),
                          fs::copy_options::overwrite_existing);
    }
    const auto found = cache.find(kName, kWasm);
    REQUIRE_FALSE(found.ok());
    CHECK(found.error().code == Code::Corrupt);
    cache.set_aside(kName, kWasm);
    CHECK(cache.find(kName, kWasm).error().code == Code::NotFound);
    CHECK(fs::exists(place.path / "bad" / (kName + ".so")));
}

TEST_CASE("a_builder_cannot_leave_anything_but_its_own_module") {
    const Place place;
    const Cache cache(place.path, kKey);
    const std::string victim = modules::sha256_hex(as_bytes("the victim"));
    SUBCASE("the name of another module") {
        build(cache, kName, victim);
        CHECK(cache.adopt(kName, kWasm).error().code == Code::Corrupt);
    }
    SUBCASE("a link to a file that is not its own") {
        build(cache, kName, kWasm);
        write(place.path / "secret", "secret");
        fs::remove(place.path / "incoming" / (kName + ".so"));
        SUBCASE("symbolic") {
            fs::create_symlink(place.path / "secret", place.path / "incoming" / (kName + ".so"));
        }
        SUBCASE("hard") {
            fs::create_hard_link(place.path / "secret", place.path / "incoming" / (kName + ".so"));
        }
        CHECK(cache.adopt(kName, kWasm).error().code == Code::Corrupt);
        CHECK(read(place.path / "secret") == "secret");
    }
    SUBCASE("a pipe that would block whoever opens it") {
        build(cache, kName, kWasm);
        const fs::path pipe = place.path / "incoming" / (kName + ".meta");
        fs::remove(pipe);
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        CHECK(cache.adopt(kName, kWasm).error().code == Code::Corrupt);
    }
    SUBCASE("nothing") {
        REQUIRE(cache.fresh_staging().ok());
        CHECK(cache.adopt(kName, kWasm).error().code == Code::Corrupt);
    }
    CHECK_FALSE(cache.find(kName, kWasm).ok());
}

TEST_CASE("copies_of_modules_are_by_content_and_are_looked_at_before_they_are_used") {
    const Place place;
    const Cache cache(place.path / "cache", kKey);
    fs::create_directory(place.path / "cache");
    write(place.path / "m.wasm", "a module");
    const auto hash = cache.take(place.path / "m.wasm");
    REQUIRE(hash.ok());
    CHECK(*hash == kWasm);
    CHECK(cache.check_copy(kWasm).ok());
    write(cache.copy(kWasm), "a modulf");
    CHECK(cache.check_copy(kWasm).error().code == Code::Corrupt);
    REQUIRE(cache.take(place.path / "m.wasm").ok());
    CHECK(cache.check_copy(kWasm).ok());
    CHECK(cache.take(place.path / "none").error().code == Code::NotFound);
    CHECK(cache.take(place.path).error().code == Code::Invalid);
    cache.trim({});
    CHECK(cache.check_copy(kWasm).error().code == Code::NotFound);
}
