// Golden bytes: messages as this release writes them, kept in golden/messages.txt as `Name hex`. They must read as what
// they were, and writing the same values must give the same bytes. HOLDFAST_GOLDEN=write prints a new file to stdout.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "abi/layout/attach.hpp"
#include "abi/verify/verify.hpp"

using namespace hf;

namespace {

using Builder = flatbuffers::FlatBufferBuilder;

struct Sample {
    const char* name;
    abi::Kind kind;
    std::uint64_t req_id;
    std::uint64_t reply_to;
    std::function<flatbuffers::Offset<void>(Builder&)> build;
    std::function<void(const abi::Envelope&)> look;
};

abi::Body type_of(const std::string& name) {
    for (std::size_t i = 1; i < abi::kMessageCount; ++i)
        if (name == abi::kMessageTraits[i].name) return static_cast<abi::Body>(i);
    return abi::Body::NONE;
}

flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> bytes(Builder& fbb,
                                                             const std::string& text) {
    // SAFETY: any object may be viewed as unsigned bytes.
    return fbb.CreateVector(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

std::vector<Sample> samples() {
    return {
        {"Greet",
         abi::Kind::Placement,
         0,
         0,
         [](Builder& fbb) {
             const auto name = fbb.CreateString("scheduler");
             const auto version = fbb.CreateString("1");
             const auto policies = fbb.CreateVectorOfStrings({"rendezvous", "spread"});
             return abi::CreateGreet(fbb, 0, 2, abi::Kind::Placement, name, version, policies)
                 .Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Greet()->minor_max() == 2);
             CHECK(e.body_as_Greet()->policies()->Get(1)->str() == "spread");
         }},
        {"Configure",
         abi::Kind::Storage,
         7,
         0,
         [](Builder& fbb) {
             const std::vector settings{abi::CreateSettingDirect(fbb, "map_bytes", "16GiB")};
             return abi::CreateConfigureDirect(fbb, nullptr, &settings, 42, "default", "app")
                 .Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Configure()->seed() == 42);
             CHECK(e.body_as_Configure()->settings()->Get(0)->value()->str() == "16GiB");
         }},
        {"Request",
         abi::Kind::Gateway,
         3,
         0,
         [](Builder& fbb) {
             const auto cls = fbb.CreateString("counter");
             const auto name = fbb.CreateString("alice");
             const auto event = bytes(fbb, "event");
             return abi::CreateRequest(fbb, cls, name, event).Union();
         },
         [](const abi::Envelope& e) { CHECK(e.body_as_Request()->name()->str() == "alice"); }},
        {"Put",
         abi::Kind::Storage,
         9,
         0,
         [](Builder& fbb) {
             const auto key = fbb.CreateString("apps/a/log/u/00000000000000000001");
             const auto body = bytes(fbb, "entry");
             const abi::WriteId id(1, 2);
             return abi::CreatePut(fbb, key, body, abi::Condition::IfAbsent, 0, &id).Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Put()->condition() == abi::Condition::IfAbsent);
             CHECK(e.body_as_Put()->write_id()->lo() == 2);
         }},
        {"Stored",
         abi::Kind::Storage,
         0,
         9,
         [](Builder& fbb) {
             const auto etag = fbb.CreateString("e1");
             return abi::CreateStored(fbb, abi::Outcome::PreconditionFailed, etag).Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Stored()->outcome() == abi::Outcome::PreconditionFailed);
         }},
        {"Deliver",
         abi::Kind::Runtime,
         11,
         0,
         [](Builder& fbb) {
             const auto event = bytes(fbb, "event");
             const abi::EventId id(5, 6);
             return abi::CreateDeliver(fbb, 4, &id, 1, abi::EventKind::Http, event, 1700000000000)
                 .Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Deliver()->event_id()->counter() == 6);
             CHECK(e.body_as_Deliver()->now_ms() == 1700000000000);
         }},
        {"Delivered",
         abi::Kind::Runtime,
         0,
         11,
         [](Builder& fbb) {
             const auto body = bytes(fbb, "reply");
             const auto alarm = abi::CreateAlarm(fbb, 99, false);
             abi::DeliveredBuilder out(fbb);
             out.add_activation(4);
             out.add_reply_status(200);
             out.add_reply_body(body);
             out.add_alarm(alarm);
             return out.Finish().Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Delivered()->alarm()->due_ms() == 99);
             CHECK(e.body_as_Delivered()->resident());
         }},
        {"Place",
         abi::Kind::Placement,
         13,
         0,
         [](Builder& fbb) {
             const std::vector candidates{
                 abi::CreateCandidateDirect(fbb, 1, "n1", 0, 3, true, 2, 8)};
             return abi::CreatePlaceDirect(
                        fbb, "actor/default/counter/alice", "counter", 0, &candidates, 5)
                 .Union();
         },
         [](const abi::Envelope& e) {
             CHECK(e.body_as_Place()->candidates()->Get(0)->capacity() == 8);
         }},
        {"Step",
         abi::Kind::Drain,
         0,
         15,
         [](Builder& fbb) {
             const std::vector<std::uint32_t> ids{3, 4};
             return abi::CreateStepDirect(fbb, &ids, 100).Union();
         },
         [](const abi::Envelope& e) { CHECK(e.body_as_Step()->hand_over()->Get(1) == 4); }},
    };
}

std::string hex(const std::uint8_t* data, std::size_t size) {
    static const char digits[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < size; ++i) {
        out.push_back(digits[data[i] >> 4U]);
        out.push_back(digits[data[i] & 15U]);
    }
    return out;
}

std::string written(const Sample& sample) {
    Builder fbb;
    const auto body = sample.build(fbb);
    fbb.Finish(abi::CreateEnvelope(
                   fbb, 1, sample.reply_to, 3, 1234567890123, 77, type_of(sample.name), body),
               abi::EnvelopeIdentifier());
    return hex(fbb.GetBufferPointer(), fbb.GetSize());
}

std::map<std::string, std::string> golden() {
    std::ifstream file(HF_GOLDEN);
    std::map<std::string, std::string> out;
    for (std::string name, text; file >> name >> text;) out[name] = text;
    return out;
}

}  // namespace

TEST_CASE("golden_messages_read_and_write_as_they_did") {
    if (const char* mode = std::getenv("HOLDFAST_GOLDEN");
        mode != nullptr && std::string(mode) == "write") {
        for (const Sample& sample : samples())
            std::cout << sample.name << " " << written(sample) << "\n";
        return;
    }
    const auto kept = golden();
    CHECK(kept.size() == samples().size());
    for (const Sample& sample : samples()) {
        CAPTURE(sample.name);
        const auto found = kept.find(sample.name);
        REQUIRE(found != kept.end());
        alignas(64) std::array<std::uint8_t, 4096> copy{};
        const std::size_t size = found->second.size() / 2;
        REQUIRE(size <= copy.size());
        for (std::size_t i = 0; i < size; ++i)
            copy[i] =
                static_cast<std::uint8_t>(std::stoi(found->second.substr(2 * i, 2), nullptr, 16));
        const abi::Body type = type_of(sample.name);
        verify::Checker checker(abi::traits_of(type).from, sample.kind, 3);
        const abi::Envelope* envelope = checker.check(
            {static_cast<std::uint32_t>(size), static_cast<std::uint16_t>(type), 0, sample.req_id},
            {copy.data(), size});
        REQUIRE_MESSAGE(envelope != nullptr, verify::text_of(checker.reason()));
        CHECK(envelope->reply_to() == sample.reply_to);
        CHECK(envelope->deadline_ns() == 1234567890123);
        CHECK(envelope->trace_id() == 77);
        sample.look(*envelope);
        CHECK(written(sample) == found->second);
    }
}

TEST_CASE("union_numbers_are_the_wire's") {
    // Appending is allowed; any other change of these numbers breaks every plugin in the field.
    CHECK(static_cast<int>(abi::Body::Greet) == 1);
    CHECK(static_cast<int>(abi::Body::Counters) == 11);
    CHECK(static_cast<int>(abi::Body::Request) == 12);
    CHECK(static_cast<int>(abi::Body::Listening) == 27);
    CHECK(static_cast<int>(abi::Body::Get) == 28);
    CHECK(static_cast<int>(abi::Body::Probed) == 37);
    CHECK(static_cast<int>(abi::Body::Prepare) == 38);
    CHECK(static_cast<int>(abi::Body::Resume) == 50);
    CHECK(static_cast<int>(abi::Body::Place) == 51);
    CHECK(static_cast<int>(abi::Body::Step) == 58);
}

TEST_CASE("layout_as_documented") {
    // Authors of other implementations read these off the documentation.
    CHECK(layout::kHeaderBytes == 4096);
    CHECK(sizeof(layout::RecordHeader) == 16);
    CHECK(sizeof(layout::AttachMessage) == 424);
    std::uint64_t magic = 0;
    std::memcpy(&magic, "HFSEGM01", sizeof(magic));
    CHECK(layout::kSegmentMagic == magic);
    std::memcpy(&magic, "HFATTACH", sizeof(magic));
    CHECK(layout::kAttachMagic == magic);
}
