#include "agent/core/store_client.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"

namespace hf::core {

namespace {
constexpr Time kRetryFirst = 50 * kMs;
constexpr unsigned kRetryDoublings = 5;
}  // namespace

void Backoff::begin(Time now) {
    at_ = now + (kRetryFirst << std::min(tries_, kRetryDoublings));
    ++tries_;
}

OpId StoreClient::submit(StoreRequest request, Done done) {
    const OpId op = env_.new_op();
    request.op = op;
    open_.emplace(op, Pending{std::move(request), std::move(done), {}, {}});
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

void StoreClient::abandon(OpId op) {
    const auto it = open_.find(op);
    if (it == open_.end()) return;
    Pending& pending = it->second;
    pending.abandoned = true;
    pending.done = [](StoreAnswer&) {};
    if (pending.sent_to.valid()) return;  // its answer makes room for others
    forget_flight(pending);
    std::erase(waiting_, op);
    open_.erase(it);
}

void StoreClient::forget_flight(Pending& pending) {
    if (pending.sent_to.valid()) --in_flight_;
    pending.sent_to = {};
    if (pending.backoff.waits()) --backing_off_;
    pending.backoff.end();
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

void StoreClient::guard(std::string key,
                        std::function<bool(const StoreAnswer&)> known,
                        std::function<void(Handle, const std::string&)> strange) {
    guard_ = Guard{std::move(key), std::move(known), std::move(strange), {}, {}, {}};
}

void StoreClient::ask_identity() {
    guard_->op = env_.new_op();
    guard_->backoff.end();
    StoreRequest request;
    request.op = guard_->op;
    request.to = guard_->asked;
    request.verb = StoreVerb::Get;
    request.key = guard_->key;
    env_.emit(std::move(request));
    on_sent_(guard_->asked);
}

void StoreClient::identity_answered(const StoreAnswer& answer) {
    if (answer.outcome != Outcome::Applied && answer.outcome != Outcome::NotFound) {
        guard_->op = {};
        guard_->backoff.begin(env_.now);
        return;
    }
    const Handle asked = std::exchange(guard_->asked, {});
    guard_->op = {};
    if (guard_->known(answer)) {
        target_ = asked;
        return send_waiting();
    }
    guard_->strange(asked,
                    answer.outcome == Outcome::NotFound
                        ? "the store is empty or another one: it has no record '" + guard_->key +
                              "', which was there before"
                        : "the store is another one than before");
}

bool StoreClient::answered(StoreAnswer& answer) {
    if (guard_ && guard_->asked.valid() && answer.from == guard_->asked &&
        answer.op == guard_->op) {
        identity_answered(answer);
        return true;
    }
    const auto it = open_.find(answer.op);
    if (it == open_.end() || it->second.sent_to != answer.from) return false;
    Pending& pending = it->second;
    forget_flight(pending);
    const bool put = pending.request.verb == StoreVerb::Put;
    const bool undecided = answer.outcome == Outcome::Unknown ||
                           (put && pending.uncertain && answer.outcome == Outcome::Refused);
    if (undecided && !pending.abandoned && pending.request.verb != StoreVerb::Delete) {
        if (put) ++env_.stats.commit_unknown;
        pending.uncertain = put;
        pending.backoff.begin(env_.now);
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
    if (!guard_) {
        target_ = storage;
        return send_waiting();
    }
    if (storage == guard_->asked) return;
    target_ = {};
    guard_->asked = storage;
    guard_->backoff.reset();
    if (storage.valid()) ask_identity();
}

void StoreClient::died(Handle storage) {
    if (target_ == storage) target_ = {};
    if (guard_ && guard_->asked == storage) {
        guard_->asked = {};
        guard_->backoff.end();
    }
    std::deque<OpId> again;
    for (auto it = open_.begin(); it != open_.end();) {
        Pending& pending = it->second;
        if (pending.sent_to != storage) {
            ++it;
            continue;
        }
        forget_flight(pending);
        if (pending.abandoned) {
            it = open_.erase(it);
            continue;
        }
        pending.uncertain = pending.request.verb == StoreVerb::Put;
        again.push_back(it->first);
        ++it;
    }
    // What was sent once goes before what never was.
    waiting_.insert(waiting_.begin(), again.begin(), again.end());
    send_waiting();
}

void StoreClient::tick() {
    if (guard_ && guard_->backoff.due(env_.now)) ask_identity();
    if (backing_off_ == 0) return;
    for (auto& [op, pending] : open_) {
        if (!pending.backoff.due(env_.now)) continue;
        pending.backoff.end();
        --backing_off_;
        waiting_.push_back(op);
    }
    send_waiting();
}

Time StoreClient::next_deadline() const {
    Time soonest = guard_ ? guard_->backoff.at() : kNever;
    if (backing_off_ == 0) return soonest;
    for (const auto& [op, pending] : open_) {
        soonest = std::min(soonest, pending.backoff.at());
    }
    return soonest;
}

}  // namespace hf::core
