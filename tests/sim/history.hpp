// What clients asked and heard, and the rules that must hold between that, the bucket and time. Checks at once what can
// be seen at once, and the rest when the run is over.
//
// An answer is a promise: OK = the add is stored and stays; 503 (busy, unavailable) and the actor's own failures = it is
// not in the state and never will be; 504 or none = at most once.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "agent/core/actions.hpp"
#include "tests/sim/payload.hpp"
#include "tests/sim/reader.hpp"

namespace hf::sim {

struct GatewayName {
    std::size_t node = 0;
    std::uint64_t life = 0;  // of the node
    std::uint64_t generation = 0;
    friend auto operator<=>(const GatewayName&, const GatewayName&) = default;
};

struct Asked {
    std::uint64_t id = 0;
    std::string unit;  // escaped
    Op op = Op::Add;
    std::string target;  // unit of a message or call
    GatewayName gateway;
    std::uint64_t req_id = 0;
    core::Time sent = 0;  // both by its node's clock
    core::Time deadline = 0;
    bool answered = false;
    bool orphaned = false;  // its gateway or the whole node died first
    bool final_read = false;
    bool later = false;  // the client is content with 202
    core::ReplyReason reason = core::ReplyReason::Internal;
    ReplyPayload reply;
    core::Time answered_at = 0;
    std::uint64_t floor = 0;  // highest value answered for the unit before this was sent
    // To another node, at most once: what became of that.
    enum class Passed : std::uint8_t { Not, Open, NotSent, Unknown, Answered } passed = Passed::Not;
};

// Whether an answer comes in time is judged by the clock of the node that gives it.
struct AnswerTime {
    core::Time now = 0;
    core::Time held_since =
        core::kNever;      // the node was held up from then to now, and could not answer
    core::Time grain = 0;  // that clock's
};

class History {
public:
    // `several`: nodes, between which requests are passed on.
    explicit History(bool several) : several_(several) {}

    // Answers the id it got.
    std::uint64_t asked(Asked request);
    void answered(GatewayName gateway, const core::ReplyOut& reply, const AnswerTime& time);
    // Everything open there gets no answer any more.
    void orphan(GatewayName gateway);
    void orphan_life(std::size_t node, std::uint64_t life);

    // `node` asks another to see to request k.
    void passing_on(std::uint64_t k, std::size_t node);
    void passed_on(std::uint64_t k, Asked::Passed how);

    // Request k's event waits for a call, with `ids` as its unit's state: all of them are stored when the call arrives.
    void call_asked(std::uint64_t k, std::vector<std::uint64_t> ids);
    void call_arrived(std::uint64_t k) const;
    // It brought back a value: one that is stored.
    void call_read(std::uint64_t k, BytesView reply) const;
    void set_alarm(std::uint64_t k, std::int64_t due_ms) { alarms_[k] = due_ms; }
    [[nodiscard]] bool sets_alarm(std::uint64_t id) const;
    [[nodiscard]] std::int64_t alarm_due(std::uint64_t k) const { return alarms_.at(k); }

    // A Stop of this unit runs; answers the id it adds.
    std::uint64_t stopping(const std::string& unit);
    // The unit has left memory after its Stop, whose add stays from here on; false: it is not stored.
    [[nodiscard]] bool left(const std::string& unit, std::uint64_t id);

    // A log entry with this add was written to the bucket.
    void stored(const std::string& unit, std::uint64_t id) { stored_[unit].insert(id); }

    // A node's journal: request `id` is in it, under number n; it leaves it; it was given up.
    void journalled(std::uint64_t id, std::size_t node, std::uint64_t n);
    void unjournalled(std::uint64_t id) const;
    void buried(std::uint64_t id) { buried_.insert(id); }

    // A core delivers request `id`: not after its answer, on one node only, and under the same event id each time.
    void delivering(std::uint64_t id,
                    std::size_t node,
                    std::uint64_t incarnation,
                    std::uint64_t counter,
                    unsigned attempt);

    [[nodiscard]] const Asked& request(std::uint64_t id) const { return asked_.at(id - 1); }
    [[nodiscard]] std::size_t open() const { return open_; }
    [[nodiscard]] const std::vector<Asked>& all() const { return asked_; }
    [[nodiscard]] std::set<std::string> units() const;

    // Against the unit's final state, read from the bucket.
    void check_unit(const std::string& unit, const UnitState& state) const;
    // Messages and alarms, when all units' final states are known. `settled`: each has had the time to come.
    void check_consequences(const std::map<std::string, UnitState>& states, bool settled) const;

private:
    struct Delivery {
        std::size_t node = 0;
        std::uint64_t incarnation = 0;
        std::uint64_t counter = 0;
        unsigned attempt = 0;
    };
    void check_ok(const Asked& request);
    void check_later(const std::map<std::string, UnitState>& states) const;
    [[nodiscard]] bool belongs(const std::string& unit, std::uint64_t id) const;

    bool several_;
    std::vector<Asked> asked_;  // by id - 1
    std::map<std::pair<GatewayName, std::uint64_t>, std::uint64_t> by_req_;
    std::map<std::string, std::set<std::uint64_t>> stored_;
    std::map<std::string, std::uint64_t> highest_;   // value answered OK, by unit
    std::map<std::string, std::uint64_t> last_add_;  // value of the last add answered OK
    std::map<std::uint64_t, Delivery> deliveries_;
    std::map<std::uint64_t, std::vector<std::uint64_t>> asked_calls_;
    std::map<std::uint64_t, std::pair<std::size_t, std::uint64_t>>
        journalled_;  // node, number; by request
    std::set<std::uint64_t> buried_;
    std::map<std::uint64_t, std::int64_t> alarms_;  // due, by the request that set it
    std::vector<std::string> stops_;                // units, in the order of their Stops
    std::map<std::string, std::set<std::uint64_t>> stops_kept_;
    std::size_t open_ = 0;
};

[[nodiscard]] const char* reason_name(core::ReplyReason reason);

}  // namespace hf::sim
