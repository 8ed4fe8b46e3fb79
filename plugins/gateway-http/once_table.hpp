// Which calls of other nodes were seen, by the number each is sent under, for as long as their time would let them pass again.
// Pure: the caller says what time it is (CLOCK_MONOTONIC, ns). Lives in this process: see PeerDoor for its start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

namespace hf::gateway {

class OnceTable {
public:
    // A call passes while its time is at most 30 s from this node's, either way: 60 s in all.
    static constexpr std::int64_t kKeepNs = 60'000'000'000;
    // 1 000 calls a second and a bit; at about 150 bytes each, 10 MiB.
    static constexpr std::size_t kMost = 65'536;

    enum class Seen : std::uint8_t { First, Before, Full };

    OnceTable() = default;
    // Its two lists share their texts.
    OnceTable(const OnceTable&) = delete;
    OnceTable& operator=(const OnceTable&) = delete;
    OnceTable(OnceTable&&) = default;
    OnceTable& operator=(OnceTable&&) = default;
    ~OnceTable() = default;

    // `once`: short, of one length.
    [[nodiscard]] Seen use(std::string_view once, std::int64_t now_ns) {
        while (!order_.empty() && now_ns - order_.front().first >= kKeepNs) {
            known_.erase(std::string(order_.front().second));
            order_.pop_front();
        }
        if (known_.contains(std::string(once))) return Seen::Before;
        if (known_.size() >= kMost) return Seen::Full;
        // Nodes of a set stay where they are, so that both lists share one text.
        const auto added = known_.emplace(once).first;
        order_.emplace_back(now_ns, *added);
        return Seen::First;
    }
    [[nodiscard]] std::size_t size() const { return known_.size(); }

private:
    std::unordered_set<std::string> known_;
    std::deque<std::pair<std::int64_t, std::string_view>> order_;  // by when it was used
};

}  // namespace hf::gateway
