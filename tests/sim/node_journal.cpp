// The node's journal: a disk that takes its time, does things in order, refuses when it is full, and keeps what it has done
// whatever becomes of the node (part of World).
#include <algorithm>

#include "tests/sim/failure.hpp"
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

core::JournalLoaded World::journal_content() const {
    core::JournalLoaded out;
    out.stream = "the-stream";
    out.next = journal_next_;
    for (const auto& [n, item] : journal_) out.items.push_back(item);
    return out;
}

// After everything that was asked before, and only if the node still lives then.
void World::journal_later(std::function<void()> what) {
    journal_free_ = std::max(journal_free_, now_ + dice.skewed(50'000, kWriteMax));
    const std::uint64_t life = life_;
    after(journal_free_ - now_, [this, life, what = std::move(what)] {
        if (life == life_ && core_) what();
    });
}

void World::append_to_journal(const core::JournalAppend& ask) {
    journal_later([this, ask] {
        core::JournalAppended answer{ask.op, core::Outcome::Applied, ""};
        if (disk_full_) {
            answer.outcome = core::Outcome::Refused;
            answer.reason = "the disk is full";
        } else {
            if (ask.item.n < journal_next_) broken("a number of the journal is used twice");
            journal_next_ = ask.item.n + 1;
            history.journalled(id_of(ask.item), ask.item.n);
            journal_.emplace(ask.item.n, ask.item);
        }
        // Answers keep the order, too.
        journal_free_ = std::max(journal_free_, now_ + dice.skewed(1000, kAnswerMax));
        const std::uint64_t life = life_;
        after(journal_free_ - now_, [this, life, answer] {
            if (life == life_) feed(answer);
        });
    });
}

void World::remove_from_journal(const core::JournalRemove& ask) {
    journal_later([this, ask] {
        core::JournalRemoved answer{ask.op, !disk_full_};
        for (const std::uint64_t n : ask.numbers) {
            if (disk_full_) break;
            const auto it = journal_.find(n);
            if (it == journal_.end()) broken("what is not in the journal is removed from it");
            history.unjournalled(id_of(it->second));
            journal_.erase(it);
        }
        feed(answer);
    });
}

void World::bury(const core::DeadLetter& letter) {
    if (!letter.source.starts_with("journal/")) return;
    core::JournalItem item;
    item.event = letter.payload;
    history.buried(id_of(item));
}

}  // namespace hf::sim
