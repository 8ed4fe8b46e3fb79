#include "plugins/storage-s3/operation.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"

namespace hf::s3 {
namespace {

constexpr std::int64_t kNsPerMs = 1'000'000;

}  // namespace

Operation::~Operation() {
    stop();
}

void Operation::start(Ended ended) {
    ended_ = std::move(ended);
    const std::int64_t ms = env_.settings.operation_timeout_ms;
    deadline_ns_ = monotonic_ns() + ms * kNsPerMs;
    deadline_ = env_.loop.after(ms, [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (self == nullptr || self->ended_flag_) return;
        self->give_up("not decided within operation_timeout" +
                      (self->last_trouble_.empty() ? "" : "; last: " + self->last_trouble_));
    });
    begin();
}

void Operation::exchange(Call call, std::function<void(Reply&)> done) {
    if (ended_flag_) return;
    const std::int64_t left_ms = (deadline_ns_ - monotonic_ns()) / kNsPerMs;
    if (left_ms <= 0) return;  // the deadline's timer is due
    if (++tries_ > tries_allowed_) return give_up("attempts_max tries; last: " + last_trouble_);
    call.timeout_ms = std::min(env_.settings.attempt_timeout_ms, left_ms);
    ++env_.counts.requests;
    const auto id = std::make_shared<Http::Id>();
    Call again = call;
    *id = env_.client.send(
        std::move(call),
        [self = shared_from_this(), id, again = std::move(again), done = std::move(done)](
            Reply& reply) mutable {
            self->open_.erase(*id);
            if (self->ended_flag_) return;
            if (reply.verdict == Verdict::Done) {
                self->env_.budget.succeeded();
                self->pauses_ = 0;
            }
            if (reply.verdict != Verdict::Done) self->last_trouble_ = describe(reply.exchange);
            // The clock is right now, and nothing was done: that try did not count.
            if (reply.verdict == Verdict::Skewed && !std::exchange(self->clock_corrected_, true))
                return self->exchange(std::move(again), std::move(done));
            done(reply);
        });
    open_.insert(*id);
}

void Operation::pause(const Reply& last, std::function<void()> fn) {
    if (ended_flag_) return;
    if (!env_.budget.take())
        return give_up("the store fails so much that nothing is repeated; last: " +
                       describe(last.exchange));
    ++env_.counts.repeated;
    const std::int64_t ms = std::max(pause_ms(++pauses_, env_.random()), last.retry_after_ms);
    const auto id = std::make_shared<Loop::TimerId>();
    *id = env_.loop.after(ms, [self = shared_from_this(), id, fn = std::move(fn)] {
        self->timers_.erase(*id);
        if (!self->ended_flag_) fn();
    });
    timers_.insert(*id);
}

void Operation::stop() {
    ended_flag_ = true;
    for (const Http::Id id : std::exchange(open_, {})) env_.client.cancel(id);
    for (const Loop::TimerId id : std::exchange(timers_, {})) env_.loop.cancel(id);
    env_.loop.cancel(std::exchange(deadline_, 0));
}

void Operation::end(const std::function<void()>& answer) {
    HF_CHECK(!ended_flag_, "an operation is answered once");
    const auto self = shared_from_this();
    stop();
    if (ended_) std::exchange(ended_, {})();
    answer();
}

}  // namespace hf::s3
