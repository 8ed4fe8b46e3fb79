#include "agent/port/translate.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "agent/port/large.hpp"
#include "agent/port/peer_tables.hpp"

namespace hf::port {

namespace {

template <class T>
std::string text(const T* string) {
    return string == nullptr ? std::string() : string->str();
}

Bytes bytes(const flatbuffers::Vector<std::uint8_t>* vector) {
    return vector == nullptr ? Bytes() : Bytes(vector->begin(), vector->end());
}

std::vector<std::uint64_t> numbers(const flatbuffers::Vector<std::uint64_t>* vector) {
    if (vector == nullptr) return {};
    // Where a peer put them: verified to be there, but not on a boundary of theirs.
    std::vector<std::uint64_t> out(vector->size());
    if (!out.empty()) std::memcpy(out.data(), vector->Data(), out.size() * sizeof(std::uint64_t));
    return out;
}

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> vector_of(
    flatbuffers::FlatBufferBuilder& fbb, const Bytes& from) {
    return from.empty() ? 0 : fbb.CreateVector(from.data(), from.size());
}

flatbuffers::Offset<flatbuffers::String> string_of(flatbuffers::FlatBufferBuilder& fbb,
                                                   const std::string& from) {
    return from.empty() ? 0 : fbb.CreateString(from);
}

// What a message carries beside its record: token and size, zeroes when it carries nothing.
struct Token {
    std::uint64_t token = 0;
    std::uint64_t bytes = 0;
};
Token carry(Channel& channel, const core::AttachmentRef& attached) {
    if (attached == nullptr) return {};
    // SAFETY: the core only has handles that to_event gave it, which are of this class.
    return {channel.carry(std::static_pointer_cast<const SealedBody>(attached)), attached->bytes()};
}

core::Outcome outcome_of(abi::Outcome outcome) {
    switch (outcome) {
        case abi::Outcome::Applied:
            return core::Outcome::Applied;
        case abi::Outcome::PreconditionFailed:
            return core::Outcome::PreconditionFailed;
        case abi::Outcome::NotFound:
            return core::Outcome::NotFound;
        case abi::Outcome::Refused:
            return core::Outcome::Refused;
        case abi::Outcome::Unknown:
            break;
    }
    return core::Outcome::Unknown;  // also what a number outside the enum means: nothing is proven
}

core::StoreAnswer answer_of(Handle from, const Received& record, abi::Outcome outcome) {
    core::StoreAnswer answer;
    answer.from = from;
    answer.op = record.reply_to;
    answer.outcome = outcome_of(outcome);
    return answer;
}

core::ActivateStatus status_of(abi::ActivateStatus status) {
    switch (status) {
        case abi::ActivateStatus::Ok:
            return core::ActivateStatus::Ok;
        case abi::ActivateStatus::Full:
            return core::ActivateStatus::Full;
        case abi::ActivateStatus::Failed:
            break;
    }
    return core::ActivateStatus::Failed;
}

core::DeliverStatus status_of(abi::DeliverStatus status) {
    switch (status) {
        case abi::DeliverStatus::Ok:
            return core::DeliverStatus::Ok;
        case abi::DeliverStatus::NotResident:
            return core::DeliverStatus::NotResident;
        case abi::DeliverStatus::Failed:
            return core::DeliverStatus::Failed;
        case abi::DeliverStatus::Trapped:
            return core::DeliverStatus::Trapped;
        case abi::DeliverStatus::CpuDeadline:
            return core::DeliverStatus::CpuDeadline;
        case abi::DeliverStatus::WallDeadline:
            return core::DeliverStatus::WallDeadline;
        case abi::DeliverStatus::Limit:
            return core::DeliverStatus::Limit;
        case abi::DeliverStatus::Calling:
            return core::DeliverStatus::Calling;
    }
    return core::DeliverStatus::Failed;
}

core::Event delivered(Handle from, const Received& record) {
    const auto& table = record.as<abi::Delivered>();
    core::DeliveredIn event;
    event.from = from;
    event.op = record.reply_to;
    event.activation = table.activation();
    event.status = status_of(table.status());
    event.error = text(table.error());
    event.reply_status = table.reply_status();
    event.reply_headers = bytes(table.reply_headers());
    event.reply_body = bytes(table.reply_body());
    event.reply_attached = record.attached;
    event.changes = bytes(table.changes());
    event.passivate = table.passivate();
    if (table.alarm() != nullptr)
        event.alarm = core::AlarmWish{table.alarm()->due_ms(), table.alarm()->clear()};
    if (table.sends() != nullptr) {
        for (const auto* send : *table.sends())
            event.sends.push_back(
                {text(send->target()), text(send->method()), bytes(send->payload())});
    }
    if (table.sockets() != nullptr) {
        for (const auto* wish : *table.sockets())
            event.sockets.push_back({wish->connection(),
                                     wish->close(),
                                     wish->code(),
                                     wish->binary(),
                                     bytes(wish->data()),
                                     numbers(wish->also())});
    }
    if (const auto* call = table.call())
        event.call = core::CallWish{call->n(),
                                    text(call->target()),
                                    text(call->method()),
                                    bytes(call->payload()),
                                    core::Time{call->timeout_ms()} * core::kMs};
    return event;
}

core::Event listed(Handle from, const Received& record) {
    const auto& table = record.as<abi::Listed>();
    core::StoreAnswer answer = answer_of(from, record, table.outcome());
    answer.more = table.more();
    answer.reason = text(table.reason());
    if (table.objects() != nullptr) {
        for (const auto* object : *table.objects())
            answer.objects.push_back({text(object->key()),
                                      object->size(),
                                      text(object->etag()),
                                      object->last_modified_ms()});
    }
    answer.store_time_ms = table.store_time_ms();
    return answer;
}

core::Event got(Handle from, const Received& record) {
    const auto& table = record.as<abi::Got>();
    core::StoreAnswer answer = answer_of(from, record, table.outcome());
    answer.body = bytes(table.body());
    answer.etag = text(table.etag());
    answer.reason = text(table.reason());
    if (table.write_id() != nullptr)
        answer.write_id = {table.write_id()->hi(), table.write_id()->lo()};
    if (record.attached != nullptr && !read_state(*record.attached, answer.body)) {
        answer.outcome = core::Outcome::Unknown;
        answer.reason = "the object's memory file could not be read";
    }
    return answer;
}

core::Event checkpointed(Handle from, const Received& record) {
    const auto& table = record.as<abi::Checkpointed>();
    core::CheckpointedIn event{from,
                               record.reply_to,
                               table.activation(),
                               table.ok(),
                               bytes(table.base()),
                               text(table.error())};
    if (record.attached != nullptr && !read_state(*record.attached, event.base)) {
        event.ok = false;
        event.error = "the state's memory file could not be read";
    }
    return event;
}

core::Event stored(Handle from, const Received& record) {
    const auto& table = record.as<abi::Stored>();
    core::StoreAnswer answer = answer_of(from, record, table.outcome());
    answer.etag = text(table.etag());
    answer.reason = text(table.reason());
    if (table.write_id() != nullptr)
        answer.write_id = {table.write_id()->hi(), table.write_id()->lo()};
    return answer;
}

}  // namespace

core::Kind kind_of(abi::Kind kind) {
    switch (kind) {
        case abi::Kind::Gateway:
            return core::Kind::Gateway;
        case abi::Kind::Storage:
            return core::Kind::Storage;
        case abi::Kind::Runtime:
            return core::Kind::Runtime;
        case abi::Kind::Placement:
            return core::Kind::Placement;
        case abi::Kind::Drain:
            return core::Kind::Drain;
        case abi::Kind::None:
            break;
    }
    return core::Kind::None;
}

abi::Kind kind_of(core::Kind kind) {
    switch (kind) {
        case core::Kind::Gateway:
            return abi::Kind::Gateway;
        case core::Kind::Storage:
            return abi::Kind::Storage;
        case core::Kind::Runtime:
            return abi::Kind::Runtime;
        case core::Kind::Placement:
            return abi::Kind::Placement;
        case core::Kind::Drain:
            return abi::Kind::Drain;
        case core::Kind::None:
            break;
    }
    return abi::Kind::None;
}

Sent send(Channel& channel, const core::StoreRequest& action) {
    auto& fbb = channel.builder();
    const auto key = fbb.CreateString(action.key);
    switch (action.verb) {
        case core::StoreVerb::Get:
            return channel.request(action.op, abi::CreateGet(fbb, key), 0, 0);
        case core::StoreVerb::Delete: {
            const auto also = action.also.empty() ? 0 : fbb.CreateVectorOfStrings(action.also);
            return channel.request(
                action.op, abi::CreateDelete(fbb, key, abi::Condition::None, 0, also), 0, 0);
        }
        case core::StoreVerb::Probe:
            return channel.request(action.op, abi::CreateProbe(fbb), 0, 0);
        case core::StoreVerb::List: {
            const auto after = fbb.CreateString(action.after);
            return channel.request(action.op, abi::CreateList(fbb, key, after, action.limit), 0, 0);
        }
        case core::StoreVerb::Put:
            break;
    }
    const bool large = action.body.size() > kInlineObjectBytesMax;
    const auto file = large ? state_file(action.body) : nullptr;
    if (large && file == nullptr) return Sent::NoFile;
    const Token token = carry(channel, file);
    const auto body = large ? 0 : fbb.CreateVector(action.body.data(), action.body.size());
    const auto etag = string_of(fbb, action.etag);
    const abi::WriteId write_id(action.write_id.hi, action.write_id.lo);
    auto condition = abi::Condition::None;
    if (action.condition == core::Condition::IfAbsent) condition = abi::Condition::IfAbsent;
    if (action.condition == core::Condition::IfMatch) condition = abi::Condition::IfMatch;
    return channel.request(
        action.op,
        abi::CreatePut(fbb, key, body, condition, etag, &write_id, token.token, token.bytes),
        0,
        0);
}

Sent send(Channel& channel, const core::Activate& action, const std::string& tenant) {
    auto& fbb = channel.builder();
    // The core sends what is larger than a piece alone.
    const bool large =
        action.entries.size() == 1 && action.entries.front().changes.size() > kPayloadBytesMax;
    const auto file = large ? state_file(action.entries.front().changes) : nullptr;
    if (large && file == nullptr) return Sent::NoFile;
    const Token token = carry(channel, file);
    std::vector<flatbuffers::Offset<abi::StoredChanges>> entries;
    entries.reserve(action.entries.size());
    for (const core::StoredChanges& entry : action.entries) {
        const auto changes = large ? 0 : vector_of(fbb, entry.changes);
        entries.push_back(abi::CreateStoredChanges(fbb, entry.seq, entry.base, changes));
    }
    const auto list = fbb.CreateVector(entries);
    const auto unit = fbb.CreateString(action.unit);
    const auto tenant_name = fbb.CreateString(tenant);
    const auto class_name = fbb.CreateString(action.class_name);
    const auto name = fbb.CreateString(action.name);
    return channel.request(action.op,
                           abi::CreateActivate(fbb,
                                               unit,
                                               tenant_name,
                                               class_name,
                                               name,
                                               action.activation,
                                               action.epoch,
                                               action.part,
                                               action.more,
                                               list,
                                               action.alarm_due_ms,
                                               token.token,
                                               token.bytes),
                           0,
                           0);
}

Sent send(Channel& channel, const core::Deliver& action, std::int64_t wall_now_ms) {
    auto& fbb = channel.builder();
    const auto event = vector_of(fbb, action.event);
    const abi::EventId id(action.event_incarnation, action.event_counter);
    // SAFETY of the cast: both enums list guest ABI v1's kinds by their numbers, asserted here.
    static_assert(static_cast<int>(core::EventKind::Entity) ==
                  static_cast<int>(abi::EventKind::Entity));
    const auto kind = static_cast<abi::EventKind>(action.kind);
    const Token body = carry(channel, action.attached);
    return channel.request(action.op,
                           abi::CreateDeliver(fbb,
                                              action.activation,
                                              &id,
                                              action.attempt,
                                              kind,
                                              event,
                                              wall_now_ms,
                                              body.token,
                                              body.bytes),
                           action.deadline,
                           action.trace);
}

Sent send(Channel& channel, const core::Resume& action) {
    auto& fbb = channel.builder();
    const auto payload = vector_of(fbb, action.payload);
    const abi::EventId id(action.event_incarnation, action.event_counter);
    return channel.request(
        action.op,
        abi::CreateResume(fbb, action.activation, &id, action.n, action.code, payload),
        action.deadline,
        action.trace);
}

Sent send(Channel& channel, const core::Checkpoint& action) {
    return channel.request(
        action.op, abi::CreateCheckpoint(channel.builder(), action.activation), 0, 0);
}

Sent send(Channel& channel, const core::Drop& action) {
    return channel.request(action.op, abi::CreateDrop(channel.builder(), action.activation), 0, 0);
}

Sent send(Channel& channel, const core::Place& action) {
    auto& fbb = channel.builder();
    std::vector<flatbuffers::Offset<abi::Candidate>> candidates;
    for (const core::Candidate& candidate : action.candidates) {
        const auto node = fbb.CreateString(candidate.node);
        candidates.push_back(abi::CreateCandidate(fbb,
                                                  candidate.id,
                                                  node,
                                                  candidate.instance,
                                                  candidate.handle.generation,
                                                  true,
                                                  candidate.resident,
                                                  candidate.capacity,
                                                  candidate.inflight));
    }
    const auto list = fbb.CreateVector(candidates);
    const auto subject = fbb.CreateString(action.subject);
    const auto class_name = fbb.CreateString(action.class_name);
    return channel.request(
        action.op,
        abi::CreatePlace(fbb, subject, class_name, 0, list, action.sequence, false),
        action.deadline,
        0);
}

Sent send(Channel& channel, const core::NextStep& action) {
    auto& fbb = channel.builder();
    std::vector<flatbuffers::Offset<abi::Resident>> residents;
    for (std::uint32_t id = 0; id < action.residents.size(); ++id)
        residents.push_back(abi::CreateResident(fbb, id, fbb.CreateString(action.residents[id])));
    const auto list = fbb.CreateVector(residents);
    const auto remaining = static_cast<std::uint32_t>(action.residents.size());
    return channel.request(
        action.op,
        abi::CreateNext(
            fbb, list, remaining, action.in_flight, action.in_flight_max, 0, 0, 0, action.sequence),
        0,
        0);
}

Sent send(Channel& channel, const core::ReplyOut& action) {
    auto& fbb = channel.builder();
    const auto headers = vector_of(fbb, action.headers);
    const auto body = vector_of(fbb, action.body);
    const auto sentence = string_of(fbb, action.text);
    // SAFETY of the cast: both enums list the same reasons in the same order, asserted here.
    static_assert(static_cast<int>(core::ReplyReason::Internal) ==
                  static_cast<int>(abi::ReplyReason::Internal));
    const auto reason = static_cast<abi::ReplyReason>(action.reason);
    const Token large = carry(channel, action.attached);
    return channel.reply(action.req_id,
                         abi::CreateReply(fbb,
                                          action.status,
                                          reason,
                                          action.retry_after_ms,
                                          headers,
                                          body,
                                          sentence,
                                          large.token,
                                          large.bytes));
}

Sent send(Channel& channel, const core::SocketTaken& action) {
    auto& fbb = channel.builder();
    const auto sentence = string_of(fbb, action.text);
    return channel.reply(action.req_id,
                         abi::CreateSocketTaken(fbb, action.ok, action.code, sentence));
}

Sent send(Channel& channel, const core::SocketSend& action) {
    auto& fbb = channel.builder();
    const auto data = vector_of(fbb, action.data);
    return channel.notify_each(
        abi::CreateSocketSend(fbb, Channel::kAnyConnection, action.binary, data),
        action.connections);
}

Sent send(Channel& channel, const core::CloseSocket& action) {
    auto& fbb = channel.builder();
    const auto reason = string_of(fbb, action.reason);
    return channel.notify(abi::CreateCloseSocket(fbb, action.connection, action.code, reason));
}

Sent send_shed(Channel& channel, core::Time deadline) {
    return channel.notify(abi::CreateShed(channel.builder(), deadline));
}

Sent send_stop(Channel& channel, const std::string& reason) {
    auto& fbb = channel.builder();
    const auto sentence = fbb.CreateString(reason);
    return channel.notify(abi::CreateStop(fbb, sentence));
}

std::optional<core::Event> to_event(Handle from, const Received& record) {
    switch (record.type) {
        case abi::Body::Greet: {
            const auto& table = record.as<abi::Greet>();
            core::Greeted event{
                from, kind_of(table.kind()), text(table.name()), text(table.version()), {}, 0, 0};
            event.minor_min = table.minor_min();
            event.minor_max = table.minor_max();
            if (table.policies() != nullptr) {
                for (const auto* policy : *table.policies()) event.policies.push_back(text(policy));
            }
            return event;
        }
        case abi::Body::SocketOpened: {
            const auto& table = record.as<abi::SocketOpened>();
            core::SocketOpenedIn event;
            event.from = from;
            event.req_id = record.req_id;
            event.connection = table.connection();
            event.class_name = text(table.class_name());
            event.name = text(table.name());
            event.event = bytes(table.event());
            event.deadline = record.deadline_ns;
            event.trace = record.trace_id;
            return event;
        }
        case abi::Body::SocketMessage: {
            const auto& table = record.as<abi::SocketMessage>();
            core::SocketMessageIn event;
            event.from = from;
            event.req_id = record.req_id;
            event.connection = table.connection();
            event.binary = table.binary();
            event.data = bytes(table.data());
            event.deadline = record.deadline_ns;
            event.trace = record.trace_id;
            return event;
        }
        case abi::Body::SocketClosed: {
            const auto& table = record.as<abi::SocketClosed>();
            return core::SocketClosedIn{
                from, table.connection(), table.code(), text(table.reason())};
        }
        case abi::Body::Ready: {
            const auto& table = record.as<abi::Ready>();
            return core::ReadyIn{from, table.ok(), text(table.error())};
        }
        case abi::Body::Request: {
            const auto& table = record.as<abi::Request>();
            core::RequestIn event;
            event.from = from;
            event.req_id = record.req_id;
            event.class_name = text(table.class_name());
            event.name = text(table.name());
            event.event = bytes(table.event());
            event.deadline = record.deadline_ns;
            event.trace = record.trace_id;
            event.later = table.durable();
            event.attached = record.attached;
            if (table.origin() != nullptr) {
                event.origin = origin_from(*table.origin());
                if (!event.origin)
                    return core::Violated{from, "passed on what no node asks of another"};
            }
            return event;
        }
        case abi::Body::PeerReplied:
            return peer_replied(from, record);
        case abi::Body::BodyReleased:
            return core::BodyReleasedIn{from, record.as<abi::BodyReleased>().request_id()};
        case abi::Body::Got:
            return got(from, record);
        case abi::Body::Stored:
            return stored(from, record);
        case abi::Body::Listed:
            return listed(from, record);
        case abi::Body::Deleted: {
            const auto& table = record.as<abi::Deleted>();
            core::StoreAnswer answer = answer_of(from, record, table.outcome());
            answer.reason = text(table.reason());
            return answer;
        }
        case abi::Body::Probed: {
            const auto& table = record.as<abi::Probed>();
            core::StoreAnswer answer = answer_of(from, record, table.outcome());
            answer.conditional_writes = table.conditional_writes();
            answer.store_time_ms = table.store_time_ms();
            answer.reason = text(table.reason());
            return answer;
        }
        case abi::Body::Activated: {
            const auto& table = record.as<abi::Activated>();
            return core::ActivatedIn{from,
                                     record.reply_to,
                                     table.activation(),
                                     status_of(table.status()),
                                     text(table.error()),
                                     table.wants_stop()};
        }
        case abi::Body::Delivered:
            return delivered(from, record);
        case abi::Body::Checkpointed:
            return checkpointed(from, record);
        case abi::Body::Dropped:
            return core::DroppedIn{from, record.reply_to};
        case abi::Body::Placed: {
            const auto& table = record.as<abi::Placed>();
            return core::PlacedIn{
                from, record.reply_to, table.none(), table.choice(), text(table.reason())};
        }
        case abi::Body::Step: {
            const auto& table = record.as<abi::Step>();
            core::StepIn event{
                from, record.reply_to, {}, table.wait_ms(), table.give_up(), text(table.reason())};
            if (table.hand_over() != nullptr)
                event.hand_over.assign(table.hand_over()->begin(), table.hand_over()->end());
            return event;
        }
        case abi::Body::Cancelled:
            return std::nullopt;  // its answer is sent all the same and dropped there
        default:
            // The schema has it, and nothing here acts on it: silence would look like consent.
            return core::Violated{from,
                                  std::string("sent ") + abi::EnumNameBody(record.type) +
                                      ", which this node does not take"};
    }
}

}  // namespace hf::port
