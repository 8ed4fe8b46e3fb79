// Puts, gets and deletes: what their outcomes mean.
#include <algorithm>
#include <set>

#include "abi/base/limits.hpp"
#include "tests/conformance/storage_cases.hpp"

namespace hf::conformance {
namespace {

using abi::Condition;
using abi::Outcome;

constexpr std::size_t kKeyBytesMax = 1024;

std::string every_byte() {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
    return bytes;
}

void put_is_read_back(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const PutCall call = put_of(prefix + "k", every_byte());
    const StoredReply stored = store.put(call);
    EXPECT(stored.outcome == Outcome::Applied);
    EXPECT(!stored.etag.empty());
    EXPECT(stored.write_id == call.write_id);
    const GotReply got = store.get(call.key);
    EXPECT(got.outcome == Outcome::Applied);
    EXPECT(got.body == call.body);
    EXPECT(got.etag == stored.etag);
    EXPECT(got.write_id == call.write_id);
}

void what_is_not_there(StorageUnderTest& store, Report& report, const std::string& prefix) {
    EXPECT(store.get(prefix + "none").outcome == Outcome::NotFound);
    EXPECT(store.get(prefix + "none").body.empty());
    EXPECT(store.erase({prefix + "none", Condition::None, {}, {}}).outcome == Outcome::NotFound);
    EXPECT(store.put(replace_of(prefix + "none", "x", "\"0\"")).outcome == Outcome::NotFound);
    EXPECT(store.get(prefix + "none").outcome == Outcome::NotFound);
}

void if_absent_keeps_the_first(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const PutCall first = create_of(prefix + "k", "first");
    const StoredReply stored = store.put(first);
    EXPECT(stored.outcome == Outcome::Applied);
    const StoredReply second = store.put(create_of(prefix + "k", "second"));
    EXPECT(second.outcome == Outcome::PreconditionFailed);
    EXPECT(second.etag == stored.etag);
    EXPECT(second.write_id == first.write_id);
    EXPECT(store.get(prefix + "k").body == "first");
}

void if_match_takes_the_present_etag_only(StorageUnderTest& store,
                                          Report& report,
                                          const std::string& prefix) {
    const StoredReply first = store.put(create_of(prefix + "k", "1"));
    const PutCall next = replace_of(prefix + "k", "2", first.etag);
    const StoredReply second = store.put(next);
    EXPECT(second.outcome == Outcome::Applied);
    EXPECT(second.etag != first.etag);
    const StoredReply stale = store.put(replace_of(prefix + "k", "3", first.etag));
    EXPECT(stale.outcome == Outcome::PreconditionFailed);
    EXPECT(stale.etag == second.etag);
    EXPECT(stale.write_id == next.write_id);
    EXPECT(store.get(prefix + "k").body == "2");
    EXPECT(store.put(replace_of(prefix + "k", "4", second.etag)).outcome == Outcome::Applied);
}

void if_match_without_an_etag_is_refused(StorageUnderTest& store,
                                         Report& report,
                                         const std::string& prefix) {
    const StoredReply reply = store.put(replace_of(prefix + "k", "x", ""));
    EXPECT(reply.outcome == Outcome::Refused);
    EXPECT(!reply.reason.empty());
    PutCall odd = put_of(prefix + "k", "x");
    odd.condition = static_cast<Condition>(7);
    EXPECT(store.put(odd).outcome == Outcome::Refused);
    EXPECT(store.get(prefix + "k").outcome == Outcome::NotFound);
}

void same_write_id_is_applied_once(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix) {
    const PutCall create = create_of(prefix + "k", "one");
    const StoredReply first = store.put(create);
    EXPECT(first.outcome == Outcome::Applied);
    const StoredReply again = store.put(create);
    EXPECT(again.outcome == Outcome::Applied);
    EXPECT(again.etag == first.etag);
    EXPECT(again.write_id == create.write_id);

    const PutCall replace = replace_of(prefix + "k", "two", first.etag);
    const StoredReply second = store.put(replace);
    EXPECT(second.outcome == Outcome::Applied);
    const StoredReply replaced_again = store.put(replace);
    EXPECT(replaced_again.outcome == Outcome::Applied);
    EXPECT(replaced_again.etag == second.etag);
    EXPECT(store.get(prefix + "k").body == "two");
    // The first write is no longer there: its condition decides.
    const StoredReply late = store.put(create);
    EXPECT(late.outcome == Outcome::PreconditionFailed);
    EXPECT(late.write_id == replace.write_id);
    EXPECT(store.get(prefix + "k").body == "two");
}

void no_write_id_is_never_the_same(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix) {
    PutCall marker = put_of(prefix + "marker", "");
    marker.write_id = {};
    EXPECT(store.put(marker).outcome == Outcome::Applied);
    EXPECT(store.put(marker).outcome == Outcome::Applied);
    const GotReply got = store.get(marker.key);
    EXPECT(got.outcome == Outcome::Applied);
    EXPECT(got.body.empty());
    marker.condition = Condition::IfAbsent;
    EXPECT(store.put(marker).outcome == Outcome::PreconditionFailed);
}

void equal_bytes_have_new_etags(StorageUnderTest& store,
                                Report& report,
                                const std::string& prefix) {
    std::set<std::string> etags;
    for (int i = 0; i < 10; ++i)
        etags.insert(store.put(put_of(prefix + "k", i % 2 == 0 ? "even" : "odd")).etag);
    EXPECT(etags.size() == 10);
    const StoredReply first = store.put(put_of(prefix + "k", "a"));
    store.put(put_of(prefix + "k", "b"));
    store.put(put_of(prefix + "k", "a"));
    EXPECT(store.put(replace_of(prefix + "k", "c", first.etag)).outcome ==
           Outcome::PreconditionFailed);
    EXPECT(store.erase({prefix + "k", Condition::None, {}, {}}).outcome == Outcome::Applied);
    etags.insert(first.etag);
    EXPECT(!etags.contains(store.put(put_of(prefix + "k", "a")).etag));
}

void one_creator_wins(StorageUnderTest& store, Report& report, const std::string& prefix) {
    for (int round = 0; round < 5; ++round) {
        const std::string key = prefix + std::to_string(round);
        std::vector<PutCall> calls;
        for (int i = 0; i < 50; ++i)
            calls.push_back(create_of(key, "creator " + std::to_string(i)));
        const std::vector<StoredReply> replies = store.put_all(calls);
        std::size_t winner = calls.size();
        for (std::size_t i = 0; i < replies.size(); ++i) {
            if (replies[i].outcome == Outcome::Applied) {
                EXPECT(winner == calls.size());
                winner = i;
            } else {
                EXPECT(replies[i].outcome == Outcome::PreconditionFailed);
            }
        }
        EXPECT(winner < calls.size());
        if (winner == calls.size()) return;
        const GotReply got = store.get(key);
        EXPECT(got.body == calls[winner].body);
        for (const StoredReply& reply : replies) EXPECT(reply.write_id == calls[winner].write_id);
    }
}

void one_replacement_wins(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const std::string key = prefix + "counter";
    StoredReply present = store.put(create_of(key, "0"));
    for (int round = 1; round <= 10; ++round) {
        std::vector<PutCall> calls;
        for (int i = 0; i < 20; ++i)
            calls.push_back(replace_of(key, std::to_string(round), present.etag));
        const std::vector<StoredReply> replies = store.put_all(calls);
        const auto won = [](const StoredReply& reply) { return reply.outcome == Outcome::Applied; };
        EXPECT(std::count_if(replies.begin(), replies.end(), won) == 1);
        const auto winner = std::find_if(replies.begin(), replies.end(), won);
        if (winner == replies.end()) return;
        present = *winner;
        EXPECT(store.get(key).body == std::to_string(round));
        EXPECT(store.get(key).etag == present.etag);
    }
}

void writes_take_effect_in_order(StorageUnderTest& store,
                                 Report& report,
                                 const std::string& prefix) {
    std::vector<PutCall> calls;
    for (int i = 0; i < 300; ++i)
        calls.push_back(put_of(prefix + std::to_string(i % 3), std::to_string(i)));
    calls.push_back(create_of(prefix + "0", "late"));
    const std::vector<StoredReply> replies = store.put_all(calls);
    for (std::size_t i = 0; i + 1 < replies.size(); ++i)
        EXPECT(replies[i].outcome == Outcome::Applied);
    EXPECT(replies.back().outcome == Outcome::PreconditionFailed);
    for (int i = 0; i < 3; ++i)
        EXPECT(store.get(prefix + std::to_string(i)).body == std::to_string(297 + i));
}

// Bytes that differ from place to place, and for each `seed`.
std::string bytes_of(std::size_t size, std::size_t seed = 0) {
    std::string body(size, '\0');
    for (std::size_t i = 0; i < size; ++i) body[i] = static_cast<char>(i * 7 + i / 251 + seed);
    return body;
}

void bodies_up_to_the_limit(StorageUnderTest& store, Report& report, const std::string& prefix) {
    for (const std::size_t size : {std::size_t{0},
                                   std::size_t{1},
                                   std::size_t{4096},
                                   kPayloadBytesMax,
                                   kInlineObjectBytesMax,
                                   kInlineObjectBytesMax + 1,
                                   kRecordBytesMax - 1,
                                   kRecordBytesMax,
                                   std::size_t{1} << 20U,
                                   kStateBytesMax + 4096,
                                   kObjectBytesMax - 1,
                                   kObjectBytesMax}) {
        const PutCall call = put_of(prefix + "k", bytes_of(size));
        const StoredReply stored = store.put(call);
        EXPECT(stored.outcome == Outcome::Applied);
        const GotReply got = store.get(prefix + "k");
        EXPECT(got.body == call.body);
        EXPECT(got.etag == stored.etag);
        EXPECT(got.write_id == call.write_id);
        const ListedReply listed = store.list({prefix, "", 0});
        EXPECT(listed.objects.size() == 1 && listed.objects.front().size == size);
    }
    const StoredReply large =
        store.put(put_of(prefix + "k", std::string(kObjectBytesMax + 1, 'x')));
    EXPECT(large.outcome == Outcome::Refused);
    EXPECT(large.reason.find("kObjectBytesMax") != std::string::npos);
    EXPECT(store.get(prefix + "k").body.size() == kObjectBytesMax);
}

void conditions_hold_for_large_bodies(StorageUnderTest& store,
                                      Report& report,
                                      const std::string& prefix) {
    constexpr std::size_t kLarge = std::size_t{1} << 20U;
    const PutCall first = create_of(prefix + "k", bytes_of(kLarge));
    const StoredReply stored = store.put(first);
    EXPECT(stored.outcome == Outcome::Applied);
    const StoredReply second = store.put(create_of(prefix + "k", bytes_of(kLarge, 1)));
    EXPECT(second.outcome == Outcome::PreconditionFailed);
    EXPECT(second.etag == stored.etag);
    EXPECT(second.write_id == first.write_id);
    EXPECT(store.get(prefix + "k").body == first.body);
    // The same attempt again: it was applied, and is not applied twice.
    const StoredReply again = store.put(first);
    EXPECT(again.outcome == Outcome::Applied);
    EXPECT(again.etag == stored.etag);
    EXPECT(store.put(replace_of(prefix + "k", bytes_of(kLarge, 2), "\"0\"")).outcome ==
           Outcome::PreconditionFailed);
    EXPECT(store.get(prefix + "k").write_id == first.write_id);
    // Large by small, and small by large.
    const StoredReply small = store.put(replace_of(prefix + "k", "small", stored.etag));
    EXPECT(small.outcome == Outcome::Applied);
    EXPECT(store.get(prefix + "k").body == "small");
    const PutCall last = replace_of(prefix + "k", bytes_of(2 * kLarge, 3), small.etag);
    EXPECT(store.put(last).outcome == Outcome::Applied);
    EXPECT(store.get(prefix + "k").body == last.body);
    EXPECT(store.erase({prefix + "k", Condition::None, {}, {}}).outcome == Outcome::Applied);
    EXPECT(store.get(prefix + "k").outcome == Outcome::NotFound);
    EXPECT(store.put(create_of(prefix + "k", bytes_of(kLarge, 4))).outcome == Outcome::Applied);
}

void large_and_small_in_one_row(StorageUnderTest& store,
                                Report& report,
                                const std::string& prefix) {
    std::vector<PutCall> calls;
    for (std::size_t i = 0; i < 24; ++i)
        calls.push_back(
            create_of(prefix + std::to_string(100 + i),
                      bytes_of(i % 4 == 0 ? (std::size_t{300} << 10U) + i : 100 + i, i)));
    for (const StoredReply& reply : store.put_all(calls)) EXPECT(reply.outcome == Outcome::Applied);
    for (const PutCall& call : calls) EXPECT(store.get(call.key).body == call.body);
    const std::vector<ListedObject> listed = list_all(store, report, prefix, 5);
    EXPECT(listed.size() == calls.size());
    for (std::size_t i = 0; i < std::min(listed.size(), calls.size()); ++i) {
        EXPECT(listed[i].key == calls[i].key);
        EXPECT(listed[i].size == calls[i].body.size());
    }
}

void keys_up_to_the_limit(StorageUnderTest& store, Report& report, const std::string& prefix) {
    for (const std::size_t size : {std::size_t{400},
                                   std::size_t{511},
                                   std::size_t{512},
                                   std::size_t{600},
                                   kKeyBytesMax - 1,
                                   kKeyBytesMax}) {
        const std::string key = prefix + std::string(size - prefix.size(), 'k');
        EXPECT(store.put(create_of(key, std::to_string(size))).outcome == Outcome::Applied);
        EXPECT(store.get(key).body == std::to_string(size));
    }
    EXPECT(list_keys(store, report, prefix, 1).size() == 6);
    const std::string key = prefix + std::string(kKeyBytesMax + 1 - prefix.size(), 'k');
    const StoredReply long_key = store.put(put_of(key, "x"));
    EXPECT(long_key.outcome == Outcome::Refused);
    EXPECT(long_key.reason.find("1024") != std::string::npos);
    EXPECT(store.get(key).outcome == Outcome::Refused ||
           store.get(key).outcome == Outcome::NotFound);
    EXPECT(store.put(put_of("", "x")).outcome == Outcome::Refused);
    EXPECT(list_keys(store, report, prefix, 0).size() == 6);
}

void deletes(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const PutCall first = create_of(prefix + "k", "1");
    store.put(first);
    EXPECT(store.erase({prefix + "k", Condition::None, {}, {}}).outcome == Outcome::Applied);
    EXPECT(store.get(prefix + "k").outcome == Outcome::NotFound);
    EXPECT(store.erase({prefix + "k", Condition::None, {}, {}}).outcome == Outcome::NotFound);
    EXPECT(store.put(create_of(prefix + "k", "2")).outcome == Outcome::Applied);
    EXPECT(store.get(prefix + "k").body == "2");
}

void several_are_deleted_at_once(StorageUnderTest& store,
                                 Report& report,
                                 const std::string& prefix) {
    std::vector<std::string> also;
    for (int i = 0; i < 255; ++i) {
        also.push_back(prefix + std::to_string(i));
        if (i % 2 == 0) store.put(put_of(also.back(), "x"));
    }
    store.put(put_of(prefix + "kept", "x"));
    EXPECT(store.erase({prefix + "none", Condition::None, {}, also}).outcome == Outcome::Applied);
    EXPECT(list_keys(store, report, prefix, 0) == std::vector<std::string>{prefix + "kept"});
    EXPECT(store.erase({prefix + "none", Condition::None, {}, also}).outcome == Outcome::NotFound);
    EXPECT(store.erase({prefix + "kept", Condition::None, {}, also}).outcome == Outcome::Applied);
    EXPECT(store.get(prefix + "kept").outcome == Outcome::NotFound);
}

void too_many_at_once_are_refused(StorageUnderTest& store,
                                  Report& report,
                                  const std::string& prefix) {
    store.put(put_of(prefix + "k", "x"));
    const DeletedReply answer = store.erase(
        {prefix + "k", Condition::None, {}, std::vector<std::string>(256, prefix + "j")});
    EXPECT(answer.outcome == Outcome::Refused);
    EXPECT(answer.reason.find("255") != std::string::npos);
    EXPECT(store.get(prefix + "k").outcome == Outcome::Applied);
}

void conditional_deletes(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const StoredReply first = store.put(create_of(prefix + "k", "1"));
    const StoredReply second = store.put(replace_of(prefix + "k", "2", first.etag));
    EXPECT(store.erase({prefix + "k", Condition::IfMatch, first.etag, {}}).outcome ==
           Outcome::PreconditionFailed);
    EXPECT(store.get(prefix + "k").body == "2");
    EXPECT(store.erase({prefix + "k", Condition::IfMatch, second.etag, {}}).outcome ==
           Outcome::Applied);
    EXPECT(store.erase({prefix + "k", Condition::IfMatch, second.etag, {}}).outcome ==
           Outcome::NotFound);
}

void probe_tells(StorageUnderTest& store, Report& report, const std::string& prefix) {
    const ProbedReply before = store.probe();
    EXPECT(before.outcome == Outcome::Applied);
    EXPECT(before.conditional_writes);
    EXPECT(before.store_time_ms > 1'500'000'000'000);
    for (int i = 0; i < 10; ++i) store.put(put_of(prefix + std::to_string(i), "x"));
    const ProbedReply after = store.probe();
    EXPECT(after.store_time_ms >= before.store_time_ms);
    // Stores that cannot count answer zero.
    EXPECT(before.objects == 0 || after.objects == before.objects + 10);
    EXPECT(after.bytes_max == 0 || after.bytes_used <= after.bytes_max);
}

constexpr ContractCase kCases[] = {
    {"put_is_read_back", nullptr, put_is_read_back},
    {"what_is_not_there", nullptr, what_is_not_there},
    {"if_absent_keeps_the_first", nullptr, if_absent_keeps_the_first},
    {"if_match_takes_the_present_etag_only", nullptr, if_match_takes_the_present_etag_only},
    {"if_match_without_an_etag_is_refused", nullptr, if_match_without_an_etag_is_refused},
    {"same_write_id_is_applied_once", nullptr, same_write_id_is_applied_once},
    {"no_write_id_is_never_the_same", nullptr, no_write_id_is_never_the_same},
    {"equal_bytes_have_new_etags", &Traits::etag_per_write, equal_bytes_have_new_etags},
    {"one_creator_wins", nullptr, one_creator_wins},
    {"one_replacement_wins", nullptr, one_replacement_wins},
    {"writes_take_effect_in_order", &Traits::ordered_writes, writes_take_effect_in_order},
    {"bodies_up_to_the_limit", nullptr, bodies_up_to_the_limit},
    {"conditions_hold_for_large_bodies", nullptr, conditions_hold_for_large_bodies},
    {"large_and_small_in_one_row", nullptr, large_and_small_in_one_row},
    {"keys_up_to_the_limit", nullptr, keys_up_to_the_limit},
    {"deletes", nullptr, deletes},
    {"several_are_deleted_at_once", nullptr, several_are_deleted_at_once},
    {"too_many_at_once_are_refused", nullptr, too_many_at_once_are_refused},
    {"conditional_deletes", &Traits::conditional_deletes, conditional_deletes},
    {"probe_tells", nullptr, probe_tells},
};

}  // namespace

std::span<const ContractCase> write_cases() {
    return kCases;
}

}  // namespace hf::conformance
