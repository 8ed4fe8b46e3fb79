#include "abi/ring/endpoint.hpp"

#include <unistd.h>

#include <array>
#include <utility>

#include "abi/layout/atomics.hpp"

namespace hf::ring {

namespace {

// Each sleep is rung once, so a bell holds at most this many bytes, far from the 4096 that a pipe always takes.
constexpr std::uint32_t kUnreadMax = 256;

layout::SegmentHeader& header_of(const Mapping& mapping) {
    // SAFETY: a segment begins with its header; mappings are page-aligned and at least a header long.
    return *reinterpret_cast<layout::SegmentHeader*>(mapping.data());
}

std::span<std::uint8_t> ring_of(const Mapping& mapping, std::uint32_t bytes) {
    return {mapping.data() + layout::kHeaderBytes, bytes};
}

}  // namespace

Endpoint::Endpoint(EndpointParts parts)
    : own_map_(std::move(parts.own)),
      peer_map_(std::move(parts.peer)),
      own_(header_of(own_map_)),
      peer_(header_of(peer_map_)),
      ring_(std::move(parts.ring)),
      hear_(std::move(parts.hear)),
      out_(ring_of(own_map_, parts.own_ring_bytes), own_, peer_, kRecordBytesMax),
      in_(ring_of(peer_map_, parts.peer_ring_bytes), own_, peer_, kRecordBytesMax),
      spin_(parts.spin_ns, parts.spin),
      edge_triggered_(parts.edge_triggered) {}

void Endpoint::flush() {
    const bool freed = in_.publish_head();
    const bool sent = out_.publish();
    if (!freed && !sent) return;
    // Pairs with fall_asleep() of the peer.
    const std::uint32_t ticket = layout::load_full(peer_.sleep.ticket);
    if ((ticket & 1U) == 0 || ticket == rung_) return;
    if (!sent && layout::load_full(peer_.sleep.starved) == 0) return;
    rung_ = ticket;
    const std::uint8_t ding = 1;
    // A full pipe is a bell that rings already; a closed one is a dead peer, which pidfd reports.
    (void)!::write(ring_.get(), &ding, sizeof(ding));
}

void Endpoint::fall_asleep(bool starved) {
    layout::store_relaxed(own_.sleep.starved, starved ? 1U : 0U);
    ticket_ = (ticket_ + 1U) | 1U;
    // Full fence: the looks at the peer's tail and head in work_visible() come after the ticket is visible.
    layout::exchange_full(own_.sleep.ticket, ticket_);
}

bool Endpoint::work_visible(bool starved) const {
    return in_.visible_full() || (starved && out_.head_moved());
}

bool Endpoint::before_block(bool expecting, bool starved) {
    flush();
    if (in_.visible()) return false;
    if (expecting && spin_wanted()) {
        switch (spin(spin_.budget_ns(), [this] { return in_.visible(); })) {
            case Spun::Found:
                spin_.succeeded();
                return false;
            case Spun::Nothing:
                spin_.failed();
                break;
            case Spun::Preempted:
                spin_.preempted();
                break;
        }
    }
    fall_asleep(starved);
    if (!work_visible(starved)) return true;
    awake();
    return false;
}

void Endpoint::awake() {
    if ((ticket_ & 1U) == 0) return;
    ++ticket_;
    layout::store_release(own_.sleep.ticket, ticket_);
    std::array<std::uint8_t, 64>
        dings;  // one ring each sleep; a flood is emptied over several turns
    (void)!::read(hear_.get(), dings.data(), dings.size());
}

}  // namespace hf::ring
