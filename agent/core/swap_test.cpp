// A new policy that crashes, hangs or lies at any stage puts the old one back, and the request it spoiled is answered.
#include <doctest/doctest.h>

#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;
using testing::small_config;

namespace {

Build other_policy(const Rig& rig) {
    Build build = rig.core.config().slots[3].build;
    build.policy = "second";
    return build;
}

bool is_test(const Place& place) {
    return place.subject.find("/self-test/") != std::string::npos;
}

enum class When { Start, Configure, Test, Full, Live };
enum class How { Crash, Killed, Stall, Lie, Nobody };

// Plays the new placement build, whose generations are above `old`.
struct Candidate2 {
    Rig& rig;
    std::uint64_t old;
    When when;
    How how;
    int tests = 0;

    bool operator()(const Action& action) {
        if (const auto* spawn = std::get_if<Spawn>(&action);
            spawn != nullptr && when == When::Start && spawn->build.policy == "second")
            return misbehave(spawn->handle, 0);
        if (const auto* configure = std::get_if<Configure>(&action);
            configure != nullptr && when == When::Configure && configure->to.generation > old) {
            if (how != How::Lie) return misbehave(configure->to, 0);
            rig.feed(ReadyIn{configure->to, false, "does not like it"});
            return true;
        }
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr || place->to.generation <= old) return false;
        const bool test = is_test(*place);
        if (test) ++tests;
        if (when == When::Test && tests == 5) return misbehave(place->to, place->op);
        if (when == When::Full && tests == 12) return misbehave(place->to, place->op);
        if (when == When::Live && test && tests >= 12) return true;  // slow with these
        if (when == When::Live && !test) return misbehave(place->to, place->op);
        return false;
    }
    bool misbehave(Handle self, OpId op) {
        switch (how) {
            case How::Crash:
                rig.die(self, true);
                break;
            case How::Killed:
                rig.die(self, false);
                break;
            case How::Stall:
                break;
            case How::Lie:
                rig.feed(PlacedIn{self, op, false, 4711, ""});
                break;
            case How::Nobody:
                rig.feed(PlacedIn{self, op, true, 0, ""});
                break;
        }
        return true;
    }
};

const CommandDone* command(const Rig& rig, std::uint64_t id) {
    static CommandDone kept;
    for (const auto& [at, done] : rig.all<CommandDone>()) {
        if (done.command != id) continue;
        kept = done;
        return &kept;
    }
    return nullptr;
}

}  // namespace

TEST_CASE(
    "a_bad_policy_build_is_rolled_back_at_every_stage_and_branded_unless_killed_from_outside") {
    for (const When when : {When::Start, When::Configure, When::Test, When::Full, When::Live}) {
        for (const How how : {How::Crash, How::Killed, How::Stall, How::Lie, How::Nobody}) {
            if (when <= When::Configure && how == How::Nobody) continue;
            if (when == When::Start && how == How::Lie) continue;
            CAPTURE(static_cast<int>(when));
            CAPTURE(static_cast<int>(how));
            Rig rig;
            rig.run_for(kSecond);
            const Handle old = rig.serving(Kind::Placement);
            const std::uint64_t before = rig.last("drain").generation;
            rig.hook = Candidate2{rig, before, when, how};
            rig.feed(SwapCommand{1, "placement", other_policy(rig)});
            std::uint64_t id = 0;
            if (when == When::Live) {
                CHECK(rig.serving(Kind::Placement) != old);
                id = rig.ask("a", rig.now + 20 * kSecond);
            }
            rig.run_for(15 * kSecond);
            const CommandDone* done = command(rig, 1);
            REQUIRE(done != nullptr);
            CHECK_FALSE(done->ok);
            CHECK(done->text.starts_with("RolledBack"));
            CHECK(rig.serving(Kind::Placement) == old);
            // Killed from outside, or it only said no to its settings: the build is not to blame.
            const bool blameless =
                how == How::Killed || (when == When::Configure && how == How::Lie);
            CHECK(rig.core.supervision().bad_builds().size() == (blameless ? 0U : 1U));
            if (id == 0) id = rig.ask("a", rig.now + 20 * kSecond);
            REQUIRE(rig.reply(id) != nullptr);
            CHECK(rig.reply(id)->reason == ReplyReason::Ok);
        }
    }
}

TEST_CASE("a_good_policy_is_full_after_64_answers_and_the_old_one_is_told_to_stop") {
    Rig rig;
    const Handle old = rig.serving(Kind::Placement);
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    const CommandDone* done = command(rig, 1);
    REQUIRE(done != nullptr);
    CHECK(done->ok);
    CHECK(done->text.starts_with("Full"));
    CHECK(rig.serving(Kind::Placement) != old);
    CHECK(rig.core.supervision().find(old) == nullptr);
    CHECK(rig.all<Place>().size() == 8 + 64);

    rig.feed(RollbackCommand{2, "placement"});
    done = command(rig, 2);
    REQUIRE(done != nullptr);
    CHECK(done->ok);
    CHECK(rig.core.supervision().slots()[3].current.policy == "first");
}

TEST_CASE("a_policy_with_little_traffic_is_full_after_2_s") {
    Rig rig;
    OpId open = 0;
    Handle asked;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr || rig.all<Place>().size() <= 8 + 3) return false;
        open = place->op;  // from now on each answer takes 900 ms
        asked = place->to;
        return true;
    };
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    const Time full = rig.now;
    for (int i = 1; i <= 2; ++i) {
        rig.run_to(full + i * 900 * kMs);
        rig.feed(PlacedIn{asked, open, false, 0, ""});
    }
    // The window is over while an answer is overdue: that answer, or the stall, decides.
    rig.run_to(full + 2 * kSecond);
    CHECK(command(rig, 1) == nullptr);
    rig.run_to(full + 3 * 900 * kMs);
    rig.feed(PlacedIn{asked, open, false, 0, ""});
    rig.run_to(rig.now + 1);
    REQUIRE(command(rig, 1) != nullptr);
    CHECK(command(rig, 1)->ok);
}

TEST_CASE("the_window_does_not_end_as_full_while_the_liar_is_being_killed") {
    Rig rig;
    Handle killed;
    rig.hook = [&](const Action& action) {
        if (const auto* kill = std::get_if<Kill>(&action)) {
            killed = kill->to;  // takes its time to die
            return true;
        }
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr || rig.all<Place>().size() <= 8 + 1) return false;
        return is_test(*place);  // no more answers to generated requests
    };
    const Handle old = rig.serving(Kind::Placement);
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    const Handle fresh = rig.serving(Kind::Placement);
    REQUIRE(fresh != old);
    rig.run_for(990 * kMs);
    rig.feed(Violated{fresh, "wrote beyond its ring"});
    REQUIRE(killed == fresh);
    rig.run_for(5 * kSecond);
    CHECK(command(rig, 1) == nullptr);
    rig.die(fresh, false);
    REQUIRE(command(rig, 1) != nullptr);
    CHECK_FALSE(command(rig, 1)->ok);
    CHECK(rig.serving(Kind::Placement) == old);
    CHECK(rig.core.supervision().bad_builds().size() == 1);
}

TEST_CASE("only_the_candidate_that_was_asked_answers_a_generated_request") {
    Rig rig;
    OpId test = 0;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place != nullptr) test = place->op;
        return place != nullptr;
    };
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    REQUIRE(test != 0);
    rig.feed(PlacedIn{rig.last("drain"), test, false, 4711, ""});
    CHECK(rig.all<Kill>().empty());
}

TEST_CASE("a_branded_build_that_does_well_when_asked_for_again_is_forgotten_on_disk_too") {
    Rig rig;
    bool lie = true;
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr || !is_test(*place) || !lie) return false;
        lie = false;
        rig.feed(PlacedIn{place->to, place->op, false, 4711, ""});
        return true;
    };
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    REQUIRE(command(rig, 1) != nullptr);
    CHECK_FALSE(command(rig, 1)->ok);
    CHECK(rig.all<RememberBadBuilds>().back().second.builds.size() == 1);
    rig.feed(SwapCommand{2, "placement", other_policy(rig)});
    REQUIRE(command(rig, 2) != nullptr);
    CHECK(command(rig, 2)->ok);
    CHECK(rig.all<RememberBadBuilds>().back().second.builds.empty());
}

TEST_CASE("a_policy_that_crashes_after_one_revert_is_branded_and_the_configured_one_comes_back") {
    Rig rig;
    Build second = other_policy(rig);
    Build third = second;
    third.policy = "third";
    rig.feed(SwapCommand{1, "placement", second});
    rig.feed(SwapCommand{2, "placement", third});
    REQUIRE(command(rig, 2)->ok);
    rig.run_for(kSecond);
    rig.die(rig.serving(Kind::Placement), true);
    rig.run_for(kSecond);
    const auto& slot = rig.core.supervision().slots()[3];
    CHECK(slot.current.policy == "second");
    rig.die(rig.serving(Kind::Placement), true);
    rig.run_for(kSecond);
    CHECK(slot.current.policy == "first");
    CHECK(rig.serving(Kind::Placement).valid());
    CHECK(rig.core.supervision().bad_builds().size() == 2);
    CHECK(slot.reason.find("reverted from placement/second to placement/first") == 0);

    // The configured one has nothing better behind it: it starts again, as every plugin does.
    rig.die(rig.serving(Kind::Placement), true);
    rig.run_for(kSecond);
    CHECK(slot.current.policy == "first");
    CHECK(rig.serving(Kind::Placement).valid());
    CHECK(rig.core.supervision().bad_builds().size() == 2);
}

TEST_CASE("with_nothing_good_left_the_built_in_rule_decides_until_a_reset") {
    const Config config = small_config();
    Rig rig(config,
            {{config.slots[3].build.identity(), BadBuild{"placement", "placement/first", "lied"}}});
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    REQUIRE(command(rig, 1)->ok);
    const std::size_t spawned = rig.spawns("placement").size();
    rig.die(rig.serving(Kind::Placement), true);
    rig.run_for(60 * kSecond);
    CHECK(rig.spawns("placement").size() == spawned);
    CHECK_FALSE(rig.serving(Kind::Placement).valid());
    CHECK(rig.core.supervision().bad_builds().size() == 2);
    const auto id = rig.ask("a", rig.now + kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    CHECK(rig.core.stats().placed_by_default == 1);
}

TEST_CASE("a_reset_forgets_every_bad_build_of_its_slot_and_of_no_other") {
    const BadBuild elsewhere{"drain", "drain/paced", "lied"};
    Rig rig(small_config(), {{"of drain", elsewhere}});
    rig.hook = [&](const Action& action) {
        const auto* place = std::get_if<Place>(&action);
        if (place == nullptr || !is_test(*place)) return false;
        rig.feed(PlacedIn{place->to, place->op, false, 4711, ""});
        return true;
    };
    Build other = other_policy(rig);
    for (const char* value : {"1", "2"}) {
        other.settings = {{"fill", value}};
        rig.feed(SwapCommand{1, "placement", other});
    }
    CHECK(rig.core.supervision().bad_builds().size() == 3);
    rig.feed(ResetCommand{2, "placement"});
    REQUIRE(command(rig, 2) != nullptr);
    CHECK(command(rig, 2)->text ==
          "placement goes on with placement/first (build hash-pla, no settings); 2 bad builds "
          "forgotten");
    CHECK(rig.core.supervision().bad_builds().size() == 1);
    CHECK(rig.all<RememberBadBuilds>().back().second.builds.contains("of drain"));
}

TEST_CASE("what_a_swap_says_names_content_and_settings") {
    Rig rig;
    Build other = other_policy(rig);
    other.settings = {{"fill", "100"}};
    rig.feed(SwapCommand{1, "placement", other});
    CHECK(command(rig, 1)->text ==
          "Full: swapped from placement/first to placement/second (build hash-pla, fill=100)");
    Build again = other;
    again.settings.clear();
    rig.feed(SwapCommand{3, "placement", again});
    CHECK(command(rig, 3)->text ==
          "Full: swapped from placement/second (build hash-pla, fill=100) to placement/second "
          "(build hash-pla, no settings)");
    rig.feed(RollbackCommand{4, "placement"});
    rig.feed(SwapCommand{2, "placement", other});
    CHECK(command(rig, 2)->text ==
          "placement already runs placement/second (build hash-pla, fill=100)");
    other.settings = {{"fill", std::string(1000, 'x')}};
    CHECK(other.described().size() < 300);
}

TEST_CASE("a_command_for_a_slot_that_the_node_lacks_tells_what_there_is") {
    Config config = small_config();
    config.slots.pop_back();
    Rig rig(config);
    rig.feed(RollbackCommand{1, "nonsense"});
    CHECK(command(rig, 1)->text ==
          "no plugin slot named 'nonsense'; this node has: gateway, storage, runtime, placement");
    rig.feed(ResetCommand{2, "drain"});
    CHECK(command(rig, 2)->text.find("this node has no [plugin.drain] and the built-in policy "
                                     "decides; add the table") == 0);
}

TEST_CASE("commands_that_cannot_be_done_say_so_at_once") {
    Rig rig;
    rig.feed(SwapCommand{1, "nothing", other_policy(rig)});
    CHECK_FALSE(command(rig, 1)->ok);
    rig.feed(RollbackCommand{2, "placement"});
    CHECK_FALSE(command(rig, 2)->ok);
    rig.feed(SwapCommand{3, "placement", rig.core.config().slots[3].build});
    CHECK_FALSE(command(rig, 3)->ok);
    rig.hook = [](const Action& action) { return std::holds_alternative<Place>(action); };
    rig.feed(SwapCommand{4, "placement", other_policy(rig)});
    CHECK(command(rig, 4) == nullptr);
    rig.feed(SwapCommand{5, "placement", other_policy(rig)});
    REQUIRE(command(rig, 5) != nullptr);
    CHECK_FALSE(command(rig, 5)->ok);
}

// --- a runtime, whose swap is also what a deploy is ------------------------------------------------------------------------

namespace {

Build other_modules(const Rig& rig) {
    Build build = rig.core.config().slots[2].build;
    build.modules = "a-table-of-modules";
    return build;
}

bool told_to_stop(const Rig& rig, Handle handle) {
    for (const auto& [at, stop] : rig.all<SendStop>()) {
        if (stop.to == handle) return true;
    }
    return false;
}

Handle ran_last_on(const Rig& rig) {
    const auto all = rig.all<Deliver>();
    return all.empty() ? Handle{} : all.back().second.to;
}

}  // namespace

TEST_CASE("units_move_to_new_modules_while_the_old_instance_waits_until_they_have_lasted") {
    Rig rig;
    const Handle old = rig.serving(Kind::Runtime);
    REQUIRE(rig.reply(rig.ask("a", rig.now + 20 * kSecond)) != nullptr);
    CHECK(ran_last_on(rig) == old);
    rig.feed(SwapCommand{1, "runtime", other_modules(rig)});
    const Handle fresh = rig.serving(Kind::Runtime);
    REQUIRE(fresh != old);
    CHECK(command(rig, 1) == nullptr);
    const auto id = rig.ask("a", rig.now + 20 * kSecond);
    REQUIRE(rig.reply(id) != nullptr);
    CHECK(rig.reply(id)->reason == ReplyReason::Ok);
    CHECK(ran_last_on(rig) == fresh);
    CHECK_FALSE(told_to_stop(rig, old));
    CHECK(rig.core.supervision().find(old) != nullptr);
    rig.run_for(2 * kSecond);
    REQUIRE(command(rig, 1) != nullptr);
    CHECK(command(rig, 1)->ok);
    CHECK(told_to_stop(rig, old));
    CHECK(rig.core.supervision().slots()[2].current.modules == "a-table-of-modules");
    // The same binary under its own name is another build with other modules.
    rig.feed(RollbackCommand{2, "runtime"});
    rig.run_for(2 * kSecond);
    REQUIRE(command(rig, 2) != nullptr);
    CHECK(command(rig, 2)->ok);
    CHECK(rig.core.supervision().slots()[2].current.modules.empty());
}

TEST_CASE("enough_answers_of_the_new_modules_end_the_swap_before_its_window") {
    Rig rig;
    rig.feed(SwapCommand{1, "runtime", other_modules(rig)});
    for (int i = 0; i < 64; ++i) {
        CHECK(command(rig, 1) == nullptr);
        rig.ask("a" + std::to_string(i), rig.now + 20 * kSecond);
    }
    REQUIRE(command(rig, 1) != nullptr);
    CHECK(command(rig, 1)->ok);
}

TEST_CASE("a_new_runtime_that_dies_at_its_first_activation_gives_the_units_back") {
    for (const bool by_fault : {true, false}) {
        CAPTURE(by_fault);
        Rig rig;
        const Handle old = rig.serving(Kind::Runtime);
        rig.ask("a", rig.now + 20 * kSecond);
        const std::uint64_t before = rig.last("drain").generation;
        rig.hook = [&](const Action& action) {
            const auto* activate = std::get_if<Activate>(&action);
            if (activate == nullptr || activate->to.generation <= before) return false;
            rig.die(activate->to, by_fault, by_fault ? activate->op : 0);
            return true;
        };
        rig.feed(SwapCommand{1, "runtime", other_modules(rig)});
        const auto id = rig.ask("a", rig.now + 20 * kSecond);
        REQUIRE(command(rig, 1) != nullptr);
        CHECK_FALSE(command(rig, 1)->ok);
        CHECK(rig.serving(Kind::Runtime) == old);
        REQUIRE(rig.reply(id) != nullptr);
        CHECK(rig.reply(id)->reason == ReplyReason::Ok);
        CHECK(ran_last_on(rig) == old);
        const auto other = rig.ask("b", rig.now + 20 * kSecond);
        REQUIRE(rig.reply(other) != nullptr);
        CHECK(rig.reply(other)->reason == ReplyReason::Ok);
        CHECK_FALSE(told_to_stop(rig, old));
        CHECK(rig.core.supervision().bad_builds().size() == (by_fault ? 1U : 0U));
    }
}

TEST_CASE("modules_that_a_new_runtime_refuses_change_nothing_and_brand_nothing") {
    Rig rig;
    const Handle old = rig.serving(Kind::Runtime);
    const std::uint64_t before = rig.last("drain").generation;
    rig.hook = [&](const Action& action) {
        const auto* configure = std::get_if<Configure>(&action);
        if (configure == nullptr || configure->to.generation <= before) return false;
        rig.feed(ReadyIn{configure->to, false, "class counter: too large"});
        return true;
    };
    rig.feed(SwapCommand{1, "runtime", other_modules(rig)});
    REQUIRE(command(rig, 1) != nullptr);
    CHECK_FALSE(command(rig, 1)->ok);
    CHECK(command(rig, 1)->text.find("class counter: too large") != std::string::npos);
    CHECK(rig.serving(Kind::Runtime) == old);
    CHECK(rig.core.supervision().bad_builds().empty());
    CHECK_FALSE(told_to_stop(rig, old));
}

TEST_CASE("a_class_is_served_from_the_change_that_names_it_to_the_one_that_does_not") {
    Rig rig;
    const auto ask = [&](const std::string& class_name) {
        RequestIn request;
        request.from = rig.serving(Kind::Gateway);
        request.req_id = 1000 + rig.done.size();
        request.class_name = class_name;
        request.name = "a";
        request.deadline = rig.now + 20 * kSecond;
        const auto id = request.req_id;
        rig.feed(std::move(request));
        REQUIRE(rig.reply(id) != nullptr);
        return rig.reply(id)->reason;
    };
    const Limits limits = rig.core.config().limits;
    CHECK(ask("second") == ReplyReason::UnknownClass);
    rig.feed(ConfigChanged{limits, {{"second", kSecond, 1024}, {"counter", kSecond, 1024}}});
    CHECK(ask("second") == ReplyReason::Ok);
    CHECK(ask("counter") == ReplyReason::Ok);
    rig.feed(ConfigChanged{limits, {{"counter", kSecond, 1024}}});
    CHECK(ask("second") == ReplyReason::UnknownClass);
    CHECK(ask("counter") == ReplyReason::Ok);
}

TEST_CASE("other_limits_hold_from_the_change_on") {
    Rig rig;
    rig.hook = [](const Action& action) { return std::holds_alternative<Deliver>(action); };
    const auto first = rig.ask("a", rig.now + 20 * kSecond);
    rig.ask("a", rig.now + 20 * kSecond);
    CHECK(rig.reply(first) == nullptr);
    Limits limits = rig.core.config().limits;
    limits.mailbox_events = 1;
    rig.feed(ConfigChanged{limits, rig.core.config().classes});
    const auto third = rig.ask("a", rig.now + 20 * kSecond);
    REQUIRE(rig.reply(third) != nullptr);
    CHECK(rig.reply(third)->reason == ReplyReason::Busy);
    CHECK(rig.reply(first) == nullptr);
}

TEST_CASE("a_swap_that_is_taken_back_leaves_what_a_roll_back_goes_to") {
    Rig rig;
    const Build first = rig.core.config().slots[3].build;
    const auto slot = [&]() -> const Supervision::Slot& {
        return rig.core.supervision().slots()[3];
    };
    rig.feed(SwapCommand{1, "placement", other_policy(rig)});
    rig.feed(SwapCommand{2, "placement", first, true, std::nullopt});
    REQUIRE(command(rig, 2) != nullptr);
    CHECK(command(rig, 2)->ok);
    CHECK(slot().current.policy == "first");
    CHECK_FALSE(slot().previous.has_value());
    rig.feed(RollbackCommand{3, "placement"});
    CHECK_FALSE(command(rig, 3)->ok);
    // With something to go back to, that stays it.
    Build third = first;
    third.policy = "third";
    rig.feed(SwapCommand{4, "placement", other_policy(rig)});
    rig.feed(SwapCommand{5, "placement", third});
    rig.feed(SwapCommand{6, "placement", other_policy(rig), true, first});
    CHECK(slot().current.policy == "second");
    REQUIRE(slot().previous.has_value());
    CHECK(slot().previous->policy == "first");
}

TEST_CASE("what_agent_toml_says_of_a_policy_now_is_what_a_bad_one_falls_back_to") {
    Rig rig;
    const Build second = other_policy(rig);
    Build third = second;
    third.policy = "third";
    rig.feed(SwapCommand{1, "placement", second});
    rig.feed(
        ConfigChanged{rig.core.config().limits, rig.core.config().classes, {{"placement", third}}});
    // The first one goes back to the build before it, the next one to the file's.
    for (const char* policy : {"first", "third"}) {
        rig.feed(Violated{rig.serving(Kind::Placement), "broke a rule"});
        rig.run_for(kSecond);
        REQUIRE(rig.serving(Kind::Placement).valid());
        CHECK(rig.core.supervision().slots()[3].current.policy == policy);
    }
}
