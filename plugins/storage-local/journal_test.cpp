// The journal: what is in it and what was merged looks the same, to every reader, at every moment.
#include "plugins/storage-local/journal.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>

#include "abi/base/limits.hpp"
#include "plugins/storage-local/bucket.hpp"
#include "plugins/storage-local/stored_object.hpp"
#include "plugins/storage-local/test_support.hpp"

namespace hf::bucket {

using namespace test;  // NOLINT(google-build-using-namespace): the test room's own helpers

namespace {

using Model = std::map<std::string, std::string>;

std::unique_ptr<Bucket> open_small(const std::string& directory, std::size_t journal_ops) {
    auto bucket = Bucket::open({directory, kSmallMap, journal_ops});
    REQUIRE(bucket.ok());
    return std::move(bucket).value();
}

// LMDB's own view of a closed bucket.
class Table {
public:
    explicit Table(const std::string& directory, unsigned flags = MDB_RDONLY) {
        REQUIRE(mdb_env_create(&env_) == 0);
        REQUIRE(mdb_env_set_mapsize(env_, kSmallMap) == 0);
        REQUIRE(mdb_env_open(env_, directory.c_str(), flags, 0600) == 0);
        REQUIRE(mdb_txn_begin(env_, nullptr, flags, &txn_) == 0);
        REQUIRE(mdb_dbi_open(txn_, nullptr, 0, &table_) == 0);
    }
    ~Table() {
        if (txn_ != nullptr) mdb_txn_abort(txn_);
        mdb_env_close(env_);
    }
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;
    // Entries whose own key begins with `first`.
    std::size_t count(char first) {
        MDB_cursor* cursor = nullptr;
        REQUIRE(mdb_cursor_open(txn_, table_, &cursor) == 0);
        std::size_t found = 0;
        MDB_val key{};
        MDB_val value{};
        while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0)
            if (*static_cast<const char*>(key.mv_data) == first) ++found;
        mdb_cursor_close(cursor);
        return found;
    }
    std::string get(std::string key) {
        MDB_val name{key.size(), key.data()};
        MDB_val value{};
        REQUIRE(mdb_get(txn_, table_, &name, &value) == 0);
        return {static_cast<const char*>(value.mv_data), value.mv_size};
    }
    void put(std::string key, std::string bytes) {
        MDB_val name{key.size(), key.data()};
        MDB_val value{bytes.size(), bytes.data()};
        REQUIRE(mdb_put(txn_, table_, &name, &value, 0) == 0);
    }
    void erase(std::string key) {
        MDB_val name{key.size(), key.data()};
        REQUIRE(mdb_del(txn_, table_, &name, nullptr) == 0);
    }
    void commit() {
        REQUIRE(mdb_txn_commit(txn_) == 0);
        txn_ = nullptr;
    }

private:
    MDB_env* env_ = nullptr;
    MDB_txn* txn_ = nullptr;
    MDB_dbi table_ = 0;
};

std::string row_key(std::uint64_t op) {
    std::string key = "j";
    for (int shift = 56; shift >= 0; shift -= 8)
        key += static_cast<char>(static_cast<std::uint8_t>(op >> shift));
    return key;
}

void check_against(Bucket& bucket, const Model& model) {
    for (const std::size_t page : {std::size_t{3}, std::size_t{256}}) {
        std::vector<std::string> expected;
        for (const auto& [key, body] : model) expected.push_back(key);
        REQUIRE(keys_of(bucket, {}, page) == expected);
    }
    for (const auto& [key, body] : model) REQUIRE(body_of(bucket, key) == body);
    REQUIRE(bucket.read()->stats()->objects == model.size());
}

// A batch of random puts and deletes, also of one key twice, on few keys and some long ones.
void random_batch(Bucket& bucket, Model& model, std::mt19937& random) {
    std::vector<Write> writes;
    std::vector<Outcome> expected;
    const std::size_t count = 1 + random() % 12;
    for (std::size_t i = 0; i < count; ++i) {
        std::string key = "k" + std::to_string(random() % 40);
        if (random() % 4 == 0) key.resize(600, 'l');
        const std::size_t size =
            random() % 8 == 0 ? kInlineObjectBytesMax + random() % 9000 : random() % 3000;
        Write write = a_put(key, std::string(size, static_cast<char>('a' + i)));
        if (random() % 3 == 0) {
            write.kind = WriteKind::Delete;
            expected.push_back(model.erase(key) > 0 ? Outcome::Applied : Outcome::NotFound);
        } else if (random() % 3 == 0) {
            write.condition = Condition::IfAbsent;
            const bool fresh = model.emplace(key, as_text(write.body)).second;
            expected.push_back(fresh ? Outcome::Applied : Outcome::PreconditionFailed);
        } else {
            model[key] = as_text(write.body);
            expected.push_back(Outcome::Applied);
        }
        writes.push_back(std::move(write));
    }
    const auto results = bucket.apply(writes);
    for (std::size_t i = 0; i < results.size(); ++i) REQUIRE(results[i].outcome == expected[i]);
}

}  // namespace

TEST_CASE("random writes with journals of every size, looked at and opened again at any moment") {
    for (const std::size_t journal_ops : {0U, 1U, 7U, 64U, 1000U})
        for (unsigned seed = 1; seed <= 3; ++seed) {
            CAPTURE(journal_ops);
            CAPTURE(seed);
            const TempDir dir;
            auto bucket = open_small(dir.path(), journal_ops);
            std::mt19937 random(seed);
            Model model;
            for (int round = 0; round < 150; ++round) {
                random_batch(*bucket, model, random);
                if (random() % 5 == 0) check_against(*bucket, model);
                if (random() % 25 == 0) {
                    bucket.reset();
                    bucket = open_small(dir.path(), journal_ops);
                }
            }
            check_against(*bucket, model);
        }
}

TEST_CASE("the journal keeps its bound, and what was deleted in time never reaches the tree") {
    const TempDir dir;
    {
        const auto bucket = open_small(dir.path(), 100);
        for (int i = 0; i < 500; ++i) {
            REQUIRE(bucket->put(a_put("a" + std::to_string(i), "x")).outcome == Outcome::Applied);
            REQUIRE(bucket->erase("a" + std::to_string(i)).outcome == Outcome::Applied);
        }
        REQUIRE(bucket->put(a_put("stays", "y")).outcome == Outcome::Applied);
        for (int i = 0; i < 60; ++i)
            REQUIRE(bucket->put(a_put("hot", std::to_string(i))).outcome == Outcome::Applied);
        CHECK(bucket->read()->stats()->objects == 2);
    }
    Table table(dir.path());
    CHECK(table.count('j') <= 102);
    CHECK(table.count('j') >= 90);
    CHECK(table.count('k') == 0);
}

TEST_CASE("merges of many rows at once, whose pages become empty, lose and invent nothing") {
    const TempDir dir;
    const auto bucket = open_small(dir.path(), 8192);
    Model model;
    std::mt19937 random(5);  // NOLINT(cert-msc51-cpp): the same each run
    for (int round = 0; round < 400; ++round) {
        std::vector<Write> writes;
        for (int i = 0; i < 64; ++i) {
            const std::string key = std::to_string(random() % 9000);
            Write write = a_put("unit" + key, std::string(random() % 300, 'b'));
            if (random() % 3 == 0) {
                write.kind = WriteKind::Delete;
                model.erase(write.key);
            } else {
                model[write.key] = as_text(write.body);
            }
            writes.push_back(std::move(write));
        }
        for (const WriteResult& result : bucket->apply(writes))
            REQUIRE((result.outcome == Outcome::Applied || result.outcome == Outcome::NotFound));
    }
    check_against(*bucket, model);
}

TEST_CASE("large objects go past the journal, unless a row speaks of their key") {
    const TempDir dir;
    const std::string large(kInlineObjectBytesMax + 1, 'l');
    Model model;
    {
        const auto bucket = open(dir.path());
        REQUIRE(bucket->put(a_put("small", "s")).outcome == Outcome::Applied);
        REQUIRE(bucket->put(a_put("fresh", large)).outcome == Outcome::Applied);
        REQUIRE(bucket->put(a_put("gone", large)).outcome == Outcome::Applied);
        REQUIRE(bucket->erase("gone").outcome == Outcome::Applied);
        // A row speaks of this one: what comes later comes behind it.
        REQUIRE(bucket->put(a_put("small", large)).outcome == Outcome::Applied);
        model = {{"small", large}, {"fresh", large}};
        check_against(*bucket, model);
    }
    CHECK(Table(dir.path()).count('j') == 2);
    const auto bucket = open(dir.path());
    check_against(*bucket, model);
    REQUIRE(bucket->erase("small").outcome == Outcome::Applied);
    REQUIRE(bucket->put(a_put("fresh", "f")).outcome == Outcome::Applied);
    REQUIRE(bucket->erase("fresh").outcome == Outcome::Applied);
    check_against(*bucket, {});
}

TEST_CASE("a bound in bytes holds as well") {
    const TempDir dir;
    {
        const auto bucket = open_small(dir.path(), kJournalOpsMax);
        for (int i = 0; i < 300; ++i)
            REQUIRE(bucket->put(a_put("k" + std::to_string(i), std::string(40000, 'b'))).outcome ==
                    Outcome::Applied);
        CHECK(keys_of(*bucket).size() == 300);
    }
    Table table(dir.path());
    CHECK(table.count('j') <= kSmallMap / kJournalMapPart / 40000 + 2);
    CHECK(table.count('j') + table.count('k') == 300);
}

TEST_CASE(
    "conditions and write ids count what is in the journal, in the tree and in the same batch") {
    const TempDir dir;
    const auto bucket = open_small(dir.path(), 4);
    const WriteResult first = bucket->put(if_absent(a_put("k", "1", {1, 1})));
    REQUIRE(first.outcome == Outcome::Applied);
    for (int i = 0; i < 20; ++i) {
        // In the journal at first, in the tree later, the same all the time.
        const WriteResult again = bucket->put(if_absent(a_put("k", "1", {1, 1})));
        CHECK(again.outcome == Outcome::Applied);
        CHECK(again.etag == first.etag);
        CHECK(bucket->put(if_absent(a_put("k", "2", {1, 2}))).outcome ==
              Outcome::PreconditionFailed);
        CHECK(bucket->erase("k", Condition::IfMatch, "\"other\"").outcome ==
              Outcome::PreconditionFailed);
        REQUIRE(bucket->put(a_put("other" + std::to_string(i), "x")).outcome == Outcome::Applied);
    }
    const std::vector<Write> batch{a_put("b", "1"), if_absent(a_put("b", "2")), a_put("b", "3")};
    const auto results = bucket->apply(batch);
    CHECK(results[0].outcome == Outcome::Applied);
    CHECK(results[1].outcome == Outcome::PreconditionFailed);
    CHECK(results[1].etag == results[0].etag);
    CHECK(results[2].outcome == Outcome::Applied);
    CHECK(body_of(*bucket, "b") == "3");
    CHECK(bucket->put(if_match(a_put("k", "3"), first.etag)).outcome == Outcome::Applied);
    CHECK(bucket->erase("k").outcome == Outcome::Applied);
    CHECK(bucket->erase("k").outcome == Outcome::NotFound);
}

TEST_CASE("a snapshot sees nothing of later writes and merges") {
    const TempDir dir;
    const auto bucket = open_small(dir.path(), 4);
    for (int i = 0; i < 10; ++i) bucket->put(a_put("k" + std::to_string(i), "old"));
    const auto snapshot = bucket->read();
    REQUIRE(snapshot.ok());
    for (int i = 0; i < 10; ++i) bucket->put(a_put("k" + std::to_string(i), "new"));
    for (int i = 0; i < 5; ++i) bucket->erase("k" + std::to_string(i));
    for (int i = 0; i < 10; ++i)
        CHECK(as_text(snapshot->get("k" + std::to_string(i))->body) == "old");
    std::size_t seen = 0;
    const auto count = [&seen](const Listing&) { return ++seen > 0; };
    CHECK(snapshot->list("", "", 100, count).ok());
    CHECK(seen == 10);
}

TEST_CASE("a store of the first format opens, and is of the second once it has a journal") {
    const TempDir dir;
    {
        const auto bucket = open_small(dir.path(), 1);
        for (int i = 0; i < 20; ++i) bucket->put(a_put("k" + std::to_string(i), "old"));
    }
    {
        // As an earlier program left it: no rows, a shorter record.
        Table table(dir.path(), 0);
        const std::size_t rows = table.count('j');
        REQUIRE(rows > 0);
        TableRecord record;
        std::memcpy(&record, table.get("m").data(), sizeof record);
        REQUIRE(record.version == kJournalledTable);
        for (std::size_t i = 1; i <= rows; ++i) table.erase(row_key(record.merged_to + i));
        record.version = kPlainTable;
        table.put("m", std::string(reinterpret_cast<const char*>(&record), kPlainTableBytes));
        table.commit();
    }
    const auto record_of = [&] {
        Table table(dir.path());
        const std::string bytes = table.get("m");
        TableRecord record;
        MDB_val value{bytes.size(), const_cast<char*>(bytes.data())};
        REQUIRE(read_table_record(value, record));
        return record;
    };
    std::size_t before = 0;
    {
        const auto bucket = open_small(dir.path(), 100);
        before = keys_of(*bucket).size();
        CHECK(before > 10);
        CHECK(bucket->read()->stats()->objects == before);
    }
    CHECK(record_of().version == kPlainTable);
    {
        const auto bucket = open_small(dir.path(), 100);
        CHECK(bucket->put(a_put("new", "x")).outcome == Outcome::Applied);
        CHECK(bucket->erase("k0").outcome == Outcome::Applied);
    }
    CHECK(record_of().version == kJournalledTable);
    CHECK(keys_of(*open_small(dir.path(), 100)).size() == before);
}

TEST_CASE("a damaged journal is refused with the file's name") {
    for (const char* damage : {"a hole", "a strange row", "a cut row", "a row of nothing"}) {
        CAPTURE(damage);
        const TempDir dir;
        {
            const auto bucket = open_small(dir.path(), 100);
            for (int i = 0; i < 20; ++i) bucket->put(a_put("k" + std::to_string(i), "old"));
        }
        {
            Table table(dir.path(), 0);
            const std::string row = table.get(row_key(7));
            const std::string name = damage;
            if (name == "a hole") table.erase(row_key(7));
            if (name == "a strange row") table.put(row_key(7), "\x09" + row.substr(1));
            if (name == "a cut row") table.put(row_key(7), row.substr(0, row.size() - 1));
            if (name == "a row of nothing") table.put(row_key(7), "");
            table.commit();
        }
        const auto bucket = Bucket::open({dir.path(), kSmallMap});
        REQUIRE(!bucket.ok());
        CHECK(bucket.error().message.find(dir.path()) != std::string::npos);
        CHECK(bucket.error().message.find("damaged") != std::string::npos);
    }
}

TEST_CASE("a store that fills up leaves the journal behind and keeps every object") {
    const TempDir dir;
    const auto bucket = open_small(dir.path(), kJournalOpsMax);
    int applied = 0;
    for (bool full = false; !full;) {
        std::vector<Write> writes;
        for (int i = 0; i < 64; ++i)
            writes.push_back(a_put("k" + std::to_string(applied + i), std::string(10000, 'b')));
        for (const WriteResult& result : bucket->apply(writes)) {
            if (result.outcome == Outcome::Applied) {
                ++applied;
            } else {
                REQUIRE(result.outcome == Outcome::Refused);
                full = true;
            }
        }
    }
    CHECK(static_cast<std::uint64_t>(applied) * 10000 > kSmallMap / 2);
    CHECK(bucket->read()->stats()->objects == static_cast<std::uint64_t>(applied));
    for (int i = 0; i < applied; ++i)
        REQUIRE(body_of(*bucket, "k" + std::to_string(i)).size() == 10000);
    for (int i = 0; i < applied; ++i)
        REQUIRE(bucket->erase("k" + std::to_string(i)).outcome == Outcome::Applied);
    CHECK(keys_of(*bucket).empty());
    CHECK(bucket->put(a_put("again", "x")).outcome == Outcome::Applied);
}

namespace {

// Two buckets on one store in two processes take turns through a pipe: each checks the whole model before it writes.
int take_turns(const std::string& directory, int who, int take, int give) {
    constexpr int kTurns = 120;
    auto bucket = open_small(directory, who == 0 ? 5 : 40);
    Model model;
    std::mt19937 random(11);  // NOLINT(cert-msc51-cpp): both sides draw the same writes
    for (int turn = 0; turn < kTurns; ++turn) {
        Model next = model;
        std::vector<Write> writes;
        for (int i = 0; i < 6; ++i) {
            const std::string key = "k" + std::to_string(random() % 25);
            Write write = a_put(key, std::to_string(random()));
            if (random() % 3 == 0) write.kind = WriteKind::Delete;
            if (write.kind == WriteKind::Put) {
                next[key] = as_text(write.body);
            } else {
                next.erase(key);
            }
            writes.push_back(std::move(write));
        }
        if (turn % 2 == who) {
            check_against(*bucket, model);
            for (const WriteResult& result : bucket->apply(writes))
                if (result.outcome != Outcome::Applied && result.outcome != Outcome::NotFound)
                    return 2;
            check_against(*bucket, next);
            if (::write(give, "t", 1) != 1) return 3;
        } else {
            char turn_over = 0;
            if (::read(take, &turn_over, 1) != 1) return 4;
            // Sometimes nothing is looked at for long, so that rows come and go unseen.
            if (turn % 3 == 0) check_against(*bucket, next);
        }
        model = std::move(next);
    }
    check_against(*bucket, model);
    return 0;
}

}  // namespace

TEST_CASE("two processes write and merge in turns and see each other's every write") {
    const TempDir dir;
    int there[2];
    int back[2];
    REQUIRE(::pipe2(there, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(back, O_CLOEXEC) == 0);
    pid_t children[2];
    for (int who = 0; who < 2; ++who) {
        children[who] = ::fork();
        if (children[who] == 0) {
            int code = 9;
            try {
                code = who == 0 ? take_turns(dir.path(), 0, back[0], there[1])
                                : take_turns(dir.path(), 1, there[0], back[1]);
            } catch (...) {
                code = 5;  // a REQUIRE of the child's
            }
            ::_exit(code);
        }
    }
    for (int* ends : {there, back}) {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    for (const pid_t child : children) {
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
    }
}

namespace {

// Writes "n" = 1, 2, 3, ... and for each number a key of its own, deleting the one of 20 before; each number is reported.
[[noreturn]] void count_until_killed(const std::string& directory, int report) {
    auto bucket = Bucket::open({directory, kSmallMap, 40});
    if (!bucket) ::_exit(1);
    std::uint64_t n = 0;
    {
        const auto snapshot = (*bucket)->read();
        const auto object = snapshot->get("n");
        if (object) n = std::stoull(std::string(as_text(object->body)));
    }
    for (;;) {
        ++n;
        std::vector<Write> writes{a_put("n", std::to_string(n)),
                                  a_put("key" + std::to_string(n), std::string(500, 'b'))};
        if (n > 20) {
            Write old;
            old.kind = WriteKind::Delete;
            old.key = "key" + std::to_string(n - 20);
            writes.push_back(std::move(old));
        }
        for (const WriteResult& result : (*bucket)->apply(writes))
            if (result.outcome != Outcome::Applied) ::_exit(2);
        (void)!::write(report, &n, sizeof n);
    }
}

}  // namespace

TEST_CASE(
    "killed at random moments between appends and merges: nothing reported is lost, nothing comes "
    "back") {
    const TempDir dir(Place::Disk);
    std::mt19937 random(std::random_device{}());
    for (int kill = 0; kill < 40; ++kill) {
        int ends[2];
        REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
        const pid_t child = ::fork();
        if (child == 0) count_until_killed(dir.path(), ends[1]);
        ::close(ends[1]);
        std::uint64_t reported = 0;
        std::uint64_t number = 0;
        // A merge comes about every 13 batches; the kill lands anywhere in the next ones.
        const std::size_t enough = 1 + random() % 40;
        for (std::size_t i = 0; i < enough; ++i) {
            REQUIRE(::read(ends[0], &number, sizeof number) == sizeof number);
            reported = number;
        }
        ::kill(child, SIGKILL);
        while (::read(ends[0], &number, sizeof number) == sizeof number) reported = number;
        ::close(ends[0]);
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFSIGNALED(status));

        const auto bucket = open_small(dir.path(), 40);
        const std::uint64_t n = std::stoull(body_of(*bucket, "n"));
        REQUIRE((n == reported || n == reported + 1));
        std::vector<std::string> expected;
        for (std::uint64_t i = n > 20 ? n - 19 : 1; i <= n; ++i)
            expected.push_back("key" + std::to_string(i));
        std::sort(expected.begin(), expected.end());
        REQUIRE(keys_of(*bucket, "key") == expected);
        REQUIRE(bucket->read()->stats()->objects == expected.size() + 1);
    }
}

}  // namespace hf::bucket
