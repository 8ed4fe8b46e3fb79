// A node's lease: renewed, lost in each way it can be lost, and what becomes of the node and its actors then.
#include <doctest/doctest.h>

#include "agent/core/test_cluster.hpp"

using namespace hf;
using namespace hf::core;
using testing::leased_config;
using testing::Node;
using testing::Rig;
using testing::TestBucket;

namespace {

struct Alone {
    std::shared_ptr<TestBucket> bucket = std::make_shared<TestBucket>();
    Node node{"n1", bucket};
    Rig& rig = node.rig;

    [[nodiscard]] NodeRecord record() const {
        return *rig.codec.decode_node(bucket->objects.at(key::node("n1")).body);
    }
    [[nodiscard]] ReplyReason reason(std::uint64_t req) const {
        REQUIRE(rig.reply(req) != nullptr);
        return rig.reply(req)->reason;
    }
};

// The store answers nothing any more.
void cut_off(Alone& alone) {
    alone.node.actors.store = [](const StoreRequest&) { return true; };
}

}  // namespace

TEST_CASE("a_lease_is_renewed_and_lasts") {
    Alone alone;
    alone.rig.run_for(20 * kSecond);
    CHECK(alone.rig.core.lease().valid());
    CHECK(alone.record().incarnation == 1);
    CHECK(alone.record().lease_seq >= 19);
    CHECK(alone.record().ttl_ms == 3000);
    CHECK(alone.rig.core.stats().leases_lost == 0);
}

TEST_CASE("without_a_lease_nothing_is_renewed_and_a_shared_store_is_refused") {
    Rig rig;
    rig.run_for(100 * kSecond);
    CHECK(rig.core.lease().valid());
    CHECK(rig.codec.decode_node(rig.bucket->objects.at(key::node("n1")).body)->lease_seq == 0);
    Alone shared;
    Rig second(testing::small_config(), {}, {}, {"stream", 1, {}}, shared.bucket);
    REQUIRE(second.all<ExitNode>().size() == 1);
    CHECK(second.all<ExitNode>()[0].second.reason.find("shared") != std::string::npos);
}

TEST_CASE("an_exclusive_store_becomes_a_shared_one") {
    Rig before;
    const auto done = before.ask("a", before.now + kSecond);
    REQUIRE(before.reply(done) != nullptr);
    Config config = leased_config("n1");
    config.instance_id = testing::small_config().instance_id;  // the same data directory
    Rig after(config, {}, {}, {"stream", 1, {}}, before.bucket, before.now);
    CHECK(after.core.ready());
    CHECK(after.codec.decode_store(after.bucket->objects.at(key::store()).body)->mode == "shared");
    const auto again = after.ask("a", after.now + kSecond);
    REQUIRE(after.reply(again) != nullptr);
    CHECK(after.reply(again)->reason == ReplyReason::Ok);
}

TEST_CASE("a_lease_that_is_not_renewed_ends_before_others_may_think_so") {
    Alone alone;
    const auto first = alone.rig.ask("a", alone.rig.now + kSecond);
    CHECK(alone.reason(first) == ReplyReason::Ok);
    alone.rig.run_for(kSecond / 2);
    const std::uint64_t renewed = alone.record().lease_seq;
    const Time sent = alone.rig.now;
    cut_off(alone);
    alone.rig.run_for(3 * kSecond - 300 * kMs);
    // It counts from before the last renewal that was stored was sent; that one was sent at the latest when it was cut off.
    CHECK(alone.rig.now >= sent + 2 * kSecond);
    CHECK_FALSE(alone.rig.core.lease().valid());
    CHECK(alone.record().lease_seq == renewed);
    CHECK(alone.rig.core.stats().leases_lost == 1);
    const auto refused = alone.rig.ask("a", alone.rig.now + kSecond);
    CHECK(alone.reason(refused) == ReplyReason::Unavailable);
    CHECK_FALSE(alone.rig.core.ready());
}

TEST_CASE("it_comes_back_as_the_next_incarnation_when_the_store_does") {
    Alone alone;
    alone.rig.ask("a", alone.rig.now + kSecond);
    cut_off(alone);
    alone.rig.run_for(5 * kSecond);
    CHECK(alone.rig.core.incarnation() == 0);
    alone.node.actors.store = nullptr;
    // What it had asked is answered late; the storage instance was never in doubt.
    alone.rig.die(alone.rig.serving(Kind::Storage), false);
    alone.rig.run_for(3 * kSecond);
    CHECK(alone.rig.core.incarnation() == 2);
    CHECK(alone.rig.core.ready());
    const auto again = alone.rig.ask("a", alone.rig.now + kSecond);
    CHECK(alone.reason(again) == ReplyReason::Ok);
}

TEST_CASE("a_record_that_somebody_changed_ends_the_incarnation_at_once") {
    Alone alone;
    alone.rig.ask("a", alone.rig.now + kSecond);
    NodeRecord dead = alone.record();
    dead.dead = dead.incarnation;
    alone.bucket->put(key::node("n1"), alone.rig.codec.encode(dead));
    alone.rig.run_for(kSecond + 100 * kMs);  // the next renewal
    CHECK(alone.rig.core.stats().leases_lost == 1);
    CHECK(alone.rig.core.incarnation() == 2);
    CHECK_FALSE(alone.record().dead);
}

TEST_CASE("time_in_which_the_host_slept_counts") {
    Alone alone;
    alone.rig.run_for(kSecond / 2);
    alone.rig.feed(SleptIs{10 * kSecond});
    const auto late = alone.rig.ask("a", alone.rig.now + kSecond);
    CHECK(alone.rig.core.stats().leases_lost == 1);
    alone.rig.run_for(kSecond / 10);
    CHECK(alone.rig.core.incarnation() == 2);
    CHECK(alone.reason(late) == ReplyReason::Unavailable);
}

TEST_CASE("what_is_on_its_way_to_the_store_when_the_lease_ends_is_answered_as_unknown") {
    Alone alone;
    alone.rig.ask("a", alone.rig.now + kSecond);
    cut_off(alone);
    const auto open = alone.rig.ask("a", alone.rig.now + 60 * kSecond);  // its entry was sent
    const auto merged =
        alone.rig.ask("a", alone.rig.now + 60 * kSecond);  // and this one's never was
    const auto cold = alone.rig.ask("b", alone.rig.now + 60 * kSecond);
    CHECK(alone.rig.reply(open) == nullptr);
    alone.rig.run_for(5 * kSecond);
    CHECK(alone.reason(open) == ReplyReason::Deadline);
    CHECK(alone.reason(merged) == ReplyReason::Unavailable);
    CHECK(alone.reason(cold) == ReplyReason::Unavailable);
    CHECK(alone.rig.core.units().quiet());
}

TEST_CASE(
    "an_incarnation_of_this_very_process_is_never_called_reaped_even_if_it_never_heard_of_it") {
    auto bucket = std::make_shared<TestBucket>();
    NodeRecord last;
    last.id = "n1";
    last.instance = leased_config("n1").instance_id;
    last.incarnation = 4;
    last.dead = 4;
    testing::TableCodec codec;
    bucket->put(key::node("n1"), codec.encode(last));
    const auto stored = [&] {
        return *codec.decode_node(bucket->objects.at(key::node("n1")).body);
    };
    bool lost = false;
    const auto lose_the_first = [&](Rig& rig) {
        rig.hook = [&](const Action& action) {
            const auto* request = std::get_if<StoreRequest>(&action);
            if (lost || request == nullptr || request->verb != StoreVerb::Put ||
                request->key != key::node("n1"))
                return false;
            bucket->put(request->key, request->body);
            lost = true;
            return true;
        };
    };
    Rig rig(leased_config("n1"), {}, lose_the_first, {"stream", 1, {}}, bucket);
    REQUIRE(stored().incarnation == 5);
    CHECK(stored().reaped == 4);
    NodeRecord buried = stored();
    buried.dead = 5;
    bucket->put(key::node("n1"), codec.encode(buried));
    rig.die(rig.serving(Kind::Storage), false);
    rig.run_for(5 * kSecond);
    CHECK(rig.core.ready());
    CHECK(stored().incarnation == 6);
    CHECK(stored().reaped == 4);
}

TEST_CASE("a_node_that_stops_says_so_in_its_record") {
    Alone alone;
    alone.rig.ask("a", alone.rig.now + kSecond);
    alone.rig.feed(StopNode{"test"});
    alone.rig.run_for(60 * kSecond);
    REQUIRE(alone.rig.all<ExitNode>().size() == 1);
    CHECK(alone.rig.all<ExitNode>()[0].second.code == 0);
    REQUIRE(alone.record().dead);
    CHECK(*alone.record().dead == 1);
}

TEST_CASE("a_node_that_has_said_so_writes_nothing_more") {
    Alone alone;
    alone.rig.ask("a", alone.rig.now + kSecond);
    bool said = false;
    std::vector<std::string> written;
    alone.node.actors.store = [&](const StoreRequest& request) {
        if (request.verb != StoreVerb::Put) return false;
        const auto record = request.key == key::node("n1")
                                ? alone.rig.codec.decode_node(request.body)
                                : Result<NodeRecord>(NodeRecord{});
        if (said) written.push_back(request.key);
        said = said || (record && record->dead);
        return false;
    };
    // Its storage does not end when it is told to: there is time for a hold to be given back as idle.
    const Handle storage = alone.rig.serving(Kind::Storage);
    alone.node.actors.others = [storage](const Action& action) {
        const auto* stop = std::get_if<SendStop>(&action);
        const auto* kill = std::get_if<Kill>(&action);
        return (stop != nullptr && stop->to == storage) || (kill != nullptr && kill->to == storage);
    };
    alone.rig.feed(StopNode{"test"});
    alone.rig.run_for(2 * 3600 * kSecond);
    CHECK(said);
    CHECK(written.empty());
}

TEST_CASE("a_node_id_of_another_data_directory_is_taken_only_when_its_lease_has_run_out") {
    const auto bucket = std::make_shared<TestBucket>();
    Config config = leased_config("n1");
    {
        const Rig first(config, {}, {}, {"stream", 1, {}}, bucket);
        CHECK(first.core.ready());
    }
    config.instance_id = "another";
    Rig second(config, {}, {}, {"other", 1, {}}, bucket);
    CHECK_FALSE(second.core.ready());
    SUBCASE("it stands still") {
        second.run_for(3 * kSecond + 900 * kMs);
        CHECK_FALSE(second.core.ready());
        second.run_for(2 * kSecond);
        CHECK(second.core.ready());
        CHECK(second.core.incarnation() == 2);
    }
    SUBCASE("it is renewed") {
        second.run_for(2 * kSecond);
        NodeRecord renewed = *second.codec.decode_node(bucket->objects.at(key::node("n1")).body);
        ++renewed.lease_seq;
        bucket->put(key::node("n1"), second.codec.encode(renewed));
        second.run_for(2 * kSecond);
        REQUIRE(second.all<ExitNode>().size() == 1);
        CHECK(second.all<ExitNode>()[0].second.reason.find("in use") != std::string::npos);
    }
}
