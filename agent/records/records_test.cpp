// Round trips and the exact bytes of each record: a change of these bytes is a change of what other nodes read.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include "agent/records/records.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

using namespace hf;
using core::EntryKind;
using core::HoldRecord;
using core::HoldState;
using core::LogEntry;
using core::NodeRecord;
using core::StoreRecord;
using records::codec;

namespace {

std::string text_of(const Bytes& bytes) {
    return std::string(as_text(bytes));
}

std::string hex_of(const Bytes& bytes) {
    std::string out;
    for (const std::uint8_t byte : bytes) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", byte);
        out += digits;
    }
    return out;
}

Bytes bytes_of(std::string_view text) {
    return {text.begin(), text.end()};
}

HoldRecord sample_hold() {
    HoldRecord hold;
    hold.epoch = 7;
    hold.state = HoldState::Held;
    hold.owner = "n1";
    hold.incarnation = 3;
    hold.term = 2;
    hold.nonce = "000102030405060708090a0b0c0d0e0f";
    hold.applied = {{"actor/t/c/b", 9}, {"actor/t/c/a", 18446744073709551615ULL}};
    return hold;
}

NodeRecord sample_node() {
    NodeRecord node;
    node.id = "n1";
    node.http_address = "10.0.0.1:8080";
    node.tenant = "default";
    node.app = "shop";
    node.incarnation = 4;
    node.instance = "i1";
    node.machine = "m1";
    node.boot = "b1";
    node.store_id = "s1";
    node.capabilities = {"wasm", "alarms"};
    node.reaped = 3;
    return node;
}

LogEntry sample_entry() {
    LogEntry entry;
    entry.unit = "actor/t/c/n";
    entry.epoch = 5;
    entry.seq = 6;
    entry.write_id = {1, 2};
    entry.changes = {{1, 2, 3}, {}, {4}};
    entry.alarm = core::EntryAlarm{-1, 77};
    entry.applied = {{"actor/t/c/m", 8}};
    entry.outbox = {{1, "actor/t/c/o", "on_mail", {9, 9}}, {2, "actor/t/c/p", "", {}}};
    entry.outbox_done = {{"actor/t/c/q", 3}};
    entry.settled = {{"actor/t/c/r", 4}};
    return entry;
}

}  // namespace

TEST_CASE("hold_has_its_golden_bytes_and_comes_back") {
    const HoldRecord hold = sample_hold();
    const Bytes bytes = codec().encode(hold);
    CHECK(
        text_of(bytes) ==
        R"({"applied":{"actor/t/c/a":18446744073709551615,"actor/t/c/b":9},"epoch":7,"incarnation":3,)"
        R"("nonce":"000102030405060708090a0b0c0d0e0f","owner":"n1","state":"held","term":2,"version":1})");
    const auto back = codec().decode_hold(bytes);
    REQUIRE(back.ok());
    CHECK(back->epoch == 7);
    CHECK(back->state == HoldState::Held);
    CHECK(back->owner == "n1");
    CHECK(back->incarnation == 3);
    CHECK(back->term == 2);
    CHECK(back->nonce == hold.nonce);
    CHECK(back->applied == hold.applied);
    CHECK(!back->snapshot);
    CHECK(back->unknown.empty());
    CHECK(codec().encode(*back) == bytes);
}

TEST_CASE("hold_keeps_a_snapshot_and_an_empty_one_is_the_free_record") {
    HoldRecord hold = sample_hold();
    hold.snapshot = core::Snapshot{"ref", 12, "good"};
    const auto back = codec().decode_hold(codec().encode(hold));
    REQUIRE(back.ok());
    REQUIRE(back->snapshot);
    CHECK(back->snapshot->reference == "ref");
    CHECK(back->snapshot->generation == 12);
    CHECK(back->snapshot->state == "good");
    CHECK(
        text_of(codec().encode(HoldRecord{})) ==
        R"({"applied":{},"epoch":0,"incarnation":0,"nonce":"","owner":"","state":"free","term":0,"version":1})");
}

TEST_CASE("fields_of_a_later_version_survive_a_rewrite_by_this_one") {
    const std::string newer =
        R"({"applied":{},"colour":{"deep":[1,2,{"x":null}]},"epoch":1,"incarnation":0,"nonce":"","owner":"",)"
        R"("state":"free","term":0,"version":1,"zone":"ü"})";
    auto hold = codec().decode_hold(bytes_of(newer));
    REQUIRE(hold.ok());
    CHECK(text_of(codec().encode(*hold)) == newer);
    hold->epoch = 2;
    const std::string rewritten = text_of(codec().encode(*hold));
    CHECK(rewritten.find(R"("colour":{"deep":[1,2,{"x":null}]})") != std::string::npos);
    CHECK(rewritten.find(R"("epoch":2)") != std::string::npos);

    const std::string store =
        R"({"extra":1,"id":"000102030405060708090a0b0c0d0e0f","mode":"shared"})";
    const auto record = codec().decode_store(bytes_of(store));
    REQUIRE(record.ok());
    CHECK(record->mode == "shared");
    CHECK(text_of(codec().encode(*record)) == store);
}

TEST_CASE("a_known_field_wins_over_a_stray_copy_among_the_unknown") {
    HoldRecord hold = sample_hold();
    hold.unknown = R"({"epoch":99,"snapshot":{},"more":1})";
    const auto back = codec().decode_hold(codec().encode(hold));
    REQUIRE(back.ok());
    CHECK(back->epoch == 7);
    CHECK(!back->snapshot);
    CHECK(back->unknown == R"({"more":1})");
}

TEST_CASE("json_records_with_a_wrong_member_are_refused_by_its_name") {
    const std::string good = text_of(codec().encode(sample_hold()));
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = good;
        changed.replace(changed.find(from), from.size(), to);
        return codec().decode_hold(bytes_of(changed));
    };
    for (const auto& [from, to, word] :
         {std::tuple{R"("epoch":7)", R"("epoch":-7)", "epoch"},
          {R"("epoch":7)", R"("epoch":7.0)", "epoch"},
          {R"("epoch":7)", R"("epoch":"7")", "epoch"},
          {R"("epoch":7)", R"("epoch":18446744073709551616)", "epoch"},
          {R"("state":"held")", R"("state":"Held")", "state"},
          {R"("state":"held")", R"("stat":"held")", "state"},
          {R"("owner":"n1")", R"("owner":1)", "owner"},
          {R"("nonce":"00)", R"("nonce":"0G)", "nonce"},
          {R"("actor/t/c/b":9)", R"("actor/t/c/b":-9)", "applied"},
          {R"("version":1)", R"("version":2)", "version"},
          {R"("version":1)", R"("x":1)", "version"}}) {
        const auto result = with(from, to);
        REQUIRE_MESSAGE(!result.ok(), to);
        CHECK(result.error().code == Code::Corrupt);
        CHECK_MESSAGE(result.error().message.find(word) != std::string::npos,
                      result.error().message);
    }
    for (const char* bad : {"", "{", "[]", "null", "1", "{}x", "\xff", R"({"version":1})"})
        CHECK_MESSAGE(!codec().decode_hold(bytes_of(bad)).ok(), bad);
    CHECK(!codec().decode_store(bytes_of(R"({"id":"short","mode":"shared"})")).ok());
    CHECK(!codec()
               .decode_store(bytes_of(R"({"id":"000102030405060708090a0b0c0d0e0f","mode":"both"})"))
               .ok());
}

TEST_CASE("node_has_its_golden_lines_and_comes_back") {
    const Bytes bytes = codec().encode(sample_node());
    CHECK(text_of(bytes) ==
          "wasmkeep-node 2\nn1\n10.0.0.1:8080\n\n\ndefault\nshop\n\n\nserving\n"
          "incarnation=4\ninstance=i1\nmachine=m1\nboot=b1\nlease_seq=0\nttl_ms=0\nstore=s1\n"
          "capabilities=wasm,alarms\nreaped=3\n");
    const auto back = codec().decode_node(bytes);
    REQUIRE(back.ok());
    CHECK(back->id == "n1");
    CHECK(back->http_address == "10.0.0.1:8080");
    CHECK(back->tenant == "default");
    CHECK(back->app == "shop");
    CHECK(back->state == "serving");
    CHECK(back->incarnation == 4);
    CHECK(back->instance == "i1");
    CHECK(back->machine == "m1");
    CHECK(back->boot == "b1");
    CHECK(back->store_id == "s1");
    CHECK(back->capabilities == std::vector<std::string>{"wasm", "alarms"});
    CHECK(!back->dead);
    CHECK(back->reaped == 3);
    CHECK(codec().encode(*back) == bytes);

    // Where other nodes reach it, when that is not where clients do.
    NodeRecord apart = sample_node();
    apart.other_lines[7] = "10.0.0.1:9090";
    CHECK(text_of(codec().encode(apart)).find("\nshop\n10.0.0.1:9090\n\nserving\n") !=
          std::string::npos);
    const auto told = codec().decode_node(codec().encode(apart));
    REQUIRE(told.ok());
    CHECK(told->other_lines == apart.other_lines);

    NodeRecord fenced = sample_node();
    fenced.dead = 0;  // incarnation 0 is still a statement
    fenced.state = "stuck";
    const auto again = codec().decode_node(codec().encode(fenced));
    REQUIRE(again.ok());
    CHECK(again->dead == 0U);
    CHECK(again->state == "stuck");
}

TEST_CASE("a_peer_that_fences_a_node_keeps_the_lines_it_does_not_know") {
    const std::string other =
        "wasmkeep-node 2\nn2\n10.0.0.2:80\nthree\nfour\nt\na\ncluster:1\npins\ndraining\n"
        "incarnation=1\ninstance=\nmachine=\nboot=\nlease_seq=8\nttl_ms=10000\nstore="
        "\ncapabilities=\nreaped=0\n"
        "colour=blue\nno equals sign\n\n";
    auto node = codec().decode_node(bytes_of(other));
    REQUIRE(node.ok());
    CHECK(node->ttl_ms == 10000);
    CHECK(text_of(codec().encode(*node)) == other);
    node->dead = 1;
    const std::string fenced = text_of(codec().encode(*node));
    CHECK(fenced.find("\nthree\nfour\n") != std::string::npos);
    CHECK(fenced.find("\ncluster:1\npins\n") != std::string::npos);
    CHECK(fenced.find("\ndead=1\n") != std::string::npos);
    CHECK(fenced.ends_with("colour=blue\nno equals sign\n\n"));
}

TEST_CASE("a_node_older_than_line_9_reads_as_one_without_a_state") {
    const auto node = codec().decode_node(bytes_of("wasmkeep-node 2\nold\naddr\n\n\nt\na\n"));
    REQUIRE(node.ok());
    CHECK(node->app == "a");
    CHECK(node->state.empty());
    CHECK(node->incarnation == 0);
}

TEST_CASE("damaged_node_text_is_refused") {
    for (const char* bad :
         {"",
          "wasmkeep-node 1\na\nb\n\n\nt\na\n",
          "wasmkeep-node 2",
          "wasmkeep-node 2\na\nb\n\n\nt\n",
          "wasmkeep-node 2\na\rb\nb\n\n\nt\na\n",
          "wasmkeep-node 2\na\nb\n\n\nt\na\n\n\nserving\nincarnation=x\n",
          "wasmkeep-node 2\na\nb\n\n\nt\na\n\n\nserving\nincarnation=-1\n",
          "wasmkeep-node 2\na\nb\n\n\nt\na\n\n\nserving\nincarnation=99999999999999999999\n",
          "wasmkeep-node 2\na\nb\n\n\nt\na\n\n\nserving\nreaped=1\nreaped=2\n"})
        CHECK_MESSAGE(!codec().decode_node(bytes_of(bad)).ok(), bad);
}

TEST_CASE("entry_comes_back_and_the_same_struct_gives_the_same_bytes") {
    const LogEntry entry = sample_entry();
    const Bytes bytes = codec().encode(entry);
    CHECK(codec().encode(entry) == bytes);
    const auto back = codec().decode_entry(bytes);
    REQUIRE(back.ok());
    CHECK(back->unit == entry.unit);
    CHECK(back->epoch == 5);
    CHECK(back->seq == 6);
    CHECK(back->write_id == entry.write_id);
    CHECK(back->kind == EntryKind::Changes);
    CHECK(back->changes == entry.changes);
    REQUIRE(back->alarm);
    CHECK(back->alarm->due_ms == -1);
    CHECK(back->alarm->nonce == 77);
    CHECK(!back->alarm_cleared);
    CHECK(back->applied == entry.applied);
    REQUIRE(back->outbox.size() == 2);
    CHECK(back->outbox[0].method == "on_mail");
    CHECK(back->outbox[0].payload == Bytes{9, 9});
    CHECK(back->outbox[1].method.empty());
    CHECK(back->outbox_done == entry.outbox_done);
    CHECK(back->settled == entry.settled);
    CHECK(codec().encode(*back) == bytes);

    LogEntry seal;
    seal.unit = "actor/t/c/n";
    seal.kind = EntryKind::Seal;
    seal.sealed_incarnation = 9;
    seal.sealed_node = "n7";
    seal.alarm_cleared = true;
    const auto sealed = codec().decode_entry(codec().encode(seal));
    REQUIRE(sealed.ok());
    CHECK(sealed->kind == EntryKind::Seal);
    CHECK(sealed->sealed_incarnation == 9);
    CHECK(sealed->sealed_node == "n7");
    CHECK(sealed->alarm_cleared);
    CHECK(!sealed->alarm);
    CHECK(sealed->write_id.none());
}

TEST_CASE("entry_has_its_golden_bytes") {
    LogEntry entry;
    entry.unit = "actor/t/c/n";
    entry.epoch = 5;
    entry.seq = 6;
    entry.write_id = {1, 2};
    entry.changes = {{0xAA}};
    CHECK(hex_of(codec().encode(entry)) ==
          "2000000048464531000000001400300000002c00200018000800000000000400140000003c00000001000000"
          "0000000002000000000000000600000000000000050000000000000000000000040000000b0000006163746f"
          "722f742f632f6e00010000000c0000000000060008000400060000000400000001000000aa000000");
}

TEST_CASE("an_entry_decodes_from_any_address") {
    const Bytes bytes = codec().encode(sample_entry());
    for (std::size_t shift = 0; shift < 8; ++shift) {
        Bytes moved(shift, 0);
        moved.insert(moved.end(), bytes.begin(), bytes.end());
        const auto back = codec().decode_entry(BytesView(moved).subspan(shift));
        REQUIRE(back.ok());
        CHECK(back->changes.size() == 3);
    }
}
