// Log entries as one flatbuffer. A stored object is as untrusted as a message: verified with our own bounds first, and
// what it unfolds to is counted, because a verified buffer may name the same bytes from many places.
#include <cstddef>
#include <string>

#include "abi/base/limits.hpp"
#include "agent/records/encodings.hpp"
#include "agent/records/records.hpp"
#include "log_generated.h"

namespace hf::records {

namespace {

namespace fb = hf::log;  // the schema's namespace

constexpr std::uint16_t kVersion = 1;
// One root, <= 8192 applied sources, and what 32 merged events bring: changes, outbox items and their confirmations.
constexpr unsigned kEntryTablesMax = 16384;
// Alignment of the widest scalar in the schema.
constexpr std::size_t kAlignment = 8;

[[nodiscard]] Error corrupt(const std::string& why) {
    return fail(Code::Corrupt, "log entry: " + why);
}

// Adds up what decoding copies out; false once it is more than a whole entry may have.
class Budget {
public:
    [[nodiscard]] bool take(std::size_t bytes) {
        if (bytes > left_) return false;
        left_ -= bytes;
        return true;
    }

private:
    std::size_t left_ = kEntryBytesMax;
};

[[nodiscard]] bool copy_text(const flatbuffers::String* from, std::string& to, Budget& budget) {
    if (from == nullptr) return true;
    if (!budget.take(from->size())) return false;
    to.assign(from->data(), from->size());
    return true;
}

[[nodiscard]] bool copy_bytes(const flatbuffers::Vector<std::uint8_t>* from,
                              Bytes& to,
                              Budget& budget) {
    if (from == nullptr) return true;
    if (!budget.take(from->size())) return false;
    to.assign(from->begin(), from->end());
    return true;
}

using Marks = std::vector<std::pair<std::string, std::uint64_t>>;
using MarkOffsets = std::vector<flatbuffers::Offset<fb::Applied>>;

[[nodiscard]] bool copy_marks(const flatbuffers::Vector<flatbuffers::Offset<fb::Applied>>* list,
                              Marks& out,
                              Budget& budget) {
    if (list == nullptr) return true;
    for (const auto* one : *list) {
        auto& to = out.emplace_back();
        to.second = one->seq();
        if (!copy_text(one->source(), to.first, budget)) return false;
    }
    return true;
}

[[nodiscard]] MarkOffsets put_marks(flatbuffers::FlatBufferBuilder& builder, const Marks& marks) {
    MarkOffsets out;
    for (const auto& [source, seq] : marks)
        out.push_back(fb::CreateApplied(builder, builder.CreateString(source), seq));
    return out;
}

[[nodiscard]] bool copy_lists(const fb::Entry& entry, core::LogEntry& out, Budget& budget) {
    if (const auto* list = entry.changes())
        for (const auto* blob : *list)
            if (!copy_bytes(blob->data(), out.changes.emplace_back(), budget)) return false;
    if (!copy_marks(entry.applied(), out.applied, budget)) return false;
    if (const auto* list = entry.outbox())
        for (const auto* one : *list) {
            auto& to = out.outbox.emplace_back();
            to.n = one->n();
            if (!copy_text(one->target(), to.target, budget) ||
                !copy_text(one->method(), to.method, budget) ||
                !copy_bytes(one->payload(), to.payload, budget))
                return false;
        }
    if (const auto* list = entry.outbox_done())
        for (const auto* one : *list) {
            auto& to = out.outbox_done.emplace_back();
            to.second = one->n();
            if (!copy_text(one->target(), to.first, budget)) return false;
        }
    return copy_marks(entry.settled(), out.settled, budget);
}

// An empty list is left out, so that it and an absent one give the same bytes.
template <class T>
[[nodiscard]] flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<T>>> put_list(
    flatbuffers::FlatBufferBuilder& builder, const std::vector<flatbuffers::Offset<T>>& items) {
    if (items.empty()) return 0;
    return builder.CreateVector(items);
}

}  // namespace

Bytes encode_entry(const core::LogEntry& entry) {
    std::size_t expected = 512;
    for (const Bytes& change : entry.changes) expected += change.size() + 16;
    for (const auto& item : entry.outbox) expected += item.payload.size() + item.target.size() + 48;
    flatbuffers::FlatBufferBuilder builder(expected);

    std::vector<flatbuffers::Offset<fb::Blob>> changes;
    for (const Bytes& change : entry.changes)
        changes.push_back(fb::CreateBlob(builder, builder.CreateVector(change)));
    const MarkOffsets applied = put_marks(builder, entry.applied);
    std::vector<flatbuffers::Offset<fb::OutboxItem>> outbox;
    for (const core::OutboxItem& item : entry.outbox) {
        const auto target = builder.CreateString(item.target);
        flatbuffers::Offset<flatbuffers::String> method;
        if (!item.method.empty()) method = builder.CreateString(item.method);
        flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> payload;
        if (!item.payload.empty()) payload = builder.CreateVector(item.payload);
        outbox.push_back(fb::CreateOutboxItem(builder, item.n, target, method, payload));
    }
    std::vector<flatbuffers::Offset<fb::OutboxDone>> done;
    for (const auto& [target, n] : entry.outbox_done)
        done.push_back(fb::CreateOutboxDone(builder, builder.CreateString(target), n));
    const MarkOffsets settled = put_marks(builder, entry.settled);

    const auto changes_at = put_list(builder, changes);
    const auto applied_at = put_list(builder, applied);
    const auto outbox_at = put_list(builder, outbox);
    const auto done_at = put_list(builder, done);
    const auto settled_at = put_list(builder, settled);
    const auto unit = builder.CreateString(entry.unit);
    flatbuffers::Offset<flatbuffers::String> sealed_node;
    if (!entry.sealed_node.empty()) sealed_node = builder.CreateString(entry.sealed_node);
    flatbuffers::Offset<fb::EntryAlarm> alarm;
    if (entry.alarm) alarm = fb::CreateEntryAlarm(builder, entry.alarm->due_ms, entry.alarm->nonce);
    const fb::EntryWriteId write_id(entry.write_id.hi, entry.write_id.lo);

    fb::EntryBuilder out(builder);
    out.add_version(entry.version);
    out.add_unit(unit);
    out.add_epoch(entry.epoch);
    out.add_seq(entry.seq);
    if (!entry.write_id.none()) out.add_write_id(&write_id);
    out.add_kind(static_cast<fb::EntryKind>(entry.kind));
    out.add_base_seq(entry.base_seq);
    if (!changes_at.IsNull()) out.add_changes(changes_at);
    if (!alarm.IsNull()) out.add_alarm(alarm);
    out.add_alarm_cleared(entry.alarm_cleared);
    if (!applied_at.IsNull()) out.add_applied(applied_at);
    if (!outbox_at.IsNull()) out.add_outbox(outbox_at);
    if (!done_at.IsNull()) out.add_outbox_done(done_at);
    if (!settled_at.IsNull()) out.add_settled(settled_at);
    out.add_sealed_incarnation(entry.sealed_incarnation);
    if (!sealed_node.IsNull()) out.add_sealed_node(sealed_node);
    fb::FinishEntryBuffer(builder, out.Finish());
    return {builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize()};
}

Result<core::LogEntry> decode_entry(BytesView bytes) {
    if (bytes.size() > kEntryBytesMax)
        return corrupt("is " + std::to_string(bytes.size()) + " bytes long");
    Bytes aligned;
    // SAFETY: only the address is looked at.
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment != 0) {
        aligned.assign(bytes.begin(), bytes.end());
        bytes = aligned;
    }
    flatbuffers::Verifier verifier(bytes.data(), bytes.size(), kVerifyDepthMax, kEntryTablesMax);
    if (!fb::VerifyEntryBuffer(verifier)) return corrupt("does not verify");
    const fb::Entry& entry = *fb::GetEntry(bytes.data());
    if (entry.version() == 0 || entry.version() > kVersion)
        return corrupt("version " + std::to_string(entry.version()) +
                       " is not one this build reads (1)");
    const auto kind = static_cast<std::uint8_t>(entry.kind());
    if (kind > static_cast<std::uint8_t>(core::EntryKind::Seal))
        return corrupt("kind " + std::to_string(kind) + " is unknown");

    core::LogEntry out;
    Budget budget;
    out.version = entry.version();
    out.epoch = entry.epoch();
    out.seq = entry.seq();
    if (const auto* id = entry.write_id()) out.write_id = {id->hi(), id->lo()};
    out.kind = static_cast<core::EntryKind>(kind);
    out.base_seq = entry.base_seq();
    if (const auto* alarm = entry.alarm())
        out.alarm = core::EntryAlarm{alarm->due_ms(), alarm->nonce()};
    out.alarm_cleared = entry.alarm_cleared();
    out.sealed_incarnation = entry.sealed_incarnation();
    if (!copy_text(entry.unit(), out.unit, budget) ||
        !copy_text(entry.sealed_node(), out.sealed_node, budget) || !copy_lists(entry, out, budget))
        return corrupt("unfolds to more than it may carry");
    if (out.unit.empty() || out.unit.size() > kUnitBytesMax) return corrupt("names no unit");
    // Half of such a unit's state lies in objects that are not read here.
    if (entry.entities() != nullptr && entry.entities()->size() != 0)
        return corrupt("is a shard's base, which this node does not load");
    return out;
}

}  // namespace hf::records
