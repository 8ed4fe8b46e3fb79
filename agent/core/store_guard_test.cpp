// A storage instance that comes after another is used only when it has the store that the node knows.
#include <doctest/doctest.h>

#include "agent/core/keys.hpp"
#include "agent/core/test_rig.hpp"

using namespace hf;
using namespace hf::core;
using testing::Rig;

namespace {

// What a later instance answers to the question which store it has; the other requests go on.
struct Identity {
    Rig& rig;
    std::vector<Outcome> answers;  // taken from the front; then the rig answers
    std::size_t asked = 0;
    std::size_t others = 0;

    bool operator()(const Action& action) {
        const auto* request = std::get_if<StoreRequest>(&action);
        if (request == nullptr) return false;
        if (request->key != key::store()) {
            ++others;
            return false;
        }
        ++asked;
        if (answers.empty()) return false;
        StoreAnswer answer;
        answer.from = request->to;
        answer.op = request->op;
        answer.outcome = answers.front();
        answers.erase(answers.begin());
        rig.feed(answer);
        return true;
    }
};

}  // namespace

TEST_CASE(
    "a_storage_instance_with_another_store_is_ended_and_its_requests_wait_for_the_right_one") {
    Rig rig;
    Identity identity{rig, {Outcome::NotFound, Outcome::NotFound}};
    rig.hook = [&](const Action& action) { return identity(action); };
    rig.run_for(10 * kSecond);
    rig.die(rig.serving(Kind::Storage), false);
    const auto open = rig.ask("a", rig.now + 10 * kSecond);
    rig.run_for(0);  // the next instance starts
    CHECK(identity.asked == 1);
    CHECK(identity.others == 0);
    CHECK(rig.reply(open) == nullptr);
    CHECK(rig.all<Kill>().size() == 1);
    CHECK_FALSE(rig.core.ready());
    rig.run_for(2 * kSecond);
    CHECK(identity.asked == 3);
    CHECK(rig.all<Kill>().size() == 2);
    REQUIRE(rig.reply(open) != nullptr);
    CHECK(rig.reply(open)->reason == ReplyReason::Ok);
    CHECK(rig.core.ready());
}

TEST_CASE("a_storage_instance_that_cannot_say_is_asked_again") {
    Rig rig;
    Identity identity{rig, {Outcome::Unknown, Outcome::Refused}};
    rig.hook = [&](const Action& action) { return identity(action); };
    rig.run_for(10 * kSecond);
    rig.die(rig.serving(Kind::Storage), false);
    const auto open = rig.ask("a", rig.now + 10 * kSecond);
    CHECK(rig.reply(open) == nullptr);
    rig.run_for(kSecond);
    CHECK(identity.asked == 3);
    CHECK(rig.all<Kill>().empty());
    REQUIRE(rig.reply(open) != nullptr);
    CHECK(rig.reply(open)->reason == ReplyReason::Ok);
}
