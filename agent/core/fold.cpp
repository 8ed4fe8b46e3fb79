#include "agent/core/fold.hpp"

#include <algorithm>
#include <iterator>

namespace hf::core {

namespace {
// Table, offsets and padding of one list item in an encoded entry.
constexpr std::size_t kItemOverhead = 64;
}  // namespace

std::size_t outbox_cost(const std::string& target,
                        const std::string& method,
                        const Bytes& payload) {
    return target.size() + method.size() + payload.size() + kItemOverhead;
}

bool Fold::forget_mark(const std::string& source, std::uint64_t n) {
    const auto mark = applied.find(source);
    if (mark == applied.end() || mark->second != n) return false;
    applied.erase(mark);
    return true;
}

void Fold::take(const std::string& target, std::uint64_t n) {
    const auto at = outbox.find({target, n});
    if (at == outbox.end()) return;
    outbox_bytes -= outbox_cost(target, at->second.method, at->second.payload);
    outbox.erase(at);
}

void Fold::add(LogEntry& entry) {
    if (entry.kind == EntryKind::Base) *this = {};
    if (entry.alarm_cleared) alarm.reset();
    if (entry.alarm) alarm = entry.alarm;
    for (const auto& [source, n] : entry.applied) {
        std::uint64_t& mark = applied[source];
        mark = std::max(mark, n);
    }
    for (const auto& [source, n] : entry.settled) forget_mark(source, n);
    for (OutboxItem& item : entry.outbox) {
        take(item.target, item.n);
        outbox_bytes += outbox_cost(item.target, item.method, item.payload);
        auto name = std::pair(item.target, item.n);
        outbox.emplace(std::move(name), std::move(item));
    }
    entry.outbox.clear();
    for (const auto& [target, n] : entry.outbox_done) take(target, n);
}

void Fold::give(LogEntry& base) const {
    base.alarm = alarm;
    base.applied.assign(applied.begin(), applied.end());
    base.outbox.clear();
    for (const auto& [name, item] : outbox) base.outbox.push_back(item);
}

std::size_t mark_cost(const std::string& source) {
    return source.size() + kItemOverhead;
}

std::size_t entry_cost(const LogEntry& entry) {
    std::size_t bytes = 0;
    for (const Bytes& changes : entry.changes) bytes += changes.size();
    for (const auto& [source, n] : entry.applied) bytes += mark_cost(source);
    for (const auto& [source, n] : entry.settled) bytes += mark_cost(source);
    for (const OutboxItem& item : entry.outbox)
        bytes += outbox_cost(item.target, item.method, item.payload);
    for (const auto& [target, n] : entry.outbox_done) bytes += target.size() + kItemOverhead;
    return bytes;
}

void merge_entry(LogEntry& entry, LogEntry part) {
    std::move(part.changes.begin(), part.changes.end(), std::back_inserter(entry.changes));
    if (part.alarm || part.alarm_cleared) {
        entry.alarm = part.alarm;
        entry.alarm_cleared = part.alarm_cleared;
    }
    std::move(part.applied.begin(), part.applied.end(), std::back_inserter(entry.applied));
    std::move(part.outbox.begin(), part.outbox.end(), std::back_inserter(entry.outbox));
    std::move(
        part.outbox_done.begin(), part.outbox_done.end(), std::back_inserter(entry.outbox_done));
}

}  // namespace hf::core
