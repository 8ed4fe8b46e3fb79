// Bases: states larger than a record, when they are asked for, what their refusal costs, and the room that states have on
// their way.
#include <doctest/doctest.h>

#include <optional>

#include "abi/base/limits.hpp"
#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {

constexpr std::size_t kMiB = 1U << 20U;

// The runtime's states are as large as the test says, each event changes as much as it says.
struct BaseRig : Rig {
    explicit BaseRig(Config config) : Rig(std::move(config)) {
        hook = [this](const Action& action) { return played(action); };
    }
    static Config every(std::size_t entries) {
        Config config = small_config();
        config.limits.checkpoint_entries = entries;
        return config;
    }
    bool played(const Action& action) {
        if (const auto* ask = std::get_if<Checkpoint>(&action)) {
            feed(
                CheckpointedIn{ask->to, ask->op, ask->activation, true, Bytes(state_bytes, 1), ""});
            return true;
        }
        if (const auto* deliver = std::get_if<Deliver>(&action)) {
            DeliveredIn answer = delivered(*deliver);
            answer.changes.assign(change_bytes, 1);
            feed(std::move(answer));
            return true;
        }
        const auto* put = std::get_if<StoreRequest>(&action);
        if (put == nullptr || put->verb != StoreVerb::Put || !is_base(*put)) return false;
        if (!refuse_bases) return false;
        StoreAnswer answer;
        answer.from = put->to;
        answer.op = put->op;
        answer.outcome = Outcome::Refused;
        answer.reason = "no room";
        feed(answer);
        return true;
    }
    [[nodiscard]] bool is_base(const StoreRequest& put) const {
        if (put.key.find("/log/") == std::string::npos) return false;
        const auto entry = codec.decode_entry(put.body);
        return entry.ok() && entry->kind == EntryKind::Base;
    }
    // Events of "a" that end well, until another base is asked for; 0: none was.
    std::size_t events_until_a_base(std::size_t most) {
        const std::size_t before = all<Checkpoint>().size();
        for (std::size_t n = 1; n <= most; ++n) {
            const auto id = ask("a", now + kSecond);
            REQUIRE(reply(id) != nullptr);
            REQUIRE(reply(id)->reason == ReplyReason::Ok);
            if (all<Checkpoint>().size() != before) return n;
        }
        return 0;
    }
    std::size_t state_bytes = 1;
    std::size_t change_bytes = 1;
    bool refuse_bases = false;
};

}  // namespace

TEST_CASE("a base larger than a record is stored whole, and loaded in a piece of its own") {
    BaseRig rig(BaseRig::every(3));
    rig.state_bytes = 3 * kMiB;
    REQUIRE(rig.events_until_a_base(10) != 0);
    CHECK(rig.core.stats().bases == 1);
    std::size_t stored = 0;
    for (const auto& [at, put] : rig.all<StoreRequest>())
        if (put.verb == StoreVerb::Put && rig.is_base(put)) {
            const auto entry = rig.codec.decode_entry(put.body);
            REQUIRE(entry->changes.size() == 1);
            stored = entry->changes.front().size();
        }
    CHECK(stored == 3 * kMiB);
    rig.ask("a", rig.now + kSecond);
    const std::size_t before = rig.all<Activate>().size();
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    const auto pieces = rig.all<Activate>();
    REQUIRE(pieces.size() > before + 1);
    const Activate& first = pieces[before].second;
    REQUIRE(first.entries.size() == 1);
    CHECK(first.entries.front().base);
    CHECK(first.entries.front().changes.size() == 3 * kMiB);
    CHECK(first.more);
    CHECK_FALSE(pieces[before + 1].second.entries.front().base);
}

TEST_CASE("a log grows with its base before another one is written") {
    Config config = BaseRig::every(3);
    config.limits.checkpoint_bytes = 64 * 1024;
    BaseRig rig(config);
    rig.state_bytes = kMiB;
    REQUIRE(rig.events_until_a_base(10) != 0);
    // An entry more for each page of the base: 3 and 256.
    CHECK(rig.events_until_a_base(400) == 259);
    // By bytes: as many as the base has.
    rig.change_bytes = 40 * 1024;
    const std::size_t events = rig.events_until_a_base(100);
    CHECK(events * 40 * 1024 >= kMiB);
    CHECK(events * 40 * 1024 < kMiB + 2 * 40 * 1024);
    CHECK(rig.core.stats().bases == 3);
    // A state that shrank has its bases sooner again.
    rig.state_bytes = 10;
    rig.change_bytes = 1;
    REQUIRE(rig.events_until_a_base(400) != 0);
    CHECK(rig.events_until_a_base(10) == 3);
}

TEST_CASE("the size of a base is known again after a load") {
    BaseRig rig(BaseRig::every(3));
    rig.state_bytes = kMiB;
    REQUIRE(rig.events_until_a_base(10) != 0);
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    CHECK(rig.events_until_a_base(400) == 259);
}

TEST_CASE("a base that no store keeps is put off, and nothing is undone") {
    BaseRig rig(BaseRig::every(3));
    rig.state_bytes = kObjectBytesMax;
    REQUIRE(rig.events_until_a_base(10) != 0);
    CHECK(rig.core.stats().bases == 0);
    CHECK(rig.core.stats().undone == 0);
    rig.state_bytes = 1;
    CHECK(rig.events_until_a_base(10) == 3);
    CHECK(rig.core.stats().bases == 1);
}

TEST_CASE("a base that the store refuses costs nothing but another try") {
    BaseRig rig(BaseRig::every(3));
    rig.state_bytes = kMiB;
    rig.refuse_bases = true;
    REQUIRE(rig.events_until_a_base(10) != 0);
    REQUIRE(rig.events_until_a_base(10) == 3);
    CHECK(rig.core.stats().bases == 0);
    CHECK(rig.core.stats().undone == 0);
    CHECK(rig.all<Activate>().size() == 1);
    rig.refuse_bases = false;
    REQUIRE(rig.events_until_a_base(10) == 3);
    CHECK(rig.core.stats().bases == 1);
    // The log that went on without it has no hole.
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
}

TEST_CASE("an actor whose base ends three runtimes goes on without one for a while") {
    Config config = BaseRig::every(4);
    config.restart_intensity = false;
    BaseRig rig(config);
    int asked = 0;
    rig.hook = [&](const Action& action) {
        const auto* ask = std::get_if<Checkpoint>(&action);
        if (ask == nullptr) return rig.played(action);
        ++asked;
        rig.die(ask->to, true, ask->op);
        return true;
    };
    const auto twenty = [&] {
        for (int i = 0; i < 20; ++i) {
            const auto id = rig.ask("a", rig.now + 60 * kSecond);
            rig.run_for(kSecond);
            REQUIRE(rig.reply(id) != nullptr);
            CHECK(rig.reply(id)->reason == ReplyReason::Ok);
        }
    };
    twenty();
    CHECK(asked == 3);
    rig.run_for(300 * kSecond);
    twenty();
    CHECK(asked == 4);
}

TEST_CASE("loads stand in line for the room that states have") {
    Config config = small_config();
    config.limits.states_bytes = 1;
    Rig rig(config);
    for (const char* name : {"a", "b", "c"}) rig.ask(name, rig.now + kSecond);
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    std::vector<Activate> held;
    rig.hook = [&](const Action& action) {
        const auto* activate = std::get_if<Activate>(&action);
        if (activate != nullptr) held.push_back(*activate);
        return activate != nullptr;
    };
    std::vector<std::uint64_t> asked;
    for (const char* name : {"a", "b", "c"}) asked.push_back(rig.ask(name, rig.now + kSecond));
    const StateRoom& room = rig.core.units().states();
    for (std::size_t n = 0; n < 3; ++n) {
        CAPTURE(n);
        REQUIRE(held.size() == n + 1);
        CHECK(room.bytes() > 0);
        CHECK(room.waiting() == 2 - n);
        CHECK(rig.reply(asked[n]) == nullptr);
        rig.feed(ActivatedIn{held[n].to, held[n].op, held[n].activation, ActivateStatus::Ok, ""});
        CHECK(rig.reply(asked[n]) != nullptr);
    }
    CHECK(room.bytes() == 0);
}

TEST_CASE("what was read for nobody makes room for who waits") {
    Config config = small_config();
    config.limits.states_bytes = 1;
    Rig rig(config);
    for (const char* name : {"a", "b"}) rig.ask(name, rig.now + kSecond);
    rig.hook = [](const Action& action) {
        const auto* spawn = std::get_if<Spawn>(&action);
        return spawn != nullptr && spawn->slot == "runtime";  // none comes again
    };
    rig.die(rig.serving(Kind::Runtime), false);
    const auto first = rig.ask("a", rig.now + 100 * kMs);
    rig.ask("b", rig.now + 10 * kSecond);
    const StateRoom& room = rig.core.units().states();
    CHECK(room.waiting() == 1);
    rig.run_for(200 * kMs);
    REQUIRE(rig.reply(first) != nullptr);
    CHECK(rig.reply(first)->reason == ReplyReason::Deadline);
    CHECK(room.waiting() == 0);
    CHECK(room.bytes() > 0);
}

TEST_CASE("a load whose runtime dies makes room, and comes again") {
    Config config = small_config();
    config.limits.states_bytes = 1;
    Rig rig(config);
    for (const char* name : {"a", "b"}) rig.ask(name, rig.now + kSecond);
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    std::vector<Activate> held;
    bool hold = true;
    rig.hook = [&](const Action& action) {
        const auto* activate = std::get_if<Activate>(&action);
        if (activate == nullptr || !hold) return false;
        held.push_back(*activate);
        return true;
    };
    rig.ask("a", rig.now + 10 * kSecond);
    rig.ask("b", rig.now + 10 * kSecond);
    REQUIRE(held.size() == 1);
    hold = false;
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    CHECK(rig.core.units().states().bytes() == 0);
    CHECK(rig.core.units().states().waiting() == 0);
    CHECK(rig.core.units().accepted_open() == 0);
}

TEST_CASE("a caller with a base to write does not keep its callee from being loaded") {
    Config config = small_config();
    config.limits.states_bytes = 1;
    config.limits.checkpoint_entries = 1;
    Rig rig(config);
    std::optional<StoreRequest> slow;  // the caller's first entry, on its way to the store
    rig.hook = [&](const Action& action) {
        if (const auto* ask = std::get_if<Checkpoint>(&action)) {
            rig.feed(CheckpointedIn{ask->to, ask->op, ask->activation, true, {1}, ""});
            return true;
        }
        const auto* put = std::get_if<StoreRequest>(&action);
        if (put != nullptr && put->verb == StoreVerb::Put && !slow &&
            put->key.find("/log/actor/default/counter/caller/") != std::string::npos &&
            rig.codec.decode_entry(put->body)->kind == EntryKind::Changes) {
            slow = *put;
            return true;
        }
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || deliver->event != Bytes{7}) return false;
        DeliveredIn answer = Rig::delivered(*deliver);
        answer.status = DeliverStatus::Calling;
        answer.changes.clear();
        answer.call = CallWish{1, "counter/callee", "m", {}, 0};
        rig.feed(std::move(answer));
        return true;
    };
    rig.ask("callee", rig.now + kSecond);
    rig.die(rig.serving(Kind::Runtime), false);
    rig.run_for(kSecond);
    const auto first = rig.ask("caller", rig.now + kSecond);
    rig.ask("caller", rig.now + kSecond, {7});
    REQUIRE(slow.has_value());
    CHECK(rig.all<Resume>().empty());
    rig.put(slow->key, slow->body);
    StoreAnswer stored;
    stored.from = slow->to;
    stored.op = slow->op;
    stored.outcome = Outcome::Applied;
    rig.feed(stored);
    REQUIRE(rig.reply(first) != nullptr);
    CHECK(rig.all<Resume>().size() == 1);
}

TEST_CASE("room for states: in order, alone when larger than all of it, and given back once") {
    StateRoom room(10);
    CHECK(room.take(1, 6));
    CHECK(room.take(1, 100));  // it has room already
    CHECK(room.bytes() == 6);
    CHECK_FALSE(room.take(2, 6));
    CHECK_FALSE(room.take(3, 1));  // behind it, though it would fit
    CHECK_FALSE(room.take(4, 40));
    CHECK(room.waiting() == 3);
    CHECK_FALSE(room.next().has_value());
    room.leave(2);
    CHECK(room.next() == UnitId{3});
    CHECK_FALSE(room.next().has_value());
    room.leave(1);
    room.leave(1);
    CHECK(room.bytes() == 1);
    CHECK_FALSE(room.next().has_value());
    room.leave(3);
    CHECK(room.next() == UnitId{4});
    CHECK(room.bytes() == 40);
    CHECK_FALSE(room.take(5, 1));
    room.leave(4);
    CHECK(room.next() == UnitId{5});
    room.leave(5);
    CHECK(room.bytes() == 0);
    CHECK(room.waiting() == 0);
}
