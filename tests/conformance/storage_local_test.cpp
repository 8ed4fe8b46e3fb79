// The storage-local binary beyond the contract: its settings, its start on damage, its figures, its end.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/conformance/linked_storage.hpp"

namespace hf::conformance {
namespace {

class TempDir {
public:
    TempDir() {
        std::string name = (std::filesystem::temp_directory_path() / "hf-storage-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

constexpr const char* kMap = "67108864";

std::string start_error(const Settings& settings) {
    LinkedStorage store(HF_STORAGE_LOCAL, settings, {});
    const auto started = store.start();
    return started ? "" : started.error().message;
}

PutCall a_put(const std::string& key, std::uint64_t n) {
    return {key, "body", {1, n}, abi::Condition::None, {}};
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Voluntary context switches of all threads: each is a sleep that ended, so they stand still in a process that idles.
std::uint64_t wakeups(pid_t pid) {
    std::uint64_t sum = 0;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        std::ifstream status(task.path() / "status");
        for (std::string line; std::getline(status, line);)
            if (line.starts_with("voluntary_ctxt_switches:")) sum += std::stoull(line.substr(24));
    }
    return sum;
}

}  // namespace

TEST_CASE("settings are refused by name") {
    const TempDir dir;
    const std::string unknown = start_error({{"path", dir.path()}, {"map_byte", kMap}});
    CHECK(contains(unknown, "map_byte"));
    CHECK(contains(unknown, "path, map_bytes"));
    CHECK(contains(start_error({}), "path"));
    for (const char* bytes :
         {"", "x", "16GiB", "-1", "1", "99999999999999999999999", "67108864 "}) {
        CAPTURE(bytes);
        CHECK(contains(start_error({{"path", dir.path()}, {"map_bytes", bytes}}), "map_bytes"));
    }
    CHECK(contains(start_error({{"path", dir.path() + "/nowhere"}}), "nowhere"));
    CHECK(start_error({{"path", dir.path()}, {"map_bytes", kMap}}).empty());
}

TEST_CASE("the default map is sparse") {
    const TempDir dir;
    CHECK(start_error({{"path", dir.path()}}).empty());
    CHECK(std::filesystem::file_size(dir.path() + "/data.mdb") == 16ULL << 30U);
}

TEST_CASE("a damaged file refuses the start, whole again it starts") {
    const TempDir dir;
    const Settings settings{{"path", dir.path()}, {"map_bytes", kMap}};
    const std::string path = dir.path() + "/data.mdb";
    {
        LinkedStorage store(HF_STORAGE_LOCAL, settings, {});
        REQUIRE(store.start().ok());
        for (std::uint64_t n = 0; n < 50; ++n)
            CHECK(store.put(a_put("k" + std::to_string(n), n)).outcome == abi::Outcome::Applied);
        CHECK(store.shed() == 0);
    }
    std::ostringstream good;
    good << std::ifstream(path, std::ios::binary).rdbuf();
    for (const std::string& bytes :
         {std::string(), std::string("garbage"), good.str().substr(0, 12288)}) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
        const std::string error = start_error(settings);
        CHECK(contains(error, path));
        CHECK(contains(error, "damaged"));
        CHECK(contains(error, "empty store"));  // the advice is not cut off
        CHECK(std::filesystem::file_size(path) == bytes.size());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << good.str();
    LinkedStorage store(HF_STORAGE_LOCAL, settings, {});
    REQUIRE(store.start().ok());
    CHECK(store.get("k49").body == "body");
}

TEST_CASE("a shed answers every write that was asked, then ends with 0") {
    const TempDir dir;
    LinkedStorage store(HF_STORAGE_LOCAL, {{"path", dir.path()}, {"map_bytes", kMap}}, {});
    REQUIRE(store.start().ok());
    std::vector<PutCall> calls;
    for (std::uint64_t n = 0; n < 1000; ++n) calls.push_back(a_put("k" + std::to_string(n), n));
    for (const StoredReply& reply : store.put_all(calls))
        CHECK(reply.outcome == abi::Outcome::Applied);
    CHECK(store.shed() == 0);
    CHECK(store.trouble().empty());
}

TEST_CASE("counters come at most once a second and tell the sums") {
    const TempDir dir;
    LinkedStorage store(HF_STORAGE_LOCAL, {{"path", dir.path()}, {"map_bytes", kMap}}, {});
    REQUIRE(store.start().ok());
    std::vector<PutCall> calls;
    for (std::uint64_t n = 0; n < 500; ++n) calls.push_back(a_put("k" + std::to_string(n), n));
    (void)store.put_all(calls);
    for (int i = 0; i < 200; ++i) (void)store.get("k1");
    CHECK(store.counters_messages() <= 2);
    CHECK(store.counters_messages() >= 1);
    // Activity after a second carries the sums; the report may come behind the answers of the batch it closes.
    const std::size_t before = store.counters_messages();
    ::poll(nullptr, 0, 1100);
    for (int i = 0; i < 1000 && store.counters_messages() == before; ++i) (void)store.get("k2");
    CHECK(store.counters_messages() == before + 1);
    const auto value = [&](const std::string& name) {
        for (const auto& [key, number] : store.counters())
            if (key == name) return number;
        return std::uint64_t{0};
    };
    CHECK(value("puts") == 500);
    CHECK(value("gets") >= 201);
    CHECK(value("commits") >= 2);
    CHECK(value("commits") <= 500);
    CHECK(value("batch_size_max") >= 2);
    CHECK(value("refused") == 0);
}

TEST_CASE("an idle plugin does not wake up") {
    const TempDir dir;
    LinkedStorage store(HF_STORAGE_LOCAL, {{"path", dir.path()}, {"map_bytes", kMap}}, {});
    REQUIRE(store.start().ok());
    for (std::uint64_t n = 0; n < 20; ++n) (void)store.put(a_put("k", n));
    ::poll(nullptr, 0, 300);  // it has gone to sleep
    const std::uint64_t before = wakeups(store.pid());
    REQUIRE(before > 0);
    ::poll(nullptr, 0, 1000);
    CHECK(wakeups(store.pid()) == before);
}

TEST_CASE(
    "a meta page that cannot be written: unknown, a Fault with the reason, an end, and all is well "
    "again") {
    const TempDir dir;
    const std::string binary = HF_STORAGE_LOCAL;
    const Settings settings{{"path", dir.path() + "/store"}, {"map_bytes", kMap}};
    std::filesystem::create_directory(dir.path() + "/store");
    pid_t probe = ::fork();
    if (probe == 0) {
        ::execlp("strace", "strace", "-f", "-o", "/dev/null", "true", nullptr);
        ::_exit(127);
    }
    int status = 0;
    REQUIRE(::waitpid(probe, &status, 0) == probe);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        MESSAGE("skipped: strace is not there or may not trace here");
        return;
    }
    REQUIRE(start_error(settings).empty());  // makes the file

    // Every write to the meta page fails: the third pwrite64 on, as the first put writes a run of pages by writev.
    rig::Setup setup;
    setup.settings = settings;
    port::SegmentPool pool;
    rig::Started started = rig::start(pool,
                                      {},
                                      1,
                                      abi::Kind::Storage,
                                      "/usr/bin/strace",
                                      {"-f",
                                       "-o",
                                       "/dev/null",
                                       "-e",
                                       "trace=pwrite64",
                                       "-e",
                                       "inject=pwrite64:error=EIO:when=1+",
                                       binary,
                                       "--kind",
                                       "storage"},
                                      setup);
    REQUIRE_MESSAGE(started.ready, started.error);
    int unknown = 0;
    int refused = 0;
    std::string fault;
    std::uint64_t next = 1;
    bool ended = false;
    const auto ask = [&] {
        auto& builder = started.channel->builder();
        const auto key = builder.CreateString("k" + std::to_string(next));
        const abi::WriteId write_id(1, next);
        started.channel->request(
            next++, abi::CreatePut(builder, key, 0, abi::Condition::IfAbsent, 0, &write_id), 0, 0);
    };
    ask();
    (void)rig::run_until(
        *started.channel,
        [&](const port::Received& received) {
            if (received.type == abi::Body::Fault)
                fault = received.as<abi::Fault>().reason()->str();
            if (received.type != abi::Body::Stored) return;
            const auto outcome = received.as<abi::Stored>().outcome();
            if (outcome == abi::Outcome::Unknown) ++unknown;
            if (outcome == abi::Outcome::Refused) ++refused;
            if (unknown == 0 && next < 10) ask();
        },
        [&] { return ended; },
        5000);
    const int end = started.child.reap();
    CHECK(unknown == 1);
    CHECK(contains(fault, "meta page"));
    CHECK(WIFEXITED(end));
    CHECK(WEXITSTATUS(end) == 1);

    LinkedStorage store(binary, settings, {});
    REQUIRE(store.start().ok());
    const StoredReply again = store.put(
        {"k" + std::to_string(next - 1), "", {1, next - 1}, abi::Condition::IfAbsent, {}});
    CHECK(again.outcome == abi::Outcome::Applied);
}

}  // namespace hf::conformance
