#include "agent/core/journal.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/handler_pause.hpp"

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

Journal::Journal(Env& env, Hooks hooks) : env_(env), hooks_(std::move(hooks)) {}

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
    Target& target = targets_[name];
    target.items.push_back(std::move(item));
    line_up(name, target);
}

void Journal::line_up(const std::string& name, Target& target) {
    if (target.busy || target.items.empty()) return;
    target.busy = true;
    ready_.push_back(name);
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
    const std::size_t waiting = (target == targets_.end() ? 0 : target->second.items.size()) +
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
    // Whether it is in the journal is not known: the next start finds out, and it may run then.
    const bool unknown = event.outcome == Outcome::Unknown;
    if (!append.answered)
        answer(append, unknown ? ReplyReason::Deadline : ReplyReason::Busy, event.reason);
}

void Journal::offer_some() {
    if (!open_ || closed_ || offering_) return;
    offering_ = true;  // what is taken may end at once
    while (offers_ < kOffersMax && !ready_.empty()) {
        const std::string name = std::move(ready_.front());
        ready_.pop_front();
        Target& target = targets_.at(name);
        target.homeless = false;
        ++offers_;
        const bool last = target.tries + 1 >= kHandlerTriesMax;
        // A copy: the offer may end, and the item go, before this returns.
        const JournalItem item = target.items.front();
        switch (hooks_.offer(item, last)) {
            case Offered::Taken:
                break;
            case Offered::NoRoom:
                ended(name, item.n, End::Refused);
                break;
            case Offered::NotHere:
                --offers_;
                target.homeless = true;
                env_.note(NoteLevel::Warn,
                          "journal",
                          "request " + std::to_string(item.n) + " waits for actor " + name +
                              ", whose class is not deployed here");
                again(name, kHandlerPauseMost);
                break;
        }
    }
    offering_ = false;
}

void Journal::classes_changed() {
    for (auto it = later_.begin(); it != later_.end();) {
        if (targets_.at(it->second).homeless) {
            ready_.push_back(std::move(it->second));
            it = later_.erase(it);
        } else {
            ++it;
        }
    }
    offer_some();
}

void Journal::again(const std::string& name, Time pause) {
    later_.emplace(env_.now + pause, name);
}

void Journal::ended(const std::string& name, std::uint64_t n, End end) {
    const auto it = targets_.find(name);
    HF_CHECK(it != targets_.end() && it->second.items.front().n == n,
             "what is offered stays first in its line");
    Target& target = it->second;
    --offers_;
    if (end != End::Applied) {
        Time pause = kNoRoomAgain;
        if (end == End::Failed) pause = handler_pause(target.tries++);
        again(name, pause);
        return offer_some();
    }
    JournalItem item = std::move(target.items.front());
    target.items.pop_front();
    target.tries = 0;
    target.busy = false;
    --items_;
    bytes_ -= bytes_of(item);
    item.event.clear();
    done_.push_back(std::move(item));
    ++env_.stats.journal_applied;
    if (target.items.empty()) {
        targets_.erase(it);
    } else {
        line_up(name, target);
    }
    if (done_.size() >= kFlushAt) {
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
    if (!event.ok) {
        // The disk is full, say. Were the node to start now, the marks would say that these were applied.
        done_.insert(done_.end(), items.begin(), items.end());
        flush_at_ = std::min(flush_at_, env_.now + kFlushAgain);
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
    while (!later_.empty() && later_.begin()->first <= env_.now) {
        ready_.push_back(std::move(later_.begin()->second));
        later_.erase(later_.begin());
    }
    offer_some();
}

Time Journal::next_deadline() const {
    Time soonest = flush_at_;
    if (!deadlines_.empty()) soonest = std::min(soonest, deadlines_.begin()->first);
    if (open_ && !closed_ && !later_.empty()) soonest = std::min(soonest, later_.begin()->first);
    return soonest;
}

Journal::Depth Journal::depth(const std::string& target) const {
    const auto it = targets_.find(target);
    if (it == targets_.end()) return {};
    return {it->second.items.size(), it->second.items.front().accepted_ms};
}

Journal::Depth Journal::depth() const {
    Depth out;
    out.waiting = items_;
    for (const auto& [name, target] : targets_) {
        const std::int64_t oldest = target.items.front().accepted_ms;
        if (out.oldest_ms == 0 || oldest < out.oldest_ms) out.oldest_ms = oldest;
    }
    return out;
}

}  // namespace hf::core
