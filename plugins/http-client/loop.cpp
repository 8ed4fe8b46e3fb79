#include "plugins/http-client/loop.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"

namespace hf::web {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;
constexpr std::int64_t kNsPerS = 1'000'000'000;
// Of one step; the rest is due in the next.
constexpr std::size_t kEventsPerStep = 64;

}  // namespace

Result<std::unique_ptr<Loop>> Loop::create() {
    std::unique_ptr<Loop> loop(new Loop);
    loop->epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    loop->timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!loop->epoll_.valid() || !loop->timer_.valid())
        return fail_errno(errno, "making the loop for connections");
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = loop->timer_.get();
    if (::epoll_ctl(loop->epoll_.get(), EPOLL_CTL_ADD, loop->timer_.get(), &event) != 0)
        return fail_errno(errno, "watching the timer of connections");
    return loop;
}

void Loop::step() {
    std::array<epoll_event, kEventsPerStep> events{};
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.fd == timer_.get()) {
            std::uint64_t times = 0;
            (void)!::read(timer_.get(), &times, sizeof times);
            armed_ns_ = 0;
            continue;
        }
        const auto found = watched_.find(event.data.fd);
        if (found == watched_.end()) continue;  // an earlier callback of this step let it go
        const std::shared_ptr<OnReady> fn = found->second;
        (*fn)({(event.events & (EPOLLIN | EPOLLRDHUP)) != 0,
               (event.events & EPOLLOUT) != 0,
               (event.events & (EPOLLERR | EPOLLHUP)) != 0});
    }
    run_timers();
    arm();
}

void Loop::wait(int timeout_ms) {
    pollfd one{epoll_.get(), POLLIN, 0};
    (void)::poll(&one, 1, timeout_ms);
    step();
}

void Loop::watch(int fd, bool in, bool out, OnReady fn) {
    epoll_event event{};
    event.events = (in ? EPOLLIN | EPOLLRDHUP : 0U) | (out ? EPOLLOUT : 0U);
    event.data.fd = fd;
    const bool known = watched_.contains(fd);
    int failed = ::epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    // Its number was closed and given out again without a word.
    if (failed != 0 && known && errno == ENOENT)
        failed = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
    HF_CHECK(failed == 0, "an open socket can be watched");
    watched_[fd] = std::make_shared<OnReady>(std::move(fn));
}

void Loop::unwatch(int fd) {
    if (watched_.erase(fd) > 0) (void)::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

Loop::TimerId Loop::after(std::int64_t ms, std::function<void()> fn) {
    const TimerId id = ++last_timer_;
    const std::int64_t when = monotonic_ns() + ms * kNsPerMs;
    timers_.emplace(std::pair{when, id}, std::move(fn));
    when_.emplace(id, when);
    arm();
    return id;
}

void Loop::cancel(TimerId id) {
    const auto found = when_.find(id);
    if (found == when_.end()) return;
    timers_.erase({found->second, id});
    when_.erase(found);
}

void Loop::run_timers() {
    const std::int64_t now = monotonic_ns();
    // What a timer sets for now is due in the next step.
    const TimerId last = last_timer_;
    while (!timers_.empty() && timers_.begin()->first.first <= now &&
           timers_.begin()->first.second <= last) {
        auto node = timers_.extract(timers_.begin());
        when_.erase(node.key().second);
        node.mapped()();
    }
}

// A timer that was taken back may ring once for nothing; an idle process has none set.
void Loop::arm() {
    const std::int64_t next = timers_.empty() ? 0 : timers_.begin()->first.first;
    if (next == armed_ns_) return;
    itimerspec spec{};
    spec.it_value.tv_sec = next / kNsPerS;
    spec.it_value.tv_nsec = next % kNsPerS;
    HF_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr) == 0,
             "a timer can always be set");
    armed_ns_ = next;
}

}  // namespace hf::web
