// Keys of every length, in the order of their bytes, whatever page they are listed in.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

// As memcmp sorts, which std::string's order with char_traits<char> also is.
std::vector<std::string> with_prefix(const std::map<std::string, std::string>& model,
                                     const std::string& prefix) {
    std::vector<std::string> keys;
    for (const auto& [key, body] : model)
        if (key.starts_with(prefix)) keys.push_back(key);
    return keys;
}

void store(Bucket& bucket, std::map<std::string, std::string>& model) {
    std::vector<Write> writes;
    for (const auto& [key, body] : model) writes.push_back(a_put(key, body));
    std::shuffle(writes.begin(),
                 writes.end(),
                 std::mt19937(1));  // NOLINT(cert-msc51-cpp): the same each run
    for (const WriteResult& result : bucket.apply(writes))
        REQUIRE(result.outcome == Outcome::Applied);
}

}  // namespace

TEST_CASE("every length from 1 to 1024 with one long stem, in pages of 1 and 2") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::map<std::string, std::string> model;
    const std::string stem = "apps/a/log/" + std::string(1024 - 11, 'u');
    for (std::size_t size = 1; size <= kKeyBytesMax; ++size)
        model[stem.substr(0, size)] = std::to_string(size);
    store(*bucket, model);
    for (const auto& [key, body] : model) REQUIRE(body_of(*bucket, key) == body);
    for (const std::size_t page : {1U, 2U, 256U})
        CHECK(keys_of(*bucket, {}, page) == with_prefix(model, ""));
    for (const std::size_t size : {1U, 479U, 480U, 481U, 600U, 959U, 960U, 961U, 1024U})
        CHECK(keys_of(*bucket, stem.substr(0, size), 2) ==
              with_prefix(model, stem.substr(0, size)));
    CHECK(keys_of(*bucket, stem + "x").empty());
    CHECK(bucket->read()->stats()->objects == 1024);
}

TEST_CASE("common stems of 600 bytes, pages of 1 and 2 across their borders") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::map<std::string, std::string> model;
    for (const char unit : {'a', 'b', 'c'}) {
        const std::string stem = "log/" + std::string(1, unit) + std::string(595, '.');
        for (int i = 0; i < 30; ++i) model[stem + std::to_string(i)] = "entry";
        model[stem] = "the stem itself";
        model[stem.substr(0, 480)] = "the first piece itself";
        model[stem.substr(0, 479)] = "one less";
        model[stem + std::string(1024 - stem.size(), 'z')] = "the longest";
    }
    model["log"] = "before all";
    model["logz"] = "after all";
    store(*bucket, model);
    for (const std::size_t page : {1U, 2U, 3U}) {
        CHECK(keys_of(*bucket, {}, page) == with_prefix(model, ""));
        CHECK(keys_of(*bucket, "log/b", page) == with_prefix(model, "log/b"));
        CHECK(keys_of(*bucket, "log/b" + std::string(595, '.'), page) ==
              with_prefix(model, "log/b" + std::string(595, '.')));
    }
}

TEST_CASE("after names a key that is not there, before, inside and behind the prefix") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::map<std::string, std::string> model;
    const std::string stem(600, 's');
    for (const char* tail : {"b", "d", "f"}) {
        model[stem + tail] = "x";
        model[std::string("k/") + tail] = "x";
    }
    store(*bucket, model);
    const auto first = [&](const std::string& prefix, const std::string& after) {
        std::string key = "-";
        const auto snapshot = bucket->read();
        REQUIRE(snapshot
                    ->list(prefix,
                           after,
                           1,
                           [&](const Listing& listing) {
                               key = listing.key;
                               return true;
                           })
                    .ok());
        return key;
    };
    for (const std::string& base : {std::string("k/"), stem}) {
        CHECK(first(base, "") == base + "b");
        CHECK(first(base, "a") == base + "b");
        CHECK(first(base, base) == base + "b");
        CHECK(first(base, base + "b") == base + "d");
        CHECK(first(base, base + "bb") == base + "d");
        CHECK(first(base, base + "c") == base + "d");
        CHECK(first(base, base + "f") == "-");
        CHECK(first(base, base + std::string(900, 'z')) == "-");
        CHECK(first(base, "zzz") == "-");
    }
    CHECK(first("", std::string(480, 's')) == stem + "b");
    CHECK(first("", std::string(2000, 's')) == "-");
    CHECK(first("", std::string(599, 's')) == stem + "b");
}

TEST_CASE("bytes of every value, zero and 255 at the borders of pieces") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::map<std::string, std::string> model;
    for (const std::size_t size :
         {1U, 2U, 478U, 479U, 480U, 481U, 482U, 959U, 960U, 961U, 1023U, 1024U})
        for (const int byte : {0, 1, int{'k'}, int{'n'}, 254, 255}) {
            std::string key(size, static_cast<char>(byte));
            model[key] = "x";
            key.back() = '\0';
            model[key] = "x";
            key.back() = '\xFF';
            model[key] = "x";
        }
    for (int byte = 0; byte < 256; ++byte) model[std::string("b") + static_cast<char>(byte)] = "x";
    store(*bucket, model);
    CHECK(keys_of(*bucket, {}, 1) == with_prefix(model, ""));
    CHECK(keys_of(*bucket, std::string(480, '\0'), 2) ==
          with_prefix(model, std::string(480, '\0')));
    CHECK(keys_of(*bucket, std::string(480, '\xFF'), 2) ==
          with_prefix(model, std::string(480, '\xFF')));
}

TEST_CASE("random puts and deletes against a model") {
    for (unsigned seed = 1; seed <= 6; ++seed) {
        CAPTURE(seed);
        const TempDir dir;
        const auto bucket = open(dir.path());
        std::mt19937 random(seed);
        std::map<std::string, std::string> model;
        const std::size_t sizes[] = {1, 20, 300, 480, 481, 600, 960, 961, 1000, 1024};
        const auto a_key = [&] {
            std::string key(sizes[random() % std::size(sizes)], 'a');
            for (int i = 0; i < 2; ++i)
                key[random() % key.size()] = static_cast<char>('a' + random() % 2);
            if (random() % 2 == 0) key.back() = static_cast<char>('a' + random() % 3);
            return key;
        };
        for (int round = 0; round < 60; ++round) {
            std::vector<Write> writes;
            std::vector<Outcome> expected;
            for (int i = 0; i < 20; ++i) {
                Write write = a_put(a_key(), std::to_string(random()));
                if (random() % 3 == 0) {
                    write.kind = WriteKind::Delete;
                    expected.push_back(model.erase(write.key) > 0 ? Outcome::Applied
                                                                  : Outcome::NotFound);
                } else {
                    model[write.key] = as_text(write.body);
                    expected.push_back(Outcome::Applied);
                }
                writes.push_back(std::move(write));
            }
            const auto results = bucket->apply(writes);
            for (std::size_t i = 0; i < results.size(); ++i)
                REQUIRE(results[i].outcome == expected[i]);
        }
        CHECK(keys_of(*bucket, {}, 7) == with_prefix(model, ""));
        for (const auto& [key, body] : model) REQUIRE(body_of(*bucket, key) == body);
        CHECK(bucket->read()->stats()->objects == model.size());
        for (const auto& [key, body] : model)
            REQUIRE(bucket->erase(key).outcome == Outcome::Applied);
        CHECK(bucket->read()->stats()->objects == 0);
        CHECK(keys_of(*bucket).empty());
    }
}

TEST_CASE("a page ends where the visitor has no room, and goes on there") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    for (int i = 0; i < 10; ++i) bucket->put(a_put("k" + std::to_string(i), "x"));
    const auto snapshot = bucket->read();
    std::vector<std::string> keys;
    const auto more = snapshot->list("k", "", 256, [&](const Listing& listing) {
        if (keys.size() == 4) return false;
        keys.emplace_back(listing.key);
        return true;
    });
    CHECK(*more);
    CHECK(keys.back() == "k3");
    CHECK(!*snapshot->list("k", "k3", 6, [](const Listing&) { return true; }));
    CHECK(*snapshot->list("k", "k3", 5, [](const Listing&) { return true; }));
}

}  // namespace hf::bucket
