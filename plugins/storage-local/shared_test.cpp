// Several processes on one bucket: no update is lost, and the death of one in the middle of a write holds up nobody.
#include <fcntl.h>
#include <lmdb.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <future>
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

// Another process on the bucket: does its work, says so and waits to be killed.
class Neighbour {
public:
    explicit Neighbour(const std::function<bool()>& work) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        child_ = ::fork();
        if (child_ == 0) {
            const char done = work() ? 'y' : 'n';
            (void)!::write(ends[1], &done, 1);
            for (;;) ::pause();
        }
        ::close(ends[1]);
        char done = 'n';
        REQUIRE(::read(ends[0], &done, 1) == 1);
        ::close(ends[0]);
        CHECK(done == 'y');
    }
    Neighbour(const Neighbour&) = delete;
    Neighbour& operator=(const Neighbour&) = delete;
    ~Neighbour() { kill(); }
    void kill() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        CHECK(::waitpid(child_, nullptr, 0) == child_);
        child_ = 0;
    }

private:
    pid_t child_ = 0;
};

// What of the sparse file is there.
std::uint64_t bytes_on_disk(const TempDir& dir) {
    struct stat info {};
    REQUIRE(::stat(dir.file("data.mdb").c_str(), &info) == 0);
    return static_cast<std::uint64_t>(info.st_blocks) * 512;
}

constexpr std::uint64_t kMiB = 1U << 20U;

// Puts of 1 MiB of bodies each, `mib` of them.
bool fill(const std::string& directory, std::uint64_t map_bytes, std::uint64_t mib) {
    auto opened = Bucket::open({directory, map_bytes});
    if (!opened) return false;
    for (std::uint64_t i = 0; i < mib; ++i) {
        const std::string key = "filled" + std::to_string(i);
        if ((*opened)->put(a_put(key, std::string(kMiB, 'f'), {7, i + 1})).outcome !=
            Outcome::Applied)
            return false;
    }
    return true;
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

TEST_CASE(
    "a neighbour killed inside a write transaction leaves nothing of it and holds up nobody") {
    const TempDir dir;
    { CHECK(open(dir.path())->put(a_put("before", "x", {1, 1})).outcome == Outcome::Applied); }
    // By LMDB itself, because a bucket's transactions end before it returns.
    Neighbour neighbour([&] {
        MDB_env* env = nullptr;
        MDB_txn* txn = nullptr;
        MDB_dbi table = 0;
        char name[] = "kghost";
        MDB_val key{sizeof name - 1, name};
        MDB_val value{sizeof name, name};
        return mdb_env_create(&env) == 0 && mdb_env_set_mapsize(env, kSmallMap) == 0 &&
               mdb_env_open(env, dir.path().c_str(), MDB_NOTLS, 0600) == 0 &&
               mdb_txn_begin(env, nullptr, 0, &txn) == 0 &&
               mdb_dbi_open(txn, nullptr, 0, &table) == 0 &&
               mdb_put(txn, table, &key, &value, 0) == 0;
    });
    const auto bucket = open(dir.path());
    CHECK(body_of(*bucket, "before") == "x");  // readers never wait
    auto written = std::async(std::launch::async, [&] {
        return bucket->put(a_put("after", "y", {1, 2}));
    });
    CHECK(written.wait_for(std::chrono::milliseconds(300)) == std::future_status::timeout);
    neighbour.kill();
    REQUIRE(written.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
    CHECK(written.get().outcome == Outcome::Applied);
    CHECK(keys_of(*bucket) == std::vector<std::string>{"after", "before"});
    CHECK(bucket->put(a_put("later", "z", {1, 3})).outcome == Outcome::Applied);
}

TEST_CASE("a neighbour killed while it reads does not keep the store growing") {
    const TempDir dir;
    { CHECK(open(dir.path())->put(a_put("hot", "x", {1, 1})).outcome == Outcome::Applied); }
    Neighbour neighbour([&] {
        // Kept until the process ends, which it does not by itself.
        static std::unique_ptr<Bucket> bucket = Bucket::open({dir.path(), kSmallMap}).value();
        static Result<Snapshot> view = bucket->read();
        return view.ok();
    });
    const auto bucket = open(dir.path());
    std::uint64_t n = 1;
    const auto overwrite = [&](std::size_t times) {
        for (std::size_t i = 0; i < times; ++i)
            REQUIRE(bucket->put(a_put("hot", std::string(3000, 'h'), {2, ++n})).outcome ==
                    Outcome::Applied);
        return bytes_on_disk(dir);
    };
    neighbour.kill();
    const std::uint64_t first = overwrite(2048);  // twice what passes between two looks
    const std::uint64_t then = overwrite(2048);
    CHECK(then - first < first / 4);
}

TEST_CASE("a neighbour with a larger map fills more than is mapped here: it is opened again") {
    const TempDir dir;
    constexpr std::uint64_t kLittle = 8 * kMiB;
    auto bucket = open(dir.path(), kLittle);
    CHECK(bucket->put(a_put("ours", "x", {1, 1})).outcome == Outcome::Applied);
    Neighbour neighbour([&] { return fill(dir.path(), kSmallMap, 20); });
    SUBCASE("a read finds it") {
        const auto view = bucket->read();
        REQUIRE(!view.ok());
        CHECK(view.error().message.find("opened again") != std::string::npos);
    }
    SUBCASE("a write finds it, and is not refused") {
        const WriteResult result = bucket->put(a_put("ours2", "x", {1, 2}));
        CHECK(result.outcome == Outcome::Unknown);
    }
    CHECK(bucket->broken());
    CHECK(bucket->why_broken().find("map_bytes") != std::string::npos);
    bucket.reset();
    bucket = open(dir.path(), kLittle);
    CHECK(body_of(*bucket, "filled19") == std::string(kMiB, 'f'));
    CHECK(body_of(*bucket, "ours") == "x");
    // Beyond its own bound it writes nothing, but it deletes, and what the other does next it sees.
    const WriteResult full = bucket->put(a_put("more", "x", {1, 3}));
    CHECK(full.outcome == Outcome::Refused);
    CHECK(full.reason.find("map_bytes") != std::string::npos);
    CHECK(bucket->erase("filled0").outcome == Outcome::Applied);
    neighbour.kill();
    Neighbour again([&] { return fill(dir.path(), kSmallMap, 30); });
    CHECK(body_of(*bucket, "filled29") == std::string(kMiB, 'f'));
    CHECK(!bucket->broken());
}

}  // namespace hf::bucket
