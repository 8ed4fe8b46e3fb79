// Alarms in time: however old they are, whatever is deployed later, however much of the index is not read yet.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "agent/core/guest_events.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/test_actors.hpp"

using namespace hf;
using namespace hf::core;
using testing::Actors;
using testing::is_alarm_key;
using testing::Rig;
using testing::small_config;
using testing::TableCodec;

TEST_CASE("an_alarm_of_long_ago_is_due_however_long_ago") {
    for (const std::int64_t due :
         {std::int64_t{-1}, std::int64_t{-10'000'000'000'000}, INT64_MIN}) {
        CAPTURE(due);
        Rig rig(small_config());
        Actors actors(rig);
        actors.on("a",
                  [&](const Deliver& deliver, DeliveredIn plain) -> std::optional<DeliveredIn> {
                      if (deliver.kind == EventKind::Http) plain.alarm = AlarmWish{due, false};
                      return plain;
                  });
        rig.ask("a", rig.now + 10 * kSecond);
        rig.run_for(kSecond);
        REQUIRE(actors.seen("a").size() == 2);
        CHECK(actors.seen("a")[1].kind == EventKind::Alarm);
    }
}

TEST_CASE("an_alarm_of_a_class_that_is_deployed_later_is_looked_at_then") {
    Config config = small_config();
    const std::string unit_key = actor_unit(config.tenant, "second", "a").value();
    const std::string hint = key::alarm(config.app, unit_key, 5, 77);
    Rig rig(config, {}, [&](Rig& empty) { empty.put(hint, {}); });
    const auto looked = [&] {
        bool erased = false;
        for (const auto& [at, request] : rig.all<StoreRequest>())
            erased = erased || (request.verb == StoreVerb::Delete && request.key == hint);
        return erased;
    };
    rig.run_for(60 * kSecond);
    CHECK_FALSE(looked());
    const std::size_t before = rig.all<StoreRequest>().size();
    std::vector<ClassSpec> classes = rig.core.config().classes;
    rig.feed(ConfigChanged{rig.core.config().limits, classes});
    rig.run_for(kSecond);
    CHECK_FALSE(looked());
    classes.push_back({"second", kSecond, 1024});
    rig.feed(ConfigChanged{rig.core.config().limits, classes});
    rig.run_for(kSecond);
    CHECK(looked());
    CHECK(rig.core.units().alarms().visits() == 0);
    // Each change reads the one part of the index in which something was passed over, and no other.
    std::size_t lists = 0;
    const auto requests = rig.all<StoreRequest>();
    for (std::size_t i = before; i < requests.size(); ++i)
        lists += requests[i].second.verb == StoreVerb::List && is_alarm_key(requests[i].second.key)
                     ? 1
                     : 0;
    CHECK(lists == 2);
}

TEST_CASE("an_alarm_set_while_the_index_is_being_read_does_not_stand_before_what_is_not_read_yet") {
    Config config = small_config();
    // 600 overdue hints of units in one part of the index, which is read 256 at a time.
    std::set<std::string> index;
    std::vector<std::string> names;
    const auto unit_of = [&](std::size_t i) {
        return actor_unit(config.tenant, "counter", "u" + std::to_string(i)).value();
    };
    const std::uint32_t part = alarm_shard(unit_of(0));
    for (std::size_t i = 0; names.size() < 601; ++i)
        if (alarm_shard(unit_of(i)) == part) names.push_back("u" + std::to_string(i));
    for (std::size_t i = 1; i < names.size(); ++i)
        index.insert(key::alarm(config.app,
                                actor_unit(config.tenant, "counter", names[i]).value(),
                                static_cast<std::int64_t>(i),
                                i));
    const std::string prefix = key::alarms_prefix(config.app, part);
    std::vector<StoreRequest> held;
    const auto page = [&](Rig& rig, const StoreRequest& request) {
        StoreAnswer answer;
        answer.from = request.to;
        answer.op = request.op;
        answer.outcome = Outcome::Applied;
        for (auto it = index.upper_bound(request.after); it != index.end(); ++it) {
            answer.more = answer.objects.size() == request.limit;
            if (answer.more) break;
            answer.objects.push_back({*it, 0, "e"});
        }
        rig.feed(answer);
    };
    bool hold = true;
    Rig rig(config, {}, [&](Rig& early) {
        early.hook = [&](const Action& action) {
            const auto* request = std::get_if<StoreRequest>(&action);
            if (request != nullptr && request->verb == StoreVerb::List && request->key == prefix) {
                if (hold)
                    held.push_back(*request);
                else
                    page(early, *request);
                return true;
            }
            if (request != nullptr && request->verb == StoreVerb::Put &&
                request->key.starts_with(prefix))
                index.insert(request->key);
            if (request != nullptr && request->verb == StoreVerb::Delete) index.erase(request->key);
            const auto* deliver = std::get_if<Deliver>(&action);
            if (deliver == nullptr || deliver->event != Bytes{42}) return false;
            DeliveredIn answer = Rig::delivered(*deliver);
            answer.alarm = AlarmWish{early.now / kMs + 3'600'000, false};
            early.feed(answer);
            return true;
        };
    });
    REQUIRE(held.size() == 1);
    rig.ask(names[0], rig.now + 10 * kSecond, {42});
    CHECK(index.size() == 601);
    hold = false;
    page(rig, held[0]);
    rig.run_for(60 * kSecond);
    // All that were due were looked at, and found to name nothing.
    CHECK(index.size() == 1);
    rig.run_for(3600 * kSecond);
    CHECK(index.empty());
}

namespace {

// The index by itself, on a store that lists it: each visit ends as the test says.
struct IndexRig {
    IndexRig() {
        env.out = &actions;
        store.route(kStorage);
        alarms.open();
        settle();
    }
    void put(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            Hint hint{actor_unit("t", "c", "u" + std::to_string(i)).value(), 1, i + 1, 1};
            keys.insert(key::alarm(env.config.app, hint.unit, hint.due_ms, hint.nonce));
            alarms.added(std::move(hint));
        }
    }
    void run_to(Time until) {
        while (alarms.next_deadline() <= until) {
            env.now = std::max(env.now, alarms.next_deadline());
            tick();
        }
        env.now = until;
    }
    void tick() {
        alarms.tick();
        settle();
        while (!taken.empty()) {
            const Hint hint = taken.back();
            taken.pop_back();
            alarms.ended(hint.unit, hint.nonce, Alarms::End::Failed);
            most = std::max(most, alarms.waiting());
        }
    }
    void settle() {
        while (!actions.empty()) {
            const Actions batch = std::exchange(actions, {});
            for (const Action& action : batch)
                if (const auto* request = std::get_if<StoreRequest>(&action)) page(*request);
        }
    }
    void page(const StoreRequest& request) {
        StoreAnswer answer;
        answer.from = kStorage;
        answer.op = request.op;
        answer.outcome = Outcome::Applied;
        for (auto it = keys.lower_bound(std::max(request.key, request.after));
             it != keys.end() && it->starts_with(request.key);
             ++it) {
            if (*it == request.after) continue;
            answer.more = answer.objects.size() == request.limit;
            if (answer.more) break;
            answer.objects.push_back({*it, 0, "e"});
        }
        CHECK(store.answered(answer));
    }
    Alarms::Visit visit(const Hint& hint) {
        ++visits[hint.unit];
        if (says == Alarms::Visit::Taken) taken.push_back(hint);
        return says;
    }

    static constexpr Handle kStorage{1, 1};
    TableCodec codec;
    Env env{small_config(), codec};
    Actions actions;
    StoreClient store{env, [](Handle) {}};
    Alarms alarms{env,
                  store,
                  [this](const Hint& hint) { return visit(hint); },
                  [](std::uint32_t) { return true; }};
    std::set<std::string> keys;
    std::vector<Hint> taken;
    std::map<std::string, std::size_t> visits;
    std::size_t most = 0;  // hints that waited for another try at once
    Alarms::Visit says = Alarms::Visit::Taken;
};

}  // namespace

TEST_CASE(
    "more_alarms_that_fail_than_memory_has_room_for_stay_in_the_index_and_are_tried_from_there") {
    IndexRig rig;
    constexpr std::size_t kCount = Alarms::kLaterMax + 1000;
    rig.put(kCount);
    rig.run_to(kSecond);
    CHECK(rig.visits.size() == kCount);
    CHECK(rig.most == Alarms::kLaterMax);
    rig.visits.clear();
    rig.run_to(620 * kSecond);
    CHECK(rig.most == Alarms::kLaterMax);
    CHECK(rig.visits.size() == kCount);
}

TEST_CASE("a_full_node_looks_at_one_alarm_a_second_and_not_at_all_of_them") {
    IndexRig rig;
    rig.says = Alarms::Visit::NodeFull;
    rig.put(500);
    rig.run_to(10 * kSecond);
    std::size_t looks = 0;
    for (const auto& [unit, count] : rig.visits) looks += count;
    CHECK(looks <= 11);
    rig.says = Alarms::Visit::Taken;
    rig.run_to(12 * kSecond);
    CHECK(rig.visits.size() == 500);
}
