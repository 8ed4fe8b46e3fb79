#include "agent/core/bulk.hpp"

namespace hf::core {

struct Bulk::Counted {
    Counted(std::shared_ptr<Open> all, std::uint64_t size) : open(std::move(all)), bytes(size) {
        open->bytes += bytes;
        ++open->count;
    }
    ~Counted() {
        open->bytes -= bytes;
        --open->count;
    }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    std::shared_ptr<Open> open;
    std::uint64_t bytes;
};

std::string Bulk::no_room_for(std::uint64_t bytes) const {
    if (open_->count >= kBulkBodiesMax)
        return "the node has " + std::to_string(kBulkBodiesMax) +
               " large bodies open, as many as it keeps";
    if (bytes > bytes_max_ || open_->bytes > bytes_max_ - bytes)
        return "the node's large bodies take as many bytes as limits.bulk_bytes = " +
               std::to_string(bytes_max_) + " allows";
    return "";
}

Bulk::Held Bulk::hold(const AttachmentRef& body) {
    return std::make_shared<const Counted>(open_, body->bytes());
}

void Bulk::lend(Handle gateway, std::uint64_t req_id, const AttachmentRef& body) {
    lent_[{gateway, req_id}] = hold(body);
}

void Bulk::gateway_gone(Handle gateway) {
    std::erase_if(lent_, [&](const auto& one) { return one.first.first == gateway; });
}

}  // namespace hf::core
