// The node's journal: a disk that takes its time, does things in order, refuses when it is full, and keeps what it has done
// whatever becomes of the node (part of Node).
#include <algorithm>

#include "tests/sim/failure.hpp"
#include "tests/sim/node.hpp"
#include "tests/sim/world.hpp"

namespace hf::sim {

namespace {
constexpr Time kWriteMax = 20 * kMs;
constexpr Time kAnswerMax = 2 * kMs;

std::uint64_t id_of(const core::JournalItem& item) {
    bool later = false;
    const auto event = unpack_http(item.event, later);
    if (!event || !later) broken("something is journalled that no client sent");
    return event->id;
}
}  // namespace

core::JournalLoaded Node::journal_content() const {
    core::JournalLoaded out;
    out.stream = world_.scenario.cluster() ? name_.instance : "the-stream";
    out.next = journal_next_;
    for (const auto& [n, item] : journal_) out.items.push_back(item);
    return out;
}

// After everything that was asked before, and only if the node still lives then.
void Node::journal_later(std::function<void()> what) {
    journal_free_ = std::max(journal_free_, world_.now() + world_.dice.skewed(50'000, kWriteMax));
    later(journal_free_ - world_.now(), [this, what = std::move(what)] {
        if (core_) what();
    });
}

void Node::append_to_journal(const core::JournalAppend& ask) {
    journal_later([this, ask] {
        core::JournalAppended answer{ask.op, core::Outcome::Applied, ""};
        if (world_.disk_full()) {
            answer.outcome = core::Outcome::Refused;
            answer.reason = "the disk is full";
        } else {
            if (ask.item.n < journal_next_) broken("a number of the journal is used twice");
            journal_next_ = ask.item.n + 1;
            world_.history.journalled(id_of(ask.item), number(), ask.item.n);
            journal_.emplace(ask.item.n, ask.item);
        }
        // Answers keep the order, too.
        journal_free_ =
            std::max(journal_free_, world_.now() + world_.dice.skewed(1000, kAnswerMax));
        later(journal_free_ - world_.now(), [this, answer] { feed(answer); });
    });
}

void Node::remove_from_journal(const core::JournalRemove& ask) {
    journal_later([this, ask] {
        core::JournalRemoved answer{ask.op, !world_.disk_full()};
        for (const std::uint64_t n : ask.numbers) {
            if (world_.disk_full()) break;
            const auto it = journal_.find(n);
            if (it == journal_.end()) broken("what is not in the journal is removed from it");
            world_.history.unjournalled(id_of(it->second));
            journal_.erase(it);
        }
        feed(answer);
    });
}

void Node::bury(const core::DeadLetter& letter) {
    if (!letter.source.starts_with("journal/")) return;
    core::JournalItem item;
    item.event = letter.payload;
    world_.history.buried(id_of(item));
}

}  // namespace hf::sim
