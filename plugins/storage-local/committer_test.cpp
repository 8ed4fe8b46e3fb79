// Group commit: order, company, bounds, and what a kill at any moment leaves.
#include "plugins/storage-local/committer.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>

#include "abi/base/limits.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

// Collects what the committer delivers.
class Inbox {
public:
    Committer::Done done() {
        return [this](std::vector<Finished> finished) {
            const std::lock_guard lock(mutex_);
            batches_.push_back(std::move(finished));
            wake_.notify_one();
        };
    }
    // Waits until `count` answers came; all of them in order.
    std::vector<Finished> take(Committer& committer, std::size_t count) {
        std::vector<Finished> all;
        std::unique_lock lock(mutex_);
        while (all.size() < count) {
            REQUIRE(wake_.wait_for(
                lock, std::chrono::seconds(30), [this] { return !batches_.empty(); }));
            for (std::vector<Finished>& batch : batches_) {
                committer.settled(batch);
                for (Finished& one : batch) all.push_back(std::move(one));
            }
            batches_.clear();
        }
        return all;
    }

private:
    std::mutex mutex_;
    std::condition_variable wake_;
    std::vector<std::vector<Finished>> batches_;
};

Write numbered(std::uint64_t n, std::string_view key) {
    Write write = if_absent(a_put(key, "body of " + std::to_string(n), {1, n}));
    write.token = n;
    return write;
}

}  // namespace

TEST_CASE("answers come in the order of arrival, and a crowd shares commits") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    Inbox inbox;
    Committer committer(*bucket, inbox.done());
    constexpr std::uint64_t kWrites = 2000;
    for (std::uint64_t n = 1; n <= kWrites; ++n) {
        Write write = a_put("k" + std::to_string(n % 7), std::to_string(n), {1, n});
        write.token = n;
        REQUIRE(committer.add(std::move(write)));
    }
    CHECK(!committer.idle());
    committer.hand_over();
    const auto finished = inbox.take(committer, kWrites);
    REQUIRE(finished.size() == kWrites);
    for (std::uint64_t n = 1; n <= kWrites; ++n) {
        CHECK(finished[n - 1].token == n);
        CHECK(finished[n - 1].result.outcome == Outcome::Applied);
    }
    CHECK(committer.idle());
    CHECK(committer.batch_max() == kBatchWritesMax);
    CHECK(bucket->commits() <= kWrites / kBatchWritesMax + 1);
    for (std::uint64_t k = 0; k < 7; ++k) {
        const std::uint64_t last = kWrites - (kWrites % 7 + 7 - k) % 7;
        CHECK(body_of(*bucket, "k" + std::to_string(k)) == std::to_string(last));
    }
}

TEST_CASE(
    "a crowd that writes again and again shares its commits, and whoever stays alone is not kept") {
    const TempDir dir(Place::Disk);
    const auto bucket = open(dir.path());
    Inbox inbox;
    Committer committer(*bucket, inbox.done());
    constexpr std::uint64_t kCrowd = 16;
    constexpr std::uint64_t kRounds = 50;
    std::uint64_t n = 0;
    // One is handed over at a time, as requests come over a link.
    for (std::uint64_t round = 0; round < kRounds; ++round) {
        for (std::uint64_t i = 0; i < kCrowd; ++i) {
            ++n;
            REQUIRE(committer.add(numbered(n, "k" + std::to_string(n))));
            committer.hand_over();
        }
        CHECK(inbox.take(committer, kCrowd).size() == kCrowd);
    }
    CHECK(bucket->commits() < n);
    // The crowd is gone: these wait in vain at most once.
    for (int i = 0; i < 10; ++i) {
        ++n;
        REQUIRE(committer.add(numbered(n, "k" + std::to_string(n))));
        committer.hand_over();
        CHECK(inbox.take(committer, 1).front().result.outcome == Outcome::Applied);
    }
    CHECK(committer.idle());
}

TEST_CASE("large bodies end a batch early") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    Inbox inbox;
    Committer committer(*bucket, inbox.done());
    constexpr std::size_t kBody = 48 * 1024;
    constexpr std::size_t kWrites = 200;
    for (std::size_t n = 1; n <= kWrites; ++n) {
        Write write = a_put("k" + std::to_string(n), std::string(kBody, 'b'));
        write.token = n;
        REQUIRE(committer.add(std::move(write)));
    }
    committer.hand_over();
    inbox.take(committer, kWrites);
    CHECK(committer.batch_max() <= kBatchBytesMax / kBody);
    CHECK(committer.batch_max() > 1);
}

TEST_CASE("an object larger than a record is a batch of its own") {
    const TempDir dir;
    const auto bucket = open(dir.path());
    Inbox inbox;
    Committer committer(*bucket, inbox.done());
    constexpr std::size_t kWrites = 9;
    for (std::size_t n = 1; n <= kWrites; ++n) {
        const std::size_t bytes = n % 3 == 0 ? kInlineObjectBytesMax + 1 : 10;
        Write write = a_put("k" + std::to_string(n), std::string(bytes, 'b'));
        write.token = n;
        REQUIRE(committer.add(std::move(write)));
    }
    const std::uint64_t commits = bucket->commits();
    committer.hand_over();
    const auto finished = inbox.take(committer, kWrites);
    for (std::size_t n = 0; n < finished.size(); ++n) CHECK(finished[n].token == n + 1);
    CHECK(bucket->commits() == commits + 6);
    CHECK(committer.batch_max() == 2);
}

TEST_CASE("a full queue takes nothing more, by count and by bytes") {
    const TempDir dir(Place::Disk);
    const auto bucket = open(dir.path(), kMapBytesDefault);
    Inbox inbox;
    Committer committer(*bucket, inbox.done());
    std::size_t added = 0;
    while (committer.add(numbered(added + 1, "k" + std::to_string(added)))) ++added;
    CHECK(added == kOpenWritesMax);
    committer.hand_over();
    inbox.take(committer, added);
    CHECK(committer.idle());
    std::size_t large = 0;
    while (committer.add(a_put("large" + std::to_string(large), std::string(48 * 1024, 'b'))))
        ++large;
    CHECK(large > kOpenBytesMax / (49 * 1024) - 1);
    CHECK(large < kOpenWritesMax);
    committer.hand_over();
    inbox.take(committer, large);
    CHECK(committer.add(a_put("again", "x")));
}

TEST_CASE("an end with writes in the queue ends soon and leaves a sound store") {
    const TempDir dir;
    for (int round = 0; round < 20; ++round) {
        const auto bucket = open(dir.path());
        Inbox inbox;
        Committer committer(*bucket, inbox.done());
        for (std::uint64_t n = 1; n <= 3000; ++n)
            REQUIRE(
                committer.add(numbered(n, "r" + std::to_string(round) + "/" + std::to_string(n))));
        committer.hand_over();
    }
    const auto bucket = open(dir.path());
    const std::size_t objects = bucket->read()->stats()->objects;
    CHECK(objects == keys_of(*bucket).size());
}

namespace {

constexpr std::size_t kInFlight = 24;

// Puts numbered objects, several in flight, and reports each answer through the pipe. Never returns.
[[noreturn]] void put_until_killed(const std::string& directory, std::uint64_t first, int report) {
    auto bucket = Bucket::open({directory, kSmallMap});
    if (!bucket) ::_exit(1);
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<std::vector<Finished>> batches;
    Committer committer(**bucket, [&](std::vector<Finished> finished) {
        std::vector<std::uint64_t> numbers;
        for (const Finished& one : finished)
            if (one.result.outcome == Outcome::Applied) numbers.push_back(one.token);
        // One write per batch: whole in the pipe or not there.
        (void)!::write(report, numbers.data(), numbers.size() * sizeof(std::uint64_t));
        const std::lock_guard lock(mutex);
        batches.push_back(std::move(finished));
        wake.notify_one();
    });
    std::uint64_t next = first;
    for (std::size_t open = 0;;) {
        for (; open < kInFlight; ++open, ++next)
            if (!committer.add(numbered(next, "n/" + std::to_string(next)))) ::_exit(2);
        committer.hand_over();
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return !batches.empty(); });
        for (const auto& batch : batches) {
            committer.settled(batch);
            open -= batch.size();
        }
        batches.clear();
    }
}

}  // namespace

TEST_CASE(
    "killed at a hundred random moments: every reported put is there, and none is applied twice") {
    const TempDir dir(Place::Disk);
    std::mt19937 random(std::random_device{}());
    std::uint64_t first = 1;
    std::uint64_t reported_in_all = 0;
    std::uint64_t found_unreported = 0;
    for (int kill = 0; kill < 100; ++kill) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        const pid_t child = ::fork();
        if (child == 0) put_until_killed(dir.path(), first, ends[1]);
        ::close(ends[1]);
        // The random moment: a number of reports, then some microseconds more.
        std::vector<std::uint64_t> reported;
        const std::size_t enough = random() % 200;
        std::uint64_t number = 0;
        while (reported.size() < enough && ::read(ends[0], &number, sizeof number) == sizeof number)
            reported.push_back(number);
        ::usleep(static_cast<useconds_t>(random() % 1500));
        ::kill(child, SIGKILL);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));
        while (::read(ends[0], &number, sizeof number) == sizeof number) reported.push_back(number);
        ::close(ends[0]);

        const auto bucket = open(dir.path());
        for (std::size_t i = 0; i < reported.size(); ++i) {
            REQUIRE(reported[i] == first + i);
            REQUIRE(body_of(*bucket, "n/" + std::to_string(reported[i])) ==
                    "body of " + std::to_string(reported[i]));
        }
        reported_in_all += reported.size();
        // What nobody was told of: a prefix of what was in flight is there; asked again, each is applied once.
        const std::uint64_t unreported = first + reported.size();
        bool gap = false;
        std::vector<Write> again;
        std::vector<Write> strangers;
        std::vector<std::string> etags;
        for (std::uint64_t n = unreported; n < unreported + kInFlight; ++n) {
            const std::string key = "n/" + std::to_string(n);
            const auto snapshot = bucket->read();
            const auto object = snapshot->get(key);
            if (!object) gap = true;
            REQUIRE(!(object.ok() && gap));
            if (object) ++found_unreported;
            etags.push_back(object ? object->etag : "");
            again.push_back(numbered(n, key));
            strangers.push_back(if_absent(a_put(key, "x", {2, n})));
        }
        const auto settled = bucket->apply(again);
        for (std::size_t i = 0; i < settled.size(); ++i) {
            REQUIRE(settled[i].outcome == Outcome::Applied);
            if (!etags[i].empty()) REQUIRE(settled[i].etag == etags[i]);
        }
        for (const WriteResult& result : bucket->apply(strangers))
            REQUIRE(result.outcome == Outcome::PreconditionFailed);
        first = unreported + kInFlight;
    }
    MESSAGE("reported " << reported_in_all << ", committed and not reported " << found_unreported);
    CHECK(reported_in_all > 1000);
}

}  // namespace hf::bucket
