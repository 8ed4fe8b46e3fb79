// Requests that are accepted for later: into the journal or, by class, into memory; out of the journal into mailboxes (part
// of Units).
#include <utility>

#include "abi/base/limits.hpp"
#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/units.hpp"

namespace hf::core {

namespace {
constexpr std::uint16_t kAccepted = 202;
}  // namespace

void Units::accept_later(const RequestIn& request, const ClassSpec& spec) {
    Mail mail;
    mail.event = request.event;
    mail.trace = request.trace;
    mail.attached = request.attached;
    if (spec.mailbox == Mailbox::Buffered) {
        mail.waiting.origin = FromBuffered{};
        if (auto refusal = admit(request.class_name, request.name, std::move(mail)))
            return refuse(request.from, request.req_id, std::move(*refusal));
        ReplyOut reply;
        reply.to = request.from;
        reply.req_id = request.req_id;
        reply.status = kAccepted;
        return emit_reply(std::move(reply));
    }
    if (auto refusal = no_room_for(mail))
        return refuse(request.from, request.req_id, std::move(*refusal));
    if (request.attached != nullptr)
        return refuse(request.from,
                      request.req_id,
                      {ReplyReason::TooLarge,
                       "a request accepted for later has a body of at most " +
                           std::to_string(kPayloadBytesMax) + " bytes"});
    if (request.event.size() > kPayloadBytesMax + kHeaderBytesMax - kMessageIdHeaderBytes)
        return refuse(request.from,
                      request.req_id,
                      {ReplyReason::TooLarge,
                       "with its id the event is above " +
                           std::to_string(kPayloadBytesMax + kHeaderBytesMax) + " bytes"});
    if (const auto key = actor_unit(env_.config.tenant, request.class_name, request.name); !key)
        return refuse(request.from, request.req_id, {ReplyReason::BadName, key.error().message});
    JournalItem item;
    item.class_name = request.class_name;
    item.name = request.name;
    item.event = request.event;
    auto refusal =
        journal_.accept({request.from, request.req_id, latest(request.deadline)}, std::move(item));
    if (refusal) refuse(request.from, request.req_id, std::move(*refusal));
}

Offered Units::offer_journalled(const JournalItem& item, bool last) {
    Mail mail;
    mail.waiting.origin = FromMessage{EventKind::Http, journal_.source(), item.n, last};
    mail.event = item.event;
    const auto refusal = admit(item.class_name, item.name, std::move(mail));
    if (!refusal) return Offered::Taken;
    const bool full =
        refusal->reason == ReplyReason::Busy || refusal->reason == ReplyReason::Unavailable;
    return full ? Offered::NoRoom : Offered::NotHere;
}

void Units::journalled_ended(Unit& receiver, const FromMessage& message, const ReplyOut& reply) {
    journal_.ended(full_name(receiver), message.n, offer_end(message, reply));
}

// It has left the journal, and nothing is left there for its actor: nobody will ask whether it was applied.
void Units::journal_settled(const JournalItem& item) {
    drop_mark(item.class_name, item.name, journal_.source(), item.n);
}

}  // namespace hf::core
