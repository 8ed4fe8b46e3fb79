// kill -9 of the store's process: what was answered stays, what was not is settled by asking again with its write id.
#include <map>

#include "tests/conformance/storage_cases.hpp"

namespace hf::conformance {
namespace {

using abi::Outcome;

void answered_writes_survive_a_kill(StorageUnderTest& store,
                                    Report& report,
                                    const std::string& prefix) {
    int next = 0;
    for (int round = 0; round < 10; ++round) {
        std::vector<PutCall> calls;
        for (int i = 0; i < 20 + 10 * round; ++i, ++next) {
            const std::string number = std::to_string(next);
            calls.push_back(create_of(prefix + number, "body of " + number));
        }
        std::vector<bool> answered;
        const std::vector<StoredReply> replies = store.put_and_kill(calls, answered);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const GotReply got = store.get(calls[i].key);
            if (answered[i]) {
                EXPECT(replies[i].outcome == Outcome::Applied);
                EXPECT(got.outcome == Outcome::Applied);
                EXPECT(got.etag == replies[i].etag);
            }
            if (got.outcome == Outcome::Applied) EXPECT(got.body == calls[i].body);
        }
        // Settled: the same bytes with the same write id, and then a stranger finds the slot taken.
        const std::vector<StoredReply> settled = store.put_all(calls);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            EXPECT(settled[i].outcome == Outcome::Applied);
            if (answered[i]) EXPECT(settled[i].etag == replies[i].etag);
            EXPECT(store.get(calls[i].key).write_id == calls[i].write_id);
        }
        EXPECT(store.put(create_of(calls.front().key, "stranger")).outcome ==
               Outcome::PreconditionFailed);
    }
}

void etags_are_not_given_out_again(StorageUnderTest& store,
                                   Report& report,
                                   const std::string& prefix) {
    if (!store.traits().can_restart) return;
    const StoredReply first = store.put(create_of(prefix + "k", "same"));
    std::vector<bool> answered;
    (void)store.put_and_kill({}, answered);
    EXPECT(store.get(prefix + "k").etag == first.etag);
    const StoredReply second = store.put(replace_of(prefix + "k", "same", first.etag));
    EXPECT(second.outcome == Outcome::Applied);
    (void)store.put_and_kill({}, answered);
    const StoredReply third = store.put(put_of(prefix + "k", "same"));
    EXPECT(third.etag != first.etag);
    EXPECT(third.etag != second.etag);
    EXPECT(store.put(replace_of(prefix + "k", "x", first.etag)).outcome ==
           Outcome::PreconditionFailed);
}

void large_bodies_are_whole_or_as_before(StorageUnderTest& store,
                                         Report& report,
                                         const std::string& prefix) {
    constexpr std::size_t kBytes = std::size_t{2} << 20U;
    std::map<std::string, std::string> stands;  // what is there for certain
    for (int round = 0; round < 6; ++round) {
        std::vector<PutCall> calls;
        for (int i = 0; i < 6; ++i)
            calls.push_back(
                put_of(prefix + std::to_string(i),
                       std::string(kBytes, static_cast<char>('a' + round)) + std::to_string(i)));
        std::vector<bool> answered;
        const std::vector<StoredReply> replies = store.put_and_kill(calls, answered);
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const GotReply got = store.get(calls[i].key);
            const bool fresh = got.outcome == Outcome::Applied && got.body == calls[i].body;
            const auto before = stands.find(calls[i].key);
            const bool old = before == stands.end() ? got.outcome == Outcome::NotFound
                                                    : got.body == before->second;
            EXPECT(fresh || old);
            if (answered[i] && replies[i].outcome == Outcome::Applied) EXPECT(fresh);
            if (got.outcome == Outcome::Applied) stands[calls[i].key] = got.body;
        }
    }
}

constexpr ContractCase kCases[] = {
    {"answered_writes_survive_a_kill", &Traits::can_restart, answered_writes_survive_a_kill},
    {"large_bodies_are_whole_or_as_before",
     &Traits::can_restart,
     large_bodies_are_whole_or_as_before},
    {"etags_are_not_given_out_again", &Traits::etag_per_write, etags_are_not_given_out_again},
};

}  // namespace

std::span<const ContractCase> death_cases() {
    return kCases;
}

}  // namespace hf::conformance
