// No room: a full map and a full disk refuse writes with a sentence, reads go on, and room helps at once.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "abi/base/limits.hpp"
#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

// Puts of `bytes` each, in batches, until one is refused; answers how many were applied.
int fill_up(Bucket& bucket, std::size_t bytes, std::size_t batch, std::string& reason) {
    int applied = 0;
    int next = 0;
    for (bool full = false; !full;) {
        std::vector<Write> writes;
        for (std::size_t i = 0; i < batch; ++i) {
            char key[16];
            std::snprintf(key, sizeof key, "k%06d", next++);
            writes.push_back(a_put(key, std::string(bytes, 'b')));
        }
        const auto results = bucket.apply(writes);
        for (std::size_t i = 0; i < results.size(); ++i) {
            if (results[i].outcome == Outcome::Applied) {
                ++applied;
                if (body_of(bucket, writes[i].key).size() != bytes) return -1;
                continue;
            }
            if (results[i].outcome != Outcome::Refused) return -2;
            if (body_of(bucket, writes[i].key) != "-") return -3;
            reason = results[i].reason;
            full = true;
        }
    }
    return applied;
}

}  // namespace

TEST_CASE("a full map refuses puts, still deletes, and takes puts again") {
    for (const std::size_t bytes : {std::size_t{10}, std::size_t{3000}, kInlineObjectBytesMax})
        for (const std::size_t batch : {std::size_t{1}, std::size_t{64}}) {
            if (bytes == 10 && batch == 1) continue;  // tens of thousands of syncs
            CAPTURE(bytes);
            CAPTURE(batch);
            const TempDir dir;
            const auto bucket = open(dir.path(), kMapBytesMin);
            std::string reason;
            const int applied = fill_up(*bucket, bytes, batch, reason);
            CHECK(applied > 0);
            CHECK(reason.find("map_bytes") != std::string::npos);
            CHECK(reason.find("full") != std::string::npos);
            CHECK(!bucket->broken());
            // More than half of the map holds bodies when they are large.
            if (bytes >= 3000)
                CHECK(static_cast<std::uint64_t>(applied) * bytes > kMapBytesMin / 2);
            // Everything goes, one by one, in a store that is full.
            const auto keys = keys_of(*bucket);
            CHECK(keys.size() == static_cast<std::size_t>(applied));
            if (bytes >= 3000) {
                for (const std::string& key : keys)
                    REQUIRE(bucket->erase(key).outcome == Outcome::Applied);
            } else {
                std::vector<Write> writes(keys.size());
                for (std::size_t i = 0; i < keys.size(); ++i) {
                    writes[i].kind = WriteKind::Delete;
                    writes[i].key = keys[i];
                }
                for (const WriteResult& result : bucket->apply(writes))
                    REQUIRE(result.outcome == Outcome::Applied);
            }
            CHECK(bucket->read()->stats()->objects == 0);
            CHECK(bucket->put(a_put("again", std::string(bytes, 'c'))).outcome == Outcome::Applied);
            std::string second;
            const int refilled = fill_up(*bucket, bytes, batch, second);
            CHECK(refilled > applied / 2);
        }
}

TEST_CASE("a map without room for a large object refuses it alone, and takes it when there is") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::string reason;
    const int applied = fill_up(*bucket, kStateBytesMax, 1, reason);
    CHECK(applied >= 10);
    CHECK(reason.find("map_bytes") != std::string::npos);
    CHECK(!bucket->broken());
    // Some room is left for what is small.
    for (int i = 0; i < 20; ++i)
        CHECK(bucket->put(a_put("small" + std::to_string(i), "x")).outcome == Outcome::Applied);
    CHECK(bucket->erase("k000000").outcome == Outcome::Applied);
    CHECK(bucket->erase("k000001").outcome == Outcome::Applied);
    const std::string whole(kStateBytesMax, 'w');
    // Pages come back when two more commits are done.
    for (int i = 0; i < 3; ++i) (void)bucket->put(a_put("small0", "y"));
    CHECK(bucket->put(a_put("again", whole)).outcome == Outcome::Applied);
    CHECK(body_of(*bucket, "again") == whole);
}

TEST_CASE("an object can be overwritten for ever in a store that is nearly full") {
    const TempDir dir;
    const auto bucket = open(dir.path(), kMapBytesMin);
    std::string reason;
    REQUIRE(fill_up(*bucket, 3000, 16, reason) > 0);
    const auto keys = keys_of(*bucket);
    for (std::size_t i = 0; i < 30; ++i)
        REQUIRE(bucket->erase(keys[i]).outcome == Outcome::Applied);
    for (int i = 0; i < 500; ++i)
        REQUIRE(bucket->put(a_put("hot", std::string(3000, 'h'))).outcome == Outcome::Applied);
}

namespace {

// The whole case, in a child with a file system of its own of a few MiB. Answers the line that failed, or 0.
int fill_disk(const std::string& directory) {
    const auto opened = Bucket::open({directory, kSmallMap});
    if (!opened) return __LINE__;
    Bucket& bucket = **opened;
    std::string reason;
    const std::string ballast = directory + "/ballast";
    const int fd = ::open(ballast.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::posix_fallocate(fd, 0, 2 << 20) != 0) return __LINE__;
    ::close(fd);
    for (const std::size_t batch : {std::size_t{16}, std::size_t{1}}) {
        const int applied = fill_up(bucket, 3000, batch, reason);
        if (applied < 0 || (batch == 16 && applied == 0)) return __LINE__;
        if (reason.find("disk") == std::string::npos) return __LINE__;
    }
    if (bucket.broken()) return __LINE__;
    const auto keys = keys_of(bucket);
    for (const std::string& key : keys)
        if (body_of(bucket, key).size() != 3000) return __LINE__;
    if (::unlink(ballast.c_str()) != 0) return __LINE__;
    if (bucket.put(a_put("after", "x")).outcome != Outcome::Applied) return __LINE__;
    if (bucket.erase(keys.front()).outcome != Outcome::Applied) return __LINE__;
    if (keys_of(bucket).size() != keys.size()) return __LINE__;
    return 0;
}

}  // namespace

TEST_CASE("a full disk refuses writes, reads go on, and all is well when space returns") {
    const TempDir dir;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        int line = -1;
        if (::unshare(CLONE_NEWNS) == 0 &&
            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
            ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=4m") == 0) {
            line = fill_disk(dir.path());
        } else {
            line = -errno;
        }
        (void)!::write(ends[1], &line, sizeof line);
        ::_exit(0);
    }
    ::close(ends[1]);
    int line = 0;
    const ssize_t got = ::read(ends[0], &line, sizeof line);
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    REQUIRE(got == static_cast<ssize_t>(sizeof line));
    if (line < 0) {
        MESSAGE("skipped: no mount namespace of its own here: " << std::strerror(-line));
        return;
    }
    CHECK_MESSAGE(line == 0, "failed at line " << line);
}

}  // namespace hf::bucket
