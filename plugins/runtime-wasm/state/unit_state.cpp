#include "plugins/runtime-wasm/state/unit_state.hpp"

#include <algorithm>
#include <iterator>

#include "changes_generated.h"

namespace hf::wasm {

namespace {

// The least a pair takes in a stored entry: what has more tables than its bytes can hold is no ChangeSet.
constexpr std::size_t kPairBytesMin = 12;
// A fold can pass the class's limit for a moment (a value replaced in parts); this only keeps nonsense out.
constexpr std::size_t kFoldBytesMax = kStateBytesMax + 16 * kPayloadBytesMax;

std::size_t cost(std::string_view key, std::size_t value_bytes) {
    return key.size() + value_bytes + kPairOverheadBytes;
}

using Offsets = std::vector<flatbuffers::Offset<log::Pair>>;

void add_pair(flatbuffers::FlatBufferBuilder& fbb,
              Offsets& out,
              std::string_view key,
              const std::string* value) {
    const BytesView key_bytes = as_bytes(key);
    const auto key_at = fbb.CreateVector(key_bytes.data(), key_bytes.size());
    flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> value_at;
    if (value != nullptr) value_at = fbb.CreateVector(as_bytes(*value).data(), value->size());
    out.push_back(log::CreatePair(fbb, key_at, value_at));
}

Bytes finish(flatbuffers::FlatBufferBuilder& fbb, const Offsets& pairs) {
    fbb.Finish(log::CreateChangeSet(fbb, fbb.CreateVector(pairs)));
    return {fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize()};
}

}  // namespace

std::string LimitHit::sentence() const {
    return std::string("limit ") + name + ": " + std::to_string(allowed) + " allowed, " +
           std::to_string(asked) + " asked for";
}

UnitState::UnitState(std::uint32_t state_max)
    : state_max_(
          std::min<std::size_t>(state_max == 0 ? kPayloadBytesMax : state_max, kStateBytesMax) -
          kChangeSetHeadBytes) {}

Result<void> UnitState::fold(BytesView change_set, bool base) {
    const auto pairs_max = static_cast<flatbuffers::uoffset_t>(
        std::min(change_set.size(), kObjectBytesMax) / kPairBytesMin + 1);
    flatbuffers::Verifier verifier(
        change_set.data(), change_set.size(), kVerifyDepthMax, pairs_max);
    if (!verifier.VerifyBuffer<log::ChangeSet>(nullptr))
        return fail(
            Code::Corrupt,
            "a stored entry of " + std::to_string(change_set.size()) + " bytes is not a ChangeSet");
    if (base) {
        pairs_.clear();
        bytes_ = 0;
    }
    const auto* pairs = flatbuffers::GetRoot<log::ChangeSet>(change_set.data())->pairs();
    if (pairs == nullptr) return {};
    for (const log::Pair* pair : *pairs) {
        const std::string_view key = as_text({pair->key()->data(), pair->key()->size()});
        if (key.empty() || key.size() > kKeyBytesMax)
            return fail(Code::Corrupt,
                        "a stored entry has a key of " + std::to_string(key.size()) + " bytes");
        auto at = pairs_.find(key);
        if (at != pairs_.end()) bytes_ -= cost(key, at->second.bytes.size());
        if (pair->value() == nullptr) {
            if (at != pairs_.end()) pairs_.erase(at);
            continue;
        }
        if (at == pairs_.end()) at = pairs_.emplace(key, StoredValue{}).first;
        at->second.bytes = as_text({pair->value()->data(), pair->value()->size()});
        bytes_ += cost(key, at->second.bytes.size());
        if (bytes_ > kFoldBytesMax)
            return fail(Code::Corrupt,
                        "the stored state is above " + std::to_string(kFoldBytesMax) + " bytes");
    }
    return {};
}

void UnitState::begin() {
    ++event_;
    undo_.clear();
    change_bytes_ = 0;
    bytes_before_ = bytes_;
}

std::optional<BytesView> UnitState::get(std::string_view key) const {
    const auto at = pairs_.find(key);
    if (at == pairs_.end() || !at->second.present) return std::nullopt;
    return as_bytes(at->second.bytes);
}

void Walk::begin(std::string_view prefix, std::string_view start, bool descending) {
    prefix_.assign(prefix);
    start_.assign(start);
    descending_ = descending;
    begun_ = false;
}

// Behind the last key that a descending walk may begin with.
UnitState::Pairs::const_iterator UnitState::first_below(const Walk& walk) const {
    if (!walk.start_.empty() && walk.start_.starts_with(walk.prefix_))
        return pairs_.upper_bound(walk.start_);
    if (!walk.start_.empty() && walk.start_ < walk.prefix_) return pairs_.lower_bound(walk.start_);
    // The least text above every key with the prefix.
    std::string above = walk.prefix_;
    while (!above.empty() && static_cast<unsigned char>(above.back()) == 0xff) above.pop_back();
    if (above.empty()) return pairs_.end();
    above.back() = static_cast<char>(static_cast<unsigned char>(above.back()) + 1);
    return pairs_.lower_bound(above);
}

std::optional<UnitState::Pair> UnitState::next(Walk& walk) const {
    const auto pair_at = [&walk](Pairs::const_iterator at) -> std::optional<Pair> {
        if (!at->first.starts_with(walk.prefix_)) return std::nullopt;
        walk.found_ = at;
        return Pair{at->first, as_bytes(at->second.bytes)};
    };
    if (walk.descending_) {
        for (auto at = walk.begun_ ? walk.last_ : first_below(walk); at != pairs_.begin();)
            if ((--at)->second.present) return pair_at(at);
        return std::nullopt;
    }
    auto at = walk.begun_ ? std::next(walk.last_)
                          : pairs_.lower_bound(std::max(walk.prefix_, walk.start_));
    while (at != pairs_.end() && !at->second.present) ++at;
    if (at == pairs_.end()) return std::nullopt;
    return pair_at(at);
}

UnitState::Undo* UnitState::touch(Pairs::iterator at) {
    if (at->second.touched == event_) return nullptr;
    at->second.touched = event_;
    return &undo_.emplace_back(Undo{at, {}, at->second.present});
}

LimitHit UnitState::put(std::string_view key, BytesView value, ChangesRoom room) {
    if (value.size() > kPayloadBytesMax) return {"value_bytes", kPayloadBytesMax, value.size()};
    auto at = pairs_.find(key);
    const bool there = at != pairs_.end() && at->second.present;
    const bool touched = at != pairs_.end() && at->second.touched == event_;

    const std::size_t old_cost = there ? cost(key, at->second.bytes.size()) : 0;
    const std::size_t new_cost = cost(key, value.size());
    const std::size_t state_after = bytes_ - old_cost + new_cost;
    // A state above its limit (the limit was lowered) may still shrink.
    if (state_after > state_max_ && new_cost > old_cost)
        return {"state_max", state_max_ + kChangeSetHeadBytes, state_after + kChangeSetHeadBytes};
    // What this key already takes among the changes: its value, or the bare key of a delete.
    const std::size_t already = touched ? cost(key, there ? at->second.bytes.size() : 0) : 0;
    const std::size_t changes_after = kChangeSetHeadBytes + change_bytes_ - already + new_cost;
    if (changes_after > room.bytes) return {room.limit, room.bytes, changes_after};

    if (at == pairs_.end()) {
        at = pairs_.emplace(key, StoredValue{{}, 0, false}).first;
    }
    if (Undo* undo = touch(at)) undo->before = std::move(at->second.bytes);
    at->second.bytes = as_text(value);
    at->second.present = true;
    bytes_ = state_after;
    change_bytes_ = change_bytes_ - already + new_cost;
    return {};
}

bool UnitState::remove(std::string_view key) {
    const auto at = pairs_.find(key);
    if (at == pairs_.end() || !at->second.present) return false;
    const std::size_t old_cost = cost(key, at->second.bytes.size());
    bytes_ -= old_cost;
    if (Undo* undo = touch(at))
        undo->before = std::move(at->second.bytes);
    else
        change_bytes_ -= old_cost;
    change_bytes_ += cost(key, 0);
    at->second.bytes.clear();
    at->second.present = false;
    return true;
}

Bytes UnitState::encode_changes() const {
    flatbuffers::FlatBufferBuilder fbb(change_bytes() + 256);
    Offsets pairs;
    pairs.reserve(undo_.size());
    for (const Undo& undo : undo_)
        add_pair(
            fbb, pairs, undo.at->first, undo.at->second.present ? &undo.at->second.bytes : nullptr);
    return finish(fbb, pairs);
}

void UnitState::commit() {
    for (const Undo& undo : undo_)
        if (!undo.at->second.present) pairs_.erase(undo.at);
    undo_.clear();
    change_bytes_ = 0;
}

void UnitState::rollback() {
    for (Undo& undo : undo_) {
        if (undo.was_present) {
            undo.at->second.bytes = std::move(undo.before);
            undo.at->second.present = true;
        } else {
            pairs_.erase(undo.at);
        }
    }
    undo_.clear();
    change_bytes_ = 0;
    bytes_ = bytes_before_;
}

Bytes UnitState::encode_all() const {
    flatbuffers::FlatBufferBuilder fbb(bytes_ + 256);
    Offsets pairs;
    pairs.reserve(pairs_.size());
    for (const auto& [key, value] : pairs_) add_pair(fbb, pairs, key, &value.bytes);
    return finish(fbb, pairs);
}

}  // namespace hf::wasm
