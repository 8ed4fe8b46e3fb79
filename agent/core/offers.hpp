// Offers that stand until their receiver has applied them: one at a time for each key, in line while as many are open as may
// be, and again after a pause when there was no room or the handler failed. What a key stands for and what is offered is its
// owner's business: the journal offers the first request of each actor, a unit its first message to each receiver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/env.hpp"
#include "agent/core/handler_pause.hpp"

namespace hf::core {

enum class Offered : std::uint8_t {
    Taken,    // ended() follows, once; maybe before this is returned
    NoRoom,   // not now
    NotHere,  // no such class for now: again after 5 min, or when classes change
    Nothing   // there is nothing to be offered any more: it is forgotten
};
enum class OfferEnd : std::uint8_t {
    Applied,  // and stored; or given up for good: it is forgotten
    Refused,  // it did not run: again soon, for ever
    Failed,   // its handler failed: again after 2 s, doubling to 5 min
    Poisoned  // it ended one runtime after the other: again after 5 min, and less often
};

// How often an offer was made in vain.
struct Chance {
    bool last = false;       // the handler that fails now has had its chance
    bool last_look = false;  // it was NotHere for an hour
};

template <class Key>
class Offers {
public:
    using Make = std::function<Offered(const Key& key, const Chance& chance)>;

    // `open_max`: offers open at once.
    Offers(Env& env, std::size_t open_max, Make make)
        : env_(env), open_max_(open_max), make_(std::move(make)) {}

    // In line, unless it is known already.
    void add(const Key& key) {
        if (offers_.try_emplace(key).second) line_.push_back(key);
    }
    [[nodiscard]] bool contains(const Key& key) const { return offers_.contains(key); }
    [[nodiscard]] bool is_open(const Key& key) const {
        const auto at = offers_.find(key);
        return at != offers_.end() && at->second.state == State::Open;
    }
    // Nobody hears of the end of one that is open.
    void forget(const Key& key) {
        if (is_open(key)) --open_;
        offers_.erase(key);
    }
    void ended(const Key& key, OfferEnd end) {
        const auto at = offers_.find(key);
        HF_CHECK(at != offers_.end() && at->second.state == State::Open,
                 "an offer ends once, and only when it was made");
        --open_;
        if (end == OfferEnd::Applied) {
            offers_.erase(at);
        } else if (end == OfferEnd::Poisoned) {
            at->second.tries += kPoisonTries;
            again(*at, kHandlerPauseMost);
        } else {
            again(*at, end == OfferEnd::Failed ? handler_pause(at->second.tries++) : kNoRoomAgain);
        }
    }

    // Makes those that are in line. Called from within an offer it does nothing: the call that made that one goes on.
    void run() {
        if (std::exchange(running_, true)) return;
        while (open_ < open_max_ && !line_.empty()) {
            const Key key = std::move(line_.front());
            line_.pop_front();
            const auto at = offers_.find(key);
            if (at == offers_.end() || at->second.state != State::InLine) continue;
            at->second.state = State::Open;
            at->second.homeless = false;
            ++open_;
            const Chance chance{at->second.tries + 1 >= kHandlerTriesMax,
                                at->second.misses >= kMissesMax};
            made(key, make_(key, chance));
        }
        running_ = false;
    }
    // Those whose pause is over are in line.
    void tick() {
        while (!pauses_.empty() && pauses_.begin()->first <= env_.now) {
            const Key key = std::move(pauses_.begin()->second);
            pauses_.erase(pauses_.begin());
            const auto at = offers_.find(key);
            if (at != offers_.end() && at->second.state == State::Pausing &&
                at->second.until <= env_.now)
                line_up(*at);
        }
    }
    [[nodiscard]] Time next_deadline() const {
        return pauses_.empty() ? kNever : pauses_.begin()->first;
    }
    void classes_changed() {
        for (auto& offer : offers_)
            if (offer.second.state == State::Pausing && offer.second.homeless) line_up(offer);
    }

private:
    static constexpr unsigned kMissesMax = 12;  // at 5 min each, an hour
    enum class State : std::uint8_t { InLine, Open, Pausing };
    struct Offer {
        State state = State::InLine;
        unsigned tries = 0;     // handlers that failed
        unsigned misses = 0;    // times that it was NotHere
        bool homeless = false;  // NotHere, when it was made last
        Time until = 0;         // Pausing
    };
    using Known = std::map<Key, Offer>;

    void made(const Key& key, Offered how) {
        const auto at = offers_.find(key);
        if (how == Offered::Taken || at == offers_.end()) return;
        HF_CHECK(at->second.state == State::Open, "what was not taken did not end");
        if (how == Offered::NoRoom) return ended(key, OfferEnd::Refused);
        if (how == Offered::Nothing) return forget(key);
        --open_;
        at->second.homeless = true;
        if (at->second.misses < kMissesMax) ++at->second.misses;
        again(*at, kHandlerPauseMost);
    }
    void again(typename Known::value_type& offer, Time pause) {
        offer.second.state = State::Pausing;
        offer.second.until = env_.now + pause;
        pauses_.emplace(offer.second.until, offer.first);
    }
    void line_up(typename Known::value_type& offer) {
        offer.second.state = State::InLine;
        line_.push_back(offer.first);
    }

    Env& env_;
    std::size_t open_max_;
    Make make_;
    Known offers_;
    // Both may name what was forgotten or has moved on, which is passed over when its turn comes.
    std::deque<Key> line_;
    std::multimap<Time, Key> pauses_;
    std::size_t open_ = 0;
    bool running_ = false;
};

}  // namespace hf::core
