#include "plugins/storage-local/storage_local.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "abi/base/check.hpp"
#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "abi/ring/bodies.hpp"
#include "abi/sdk/storage.hpp"

namespace hf::bucket {
namespace {

// List.limit: one page of S3 is 1000, ours is what the verifier's table bound of Listed (320) leaves.
constexpr std::uint32_t kListLimitMax = 256;
// Listed may take reply_max = 64 KiB with its envelope (less than 128 bytes); the rest is room for rounding.
constexpr std::size_t kListBytesMax = kRecordBytesMax - 512;
// What one Object adds beside its key: two string heads with padding (2 x 8), the etag (34), the table (40), its place in
// the vector (4), and alignment.
constexpr std::size_t kListedObjectBytes = 112;
// Stored and Deleted may take 1024 bytes: a reason is cut here.
constexpr std::size_t kReasonBytesMax = 512;
// How often Counters goes out at most.
constexpr std::int64_t kCountersEveryNs = 1'000'000'000;

constexpr int kExitBroken = 1;

constexpr std::string_view kSettings = "path, map_bytes";

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

// A read that failed: what is not there is NotFound, all else Refused with the sentence.
abi::Outcome outcome_of(const Error& error) {
    return error.code == Code::NotFound ? abi::Outcome::NotFound : abi::Outcome::Refused;
}

flatbuffers::Offset<flatbuffers::String> text(flatbuffers::FlatBufferBuilder& builder,
                                              std::string_view words) {
    if (words.empty()) return 0;
    words = words.substr(0, kReasonBytesMax);
    return builder.CreateString(words.data(), words.size());
}

Result<std::uint64_t> read_number(std::string_view key, std::string_view words) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
    if (error != std::errc{} || end != words.data() + words.size() || words.empty())
        return fail(
            Code::Invalid,
            std::string(key) + " is a plain number of bytes, not \"" + std::string(words) + "\"");
    return number;
}

}  // namespace

Result<Options> read_settings(const abi::Configure& configure) {
    Options options;
    if (configure.settings() != nullptr) {
        for (const abi::Setting* setting : *configure.settings()) {
            const std::string_view key = view(setting->key());
            const std::string_view value = view(setting->value());
            if (key == "path") {
                options.directory = value;
            } else if (key == "map_bytes") {
                HF_ASSIGN(options.map_bytes, read_number(key, value));
            } else {
                return fail(Code::Invalid,
                            "unknown setting \"" + std::string(key) + "\"; known are " +
                                std::string(kSettings));
            }
        }
    }
    if (options.directory.empty())
        return fail(Code::Invalid, "the setting path (the store's directory) is missing");
    return options;
}

StorageLocal::~StorageLocal() = default;

sdk::Identity StorageLocal::identity() const {
    sdk::Identity identity;
    identity.kind = abi::Kind::Storage;
    identity.name = "storage-local";
    identity.version = HF_VERSION;
    return identity;
}

Result<void> StorageLocal::configure(const abi::Configure& configure, sdk::Context& context) {
    context_ = &context;
    // A file size limit is then an error with a sentence (EFBIG), not a death.
    ::signal(SIGXFSZ, SIG_IGN);
    HF_ASSIGN(const Options options, read_settings(configure));
    HF_ASSIGN(bucket_, Bucket::open(options));
    if (bucket_->stale_readers() > 0)
        context.log(abi::LogLevel::Info,
                    "cleared " + std::to_string(bucket_->stale_readers()) +
                        " readers of dead processes from the store");
    bell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!bell_.valid()) return fail_errno(errno, "making the committer's bell");
    context.watch(bell_.get(), [this] { on_committed(); });
    committer_ = std::make_unique<Committer>(
        *bucket_, [this](std::vector<Finished> finished) { deliver(std::move(finished)); });
    return {};
}

void StorageLocal::handle(const sdk::Message& message) {
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

void StorageLocal::on_get(std::uint64_t req_id, const abi::Get& get) {
    ++counts_.gets;
    counts_changed_ = true;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const Result<Snapshot> snapshot = bucket_->read();
    if (gives_up_instead(snapshot)) return;
    const Result<Object> object =
        snapshot ? snapshot->get(view(get.key())) : Result<Object>(snapshot.error());
    if (!object) {
        const abi::Outcome outcome = outcome_of(object.error());
        if (outcome == abi::Outcome::Refused) ++counts_.refused;
        const auto reason =
            outcome == abi::Outcome::NotFound ? 0 : text(builder, object.error().message);
        context_->reply(req_id, abi::CreateGot(builder, outcome, 0, 0, nullptr, reason));
        return;
    }
    const abi::WriteId write_id(object->write_id.hi, object->write_id.lo);
    const auto given = sdk::reply_object(*context_, req_id, object->body, object->etag, write_id);
    if (given) return;
    ++counts_.refused;
    const auto reason = text(builder, given.error().message);
    context_->reply(req_id, abi::CreateGot(builder, abi::Outcome::Refused, 0, 0, nullptr, reason));
}

void StorageLocal::on_list(std::uint64_t req_id, const abi::List& list) {
    ++counts_.lists;
    counts_changed_ = true;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const std::uint32_t limit = list.limit() == 0 ? kListLimitMax : list.limit();
    const auto refuse = [&](std::string_view why) {
        ++counts_.refused;
        flatbuffers::FlatBufferBuilder& fresh = context_->builder();
        const auto reason = text(fresh, why);
        context_->reply(
            req_id, abi::CreateListed(fresh, abi::Outcome::Refused, 0, false, wall_ms(), reason));
    };
    if (limit > kListLimitMax)
        return refuse("limit is 1.." + std::to_string(kListLimitMax) + ", or 0 for all of them");
    const Result<Snapshot> snapshot = bucket_->read();
    if (gives_up_instead(snapshot)) return;
    if (!snapshot) return refuse(snapshot.error().message);

    std::array<flatbuffers::Offset<abi::Object>, kListLimitMax> objects;
    std::size_t count = 0;
    const Result<bool> more =
        snapshot->list(view(list.prefix()), view(list.after()), limit, [&](const Listing& listing) {
            if (builder.GetSize() + count * sizeof(flatbuffers::uoffset_t) + listing.key.size() +
                    kListedObjectBytes >
                kListBytesMax)
                return false;
            const auto key = builder.CreateString(listing.key.data(), listing.key.size());
            const auto etag = text(builder, listing.etag);
            objects.at(count++) =
                abi::CreateObject(builder, key, listing.size, etag, listing.last_modified_ms);
            return true;
        });
    if (!more) return refuse(more.error().message);
    const auto vector = builder.CreateVector(objects.data(), count);
    context_->reply(req_id,
                    abi::CreateListed(builder, abi::Outcome::Applied, vector, *more, wall_ms(), 0));
}

void StorageLocal::on_probe(std::uint64_t req_id) {
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const Result<Snapshot> snapshot = bucket_->read();
    if (gives_up_instead(snapshot)) return;
    const Result<Stats> stats = snapshot ? snapshot->stats() : Result<Stats>(snapshot.error());
    if (!stats || bucket_->broken()) {
        const auto reason =
            text(builder, stats ? "the store must be opened again" : stats.error().message);
        context_->reply(
            req_id,
            abi::CreateProbed(builder, abi::Outcome::Refused, true, 0, 0, 0, wall_ms(), reason));
        return;
    }
    context_->reply(req_id,
                    abi::CreateProbed(builder,
                                      abi::Outcome::Applied,
                                      true,
                                      stats->bytes_used,
                                      stats->bytes_max,
                                      stats->objects,
                                      wall_ms(),
                                      0));
}

void StorageLocal::on_put(std::uint64_t req_id, const abi::Put& put) {
    ++counts_.puts;
    counts_changed_ = true;
    Write write;
    write.token = req_id;
    write.kind = WriteKind::Put;
    write.key = view(put.key());
    write.etag = view(put.etag());
    write.condition = static_cast<Condition>(put.condition());
    if (put.body() != nullptr) write.body.assign(put.body()->begin(), put.body()->end());
    if (put.write_id() != nullptr) write.write_id = {put.write_id()->hi(), put.write_id()->lo()};
    if (const UniqueFd file = context_->take_body(); file.valid()) {
        const std::uint64_t bytes = put.body_bytes();
        const auto refuse = [&](std::string reason) {
            answer({req_id, WriteKind::Put, {Outcome::Refused, {}, {}, std::move(reason)}});
        };
        if (bytes > kObjectBytesMax) return refuse(body_too_large(bytes));
        write.body.resize(bytes);
        if (!ring::read_body(file.get(), write.body.data(), write.body.size(), 0))
            return refuse("the body's memory file could not be read");
    }
    submit(std::move(write));
}

void StorageLocal::on_delete(std::uint64_t req_id, const abi::Delete& erase) {
    ++counts_.deletes;
    counts_changed_ = true;
    Write write;
    write.token = req_id;
    write.kind = WriteKind::Delete;
    write.key = view(erase.key());
    write.etag = view(erase.etag());
    write.condition = static_cast<Condition>(erase.condition());
    if (erase.also() == nullptr || erase.also()->size() == 0) return submit(std::move(write));
    const std::size_t more = erase.also()->size();
    if (more > kDeleteAlsoMax)
        return answer({req_id,
                       WriteKind::Delete,
                       {Outcome::Refused,
                        {},
                        {},
                        std::to_string(more) + " further keys to delete, at most " +
                            std::to_string(kDeleteAlsoMax) + " are taken"}});
    deletes_.emplace(req_id, OpenDelete{more + 1, {Outcome::NotFound, {}, {}, {}}});
    submit(std::move(write));
    for (const flatbuffers::String* key : *erase.also()) {
        Write next;
        next.token = req_id;
        next.kind = WriteKind::Delete;
        next.key = view(key);
        submit(std::move(next));
    }
}

// One of several keys of a Delete is decided; true once all are, with the answer to them in `one`.
bool StorageLocal::last_of_delete(Finished& one) {
    const auto it = deletes_.find(one.token);
    if (it == deletes_.end()) return true;
    OpenDelete& open = it->second;
    const auto success = [](Outcome outcome) {
        return outcome == Outcome::Applied || outcome == Outcome::NotFound;
    };
    if (success(open.result.outcome) && one.result.outcome != Outcome::NotFound)
        open.result = std::move(one.result);
    if (--open.left != 0) return false;
    one.result = std::move(open.result);
    deletes_.erase(it);
    return true;
}

void StorageLocal::submit(Write write) {
    const std::uint64_t token = write.token;
    const WriteKind kind = write.kind;
    const auto refuse = [&](std::string reason) {
        answer({token, kind, {Outcome::Refused, {}, {}, std::move(reason)}});
    };
    // The verifier does not look at an enumeration's range.
    if (write.condition > Condition::IfMatch)
        return refuse("unknown condition " +
                      std::to_string(static_cast<unsigned>(write.condition)));
    if (!committer_->add(std::move(write)))
        return refuse("busy: " + std::to_string(kOpenWritesMax) + " writes or " +
                      std::to_string(kOpenBytesMax) +
                      " bytes wait for the disk already; nothing was taken, try again");
}

void StorageLocal::answer(Finished finished) {
    if (finished.kind == WriteKind::Delete && !last_of_delete(finished)) return;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const WriteResult& result = finished.result;
    if (result.outcome == Outcome::Refused) ++counts_.refused;
    const auto reason = text(builder, result.reason);
    if (finished.kind == WriteKind::Delete) {
        context_->reply(finished.token,
                        abi::CreateDeleted(builder, outcome_of(result.outcome), reason));
        return;
    }
    const auto etag = text(builder, result.etag);
    const abi::WriteId write_id(result.write_id.hi, result.write_id.lo);
    context_->reply(
        finished.token,
        abi::CreateStored(builder, outcome_of(result.outcome), etag, &write_id, reason));
}

void StorageLocal::deliver(std::vector<Finished> finished) {
    {
        const std::lock_guard lock(delivered_mutex_);
        delivered_.push_back(std::move(finished));
    }
    const std::uint64_t one = 1;
    (void)!::write(bell_.get(), &one, sizeof one);
}

void StorageLocal::on_committed() {
    std::uint64_t rung = 0;
    (void)!::read(bell_.get(), &rung, sizeof rung);
    std::vector<std::vector<Finished>> batches;
    {
        const std::lock_guard lock(delivered_mutex_);
        batches.swap(delivered_);
    }
    for (std::vector<Finished>& batch : batches) {
        committer_->settled(batch);
        for (Finished& one : batch) answer(std::move(one));
    }
    counts_changed_ = true;
    if (bucket_->broken()) give_up();
    report_counters();
}

void StorageLocal::batch_done() {
    if (committer_ == nullptr) return;
    committer_->hand_over();
    report_counters();
}

bool StorageLocal::shed_done() {
    return committer_ == nullptr || committer_->idle();
}

// The Fault and the answers must be out before the end: what is posted from a posted function runs a turn later, when
// the SDK has published what was sent before.
void StorageLocal::give_up() {
    if (std::exchange(gave_up_, true)) return;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const std::string why = bucket_->why_broken();
    const auto reason = text(builder, why);
    if (!context_->notify(abi::CreateFault(builder, reason)))
        context_->log(abi::LogLevel::Error, why);
    context_->post([this] { context_->post([] { std::_Exit(kExitBroken); }); });
}

// A read that this process cannot answer, and the next one can: the supervisor asks it again.
bool StorageLocal::gives_up_instead(const Result<Snapshot>& snapshot) {
    if (snapshot || !bucket_->broken()) return false;
    give_up();
    return true;
}

void StorageLocal::report_counters() {
    if (!counts_changed_) return;
    const std::int64_t now = monotonic_ns();
    if (counts_sent_ns_ != 0 && now - counts_sent_ns_ < kCountersEveryNs) return;
    flatbuffers::FlatBufferBuilder& builder = context_->builder();
    const std::array<std::pair<const char*, std::uint64_t>, 7> values{
        {{"puts", counts_.puts},
         {"gets", counts_.gets},
         {"lists", counts_.lists},
         {"deletes", counts_.deletes},
         {"commits", bucket_->commits()},
         {"batch_size_max", committer_->batch_max()},
         {"refused", counts_.refused}}};
    std::array<flatbuffers::Offset<abi::Counter>, 7> counters;
    for (std::size_t i = 0; i < values.size(); ++i)
        counters[i] = abi::CreateCounterDirect(builder, values[i].first, values[i].second);
    const auto vector = builder.CreateVector(counters.data(), counters.size());
    // Busy: the next report carries the same figures, they only grow.
    if (!context_->notify(abi::CreateCounters(builder, vector))) return;
    counts_sent_ns_ = now;
    counts_changed_ = false;
}

}  // namespace hf::bucket
