// A unit's state against a simple model: commits, rollbacks, folds, limits.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "plugins/runtime-wasm/state/unit_state.hpp"

namespace hf::wasm {

namespace {

constexpr std::size_t kRoom = 60 * 1024;

LimitHit put(UnitState& state,
             const std::string& key,
             const std::string& value,
             std::size_t room = kRoom) {
    return state.put(key,
                     as_bytes(value),
                     {std::min(room, kPayloadBytesMax),
                      room < kPayloadBytesMax ? "event_output_bytes" : "changes_bytes"});
}

std::string get(const UnitState& state, const std::string& key) {
    const auto value = state.get(key);
    return value ? std::string(as_text(*value)) : "(absent)";
}

using Model = std::map<std::string, std::string>;

void same(const UnitState& state, const Model& model) {
    CHECK(state.pairs() == model.size());
    std::size_t bytes = 0;
    for (const auto& [key, value] : model) {
        CHECK(get(state, key) == value);
        bytes += key.size() + value.size() + kPairOverheadBytes;
    }
    CHECK(state.bytes() == bytes);
}

}  // namespace

TEST_CASE("an_event_that_is_undone_leaves_nothing_behind") {
    UnitState state(0);
    state.begin();
    CHECK_FALSE(put(state, "a", "1"));
    CHECK_FALSE(put(state, "b", "2"));
    state.commit();
    state.begin();
    CHECK_FALSE(put(state, "a", "changed"));
    CHECK_FALSE(put(state, "a", "changed again"));
    CHECK_FALSE(put(state, "c", "new"));
    CHECK(state.remove("b"));
    CHECK_FALSE(state.remove("b"));
    CHECK(get(state, "b") == "(absent)");
    CHECK_FALSE(put(state, "b", "back"));
    CHECK(state.remove("c"));
    state.rollback();
    same(state, {{"a", "1"}, {"b", "2"}});
    CHECK_FALSE(state.changed());
}

TEST_CASE("random_events_folded_elsewhere_give_the_same_state") {
    std::mt19937 random(20261130);
    UnitState state(0);
    UnitState replica(0);
    Model model;
    for (int event = 0; event < 2000; ++event) {
        Model next = model;
        state.begin();
        const std::uint64_t writes = random() % 6;
        for (std::uint64_t i = 0; i < writes; ++i) {
            const std::string key = "k" + std::to_string(random() % 20);
            if (random() % 3 == 0) {
                CHECK(state.remove(key) == (next.erase(key) > 0));
            } else {
                const std::string value(random() % 50, static_cast<char>('a' + random() % 26));
                CHECK_FALSE(put(state, key, value));
                next[key] = value;
            }
        }
        if (random() % 4 == 0) {
            state.rollback();
        } else {
            const Bytes changes = state.encode_changes();
            CHECK(changes.size() <= (state.changed() ? state.change_bytes() : kChangeSetHeadBytes));
            state.commit();
            REQUIRE(replica.fold(changes, false).ok());
            model = next;
        }
        same(state, model);
    }
    same(replica, model);
    UnitState fresh(0);
    REQUIRE(fresh.fold(state.encode_all(), true).ok());
    same(fresh, model);
    // A base covers everything before it.
    UnitState covered(0);
    covered.begin();
    CHECK_FALSE(put(covered, "old", "gone"));
    covered.commit();
    REQUIRE(covered.fold(state.encode_all(), true).ok());
    same(covered, model);
}

TEST_CASE("limits_are_named_and_a_full_state_fits_one_payload") {
    UnitState state(4096);
    state.begin();
    const LimitHit big = put(state, "v", std::string(kPayloadBytesMax + 1, 'x'));
    CHECK(std::string(big.name) == "value_bytes");
    CHECK(big.sentence() == "limit value_bytes: 49152 allowed, 49153 asked for");
    const LimitHit full = put(state, "v", std::string(4096, 'x'));
    CHECK(std::string(full.name) == "state_max");
    CHECK(full.allowed == 4096);
    CHECK_FALSE(put(state, "v", std::string(3900, 'x')));
    // Replacing does not count twice, and shrinking is always allowed.
    CHECK_FALSE(put(state, "v", std::string(3950, 'y')));
    CHECK_FALSE(put(state, "v", ""));
    state.rollback();

    UnitState wide(0);
    wide.begin();
    const LimitHit changes = put(wide, "v", std::string(2000, 'x'), 1000);
    CHECK(std::string(changes.name) == "event_output_bytes");
    // The smallest pairs are the worst case of the encoding's overhead.
    int pairs = 0;
    while (!put(wide, std::to_string(pairs), "")) ++pairs;
    CHECK(pairs > 1000);
    CHECK(wide.encode_changes().size() <= kPayloadBytesMax);
    wide.commit();
    CHECK(wide.encode_all().size() <= kPayloadBytesMax);
}

TEST_CASE("a_state_of_many_payloads_is_kept_to_its_limit_and_folded_whole") {
    UnitState state(kStateBytesMax);
    Model model;
    LimitHit hit;
    for (int n = 0; !hit; ++n) {
        state.begin();
        const std::string key = "v" + std::to_string(n);
        const std::string value(40'000 + static_cast<std::size_t>(n), 'x');
        hit = put(state, key, value);
        if (!hit) model[key] = value;
        state.commit();
    }
    CHECK(std::string(hit.name) == "state_max");
    CHECK(hit.allowed == kStateBytesMax);
    CHECK(model.size() > 100);
    const Bytes base = state.encode_all();
    CHECK(base.size() <= kStateBytesMax);
    UnitState fresh(kStateBytesMax);
    REQUIRE(fresh.fold(base, true).ok());
    same(fresh, model);
    // Under a lowered limit it is still read, and may shrink.
    UnitState lowered(4096);
    REQUIRE(lowered.fold(base, true).ok());
    same(lowered, model);
    lowered.begin();
    CHECK_FALSE(put(lowered, "v0", "small"));
    CHECK(std::string(put(lowered, "v0", "small and more").name) == "state_max");
    // More than any limit is no state of ours.
    UnitState twice(kStateBytesMax);
    REQUIRE(twice.fold(base, true).ok());
    UnitState others(kStateBytesMax);
    for (int n = 0; n < 25; ++n) {
        others.begin();
        CHECK_FALSE(put(others, "w" + std::to_string(n), std::string(40'000, 'y')));
        others.commit();
    }
    CHECK_FALSE(twice.fold(others.encode_all(), false).ok());
}

TEST_CASE("a_state_of_as_many_pairs_as_fit_is_folded") {
    UnitState state(kStateBytesMax);
    LimitHit hit;
    for (int n = 0; !hit; ++n) {
        state.begin();
        for (int i = 0; i < 500 && !hit; ++i) hit = put(state, std::to_string(n * 1000 + i), "");
        state.commit();
    }
    CHECK(std::string(hit.name) == "state_max");
    CHECK(state.pairs() > 100'000);
    const Bytes base = state.encode_all();
    CHECK(base.size() <= kStateBytesMax);
    UnitState fresh(kStateBytesMax);
    REQUIRE(fresh.fold(base, true).ok());
    CHECK(fresh.pairs() == state.pairs());
    CHECK(fresh.bytes() == state.bytes());
}

TEST_CASE("what_is_no_change_set_is_refused_whole_or_in_part") {
    UnitState state(0);
    state.begin();
    CHECK_FALSE(put(state, "key", "value"));
    const Bytes good = state.encode_changes();
    state.commit();
    UnitState target(0);
    CHECK_FALSE(target.fold({}, false).ok());
    for (std::size_t cut = 1; cut < good.size(); ++cut)
        (void)target.fold(BytesView(good).first(cut), false).ok();
    for (std::size_t at = 0; at < good.size(); ++at) {
        Bytes bent = good;
        bent[at] ^= 0xff;
        (void)target.fold(bent, false)
            .ok();  // must not crash; a changed letter is still a ChangeSet
    }
    CHECK(target.fold(good, true).ok());
    same(target, {{"key", "value"}});
}

}  // namespace hf::wasm
