// Any record from any side of a link of any kind: judged by the checker, and what it lets through from a plugin becomes a
// struct of the core, or a sentence on what this node does not take. Nothing is read that the verifier did not see.
// Input: type 2, request id 8, sender 1, kind 1 byte, then the payload.
#include <cstring>
#include <memory>

#include "abi/verify/verify.hpp"
#include "agent/port/translate.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using namespace hf;  // NOLINT(google-build-using-namespace): the rooms under test
using fuzz::Feed;
using fuzz::must;
using fuzz::Seed;
using Builder = flatbuffers::FlatBufferBuilder;
template <class T>
using Offset = flatbuffers::Offset<T>;

constexpr std::uint64_t kGeneration = 1;

// As the consumer's own copy: aligned, and not a byte longer than the record.
struct Copy {
    explicit Copy(BytesView from) : size(from.size()) {
        const std::size_t room = (size + 63) / 64 * 64;
        at = static_cast<std::uint8_t*>(std::aligned_alloc(64, room == 0 ? 64 : room));
        begin =
            at + (room == 0 ? 64 : room) - (size + 7) / 8 * 8;  // what is read beyond lies outside
        if (size > 0) std::memcpy(begin, from.data(), size);
    }
    ~Copy() { std::free(at); }
    Copy(const Copy&) = delete;
    Copy& operator=(const Copy&) = delete;
    [[nodiscard]] BytesView view() const { return {begin, size}; }
    std::size_t size;
    std::uint8_t* at;
    std::uint8_t* begin;
};

Bytes seed(const char* name, abi::Kind kind, Builder& fbb, Offset<void> body) {
    abi::Body type = abi::Body::NONE;
    for (std::size_t i = 1; i < abi::kMessageCount; ++i)
        if (std::string_view(name) == abi::kMessageTraits.at(i).name)
            type = static_cast<abi::Body>(i);
    const abi::MessageTraits& traits = abi::traits_of(type);
    must(type != abi::Body::NONE);
    fbb.Finish(abi::CreateEnvelope(fbb, 1, traits.answer ? 7 : 0, kGeneration, 99, 5, type, body),
               abi::EnvelopeIdentifier());
    Seed out;
    out.u16(static_cast<std::uint64_t>(type)).u64(traits.request ? 7 : 0);
    out.u8(traits.from == abi::From::Supervisor ? 0 : 1).u8(static_cast<std::uint64_t>(kind));
    out.raw({fbb.GetBufferPointer(), fbb.GetSize()});
    return out.bytes();
}

Offset<flatbuffers::Vector<std::uint8_t>> blob(Builder& fbb, std::string_view text) {
    return fbb.CreateVector(as_bytes(text).data(), text.size());
}

template <class Make>
void add(std::vector<Bytes>& out, const char* name, abi::Kind kind, const Make& make) {
    Builder fbb;
    out.push_back(seed(name, kind, fbb, make(fbb).Union()));
}

void control_seeds(std::vector<Bytes>& out) {
    add(out, "Greet", abi::Kind::Placement, [](Builder& fbb) {
        const auto policies = fbb.CreateVectorOfStrings({"rendezvous", "pinned"});
        const auto name = fbb.CreateString("scheduler");
        return abi::CreateGreet(fbb, 0, 2, abi::Kind::Placement, name, name, policies);
    });
    add(out, "Ready", abi::Kind::Drain, [](Builder& fbb) {
        return abi::CreateReadyDirect(fbb, false, "no moon", "far");
    });
    add(out, "Log", abi::Kind::Runtime, [](Builder& fbb) {
        return abi::CreateLogDirect(fbb, abi::LogLevel::Warn, "text", "actor/t/c/n");
    });
    add(out, "Fault", abi::Kind::Storage, [](Builder& fbb) {
        return abi::CreateFaultDirect(fbb, "no disk");
    });
    add(out, "Counters", abi::Kind::Gateway, [](Builder& fbb) {
        const std::vector values{abi::CreateCounterDirect(fbb, "requests", 3)};
        return abi::CreateCountersDirect(fbb, &values);
    });
    add(out, "Configure", abi::Kind::Runtime, [](Builder& fbb) {
        const std::vector settings{abi::CreateSettingDirect(fbb, "a", "b")};
        const std::vector modules{abi::CreateModuleDirect(fbb, "c", "/m", "h", 1, 2, 3, 4)};
        return abi::CreateConfigureDirect(fbb, "p", &settings, 1, "t", "a", &modules, 2);
    });
}

void gateway_seeds(std::vector<Bytes>& out) {
    constexpr auto kKind = abi::Kind::Gateway;
    add(out, "Query", kKind, [](Builder& fbb) { return abi::CreateQueryDirect(fbb, "metrics"); });
    add(out, "Request", kKind, [](Builder& fbb) {
        const auto name = fbb.CreateString("counter");
        const auto event = blob(fbb, "event");
        return abi::CreateRequest(fbb, name, name, event, name);
    });
    add(out, "SocketOpened", kKind, [](Builder& fbb) {
        const auto name = fbb.CreateString("chat");
        const auto event = blob(fbb, "event");
        return abi::CreateSocketOpened(fbb, 9, name, name, event, name);
    });
    add(out, "SocketMessage", kKind, [](Builder& fbb) {
        const auto data = blob(fbb, "hello");
        return abi::CreateSocketMessage(fbb, 9, true, data);
    });
    add(out, "SocketClosed", kKind, [](Builder& fbb) {
        return abi::CreateSocketClosedDirect(fbb, 9, 1001, "bye");
    });
    add(out, "Reply", kKind, [](Builder& fbb) {
        const auto body = blob(fbb, "body");
        return abi::CreateReply(fbb, 200, abi::ReplyReason::Ok, 0, body, body);
    });
    add(out, "SocketSend", kKind, [](Builder& fbb) {
        const auto data = blob(fbb, "hello");
        return abi::CreateSocketSend(fbb, 9, false, data);
    });
}

void storage_seeds(std::vector<Bytes>& out) {
    constexpr auto kKind = abi::Kind::Storage;
    static const abi::WriteId kId(1, 2);
    add(out, "Got", kKind, [](Builder& fbb) {
        const auto body = blob(fbb, "body");
        const auto etag = fbb.CreateString("e1");
        return abi::CreateGot(fbb, abi::Outcome::Applied, body, etag, &kId, etag);
    });
    add(out, "Stored", kKind, [](Builder& fbb) {
        return abi::CreateStoredDirect(fbb, abi::Outcome::Refused, "e1", &kId, "full");
    });
    add(out, "Deleted", kKind, [](Builder& fbb) {
        return abi::CreateDeletedDirect(fbb, abi::Outcome::NotFound, "none");
    });
    add(out, "Listed", kKind, [](Builder& fbb) {
        const std::vector objects{abi::CreateObjectDirect(fbb, "k1", 5, "e", 6),
                                  abi::CreateObjectDirect(fbb, "k2", 7, "f", 8)};
        return abi::CreateListedDirect(fbb, abi::Outcome::Applied, &objects, true, 9, "r");
    });
    add(out, "Probed", kKind, [](Builder& fbb) {
        return abi::CreateProbedDirect(fbb, abi::Outcome::Applied, true, 1, 2, 3, 4, "r");
    });
    add(out, "Put", kKind, [](Builder& fbb) {
        const auto key = fbb.CreateString("apps/a/log/u/1");
        const auto body = blob(fbb, "entry");
        return abi::CreatePut(fbb, key, body, abi::Condition::IfMatch, key, &kId);
    });
}

void runtime_seeds(std::vector<Bytes>& out) {
    constexpr auto kKind = abi::Kind::Runtime;
    add(out, "Activated", kKind, [](Builder& fbb) {
        return abi::CreateActivatedDirect(fbb, 4, 0, abi::ActivateStatus::Full, "full");
    });
    add(out, "Delivered", kKind, [](Builder& fbb) {
        const auto bytes = blob(fbb, "bytes");
        const auto text = fbb.CreateString("bank/alice");
        const std::vector sends{abi::CreateSend(fbb, text, text, bytes)};
        const auto also = fbb.CreateVector(std::vector<std::uint64_t>{10, 9});
        const std::vector sockets{abi::CreateSocketCommand(fbb, 9, true, 1000, false, bytes),
                                  abi::CreateSocketCommand(fbb, 9, false, 0, true, bytes, also)};
        const auto send_list = fbb.CreateVector(sends);
        const auto socket_list = fbb.CreateVector(sockets);
        const auto alarm = abi::CreateAlarm(fbb, 99, false);
        const auto call = abi::CreateCall(fbb, 1, text, text, bytes, 50);
        abi::DeliveredBuilder table(fbb);
        table.add_activation(4);
        table.add_status(abi::DeliverStatus::Calling);
        table.add_error(text);
        table.add_reply_status(200);
        table.add_reply_headers(bytes);
        table.add_reply_body(bytes);
        table.add_changes(bytes);
        table.add_alarm(alarm);
        table.add_sends(send_list);
        table.add_sockets(socket_list);
        table.add_call(call);
        return table.Finish();
    });
    add(out, "Checkpointed", kKind, [](Builder& fbb) {
        const auto base = blob(fbb, "base");
        const auto error = fbb.CreateString("why");
        return abi::CreateCheckpointed(fbb, 4, true, base, error);
    });
    add(out, "Dropped", kKind, [](Builder& fbb) { return abi::CreateDropped(fbb, 4); });
    add(out, "Activate", kKind, [](Builder& fbb) {
        const auto text = fbb.CreateString("actor/t/c/n");
        const auto changes = blob(fbb, "changes");
        const std::vector entries{abi::CreateStoredChanges(fbb, 3, true, changes)};
        const auto list = fbb.CreateVector(entries);
        return abi::CreateActivate(fbb, text, text, text, text, 4, 1, 0, false, list, 77);
    });
    add(out, "Deliver", kKind, [](Builder& fbb) {
        const auto event = blob(fbb, "event");
        const abi::EventId id(5, 6);
        return abi::CreateDeliver(fbb, 4, &id, 1, abi::EventKind::Http, event, 1);
    });
}

void policy_seeds(std::vector<Bytes>& out) {
    add(out, "Placed", abi::Kind::Placement, [](Builder& fbb) {
        const std::vector counts{abi::CreateFilterCountDirect(fbb, "alive", 1)};
        const std::vector rejections{abi::CreateRejectionDirect(fbb, 1, "dead")};
        return abi::CreatePlacedDirect(fbb, 2, true, "none", &counts, &rejections);
    });
    add(out, "Step", abi::Kind::Drain, [](Builder& fbb) {
        const std::vector<std::uint32_t> ids{3, 4};
        return abi::CreateStepDirect(fbb, &ids, 100, true, "stuck");
    });
    add(out, "Place", abi::Kind::Placement, [](Builder& fbb) {
        const std::vector list{abi::CreateCandidateDirect(fbb, 1, "n1", 0, 3, true, 2, 8)};
        return abi::CreatePlaceDirect(fbb, "actor/t/c/n", "c", 0, &list, 5);
    });
    add(out, "Next", abi::Kind::Drain, [](Builder& fbb) {
        const std::vector list{abi::CreateResidentDirect(fbb, 1, "actor/t/c/n")};
        return abi::CreateNextDirect(fbb, &list, 1, 0, 16);
    });
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> out;
    control_seeds(out);
    gateway_seeds(out);
    storage_seeds(out);
    runtime_seeds(out);
    policy_seeds(out);
    return out;
}

// What the daemon itself serves instead of the core: read as it reads them.
std::size_t read_here(const port::Received& record) {
    std::size_t sum = 0;
    if (record.type == abi::Body::Log) {
        const auto& log = record.as<abi::Log>();
        sum += log.text()->str().size() + (log.unit() != nullptr ? log.unit()->size() : 0);
    } else if (record.type == abi::Body::Fault) {
        sum += record.as<abi::Fault>().reason()->str().size();
    } else if (record.type == abi::Body::Query) {
        sum += record.as<abi::Query>().page()->str().size();
    } else if (const auto* values = record.type == abi::Body::Counters
                                        ? record.as<abi::Counters>().values()
                                        : nullptr) {
        for (const auto* each : *values) sum += each->name()->str().size() + each->value();
    }
    return sum;
}

// Whether the checker let it through.
bool judge(Feed feed) {
    layout::RecordHeader header{0, feed.u16(), 0, feed.u64()};
    const auto sender = static_cast<abi::From>(feed.u8() % 2 + 1);
    const auto kind = static_cast<abi::Kind>(feed.u8() % 6);
    const BytesView rest = feed.bytes(kRecordBytesMax - sizeof header);
    const Copy copy(rest);
    header.length = static_cast<std::uint32_t>(rest.size());
    verify::Checker checker(sender, kind, kGeneration);
    const abi::Envelope* envelope = checker.check(header, copy.view());
    must((envelope == nullptr) == (checker.reason() != verify::Reason::None));
    must(std::string_view(verify::text_of(checker.reason())) != "unknown");
    if (envelope == nullptr) return false;
    if (sender != abi::From::Plugin) return true;
    port::Received record;
    record.req_id = header.req_id;
    record.reply_to = envelope->reply_to();
    record.trace_id = envelope->trace_id();
    record.deadline_ns = envelope->deadline_ns();
    record.type = envelope->body_type();
    record.body = envelope->body();
    static volatile std::size_t sink = 0;
    sink = sink + read_here(record);
    const auto event = port::to_event(Handle{1, kGeneration}, record);
    must(event.has_value() || record.type == abi::Body::Cancelled);
    return true;
}

std::vector<Bytes> good_seeds() {
    std::vector<Bytes> out = seeds();
    for (const Bytes& each : out) must(judge({each.data(), each.size()}));
    return out;
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return good_seeds();
}

void hf::fuzz::take(BytesView input) {
    (void)judge(Feed(input));
}
