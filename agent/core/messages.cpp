// One-way messages between units: stored with their sender, offered one at a time to each receiver, applied there once, and
// done when the sender has stored that (protocol 7) (part of Units).
//
// A message's number is made of its entry's sequence number: it rises for ever without being kept anywhere, so a mark of it
// at the receiver stays true over restarts of both.
#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// Senders whose last message a unit remembers; beyond it a new sender has to wait.
constexpr std::size_t kMarksMax = 4096;
// Of one entry: what the verifier's bound of tables leaves beside changes and messages.
constexpr std::size_t kDonePerEntry = 256;
// Settled marks beside what an entry holds, about a dozen; the object it becomes has room for them (kInlineObjectBytesMax).
constexpr std::size_t kSettledBytes = 1024;
}  // namespace

void Units::offer_messages(Unit& unit) {
    if (unit.stored.outbox.empty() || closing_ || unit.hold != Hold::Serving) return;
    for (auto it = unit.stored.outbox.begin(); it != unit.stored.outbox.end();) {
        const std::string& target = it->first.first;
        if (unit.offers.emplace(target, it->first.second).second) messages_.add({unit.id, target});
        it = unit.stored.outbox.upper_bound({target, UINT64_MAX});
    }
    messages_.run();
}

Offered Units::offer_message(UnitId id, const std::string& target, const Chance& chance) {
    Unit* sender = closing_ ? nullptr : unit_of(id);
    if (sender == nullptr || !sender->offers.contains(target)) return Offered::Nothing;
    const auto at = sender->offers.find(target);
    const auto item = sender->stored.outbox.find({target, at->second});
    if (item == sender->stored.outbox.end()) {
        sender->offers.erase(at);
        return Offered::Nothing;
    }
    const std::uint64_t n = item->second.n;
    Mail mail;
    mail.waiting.origin = FromMessage{EventKind::Call, sender->key, n, chance.last};
    mail.event = call_event(message_id(sender->key, n),
                            true,
                            full_name(*sender),
                            item->second.method,
                            item->second.payload);
    const auto [class_name, actor] = split_target(target);
    const auto refusal = admit(class_name, actor, std::move(mail));
    if (!refusal) return Offered::Taken;
    if (refusal->reason == ReplyReason::Busy || refusal->reason == ReplyReason::Unavailable)
        return Offered::NoRoom;
    if (refusal->reason == ReplyReason::UnknownClass && !chance.last_look) {
        env_.note(NoteLevel::Warn,
                  "messages",
                  sender->key + ": message " + std::to_string(n) + " to '" + target +
                      "' waits: " + refusal->text);
        return Offered::NotHere;
    }
    HF_CHECK(unit_of(id) == sender, "a unit with undelivered messages is not forgotten");
    // Nobody of that name will ever take it, or nobody has for long.
    bury({sender->key, n, target, item->second.method, item->second.payload, refusal->text, 0});
    message_done(*sender, target, n);
    return Offered::Nothing;
}

void Units::forget_offers(Unit& unit) {
    for (const auto& [target, n] : unit.offers) messages_.forget({unit.id, target});
    unit.offers.clear();
}

bool Units::applied_already(const Unit& unit, const FromMessage& message) const {
    for (const auto* marks : {&unit.applied, &unit.stored.applied}) {
        const auto it = marks->find(message.source);
        if (it != marks->end() && it->second >= message.n) return true;
    }
    return false;
}

bool Units::room_for_mark(const Unit& unit, const FromMessage& message) const {
    return unit.stored.applied.contains(message.source) ||
           unit.stored.applied.size() + unit.applied.size() < kMarksMax;
}

// What was promised and cannot be kept is put where a person finds it.
void Units::bury(DeadLetter letter) {
    letter.why = shortened(std::move(letter.why));
    ++env_.stats.messages_dead;
    env_.note(NoteLevel::Error,
              "messages",
              letter.source + ": message " + std::to_string(letter.n) + " to '" + letter.target +
                  "' is given up: " + letter.why);
    letter.at_ms = env_.wall_ms();
    env_.emit(JournalBury{std::move(letter)});
}

// The receiver's answer has passed its gate: what it did, and its mark, are stored.
void Units::message_ended(Unit& receiver, const FromMessage& message, const ReplyOut& reply) {
    if (message.peer) return answer_peer(*message.peer, reply);
    if (message.source == journal_.source()) return journalled_ended(receiver, message, reply);
    Unit* sender = unit_named(message.source);
    if (sender == nullptr) return;
    const std::string target = full_name(receiver);
    const auto offer = sender->offers.find(target);
    const auto name = std::pair(sender->id, target);
    if (offer == sender->offers.end() || offer->second != message.n || !messages_.is_open(name))
        return;
    if (reply.reason == ReplyReason::Ok) {
        ++env_.stats.messages_applied;
        messages_.ended(name, OfferEnd::Applied);
        return message_done(*sender, target, message.n);
    }
    messages_.ended(name, offer_end(message, reply));
}

OfferEnd Units::offer_end(const FromMessage& message, const ReplyOut& reply) {
    if (reply.reason == ReplyReason::Ok) return OfferEnd::Applied;
    if (message.poison) return OfferEnd::Poisoned;
    const bool failed =
        reply.reason == ReplyReason::ActorFailed || reply.reason == ReplyReason::ActorLimit;
    return failed ? OfferEnd::Failed : OfferEnd::Refused;
}

void Units::message_done(Unit& sender, const std::string& target, std::uint64_t n) {
    sender.done.emplace_back(target, n);
    pump(sender);
}

// Not while its log is being read: the listing would miss the entry, or find one that nobody expects.
void Units::put_done(Unit& unit) {
    const bool loading = unit.memory == Memory::Listing || unit.memory == Memory::Sealing ||
                         unit.memory == Memory::Fetching;
    if (unit.done.empty() || unit.hold != Hold::Serving || !unit.sealed || unit.next_seq == 0 ||
        loading)
        return;
    LogEntry part;
    std::size_t count = 0;
    while (count < std::min(unit.done.size(), kDonePerEntry) &&
           entry_cost(part) < env_.config.limits.entry_bytes / 2)
        part.outbox_done.push_back(unit.done[count++]);
    unit.done.erase(unit.done.begin(), unit.done.begin() + static_cast<std::ptrdiff_t>(count));
    append(unit, std::move(part));
}

// Its sender has stored that they are done: the next ones may be offered, and a receiver that has no more of them to come
// need not remember that it applied them.
void Units::messages_settled(Unit& sender, const LogEntry& stored) {
    for (const auto& [target, n] : stored.outbox_done) {
        sender.offers.erase(target);
        const auto next = sender.stored.outbox.lower_bound({target, 0});
        if (next != sender.stored.outbox.end() && next->first.first == target) continue;
        const auto [class_name, actor] = split_target(target);
        drop_mark(class_name, actor, sender.key, n);
    }
}

// Nobody will ask any more whether `n` of that source was applied. A mark that has moved on, or is about to, stays.
void Units::drop_mark(const std::string& class_name,
                      const std::string& actor,
                      const std::string& source,
                      std::uint64_t n) {
    const auto key = actor_unit(env_.config.tenant, class_name, actor);
    Unit* receiver = key ? unit_named(*key) : nullptr;
    if (receiver == nullptr) return;
    if (env_.config.lease.none()) return drop_mark_of(*receiver, source, n);
    if (receiver->hold == Hold::Serving) return drop_mark_later(*key, source, n);
    if (!receiver->owner.empty()) settle_at_owner(*receiver, source, n);
}

void Units::drop_mark_of(Unit& receiver, const std::string& source, std::uint64_t n) {
    if (receiver.applied.contains(source)) return;
    if (receiver.stored.forget_mark(source, n) && receiver.settled_marks.size() < kMarksMax)
        receiver.settled_marks.insert_or_assign(source, n);
}

// The entry about to be written says which marks are not needed any more, as many as fit.
void Units::say_settled(const Unit& unit, LogEntry& entry) const {
    const bool alone = entry_cost(entry) == 0 && !entry.alarm && !entry.alarm_cleared;
    const std::size_t room = alone ? env_.config.limits.entry_bytes / 2 : kSettledBytes;
    std::size_t bytes = 0;
    for (const auto& mark : unit.settled_marks) {
        bytes += mark_cost(mark.first);
        if (bytes > room) return;
        entry.settled.push_back(mark);
    }
}

// It is stored, or a base is without them.
void Units::settled_stored(Unit& unit, LogEntry& stored) {
    for (const auto& [source, n] : std::exchange(stored.settled, {})) {
        const auto mark = unit.settled_marks.find(source);
        if (mark != unit.settled_marks.end() && mark->second == n) unit.settled_marks.erase(mark);
    }
}

// Before it leaves memory for want of work, an entry of its own: later ones may be long in coming.
void Units::put_settled(Unit& unit) {
    if (unit.settled_marks.empty() || !unit.leaving || unit.memory != Memory::Resident ||
        unit.hold != Hold::Serving || !pausing(unit))
        return;
    if (*unit.leaving != StopReason::Evict && *unit.leaving != StopReason::Passivate) return;
    append(unit, {});
}

}  // namespace hf::core
