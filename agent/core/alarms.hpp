// When units are to be woken: the bucket's alarm index as this node knows it (protocol 6).
//
// A hint is an empty object named by due time, unit and the alarm's nonce. It is only a hint: what fires is a visit to the
// unit, whose log says whether that alarm is still set. Nothing here deletes a hint; its unit does, after its own entry.
// Of each of the index's shards only the earliest hints are in memory; the rest is listed when those are used up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "agent/core/env.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/store_client.hpp"

namespace hf::core {

struct Hint {
    std::string unit;  // escaped
    std::int64_t due_ms = 0;
    std::uint64_t nonce = 0;
    std::uint32_t attempt = 1;  // of its handler, in this process
};

class Alarms {
public:
    // Visits open at once: a node that was away for long has many overdue, and requests want their turn too.
    static constexpr std::size_t kVisitsMax = 64;
    // Hints of one shard in memory.
    static constexpr std::size_t kWindowMax = 1024;
    // Hints that wait for another try, each some 500 bytes. Beyond it the one that would wait longest goes back to the index,
    // where its part is read again after the longest pause.
    static constexpr std::size_t kLaterMax = 4096;

    enum class End : std::uint8_t {
        Done,     // it ran and is stored, or it was stale
        Refused,  // it did not run: again soon, for ever
        Elsewhere,  // another node holds its unit, and knows of it
        Failed,   // its handler failed: again after 2 s, doubling to 5 min
        Poisoned  // it ended one runtime after the other: again after 5 min
    };

    enum class Visit : std::uint8_t {
        Taken,     // ended() follows, once
        NoRoom,    // not now
        NodeFull,  // not now, nor any other
        NotHere  // a class that is not deployed, another tenant's: the hint stays for whoever has it
    };

    // `visit` is given each hint that is due. `mine`: whether this node looks after a shard of the index, which it shares
    // with others; asked again at each look at the index.
    Alarms(Env& env,
           StoreClient& store,
           std::function<Visit(const Hint&)> visit,
           std::function<bool(std::uint32_t shard)> mine);

    // The store is known: reads the index, and with others on it reads it again from time to time.
    void open();
    // The incarnation is over: nothing is known and nothing fires until open().
    void forget();
    // Nothing fires any more.
    void close() { closed_ = true; }
    // Some classes may be run here now that were not: hints that were passed over for that are read again.
    void classes_changed();
    // A hint that this node has just stored, or deletes.
    void added(Hint hint);
    // One of another node, which gives its unit away and may hold it for a while still: until then it is visited again and
    // again, and not left to that node.
    void handed(Hint hint);
    // One that its unit's log names: it may be in memory already.
    void known(Hint hint) {
        if (open_ && !in_hand(hint)) added(std::move(hint));
    }
    void removed(const Hint& hint);
    void ended(const std::string& unit, std::uint64_t nonce, End end);

    void tick();
    [[nodiscard]] Time next_deadline() const;

    [[nodiscard]] std::size_t visits() const { return visits_.size(); }
    [[nodiscard]] std::size_t waiting() const { return later_.size(); }

private:
    using Name = std::tuple<std::int64_t, std::string, std::uint64_t>;  // as the index sorts
    struct Shard {
        std::map<Name, Hint> hints;
        std::string after;  // the last key listed
        bool more = true;   // the index may hold hints beyond `after` that are not in memory
        bool listing = false;
        bool cut = false;  // since that listing began the window was cut, and `after` stands there
        bool failed = false;  // its listing; asked again at list_again_
        bool passed_over =
            false;  // one of its hints was due and is NotHere; it is in the index still
        bool forgotten = false;  // one of its hints had no room in later_; it is in the index still
        bool afresh = false;     // the next listing begins with the first key
    };

    void sweep();
    void list(std::uint32_t number);
    void listed(std::uint32_t number, StoreAnswer& answer);
    [[nodiscard]] std::string key_of(const Hint& hint) const;
    [[nodiscard]] bool in_hand(const Hint& hint) const;
    void keep(Shard& shard, Hint hint);
    void again(Hint hint, Time at);
    void read_again(bool Shard::*why);
    void start_visit(const Hint& hint);
    [[nodiscard]] Time when(std::int64_t due_ms) const;
    [[nodiscard]] bool may_visit() const {
        return visits_.size() < kVisitsMax && held_until_ <= env_.now;
    }
    void find_soonest();

    Env& env_;
    StoreClient& store_;
    std::function<Visit(const Hint&)> visit_;
    std::function<bool(std::uint32_t shard)> mine_;
    std::array<Shard, kAlarmShards> shards_;
    std::map<std::pair<std::string, std::uint64_t>, Hint> visits_;  // (unit, nonce)
    std::multimap<Time, Hint> later_;                               // to be visited again
    std::set<std::pair<std::string, std::uint64_t>> later_names_;
    std::map<std::pair<std::string, std::uint64_t>, Time> handed_;  // until when
    Time list_again_ = kNever;
    Time sweep_at_ = kNever;
    std::uint64_t life_ = 0;  // counts open(): what was asked in an earlier one is dropped
    Time look_again_ = kNever;  // for what was forgotten
    Time held_until_ = 0;       // no visit before: the node is full
    std::int64_t soonest_ms_ = INT64_MAX;  // due time of the first hint in memory
    bool open_ = false;
    bool closed_ = false;
};

}  // namespace hf::core
