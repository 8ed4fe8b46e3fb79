// Judges each write and delete at the moment it reaches the bucket, and each write the core asks for.
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

namespace hf::sim {

class LogWatch {
public:
    LogWatch(Bucket& bucket, const core::Codec& codec, History& history, std::string node_id);

    // The core sends a write: one log entry of a unit is undecided at a time; sent again it is the same write.
    void asked(const core::StoreRequest& request);
    void told(const core::StoreAnswer& answer);
    // A new core knows nothing of what the one before had open.
    void new_life() {
        writes_.clear();
        open_commit_.clear();
        started_ = 0;
    }

    [[nodiscard]] bool commit_open(const std::string& unit) const {
        return open_commit_.contains(unit);
    }
    // Any write ever, of a log entry or of anything else.
    [[nodiscard]] bool write_failed() const { return write_failed_; }

private:
    void written(const std::string& key, const Object& object);
    void deleted(const std::string& key, const Object& was);
    void entry_written(const std::string& unit, const Object& object);
    void hold_written(const std::string& key, const Object& object);

    void hints_before(const std::string& name, const core::LogEntry& entry);
    [[nodiscard]] bool hinted(const std::string& unit) const;
    void hint_deleted(const core::AlarmKey& key) const;

    const Bucket& bucket_;
    const core::Codec& codec_;
    History& history_;
    std::string node_key_;
    struct Write {
        core::StoreRequest request;
        std::string unit;  // of a log entry
        bool uncertain = false;
    };
    std::map<core::OpId, Write> writes_;
    std::map<std::string, core::OpId> open_commit_;
    std::map<std::string, std::map<std::uint64_t, std::uint64_t>> seals_;  // unit -> epoch -> seq
    std::map<std::string, std::set<std::uint64_t>> bases_;
    std::map<std::string, core::Fold> folds_;  // of all entries written
    std::map<std::string, std::uint64_t> hold_epochs_;
    std::uint64_t reaped_ = 0;
    bool write_failed_ = false;
    unsigned started_ = 0;  // incarnations published in this life
};

}  // namespace hf::sim
