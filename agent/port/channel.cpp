// The supervisor's end of a link. What it must never do: believe a word of the peer's segment that it has not checked in
// a local, block on anything the peer can hold up, or keep more for a slow peer than the bounds below.
#include "agent/port/link_channel.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"

namespace hf::port {

namespace {

// What may wait in private memory for one slow instance: 4096 requests are 40 ms of the fastest link, and 8 MiB are 128
// records of the largest size, more than its rings hold.
constexpr std::size_t kQueueRecordsMax = 4096;
constexpr std::size_t kQueueBytesMax = 8U * 1024U * 1024U;
// An answer may take the whole ring: what else is sent leaves it room.
constexpr std::uint64_t kWholeRing = ~std::uint64_t{0};
// State of an open request of ours.
enum State : std::uint8_t { kSent, kQueued, kAbandoned };

}  // namespace

// ---- sending

Sent LinkChannel::send(abi::Body type,
                       flatbuffers::Offset<void> body,
                       std::uint64_t req_id,
                       std::uint64_t reply_to,
                       std::int64_t deadline_ns,
                       std::uint64_t trace_id) {
    Carried carried = std::exchange(carried_, {});
    const BytesView payload = finish(type, body, reply_to, deadline_ns, trace_id);
    if (sizeof(layout::RecordHeader) + payload.size() > kRecordBytesMax) return Sent::TooLarge;
    if (reply_to != 0) return send_answer(type, payload, reply_to, std::move(carried));
    return send_in_order(type, payload, req_id, std::move(carried));
}

BytesView LinkChannel::finish(abi::Body type,
                              flatbuffers::Offset<void> body,
                              std::uint64_t reply_to,
                              std::int64_t deadline_ns,
                              std::uint64_t trace_id) {
    builder_.Finish(
        abi::CreateEnvelope(
            builder_, seq_ + 1, reply_to, generation_, deadline_ns, trace_id, type, body),
        abi::EnvelopeIdentifier());
    return {builder_.GetBufferPointer(), builder_.GetSize()};
}

Sent LinkChannel::send_answer(abi::Body type,
                              BytesView payload,
                              std::uint64_t reply_to,
                              Carried carried) {
    const ring::OpenRequest* open = asked_.find(reply_to);
    HF_CHECK(open != nullptr, "an answer to a request that the instance has not open");
    HF_CHECK(abi::traits_of(static_cast<abi::Body>(open->type)).reply == type,
             "an answer of the wrong type");
    if (layout::record_bytes(payload.size()) > open->reserved) return Sent::TooLarge;
    const std::uint32_t reserved = open->reserved;
    asked_.erase(reply_to);
    if (answers_.empty() && write(type, 0, payload, kWholeRing, carried)) {
        peer_credit_used_ -= reserved;
        return Sent::Now;
    }
    answers_bytes_ += payload.size();
    answers_.push_back({reserved, type, Bytes(payload.begin(), payload.end()), std::move(carried)});
    return Sent::Queued;
}

Sent LinkChannel::send_in_order(abi::Body type,
                                BytesView payload,
                                std::uint64_t req_id,
                                Carried carried) {
    const abi::MessageTraits& traits = abi::traits_of(type);
    HF_CHECK((req_id != 0) == traits.request, "a request has an id and nothing else has one");
    HF_CHECK(req_id == 0 || table_.find(req_id) == nullptr, "a request id that is open already");
    const std::uint32_t reserve = traits.request ? layout::reserve_bytes(traits.reply_max) : 0;
    const bool now = queue_.empty() && reserve <= credit_ - credit_used_ &&
                     write(type, req_id, payload, fill_max_, carried);
    if (now) {
        credit_used_ += reserve;
    } else {
        if (!enqueue({req_id, type, Bytes(payload.begin(), payload.end()), std::move(carried)}))
            return Sent::Busy;
    }
    if (req_id != 0)
        table_.insert({req_id,
                       reserve,
                       static_cast<std::uint16_t>(type),
                       static_cast<std::uint8_t>(now ? kSent : kQueued)});
    return now ? Sent::Now : Sent::Queued;
}

bool LinkChannel::enqueue(Waiting waiting) {
    if (queue_.size() >= kQueueRecordsMax || queue_bytes_ + waiting.bytes() > kQueueBytesMax)
        return false;
    queue_bytes_ += waiting.bytes();
    queue_.push_back(std::move(waiting));
    return true;
}

Sent LinkChannel::notify_each(flatbuffers::Offset<abi::SocketSend> body,
                              std::span<const std::uint64_t> connections) {
    carried_ = {};
    const abi::Body type = abi::Body::SocketSend;
    const BytesView payload = finish(type, body.Union(), 0, 0, 0);
    if (sizeof(layout::RecordHeader) + payload.size() > kRecordBytesMax) return Sent::TooLarge;
    std::size_t written = 0;
    if (queue_.empty())
        written = write_each(builder_.GetBufferPointer(), payload.size(), connections);
    if (written == connections.size()) return Sent::Now;
    const auto left = connections.subspan(written);
    Waiting waiting{0, type, Bytes(payload.begin(), payload.end()), Carried{}};
    waiting.connections.assign(left.begin(), left.end());
    return enqueue(std::move(waiting)) ? Sent::Queued : Sent::Busy;
}

// To how many of them the message of one was written, which is as many as the ring has room for.
std::size_t LinkChannel::write_each(std::uint8_t* payload,
                                    std::size_t bytes,
                                    std::span<const std::uint64_t> connections) {
    // SAFETY: the bytes are a finished envelope of our own with a SocketSend, and vectors and builders are aligned for any
    // scalar.
    auto* envelope = flatbuffers::GetMutableRoot<flatbuffers::Table>(payload);
    auto* message = envelope->GetPointer<flatbuffers::Table*>(abi::Envelope::VT_BODY);
    for (std::size_t i = 0; i < connections.size(); ++i) {
        HF_CHECK(
            message->SetField(abi::SocketSend::VT_CONNECTION, connections[i], std::uint64_t{0}),
            "a message to many was built with a number");
        renumber(payload);
        if (!write(abi::Body::SocketSend, 0, {payload, bytes}, fill_max_, {})) return i;
    }
    return connections.size();
}

bool LinkChannel::write(abi::Body type,
                        std::uint64_t req_id,
                        BytesView payload,
                        std::uint64_t fill_max,
                        const Carried& carried) {
    // A descriptor goes before its record, and never without it. Where nobody reads any more neither matters.
    if (carried.token != 0 &&
        (!end_.out().fits(payload.size(), fill_max) ||
         ring::send_body(control_.get(),
                         {carried.token, carried.body->bytes(), carried.body->fd()}) ==
             ring::BodySent::Full))
        return false;
    const layout::RecordHeader header{
        static_cast<std::uint32_t>(payload.size()), static_cast<std::uint16_t>(type), 0, req_id};
    if (!end_.out().write(header, payload, fill_max)) return false;
    ++seq_;
    return true;
}

void LinkChannel::pump() {
    if (!pump_answers()) return;
    while (!queue_.empty() && pump_one()) {
    }
}

// False: the ring has no room for the first of them.
bool LinkChannel::pump_answers() {
    while (!answers_.empty()) {
        WaitingAnswer& first = answers_.front();
        renumber(first.payload.data());
        if (!write(first.type, 0, first.payload, kWholeRing, first.carried)) return false;
        peer_credit_used_ -= first.reserved;
        answers_bytes_ -= first.payload.size();
        answers_.pop_front();
    }
    return true;
}

// What waited was overtaken: its number is the next one only now.
void LinkChannel::renumber(std::uint8_t* payload) const {
    // SAFETY: the bytes are a finished envelope of our own, and vectors are aligned for any scalar.
    auto* table = flatbuffers::GetMutableRoot<flatbuffers::Table>(payload);
    HF_CHECK(table->SetField<std::uint64_t>(abi::Envelope::VT_SEQ, seq_ + 1, 0),
             "every envelope has a number");
}

// Sends the first of the queue, or drops it when its caller gave up. False: it has to wait.
bool LinkChannel::pump_one() {
    Waiting& first = queue_.front();
    if (!first.connections.empty()) return pump_each(first);
    ring::OpenRequest* open = first.req_id != 0 ? table_.find(first.req_id) : nullptr;
    if (first.req_id == 0 || open != nullptr) {
        const std::uint32_t reserve = open != nullptr ? open->reserved : 0;
        if (reserve > credit_ - credit_used_) return false;
        renumber(first.payload.data());
        if (!write(first.type, first.req_id, first.payload, fill_max_, first.carried)) return false;
        if (open != nullptr) {
            open->state = kSent;
            credit_used_ += reserve;
        }
    }
    drop_first();
    return true;
}

bool LinkChannel::pump_each(Waiting& first) {
    const std::span<const std::uint64_t> left = std::span(first.connections).subspan(first.next);
    const std::size_t written = write_each(first.payload.data(), first.payload.size(), left);
    first.next += written;
    if (written < left.size()) return false;
    drop_first();
    return true;
}

void LinkChannel::drop_first() {
    queue_bytes_ -= queue_.front().bytes();
    queue_.pop_front();
}

// ---- receiving

Result<std::size_t> LinkChannel::take(std::size_t budget,
                                      const std::function<void(const Received&)>& handler) {
    if (failed_) return *failed_;
    end_.awake();
    layout::RecordHeader header{};
    BytesView payload;
    std::size_t count = 0;
    while (count < budget) {
        const ring::Consumer::Next next = end_.in().next(header, payload);
        if (next == ring::Consumer::Next::Empty) break;
        if (next == ring::Consumer::Next::Faulty) return fault(ring::text_of(end_.in().fault()));
        const abi::Envelope* envelope = checker_.check(header, payload);
        if (envelope == nullptr) return fault(verify::text_of(checker_.reason()));
        Received received{header.req_id,
                          envelope->reply_to(),
                          envelope->trace_id(),
                          envelope->deadline_ns(),
                          envelope->body_type(),
                          envelope->body()};
        ++count;
        if (const char* broken = receive_body(received)) return fault(broken);
        switch (accept(received, payload.size())) {
            case Accepted::Yes:
                handler(received);
                break;
            case Accepted::Drop:
                break;
            case Accepted::Fault:
                return fault(rule_);
        }
        if (failed_) return *failed_;
    }
    if (end_.out().fault() != ring::Fault::None) return fault(ring::text_of(end_.out().fault()));
    return count;
}

Result<bool> LinkChannel::drain(std::size_t budget,
                                const std::function<void(const Received&)>& handler) {
    HF_ASSIGN(const std::size_t count, take(budget, handler));
    pump();
    return count >= budget && end_.in().visible();
}

Result<void> LinkChannel::drain_final(const std::function<void(const Received&)>& handler) {
    HF_ASSIGN(const std::size_t count, take(final_records_max_, handler));
    (void)count;
    return {};
}

// The descriptor that the record names, judged, or the rule that is broken.
const char* LinkChannel::receive_body(Received& received) {
    std::uint64_t token = 0;
    std::uint64_t bytes = 0;
    std::uint64_t most = kLargeBodyBytesMax;
    const flatbuffers::Vector<std::uint8_t>* beside = nullptr;
    switch (received.type) {
        case abi::Body::Request: {
            const auto& request = received.as<abi::Request>();
            token = request.body_token();
            bytes = request.body_bytes();
            if (token != 0 && request.durable()) return "a durable request with a large body";
            break;
        }
        case abi::Body::Delivered: {
            const auto& delivered = received.as<abi::Delivered>();
            token = delivered.body_token();
            bytes = delivered.body_bytes();
            beside = delivered.reply_body();
            break;
        }
        case abi::Body::PeerReplied: {
            const auto& replied = received.as<abi::PeerReplied>();
            token = replied.body_token();
            bytes = replied.body_bytes();
            beside = replied.body();
            break;
        }
        case abi::Body::Got: {
            const auto& got = received.as<abi::Got>();
            token = got.body_token();
            bytes = got.body_bytes();
            beside = got.body();
            most = kObjectBytesMax;
            break;
        }
        case abi::Body::Checkpointed: {
            const auto& checkpointed = received.as<abi::Checkpointed>();
            token = checkpointed.body_token();
            bytes = checkpointed.body_bytes();
            beside = checkpointed.base();
            most = kObjectBytesMax;
            break;
        }
        default:
            return nullptr;
    }
    if (token == 0) return nullptr;
    if (beside != nullptr && beside->size() != 0) return "an answer with two bodies";
    if (bytes > most) return "an object larger than any store keeps";
    UniqueFd file;
    if (const char* broken = inbox_.take(control_.get(), token, bytes, file)) return broken;
    received.attached = std::make_shared<const SealedBody>(std::move(file), bytes);
    return nullptr;
}

LinkChannel::Accepted LinkChannel::accept(const Received& received, std::size_t payload_bytes) {
    if (received.reply_to != 0) return accept_answer(received, payload_bytes);
    if (received.req_id != 0) return accept_request(received);
    return Accepted::Yes;
}

LinkChannel::Accepted LinkChannel::accept_answer(const Received& received,
                                                 std::size_t payload_bytes) {
    const ring::OpenRequest* open = table_.find(received.reply_to);
    if (open == nullptr || open->state == kQueued) return refuse("an answer to no open request");
    if (abi::traits_of(static_cast<abi::Body>(open->type)).reply != received.type)
        return refuse("an answer of the wrong type");
    if (layout::record_bytes(payload_bytes) > open->reserved)
        return refuse("an answer larger than its request's reply_max");
    const bool wanted = open->state == kSent;
    credit_used_ -= open->reserved;
    table_.erase(received.reply_to);
    if (wanted) return Accepted::Yes;
    --abandoned_;
    ++late_answers_;
    return Accepted::Drop;
}

LinkChannel::Accepted LinkChannel::accept_request(const Received& received) {
    if (received.req_id <= last_peer_request_) return refuse("a request id that does not ascend");
    const std::uint32_t reserve = layout::reserve_bytes(abi::traits_of(received.type).reply_max);
    if (reserve > peer_credit_ - peer_credit_used_)
        return refuse("more requests than the credit for their answers");
    last_peer_request_ = received.req_id;
    peer_credit_used_ += reserve;
    asked_.insert({received.req_id, reserve, static_cast<std::uint16_t>(received.type), 0});
    return Accepted::Yes;
}

// ---- the rest

std::vector<std::pair<std::uint64_t, abi::Body>> LinkChannel::open_requests() const {
    std::vector<std::pair<std::uint64_t, abi::Body>> out;
    out.reserve(table_.size());
    table_.for_each([&](const ring::OpenRequest& open) {
        if (open.state != kAbandoned) out.emplace_back(open.id, static_cast<abi::Body>(open.type));
    });
    return out;
}

void LinkChannel::abandon(std::uint64_t req_id) {
    ring::OpenRequest* open = table_.find(req_id);
    if (open == nullptr) return;
    if (open->state == kQueued) {
        // Its bytes leave the queue when its turn comes.
        table_.erase(req_id);
    } else if (open->state == kSent) {
        // The instance may still answer: the room in P stays reserved.
        open->state = kAbandoned;
        ++abandoned_;
    }
}

Channel::Usage LinkChannel::usage() const {
    return {end_.out().used(),
            end_.in().used(),
            queue_.size() + answers_.size(),
            queue_bytes_ + answers_bytes_,
            table_.size() - abandoned_,
            late_answers_};
}

bool Channel::before_block_all(std::span<Channel* const> channels) {
    std::uint32_t budget = 0;
    const auto link = [](Channel* channel) -> LinkChannel& {
        return static_cast<LinkChannel&>(*channel);  // the only class there is
    };
    const auto any_visible = [&] {
        for (Channel* channel : channels)
            if (!link(channel).failed() && link(channel).end().in().visible()) return true;
        return false;
    };
    for (Channel* channel : channels) channel->flush();
    if (any_visible()) return false;
    for (Channel* channel : channels) {
        LinkChannel& one = link(channel);
        if (!one.failed() && one.expecting() && one.end().spin_wanted())
            budget = std::max(budget, one.end().spin_policy().budget_ns());
    }
    if (budget > 0) {
        const ring::Spun spun = ring::spin(budget, any_visible);
        for (Channel* channel : channels) {
            LinkChannel& one = link(channel);
            if (one.failed() || !one.expecting()) continue;
            if (spun == ring::Spun::Preempted) one.end().spin_policy().preempted();
            if (spun == ring::Spun::Nothing) one.end().spin_policy().failed();
            if (spun == ring::Spun::Found && one.end().in().visible())
                one.end().spin_policy().succeeded();
        }
        if (spun == ring::Spun::Found) return false;
    }
    bool work = false;
    for (Channel* channel : channels)
        if (!link(channel).failed()) link(channel).end().fall_asleep(link(channel).starved());
    for (Channel* channel : channels)
        work = work || (!link(channel).failed() &&
                        link(channel).end().work_visible(link(channel).starved()));
    return !work;
}

}  // namespace hf::port
