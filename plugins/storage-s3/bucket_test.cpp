// The bucket against a small S3 with faults: outcomes, what was really done, time and tries.
#include "plugins/storage-s3/bucket.hpp"

#include <doctest/doctest.h>

#include "abi/base/limits.hpp"
#include "plugins/storage-s3/testing/rig.hpp"

namespace hf::s3::testing {
namespace {

PutCall create(const std::string& key, const std::string& body, WriteId id) {
    return {key, body, Condition::IfAbsent, {}, id};
}

PutCall renew(const std::string& key,
              const std::string& body,
              const std::string& etag,
              WriteId id) {
    return {key, body, Condition::IfMatch, etag, id};
}

// The first `count` requests that `which` names meet `fate`; all others are served.
Store::Script first(std::string method, unsigned count, Fate fate, int status = 0) {
    auto left = std::make_shared<unsigned>(count);
    return [=](const Request& request, std::uint64_t) -> std::pair<Fate, int> {
        if (request.method != method || *left == 0) return {Fate::Serve, 0};
        --*left;
        return {fate, status};
    };
}

}  // namespace

TEST_CASE("what is put is got, listed and deleted") {
    Store store;
    Rig rig(store, {{"prefix", "p/"}});
    const PutResult stored = rig.put(create("a/b c", "body", {1, 2}));
    CHECK(stored.outcome == Outcome::Applied);
    CHECK(store.body_of("p/a/b c") == "body");
    const GetResult got = rig.get("a/b c");
    CHECK(got.outcome == Outcome::Applied);
    CHECK(got.body == "body");
    CHECK(got.etag == stored.etag);
    CHECK(got.write_id == WriteId{1, 2});
    const ListResult listed = rig.list({"a/", {}, 2});
    CHECK(listed.outcome == Outcome::Applied);
    REQUIRE(listed.keys.size() == 1);
    CHECK(listed.keys[0].key == "a/b c");
    CHECK(listed.keys[0].etag == stored.etag);
    CHECK_FALSE(listed.more);
    CHECK(listed.store_time_ms > 1'500'000'000'000);
    CHECK(rig.erase({"a/b c", Condition::None, {}, {}}).outcome == Outcome::Applied);
    CHECK(rig.erase({"a/b c", Condition::None, {}, {}}).outcome == Outcome::NotFound);
    CHECK(rig.get("a/b c").outcome == Outcome::NotFound);
    // One connection carried all of it.
    CHECK(store.connections() == 1);
}

TEST_CASE("a write whose answer is lost is found and not written twice") {
    for (const Fate fate : {Fate::DropAfter, Fate::Half}) {
        Store store;
        Rig rig(store);
        CHECK(rig.put(create("warm", "x", {9, 9})).outcome == Outcome::Applied);
        store.script(first("PUT", 1, fate));
        CHECK(rig.put(create("k", "one", {1, 1})).outcome == Outcome::Applied);
        CHECK(store.written("k") == 1);
        store.script(first("PUT", 1, fate));
        const std::string etag = rig.get("k").etag;
        CHECK(rig.put(renew("k", "two", etag, {1, 2})).outcome == Outcome::Applied);
        CHECK(store.written("k") == 2);
        CHECK(rig.env->counts.looks >= 1);
    }
}

TEST_CASE("a write that never arrived goes again") {
    Store store;
    Rig rig(store);
    store.script(first("PUT", 2, Fate::DropBefore));
    CHECK(rig.put(create("k", "one", {1, 1})).outcome == Outcome::Applied);
    CHECK(store.written("k") == 1);
}

TEST_CASE("a write that arrives late takes effect once and never over another's") {
    Store store;
    Rig rig(store);
    store.script(first("PUT", 1, Fate::Late));
    const PutResult stored = rig.put(create("k", "one", {1, 1}));
    CHECK(stored.outcome == Outcome::Applied);
    CHECK(rig.put(renew("k", "two", stored.etag, {2, 2})).outcome == Outcome::Applied);
    store.land_late();
    CHECK(store.body_of("k") == "two");
    CHECK(store.written("k") == 2);
    // The same for a replacement.
    const std::string etag = rig.get("k").etag;
    store.script(first("PUT", 1, Fate::Late));
    const PutResult third = rig.put(renew("k", "three", etag, {3, 3}));
    CHECK(third.outcome == Outcome::Applied);
    CHECK(rig.put(renew("k", "four", third.etag, {4, 4})).outcome == Outcome::Applied);
    store.land_late();
    CHECK(store.body_of("k") == "four");
}

TEST_CASE("errors of the store are not believed to have done nothing") {
    for (const int status : {409, 429, 500, 502, 503, 504}) {
        CAPTURE(status);
        Store store;
        Rig rig(store);
        store.script(first("PUT", 2, Fate::Serve, status));
        CHECK(rig.put(create("k", "one", {1, 1})).outcome == Outcome::Applied);
        CHECK(store.written("k") == 1);
        CHECK(rig.env->counts.repeated == 2);
    }
}

TEST_CASE("who comes second is told what is there") {
    Store store;
    Rig rig(store);
    const PutResult stored = rig.put(create("k", "one", {1, 1}));
    const PutResult second = rig.put(create("k", "two", {2, 2}));
    CHECK(second.outcome == Outcome::PreconditionFailed);
    CHECK(second.etag == stored.etag);
    CHECK(second.write_id == WriteId{1, 1});
    CHECK(rig.put(create("k", "one", {1, 1})).outcome == Outcome::Applied);  // the same again
    CHECK(rig.put(renew("k", "x", "\"old\"", {3, 3})).outcome == Outcome::PreconditionFailed);
    CHECK(rig.put(renew("none", "x", "\"old\"", {3, 3})).outcome == Outcome::NotFound);
    CHECK(store.written("k") == 1);
}

TEST_CASE("a store that answers nothing is given up in time, and what it did is unknown") {
    Store store;
    Rig rig(store,
            {{"connect_timeout", "100"}, {"attempt_timeout", "150"}, {"operation_timeout", "500"}});
    store.script([](const Request&, std::uint64_t) { return std::pair{Fate::Silent, 0}; });
    const std::int64_t begun = monotonic_ns();
    const PutResult put = rig.put(create("k", "one", {1, 1}));
    CHECK(put.outcome == Outcome::Unknown);
    CHECK(put.reason.find("operation_timeout") != std::string::npos);
    CHECK(rig.get("k").outcome == Outcome::Unknown);
    CHECK(rig.list({"k", {}, 1}).outcome == Outcome::Unknown);
    CHECK(rig.erase({"k", Condition::None, {}, {}}).outcome == Outcome::Unknown);
    const std::int64_t took_ms = (monotonic_ns() - begun) / 1'000'000;
    CHECK(took_ms >= 4 * 450);
    CHECK(took_ms < 10'000);
    CHECK(rig.bucket->open() == 0);
    CHECK(rig.http->open() == 0);
}

TEST_CASE("nobody there is unknown as well") {
    std::string gone;
    {
        const Store store;
        gone = store.endpoint();
    }
    Rig rig(gone,
            {{"operation_timeout", "500"}, {"attempt_timeout", "500"}, {"connect_timeout", "500"}});
    const PutResult put = rig.put(create("k", "one", {1, 1}));
    CHECK(put.outcome == Outcome::Unknown);
    CHECK(put.reason.find("not reached") != std::string::npos);
}

TEST_CASE("a refusal is one, but not after a try that may have worked") {
    Store store;
    store.error_code("AccessDenied");
    Rig rig(store);
    store.script(first("PUT", 1, Fate::Serve, 403));
    const PutResult refused = rig.put(create("k", "one", {1, 1}));
    CHECK(refused.outcome == Outcome::Refused);
    CHECK(refused.reason.find("AccessDenied") != std::string::npos);
    CHECK(store.written("k") == 0);
    // Lost on the way there, looked at in vain, then refused.
    auto puts = std::make_shared<int>(0);
    store.script([puts](const Request& request, std::uint64_t) -> std::pair<Fate, int> {
        if (request.method != "PUT") return {Fate::Serve, 0};
        return ++*puts == 1 ? std::pair{Fate::Late, 0} : std::pair{Fate::Serve, 403};
    });
    CHECK(rig.put(create("k", "one", {1, 1})).outcome == Outcome::Unknown);
}

TEST_CASE("tries are counted, and repetitions have a budget") {
    Store store;
    Rig rig(store, {{"attempts_max", "3"}});
    store.script([](const Request&, std::uint64_t) { return std::pair{Fate::Serve, 503}; });
    const GetResult got = rig.get("k");
    CHECK(got.outcome == Outcome::Unknown);
    CHECK(got.reason.find("attempts_max") != std::string::npos);
    CHECK(got.reason.find("503") != std::string::npos);
    CHECK(store.requests() == 3);
    while (rig.env->budget.take()) {
    }
    const std::uint64_t before = store.requests();
    CHECK(rig.get("k").outcome == Outcome::Unknown);
    CHECK(store.requests() == before + 1);
}

TEST_CASE("reads that are cut are asked again") {
    Store store;
    Rig rig(store);
    (void)rig.put(create("k", "a body that is cut", {1, 1}));
    store.script(first("GET", 2, Fate::Half));
    CHECK(rig.get("k").body == "a body that is cut");
    store.script(first("GET", 2, Fate::Half));
    CHECK(rig.list({"", {}, 10}).keys.size() == 1);
    store.script(first("GET", 1, Fate::Serve, 200));  // an error page with a good status
    const ListResult listed = rig.list({"", {}, 10});
    CHECK(listed.outcome == Outcome::Applied);
    CHECK(listed.keys.size() == 1);
}

TEST_CASE("listings go on where they ended") {
    Store store;
    Rig rig(store, {{"prefix", "p/"}});
    for (int i = 0; i < 7; ++i)
        (void)rig.put(create("k" + std::to_string(i), "x", {1, static_cast<std::uint64_t>(i) + 1}));
    const ListResult page = rig.list({"k", "k1", 3});
    REQUIRE(page.keys.size() == 3);
    CHECK(page.keys[0].key == "k2");
    CHECK(page.more);
    const ListResult last = rig.list({"k", "k4", 2});
    CHECK(last.keys.size() == 2);
    CHECK_FALSE(last.more);
    CHECK(rig.list({"k", {}, 257}).outcome == Outcome::Refused);
}

TEST_CASE("many are deleted together, whatever is lost on the way") {
    Store store;
    Rig rig(store);
    std::vector<std::string> also;
    for (int i = 0; i < 100; ++i) {
        also.push_back("k" + std::to_string(i));
        if (i % 3 == 0) (void)rig.put({also.back(), "x", Condition::None, {}, {}});
    }
    auto count = std::make_shared<int>(0);
    store.script([count](const Request&, std::uint64_t) -> std::pair<Fate, int> {
        switch (++*count % 7) {
            case 1:
                return {Fate::DropAfter, 0};
            case 3:
                return {Fate::Serve, 503};
            case 5:
                return {Fate::DropBefore, 0};
            default:
                return {Fate::Serve, 0};
        }
    });
    CHECK(rig.erase({"none", Condition::None, {}, also}).outcome == Outcome::Applied);
    store.script({});
    CHECK(store.objects() == 0);
    CHECK(rig.erase({"none", Condition::None, {}, also}).outcome == Outcome::NotFound);
    CHECK(rig.erase({"k", Condition::None, {}, std::vector<std::string>(256, "j")}).outcome ==
          Outcome::Refused);
}

TEST_CASE("a delete with a condition is taken only by a store that honours it") {
    Store store;
    Rig rig(store);
    const PutResult stored = rig.put(create("k", "one", {1, 1}));
    CHECK(rig.erase({"k", Condition::IfMatch, stored.etag, {}}).outcome == Outcome::Refused);
    rig.env->conditional_deletes = true;
    CHECK(rig.erase({"k", Condition::IfMatch, "\"old\"", {}}).outcome ==
          Outcome::PreconditionFailed);
    CHECK(store.objects() == 1);
    CHECK(rig.erase({"k", Condition::IfMatch, stored.etag, {}}).outcome == Outcome::Applied);
    CHECK(rig.erase({"k", Condition::IfMatch, stored.etag, {}}).outcome == Outcome::NotFound);
    CHECK(rig.erase({"k", Condition::IfAbsent, {}, {}}).outcome == Outcome::Refused);
}

TEST_CASE("what cannot be asked is refused by name") {
    Store store;
    Rig rig(store, {{"prefix", "p/"}, {"requests_open_max", "2"}});
    CHECK(rig.put({"", "x", Condition::None, {}, {}}).outcome == Outcome::Refused);
    const PutResult long_key = rig.put({std::string(1023, 'k'), "x", Condition::None, {}, {}});
    CHECK(long_key.outcome == Outcome::Refused);
    CHECK(long_key.reason.find("1022") != std::string::npos);
    CHECK(rig.put({std::string(1022, 'k'), "x", Condition::None, {}, {}}).outcome ==
          Outcome::Applied);
    const PutResult large =
        rig.put({"k", std::string(kObjectBytesMax + 1, 'x'), Condition::None, {}, {}});
    CHECK(large.reason.find("kObjectBytesMax") != std::string::npos);
    CHECK(rig.put(renew("k", "x", "", {1, 1})).outcome == Outcome::Refused);
    CHECK(rig.put(renew("k", "x", "a\r\nx-evil: 1", {1, 1})).outcome == Outcome::Refused);
    CHECK(rig.put({"k", "x", static_cast<Condition>(7), {}, {}}).outcome == Outcome::Refused);
    CHECK(store.objects() == 1);
    // Two are open, the third is told so at once.
    store.script([](const Request&, std::uint64_t) { return std::pair{Fate::Silent, 0}; });
    int open = 0;
    for (int i = 0; i < 2; ++i) rig.bucket->get("k", [&](GetResult&) { ++open; });
    bool refused = false;
    rig.bucket->get("k", [&](GetResult& result) {
        refused = result.reason.find("requests_open_max") != std::string::npos;
    });
    CHECK(refused);
    CHECK(open == 0);
}

TEST_CASE("a clock that is off is corrected and told once") {
    Store store;
    store.clock_ahead(7200);
    Rig rig(store);
    CHECK(rig.put(create("k", "one", {1, 1})).outcome == Outcome::Applied);
    CHECK(rig.said.find("behind the store's") != std::string::npos);
    CHECK(rig.said.find("7200") != std::string::npos);
    const std::string before = rig.said;
    CHECK(rig.get("k").outcome == Outcome::Applied);
    CHECK(rig.said == before);
}

TEST_CASE("fifty creators at once, over few connections, with every second answer lost") {
    Store store;
    Rig rig(store, {{"connections_max", "8"}});
    auto count = std::make_shared<int>(0);
    store.script([count](const Request& request, std::uint64_t) -> std::pair<Fate, int> {
        if (request.method != "PUT") return {Fate::Serve, 0};
        return {++*count % 2 == 0 ? Fate::DropAfter : Fate::Serve, 0};
    });
    int answered = 0;
    int won = 0;
    std::uint64_t winner = 0;
    for (std::uint64_t i = 1; i <= 50; ++i)
        rig.bucket->put(create("k", "creator " + std::to_string(i), {1, i}),
                        [&, i](PutResult& result) {
                            ++answered;
                            if (result.outcome == Outcome::Applied) {
                                ++won;
                                winner = i;
                            } else {
                                CHECK(result.outcome == Outcome::PreconditionFailed);
                            }
                        });
    REQUIRE(rig.until([&] { return answered == 50; }));
    CHECK(won == 1);
    CHECK(store.body_of("k") == "creator " + std::to_string(winner));
    CHECK(store.written("k") == 1);
}

}  // namespace hf::s3::testing
