// Several processes on one bucket: no update is lost, and the death of one in the middle of a write holds up nobody.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

constexpr int kIncrements = 200;

// Adds 1 to "counter" kIncrements times by compare and swap; writes each etag to `report`. 0 when all went well.
int count_up(const std::string& directory, std::uint64_t who, int report) {
    auto opened = Bucket::open({directory, kSmallMap});
    if (!opened) return 1;
    Bucket& bucket = **opened;
    std::uint64_t attempt = 0;
    for (int done = 0; done < kIncrements;) {
        std::string etag;
        int value = 0;
        {
            const auto snapshot = bucket.read();
            if (!snapshot) return 2;
            const auto object = snapshot->get("counter");
            if (object) {
                etag = object->etag;
                value = std::atoi(std::string(as_text(object->body)).c_str());
            }
        }
        Write write = a_put("counter", std::to_string(value + 1), {who, ++attempt});
        write.condition = etag.empty() ? Condition::IfAbsent : Condition::IfMatch;
        write.etag = etag;
        const WriteResult result = bucket.put(write);
        if (result.outcome == Outcome::PreconditionFailed) continue;
        if (result.outcome != Outcome::Applied) return 3;
        if (::write(report, result.etag.data(), result.etag.size()) != 34) return 4;
        ++done;
    }
    return 0;
}

}  // namespace

TEST_CASE("three processes count up together: nothing is lost and no etag is given out twice") {
    const TempDir dir;
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    pid_t children[3];
    std::uint64_t who = 0;
    for (pid_t& child : children) {
        ++who;
        child = ::fork();
        if (child == 0) ::_exit(count_up(dir.path(), who, ends[1]));
    }
    ::close(ends[1]);
    std::set<std::string> etags;
    char etag[34];
    while (::read(ends[0], etag, sizeof etag) == sizeof etag) etags.emplace(etag, sizeof etag);
    ::close(ends[0]);
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
    }
    CHECK(etags.size() == 3 * kIncrements);
    CHECK(body_of(*open(dir.path()), "counter") == std::to_string(3 * kIncrements));
}

TEST_CASE("a neighbour killed while it writes leaves the writer's lock to us") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    std::mt19937 random(std::random_device{}());
    const std::string prober =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "bucket_prober").string();
    std::uint64_t n = 0;
    for (int kill = 0; kill < 40; ++kill) {
        std::string words[] = {prober, dir.path(), "1000000"};
        char* args[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        pid_t child = 0;
        REQUIRE(::posix_spawn(&child, prober.c_str(), &actions, nullptr, args, environ) == 0);
        ::posix_spawn_file_actions_destroy(&actions);
        ::close(ends[1]);
        char text[64];
        const std::size_t lines = 1 + random() % 40;  // it is at work
        for (std::size_t i = 0; i < lines; ++i) REQUIRE(::read(ends[0], text, sizeof text) > 0);
        ::kill(child, SIGKILL);
        // At once, without waiting for its end: the kernel hands over what it held.
        for (int i = 0; i < 5; ++i, ++n)
            REQUIRE(bucket->put(a_put("ours" + std::to_string(n), "x", {9, n + 1})).outcome ==
                    Outcome::Applied);
        ::close(ends[0]);
        REQUIRE(::waitpid(child, nullptr, 0) == child);
    }
    CHECK(keys_of(*bucket, "ours").size() == n);
}

}  // namespace hf::bucket
