#include "plugins/storage-s3/bucket.hpp"

#include <utility>

#include "abi/base/limits.hpp"

namespace hf::s3 {
namespace {

constexpr std::size_t kEtagBytesMax = 1'024;  // S3's are 34 bytes

bool plain_etag(const std::string& etag) {
    if (etag.size() > kEtagBytesMax) return false;
    for (const char c : etag)
        if (c < ' ' || c > '~') return false;
    return true;
}

}  // namespace

// What is open is kept by its requests too: they must go first.
Bucket::~Bucket() {
    for (const auto& operation : std::exchange(open_, {})) operation->abandon();
}

std::string Bucket::no_room(std::size_t bytes) const {
    if (open_.size() < env_.settings.requests_open_max && open_bytes_ + bytes <= kOpenBytesMax)
        return {};
    return "busy: requests_open_max (" + std::to_string(env_.settings.requests_open_max) +
           ") operations or kOpenBytesMax (" + std::to_string(kOpenBytesMax) +
           ") bytes are open at the store already; nothing was sent, try again";
}

std::string Bucket::bad_key(const std::string& key) const {
    const std::size_t most = env_.settings.key_bytes_max();
    if (!key.empty() && key.size() <= most) return {};
    return "a key has 1 to " + std::to_string(most) + " bytes here (1024 less the prefix), not " +
           std::to_string(key.size());
}

void Bucket::start(const std::shared_ptr<Operation>& operation, std::size_t bytes) {
    open_.insert(operation);
    open_bytes_ += bytes;
    operation->start([this, weak = std::weak_ptr(operation), bytes] {
        open_.erase(weak.lock());
        open_bytes_ -= bytes;
    });
}

void Bucket::get(std::string key, std::function<void(GetResult&)> done) {
    ++env_.counts.gets;
    std::string why = bad_key(key);
    // A large one is not known before it comes; the supervisor bounds those that it asks for together.
    if (why.empty()) why = no_room(kInlineObjectBytesMax);
    if (!why.empty()) {
        GetResult result{Outcome::Refused, {}, {}, {}, std::move(why)};
        return done(result);
    }
    start(make_get(env_, std::move(key), std::move(done)), kInlineObjectBytesMax);
}

void Bucket::put(PutCall call, std::function<void(PutResult&)> done) {
    ++env_.counts.puts;
    std::string why = bad_key(call.key);
    if (call.condition > Condition::IfMatch)
        why = "unknown condition " + std::to_string(static_cast<unsigned>(call.condition));
    else if (call.condition == Condition::IfMatch && (call.etag.empty() || !plain_etag(call.etag)))
        why = "IfMatch needs the etag of the object that is to be replaced";
    else if (call.body.size() > kObjectBytesMax)
        why = "a body of " + std::to_string(call.body.size()) + " bytes; kObjectBytesMax is " +
              std::to_string(kObjectBytesMax);
    const std::size_t bytes = 2 * call.body.size();
    if (why.empty()) why = no_room(bytes);
    if (!why.empty()) {
        PutResult result{Outcome::Refused, {}, {}, std::move(why)};
        return done(result);
    }
    start(make_put(env_, std::move(call), std::move(done)), bytes);
}

void Bucket::erase(DeleteCall call, std::function<void(DeleteResult&)> done) {
    ++env_.counts.deletes;
    std::string why = bad_key(call.key);
    for (const std::string& key : call.also)
        if (why.empty()) why = bad_key(key);
    if (call.also.size() > kDeleteAlsoMax)
        why = std::to_string(call.also.size()) + " further keys to delete, at most " +
              std::to_string(kDeleteAlsoMax) + " are taken";
    else if (call.condition > Condition::IfMatch)
        why = "unknown condition " + std::to_string(static_cast<unsigned>(call.condition));
    else if (call.condition == Condition::IfAbsent)
        why = "IfAbsent has no meaning for a delete";
    else if (call.condition == Condition::IfMatch && (call.etag.empty() || !plain_etag(call.etag)))
        why = "IfMatch needs the etag of the object that is to be deleted";
    else if (call.condition == Condition::IfMatch && !env_.conditional_deletes)
        why = "this store deletes whatever the condition says: a delete with IfMatch is not taken";
    if (why.empty()) why = no_room(0);
    if (!why.empty()) {
        DeleteResult result{Outcome::Refused, std::move(why)};
        return done(result);
    }
    start(make_erase(env_, std::move(call), std::move(done)), 0);
}

void Bucket::list(ListCall call, std::function<void(ListResult&)> done) {
    ++env_.counts.lists;
    // The answer to 257 keys of the longest.
    constexpr std::size_t kBytes = kXmlBytesMax / 2;
    std::string why;
    if (call.limit == 0 || call.limit > kListLimitMax)
        why = "limit is 1.." + std::to_string(kListLimitMax) + ", or 0 for all of them";
    else if (call.prefix.size() > kKeyBytesMax || call.after.size() > kKeyBytesMax)
        why = "no key is longer than " + std::to_string(kKeyBytesMax) + " bytes";
    if (why.empty()) why = no_room(kBytes);
    if (!why.empty()) {
        ListResult result{Outcome::Refused, {}, false, env_.client.store_now_ms(), std::move(why)};
        return done(result);
    }
    start(make_list(env_, std::move(call), std::move(done)), kBytes);
}

}  // namespace hf::s3
