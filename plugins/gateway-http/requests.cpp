#include "plugins/gateway-http/requests.hpp"

#include <algorithm>
#include <utility>

#include "abi/base/check.hpp"
#include "plugins/gateway-http/event.hpp"

namespace hf::gateway {

namespace {

// Drafts kept for reuse: 16 full ones are 1 MiB; bodies in flight beyond that are rare enough to pay an allocation.
constexpr std::size_t kSpareMax = 16;
// Class and name in their longest spelling, the peer's address, the envelope and the tables around them.
constexpr std::size_t kRequestExtra = kUnitBytesMax + 64 + 512;
static_assert(kEventBytesMax + kRequestExtra < kRecordBytesMax, "a request always fits a record");

}  // namespace

Requests::Requests(std::size_t open_max, sdk::Context& context)
    : context_(context), open_max_(open_max), asked_(&pool_), scratch_(std::make_unique<Draft>()) {}

bool Requests::take_place() {
    if (open_ >= open_max_) return false;
    ++open_;
    return true;
}

std::unique_ptr<Draft> Requests::new_draft() {
    if (spare_.empty()) return std::make_unique<Draft>();
    std::unique_ptr<Draft> draft = std::move(spare_.back());
    spare_.pop_back();
    return draft;
}

void Requests::drop_draft(std::unique_ptr<Draft> draft) {
    if (draft == nullptr || spare_.size() >= kSpareMax) return;
    draft->event.clear();
    draft->page = {};
    spare_.push_back(std::move(draft));
}

Result<std::uint64_t> Requests::send(const Draft& draft) {
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    if (!draft.page.empty()) {
        const auto page = builder.CreateString(draft.page.data(), draft.page.size());
        return context_.request(abi::CreateQuery(builder, page), draft.deadline_ns);
    }
    const auto event = builder.CreateVector(draft.event.data(), draft.event.size());
    const auto class_name = builder.CreateString(draft.class_name);
    const auto name = builder.CreateString(draft.name);
    const auto client = builder.CreateString(draft.client);
    return context_.request(abi::CreateRequest(builder, class_name, name, event, client),
                            draft.deadline_ns);
}

void Requests::sent(Asker& asker, std::uint64_t id) {
    asker.queued_ = false;
    asker.request_id_ = id;
    asked_.emplace(id, &asker);
}

void Requests::ask(Asker& asker, Draft& draft) {
    HF_CHECK(asker.request_id_ == 0 && !asker.queued_, "one open request per connection");
    // Nothing overtakes what waits for credit.
    if (queue_.empty()) {
        if (const auto id = send(draft); id.ok()) {
            sent(asker, id.value());
            draft.page = {};
            return;
        }
    }
    std::unique_ptr<Draft> kept = new_draft();
    std::swap(*kept, draft);
    asker.queued_ = true;
    queue_.push_back({&asker, std::move(kept)});
}

void Requests::leave(Asker& asker, bool tell) {
    if (asker.queued_) {
        asker.queued_ = false;
        const auto found = std::find_if(queue_.begin(), queue_.end(), [&](const Queued& queued) {
            return queued.asker == &asker;
        });
        drop_draft(std::move(found->draft));
        queue_.erase(found);
        give_back();
        return;
    }
    if (asker.request_id_ == 0) return;
    if (tell) tell_gone(asker);
    // The supervisor still works on it, so its place stays taken until the answer.
    asked_[asker.request_id_] = nullptr;
    asker.request_id_ = 0;
}

void Requests::tell_gone(const Asker& asker) {
    if (asker.request_id_ == 0) return;
    flatbuffers::FlatBufferBuilder& builder = context_.builder();
    // Advice only: when the ring has no room for it, nothing is lost.
    (void)context_.notify(abi::CreateCancelled(builder, asker.request_id_));
}

bool Requests::answer(const sdk::Message& message) {
    const auto found = asked_.find(message.reply_to);
    if (found == asked_.end()) return false;
    Asker* const asker = found->second;
    asked_.erase(found);
    give_back();
    if (asker == nullptr) return false;
    asker->request_id_ = 0;
    if (message.type == abi::Body::Reply)
        asker->answered(message.as<abi::Reply>());
    else
        asker->answered(message.as<abi::Queried>());
    return true;
}

void Requests::retry() {
    while (!queue_.empty()) {
        Queued& first = queue_.front();
        const auto id = send(*first.draft);
        if (!id.ok()) return;
        sent(*first.asker, id.value());
        drop_draft(std::move(first.draft));
        queue_.pop_front();
    }
}

}  // namespace hf::gateway
