#include "plugins/storage-s3/storage_s3.hpp"

#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "abi/ring/bodies.hpp"
#include "abi/sdk/storage.hpp"
#include "plugins/storage-s3/files.hpp"

namespace hf::s3 {
namespace {

// Listed may take reply_max = 64 KiB with its envelope (less than 128 bytes); the rest is room for rounding.
constexpr std::size_t kListBytesMax = kRecordBytesMax - 512;
// What one Object adds beside its key and etag: string heads with padding, the table (40), its place in the vector, alignment.
constexpr std::size_t kListedObjectBytes = 112;
// Stored and Deleted may take 1024 bytes: a reason is cut here.
constexpr std::size_t kReasonBytesMax = 512;
// How often Counters goes out at most.
constexpr std::int64_t kCountersEveryNs = 1'000'000'000;
// A start waits so long for a verdict on the store; the supervisor waits 10 s for the start (ready_timeout).
constexpr std::int64_t kStartWaitNs = 5'000'000'000;
constexpr std::int64_t kNsPerMs = 1'000'000;

constexpr int kExitRefused = 1;

std::string_view view(const flatbuffers::String* text) {
    return text == nullptr ? std::string_view{} : std::string_view{text->data(), text->size()};
}

abi::Outcome outcome_of(Outcome outcome) {
    switch (outcome) {
        case Outcome::Applied:
            return abi::Outcome::Applied;
        case Outcome::PreconditionFailed:
            return abi::Outcome::PreconditionFailed;
        case Outcome::NotFound:
            return abi::Outcome::NotFound;
        case Outcome::Refused:
            return abi::Outcome::Refused;
        case Outcome::Unknown:
            return abi::Outcome::Unknown;
    }
    HF_CHECK(false, "an outcome outside its enumeration");
}

flatbuffers::Offset<flatbuffers::String> text(flatbuffers::FlatBufferBuilder& builder,
                                              std::string_view words) {
    if (words.empty()) return 0;
    words = words.substr(0, kReasonBytesMax);
    return builder.CreateString(words.data(), words.size());
}

}  // namespace

StorageS3::~StorageS3() = default;

sdk::Identity StorageS3::identity() const {
    sdk::Identity identity;
    identity.kind = abi::Kind::Storage;
    identity.name = "storage-s3";
    identity.version = HF_VERSION;
    return identity;
}

Result<void> StorageS3::configure(const abi::Configure& configure, sdk::Context& context) {
    context_ = &context;
    std::vector<std::pair<std::string_view, std::string_view>> given;
    if (configure.settings() != nullptr)
        for (const abi::Setting* setting : *configure.settings())
            given.emplace_back(view(setting->key()), view(setting->value()));
    HF_ASSIGN(settings_, read_settings(given));
    const Passed passed = [&context](std::string_view name) { return context.passed_fd(name); };
    HF_ASSIGN(Credentials credentials, find_credentials(settings_, passed));
    HF_ASSIGN(std::string ca_pem, find_ca(settings_, passed));
    HF_TRY(connect(std::move(credentials), std::move(ca_pem)));
    HF_TRY(check_store());
    context.watch(loop_->fd(), [this] {
        loop_->step();
        report_counters();
    });
    return {};
}

Result<void> StorageS3::connect(Credentials credentials, std::string ca_pem) {
    HF_ASSIGN(loop_, Loop::create());
    HF_ASSIGN(
        http_,
        Http::create(*loop_,
                     {settings_.connections_max, settings_.connect_timeout_ms, std::move(ca_pem)}));
    client_ = std::make_unique<Client>(
        *http_, settings_, std::move(credentials), [this](const std::string& words) {
            context_->log(abi::LogLevel::Warn, words);
        });
    env_ = std::make_unique<Env>(Env{*loop_, *client_, settings_});
    env_->etag_bare = settings_.etag_form == EtagForm::Bare;
    bucket_ = std::make_unique<Bucket>(*env_);
    return {};
}

// Before the second filter is laid: what the resolver of names loads on its first use is loaded here.
Result<void> StorageS3::check_store() {
    if (settings_.probe == ProbeMode::Skip) {
        context_->log(abi::LogLevel::Warn,
                      "probe = \"skip\": nobody has looked whether this store's conditional writes "
                      "are atomic");
        return {};
    }
    configuring_ = true;
    check_ = std::make_unique<StartCheck>(*env_, [this] { checked(); });
    check_->begin();
    const std::int64_t until = monotonic_ns() + kStartWaitNs;
    while (check_->state() == StartCheck::State::Running && !check_->unreached()) {
        const std::int64_t left = until - monotonic_ns();
        if (left <= 0) break;
        loop_->wait(static_cast<int>(left / kNsPerMs) + 1);
    }
    configuring_ = false;
    if (check_->state() == StartCheck::State::Refused)
        return fail(Code::Refused, check_->trouble());
    if (check_->state() == StartCheck::State::Running)
        context_->log(abi::LogLevel::Warn, not_usable());
    return {};
}

void StorageS3::checked() {
    if (configuring_) return;
    if (check_->state() == StartCheck::State::Refused) return give_up(check_->trouble());
    context_->log(
        abi::LogLevel::Info,
        "bucket \"" + settings_.bucket + "\" at " + settings_.endpoint.text() + " can be used now");
}

bool StorageS3::usable() const {
    return check_ == nullptr || check_->state() == StartCheck::State::Good;
}

std::string StorageS3::not_usable() const {
    return check_->trouble().empty()
               ? "bucket \"" + settings_.bucket + "\" at " + settings_.endpoint.text() +
                     " cannot be used yet: it has not answered"
               : check_->trouble();
}

void StorageS3::handle(const sdk::Message& message) {
    switch (message.type) {
        case abi::Body::Get:
            return on_get(message.req_id, message.as<abi::Get>());
        case abi::Body::List:
            return on_list(message.req_id, message.as<abi::List>());
        case abi::Body::Probe:
            return on_probe(message.req_id);
        case abi::Body::Put:
            return on_put(message.req_id, message.as<abi::Put>());
        case abi::Body::Delete:
            return on_delete(message.req_id, message.as<abi::Delete>());
        default:
            return;  // not one of ours; the SDK lets only this kind's messages through
    }
}

void StorageS3::batch_done() {
    // What was asked goes out now, not one turn later.
    if (loop_ != nullptr) loop_->step();
}

bool StorageS3::shed_done() {
    return bucket_ == nullptr || bucket_->open() == 0;
}

// --- asked -----------------------------------------------------------------------------------------------------------

void StorageS3::on_get(std::uint64_t req_id, const abi::Get& get) {
    if (!usable()) return answer_get(req_id, {Outcome::Unknown, {}, {}, {}, not_usable()});
    bucket_->get(std::string(view(get.key())),
                 [this, req_id](GetResult& result) { answer_get(req_id, result); });
}

void StorageS3::on_put(std::uint64_t req_id, const abi::Put& put) {
    if (!usable()) return answer_put(req_id, {Outcome::Unknown, {}, {}, not_usable()});
    PutCall call;
    call.key = view(put.key());
    if (put.body() != nullptr) call.body = as_text({put.body()->data(), put.body()->size()});
    if (const UniqueFd file = context_->take_body(); file.valid()) {
        const auto refuse = [&](std::string reason) {
            answer_put(req_id, {Outcome::Refused, {}, {}, std::move(reason)});
        };
        if (put.body_bytes() > kObjectBytesMax)
            return refuse("a body of " + std::to_string(put.body_bytes()) +
                          " bytes; kObjectBytesMax is " + std::to_string(kObjectBytesMax));
        call.body.resize(put.body_bytes());
        if (!ring::read_body(file.get(), call.body.data(), call.body.size(), 0))
            return refuse("the body's memory file could not be read");
    }
    call.condition = static_cast<Condition>(put.condition());
    call.etag = view(put.etag());
    if (put.write_id() != nullptr) call.write_id = {put.write_id()->hi(), put.write_id()->lo()};
    bucket_->put(std::move(call),
                 [this, req_id](PutResult& result) { answer_put(req_id, result); });
}

void StorageS3::on_delete(std::uint64_t req_id, const abi::Delete& erase) {
    if (!usable()) return answer_delete(req_id, {Outcome::Unknown, not_usable()});
    DeleteCall call;
    call.key = view(erase.key());
    call.condition = static_cast<Condition>(erase.condition());
    call.etag = view(erase.etag());
    if (erase.also() != nullptr)
        for (const flatbuffers::String* key : *erase.also()) call.also.emplace_back(view(key));
    bucket_->erase(std::move(call),
                   [this, req_id](DeleteResult& result) { answer_delete(req_id, result); });
}

void StorageS3::on_list(std::uint64_t req_id, const abi::List& list) {
    if (!usable()) {
        ListResult result;
        result.store_time_ms = wall_ms();
        result.reason = not_usable();
        return answer_list(req_id, result);
    }
    ListCall call;
    call.prefix = view(list.prefix());
    call.after = view(list.after());
    call.limit = list.limit() == 0 ? kListLimitMax : list.limit();
    bucket_->list(std::move(call),
                  [this, req_id](ListResult& result) { answer_list(req_id, result); });
}

// S3 counts nothing: whether the store answers and what its clock says is all there is to tell.
void StorageS3::on_probe(std::uint64_t req_id) {
    if (!usable()) {
        ListResult result;
        result.store_time_ms = wall_ms();
        result.reason = not_usable();
        return answer_probe(req_id, result);
    }
    bucket_->list({std::string(kProbePrefix), {}, 1},
                  [this, req_id](ListResult& result) { answer_probe(req_id, result); });
}

// --- answered --------------------------------------------------------------------------------------------------------

void StorageS3::count(Outcome outcome) {
    ++answered_;
    if (outcome == Outcome::Refused) ++env_->counts.refused;
    if (outcome == Outcome::Unknown) ++env_->counts.unknown;
}

void StorageS3::answer_get(std::uint64_t req_id, const GetResult& result) {
    count(result.outcome);
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    if (result.outcome != Outcome::Applied) {
        const auto reason = text(builder, result.reason);
        context_->reply(req_id,
                        abi::CreateGot(builder, outcome_of(result.outcome), 0, 0, nullptr, reason));
        return;
    }
    const abi::WriteId write_id(result.write_id.hi, result.write_id.lo);
    const auto given =
        sdk::reply_object(*context_, req_id, as_bytes(result.body), result.etag, write_id);
    if (given) return;
    const auto reason = text(builder, given.error().message);
    context_->reply(req_id, abi::CreateGot(builder, abi::Outcome::Refused, 0, 0, nullptr, reason));
}

void StorageS3::answer_put(std::uint64_t req_id, const PutResult& result) {
    count(result.outcome);
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const auto reason = text(builder, result.reason);
    const auto etag = text(builder, result.etag);
    const abi::WriteId write_id(result.write_id.hi, result.write_id.lo);
    context_->reply(
        req_id, abi::CreateStored(builder, outcome_of(result.outcome), etag, &write_id, reason));
}

void StorageS3::answer_delete(std::uint64_t req_id, const DeleteResult& result) {
    count(result.outcome);
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const auto reason = text(builder, result.reason);
    context_->reply(req_id, abi::CreateDeleted(builder, outcome_of(result.outcome), reason));
}

void StorageS3::answer_list(std::uint64_t req_id, const ListResult& result) {
    count(result.outcome);
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    if (result.outcome != Outcome::Applied) {
        const auto reason = text(builder, result.reason);
        context_->reply(
            req_id,
            abi::CreateListed(
                builder, outcome_of(result.outcome), 0, false, result.store_time_ms, reason));
        return;
    }
    std::vector<flatbuffers::Offset<abi::Object>> objects;
    bool more = result.more;
    for (const ListedKey& one : result.keys) {
        if (builder.GetSize() + objects.size() * sizeof(flatbuffers::uoffset_t) + one.key.size() +
                one.etag.size() + kListedObjectBytes >
            kListBytesMax) {
            more = true;
            break;
        }
        const auto key = builder.CreateString(one.key.data(), one.key.size());
        const auto etag = text(builder, one.etag);
        objects.push_back(abi::CreateObject(builder, key, one.size, etag, one.last_modified_ms));
    }
    const auto vector = builder.CreateVector(objects);
    context_->reply(
        req_id,
        abi::CreateListed(builder, abi::Outcome::Applied, vector, more, result.store_time_ms, 0));
}

// Never Unknown: whoever asks wants to hear the reason, and asks again by himself.
void StorageS3::answer_probe(std::uint64_t req_id, const ListResult& result) {
    const bool good = result.outcome == Outcome::Applied;
    count(good ? Outcome::Applied : Outcome::Refused);
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const auto reason = good ? 0 : text(builder, result.reason);
    context_->reply(req_id,
                    abi::CreateProbed(builder,
                                      good ? abi::Outcome::Applied : abi::Outcome::Refused,
                                      true,
                                      0,
                                      0,
                                      0,
                                      result.store_time_ms,
                                      reason));
}

// The Fault must be out before the end: what is posted from a posted function runs a turn later, when the SDK has published
// what was sent before.
void StorageS3::give_up(const std::string& why) {
    if (std::exchange(gave_up_, true)) return;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const auto reason = text(builder, why);
    if (!context_->notify(abi::CreateFault(builder, reason)))
        context_->log(abi::LogLevel::Error, why);
    context_->post([this] { context_->post([] { std::_Exit(kExitRefused); }); });
}

void StorageS3::report_counters() {
    if (answered_ == counted_) return;
    const std::int64_t now = monotonic_ns();
    if (counts_sent_ns_ != 0 && now - counts_sent_ns_ < kCountersEveryNs) return;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const Counts& counts = env_->counts;
    const std::array<std::pair<const char*, std::uint64_t>, 10> values{
        {{"puts", counts.puts},
         {"gets", counts.gets},
         {"lists", counts.lists},
         {"deletes", counts.deletes},
         {"refused", counts.refused},
         {"unknown", counts.unknown},
         {"requests", counts.requests},
         {"repeated", counts.repeated},
         {"looks", counts.looks},
         {"connections", http_->connections_made()}}};
    std::array<flatbuffers::Offset<abi::Counter>, values.size()> counters;
    for (std::size_t i = 0; i < values.size(); ++i)
        counters[i] = abi::CreateCounterDirect(builder, values[i].first, values[i].second);
    const auto vector = builder.CreateVector(counters.data(), counters.size());
    // Busy: the next report carries the same figures, they only grow.
    if (!context_->notify(abi::CreateCounters(builder, vector))) return;
    counts_sent_ns_ = now;
    counted_ = answered_;
}

}  // namespace hf::s3
