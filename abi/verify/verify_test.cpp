// Every way a record may be no message of this link, one by one, and that a good one passes.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>

#include "abi/verify/verify.hpp"

using namespace hf;
using verify::Checker;
using verify::Reason;

namespace {

constexpr std::uint64_t kGeneration = 5;

// A record as the reader's private copy has it.
struct Record {
    layout::RecordHeader header{};
    alignas(64) std::array<std::uint8_t, kRecordBytesMax> copy{};
    std::size_t bytes = 0;
    [[nodiscard]] BytesView payload() const { return {copy.data(), bytes}; }
};

struct Fields {
    std::uint64_t seq = 1;
    std::uint64_t reply_to = 0;
    std::uint64_t generation = kGeneration;
    std::uint64_t req_id = 0;
    abi::Body tag = abi::Body::NONE;  // of the envelope; NONE: as the body
    const char* identifier = "HFM1";
};

template <class T>
std::unique_ptr<Record> record(flatbuffers::FlatBufferBuilder& fbb,
                               flatbuffers::Offset<T> body,
                               Fields fields = {}) {
    const abi::Body type = abi::BodyTraits<T>::enum_value;
    fbb.Finish(abi::CreateEnvelope(fbb,
                                   fields.seq,
                                   fields.reply_to,
                                   fields.generation,
                                   0,
                                   0,
                                   fields.tag == abi::Body::NONE ? type : fields.tag,
                                   body.Union()),
               fields.identifier);
    auto out = std::make_unique<Record>();
    out->bytes = fbb.GetSize();
    std::memcpy(out->copy.data(), fbb.GetBufferPointer(), out->bytes);
    out->header = {
        static_cast<std::uint32_t>(out->bytes), static_cast<std::uint16_t>(type), 0, fields.req_id};
    return out;
}

std::unique_ptr<Record> log_line(Fields fields = {}) {
    flatbuffers::FlatBufferBuilder fbb;
    return record(
        fbb, abi::CreateLog(fbb, abi::LogLevel::Info, fbb.CreateString("a line")), fields);
}

Reason judged(const Record& one,
              abi::Kind kind = abi::Kind::Storage,
              abi::From from = abi::From::Plugin) {
    Checker checker(from, kind, kGeneration);
    const bool passed = checker.check(one.header, one.payload()) != nullptr;
    CHECK(passed == (checker.reason() == Reason::None));
    return checker.reason();
}

}  // namespace

TEST_CASE("a_good_record_passes_and_counts") {
    Checker checker(abi::From::Plugin, abi::Kind::Storage, kGeneration);
    for (std::uint64_t seq = 1; seq <= 3; ++seq) {
        Fields fields;
        fields.seq = seq;
        const auto one = log_line(fields);
        const abi::Envelope* envelope = checker.check(one->header, one->payload());
        REQUIRE(envelope != nullptr);
        CHECK(envelope->body_as_Log()->text()->str() == "a line");
    }
}

TEST_CASE("type_number_out_of_range") {
    const auto one = log_line();
    for (const unsigned type :
         {0U, static_cast<unsigned>(abi::kMessageCount), 255U, 256U, 65535U}) {
        one->header.type = static_cast<std::uint16_t>(type);
        CHECK(judged(*one) == Reason::UnknownType);
    }
}

TEST_CASE("union_tag_differs_from_the_record_type") {
    Fields fields;
    fields.tag = abi::Body::Greet;  // has no such fields: already the verifier refuses it
    CHECK(judged(*log_line(fields)) == Reason::NotVerified);
    flatbuffers::FlatBufferBuilder fbb;
    fields.tag = abi::Body::Shed;  // an empty table is valid for either
    CHECK(judged(*record(fbb, abi::CreateCancelled(fbb), fields), abi::Kind::Gateway) ==
          Reason::TypeMismatch);
    // A tag that the verifier does not know passes it unseen.
    fields.tag = static_cast<abi::Body>(200);
    CHECK(judged(*log_line(fields)) == Reason::TypeMismatch);
}

TEST_CASE("envelope_without_a_body") {
    flatbuffers::FlatBufferBuilder fbb;
    fbb.Finish(abi::CreateEnvelope(fbb, 1, 0, kGeneration), abi::EnvelopeIdentifier());
    auto one = std::make_unique<Record>();
    one->bytes = fbb.GetSize();
    std::memcpy(one->copy.data(), fbb.GetBufferPointer(), one->bytes);
    one->header = {
        static_cast<std::uint32_t>(one->bytes), static_cast<std::uint16_t>(abi::Body::Log), 0, 0};
    CHECK(judged(*one) == Reason::TypeMismatch);
}

TEST_CASE("message_of_the_other_side") {
    CHECK(judged(*log_line(), abi::Kind::Storage, abi::From::Supervisor) == Reason::WrongSender);
    flatbuffers::FlatBufferBuilder fbb;
    CHECK(judged(*record(fbb, abi::CreateStop(fbb))) == Reason::WrongSender);
}

TEST_CASE("message_of_another_kind_of_plugin") {
    flatbuffers::FlatBufferBuilder fbb;
    Fields fields;
    fields.reply_to = 1;
    const auto one = record(fbb, abi::CreatePlaced(fbb), fields);
    CHECK(judged(*one, abi::Kind::Storage) == Reason::WrongKind);
    CHECK(judged(*one, abi::Kind::Placement) == Reason::None);
}

TEST_CASE("sequence_gap_and_repeat") {
    Fields fields;
    fields.seq = 2;
    CHECK(judged(*log_line(fields)) == Reason::SequenceGap);
    fields.seq = 0;
    CHECK(judged(*log_line(fields)) == Reason::SequenceGap);
    Checker checker(abi::From::Plugin, abi::Kind::Storage, kGeneration);
    const auto one = log_line();
    REQUIRE(checker.check(one->header, one->payload()) != nullptr);
    CHECK(checker.check(one->header, one->payload()) == nullptr);
    CHECK(checker.reason() == Reason::SequenceGap);
}

TEST_CASE("record_of_another_generation") {
    Fields fields;
    fields.generation = kGeneration - 1;
    CHECK(judged(*log_line(fields)) == Reason::WrongGeneration);
}

TEST_CASE("ids_where_they_do_not_belong") {
    Fields fields;
    fields.req_id = 9;
    CHECK(judged(*log_line(fields)) == Reason::RequestId);
    fields.req_id = 0;
    fields.reply_to = 9;
    CHECK(judged(*log_line(fields)) == Reason::ReplyId);
    flatbuffers::FlatBufferBuilder fbb;
    CHECK(judged(*record(fbb, abi::CreateStored(fbb))) == Reason::ReplyId);
    flatbuffers::FlatBufferBuilder again;
    const auto query = abi::CreateQuery(again, again.CreateString("metrics"));
    CHECK(judged(*record(again, query), abi::Kind::Gateway) == Reason::RequestId);
}

TEST_CASE("buffers_of_a_few_bytes") {
    const auto one = log_line();
    for (const std::uint8_t fill : {std::uint8_t{0}, std::uint8_t{0xFF}}) {
        for (std::size_t bytes = 0; bytes < 64; ++bytes) {
            one->copy.fill(fill);
            one->bytes = bytes;
            CHECK(judged(*one) == Reason::NotVerified);
        }
    }
}

TEST_CASE("whole_records_of_zeros_and_ones") {
    const auto one = log_line();
    for (const std::uint8_t fill : {std::uint8_t{0}, std::uint8_t{0xFF}}) {
        one->copy.fill(fill);
        one->bytes = kRecordBytesMax - sizeof(layout::RecordHeader);
        CHECK(judged(*one) == Reason::NotVerified);
    }
}

TEST_CASE("wrong_file_identifier") {
    Fields fields;
    fields.identifier = "HFM2";
    CHECK(judged(*log_line(fields)) == Reason::NotVerified);
}

TEST_CASE("string_without_terminator") {
    const auto one = log_line();
    const std::string text = "a line";
    std::uint8_t* at = nullptr;
    for (std::size_t i = 0; i + text.size() < one->bytes; ++i)
        if (std::memcmp(one->copy.data() + i, text.data(), text.size()) == 0)
            at = one->copy.data() + i;
    REQUIRE(at != nullptr);
    at[text.size()] = 'x';
    CHECK(judged(*one) == Reason::NotVerified);
}

TEST_CASE("more_tables_than_the_type_may_carry") {
    flatbuffers::FlatBufferBuilder fbb;
    std::vector<flatbuffers::Offset<abi::Counter>> counters;
    const auto name = fbb.CreateString("n");
    for (int i = 0; i < 255; ++i) counters.push_back(abi::CreateCounter(fbb, name, 1));
    const auto too_many = record(fbb, abi::CreateCounters(fbb, fbb.CreateVector(counters)));
    CHECK(judged(*too_many) == Reason::NotVerified);
    flatbuffers::FlatBufferBuilder less;
    counters.clear();
    const auto again = less.CreateString("n");
    for (int i = 0; i < 253; ++i) counters.push_back(abi::CreateCounter(less, again, 1));
    CHECK(judged(*record(less, abi::CreateCounters(less, less.CreateVector(counters)))) ==
          Reason::None);
}

TEST_CASE("every_byte_and_word_changed_in_turn") {
    // No crash, and whatever passes can be read to its end.
    flatbuffers::FlatBufferBuilder fbb;
    std::vector<flatbuffers::Offset<abi::Rejection>> rejections;
    for (std::uint32_t i = 0; i < 8; ++i)
        rejections.push_back(abi::CreateRejection(fbb, i, fbb.CreateString("capacity: full")));
    const auto list = fbb.CreateVector(rejections);
    Fields fields;
    fields.reply_to = 77;
    const auto good = record(fbb, abi::CreatePlaced(fbb, 3, false, 0, 0, list), fields);
    REQUIRE(judged(*good, abi::Kind::Placement) == Reason::None);
    auto mutant = std::make_unique<Record>(*good);
    std::uint64_t passed = 0;
    std::uint64_t sum = 0;
    const auto try_mutant = [&] {
        Checker checker(abi::From::Plugin, abi::Kind::Placement, kGeneration);
        const abi::Envelope* envelope = checker.check(mutant->header, mutant->payload());
        if (envelope == nullptr) return;
        ++passed;
        const abi::Placed* placed = envelope->body_as_Placed();
        sum += placed->choice();
        if (placed->reason() != nullptr) sum += placed->reason()->str().size();
        if (placed->counts() != nullptr)
            for (const abi::FilterCount* count : *placed->counts())
                sum += count->filter()->str().size();
        if (placed->rejections() != nullptr)
            for (const abi::Rejection* rejection : *placed->rejections())
                sum += rejection->reason()->str().size();
    };
    for (std::size_t at = 0; at < good->bytes; ++at) {
        for (int change = 0; change < 3; ++change) {
            *mutant = *good;
            std::uint8_t& byte = mutant->copy[at];
            byte = change == 0   ? std::uint8_t{0}
                   : change == 1 ? std::uint8_t{0xFF}
                                 : static_cast<std::uint8_t>(byte + 1);
            try_mutant();
        }
    }
    for (std::size_t at = 0; at + 4 <= good->bytes; at += 4) {
        *mutant = *good;
        const std::uint32_t word = 0x7FFFFFFF;
        std::memcpy(mutant->copy.data() + at, &word, sizeof(word));
        try_mutant();
    }
    std::mt19937_64 random(20);
    for (int i = 0; i < 20'000; ++i) {
        *mutant = *good;
        for (int k = 0; k < 3; ++k)
            mutant->copy[random() % good->bytes] = static_cast<std::uint8_t>(random());
        try_mutant();
    }
    CHECK(passed > 0);
    CHECK(sum > 0);
}

TEST_CASE("traits_say_what_the_schema_says") {
    static_assert(abi::traits_of(abi::Body::Place).replay == abi::Replay::Resend);
    static_assert(abi::traits_of(abi::Body::Put).replay == abi::Replay::Core);
    static_assert(abi::traits_of(abi::Body::Request).replay == abi::Replay::Never);
    static_assert(abi::traits_of(abi::Body::Get).reply == abi::Body::Got);
    static_assert(abi::traits_of(abi::Body::Get).reply_max == 65536);
    static_assert(abi::traits_of(abi::Body::Log).replay == abi::Replay::None);
    static_assert(abi::traits_of(static_cast<abi::Body>(200)).from == abi::From::Nobody);
    for (std::size_t i = 1; i < abi::kMessageCount; ++i)
        CHECK(std::string(abi::kMessageTraits[i].name) ==
              abi::EnumNameBody(static_cast<abi::Body>(i)));
}
