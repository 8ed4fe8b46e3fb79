// What a write means, and what the file keeps.
#include "plugins/storage-local/bucket.hpp"

#include <sys/stat.h>

#include <set>

#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

TEST_CASE("a put is read back with its write id and a time") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    const std::int64_t before = wall_ms();
    const WriteResult stored = bucket->put(a_put("a/b", "hello", {7, 9}));
    CHECK(stored.outcome == Outcome::Applied);
    const auto snapshot = bucket->read();
    REQUIRE(snapshot.ok());
    const auto object = snapshot->get("a/b");
    REQUIRE(object.ok());
    CHECK(as_text(object->body) == "hello");
    CHECK(object->etag == stored.etag);
    CHECK(object->etag.size() == 34);
    CHECK(object->write_id == WriteId{7, 9});
    CHECK(object->last_modified_ms >= before);
    CHECK(object->last_modified_ms <= wall_ms());
}

TEST_CASE("conditions decide by what is there") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    CHECK(bucket->put(if_match(a_put("k", "x", {1, 1}), "\"00\"")).outcome == Outcome::NotFound);
    CHECK(body_of(*bucket, "k") == "-");
    const WriteResult first = bucket->put(if_absent(a_put("k", "one", {1, 2})));
    CHECK(first.outcome == Outcome::Applied);
    const WriteResult second = bucket->put(if_absent(a_put("k", "two", {1, 3})));
    CHECK(second.outcome == Outcome::PreconditionFailed);
    CHECK(second.etag == first.etag);
    CHECK(second.write_id == WriteId{1, 2});
    const WriteResult third = bucket->put(if_match(a_put("k", "three", {1, 4}), first.etag));
    CHECK(third.outcome == Outcome::Applied);
    CHECK(third.etag != first.etag);
    CHECK(bucket->put(if_match(a_put("k", "four", {1, 5}), first.etag)).outcome ==
          Outcome::PreconditionFailed);
    CHECK(bucket->put(a_put("k", "five")).outcome == Outcome::Applied);
    CHECK(body_of(*bucket, "k") == "five");
}

TEST_CASE("the same write id is applied once whatever its condition says now") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    const WriteResult first = bucket->put(if_absent(a_put("k", "one", {3, 3})));
    const std::uint64_t commits = bucket->commits();
    for (const Write& again : {if_absent(a_put("k", "one", {3, 3})),
                               if_match(a_put("k", "one", {3, 3}), "\"gone\""),
                               a_put("k", "other bytes", {3, 3})}) {
        const WriteResult result = bucket->put(again);
        CHECK(result.outcome == Outcome::Applied);
        CHECK(result.etag == first.etag);
    }
    CHECK(body_of(*bucket, "k") == "one");
    CHECK(bucket->commits() == commits);
    // Zero names no write: two of them are two writes.
    CHECK(bucket->put(a_put("z", "one")).outcome == Outcome::Applied);
    CHECK(bucket->put(if_absent(a_put("z", "two"))).outcome == Outcome::PreconditionFailed);
}

TEST_CASE("equal bytes written twice have different etags, also after a restart") {
    const TempDir dir;
    std::set<std::string> etags;
    for (int life = 0; life < 3; ++life) {
        const auto bucket = open(dir.path());
        for (int i = 0; i < 50; ++i)
            etags.insert(
                bucket->put(a_put("k", "same", {5, 5U + static_cast<unsigned>(life * 50 + i)}))
                    .etag);
        for (int i = 0; i < 50; ++i) etags.insert(bucket->put(a_put("k", "same")).etag);
    }
    CHECK(etags.size() == 300);
}

TEST_CASE("deletes") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    CHECK(bucket->erase("k").outcome == Outcome::NotFound);
    CHECK(bucket->erase("k", Condition::IfMatch, "\"00\"").outcome == Outcome::NotFound);
    const WriteResult stored = bucket->put(a_put("k", "x"));
    CHECK(bucket->erase("k", Condition::IfMatch, "\"00\"").outcome == Outcome::PreconditionFailed);
    CHECK(bucket->erase("k", Condition::IfAbsent).outcome == Outcome::Refused);
    CHECK(body_of(*bucket, "k") == "x");
    CHECK(bucket->erase("k", Condition::IfMatch, stored.etag).outcome == Outcome::Applied);
    CHECK(body_of(*bucket, "k") == "-");
}

TEST_CASE("limits are refused by name and leave nothing") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    const WriteResult no_key = bucket->put(a_put("", "x"));
    CHECK(no_key.outcome == Outcome::Refused);
    const WriteResult long_key = bucket->put(a_put(std::string(kKeyBytesMax + 1, 'k'), "x"));
    CHECK(long_key.outcome == Outcome::Refused);
    CHECK(long_key.reason.find("kKeyBytesMax") != std::string::npos);
    const WriteResult long_body = bucket->put(a_put("k", std::string(kObjectBytesMax + 1, 'b')));
    CHECK(long_body.outcome == Outcome::Refused);
    CHECK(long_body.reason.find("kObjectBytesMax") != std::string::npos);
    CHECK(bucket->put(if_match(a_put("k", "x"), "")).outcome == Outcome::Refused);
    CHECK(keys_of(*bucket).empty());
    const std::string whole(kObjectBytesMax, 'b');
    CHECK(bucket->put(a_put(std::string(kKeyBytesMax, 'k'), whole)).outcome == Outcome::Applied);
    CHECK(body_of(*bucket, std::string(kKeyBytesMax, 'k')) == whole);
    CHECK(bucket->put(a_put("empty", "")).outcome == Outcome::Applied);
    CHECK(body_of(*bucket, "empty").empty());
}

TEST_CASE("one batch is one commit, in order of arrival") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::vector<Write> writes;
    writes.push_back(if_absent(a_put("k", "one", {1, 1})));
    writes.push_back(if_absent(a_put("k", "two", {1, 2})));
    writes.push_back(if_absent(a_put("k", "one", {1, 1})));
    writes.push_back(a_put("k", "three", {1, 3}));
    Write gone;
    gone.kind = WriteKind::Delete;
    gone.key = "k";
    writes.push_back(gone);
    writes.push_back(gone);
    writes.push_back(a_put("", "refused alone"));
    writes.push_back(if_absent(a_put("k", "four", {1, 4})));
    const std::uint64_t commits = bucket->commits();
    const std::vector<WriteResult> results = bucket->apply(writes);
    std::vector<Outcome> outcomes;
    for (const WriteResult& result : results) outcomes.push_back(result.outcome);
    CHECK(outcomes == std::vector{Outcome::Applied,
                                  Outcome::PreconditionFailed,
                                  Outcome::Applied,
                                  Outcome::Applied,
                                  Outcome::Applied,
                                  Outcome::NotFound,
                                  Outcome::Refused,
                                  Outcome::Applied});
    CHECK(results[1].write_id == WriteId{1, 1});
    CHECK(results[2].etag == results[0].etag);
    CHECK(bucket->commits() == commits + 1);
    CHECK(body_of(*bucket, "k") == "four");
}

TEST_CASE("a snapshot does not see later writes, the next one does") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    bucket->put(a_put("k", "old"));
    {
        const auto snapshot = bucket->read();
        REQUIRE(snapshot.ok());
        bucket->put(a_put("k", "new"));
        CHECK(as_text(snapshot->get("k")->body) == "old");
    }
    CHECK(body_of(*bucket, "k") == "new");
}

TEST_CASE("objects and bytes are counted, long keys too") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    const std::string stem(700, 's');
    for (int i = 0; i < 40; ++i)
        bucket->put(a_put(stem + std::to_string(i), std::string(1000, 'b')));
    bucket->put(a_put("short", "b"));
    const auto count = [&] { return bucket->read()->stats()->objects; };
    CHECK(count() == 41);
    const std::uint64_t used = bucket->read()->stats()->bytes_used;
    CHECK(used > 40000);
    CHECK(used < 400000);
    CHECK(bucket->read()->stats()->bytes_max == kSmallMap);
    for (int i = 0; i < 40; ++i)
        CHECK(bucket->erase(stem + std::to_string(i)).outcome == Outcome::Applied);
    CHECK(count() == 1);
    CHECK(keys_of(*bucket) == std::vector<std::string>{"short"});
}

TEST_CASE("the file is sparse, and a smaller map_bytes later still opens it") {
    const TempDir dir;
    {
        const auto bucket = open(dir.path());
        for (int i = 0; i < 300; ++i)
            bucket->put(a_put("k" + std::to_string(i), std::string(40000, 'b')));
    }
    struct stat info {};
    REQUIRE(::stat(dir.file("data.mdb").c_str(), &info) == 0);
    CHECK(info.st_size == static_cast<off_t>(kSmallMap));
    CHECK(info.st_blocks * 512 < static_cast<off_t>(kSmallMap) / 2);
    const auto bucket = open(dir.path(), kMapBytesMin);  // 4 MiB; 12 MB are in it
    CHECK(body_of(*bucket, "k299").size() == 40000);
    const WriteResult full = bucket->put(a_put("more", "x"));
    CHECK(full.outcome == Outcome::Refused);
    CHECK(full.reason.find("map_bytes") != std::string::npos);
    for (int i = 0; i < 300; ++i)
        CHECK(bucket->erase("k" + std::to_string(i)).outcome == Outcome::Applied);
    CHECK(bucket->read()->stats()->objects == 0);
}

TEST_CASE("map_bytes out of range is refused with the range") {
    const TempDir dir;
    for (const std::uint64_t bytes : {std::uint64_t{0}, kMapBytesMin - 1, kMapBytesMax + 1}) {
        const auto bucket = Bucket::open({dir.path(), bytes});
        REQUIRE(!bucket.ok());
        CHECK(bucket.error().message.find("map_bytes") != std::string::npos);
    }
    CHECK(std::filesystem::is_empty(dir.path()));
}

}  // namespace hf::bucket
