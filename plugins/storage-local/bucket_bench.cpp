// What a durable put costs beside the disk's own price: `bucket_bench [DIRECTORY]`, one JSON object a line.
// For batches of 1, 16 and 256 puts of 200 bytes, each run measures three things one after the other, so that a change of
// the disk's mood hits all of them: one pwrite of the same bytes (whole pages) and fdatasync; plain LMDB, one transaction;
// the bucket. Medians over the runs, and of the ratios within each run.
#include <fcntl.h>
#include <lmdb.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "plugins/storage-local/bucket.hpp"

namespace {

using hf::monotonic_ns;

constexpr std::size_t kBodyBytes = 200;
// Odd, so that the median is a run; as many as the project's ratios ask for.
constexpr int kRuns = 11;
constexpr std::size_t kPageBytes = 4096;
constexpr std::uint64_t kMapBytes = 1ULL << 30U;

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + kRuns / 2, values.end());
    return values[kRuns / 2];
}

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
    void commit(std::size_t puts) {
        const std::size_t bytes = (puts * kBodyBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
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
    void commit(std::size_t puts) {
        MDB_txn* txn = nullptr;
        MDB_dbi table = 0;
        HF_CHECK(mdb_txn_begin(env_, nullptr, 0, &txn) == 0 &&
                     mdb_dbi_open(txn, nullptr, 0, &table) == 0,
                 "begin");
        for (std::size_t i = 0; i < puts; ++i) {
            std::string name = "log/actor/" + std::to_string(10'000'000 + next_++);
            std::string body(kBodyBytes, 'l');
            MDB_val key{name.size(), name.data()};
            MDB_val value{body.size(), body.data()};
            HF_CHECK(mdb_put(txn, table, &key, &value, 0) == 0, "put");
        }
        HF_CHECK(mdb_txn_commit(txn) == 0, "commit");
    }

private:
    MDB_env* env_ = nullptr;
    std::uint64_t next_ = 0;
};

class OurBucket {
public:
    explicit OurBucket(const std::string& path) {
        auto opened = hf::bucket::Bucket::open({path, kMapBytes});
        HF_CHECK(opened.ok(), "the bucket cannot be opened");
        bucket_ = std::move(opened).value();
    }
    void commit(std::size_t puts) {
        std::vector<hf::bucket::Write> writes(puts);
        for (hf::bucket::Write& write : writes) {
            write.key = "log/actor/" + std::to_string(10'000'000 + next_);
            write.body.assign(kBodyBytes, 'b');
            write.condition = hf::bucket::Condition::IfAbsent;
            write.write_id = {1, ++next_};
        }
        for (const auto& result : bucket_->apply(writes))
            HF_CHECK(result.outcome == hf::bucket::Outcome::Applied,
                     "a put of the benchmark was not applied");
    }

private:
    std::unique_ptr<hf::bucket::Bucket> bucket_;
    std::uint64_t next_ = 0;
};

template <class Subject>
double microseconds(Subject& subject, std::size_t puts, int commits) {
    const std::int64_t begin = monotonic_ns();
    for (int i = 0; i < commits; ++i) subject.commit(puts);
    return static_cast<double>(monotonic_ns() - begin) / 1000.0 / commits;
}

void measure(const std::string& directory, std::size_t puts, int commits) {
    RawFile raw(directory + "/raw");
    PlainLmdb plain(directory + "/plain");
    std::filesystem::create_directory(directory + "/bucket");
    OurBucket bucket(directory + "/bucket");
    std::vector<double> raw_us, plain_us, bucket_us, to_raw, to_plain;
    for (int run = 0; run < kRuns; ++run) {
        raw_us.push_back(microseconds(raw, puts, commits));
        plain_us.push_back(microseconds(plain, puts, commits));
        bucket_us.push_back(microseconds(bucket, puts, commits));
        to_raw.push_back(bucket_us.back() / raw_us.back());
        to_plain.push_back(bucket_us.back() / plain_us.back());
    }
    std::printf(
        "{\"bench\":\"bucket_put\",\"batch\":%zu,\"runs\":%d,\"commits_per_run\":%d,\"raw_"
        "fdatasync_us\":%.1f,"
        "\"plain_lmdb_us\":%.1f,\"bucket_us\":%.1f,\"bucket_us_per_put\":%.2f,\"bucket_to_raw\":%."
        "2f,"
        "\"bucket_to_lmdb\":%.2f}\n",
        puts,
        kRuns,
        commits,
        median(raw_us),
        median(plain_us),
        median(bucket_us),
        median(bucket_us) / static_cast<double>(puts),
        median(to_raw),
        median(to_plain));
}

}  // namespace

int main(int argc, char** argv) {
    const std::string base = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
    for (const auto& [puts, commits] :
         {std::pair<std::size_t, int>{1, 200}, {16, 100}, {256, 40}}) {
        std::string directory = base + "/hf-bench-XXXXXX";
        HF_CHECK(::mkdtemp(directory.data()) != nullptr, "no directory for the benchmark");
        measure(directory, puts, commits);
        std::filesystem::remove_all(directory);
    }
    return 0;
}
