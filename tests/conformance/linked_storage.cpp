#include "tests/conformance/linked_storage.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <random>
#include <unordered_map>

#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "agent/port/large.hpp"

namespace hf::conformance {
namespace {

// An answer that takes longer is a failure; generous for sanitizer builds on a busy machine.
constexpr int kAnswerMs = 30'000;
constexpr int kShedMs = 10'000;

std::string text(const flatbuffers::String* words) {
    return words == nullptr ? std::string() : words->str();
}
Id id_of(const abi::WriteId* id) {
    return id == nullptr ? Id{} : Id{id->hi(), id->lo()};
}

flatbuffers::Offset<flatbuffers::String> word(flatbuffers::FlatBufferBuilder& builder,
                                              const std::string& words) {
    if (words.empty()) return 0;
    return builder.CreateString(words);
}

StoredReply read_stored(const abi::Stored& stored) {
    return {stored.outcome(), text(stored.etag()), id_of(stored.write_id()), text(stored.reason())};
}

}  // namespace

LinkedStorage::LinkedStorage(std::string binary, Settings settings, Traits traits)
    : binary_(std::move(binary)), settings_(std::move(settings)), traits_(traits) {}

Result<void> LinkedStorage::start() {
    rig::Setup setup;
    setup.settings = settings_;
    started_ = rig::start(
        pool_, {}, ++generation_, abi::Kind::Storage, binary_, {"--kind", "storage"}, setup);
    if (started_.ready) return {};
    trouble_ = started_.error;
    return fail(Code::Unavailable, started_.error);
}

void LinkedStorage::kill() {
    started_.child.signal(SIGKILL);
    started_.child.reap();
}

int LinkedStorage::shed() {
    auto& builder = started_.channel->builder();
    started_.channel->notify(abi::CreateShed(builder, monotonic_ns() + kShedMs * 1'000'000LL));
    started_.channel->flush();
    (void)rig::run_until(
        *started_.channel,
        [this](const port::Received& received) { note(received); },
        [] { return false; },
        kShedMs);
    const int status = started_.child.reap();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void LinkedStorage::note(const port::Received& received) {
    if (received.type == abi::Body::Fault) trouble_ = text(received.as<abi::Fault>().reason());
    if (received.type != abi::Body::Counters) return;
    ++counters_messages_;
    counters_.clear();
    if (const auto* values = received.as<abi::Counters>().values())
        for (const abi::Counter* counter : *values)
            counters_.emplace_back(text(counter->name()), counter->value());
}

template <class Reply, class Read>
Reply LinkedStorage::await(std::uint64_t req_id, abi::Body type, const Read& read) {
    Reply reply;
    bool answered = false;
    std::string fault;
    const bool ended = rig::run_until(
        *started_.channel,
        [&](const port::Received& received) {
            if (received.reply_to == req_id && received.type == type) {
                reply = read(received);
                answered = true;
            } else {
                note(received);
            }
        },
        [&] { return answered; },
        kAnswerMs,
        &fault);
    if (!ended)
        trouble_ = fault.empty() ? "no answer within " + std::to_string(kAnswerMs) + " ms" : fault;
    return reply;
}

GotReply LinkedStorage::get(const std::string& key) {
    auto& builder = started_.channel->builder();
    const std::uint64_t id = next_req_++;
    const auto name = builder.CreateString(key);
    started_.channel->request(id, abi::CreateGet(builder, name), 0, 0);
    return await<GotReply>(id, abi::Body::Got, [](const port::Received& received) {
        const auto& got = received.as<abi::Got>();
        GotReply reply{
            got.outcome(), {}, text(got.etag()), id_of(got.write_id()), text(got.reason())};
        if (got.body() != nullptr) reply.body.assign(got.body()->begin(), got.body()->end());
        Bytes large;
        if (received.attached != nullptr && port::read_state(*received.attached, large))
            reply.body = as_text(large);
        return reply;
    });
}

std::uint64_t LinkedStorage::ask_put(const PutCall& call) {
    auto& builder = started_.channel->builder();
    const std::uint64_t id = next_req_++;
    const auto key = builder.CreateString(call.key);
    // As the supervisor does: what no record holds goes as a memory file.
    const bool large = call.body.size() > kInlineObjectBytesMax;
    std::uint64_t token = 0;
    flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> body;
    if (large) {
        auto file = port::state_file(as_bytes(call.body));
        if (file == nullptr) trouble_ = "no memory file could be made for a large put";
        if (file != nullptr) token = started_.channel->carry(std::move(file));
    } else {
        const BytesView bytes = as_bytes(call.body);
        body = builder.CreateVector(bytes.data(), bytes.size());
    }
    const auto etag = word(builder, call.etag);
    const abi::WriteId write_id(call.write_id.hi, call.write_id.lo);
    const port::Sent sent = started_.channel->request(id,
                                                      abi::CreatePut(builder,
                                                                     key,
                                                                     body,
                                                                     call.condition,
                                                                     etag,
                                                                     &write_id,
                                                                     token,
                                                                     large ? call.body.size() : 0),
                                                      0,
                                                      0);
    if (sent != port::Sent::Now && sent != port::Sent::Queued)
        trouble_ = "a put was not taken by the link";
    return id;
}

std::vector<StoredReply> LinkedStorage::put_all(std::span<const PutCall> calls) {
    std::vector<StoredReply> replies(calls.size());
    std::unordered_map<std::uint64_t, std::size_t> open;
    for (std::size_t i = 0; i < calls.size(); ++i) open[ask_put(calls[i])] = i;
    std::string fault;
    const bool ended = rig::run_until(
        *started_.channel,
        [&](const port::Received& received) {
            const auto found = open.find(received.reply_to);
            if (found == open.end() || received.type != abi::Body::Stored) return note(received);
            replies[found->second] = read_stored(received.as<abi::Stored>());
            open.erase(found);
        },
        [&] { return open.empty(); },
        kAnswerMs,
        &fault);
    if (!ended)
        trouble_ = fault.empty() ? std::to_string(open.size()) + " puts were not answered" : fault;
    return replies;
}

std::vector<StoredReply> LinkedStorage::put_and_kill(std::span<const PutCall> calls,
                                                     std::vector<bool>& answered) {
    static std::mt19937 random(std::random_device{}());
    std::vector<StoredReply> replies(calls.size());
    answered.assign(calls.size(), false);
    std::unordered_map<std::uint64_t, std::size_t> open;
    for (std::size_t i = 0; i < calls.size(); ++i) open[ask_put(calls[i])] = i;
    const auto handler = [&](const port::Received& received) {
        const auto found = open.find(received.reply_to);
        if (found == open.end() || received.type != abi::Body::Stored) return note(received);
        replies[found->second] = read_stored(received.as<abi::Stored>());
        answered[found->second] = true;
        open.erase(found);
    };
    // Somewhere between the first answers and the last.
    const std::size_t enough = calls.empty() ? 0 : random() % calls.size();
    (void)rig::run_until(
        *started_.channel,
        handler,
        [&] { return calls.size() - open.size() >= enough; },
        kAnswerMs);
    kill();
    if (const auto drained = started_.channel->drain_final(handler); !drained)
        trouble_ = drained.error().message;
    if (const auto again = start(); !again) trouble_ = again.error().message;
    return replies;
}

DeletedReply LinkedStorage::erase(const DeleteCall& call) {
    auto& builder = started_.channel->builder();
    const std::uint64_t id = next_req_++;
    const auto key = builder.CreateString(call.key);
    const auto etag = word(builder, call.etag);
    const auto also = call.also.empty() ? 0 : builder.CreateVectorOfStrings(call.also);
    started_.channel->request(
        id, abi::CreateDelete(builder, key, call.condition, etag, also), 0, 0);
    return await<DeletedReply>(id, abi::Body::Deleted, [](const port::Received& received) {
        const auto& deleted = received.as<abi::Deleted>();
        return DeletedReply{deleted.outcome(), text(deleted.reason())};
    });
}

ListedReply LinkedStorage::list(const ListCall& call) {
    auto& builder = started_.channel->builder();
    const std::uint64_t id = next_req_++;
    const auto prefix = builder.CreateString(call.prefix);
    const auto after = word(builder, call.after);
    started_.channel->request(id, abi::CreateList(builder, prefix, after, call.limit), 0, 0);
    return await<ListedReply>(id, abi::Body::Listed, [](const port::Received& received) {
        const auto& listed = received.as<abi::Listed>();
        ListedReply reply{
            listed.outcome(), {}, listed.more(), listed.store_time_ms(), text(listed.reason())};
        if (listed.objects() != nullptr)
            for (const abi::Object* object : *listed.objects())
                reply.objects.push_back({text(object->key()),
                                         object->size(),
                                         text(object->etag()),
                                         object->last_modified_ms()});
        return reply;
    });
}

ProbedReply LinkedStorage::probe() {
    auto& builder = started_.channel->builder();
    const std::uint64_t id = next_req_++;
    started_.channel->request(id, abi::CreateProbe(builder), 0, 0);
    return await<ProbedReply>(id, abi::Body::Probed, [](const port::Received& received) {
        const auto& probed = received.as<abi::Probed>();
        return ProbedReply{probed.outcome(),
                           probed.conditional_writes(),
                           probed.bytes_used(),
                           probed.bytes_max(),
                           probed.objects(),
                           probed.store_time_ms(),
                           text(probed.reason())};
    });
}

}  // namespace hf::conformance
