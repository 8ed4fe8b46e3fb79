// Who is let in, who is told to come back, and deadlines to the nanosecond.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "abi/base/limits.hpp"
#include "agent/core/keys.hpp"
#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {
void hold_deliveries(Rig& rig, std::vector<Deliver>& held) {
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver != nullptr) held.push_back(*deliver);
        return deliver != nullptr;
    };
}
}  // namespace

TEST_CASE("a_full_mailbox_answers_busy_by_count_and_by_bytes") {
    Config config = small_config();
    config.limits.mailbox_events = 2;
    config.limits.mailbox_bytes = 100;
    Rig rig(config);
    std::vector<Deliver> held;
    hold_deliveries(rig, held);
    const Time deadline = rig.now + 10 * kSecond;
    rig.ask("a", deadline);  // runs
    rig.ask("a", deadline, Bytes(60));
    const auto bytes = rig.ask("a", deadline, Bytes(41));
    REQUIRE(rig.reply(bytes) != nullptr);
    CHECK(rig.reply(bytes)->reason == ReplyReason::Busy);
    CHECK(rig.reply(bytes)->retry_after_ms > 0);
    rig.ask("a", deadline, Bytes(40));
    const auto count = rig.ask("a", deadline, Bytes{});
    REQUIRE(rig.reply(count) != nullptr);
    CHECK(rig.reply(count)->reason == ReplyReason::Busy);
    const auto other = rig.ask("b", deadline);  // another mailbox has room
    CHECK(rig.reply(other) == nullptr);
    CHECK(rig.core.stats().accepted == 4);
}

TEST_CASE("the_node_bounds_all_open_events_together_and_counts_them_out_again") {
    Config config = small_config();
    config.limits.accepted_events = 3;
    Rig rig(config);
    std::vector<Deliver> held;
    hold_deliveries(rig, held);
    const Time deadline = rig.now + 10 * kSecond;
    for (const char* name : {"a", "b", "c"}) rig.ask(name, deadline);
    const auto refused = rig.ask("d", deadline);
    REQUIRE(rig.reply(refused) != nullptr);
    CHECK(rig.reply(refused)->reason == ReplyReason::Busy);
    REQUIRE(held.size() == 3);
    rig.feed(Rig::delivered(held[0]));
    CHECK(rig.reply(rig.ask("d", deadline)) == nullptr);
    CHECK(rig.core.units().accepted_open() == 3);
}

TEST_CASE("unknown_classes_bad_names_and_large_events_are_told_apart") {
    Rig rig;
    RequestIn request;
    request.from = rig.serving(Kind::Gateway);
    request.deadline = rig.now + kSecond;
    const auto reason = [&](const char* class_name, const std::string& name, std::size_t size) {
        ++request.req_id;
        request.class_name = class_name;
        request.name = name;
        request.event = Bytes(size);
        rig.feed(request);
        const ReplyOut* reply = rig.reply(request.req_id);
        REQUIRE(reply != nullptr);
        return reply->reason;
    };
    CHECK(reason("nothing", "a", 1) == ReplyReason::UnknownClass);
    CHECK(reason("counter", "", 1) == ReplyReason::BadName);
    CHECK(reason("counter", std::string(500, 'x'), 1) == ReplyReason::BadName);
    CHECK(reason("counter", "a", 1U << 20U) == ReplyReason::TooLarge);
    CHECK(rig.core.stats().accepted == 0);
}

TEST_CASE("a_deadline_is_answered_at_its_nanosecond_and_the_event_does_not_run_after_it") {
    Rig rig;
    std::vector<Deliver> held;
    hold_deliveries(rig, held);
    const Time start = rig.now;
    const auto running = rig.ask("a", start + 3 * kSecond);
    const auto waiting = rig.ask("a", start + 2 * kSecond);
    const auto later = rig.ask("a", start + 4 * kSecond);
    rig.run_to(start + 2 * kSecond - 1);
    CHECK(rig.reply(waiting) == nullptr);
    rig.run_to(start + 4 * kSecond - 1);
    CHECK(rig.replied_at(waiting) == start + 2 * kSecond);
    CHECK(rig.replied_at(running) == start + 3 * kSecond);
    CHECK(rig.reply(running)->reason == ReplyReason::Deadline);
    REQUIRE(held.size() == 1);
    rig.feed(Rig::delivered(held[0]));  // its change counts, its answer is over
    REQUIRE(held.size() == 2);
    rig.feed(Rig::delivered(held[1]));
    CHECK(rig.replied_at(later) == start + 4 * kSecond - 1);
    CHECK(rig.all<ReplyOut>().size() == 3);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_gateway_may_wait_as_long_as_its_request_timeout_may_be_and_no_longer") {
    const Time longest = kEventWaitMsMax * kMs;
    Config config = small_config();
    config.limits.storage_stall = 3 * longest;  // a store that is silent, and that nobody doubts
    Rig rig(config);
    rig.hook = [](const Action& action) { return std::holds_alternative<StoreRequest>(action); };
    const auto wanted = rig.ask("a", rig.now + longest);
    const auto beyond = rig.ask("b", rig.now + 2 * longest);
    const auto unnamed = rig.ask("c", 0);
    rig.run_for(longest - 1);
    for (const auto request : {wanted, beyond, unnamed}) CHECK(rig.reply(request) == nullptr);
    rig.run_for(1);
    for (const auto request : {wanted, beyond, unnamed}) {
        REQUIRE(rig.reply(request) != nullptr);
        CHECK(rig.reply(request)->reason == ReplyReason::Deadline);
    }
}

TEST_CASE("an_event_that_ends_three_runtimes_is_failed_and_not_tried_again") {
    Config config = small_config();
    config.restart_intensity = false;
    Rig rig(config);
    int tries = 0;
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || deliver->event != Bytes{66}) return false;
        ++tries;
        rig.die(deliver->to, true, deliver->op);
        return true;
    };
    const auto poison = rig.ask("a", rig.now + 60 * kSecond, {66});
    const auto after = rig.ask("a", rig.now + 60 * kSecond);
    rig.run_for(10 * kSecond);
    CHECK(tries == 3);
    REQUIRE(rig.reply(poison) != nullptr);
    CHECK(rig.reply(poison)->reason == ReplyReason::ActorFailed);
    REQUIRE(rig.reply(after) != nullptr);
    CHECK(rig.reply(after)->reason == ReplyReason::Ok);
    CHECK(rig.core.stats().poisoned == 1);
}

TEST_CASE("a_death_from_outside_is_not_held_against_the_event") {
    Config config = small_config();
    config.restart_intensity = false;
    Rig rig(config);
    int tries = 0;
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || ++tries > 6) return false;
        rig.die(deliver->to, false, deliver->op);
        return true;
    };
    const auto id = rig.ask("a", rig.now + 60 * kSecond);
    rig.run_for(10 * kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    CHECK(rig.all<Deliver>().back().second.attempt == 7);
}

TEST_CASE("a_hold_nobody_waits_for_any_more_is_given_back") {
    Rig rig;
    std::vector<StoreRequest> held;
    rig.hook = [&](const Action& action) {
        const auto* put = std::get_if<StoreRequest>(&action);
        if (put == nullptr || put->verb != StoreVerb::Put ||
            put->key.find("/holds/") == std::string::npos)
            return false;
        held.push_back(*put);
        return true;
    };
    rig.ask("a", rig.now + kSecond);
    REQUIRE(held.size() == 1);
    rig.run_for(2 * kSecond);  // the only event meets its deadline
    StoreAnswer applied;
    applied.from = held[0].to;
    applied.op = held[0].op;
    applied.outcome = Outcome::Applied;
    rig.feed(applied);
    REQUIRE(held.size() == 2);
    CHECK(rig.codec.decode_hold(held[1].body)->state == HoldState::Free);
}

TEST_CASE("a_runtime_that_retires_with_many_units_is_told_so_in_portions") {
    constexpr std::uint32_t kInFlight = 4;
    Config config = small_config();
    config.limits.runtime_inflight = kInFlight;
    Rig rig(config);
    for (int i = 0; i < 50; ++i) rig.ask("unit" + std::to_string(i), rig.now + kSecond);
    std::size_t open = 0;
    std::size_t most = 0;
    std::vector<Drop> held;
    rig.hook = [&](const Action& action) {
        if (const auto* drop = std::get_if<Drop>(&action)) {
            held.push_back(*drop);
            most = std::max(most, ++open);
            return true;
        }
        return std::holds_alternative<SendStop>(action);
    };
    Build build = config.slots[2].build;
    build.binary_hash = "another";
    rig.feed(SwapCommand{1, "runtime", build});
    CHECK(held.size() == kInFlight);
    for (std::size_t i = 0; i < held.size(); ++i) {
        --open;
        const Drop drop = held[i];
        rig.feed(DroppedIn{drop.to, drop.op});
    }
    CHECK(held.size() == 50);
    CHECK(most == kInFlight);
}

TEST_CASE("a_class_whose_handlers_run_for_long_leaves_places_at_the_runtime_to_others") {
    Config config = small_config();
    config.limits.runtime_inflight = 4;
    config.classes.push_back({"other", 5 * kSecond, 1024});
    Rig rig(config);
    std::vector<Deliver> held;
    std::set<std::uint64_t> others;
    rig.hook = [&](const Action& action) {
        const auto* activate = std::get_if<Activate>(&action);
        if (activate != nullptr && activate->class_name == "other")
            others.insert(activate->activation);
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr || others.contains(deliver->activation)) return false;
        held.push_back(*deliver);
        return true;
    };
    std::vector<std::uint64_t> slow;
    for (int i = 0; i < 10; ++i)
        slow.push_back(rig.ask("slow" + std::to_string(i), rig.now + 60 * kSecond));
    CHECK(held.size() == 3);
    RequestIn request;
    request.from = rig.serving(Kind::Gateway);
    request.class_name = "other";
    request.name = "quick";
    request.deadline = rig.now + kSecond;
    for (request.req_id = 1000; request.req_id < 1020; ++request.req_id) {
        rig.feed(request);
        REQUIRE(rig.reply(request.req_id) != nullptr);
        CHECK(rig.reply(request.req_id)->reason == ReplyReason::Ok);
    }
    // Alone it has its share, no more and no less, until all of it is done.
    for (std::size_t i = 0; i < held.size(); ++i) {
        CHECK(held.size() == std::min<std::size_t>(i + 3, slow.size()));
        const Deliver deliver = held[i];
        rig.feed(Rig::delivered(deliver));
    }
    for (const std::uint64_t id : slow) REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.core.units().quiet());
}

TEST_CASE("a_refusal_never_outgrows_its_record_whatever_it_quotes") {
    Rig rig;
    rig.hook = [&](const Action& action) {
        const auto* get = std::get_if<StoreRequest>(&action);
        if (get == nullptr || get->verb != StoreVerb::Get ||
            get->key.find("/holds/") == std::string::npos)
            return false;
        StoreAnswer answer;
        answer.from = get->to;
        answer.op = get->op;
        answer.outcome = Outcome::Refused;
        answer.reason = std::string(60'000, 'x');
        rig.feed(answer);
        return true;
    };
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Unavailable);
    CHECK(rig.reply(id)->text.size() == 1024);
}

TEST_CASE("a_reply_that_would_outgrow_the_record_that_takes_it_on_ends_its_runtime") {
    for (const bool headers : {false, true}) {
        Rig rig;
        bool once = true;
        rig.hook = [&](const Action& action) {
            const auto* deliver = std::get_if<Deliver>(&action);
            if (deliver == nullptr || !std::exchange(once, false)) return false;
            DeliveredIn answer = Rig::delivered(*deliver);
            (headers ? answer.reply_headers : answer.reply_body) =
                Bytes((headers ? kHeaderBytesMax : kPayloadBytesMax) + 1, 1);
            rig.feed(answer);
            return true;
        };
        const Handle runtime = rig.serving(Kind::Runtime);
        const auto req = rig.ask("a", rig.now + 60 * kSecond);
        rig.run_for(10 * kSecond);
        CHECK(rig.serving(Kind::Runtime) != runtime);
        REQUIRE(rig.reply(req) != nullptr);
        // Nothing of it happened, and there was no other to run it: it waits for the next one.
        CHECK(rig.reply(req)->reason == ReplyReason::Ok);
    }
}

TEST_CASE("who_waits_for_a_runtime_that_will_not_come_is_told_so_at_once") {
    Rig rig;
    rig.hook = [&](const Action& action) { return std::holds_alternative<Deliver>(action); };
    const auto waiting = rig.ask("a", rig.now + 3600 * kSecond);
    for (int death = 1; death <= 10; ++death) {
        while (!rig.serving(Kind::Runtime).valid()) rig.run_for(100 * kMs);
        CHECK(rig.reply(waiting) == nullptr);
        rig.die(rig.serving(Kind::Runtime), false);
    }
    REQUIRE(rig.core.supervision().failed(Kind::Runtime));
    REQUIRE(rig.reply(waiting) != nullptr);
    CHECK(rig.reply(waiting)->reason == ReplyReason::Unavailable);
}

TEST_CASE("an_actor_whose_loading_ends_three_runtimes_is_left_alone_for_a_while") {
    Config config = small_config();
    config.restart_intensity = false;
    Rig rig(config);
    int loads = 0;
    bool deadly = true;
    rig.hook = [&](const Action& action) {
        const auto* activate = std::get_if<Activate>(&action);
        if (activate == nullptr || activate->name != "bad") return false;
        ++loads;
        if (deadly) rig.die(activate->to, true, activate->op);
        return deadly;
    };
    const auto first = rig.ask("bad", rig.now + 60 * kSecond);
    rig.run_for(10 * kSecond);
    CHECK(loads == 3);
    REQUIRE(rig.reply(first) != nullptr);
    CHECK(rig.reply(first)->reason == ReplyReason::ActorFailed);
    const auto soon = rig.ask("bad", rig.now + 60 * kSecond);
    REQUIRE(rig.reply(soon) != nullptr);
    CHECK(rig.reply(soon)->reason == ReplyReason::ActorFailed);
    const auto other = rig.ask("good", rig.now + 60 * kSecond);
    CHECK(rig.reply(other)->reason == ReplyReason::Ok);
    CHECK(loads == 3);
    // One try each 5 min from then on; what loads is as good as new.
    rig.run_for(300 * kSecond);
    rig.ask("bad", rig.now + 60 * kSecond);
    rig.run_for(kSecond);
    CHECK(loads == 4);
    deadly = false;
    rig.run_for(300 * kSecond);
    const auto last = rig.ask("bad", rig.now + 60 * kSecond);
    REQUIRE(rig.reply(last) != nullptr);
    CHECK(rig.reply(last)->reason == ReplyReason::Ok);
}

TEST_CASE("a_log_of_seals_alone_gets_a_base_that_lets_them_go") {
    Config config = small_config();
    config.limits.checkpoint_entries = 4;
    config.limits.hold_idle = 10 * kSecond;
    Rig rig(config);
    rig.hook = [&](const Action& action) {
        const auto* deliver = std::get_if<Deliver>(&action);
        if (deliver == nullptr) return false;
        DeliveredIn answer = Rig::delivered(*deliver);
        answer.changes.clear();  // the actor is only ever read
        rig.feed(std::move(answer));
        return true;
    };
    for (int i = 0; i < 8; ++i) {
        rig.ask("a", rig.now + kSecond);
        rig.run_for(60 * kSecond);
    }
    CHECK(rig.all<Checkpoint>().size() >= 1);
}

TEST_CASE("a_full_runtime_lets_go_of_what_was_idle_for_longest") {
    Config config = small_config();
    config.limits.resident_units_max = 2;
    Rig rig(config);
    std::uint32_t most = 0;
    bool offered_full = false;
    rig.hook = [&](const Action& action) {
        most = std::max(most, rig.core.units().resident_on(rig.serving(Kind::Runtime)));
        if (const auto* place = std::get_if<Place>(&action))
            for (const Candidate& candidate : place->candidates)
                offered_full = offered_full || candidate.resident >= candidate.capacity;
        return false;
    };
    const Time deadline = rig.now + 10 * kSecond;
    const auto activations = [&] { return rig.all<Activate>().size(); };
    for (const char* name : {"a", "b", "a", "c", "a", "d"}) {
        const auto id = rig.ask(name, deadline);
        REQUIRE(rig.reply(id) != nullptr);
        CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    }
    CHECK(activations() == 4);  // "a" was asked in between and stayed
    CHECK(rig.all<Drop>().size() == 2);
    CHECK(most == 2);
    CHECK_FALSE(offered_full);
    const auto back = rig.ask("b", deadline);
    REQUIRE(rig.reply(back) != nullptr);
    CHECK(rig.reply(back)->reason == ReplyReason::Ok);
    CHECK(activations() == 5);
    CHECK(rig.core.stats().acquires == 4);  // the hold was kept
}

TEST_CASE("units_that_could_not_be_loaded_do_not_fill_a_runtime") {
    Config config = small_config();
    config.limits.resident_units_max = 2;
    Rig rig(config);
    bool refuses = true;
    rig.hook = [&](const Action& action) {
        const auto* get = std::get_if<StoreRequest>(&action);
        if (get == nullptr || !refuses || get->key.find("/holds/") == std::string::npos)
            return false;
        StoreAnswer answer;
        answer.from = get->to;
        answer.op = get->op;
        answer.outcome = Outcome::Refused;
        answer.reason = "no space";
        rig.feed(answer);
        return true;
    };
    const Time deadline = rig.now + 10 * kSecond;
    for (int i = 0; i < 8; ++i) {
        const auto id = rig.ask("early" + std::to_string(i), deadline);
        REQUIRE(rig.reply(id) != nullptr);
        CHECK(rig.reply(id)->reason == ReplyReason::Unavailable);
    }
    CHECK(rig.core.units().resident_on(rig.serving(Kind::Runtime)) <= 2);
    refuses = false;
    for (int i = 0; i < 4; ++i) {
        const auto id = rig.ask("late" + std::to_string(i), deadline);
        REQUIRE(rig.reply(id) != nullptr);
        CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    }
}

TEST_CASE("a_place_that_comes_after_the_last_event_is_not_taken") {
    Rig rig;
    std::vector<Place> asked;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr || place->subject.find("self-test") != std::string::npos) return false;
        asked.push_back(*place);
        return true;
    };
    const auto id = rig.ask("a", rig.now + kMs);
    REQUIRE(asked.size() == 1);
    rig.run_for(2 * kMs);  // the only event meets its deadline
    CHECK(rig.reply(id)->reason == ReplyReason::Deadline);
    rig.feed(PlacedIn{asked[0].to, asked[0].op, false, asked[0].candidates.front().id, ""});
    CHECK(rig.core.units().resident_on(rig.serving(Kind::Runtime)) == 0);
    rig.hook = nullptr;
    const auto next = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(next) != nullptr);
    CHECK(rig.reply(next)->reason == ReplyReason::Ok);
}

TEST_CASE("a_seal_goes_only_when_the_incarnation_of_the_node_it_fenced_is_reaped") {
    const auto seal_deleted_when_fencing = [](const std::string& owner) {
        const std::string unit = "actor/default/counter/a";
        Config config = small_config();
        config.limits.checkpoint_entries = 2;
        Rig rig(config, {}, [&](Rig& store) {
            NodeRecord node;  // the incarnation before this one is reaped by its next start
            node.id = config.node_id;
            node.incarnation = 9;
            store.put(key::node(config.node_id), store.codec.encode(node));
            HoldRecord hold;
            hold.epoch = 3;
            hold.state = HoldState::Held;
            hold.owner = owner;
            hold.incarnation = 5;
            store.put(key::hold(config.app, unit), store.codec.encode(hold));
        });
        rig.hook = [&](const Action& action) {
            const auto* ask = std::get_if<Checkpoint>(&action);
            if (ask == nullptr) return false;
            rig.feed(CheckpointedIn{ask->to, ask->op, ask->activation, true, {1}, ""});
            return true;
        };
        for (int i = 0; i < 4; ++i) rig.ask("a", rig.now + kSecond);
        CHECK(rig.core.stats().bases >= 1);
        for (const auto& [at, request] : rig.all<StoreRequest>())
            if (request.verb == StoreVerb::Delete &&
                (request.key == key::entry(config.app, unit, 1) ||
                 std::find(request.also.begin(),
                           request.also.end(),
                           key::entry(config.app, unit, 1)) != request.also.end()))
                return true;
        return false;
    };
    CHECK(seal_deleted_when_fencing("n1"));
    CHECK_FALSE(seal_deleted_when_fencing("n2"));
}
