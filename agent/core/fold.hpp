// What a unit's stored log says besides its state: the alarm, the marks of messages applied, the messages not yet done.
// Plain data; the rules are protocol 5 to 7.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "agent/core/records.hpp"

namespace hf::core {

struct Fold {
    std::optional<EntryAlarm> alarm;
    std::map<std::string, std::uint64_t> applied;                        // source -> highest n
    std::map<std::pair<std::string, std::uint64_t>, OutboxItem> outbox;  // (target, n)
    std::size_t outbox_bytes = 0;                                        // outbox_cost() of all

    // The next entry of the log; its outbox moves out of it.
    void add(LogEntry& entry);
    // What a base carries besides the state.
    void give(LogEntry& base) const;
    // Nobody will ask any more whether `n` of that source was applied. False: the mark is another one, and stays.
    bool forget_mark(const std::string& source, std::uint64_t n);

private:
    void take(const std::string& target, std::uint64_t n);
};

// What a mark and a message take of an entry: their bytes and a table.
[[nodiscard]] std::size_t mark_cost(const std::string& source);
[[nodiscard]] std::size_t outbox_cost(const std::string& target,
                                      const std::string& method,
                                      const Bytes& payload);

// What an entry takes of its byte bound: payloads, names, and a table for each.
[[nodiscard]] std::size_t entry_cost(const LogEntry& entry);
// Adds a later event's part to an entry that is not sent yet: the later alarm counts, the rest adds up.
void merge_entry(LogEntry& entry, LogEntry part);

}  // namespace hf::core
