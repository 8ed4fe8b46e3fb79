// Writes on their own thread: group commit. What was queued while one commit ran becomes the next one, in the order of
// arrival. A lone write is committed at once and a crowd shares a sync: when several wrote at the same time lately, a commit
// waits a moment until most of them are there again, because a commit costs as much for few writes as for many.
//
// Not responsible for what a write means (bucket.hpp) or for telling the asker (the owner's, through `done`).
//
// Death of the process: writes queued and not committed never happen, committed ones stay; nobody was told either way.
// Destruction: the running commit is finished, what is queued behind it is dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "plugins/storage-local/bucket.hpp"

namespace hf::bucket {

// A batch of 256 is where a sync's price per write ends to matter (about 1 us each), and keeps one commit short.
inline constexpr std::size_t kBatchWritesMax = 256;
// Bodies of one batch: 85 whole ones. A larger object is a batch of its own: a disk that has no room for it may have some for
// the others. Bounds the pages a transaction holds in memory and what a queue waits for.
inline constexpr std::size_t kBatchBytesMax = 4U << 20U;
// Writes that may wait or run: a link of 4 MiB reserves 1 KiB for each answer, so no more can be asked at once.
inline constexpr std::size_t kOpenWritesMax = 4096;
// Their keys and bodies together.
inline constexpr std::size_t kOpenBytesMax = 64U << 20U;

// A commit waits for company for this part of what the last one took, and never longer than the bound: whoever waits
// in vain loses half as much as by coming a moment later, behind another commit.
inline constexpr std::int64_t kCompanyPart = 2;
inline constexpr std::int64_t kCompanyNsMax = 1'000'000;

struct Finished {
    std::uint64_t token = 0;
    WriteKind kind = WriteKind::Put;
    WriteResult result;
};

class Committer {
public:
    // Called on the committer's thread, once per batch.
    using Done = std::function<void(std::vector<Finished>)>;

    Committer(Bucket& bucket, Done done);
    ~Committer();
    Committer(const Committer&) = delete;
    Committer& operator=(const Committer&) = delete;

    // One thread calls these four.
    // False: kOpenWritesMax or kOpenBytesMax is reached, nothing was taken.
    [[nodiscard]] bool add(Write write);
    // Hands what was added to the thread; one wake for all.
    void hand_over();
    // To be called with each batch that `done` delivered: these writes are answered.
    void settled(const std::vector<Finished>& finished);
    [[nodiscard]] bool idle() const { return open_ == 0; }

    [[nodiscard]] std::size_t batch_max() const {
        return batch_max_.load(std::memory_order_relaxed);
    }

private:
    void run();
    std::vector<Write> take_batch(std::unique_lock<std::mutex>& lock);

    Bucket& bucket_;
    Done done_;
    // The adding thread's own.
    std::vector<Write> added_;
    std::size_t open_ = 0;
    // Shared under the mutex.
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Write> queue_;
    std::size_t enough_ = 1;  // the thread sleeps until so many are queued
    bool stop_ = false;
    // The thread's own.
    std::size_t crowd_ = 0;  // of the last commit: its writes and those that came meanwhile
    std::int64_t took_ns_ = 0;

    std::atomic<std::size_t> open_bytes_{0};
    std::atomic<std::size_t> batch_max_{0};
    std::thread thread_;
};

}  // namespace hf::bucket
