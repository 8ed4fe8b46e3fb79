#include "plugins/storage-local/committer.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"

namespace hf::bucket {
namespace {

std::size_t bytes_of(const Write& write) {
    return write.key.size() + write.body.size() + write.etag.size();
}

}  // namespace

Committer::Committer(Bucket& bucket, Done done)
    : bucket_(bucket), done_(std::move(done)), thread_([this] { run(); }) {}

Committer::~Committer() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

bool Committer::add(Write write) {
    const std::size_t bytes = bytes_of(write);
    if (open_ == kOpenWritesMax ||
        open_bytes_.load(std::memory_order_relaxed) + bytes > kOpenBytesMax)
        return false;
    ++open_;
    open_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    added_.push_back(std::move(write));
    return true;
}

void Committer::hand_over() {
    if (added_.empty()) return;
    bool enough = false;
    {
        const std::lock_guard lock(mutex_);
        queue_.insert(queue_.end(),
                      std::make_move_iterator(added_.begin()),
                      std::make_move_iterator(added_.end()));
        enough = queue_.size() >= enough_;
    }
    added_.clear();
    if (enough) wake_.notify_one();
}

void Committer::settled(const std::vector<Finished>& finished) {
    HF_CHECK(finished.size() <= open_, "more writes were answered than asked");
    open_ -= finished.size();
}

// The next batch, in the order of arrival.
std::vector<Write> Committer::take_batch(std::unique_lock<std::mutex>& lock) {
    crowd_ += queue_.size();
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    enough_ = std::clamp<std::size_t>(crowd_ * 3 / 4, 1, kBatchWritesMax);
    if (enough_ > 1)
        wake_.wait_for(lock,
                       std::chrono::nanoseconds(std::min(took_ns_ / kCompanyPart, kCompanyNsMax)),
                       [this] { return stop_ || queue_.size() >= enough_; });
    enough_ = 1;
    std::vector<Write> batch;
    if (stop_) return batch;
    std::size_t bytes = 0;
    while (!queue_.empty() && batch.size() < kBatchWritesMax) {
        bytes += bytes_of(queue_.front());
        const bool alone = queue_.front().body.size() > kInlineObjectBytesMax;
        if (!batch.empty() && (alone || bytes > kBatchBytesMax)) break;
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
        if (alone) break;
    }
    return batch;
}

void Committer::run() {
    for (;;) {
        std::vector<Write> batch;
        {
            std::unique_lock lock(mutex_);
            batch = take_batch(lock);
        }
        if (batch.empty()) return;
        if (batch.size() > batch_max()) batch_max_.store(batch.size(), std::memory_order_relaxed);
        const std::int64_t begin = monotonic_ns();
        std::vector<WriteResult> results = bucket_.apply(batch);
        took_ns_ = monotonic_ns() - begin;
        crowd_ = batch.size();
        std::vector<Finished> finished;
        finished.reserve(batch.size());
        std::size_t bytes = 0;
        for (std::size_t i = 0; i < batch.size(); ++i) {
            bytes += bytes_of(batch[i]);
            finished.push_back({batch[i].token, batch[i].kind, std::move(results[i])});
        }
        open_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
        done_(std::move(finished));
    }
}

}  // namespace hf::bucket
