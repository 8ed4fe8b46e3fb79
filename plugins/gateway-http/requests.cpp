#include "plugins/gateway-http/requests.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/ring/bodies.hpp"
#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/frames.hpp"

namespace hf::gateway {

namespace {

// Drafts kept for reuse: 16 full ones are 1 MiB; bodies in flight beyond that are rare enough to pay an allocation.
constexpr std::size_t kSpareMax = 16;
// Class and name in their longest spelling, the peer's address, the envelope and the tables around them.
constexpr std::size_t kRequestExtra = kUnitBytesMax + 64 + 512;
static_assert(kEventBytesMax + kRequestExtra < kRecordBytesMax, "a request always fits a record");

flatbuffers::Offset<abi::PeerOrigin> table_of(flatbuffers::FlatBufferBuilder& builder,
                                              const Origin& origin) {
    const auto node = builder.CreateString(origin.node);
    const auto chain =
        origin.chain.empty()
            ? flatbuffers::Offset<flatbuffers::Vector<flatbuffers::Offset<flatbuffers::String>>>()
            : builder.CreateVectorOfStrings(origin.chain);
    const auto source = origin.source.empty() ? flatbuffers::Offset<flatbuffers::String>()
                                              : builder.CreateString(origin.source);
    return abi::CreatePeerOrigin(builder,
                                 node,
                                 origin.ask,
                                 chain,
                                 source,
                                 origin.n,
                                 origin.http,
                                 origin.last,
                                 origin.due_ms,
                                 origin.nonce);
}

}  // namespace

bool is_accepted(const abi::Reply& reply) {
    constexpr std::uint16_t kSwitching = 101;
    return reply.reason() == abi::ReplyReason::Ok && reply.status() == kSwitching;
}

Requests::Requests(std::size_t open_max,
                   std::size_t sockets_max,
                   std::uint64_t uploads_bytes_max,
                   sdk::Context& context)
    : context_(context),
      open_max_(open_max),
      sockets_max_(sockets_max),
      uploads_bytes_max_(uploads_bytes_max),
      asked_(&pool_),
      scratch_(std::make_unique<Draft>()) {}

bool Requests::take_place() {
    if (open_ >= open_max_) return false;
    ++open_;
    return true;
}

bool Requests::take_socket() {
    if (sockets_ >= sockets_max_) return false;
    ++sockets_;
    return true;
}

std::string_view Requests::grow(Upload& upload, std::uint64_t bytes) {
    const std::uint64_t more = bytes > upload.reserved ? bytes - upload.reserved : 0;
    if (more > uploads_bytes_max_ - uploads_bytes_)
        return "bodies_memory_max is reached; nothing was done";
    if (upload.reserved == 0) {
        static_assert(kLargeBodiesMax == 256, "the sentence names this number");
        if (uploads_ >= kLargeBodiesMax)
            return "256 large bodies are on their way, as many as are taken; nothing was done";
        auto file = ring::make_body("holdfast-upload");
        if (!file) return kNotKept;
        upload.file = std::move(file).value();
        upload.bytes = 0;
        ++uploads_;
    }
    upload.reserved += more;
    uploads_bytes_ += more;
    return {};
}

void Requests::give_back_upload(std::uint64_t reserved) {
    if (reserved == 0) return;
    HF_CHECK(uploads_ > 0 && uploads_bytes_ >= reserved, "an upload is given back once");
    --uploads_;
    uploads_bytes_ -= reserved;
}

std::unique_ptr<Draft> Requests::new_draft() {
    if (spare_.empty()) return std::make_unique<Draft>();
    std::unique_ptr<Draft> draft = std::move(spare_.back());
    spare_.pop_back();
    return draft;
}

void Requests::drop_draft(std::unique_ptr<Draft> draft) {
    if (draft == nullptr) return;
    give_back_upload(std::exchange(draft->upload, {}).reserved);
    if (spare_.size() >= kSpareMax) return;
    draft->event.clear();
    draft->page = {};
    draft->durable = false;
    draft->origin.reset();
    spare_.push_back(std::move(draft));
}

Result<std::uint64_t> Requests::send(const Draft& draft) {
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    switch (draft.say) {
        case Say::Page: {
            const auto page = builder.CreateString(draft.page.data(), draft.page.size());
            return context_.request(abi::CreateQuery(builder, page), draft.deadline_ns);
        }
        case Say::SocketMessage: {
            const auto data = builder.CreateVector(draft.event.data(), draft.event.size());
            return context_.request(
                abi::CreateSocketMessage(builder, draft.socket, draft.binary, data),
                draft.deadline_ns);
        }
        case Say::SocketClosed: {
            const auto reason = builder.CreateString(draft.reason);
            HF_TRY(context_.notify(
                abi::CreateSocketClosed(builder, draft.socket, draft.code, reason)));
            return std::uint64_t{0};
        }
        case Say::BodyReleased:
            HF_TRY(context_.notify(abi::CreateBodyReleased(builder, draft.socket)));
            return std::uint64_t{0};
        case Say::Request:
        case Say::SocketOpened:
            break;
    }
    const auto event = builder.CreateVector(draft.event.data(), draft.event.size());
    const auto class_name = builder.CreateString(draft.class_name);
    const auto name = builder.CreateString(draft.name);
    const auto client = builder.CreateString(draft.client);
    if (draft.say == Say::SocketOpened)
        return context_.request(
            abi::CreateSocketOpened(builder, draft.socket, class_name, name, event, client),
            draft.deadline_ns);
    const std::uint64_t bytes = draft.upload.bytes;
    const auto origin =
        draft.origin ? table_of(builder, *draft.origin) : flatbuffers::Offset<abi::PeerOrigin>();
    const std::uint64_t token =
        draft.upload.reserved != 0 ? context_.carry(draft.upload.file.get(), bytes) : 0;
    return context_.request(abi::CreateRequest(builder,
                                               class_name,
                                               name,
                                               event,
                                               client,
                                               draft.durable,
                                               token,
                                               token == 0 ? 0 : bytes,
                                               origin),
                            draft.deadline_ns);
}

void Requests::sent(Asker* asker, Draft& draft, std::uint64_t id) {
    // Told, and with it out of our hands.
    if (draft.say == Say::SocketClosed) return give_back_socket();
    if (draft.say == Say::BodyReleased) return;
    // The supervisor has the file now; its memory is ours until the answer.
    const Upload upload = std::exchange(draft.upload, {});
    asked_.emplace(id, Asked{asker, draft.say, draft.socket, upload.reserved});
    if (asker == nullptr) return;
    asker->queued_ = false;
    asker->request_id_ = id;
}

void Requests::ask(Asker& asker, Draft& draft) {
    HF_CHECK(asker.request_id_ == 0 && !asker.queued_, "one open request per asker");
    // Nothing overtakes what waits for credit.
    if (queue_.empty()) {
        if (const auto id = send(draft); id.ok()) {
            sent(&asker, draft, id.value());
            draft.page = {};
            draft.durable = false;
            draft.origin.reset();
            return;
        }
    }
    std::unique_ptr<Draft> kept = new_draft();
    std::swap(*kept, draft);
    asker.queued_ = true;
    queue_.push_back({&asker, std::move(kept)});
}

void Requests::leave(Asker& asker, bool tell) {
    if (!asker.queued_) {
        if (tell) tell_gone(asker);
        // The supervisor still works on it, so its place stays taken until the answer.
        return let_go(asker);
    }
    asker.queued_ = false;
    const auto found = std::find_if(
        queue_.begin(), queue_.end(), [&](const Queued& queued) { return queued.asker == &asker; });
    const Say say = found->draft->say;
    drop_draft(std::move(found->draft));
    queue_.erase(found);
    if (say != Say::SocketMessage) give_back();
    if (say == Say::SocketOpened) give_back_socket();
}

void Requests::let_go(Asker& asker) {
    if (asker.queued_) {
        asker.queued_ = false;
        for (Queued& queued : queue_)
            if (queued.asker == &asker) queued.asker = nullptr;
    } else if (asker.request_id_ != 0) {
        asked_.at(asker.request_id_).asker = nullptr;
        asker.request_id_ = 0;
    }
}

void Requests::tell_gone(const Asker& asker) {
    if (asker.request_id_ == 0) return;
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    // Advice only: when the ring has no room for it, nothing is lost.
    (void)context_.notify(abi::CreateCancelled(builder, asker.request_id_));
}

void Requests::tell_closed(std::uint64_t socket, std::uint16_t code, std::string_view reason) {
    std::unique_ptr<Draft> draft = new_draft();
    draft->say = Say::SocketClosed;
    draft->socket = socket;
    draft->code = code;
    draft->reason = reason;
    tell(std::move(draft));
}

void Requests::tell_released(std::uint64_t request_id) {
    std::unique_ptr<Draft> draft = new_draft();
    draft->say = Say::BodyReleased;
    draft->socket = request_id;
    tell(std::move(draft));
}

void Requests::tell(std::unique_ptr<Draft> draft) {
    queue_.push_back({nullptr, std::move(draft)});
    if (queue_.size() == 1) retry();
}

void Requests::accepted_too_late(std::uint64_t socket, const abi::Reply& reply) {
    if (!is_accepted(reply)) return give_back_socket();
    tell_closed(socket, kCloseBroken, "the client was gone before it was accepted");
}

bool Requests::answer(const sdk::Message& message) {
    const auto found = asked_.find(message.reply_to);
    if (found == asked_.end()) return false;
    const Asked asked = found->second;
    asked_.erase(found);
    if (asked.say != Say::SocketMessage) give_back();
    give_back_upload(asked.reserved);
    Download body;
    if (message.type == abi::Body::Reply) {
        const std::uint64_t bytes = message.as<abi::Reply>().body_bytes();
        body = {context_.take_body(), bytes, 0, message.reply_to};
    }
    if (asked.asker == nullptr) {
        if (body.file.valid()) tell_released(body.request_id);
        if (asked.say == Say::SocketOpened)
            accepted_too_late(asked.socket, message.as<abi::Reply>());
        // That a WebSocket ends while its message is on its way is nothing to be counted.
        return asked.say == Say::SocketMessage;
    }
    asked.asker->request_id_ = 0;
    if (message.type == abi::Body::Reply)
        asked.asker->answered(message.as<abi::Reply>(), std::move(body));
    else if (message.type == abi::Body::SocketTaken)
        asked.asker->answered(message.as<abi::SocketTaken>());
    else
        asked.asker->answered(message.as<abi::Queried>());
    return true;
}

void Requests::retry() {
    while (!queue_.empty()) {
        Queued& first = queue_.front();
        const auto id = send(*first.draft);
        if (!id.ok()) return;
        sent(first.asker, *first.draft, id.value());
        drop_draft(std::move(first.draft));
        queue_.pop_front();
    }
}

}  // namespace hf::gateway
