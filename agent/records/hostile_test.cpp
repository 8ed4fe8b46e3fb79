// Bytes that nobody of ours wrote: a decoder answers Corrupt or a struct within its bounds, and never crashes.
#include <doctest/doctest.h>
#include <flatbuffers/flatbuffers.h>

#include <functional>
#include <random>
#include <string>

#include "agent/records/records.hpp"
#include "log_generated.h"

using namespace hf;
using records::codec;

namespace {

Bytes bytes_of(std::string_view text) {
    return {text.begin(), text.end()};
}

Bytes sample_entry() {
    core::LogEntry entry;
    entry.unit = "actor/t/c/n";
    entry.seq = 6;
    entry.write_id = {1, 2};
    entry.changes = {{1, 2, 3}, {4}};
    entry.applied = {{"a", 8}};
    entry.outbox = {{1, "t", "m", {9, 9}}};
    entry.outbox_done = {{"q", 3}};
    return codec().encode(entry);
}

Bytes sample_hold() {
    core::HoldRecord hold;
    hold.owner = "n1";
    hold.nonce = std::string(32, 'a');
    hold.applied = {{"s", 1}};
    hold.snapshot = core::Snapshot{"r", 1, "s"};
    return codec().encode(hold);
}

Bytes sample_node() {
    core::NodeRecord node;
    node.id = "n1";
    node.tenant = "t";
    node.app = "a";
    node.dead = 1;
    return codec().encode(node);
}

// Whatever a decoder takes, encoding it again must decode to the same bytes: nothing half-understood gets through.
template <class T>
void settle(const Result<T>& got, const std::function<Result<T>(BytesView)>& decode) {
    if (!got.ok()) {
        CHECK(got.error().code == Code::Corrupt);
        return;
    }
    const Bytes once = codec().encode(*got);
    const auto again = decode(once);
    REQUIRE(again.ok());
    REQUIRE(codec().encode(*again) == once);
}

void offer(BytesView bytes) {
    settle<core::LogEntry>(codec().decode_entry(bytes),
                           [](BytesView b) { return codec().decode_entry(b); });
    settle<core::HoldRecord>(codec().decode_hold(bytes),
                             [](BytesView b) { return codec().decode_hold(b); });
    settle<core::StoreRecord>(codec().decode_store(bytes),
                              [](BytesView b) { return codec().decode_store(b); });
    settle<core::NodeRecord>(codec().decode_node(bytes),
                             [](BytesView b) { return codec().decode_node(b); });
}

}  // namespace

TEST_CASE("every_length_of_a_cut_record_is_settled") {
    for (const Bytes& whole : {sample_entry(), sample_hold(), sample_node()})
        for (std::size_t size = 0; size <= whole.size(); ++size)
            offer(BytesView(whole).first(size));
    offer({});
}

TEST_CASE("every_single_byte_replaced_is_settled") {
    for (const Bytes& whole : {sample_entry(), sample_hold(), sample_node()})
        for (std::size_t at = 0; at < whole.size(); ++at)
            for (const int change : {0, 0xFF, 0x7F, whole[at] + 1, whole[at] ^ 0x80}) {
                Bytes mutant = whole;
                mutant[at] = static_cast<std::uint8_t>(change);
                offer(mutant);
            }
}

TEST_CASE("random_garbage_and_random_damage_are_settled") {
    std::mt19937_64 random(20);
    const std::vector<Bytes> wholes = {sample_entry(), sample_hold(), sample_node()};
    for (int i = 0; i < 20000; ++i) {
        Bytes bytes = wholes[random() % wholes.size()];
        if (i % 4 == 0) {
            bytes.assign(random() % 64, 0);
            for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
        } else {
            for (std::uint64_t n = 1 + random() % 4; n > 0; --n)
                bytes[random() % bytes.size()] = static_cast<std::uint8_t>(random());
        }
        offer(bytes);
    }
}

TEST_CASE("one_blob_named_a_thousand_times_does_not_unfold_to_gigabytes") {
    flatbuffers::FlatBufferBuilder builder;
    const Bytes big(1U << 20U, 7);
    const auto blob = log::CreateBlob(builder, builder.CreateVector(big));
    const std::vector<flatbuffers::Offset<log::Blob>> many(1000, blob);
    const auto list = builder.CreateVector(many);
    const auto unit = builder.CreateString("actor/t/c/n");
    log::EntryBuilder entry(builder);
    entry.add_unit(unit);
    entry.add_changes(list);
    log::FinishEntryBuffer(builder, entry.Finish());
    const auto got = codec().decode_entry({builder.GetBufferPointer(), builder.GetSize()});
    REQUIRE(!got.ok());
    CHECK(got.error().message.find("unfolds") != std::string::npos);
}

TEST_CASE("an_entry_with_more_tables_than_an_entry_can_need_is_refused") {
    flatbuffers::FlatBufferBuilder builder;
    const auto blob = log::CreateBlob(builder, builder.CreateVector(Bytes{1}));
    const std::vector<flatbuffers::Offset<log::Blob>> many(20000, blob);
    const auto list = builder.CreateVector(many);
    const auto unit = builder.CreateString("actor/t/c/n");
    log::EntryBuilder entry(builder);
    entry.add_unit(unit);
    entry.add_changes(list);
    log::FinishEntryBuffer(builder, entry.Finish());
    CHECK(!codec().decode_entry({builder.GetBufferPointer(), builder.GetSize()}).ok());
}

TEST_CASE("json_nested_a_million_deep_neither_parses_nor_overflows_the_stack") {
    const std::string deep =
        R"({"x":)" + std::string(1000000, '[') + std::string(1000000, ']') + "}";
    CHECK(!codec().decode_hold(bytes_of(deep)).ok());
    std::string objects = R"({"x":)";
    for (int i = 0; i < 200000; ++i) objects += R"({"a":)";
    objects += "1" + std::string(200001, '}');
    CHECK(!codec().decode_hold(bytes_of(objects)).ok());
}

TEST_CASE("records_beyond_their_size_are_refused_before_they_are_read") {
    CHECK(!codec().decode_hold(Bytes(records::kTextRecordBytesMax + 1, ' ')).ok());
    CHECK(!codec().decode_entry(Bytes(records::kEntryBytesMax + 1, 0)).ok());
    CHECK(!codec().decode_node(bytes_of("wasmkeep-node 2\n" + std::string(70000, 'x'))).ok());
}
