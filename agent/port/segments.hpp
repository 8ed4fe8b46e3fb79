// Sealed, populated pairs of segments for new links, and the thread that makes them ahead of need. A pair is used by one
// generation of one instance and never again: what a plugin wrote dies with it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "abi/base/result.hpp"
#include "abi/base/unique_fd.hpp"
#include "abi/ring/mapping.hpp"
#include "abi/ring/spin.hpp"
#include "agent/port/channel.hpp"

namespace hf::port {

// Spare pairs of one size: one for the restart and one for the swap that may run beside it.
inline constexpr std::size_t kSparesPerSize = 2;

struct SegmentPair {
    UniqueFd to_plugin_fd;  // S, mapped here read-write, then sealed FUTURE_WRITE|SHRINK|GROW|SEAL
    ring::Mapping to_plugin;
    UniqueFd from_plugin_fd;  // P, sealed SHRINK|GROW|SEAL, mapped here read-only
    ring::Mapping from_plugin;
};

// Makes one pair now: about a millisecond for each MiB. Fails with the size when the memory is not there.
Result<SegmentPair> make_segment_pair(const ChannelSizes& sizes);

struct SegmentPool::State {
    using Key = std::pair<std::uint32_t, std::uint32_t>;

    State();
    ~State();
    // A ready pair if there is one, else one made here and now.
    Result<SegmentPair> take(const ChannelSizes& sizes);
    void keep(const ChannelSizes& sizes);
    // The measured cost of waking a sleeper on another CPU, or the default until it is known.
    [[nodiscard]] std::uint32_t spin_ns() const { return spin_ns_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool spin_allowed() const { return spin_allowed_; }
    [[nodiscard]] std::uint64_t next_link_id() { return ++last_link_id_; }

private:
    void run();
    // The size that lacks spares, or nullptr. Lock held.
    [[nodiscard]] std::pair<const Key, std::vector<SegmentPair>>* wanting();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<Key, std::vector<SegmentPair>> spares_;
    bool stopping_ = false;
    bool failed_ = false;  // the last attempt found no memory; tried again after the next take()
    std::atomic<std::uint32_t> spin_ns_{ring::kSpinNsDefault};
    bool spin_allowed_ = false;
    std::uint64_t last_link_id_ = 0;
    std::thread thread_;
};

}  // namespace hf::port
