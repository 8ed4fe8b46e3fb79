// How events end: who hears it, once, and at their deadline at the latest (part of Units).
#include <algorithm>
#include <array>
#include <utility>

#include "abi/base/check.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
// A refusal is a sentence; it may quote what a plugin said, and that may fill a record by itself.
constexpr std::size_t kReplyTextBytes = 1024;
// WebSocket close codes (RFC 6455, 7.4): something failed here; try again later.
constexpr std::uint16_t kCloseFailed = 1011;
constexpr std::uint16_t kCloseAgain = 1013;
}  // namespace

EventKind kind_of(const Origin& origin) {
    if (const auto* message = std::get_if<FromMessage>(&origin)) return message->kind;
    constexpr std::array kKinds{EventKind::Http,
                                EventKind::WsOpen,
                                EventKind::WsMessage,
                                EventKind::WsClose,
                                EventKind::Call,
                                EventKind::Call,
                                EventKind::Alarm,
                                EventKind::Restored,
                                EventKind::Http,
                                EventKind::Stop,
                                EventKind::Call};
    static_assert(kKinds.size() == std::variant_size_v<Origin>);
    return kKinds.at(origin.index());
}

std::string Units::shortened(std::string text) {
    if (text.size() > kReplyTextBytes) text.replace(kReplyTextBytes - 3, std::string::npos, "...");
    return text;
}

void Units::emit_reply(ReplyOut reply) {
    reply.text = shortened(std::move(reply.text));
    supervision_.told(reply.to);
    // One that is gone will not say that it is done with it.
    if (reply.attached != nullptr && supervision_.find(reply.to) != nullptr)
        bulk_.lend(reply.to, reply.req_id, reply.attached);
    env_.emit(std::move(reply));
}

void Units::body_released(const BodyReleasedIn& event) {
    if (!bulk_.released(event.from, event.req_id)) ++env_.stats.stale_messages;
}

void Units::answer(Unit& unit, Waiting& waiting, ReplyOut reply) {
    if (waiting.deadline) {
        deadlines_.erase(*waiting.deadline);
        waiting.deadline.reset();
    }
    if (waiting.answered) {
        if (const auto* opened = std::get_if<FromSocketOpened>(&waiting.origin))
            opened_late(unit, *opened, reply);
        return;
    }
    waiting.answered = true;
    ++env_.stats.answered;
    if (reply.reason == ReplyReason::Deadline) ++env_.stats.deadline;
    if (const auto* request = std::get_if<FromRequest>(&waiting.origin)) {
        reply.to = request->gateway;
        reply.req_id = request->req_id;
        emit_reply(std::move(reply));
    } else if (const auto* opened = std::get_if<FromSocketOpened>(&waiting.origin)) {
        open_answered(unit, *opened, std::move(reply));
    } else if (const auto* message = std::get_if<FromSocketMessage>(&waiting.origin)) {
        SocketTaken taken{message->gateway, message->req_id, true, 0, {}};
        taken.ok = reply.reason == ReplyReason::Ok;
        const bool again =
            reply.reason == ReplyReason::Busy || reply.reason == ReplyReason::Unavailable;
        if (!taken.ok) taken.code = again ? kCloseAgain : kCloseFailed;
        taken.text = shortened(std::move(reply.text));
        supervision_.told(taken.to);
        env_.emit(std::move(taken));
    } else if (const auto* closed = std::get_if<FromSocketClosed>(&waiting.origin)) {
        if (reply.reason != ReplyReason::Ok) close_failed(unit, *closed, reply);
    } else if (const auto* call = std::get_if<FromCall>(&waiting.origin)) {
        call_ended(*call, reply);
    } else if (const auto* peer = std::get_if<FromPeer>(&waiting.origin)) {
        answer_peer(*peer, std::move(reply));
    } else if (const auto* sent = std::get_if<FromMessage>(&waiting.origin)) {
        message_ended(unit, *sent, reply);
    } else if (const auto* alarm = std::get_if<FromAlarm>(&waiting.origin)) {
        visit_ended(unit, *alarm, reply);
    } else if (std::holds_alternative<FromBuffered>(waiting.origin) &&
               reply.reason != ReplyReason::Ok) {
        ++env_.stats.buffered_lost;
        env_.note(NoteLevel::Warn,
                  "units",
                  unit.key + ": a request that was accepted in memory is lost: " + reply.text);
    } else if (std::holds_alternative<FromStop>(waiting.origin)) {
        ++(reply.reason == ReplyReason::Ok ? env_.stats.stops : env_.stats.stops_failed);
        if (reply.reason != ReplyReason::Ok)
            env_.note(NoteLevel::Debug, "units", unit.key + ": its stop event: " + reply.text);
    } else if (std::holds_alternative<FromRestart>(waiting.origin)) {
        // A handler that failed has heard it; whoever was undone hears it again.
        unit.restored = unit.restored || reply.reason == ReplyReason::Unavailable;
    }
}

void Units::forget_waiting(Waiting& waiting) {
    HF_CHECK(waiting.answered, "an accepted event has exactly one answer");
    HF_CHECK(accepted_ > 0, "each accepted event is forgotten once");
    --accepted_;
    accepted_bytes_ -= waiting.bytes;
}

void Units::refuse_waiting(Unit& unit, ReplyReason reason, const std::string& text) {
    // What is refused may come again at once, and is then not refused here: a mailbox is emptied once.
    std::deque<Mail> refused = std::exchange(unit.mailbox, {});
    unit.mailbox_bytes = 0;
    look_at_room(unit);
    for (Mail& mail : refused) {
        if (std::holds_alternative<FromRestart>(mail.waiting.origin)) unit.restored = true;
        ReplyOut reply;
        reply.reason = reason;
        reply.text = text;
        reply.retry_after_ms = 1000;
        answer(unit, mail.waiting, std::move(reply));
        forget_waiting(mail.waiting);
    }
}

void Units::deadline_passed(const DeadlineEntry& entry) {
    Unit* unit = unit_of(entry.unit);
    HF_CHECK(unit != nullptr, "a unit outlives the deadlines of its events");
    if (unit->peer_calls != 0 && peer_deadline_passed(entry)) return;
    ReplyOut reply;
    reply.reason = ReplyReason::Deadline;
    reply.text = "the event was not answered in time";
    if (unit->running && unit->running->waiting.event == entry.event) {
        if (std::holds_alternative<FromStop>(unit->running->waiting.origin))
            return stop_late(*unit);
        return answer(*unit, unit->running->waiting, std::move(reply));
    }
    for (Output& output : unit->outputs) {
        if (output.waiting.event == entry.event)
            return answer(*unit, output.waiting, std::move(reply));
    }
    for (auto it = unit->behind.begin(); it != unit->behind.end(); ++it) {
        if (it->waiting.event != entry.event) continue;
        Mail mail = std::move(*it);
        unit->behind.erase(it);
        answer(*unit, mail.waiting, std::move(reply));
        forget_waiting(mail.waiting);
        return;
    }
    for (auto it = unit->mailbox.begin(); it != unit->mailbox.end(); ++it) {
        if (it->waiting.event != entry.event) continue;
        // It has not run, or nothing of what it did is left: it will not run any more.
        Mail mail = std::move(*it);
        unit->mailbox_bytes -= mail.waiting.bytes;
        unit->mailbox.erase(it);
        look_at_room(*unit);
        answer(*unit, mail.waiting, std::move(reply));
        forget_waiting(mail.waiting);
        return;
    }
    HF_CHECK(false, "a deadline belongs to an event that is somewhere");
}

}  // namespace hf::core
