// Which connection runs out of time next. Every kind of wait has one length, so each kind is a queue in order of its ends:
// setting, clearing and finding the next one cost the same however many connections there are, and nothing ticks.
#pragma once

#include <array>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <limits>

namespace hf::gateway {

enum class Wait : std::uint8_t {
    Idle,     // between two requests
    Head,     // from a request's first byte, or from accept
    Body,     // one look at a body's progress
    Request,  // the supervisor's answer
    Write,    // the client takes what it was sent
    Linger,   // the client closes its side
    Shed,     // a silent connection while the process finishes
    Ping,     // the next look whether a WebSocket's client is there
    Pong,     // its answer
    Close,    // a WebSocket's client answers a close, or reads it
    Taken,    // the supervisor takes a WebSocket's message
};
inline constexpr std::size_t kWaits = 11;
inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

class Deadlines {
public:
    // What can wait; for one thing at a time. Leaves its queue when it is destroyed.
    class Item : public boost::intrusive::list_base_hook<
                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    public:
        void clear_deadline() { unlink(); }
        [[nodiscard]] bool waits() const { return is_linked(); }
        [[nodiscard]] Wait waits_for() const { return wait_; }
        // Its time is up; it is in no queue any more.
        virtual void time_is_up(Wait wait) = 0;

    protected:
        Item() = default;
        ~Item() = default;

    private:
        friend class Deadlines;
        std::int64_t due_ns_ = 0;
        Wait wait_ = Wait::Idle;
    };

    void set_length(Wait wait, std::int64_t ms) { lengths_ns_[at(wait)] = ms * 1'000'000; }

    // Starts a wait anew.
    void set(Item& item, Wait wait, std::int64_t now_ns) {
        item.unlink();
        item.wait_ = wait;
        item.due_ns_ = now_ns + lengths_ns_[at(wait)];
        queues_[at(wait)].push_back(item);
    }

    [[nodiscard]] std::int64_t next_ns() const {
        std::int64_t next = kNever;
        for (const Queue& queue : queues_)
            if (!queue.empty() && queue.front().due_ns_ < next) next = queue.front().due_ns_;
        return next;
    }

    // One whose time is up, taken out of its queue; null: none.
    Item* take_due(std::int64_t now_ns) {
        for (Queue& queue : queues_) {
            if (queue.empty() || queue.front().due_ns_ > now_ns) continue;
            Item& item = queue.front();
            item.unlink();
            return &item;
        }
        return nullptr;
    }

    // The one that has waited longest for this; null: none.
    Item* oldest(Wait wait) {
        Queue& queue = queues_[at(wait)];
        return queue.empty() ? nullptr : &queue.front();
    }

private:
    using Queue = boost::intrusive::list<Item, boost::intrusive::constant_time_size<false>>;
    static std::size_t at(Wait wait) { return static_cast<std::size_t>(wait); }

    std::array<Queue, kWaits> queues_;
    std::array<std::int64_t, kWaits> lengths_ns_{};
};

}  // namespace hf::gateway
