#include "agent/core/journal.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"

namespace hf::core {

namespace {
constexpr std::uint32_t kBusyAgainMs = 1000;
constexpr std::uint16_t kAccepted = 202;
// What was applied leaves the journal in one write, this long after the first of it or when it is as many.
constexpr Time kFlushAfter = 100 * kMs;
constexpr std::size_t kFlushAt = 64;
// After a removal that failed.
constexpr Time kFlushAgain = 10 * kSecond;

std::string target_of(const JournalItem& item) {
    return item.class_name + "/" + item.name;
}
std::size_t bytes_of(const JournalItem& item) {
    return item.class_name.size() + item.name.size() + item.event.size();
}
}  // namespace

Journal::Journal(Env& env, Hooks hooks)
    : env_(env),
      hooks_(std::move(hooks)),
      offers_(env, kOffersMax, [this](const std::string& name, const Chance& chance) {
          return offer_first(name, chance.last);
      }) {}

void Journal::loaded(JournalLoaded event) {
    HF_CHECK(!loaded_, "the journal is loaded once");
    loaded_ = true;
    source_ = "journal/" + event.stream;
    next_ = event.next;
    for (JournalItem& item : event.items) {
        HF_CHECK(item.n < next_, "the journal's next number is above all it holds");
        ++items_;
        bytes_ += bytes_of(item);
        add(std::move(item));
    }
}

void Journal::close() {
    closed_ = true;
    flush();
}

void Journal::open() {
    open_ = true;
    offer_some();
}

void Journal::add(JournalItem item) {
    const std::string name = target_of(item);
    Line& line = targets_[name];
    if (line.empty()) fronts_.emplace(item.accepted_ms, item.n);
    line.push_back(std::move(item));
    offers_.add(name);
}

std::optional<Refusal> Journal::accept(const Waiter& waiter, JournalItem item) {
    const Limits& limits = env_.config.limits;
    if (closed_) return Refusal{ReplyReason::Unavailable, "the node stops"};
    if (!loaded_)
        return Refusal{ReplyReason::Unavailable, "the node has no journal to accept it for later"};
    if (items_ >= limits.journal_events)
        return Refusal{ReplyReason::Busy,
                       "the journal holds as many requests as limits.journal_events allows"};
    if (bytes_ + bytes_of(item) > limits.journal_bytes)
        return Refusal{ReplyReason::Busy,
                       "the journal holds as many bytes as limits.journal_bytes allows"};
    const std::string name = target_of(item);
    const auto target = targets_.find(name);
    const std::size_t waiting = (target == targets_.end() ? 0 : target->second.size()) +
                                (appending_.contains(name) ? appending_.at(name) : 0);
    if (waiting >= limits.journal_events_per_actor)
        return Refusal{ReplyReason::Busy,
                       "the journal holds as many requests for this actor as "
                       "limits.journal_events_per_actor allows"};
    auto event =
        with_header(item.event, kMessageIdHeader, message_id_text(message_id(source_, next_)));
    if (!event)
        return Refusal{ReplyReason::Internal,
                       "the gateway handed on what is not laid out as a request"};
    item.event = *std::move(event);
    item.n = next_++;
    item.accepted_ms = env_.wall_ms();
    ++items_;
    bytes_ += bytes_of(item);
    ++appending_[name];
    const OpId op = env_.new_op();
    if (waiter.deadline != 0) deadlines_.emplace(waiter.deadline, op);
    env_.emit(JournalAppend{op, item});
    appends_.emplace(op, Append{waiter, std::move(item), false});
    return std::nullopt;
}

void Journal::answer(const Append& append, ReplyReason reason, std::string text) {
    ReplyOut reply;
    reply.to = append.waiter.gateway;
    reply.req_id = append.waiter.req_id;
    reply.reason = reason;
    reply.text = std::move(text);
    if (reason == ReplyReason::Ok) {
        reply.status = kAccepted;
        FlatWriter headers(reply.headers);
        headers.field("content-type");
        headers.field("text/plain");
        const std::string id = message_id_text(message_id(source_, append.item.n)) + "\n";
        reply.body.assign(id.begin(), id.end());
    } else if (reason != ReplyReason::Deadline) {
        reply.retry_after_ms = kBusyAgainMs;
    }
    hooks_.reply(std::move(reply));
}

void Journal::appended(const JournalAppended& event) {
    const auto it = appends_.find(event.op);
    HF_CHECK(it != appends_.end(), "the journal answers each request once");
    Append append = std::move(it->second);
    appends_.erase(it);
    deadlines_.erase({append.waiter.deadline, event.op});
    const std::string name = target_of(append.item);
    if (--appending_.at(name) == 0) appending_.erase(name);
    if (event.outcome == Outcome::Applied) {
        ++env_.stats.journalled;
        if (!append.answered) answer(append, ReplyReason::Ok, "");
        add(std::move(append.item));
        return offer_some();
    }
    --items_;
    bytes_ -= bytes_of(append.item);
    env_.note(NoteLevel::Error, "journal", "a request is not accepted for later: " + event.reason);
    // Whether it is in the journal is not known: the next start finds out, and it may run then.
    const bool unknown = event.outcome == Outcome::Unknown;
    if (!append.answered)
        answer(append, unknown ? ReplyReason::Deadline : ReplyReason::Busy, event.reason);
}

Offered Journal::offer_first(const std::string& name, bool last) {
    // A copy: the offer may end, and the item go, before this returns.
    const JournalItem item = targets_.at(name).front();
    const Offered offered = hooks_.offer(item, last);
    if (offered == Offered::NotHere)
        env_.note(NoteLevel::Warn,
                  "journal",
                  "request " + std::to_string(item.n) + " waits for actor " + name +
                      ", whose class is not deployed here");
    return offered;
}

void Journal::offer_some() {
    if (open_ && !closed_) offers_.run();
}

void Journal::classes_changed() {
    offers_.classes_changed();
    offer_some();
}

void Journal::ended(const std::string& name, std::uint64_t n, OfferEnd end) {
    const auto it = targets_.find(name);
    HF_CHECK(it != targets_.end() && it->second.front().n == n,
             "what is offered stays first in its line");
    offers_.ended(name, end);
    if (end != OfferEnd::Applied) return offer_some();
    Line& line = it->second;
    JournalItem item = std::move(line.front());
    line.pop_front();
    fronts_.erase({item.accepted_ms, item.n});
    --items_;
    bytes_ -= bytes_of(item);
    item.event.clear();
    done_.push_back(std::move(item));
    ++env_.stats.journal_applied;
    if (line.empty()) {
        targets_.erase(it);
    } else {
        fronts_.emplace(line.front().accepted_ms, line.front().n);
        offers_.add(name);
    }
    if (done_.size() >= kFlushAt && !removal_failed_) {
        flush();
    } else if (flush_at_ == kNever) {
        flush_at_ = env_.now + kFlushAfter;
    }
    offer_some();
}

void Journal::flush() {
    flush_at_ = kNever;
    if (done_.empty()) return;
    JournalRemove remove;
    remove.op = env_.new_op();
    for (const JournalItem& item : done_) remove.numbers.push_back(item.n);
    removals_.emplace(remove.op, std::exchange(done_, {}));
    env_.emit(std::move(remove));
}

void Journal::removed(const JournalRemoved& event) {
    const auto it = removals_.find(event.op);
    HF_CHECK(it != removals_.end(), "the journal answers each removal once");
    const std::vector<JournalItem> items = std::move(it->second);
    removals_.erase(it);
    removal_failed_ = !event.ok;
    if (!event.ok) {
        // The disk is full, say. Were the node to start now, the marks would say that these were applied.
        done_.insert(done_.end(), items.begin(), items.end());
        flush_at_ = env_.now + kFlushAgain;
        env_.note(NoteLevel::Error,
                  "journal",
                  "what was applied could not be removed; it is tried again every 10 s");
        return;
    }
    for (const JournalItem& item : items)
        if (!targets_.contains(target_of(item))) hooks_.settled(item);
}

void Journal::tick() {
    while (!deadlines_.empty() && deadlines_.begin()->first <= env_.now) {
        Append& append = appends_.at(deadlines_.begin()->second);
        deadlines_.erase(deadlines_.begin());
        append.answered = true;
        answer(append, ReplyReason::Deadline, "the request was not journalled in time");
    }
    if (flush_at_ <= env_.now) flush();
    if (!open_ || closed_) return;
    offers_.tick();
    offer_some();
}

Time Journal::next_deadline() const {
    Time soonest = flush_at_;
    if (!deadlines_.empty()) soonest = std::min(soonest, deadlines_.begin()->first);
    if (open_ && !closed_) soonest = std::min(soonest, offers_.next_deadline());
    return soonest;
}

Journal::Depth Journal::depth(const std::string& target) const {
    const auto it = targets_.find(target);
    if (it == targets_.end()) return {};
    return {it->second.size(), it->second.front().accepted_ms};
}

Journal::Depth Journal::depth() const {
    return {items_, fronts_.empty() ? 0 : fronts_.begin()->first};
}

}  // namespace hf::core
