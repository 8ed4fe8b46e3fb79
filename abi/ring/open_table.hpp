// The requests of one side that wait for an answer, by id: constant time, no allocation once grown, and in order of
// asking. Private memory of one side; the peer never sees it.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/base/check.hpp"

namespace hf::ring {

struct OpenRequest {
    std::uint64_t id = 0;
    std::uint32_t reserved = 0;  // bytes of the ring that its answer may take
    std::uint16_t type = 0;      // number in the union Body
    std::uint8_t state = 0;      // the owner's business
};

class OpenTable {
public:
    OpenTable() { rehash(kSlotsFirst); }

    [[nodiscard]] std::size_t size() const { return count_; }

    // The caller has made sure that the id is not 0 and not in the table.
    OpenRequest& insert(const OpenRequest& request) {
        if ((count_ + 1) * 2 > slots_.size()) rehash(slots_.size() * 2);
        std::uint32_t index = free_;
        if (index == kNone) {
            index = static_cast<std::uint32_t>(nodes_.size());
            nodes_.push_back({});
        } else {
            free_ = nodes_[index].next;
        }
        Node& node = nodes_[index];
        node = Node{request, last_, kNone};
        (last_ == kNone ? first_ : nodes_[last_].next) = index;
        last_ = index;
        std::size_t slot = home(request.id);
        while (slots_[slot] != kNone) slot = (slot + 1) & (slots_.size() - 1);
        slots_[slot] = index;
        ++count_;
        return node.request;
    }

    [[nodiscard]] OpenRequest* find(std::uint64_t id) {
        const std::size_t slot = slot_of(id);
        return slot == slots_.size() ? nullptr : &nodes_[slots_[slot]].request;
    }

    bool erase(std::uint64_t id) {
        std::size_t hole = slot_of(id);
        if (hole == slots_.size()) return false;
        const std::uint32_t index = slots_[hole];
        unlink(index);
        const std::size_t mask = slots_.size() - 1;
        // Closes the gap: an entry behind it moves up when its home is not between the gap and itself.
        for (std::size_t next = (hole + 1) & mask; slots_[next] != kNone;
             next = (next + 1) & mask) {
            const std::size_t wanted = home(nodes_[slots_[next]].request.id);
            if (((next - wanted) & mask) >= ((next - hole) & mask)) {
                slots_[hole] = slots_[next];
                hole = next;
            }
        }
        slots_[hole] = kNone;
        --count_;
        return true;
    }

    // In order of asking.
    template <class Fn>
    void for_each(Fn fn) const {
        for (std::uint32_t i = first_; i != kNone; i = nodes_[i].next) fn(nodes_[i].request);
    }

private:
    static constexpr std::uint32_t kNone = 0xFFFFFFFFU;
    static constexpr std::size_t kSlotsFirst = 256;  // 128 requests, a busy link's usual depth
    struct Node {
        OpenRequest request;
        std::uint32_t previous = kNone;
        std::uint32_t next = kNone;
    };

    [[nodiscard]] std::size_t home(std::uint64_t id) const {
        return static_cast<std::size_t>((id * 0x9E3779B97F4A7C15ULL) >> 32U) & (slots_.size() - 1);
    }
    [[nodiscard]] std::size_t slot_of(std::uint64_t id) const {
        for (std::size_t slot = home(id); slots_[slot] != kNone;
             slot = (slot + 1) & (slots_.size() - 1))
            if (nodes_[slots_[slot]].request.id == id) return slot;
        return slots_.size();
    }
    void unlink(std::uint32_t index) {
        Node& node = nodes_[index];
        (node.previous == kNone ? first_ : nodes_[node.previous].next) = node.next;
        (node.next == kNone ? last_ : nodes_[node.next].previous) = node.previous;
        node.next = free_;
        free_ = index;
    }
    void rehash(std::size_t slots) {
        slots_.assign(slots, kNone);
        for (std::uint32_t i = first_; i != kNone; i = nodes_[i].next) {
            std::size_t slot = home(nodes_[i].request.id);
            while (slots_[slot] != kNone) slot = (slot + 1) & (slots - 1);
            slots_[slot] = i;
        }
    }

    std::vector<Node> nodes_;
    std::vector<std::uint32_t> slots_;
    std::uint32_t first_ = kNone;
    std::uint32_t last_ = kNone;
    std::uint32_t free_ = kNone;
    std::size_t count_ = 0;
};

}  // namespace hf::ring
