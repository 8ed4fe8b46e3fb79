#include "agent/core/store_client.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"

namespace hf::core {

namespace {
// Settling an unknown outcome: 50 ms doubling to 2 s. A store that recovers is noticed in time for a 30 s request.
constexpr Time kRetryFirst = 50 * kMs;
constexpr unsigned kRetryDoublings = 5;
}  // namespace

OpId StoreClient::submit(StoreRequest request, Done done) {
    const OpId op = env_.new_op();
    request.op = op;
    open_.emplace(op, Pending{std::move(request), std::move(done), {}, 0, 0});
    waiting_.push_back(op);
    send_waiting();
    return op;
}

OpId StoreClient::get(std::string key, Done done) {
    StoreRequest request;
    request.verb = StoreVerb::Get;
    request.key = std::move(key);
    return submit(std::move(request), std::move(done));
}

OpId StoreClient::put(std::string key,
                      Bytes body,
                      Condition condition,
                      std::string etag,
                      WriteId write_id,
                      Done done) {
    StoreRequest request;
    request.verb = StoreVerb::Put;
    request.key = std::move(key);
    request.body = std::move(body);
    request.condition = condition;
    request.etag = std::move(etag);
    request.write_id = write_id;
    return submit(std::move(request), std::move(done));
}

OpId StoreClient::erase(std::vector<std::string> keys, Done done) {
    HF_CHECK(!keys.empty() && keys.size() <= kEraseKeysMax, "1 to kEraseKeysMax keys");
    StoreRequest request;
    request.verb = StoreVerb::Delete;
    request.key = std::move(keys.back());
    keys.pop_back();
    request.also = std::move(keys);
    return submit(std::move(request), std::move(done));
}

OpId StoreClient::list(std::string prefix, std::string after, std::uint32_t limit, Done done) {
    StoreRequest request;
    request.verb = StoreVerb::List;
    request.key = std::move(prefix);
    request.after = std::move(after);
    request.limit = limit;
    return submit(std::move(request), std::move(done));
}

OpId StoreClient::probe(Done done) {
    StoreRequest request;
    request.verb = StoreVerb::Probe;
    return submit(std::move(request), std::move(done));
}

void StoreClient::forget_flight(Pending& pending) {
    if (pending.sent_to.valid()) --in_flight_;
    pending.sent_to = {};
    if (pending.retry_at != 0) --backing_off_;
    pending.retry_at = 0;
}

void StoreClient::send_waiting() {
    while (target_.valid() && in_flight_ < env_.config.limits.storage_inflight &&
           !waiting_.empty()) {
        Pending& pending = open_.at(waiting_.front());  // what waits has no answer yet
        waiting_.pop_front();
        pending.sent_to = target_;
        ++in_flight_;
        StoreRequest request = pending.request;
        request.to = target_;
        env_.emit(std::move(request));
        on_sent_(target_);
    }
}

bool StoreClient::answered(StoreAnswer& answer) {
    const auto it = open_.find(answer.op);
    if (it == open_.end() || it->second.sent_to != answer.from) return false;
    Pending& pending = it->second;
    forget_flight(pending);
    const bool put = pending.request.verb == StoreVerb::Put;
    const bool undecided = answer.outcome == Outcome::Unknown ||
                           (put && pending.uncertain && answer.outcome == Outcome::Refused);
    if (undecided && pending.request.verb != StoreVerb::Delete) {
        if (put) ++env_.stats.commit_unknown;
        pending.uncertain = put;
        pending.retry_at = env_.now + (kRetryFirst << std::min(pending.tries, kRetryDoublings));
        ++pending.tries;
        ++backing_off_;
        send_waiting();
        return true;
    }
    Pending finished = std::move(pending);
    open_.erase(it);
    send_waiting();
    finished.done(answer);
    return true;
}

void StoreClient::route(Handle storage) {
    if (storage == target_) return;
    target_ = storage;
    if (storage.valid()) send_waiting();
}

void StoreClient::died(Handle storage) {
    if (target_ == storage) target_ = {};
    std::deque<OpId> again;
    for (auto& [op, pending] : open_) {
        if (pending.sent_to != storage) continue;
        forget_flight(pending);
        pending.uncertain = pending.request.verb == StoreVerb::Put;
        again.push_back(op);
    }
    // What was sent once goes before what never was.
    waiting_.insert(waiting_.begin(), again.begin(), again.end());
    send_waiting();
}

void StoreClient::tick() {
    if (backing_off_ == 0) return;
    for (auto& [op, pending] : open_) {
        if (pending.retry_at == 0 || pending.retry_at > env_.now) continue;
        pending.retry_at = 0;
        --backing_off_;
        waiting_.push_back(op);
    }
    send_waiting();
}

Time StoreClient::next_deadline() const {
    if (backing_off_ == 0) return kNever;
    Time soonest = kNever;
    for (const auto& [op, pending] : open_) {
        if (pending.retry_at != 0) soonest = std::min(soonest, pending.retry_at);
    }
    return soonest;
}

}  // namespace hf::core
