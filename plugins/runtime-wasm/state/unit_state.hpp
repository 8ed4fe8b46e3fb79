// A unit's key-value state between and during events, in the host's memory. It is the truth the guest works on; guest
// memory is only a cache. Writes of an event are applied at once and can be taken back as a whole; what is committed
// leaves as a ChangeSet (abi/schema/changes.fbs). Dies with the process; the log's entries rebuild it by fold().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/limits.hpp"
#include "abi/base/result.hpp"

namespace hf::wasm {

inline constexpr std::size_t kKeyBytesMax = 512;
// What one pair costs in an encoded ChangeSet beyond its bytes: table 12, its place in the list 4, two lengths 8 and
// padding up to 2 x 3, rounded up. Counted with every pair, so that an encoded state never takes more than its state_max.
inline constexpr std::size_t kPairOverheadBytes = 32;
// Head of a ChangeSet: root, vtables, list length.
inline constexpr std::size_t kChangeSetHeadBytes = 64;

// A write that was not made. Names are what operators and callers read.
struct LimitHit {
    const char* name = nullptr;  // "value_bytes", ...; null: no limit was met
    std::uint64_t allowed = 0;
    std::uint64_t asked = 0;
    [[nodiscard]] explicit operator bool() const { return name != nullptr; }
    [[nodiscard]] std::string sentence() const;
};

// How much one more change may make of an event's changes, and the name of that limit.
struct ChangesRoom {
    std::size_t bytes = 0;
    const char* limit = "";
};

// Keys and values as they are kept: sorted by the keys' bytes, places stay good while an event is open.
struct StoredValue {
    std::string bytes;
    std::uint64_t touched = 0;  // the event that last wrote it
    bool present = true;        // false: deleted by the open event
};
using StoredPairs = std::map<std::string, StoredValue, std::less<>>;

// A walk over the keys with a prefix, from `start` on in its direction (empty: from the first). It sees every write that
// is made ahead of it. Good until the event ends.
class Walk {
public:
    void begin(std::string_view prefix, std::string_view start, bool descending);
    // Past what UnitState::next() answered last.
    void step() {
        last_ = found_;
        begun_ = true;
    }

private:
    friend class UnitState;
    std::string prefix_;
    std::string start_;
    bool descending_ = false;
    bool begun_ = false;
    StoredPairs::const_iterator last_;
    StoredPairs::const_iterator found_;
};

class UnitState {
public:
    // `state_max`: bytes of all keys and values, kPairOverheadBytes a pair included; at most kStateBytesMax, 0: a payload.
    explicit UnitState(std::uint32_t state_max);

    // Applies a stored ChangeSet, oldest first. `base`: everything before it is covered and forgotten.
    // Corrupt when the bytes are not a ChangeSet. Not while an event is open.
    Result<void> fold(BytesView change_set, bool base);

    void begin();
    [[nodiscard]] std::optional<BytesView> get(std::string_view key) const;
    // Keys are 1..kKeyBytesMax bytes; the caller has refused others. `room`: what the event's changes may take together.
    LimitHit put(std::string_view key, BytesView value, ChangesRoom room);
    // False when the key was not there.
    bool remove(std::string_view key);
    struct Pair {
        std::string_view key;
        BytesView value;
    };
    // The next pair of the walk, which stays where it is until step(). Views are good until the next write.
    [[nodiscard]] std::optional<Pair> next(Walk& walk) const;
    // Encoded size of this event's changes so far, an upper bound; 0 when there are none.
    [[nodiscard]] std::size_t change_bytes() const {
        return undo_.empty() ? 0 : kChangeSetHeadBytes + change_bytes_;
    }
    [[nodiscard]] bool changed() const { return !undo_.empty(); }
    // This event's changes in the order the keys were first touched; call before commit().
    [[nodiscard]] Bytes encode_changes() const;
    void commit();
    void rollback();

    [[nodiscard]] std::uint32_t bytes() const { return static_cast<std::uint32_t>(bytes_); }
    [[nodiscard]] std::size_t pairs() const { return pairs_.size(); }
    // The whole state as a ChangeSet that starts from nothing. Between events only.
    [[nodiscard]] Bytes encode_all() const;

private:
    using Pairs = StoredPairs;
    [[nodiscard]] Pairs::const_iterator first_below(const Walk& walk) const;
    struct Undo {
        Pairs::iterator at;
        std::string before;
        bool was_present;
    };
    Undo* touch(Pairs::iterator at);

    Pairs pairs_;
    std::vector<Undo> undo_;
    std::size_t state_max_;
    std::size_t bytes_ = 0;
    std::size_t bytes_before_ = 0;
    std::size_t change_bytes_ = 0;
    std::uint64_t event_ = 0;
};

}  // namespace hf::wasm
