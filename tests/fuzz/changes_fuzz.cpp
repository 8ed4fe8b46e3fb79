// Any bytes as the stored entries of a unit, which a storage plugin could make up: folded one after the other, each a part of
// the state or Corrupt. What was folded, written as a base and read again, is the same state. Input: for each entry whether
// it is a base 1 byte, its size 2 bytes, then its bytes.
#include <cstring>
#include <memory>

#include "changes_generated.h"
#include "plugins/runtime-wasm/state/unit_state.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using hf::Bytes;
using hf::BytesView;
using hf::fuzz::Feed;
using hf::fuzz::must;
using hf::fuzz::Seed;
using hf::wasm::UnitState;

constexpr std::uint32_t kStateMax = 48 * 1024;

// One after the other; false: one of them was Corrupt, and a runtime would give the unit up.
bool fold_all(Feed feed) {
    UnitState state(kStateMax);
    while (!feed.empty()) {
        const bool base = feed.u8() % 2 != 0;
        const BytesView view = feed.bytes(feed.u16());
        // Aligned as in a record, and not a byte longer.
        const auto copy = std::make_unique<std::uint8_t[]>(view.size());
        if (!view.empty()) std::memcpy(copy.get(), view.data(), view.size());
        const auto folded = state.fold({copy.get(), view.size()}, base);
        if (!folded) {
            must(folded.error().code == hf::Code::Corrupt && !folded.error().message.empty());
            return false;
        }
        const Bytes all = state.encode_all();
        UnitState again(kStateMax);
        must(again.fold(all, true).ok());
        must(again.pairs() == state.pairs() && again.bytes() == state.bytes());
        must(again.encode_all() == all);
    }
    return true;
}

Bytes change_set(const std::vector<std::pair<std::string, const char*>>& pairs) {
    flatbuffers::FlatBufferBuilder fbb;
    std::vector<flatbuffers::Offset<hf::log::Pair>> out;
    for (const auto& [key, value] : pairs) {
        const auto key_at = fbb.CreateVector(hf::as_bytes(key).data(), key.size());
        flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> value_at;
        if (value != nullptr)
            value_at = fbb.CreateVector(hf::as_bytes(value).data(), std::strlen(value));
        out.push_back(hf::log::CreatePair(fbb, key_at, value_at));
    }
    fbb.Finish(hf::log::CreateChangeSet(fbb, fbb.CreateVector(out)));
    return {fbb.GetBufferPointer(), fbb.GetBufferPointer() + fbb.GetSize()};
}

std::vector<Bytes> seeds() {
    const Bytes first = change_set({{"a", "one"}, {"b", "two"}, {"c", ""}});
    const Bytes second =
        change_set({{"b", nullptr}, {"a", "three"}, {"d", "four"}, {"x", nullptr}});
    const Bytes none = change_set({});
    Seed log;
    for (const Bytes* each : {&first, &second, &none, &first})
        log.u8(each == &none ? 1 : 0).u16(each->size()).raw(*each);
    Seed one;
    one.u8(0).u16(first.size()).raw(first);
    for (const Seed* each : {&log, &one})
        must(fold_all({each->bytes().data(), each->bytes().size()}));
    return {log.bytes(), one.bytes()};
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return seeds();
}

void hf::fuzz::take(BytesView input) {
    (void)fold_all(Feed(input));
}
