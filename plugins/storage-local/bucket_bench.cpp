// What durable writes cost beside the disk's own price: `bucket_bench [--dir DIRECTORY] [--quick]`, one JSON object a line.
//   put_1         one put after the other: the median time of one
//   bucket_put    batches of 1, 16 and 256 puts to keys that follow each other
//   bucket_units  64 writers with a log each, as actors have them: batches of 32 puts, each to another log, and as many
//                 deletes of what lies 256 entries back
// Each run of the latter two measures its subjects one after the other, so that a change of the disk's mood hits all of
// them: one pwrite of the same bytes (whole pages) and fdatasync; plain LMDB, one transaction; the bucket. Medians over the
// runs, and of the ratios within each run. Processor time is the process's, user and system.
#include <fcntl.h>
#include <lmdb.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/storage-local/bucket.hpp"

namespace {

using hf::monotonic_ns;

constexpr std::size_t kBodyBytes = 200;
// Odd, so that the median is a run; as many as the project's ratios ask for.
constexpr int kRuns = 11;
constexpr int kRunsQuick = 3;
constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kMapBytes = 1ULL << 30U;

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

struct Change {
    bool put = true;
    std::string key;
};

// Consecutive keys of one log.
class OneLog {
public:
    explicit OneLog(std::size_t puts) : puts_(puts) {}
    std::vector<Change> next() {
        std::vector<Change> changes;
        for (std::size_t i = 0; i < puts_; ++i)
            changes.push_back({true, "log/actor/" + std::to_string(10'000'000 + next_++)});
        return changes;
    }

private:
    std::size_t puts_;
    std::uint64_t next_ = 0;
};

class ManyLogs {
public:
    static constexpr std::uint64_t kUnits = 64;
    static constexpr std::uint64_t kPuts = 32;
    static constexpr std::uint64_t kKept = 256;
    std::vector<Change> next() {
        std::vector<Change> changes;
        for (std::uint64_t i = 0; i < kPuts; ++i, ++next_) {
            const std::uint64_t seq = next_ / kUnits;
            changes.push_back({true, key(next_ % kUnits, seq)});
            if (seq >= kKept) changes.push_back({false, key(next_ % kUnits, seq - kKept)});
        }
        return changes;
    }

private:
    static std::string key(std::uint64_t unit, std::uint64_t seq) {
        const std::string digits = std::to_string(seq);
        return "apps/default/log/actor/default/counter/a" + std::to_string(unit) + "/" +
               std::string(20 - digits.size(), '0') + digits;
    }
    std::uint64_t next_ = 0;
};

class RawFile {
public:
    explicit RawFile(const std::string& path)
        : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
        HF_CHECK(fd_ >= 0, "the raw file cannot be made");
        HF_CHECK(::ftruncate(fd_, static_cast<off_t>(kMapBytes)) == 0,
                 "the raw file cannot be sized");
    }
    ~RawFile() { ::close(fd_); }
    RawFile(const RawFile&) = delete;
    RawFile& operator=(const RawFile&) = delete;
    void commit(const std::vector<Change>& changes) {
        const std::size_t bytes =
            (changes.size() * kBodyBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
        page_.resize(bytes, 'r');
        HF_CHECK(::pwrite(fd_, page_.data(), bytes, at_) == static_cast<ssize_t>(bytes),
                 "the raw write failed");
        HF_CHECK(::fdatasync(fd_) == 0, "the raw sync failed");
        at_ += static_cast<off_t>(bytes);
    }

private:
    int fd_;
    off_t at_ = 0;
    std::string page_;
};

class PlainLmdb {
public:
    explicit PlainLmdb(const std::string& path) {
        HF_CHECK(mdb_env_create(&env_) == 0 && mdb_env_set_mapsize(env_, kMapBytes) == 0 &&
                     mdb_env_open(env_, path.c_str(), MDB_NOSUBDIR, 0600) == 0,
                 "plain LMDB cannot be opened");
    }
    ~PlainLmdb() { mdb_env_close(env_); }
    PlainLmdb(const PlainLmdb&) = delete;
    PlainLmdb& operator=(const PlainLmdb&) = delete;
    void commit(const std::vector<Change>& changes) {
        MDB_txn* txn = nullptr;
        MDB_dbi table = 0;
        HF_CHECK(mdb_txn_begin(env_, nullptr, 0, &txn) == 0 &&
                     mdb_dbi_open(txn, nullptr, 0, &table) == 0,
                 "begin");
        for (const Change& change : changes) {
            std::string name = change.key;
            std::string body(kBodyBytes, 'l');
            MDB_val key{name.size(), name.data()};
            MDB_val value{body.size(), body.data()};
            HF_CHECK((change.put ? mdb_put(txn, table, &key, &value, 0)
                                 : mdb_del(txn, table, &key, nullptr)) == 0,
                     "a change of the benchmark");
        }
        HF_CHECK(mdb_txn_commit(txn) == 0, "commit");
    }

private:
    MDB_env* env_ = nullptr;
};

class OurBucket {
public:
    explicit OurBucket(const std::string& path) {
        auto opened = hf::bucket::Bucket::open({path, kMapBytes});
        HF_CHECK(opened.ok(), "the bucket cannot be opened");
        bucket_ = std::move(opened).value();
    }
    void commit(const std::vector<Change>& changes) {
        std::vector<hf::bucket::Write> writes(changes.size());
        for (std::size_t i = 0; i < writes.size(); ++i) {
            hf::bucket::Write& write = writes[i];
            write.key = changes[i].key;
            if (!changes[i].put) {
                write.kind = hf::bucket::WriteKind::Delete;
                continue;
            }
            write.body.assign(kBodyBytes, 'b');
            write.condition = hf::bucket::Condition::IfAbsent;
            write.write_id = {1, ++next_};
        }
        for (const auto& result : bucket_->apply(writes))
            HF_CHECK(result.outcome == hf::bucket::Outcome::Applied,
                     "a write of the benchmark was not applied");
    }

private:
    std::unique_ptr<hf::bucket::Bucket> bucket_;
    std::uint64_t next_ = 0;
};

std::int64_t processor_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// One subject's figures, a value for each run: of one commit.
struct Figures {
    std::vector<double> us, cpu_us;
    template <class Subject, class Pattern>
    void run(Subject& subject, Pattern& pattern, int commits) {
        std::int64_t took = 0;
        std::int64_t cpu = 0;
        for (int i = 0; i < commits; ++i) {
            const std::vector<Change> changes = pattern.next();
            const std::int64_t cpu_begin = processor_ns();
            const std::int64_t begin = monotonic_ns();
            subject.commit(changes);
            took += monotonic_ns() - begin;
            cpu += processor_ns() - cpu_begin;
        }
        us.push_back(static_cast<double>(took) / 1000.0 / commits);
        cpu_us.push_back(static_cast<double>(cpu) / 1000.0 / commits);
    }
};

double ratio(const std::vector<double>& above, const std::vector<double>& below) {
    std::vector<double> ratios;
    for (std::size_t i = 0; i < above.size(); ++i) ratios.push_back(above[i] / below[i]);
    return median(ratios);
}

class TempDir {
public:
    explicit TempDir(const std::string& base) : path_(base + "/hf-bench-XXXXXX") {
        HF_CHECK(::mkdtemp(path_.data()) != nullptr, "no directory for the benchmark");
        std::filesystem::create_directory(path_ + "/bucket");
    }
    ~TempDir() { std::filesystem::remove_all(path_); }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

// `warm` commits come first and count for nothing.
template <class Pattern>
void measure(const std::string& base,
             const char* name,
             const Pattern& pattern,
             std::size_t puts,
             int runs,
             int commits,
             int warm) {
    const TempDir directory(base);
    RawFile raw(directory / "raw");
    PlainLmdb plain(directory / "plain");
    OurBucket bucket(directory / "bucket");
    Pattern raw_pattern = pattern, plain_pattern = pattern, bucket_pattern = pattern;
    for (int i = 0; i < warm; ++i) {
        raw_pattern.next();
        plain.commit(plain_pattern.next());
        bucket.commit(bucket_pattern.next());
    }
    Figures of_raw, of_plain, of_bucket;
    for (int run = 0; run < runs; ++run) {
        of_raw.run(raw, raw_pattern, commits);
        of_plain.run(plain, plain_pattern, commits);
        of_bucket.run(bucket, bucket_pattern, commits);
    }
    const double per_put = static_cast<double>(puts);
    std::printf(
        "{\"bench\":\"%s\",\"batch\":%zu,\"runs\":%d,\"commits_per_run\":%d,"
        "\"raw_fdatasync_us\":%.1f,\"plain_lmdb_us\":%.1f,\"bucket_us\":%.1f,"
        "\"bucket_us_per_put\":%.2f,\"plain_lmdb_cpu_us_per_put\":%.2f,"
        "\"bucket_cpu_us_per_put\":%.2f,\"bucket_to_raw\":%.2f,\"bucket_to_lmdb\":%.2f,"
        "\"bucket_to_lmdb_cpu\":%.2f}\n",
        name,
        puts,
        runs,
        commits,
        median(of_raw.us),
        median(of_plain.us),
        median(of_bucket.us),
        median(of_bucket.us) / per_put,
        median(of_plain.cpu_us) / per_put,
        median(of_bucket.cpu_us) / per_put,
        ratio(of_bucket.us, of_raw.us),
        ratio(of_bucket.us, of_plain.us),
        ratio(of_bucket.cpu_us, of_plain.cpu_us));
    std::fflush(stdout);
}

void measure_put_1(const std::string& base, int puts) {
    const TempDir directory(base);
    OurBucket bucket(directory / "bucket");
    OneLog pattern(1);
    Figures figures;
    for (int i = 0; i < puts; ++i) figures.run(bucket, pattern, 1);
    std::printf("{\"name\":\"put_1\",\"us\":%.1f}\n", median(figures.us));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    std::string base = std::filesystem::temp_directory_path().string();
    bool quick = false;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (word == "--quick") {
            quick = true;
        } else if (word == "--dir" && i + 1 < argc) {
            base = argv[++i];
        } else {
            std::fprintf(stderr, "usage: bucket_bench [--dir DIRECTORY] [--quick]\n");
            return 2;
        }
    }
    const int runs = quick ? kRunsQuick : kRuns;
    const int part = quick ? 4 : 1;
    measure_put_1(base, 800 / part);
    for (const auto& [puts, commits] : {std::pair<std::size_t, int>{1, 200}, {16, 100}, {256, 40}})
        measure(base, "bucket_put", OneLog(puts), puts, runs, commits / part, 0);
    // Until the first deletes, and as many again.
    constexpr int kWarm =
        static_cast<int>(2 * ManyLogs::kUnits * ManyLogs::kKept / ManyLogs::kPuts);
    measure(base, "bucket_units", ManyLogs(), ManyLogs::kPuts, runs, 200 / part, kWarm);
    return 0;
}
