#include "agent/port/segments.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "abi/layout/segment.hpp"

namespace hf::port {

namespace {

// Distinct sizes kept ready: one for each kind of plugin.
constexpr std::size_t kSizesMax = 8;

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL =
    0x0008U;  // Linux 6.3; older kernels refuse the flag with EINVAL
#endif

Result<UniqueFd> make_memfd(const char* name, std::size_t bytes) {
    UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL));
    if (!fd.valid() && errno == EINVAL)
        fd.reset(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd.valid()) return fail_errno(errno, "cannot make a shared memory file");
    // Takes the pages now: a missing page later would be a bus error in the middle of a message.
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
        ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) != 0)
        return fail_errno(
            errno,
            "cannot reserve " + std::to_string(bytes) + " bytes of shared memory for a link");
    return fd;
}

Result<void> seal(int fd, int seals) {
    if (::fcntl(fd, F_ADD_SEALS, seals) != 0)
        return fail_errno(errno, "cannot seal a shared memory file");
    return {};
}

}  // namespace

Result<SegmentPair> make_segment_pair(const ChannelSizes& sizes) {
    SegmentPair out;
    const std::size_t to_bytes = layout::segment_bytes(sizes.to_plugin_bytes);
    const std::size_t from_bytes = layout::segment_bytes(sizes.from_plugin_bytes);
    HF_ASSIGN(out.to_plugin_fd, make_memfd("holdfast-s", to_bytes));
    HF_ASSIGN(out.to_plugin,
              ring::Mapping::map(out.to_plugin_fd.get(), to_bytes, ring::Access::ReadWrite));
    // After this no one can map S writable again, not even we; our mapping keeps its right.
    HF_TRY(seal(out.to_plugin_fd.get(),
                F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    HF_ASSIGN(out.from_plugin_fd, make_memfd("holdfast-p", from_bytes));
    HF_TRY(seal(out.from_plugin_fd.get(), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    HF_ASSIGN(out.from_plugin,
              ring::Mapping::map(out.from_plugin_fd.get(), from_bytes, ring::Access::ReadOnly));
    return out;
}

SegmentPool::State::State() : spin_allowed_(ring::spin_allowed()) {
    // The bell of an instance that just died must not end the supervisor.
    ::signal(SIGPIPE, SIG_IGN);
    // The helper takes no signals: they belong to the loop thread.
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SegmentPool::State::~State() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

std::pair<const SegmentPool::State::Key, std::vector<SegmentPair>>* SegmentPool::State::wanting() {
    if (failed_) return nullptr;
    for (auto& entry : spares_)
        if (entry.second.size() < kSparesPerSize) return &entry;
    return nullptr;
}

void SegmentPool::State::run() {
    spin_ns_.store(ring::measure_wake_ns(), std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || wanting() != nullptr; });
        if (stopping_) return;
        const Key key = wanting()->first;
        lock.unlock();
        auto made = make_segment_pair({key.first, key.second});
        lock.lock();
        if (made)
            spares_[key].push_back(std::move(made).value());
        else
            failed_ = true;
    }
}

void SegmentPool::State::keep(const ChannelSizes& sizes) {
    {
        const std::lock_guard lock(mutex_);
        if (spares_.size() >= kSizesMax) return;
        spares_.try_emplace({sizes.to_plugin_bytes, sizes.from_plugin_bytes});
    }
    changed_.notify_one();
}

Result<SegmentPair> SegmentPool::State::take(const ChannelSizes& sizes) {
    {
        const std::lock_guard lock(mutex_);
        failed_ = false;
        const auto found = spares_.find({sizes.to_plugin_bytes, sizes.from_plugin_bytes});
        if (found != spares_.end() && !found->second.empty()) {
            SegmentPair out = std::move(found->second.back());
            found->second.pop_back();
            changed_.notify_one();
            return out;
        }
    }
    changed_.notify_one();
    return make_segment_pair(sizes);
}

SegmentPool::SegmentPool() : state_(std::make_unique<State>()) {}
SegmentPool::~SegmentPool() = default;
void SegmentPool::keep(const ChannelSizes& sizes) {
    state_->keep(sizes);
}

}  // namespace hf::port
