// One side's end of a link: its own segment to write, its peer's to read, and a bell each way. The same class serves the
// supervisor and the plugin.
//
// Bells are pipes: each side holds only its own end, on its own open file description, so a hostile peer can neither make
// the other's ring or hearing block (as it could by clearing O_NONBLOCK on a shared eventfd) nor swallow its bell.
//
// The sleep protocol. Sleeper: own ticket := odd (full fence), then a last look at the peer's tail, then block. Ringer:
// own tail := new (full fence), then a look at the peer's ticket, then ring. Whichever fence comes first, either the
// sleeper sees the record or the ringer sees the sleeper. No timer is armed; an idle link costs nothing.
#pragma once

#include <cstdint>

#include "abi/base/unique_fd.hpp"
#include "abi/ring/mapping.hpp"
#include "abi/ring/ring.hpp"
#include "abi/ring/spin.hpp"

namespace hf::ring {

struct EndpointParts {
    Mapping own;   // read-write
    Mapping peer;  // read-only
    std::uint32_t own_ring_bytes = 0;
    std::uint32_t peer_ring_bytes = 0;
    UniqueFd ring;  // the end this side writes
    UniqueFd hear;  // the end this side polls and reads
    std::uint32_t spin_ns = 0;
    bool spin = true;
    // The bell is watched edge-triggered: emptied only now and then, which saves a system call on each wake. A ring on a
    // pipe that is not empty is still an event (Linux 5.14 and later; a test holds us to it).
    bool edge_triggered = false;
};

class Endpoint {
public:
    explicit Endpoint(EndpointParts parts);

    [[nodiscard]] Producer& out() { return out_; }
    [[nodiscard]] Consumer& in() { return in_; }
    [[nodiscard]] layout::SegmentHeader& own() { return own_; }
    [[nodiscard]] const layout::SegmentHeader& peer() const { return peer_; }
    [[nodiscard]] int bell_fd() const { return hear_.get(); }

    // Gives read space back, publishes what was written, and rings if the peer sleeps and has a reason to wake.
    void flush();

    // Before blocking. False: do not block, there is something to do. `expecting`: records are likely soon, so that a
    // spin may pay. `starved`: this side waits for room in its own ring and wants to be woken by it.
    [[nodiscard]] bool before_block(bool expecting, bool starved);
    // The steps of before_block, for a loop that watches several ends at once.
    [[nodiscard]] bool spin_wanted() { return spin_.wanted(in_.peer_cpu()); }
    [[nodiscard]] SpinPolicy& spin_policy() { return spin_; }
    void fall_asleep(bool starved);
    [[nodiscard]] bool work_visible(bool starved) const;

    // After blocking: takes back the ticket and empties the bell. Costs nothing when this side was not asleep.
    void awake();

private:
    Mapping own_map_;
    Mapping peer_map_;
    layout::SegmentHeader& own_;
    const layout::SegmentHeader& peer_;
    UniqueFd ring_;
    UniqueFd hear_;
    Producer out_;
    Consumer in_;
    SpinPolicy spin_;
    bool edge_triggered_;
    std::uint32_t unread_ = 0;  // sleeps since the bell was emptied
    std::uint32_t ticket_ = 0;  // odd: asleep
    std::uint32_t rung_ = 0;    // the peer's last ticket that was rung for
};

}  // namespace hf::ring
