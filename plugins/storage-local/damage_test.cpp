// Files that are not what they should be: refused with a sentence, never a crash, never a change.
#include <fcntl.h>
#include <lmdb.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>

#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

void fill(const std::string& directory) {
    const auto bucket = open(directory, 8U << 20U);
    for (int i = 0; i < 100; ++i)
        REQUIRE(bucket->put(a_put("k" + std::to_string(i), std::string(5000, 'b'))).outcome ==
                Outcome::Applied);
}

std::string read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Bytes up to the last page in use.
std::uint64_t used_bytes(const std::string& directory) {
    const std::string head = read_file(directory + "/data.mdb").substr(0, 8192);
    std::uint64_t last = 0;
    for (const std::size_t page : {std::size_t{0}, std::size_t{4096}}) {
        std::uint64_t number = 0;
        std::memcpy(&number, head.data() + page + 16 + 120, sizeof number);
        last = std::max(last, number);
    }
    return (last + 1) * 4096;
}

std::string random_bytes(std::size_t size, unsigned seed) {
    std::mt19937 random(seed);
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    return bytes;
}

// Opens in a child, reads everything and writes once, so that a crash is seen as one. 0: opened; 1: refused naming the
// file; 2: refused without naming it; 100 + n: died of signal n; 3: opened and an operation answered damage.
int open_in_child(const std::string& directory, std::string& sentence) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
        auto bucket = Bucket::open({directory, 8U << 20U});
        if (!bucket) {
            const std::string& text = bucket.error().message;
            (void)!::write(ends[1], text.data(), text.size());
            ::_exit(text.find(directory) != std::string::npos ? 1 : 2);
        }
        bool fine = true;
        {
            const auto snapshot = (*bucket)->read();
            fine = snapshot.ok() &&
                   snapshot->list("", "", 100000, [](const Listing&) { return true; }).ok();
            for (int i = 0; i < 100; ++i)
                fine = fine && snapshot->get("k" + std::to_string(i)).ok();
        }
        fine = fine && (*bucket)->put(a_put("new", "x")).outcome == Outcome::Applied;
        ::_exit(fine ? 0 : 3);
    }
    ::close(ends[1]);
    char text[2048];
    ssize_t got = 0;
    sentence.clear();
    while ((got = ::read(ends[0], text, sizeof text)) > 0)
        sentence.append(text, static_cast<std::size_t>(got));
    ::close(ends[0]);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("damaged data files are refused by name and left alone") {
    const TempDir dir;
    fill(dir.path());
    const std::string path = dir.file("data.mdb");
    const std::uint64_t used = used_bytes(dir.path());
    const std::string good = read_file(path).substr(0, used);
    REQUIRE(used > 400000);

    struct Damage {
        const char* name;
        std::string bytes;
    };
    std::string no_magic = good;
    no_magic[16] = 'X';
    std::string second_meta = good;
    second_meta[4096 + 16] = 'X';
    std::string page_size = good;
    page_size[16 + 24] = 3;
    std::string version = good;
    version[16 + 4] = 9;
    std::string no_root = good;
    for (std::size_t page = 2; page < used / 4096; ++page)
        no_root.replace(page * 4096, 16, 16, '\0');
    std::string last_page = good;
    last_page.replace(16 + 120, 8, "\xFF\xFF\xFF\x0F\0\0\0\0", 8);
    last_page.replace(4096 + 16 + 120, 8, "\xFF\xFF\xFF\x0F\0\0\0\0", 8);
    const Damage damages[] = {
        {"zero length", ""},
        {"one byte", "x"},
        {"garbage", random_bytes(100000, 1)},
        {"one meta page", good.substr(0, 4096)},
        {"one meta page and a half", good.substr(0, 6000)},
        {"the two meta pages", good.substr(0, 8192)},
        {"first half", good.substr(0, used / 2)},
        {"one page less", good.substr(0, used - 4096)},
        {"one byte less", good.substr(0, used - 1)},
        {"first meta page without magic", no_magic},
        {"second meta page without magic", second_meta},
        {"page size of 3", page_size},
        {"another version", version},
        {"roots wiped", no_root},
        {"last page far away", last_page},
        {"a text file", "hello, this is no database\n"},
    };
    for (const Damage& damage : damages) {
        CAPTURE(damage.name);
        write_file(path, damage.bytes);
        std::string sentence;
        CHECK(open_in_child(dir.path(), sentence) == 1);
        CAPTURE(sentence);
        CHECK(sentence.find("damaged") != std::string::npos);
        CHECK(sentence.find("copy") != std::string::npos);
        CHECK(read_file(path) == damage.bytes);
    }
    write_file(path, good);
    std::string sentence;
    CHECK(open_in_child(dir.path(), sentence) == 0);
}

TEST_CASE("a directory in place of the file, and a directory that is not there") {
    const TempDir dir;
    std::string sentence;
    std::filesystem::create_directory(dir.file("data.mdb"));
    CHECK(open_in_child(dir.path(), sentence) == 1);
    CHECK(open_in_child(dir.file("nowhere"), sentence) == 1);
    CHECK(sentence.find("nowhere") != std::string::npos);
}

TEST_CASE("random truncations never crash") {
    const TempDir dir;
    fill(dir.path());
    const std::string path = dir.file("data.mdb");
    const std::uint64_t used = used_bytes(dir.path());
    const std::string good = read_file(path).substr(0, used);
    std::mt19937 random(7);  // NOLINT(cert-msc51-cpp): the same each run
    for (int i = 0; i < 40; ++i) {
        const std::uint64_t size = random() % used;
        CAPTURE(size);
        write_file(path, good.substr(0, size));
        std::string sentence;
        CHECK(open_in_child(dir.path(), sentence) == 1);
    }
}

TEST_CASE("a hole where pages were is answered as damage, not believed") {
    const TempDir dir;
    fill(dir.path());
    const std::string path = dir.file("data.mdb");
    std::string bytes = read_file(path).substr(0, used_bytes(dir.path()));
    // Leaves below the root: zero all but the two meta pages and what the roots stand on.
    for (int newest = 0; newest < 2; ++newest)
        for (std::size_t page = 2; page * 4096 < bytes.size(); ++page) {
            std::uint16_t flags = 0;
            std::memcpy(&flags, bytes.data() + page * 4096 + 10, sizeof flags);
            if ((flags & 0x02) != 0 && page > 3) bytes.replace(page * 4096, 4096, 4096, '\0');
        }
    write_file(path, bytes);
    std::string sentence;
    const int code = open_in_child(dir.path(), sentence);
    CHECK((code == 1 || code == 3));
}

TEST_CASE("a garbled lock file does not stop a start") {
    const TempDir dir;
    fill(dir.path());
    for (const std::string& bytes : {std::string(), random_bytes(8192, 3), random_bytes(100, 4)}) {
        write_file(dir.file("lock.mdb"), bytes);
        std::string sentence;
        CHECK(open_in_child(dir.path(), sentence) == 0);
    }
}

TEST_CASE("an LMDB file of somebody else is refused") {
    const TempDir dir;
    MDB_env* env = nullptr;
    REQUIRE(mdb_env_create(&env) == 0);
    REQUIRE(mdb_env_open(env, dir.path().c_str(), 0, 0600) == 0);
    MDB_txn* txn = nullptr;
    MDB_dbi table = 0;
    REQUIRE(mdb_txn_begin(env, nullptr, 0, &txn) == 0);
    REQUIRE(mdb_dbi_open(txn, nullptr, 0, &table) == 0);
    char text[] = "theirs";
    MDB_val word{6, text};
    REQUIRE(mdb_put(txn, table, &word, &word, 0) == 0);
    REQUIRE(mdb_txn_commit(txn) == 0);
    mdb_env_close(env);
    std::string sentence;
    CHECK(open_in_child(dir.path(), sentence) == 1);
    CHECK(sentence.find("no bucket") != std::string::npos);
}

TEST_CASE("left-overs of an unfinished creation are replaced") {
    const TempDir dir;
    write_file(dir.file("data.mdb.new"), "half");
    const auto bucket = open(dir.path());
    CHECK(bucket->put(a_put("k", "x")).outcome == Outcome::Applied);
    CHECK(!std::filesystem::exists(dir.file("data.mdb.new")));
}

TEST_CASE("whoever opens first is awaited, and one who never ends is named") {
    const TempDir dir;
    const int fd = ::open(dir.file("open.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    REQUIRE(::fcntl(fd, F_OFD_SETLK, &lock) == 0);
    const auto bucket = Bucket::open({dir.path(), kSmallMap});
    ::close(fd);
    REQUIRE(!bucket.ok());
    CHECK(bucket.error().code == Code::Busy);
    CHECK(bucket.error().message.find("open.lock") != std::string::npos);
    CHECK(open(dir.path()) != nullptr);
}

TEST_CASE("readers that died are cleared at the next start") {
    const TempDir dir;
    fill(dir.path());
    const pid_t child = ::fork();
    if (child == 0) {
        const auto bucket = Bucket::open({dir.path(), 8U << 20U});
        const auto snapshot = (*bucket)->read();
        ::kill(::getpid(), SIGKILL);
    }
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    const auto bucket = open(dir.path(), 8U << 20U);
    // Alone, LMDB starts the lock file anew; what counts is that nobody pins pages.
    CHECK(bucket->stale_readers() >= 0);
    CHECK(bucket->put(a_put("k", "x")).outcome == Outcome::Applied);
}

}  // namespace hf::bucket
