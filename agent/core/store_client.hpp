// All requests to the storage plugin: bounded in flight, kept until decided, sent again to a successor.
//
// Outcomes are passed on as they are, except two: an *unknown* Put is never passed on but settled, by sending the same
// bytes again with the same write id and condition until the store decides (the store answers applied when it finds that
// write id); once a Put was unknown a *refused* one is unknown too. An *unknown* Get, List or Probe is asked again. Both back off.
// When the storage instance dies every open request waits, oldest first, for the next one. Once the node knows its store,
// that next one is used only after it has shown the same store: a directory that was emptied, replaced or unmounted while
// storage was away must not take writes that nobody will find again.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/env.hpp"
#include "agent/core/events.hpp"

namespace hf::core {

// Keys of one Delete: 64 of the longest, less than 500 bytes each, fill half a record.
constexpr std::size_t kEraseKeysMax = 64;

// When to ask again: 50 ms doubling to 2 s, so that a store which recovers is noticed in time for a 30 s request.
class Backoff {
public:
    void begin(Time now);  // another try failed
    void end() { at_ = 0; }
    void reset() { *this = {}; }
    [[nodiscard]] bool waits() const { return at_ != 0; }
    [[nodiscard]] bool due(Time now) const { return at_ != 0 && at_ <= now; }
    [[nodiscard]] Time at() const { return at_ == 0 ? kNever : at_; }

private:
    Time at_ = 0;  // 0: not waiting
    unsigned tries_ = 0;
};

class StoreClient {
public:
    using Done = std::function<void(StoreAnswer&)>;

    // on_sent(instance): a request went to it; the watchdog counts.
    StoreClient(Env& env, std::function<void(Handle)> on_sent)
        : env_(env), on_sent_(std::move(on_sent)) {}

    OpId get(std::string key, Done done);
    OpId put(std::string key,
             Bytes body,
             Condition condition,
             std::string etag,
             WriteId write_id,
             Done done);
    // One request for all of `keys` (one at least, kEraseKeysMax at most), decided or not as a whole.
    OpId erase(std::vector<std::string> keys, Done done);
    OpId list(std::string prefix, std::string after, std::uint32_t limit, Done done);
    OpId probe(Done done);
    // Nobody waits for it any more (0: nothing): it is not sent again, and what becomes of one that was sent is not told.
    void abandon(OpId op);

    // From now on: `known` judges the object at `key` of each instance routed to; `strange(instance, why)` hears of one
    // whose store is another. That one is never used.
    void guard(std::string key,
               std::function<bool(const StoreAnswer&)> known,
               std::function<void(Handle, const std::string&)> strange);

    // False when nobody asked for it (late, doubled or settled): the caller counts it.
    bool answered(StoreAnswer& answer);
    // The instance to use from now on; none while it restarts. What is open at another one stays there until it is
    // answered or that one dies.
    void route(Handle storage);
    void died(Handle storage);

    void tick();
    [[nodiscard]] Time next_deadline() const;
    [[nodiscard]] Handle target() const { return target_; }
    [[nodiscard]] std::size_t open() const { return open_.size(); }

private:
    struct Pending {
        StoreRequest request;
        Done done;
        Handle sent_to;  // invalid: waiting
        Backoff backoff;
        bool abandoned = false;
        bool uncertain =
            false;  // a Put that may have been applied: a refusal decides nothing any more
    };

    OpId submit(StoreRequest request, Done done);
    void send_waiting();
    void forget_flight(Pending& pending);
    void ask_identity();
    void identity_answered(const StoreAnswer& answer);

    Env& env_;
    std::function<void(Handle)> on_sent_;
    Handle target_;
    struct Guard {
        std::string key;
        std::function<bool(const StoreAnswer&)> known;
        std::function<void(Handle, const std::string&)> strange;
        Handle asked;  // invalid: nobody is being asked
        OpId op{};
        Backoff backoff;
    };
    std::optional<Guard> guard_;
    std::map<OpId, Pending> open_;  // ordered: oldest first is the order of replay
    std::deque<OpId> waiting_;
    std::size_t in_flight_ = 0;
    std::size_t backing_off_ = 0;
};

}  // namespace hf::core
