// Judges each write and delete at the moment it reaches the bucket, and each write a core asks for.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "agent/core/actions.hpp"
#include "agent/core/events.hpp"
#include "agent/core/fold.hpp"
#include "agent/core/keys.hpp"
#include "tests/sim/bucket.hpp"
#include "tests/sim/history.hpp"
#include "tests/sim/node_watch.hpp"

namespace hf::sim {

class LogWatch {
public:
    LogWatch(Bucket& bucket, const core::Codec& codec, History& history, NodeWatch& nodes);

    // A core sends a write: one log entry of a unit is undecided at a time; sent again it is the same write.
    void asked(std::size_t node, const core::StoreRequest& request);
    // Answers the unit whose hold the node has from now on; empty: none.
    std::string told(std::size_t node, const core::StoreAnswer& answer);
    // A new core knows nothing of what the one before had open.
    void new_life(std::size_t node) { of_nodes_[node] = {}; }
    // What it had open is left to land or not; its units begin with another epoch.
    void new_incarnation(std::size_t node) { of_nodes_[node].open_commit.clear(); }

    [[nodiscard]] bool commit_open(std::size_t node, const std::string& unit) const {
        const auto of = of_nodes_.find(node);
        return of != of_nodes_.end() && of->second.open_commit.contains(unit);
    }
    // Any write ever, of a log entry or of anything else.
    [[nodiscard]] bool write_failed() const { return write_failed_; }
    // Holds that went from one node to another; for the summary.
    [[nodiscard]] std::uint64_t taken() const { return taken_; }

private:
    void written(const std::string& key, const Object& object, std::size_t by);
    void deleted(const std::string& key, const Object& was);
    void entry_written(const std::string& unit, const Object& object);
    void hold_written(const std::string& key, const Object& object);

    void hints_before(const std::string& name, const core::LogEntry& entry);
    [[nodiscard]] bool hinted(const std::string& unit) const;
    void hint_deleted(const core::AlarmKey& key) const;

    const Bucket& bucket_;
    const core::Codec& codec_;
    History& history_;
    NodeWatch& nodes_;
    struct Write {
        core::StoreRequest request;
        std::string unit;  // of a log entry
        bool uncertain = false;
    };
    struct OfNode {
        std::map<core::OpId, Write> writes;
        std::map<std::string, core::OpId> open_commit;
    };
    std::map<std::size_t, OfNode> of_nodes_;
    std::map<std::string, std::map<std::uint64_t, std::uint64_t>> seals_;  // unit -> epoch -> seq
    std::map<std::string, std::set<std::uint64_t>> bases_;
    std::map<std::string, core::Fold> folds_;        // of all entries written
    std::map<std::string, core::HoldRecord> holds_;  // by key, as they stand
    bool write_failed_ = false;
    std::uint64_t taken_ = 0;
};

}  // namespace hf::sim
