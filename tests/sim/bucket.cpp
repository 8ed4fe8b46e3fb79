#include "tests/sim/bucket.hpp"

namespace hf::sim {

using core::Condition;
using core::Outcome;
using core::StoreVerb;

void Bucket::serve(const core::StoreRequest& request,
                   std::size_t by,
                   bool disk_full,
                   core::StoreAnswer& answer) {
    const auto found = objects_.find(request.key);
    switch (request.verb) {
        case StoreVerb::Get:
            answer.outcome = found == objects_.end() ? Outcome::NotFound : Outcome::Applied;
            if (found == objects_.end()) return;
            answer.body = found->second.body;
            answer.etag = found->second.etag;
            answer.write_id = found->second.write_id;
            return;
        case StoreVerb::Put:
            return put(request, by, disk_full, answer);
        case StoreVerb::Delete:
            answer.outcome = Outcome::NotFound;
            if (erase(request.key)) answer.outcome = Outcome::Applied;
            for (const std::string& key : request.also) {
                if (erase(key)) answer.outcome = Outcome::Applied;
            }
            return;
        case StoreVerb::List:
            return list(request, answer);
        case StoreVerb::Probe:
            answer.outcome = Outcome::Applied;
            answer.conditional_writes = true;
            answer.store_time_ms = clock_();
            return;
    }
}

bool Bucket::erase(const std::string& key) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) return false;
    const Object was = std::move(found->second);
    objects_.erase(found);
    watcher_.deleted(key, was);
    return true;
}

void Bucket::put(const core::StoreRequest& request,
                 std::size_t by,
                 bool disk_full,
                 core::StoreAnswer& answer) {
    const auto found = objects_.find(request.key);
    const bool exists = found != objects_.end();
    if (exists && !request.write_id.none() && found->second.write_id == request.write_id) {
        answer.outcome = Outcome::Applied;
        answer.etag = found->second.etag;
        answer.write_id = request.write_id;
        return;
    }
    const bool fails =
        (request.condition == Condition::IfAbsent && exists) ||
        (request.condition == Condition::IfMatch && exists && found->second.etag != request.etag);
    if (fails) {
        answer.outcome = Outcome::PreconditionFailed;
        answer.etag = found->second.etag;
        answer.write_id = found->second.write_id;
        return;
    }
    if (request.condition == Condition::IfMatch && !exists) {
        answer.outcome = Outcome::NotFound;
        return;
    }
    if (disk_full) {
        answer.outcome = Outcome::Refused;
        answer.reason = "the disk is full";
        return;
    }
    Object object{request.body, "v" + std::to_string(++versions_), request.write_id, clock_()};
    answer.outcome = Outcome::Applied;
    answer.etag = object.etag;
    answer.write_id = object.write_id;
    watcher_.written(request.key, object, by);
    objects_.insert_or_assign(request.key, std::move(object));
}

void Bucket::list(const core::StoreRequest& request, core::StoreAnswer& answer) const {
    answer.outcome = Outcome::Applied;
    answer.store_time_ms = clock_();
    auto it = request.after.empty() ? objects_.lower_bound(request.key)
                                    : objects_.upper_bound(request.after);
    for (; it != objects_.end() && it->first.starts_with(request.key); ++it) {
        if (answer.objects.size() >= request.limit) {
            answer.more = true;
            return;
        }
        answer.objects.push_back(
            {it->first, it->second.body.size(), it->second.etag, it->second.modified_ms});
    }
}

}  // namespace hf::sim
