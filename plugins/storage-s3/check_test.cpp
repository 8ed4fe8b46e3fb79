// The start check against stores that may be used and those that may not.
#include "plugins/storage-s3/check.hpp"

#include <doctest/doctest.h>

#include "plugins/storage-s3/testing/rig.hpp"

namespace hf::s3::testing {
namespace {

struct End {
    StartCheck::State state = StartCheck::State::Running;
    std::string trouble;
};

End check(Rig& rig) {
    bool decided = false;
    StartCheck one(*rig.env, [&] { decided = true; });
    one.begin();
    REQUIRE(rig.until([&] { return decided; }));
    return {one.state(), one.trouble()};
}

void refused(Store::Quirks quirks, const std::string& part) {
    Store store(quirks);
    Rig rig(store);
    const End end = check(rig);
    CAPTURE(end.trouble);
    CHECK(end.state == StartCheck::State::Refused);
    CHECK(end.trouble.find(part) != std::string::npos);
    CHECK(end.trouble.find("\"bucket\"") != std::string::npos);
}

}  // namespace

TEST_CASE("a good store is found good and left as it was") {
    Store store;
    Rig rig(store, {{"prefix", "p/"}});
    const End end = check(rig);
    CAPTURE(end.trouble);
    CHECK(end.state == StartCheck::State::Good);
    CHECK_FALSE(rig.env->etag_bare);
    CHECK(rig.env->conditional_deletes);
    CHECK(store.objects() == 0);
}

TEST_CASE("the form of a tag that the store wants is found out") {
    Store::Quirks quirks;
    quirks.bare_etags = true;
    quirks.ignores_delete_if_match = true;
    quirks.missing_is_412 = true;
    Store store(quirks);
    Rig rig(store);
    CHECK(check(rig).state == StartCheck::State::Good);
    CHECK(rig.env->etag_bare);
    CHECK_FALSE(rig.env->conditional_deletes);
    Rig quoted(store, {{"etag_form", "quoted"}});
    const End end = check(quoted);
    CHECK(end.state == StartCheck::State::Refused);
    CHECK(end.trouble.find("etag_form") != std::string::npos);
    Rig bare(store, {{"etag_form", "bare"}});
    CHECK(check(bare).state == StartCheck::State::Good);
}

TEST_CASE("stores that cannot keep actors are refused by what they do wrong") {
    refused({.ignores_if_none_match = true}, "If-None-Match");
    refused({.ignores_if_match = true}, "If-Match");
    refused({.check_then_write = true}, "not atomic");
    refused({.forgets_metadata = true}, "x-amz-meta-holdfast-write-id");
    refused({.empty_lists = true}, "listing");
}

TEST_CASE("access that is denied is explained") {
    const auto first_answer =
        [](int status, const std::string& code, const std::string& region = {}) {
            Store store;
            store.error_code(code, region);
            store.script([status](const Request&, std::uint64_t) {
                return std::pair{Fate::Serve, status};
            });
            Rig rig(store);
            const End end = check(rig);
            CHECK(end.state == StartCheck::State::Refused);
            return end.trouble;
        };
    const auto has = [](const std::string& text, const char* part) {
        CAPTURE(text);
        CHECK(text.find(part) != std::string::npos);
    };
    has(first_answer(404, "NoSuchBucket"), "plugin.storage.bucket");
    has(first_answer(403, "SignatureDoesNotMatch"), "credentials_file");
    has(first_answer(403, "InvalidAccessKeyId"), "credentials_file");
    has(first_answer(403, "AccessDenied"), "the key needs");
    has(first_answer(400, "AuthorizationHeaderMalformed", "eu-west-3"), "region = \"eu-west-3\"");
    has(first_answer(301, "PermanentRedirect"), "another region");
    has(first_answer(400, "Whatever"), "Whatever");
    has(first_answer(200, "x"), "does not answer as S3 does");
}

TEST_CASE("a store that does not know conditional writes says so with 501") {
    Store store;
    store.error_code("NotImplemented");
    store.script([](const Request& request, std::uint64_t) {
        return std::pair{Fate::Serve, request.headers.contains("if-none-match") ? 501 : 0};
    });
    Rig rig(store);
    const End end = check(rig);
    CHECK(end.state == StartCheck::State::Refused);
    CHECK(end.trouble.find("501 NotImplemented") != std::string::npos);
}

TEST_CASE("trouble that may pass is waited out") {
    Store store;
    store.error_code("of nobody");
    store.script([](const Request&, std::uint64_t n) -> std::pair<Fate, int> {
        if (n < 3) return {Fate::Serve, 503};
        if (n < 5) return {Fate::Serve, 200};  // somebody else's page
        return {n < 8 && n % 2 == 0 ? Fate::DropAfter : Fate::Serve, 0};
    });
    Rig rig(store);
    CHECK(check(rig).state == StartCheck::State::Good);
    CHECK(store.requests() > 20);
}

}  // namespace hf::s3::testing
