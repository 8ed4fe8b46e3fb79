// Judges what becomes of nodes' records and of the leases on them: who may write which change and when, and until when a
// node may act. It goes by what the bucket holds and by true time, not by what a core believes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"
#include "agent/core/types.hpp"
#include "tests/sim/bucket.hpp"

namespace hf::sim {

using core::Time;

class NodeWatch {
public:
    // `now`: true time. Clocks run at most kDriftPpm fast or slow.
    NodeWatch(const core::Codec& codec, core::LeaseSpec lease, std::function<Time()> now)
        : codec_(codec), lease_(lease), now_(std::move(now)) {}
    static constexpr std::int64_t kDriftPpm = 10'000;

    // Which node has this number.
    void introduce(std::size_t number, std::string id, std::string instance);
    // It starts, and knows nothing of what was before.
    void new_life(std::size_t node);

    // Its core asks for a write, at `boot` by its own clock that counts suspends; hears what became of it.
    void asked(std::size_t node, const core::StoreRequest& request, Time boot);
    // True: from here on it is another incarnation.
    bool told(std::size_t node, const core::StoreAnswer& answer);
    // Ends the run when it may do `what` no more.
    void must_hold_lease(std::size_t node, Time boot, const std::string& what) const;
    [[nodiscard]] bool holds_lease(std::size_t node, Time boot) const;

    void written(const std::string& key, const Object& object, std::size_t by);
    // As the bucket has it; nullptr: it never was.
    [[nodiscard]] const core::NodeRecord* record(const std::string& id) const;
    // Nobody acts as this incarnation of it any more, and whoever reads the bucket can know.
    [[nodiscard]] bool gone(const std::string& id, std::uint64_t incarnation) const;
    // Its record names another instance: it may not run.
    [[nodiscard]] bool displaced(std::size_t node) const;

    // For the summary: leases that others ended, and incarnations after the first of a life.
    [[nodiscard]] std::uint64_t fenced() const { return fenced_; }
    [[nodiscard]] std::uint64_t lapsed() const { return lapsed_; }

private:
    struct Put {
        core::NodeRecord record;
        Time boot = 0;  // when it was sent first
    };
    struct Known {
        std::string id;
        std::string instance;
        std::map<core::OpId, Put> puts;                         // of its record, undecided
        std::set<std::pair<std::uint64_t, std::uint64_t>> own;  // writes of its record in this life
        std::uint64_t incarnation = 0;                          // as it has heard
        bool leased = false;
        Time until = 0;           // by its own clock that counts suspends
        std::uint64_t first = 0;  // incarnation of this life, 0: none yet
    };
    struct Stored {
        core::NodeRecord record;
        Time since = 0;
    };
    void by_itself(Known& node,
                   const Stored& before,
                   const core::NodeRecord& is,
                   core::WriteId write);
    void by_another(const Known& node, const Stored& was, const core::NodeRecord& is);

    void must_have_stood(const Stored& record, const std::string& what) const;

    const core::Codec& codec_;
    core::LeaseSpec lease_;
    std::function<Time()> now_;
    std::vector<Known> nodes_;
    std::map<std::string, Stored> records_;
    std::uint64_t fenced_ = 0;
    std::uint64_t lapsed_ = 0;
};

}  // namespace hf::sim
