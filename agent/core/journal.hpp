// The node's own stream of requests that were accepted for later (protocol 7): each is in the journal before its client hears
// 202, is offered to its actor until that has applied it, one at a time for each actor and in order of acceptance, and leaves
// the journal then.
//
// The journal itself is outside of the core (agent/store); what it holds is in memory here too, within the bounds of
// Limits::journal_events and journal_bytes. The stream's name survives restarts, its numbers rise for ever: the actor's own log
// marks the last one applied, so that one which is offered again after a crash does nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/env.hpp"
#include "agent/core/events.hpp"
#include "agent/core/offers.hpp"

namespace hf::core {

class Journal {
public:
    // Offers open at once: a node that starts with a full journal has requests to serve, too.
    static constexpr std::size_t kOffersMax = 256;

    struct Hooks {
        // As Offers::Make; NotHere keeps the request, however long. `last`: see Chance.
        std::function<Offered(const JournalItem& item, bool last)> offer;
        std::function<void(ReplyOut reply)> reply;
        // `n` has left the journal and nothing is left in it for that actor: its mark need not be kept.
        std::function<void(const JournalItem& item)> settled;
    };
    struct Waiter {
        Handle gateway;
        std::uint64_t req_id = 0;
        Time deadline = 0;
    };
    struct Depth {
        std::size_t waiting = 0;
        std::int64_t oldest_ms = 0;  // Unix ms when its oldest was accepted; 0: none
    };

    Journal(Env& env, Hooks hooks);

    // What the daemon found; before the node starts. Without it, nothing can be accepted for later.
    void loaded(JournalLoaded event);
    // Actors may be asked from now on.
    void open();
    // Nothing is accepted and offered any more.
    void close();

    // Why not; nothing: the answer follows, 202 when it is in the journal.
    [[nodiscard]] std::optional<Refusal> accept(const Waiter& waiter, JournalItem item);
    void appended(const JournalAppended& event);
    void removed(const JournalRemoved& event);
    // The offer of item `n` to `target` (class/name) is over.
    void ended(const std::string& target, std::uint64_t n, OfferEnd end);
    // Some may be deployed now that were not.
    void classes_changed();

    void tick();
    [[nodiscard]] Time next_deadline() const;

    // As actors' marks name it.
    [[nodiscard]] const std::string& source() const { return source_; }
    [[nodiscard]] std::size_t size() const { return items_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }
    // Requests that are on their way into the journal.
    [[nodiscard]] bool quiet() const { return appends_.empty(); }
    [[nodiscard]] Depth depth(const std::string& target) const;
    [[nodiscard]] Depth depth() const;

private:
    using Line = std::deque<JournalItem>;  // of one target: the front is offered, or will be
    struct Append {
        Waiter waiter;
        JournalItem item;
        bool answered = false;  // its deadline came first
    };

    void add(JournalItem item);
    [[nodiscard]] Offered offer_first(const std::string& name, bool last);
    void offer_some();
    void answer(const Append& append, ReplyReason reason, std::string text);
    void flush();

    Env& env_;
    Hooks hooks_;
    std::string source_;
    std::uint64_t next_ = 1;
    std::map<std::string, Line> targets_;
    Offers<std::string> offers_;                               // by target
    std::set<std::pair<std::int64_t, std::uint64_t>> fronts_;  // when accepted, and number
    std::map<OpId, Append> appends_;
    std::map<std::string, std::size_t> appending_;  // of them, by target
    std::set<std::pair<Time, OpId>> deadlines_;     // of appends without an answer
    std::vector<JournalItem> done_;                 // to be removed; their events are gone
    std::map<OpId, std::vector<JournalItem>> removals_;
    Time flush_at_ = kNever;
    bool removal_failed_ = false;  // the last one: the next comes at flush_at_, however many gather
    std::size_t items_ = 0;
    std::size_t bytes_ = 0;
    bool loaded_ = false;
    bool open_ = false;
    bool closed_ = false;
};

}  // namespace hf::core
