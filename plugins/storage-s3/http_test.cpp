// Exchanges, the loop and what is certain about a request that was not answered.
#include "plugins/http-client/http.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugins/storage-s3/client.hpp"
#include "plugins/storage-s3/testing/rig.hpp"

namespace hf::s3::testing {
namespace {

HttpRequest get(const std::string& url) {
    HttpRequest request;
    request.method = "GET";
    request.url = url;
    request.answer_bytes_max = 1000;
    request.timeout_ms = 2000;
    return request;
}

HttpAnswer run(Rig& rig, HttpRequest request) {
    HttpAnswer out;
    bool answered = false;
    rig.http->send(std::move(request), [&](HttpAnswer& answer) {
        out = std::move(answer);
        answered = true;
    });
    REQUIRE(rig.until([&] { return answered; }));
    return out;
}

}  // namespace

TEST_CASE("what was not sent is told apart from what was not answered") {
    Store store;
    Rig rig(store);
    store.script([](const Request&, std::uint64_t) { return std::pair{Fate::DropBefore, 0}; });
    const HttpAnswer cut = run(rig, get(store.endpoint() + "/bucket/k"));
    CHECK_FALSE(cut.answered);
    CHECK(cut.sent);
    CHECK_FALSE(cut.trouble.empty());
    const HttpAnswer none = run(rig, get("http://127.0.0.1:1/"));
    CHECK_FALSE(none.answered);
    CHECK_FALSE(none.sent);
    const HttpAnswer name = run(rig, get("http://no-such-host.invalid/"));
    CHECK_FALSE(name.sent);
    // Nobody is believed: the handshake fails, or there is none.
    const HttpAnswer tls = run(rig, get("https" + store.endpoint().substr(4) + "/"));
    CHECK_FALSE(tls.sent);
}

TEST_CASE("an answer beyond its bound ends the exchange") {
    Store store;
    Rig rig(store);
    (void)rig.put({"k", std::string(1001, 'x'), Condition::None, {}, {}});
    (void)rig.put({"j", std::string(1000, 'x'), Condition::None, {}, {}});
    const HttpAnswer large = run(rig, get(store.endpoint() + "/bucket/k"));
    CHECK(large.too_large);
    CHECK(large.status == 200);
    CHECK_FALSE(large.answered);
    const HttpAnswer fits = run(rig, get(store.endpoint() + "/bucket/j"));
    CHECK(fits.answered);
    CHECK(fits.body.size() == 1000);
    CHECK(fits.header("etag").size() == 34);
    CHECK(fits.header("none").empty());
}

TEST_CASE("connections are kept, bounded and not shared by what was cancelled") {
    Store store;
    Rig rig(store, {{"connections_max", "2"}});
    int answered = 0;
    for (int i = 0; i < 20; ++i)
        rig.http->send(get(store.endpoint() + "/bucket/k"), [&](HttpAnswer& answer) {
            CHECK(answer.status == 404);
            ++answered;
        });
    CHECK(rig.http->open() == 20);
    REQUIRE(rig.until([&] { return answered == 20; }));
    CHECK(store.connections() == 2);
    bool called = false;
    const Http::Id first =
        rig.http->send(get(store.endpoint() + "/bucket/a"), [&](HttpAnswer&) { called = true; });
    rig.http->cancel(first);
    CHECK(run(rig, get(store.endpoint() + "/bucket/k")).status == 404);
    CHECK_FALSE(called);
    CHECK(rig.http->open() == 0);
}

TEST_CASE("a kept connection ends under a GET: it goes again, but for one that is to go once") {
    for (const bool once : {false, true}) {
        Store store;
        Rig rig(store);
        (void)rig.put({"k", "bytes", Condition::None, {}, {}});
        store.script([](const Request&, std::uint64_t n) {
            return std::pair{n == 2 ? Fate::DropBefore : Fate::Serve, 0};
        });
        CHECK(run(rig, get(store.endpoint() + "/bucket/k")).body == "bytes");
        HttpRequest request = get(store.endpoint() + "/bucket/k");
        request.once = once;
        const HttpAnswer answer = run(rig, std::move(request));
        CHECK(answer.answered == !once);
        CHECK(answer.sent);
        CHECK(store.requests() == (once ? 2 : 3));
    }
}

TEST_CASE("bodies are files and pieces, the target is its own") {
    Store store;
    Rig rig(store);
    const std::string bytes(300'000, 'b');
    UniqueFd file(::memfd_create("hf-test", MFD_CLOEXEC));
    REQUIRE(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    HttpRequest put = get(store.endpoint() + "/nowhere");
    put.method = "PUT";
    put.target = "/bucket/file";
    put.body_fd = file.get();
    put.body_bytes = bytes.size();
    CHECK(run(rig, std::move(put)).status == 200);
    CHECK(store.body_of("file") == bytes);
    HttpRequest back = get(store.endpoint() + "/bucket/file");
    back.answer_bytes_max = bytes.size();
    std::string came;
    back.on_body = [&](std::string_view piece) {
        came += piece;
        return true;
    };
    const HttpAnswer answer = run(rig, back);
    CHECK(answer.answered);
    CHECK(answer.body.empty());
    CHECK(came == bytes);
    back.on_body = [](std::string_view) { return false; };
    CHECK_FALSE(run(rig, back).answered);
    // A file that is shorter than it was said to be.
    put = get(store.endpoint() + "/bucket/short");
    put.method = "PUT";
    put.body_fd = file.get();
    put.body_bytes = bytes.size() + 1;
    CHECK_FALSE(run(rig, std::move(put)).answered);
}

TEST_CASE("who cancels hears whether it may have been sent") {
    Store store;
    Rig rig(store, {{"connections_max", "1"}});
    store.script([](const Request&, std::uint64_t) { return std::pair{Fate::Silent, 0}; });
    const Http::Id first = rig.http->send(get(store.endpoint() + "/bucket/a"), [](HttpAnswer&) {});
    const Http::Id second = rig.http->send(get(store.endpoint() + "/bucket/b"), [](HttpAnswer&) {});
    REQUIRE(rig.until([&] { return store.requests() == 1; }));
    CHECK_FALSE(rig.http->cancel(second));
    CHECK(rig.http->cancel(first));
    CHECK(rig.http->open() == 0);
}

TEST_CASE("a time limit ends an exchange") {
    Store store;
    Rig rig(store);
    store.script([](const Request&, std::uint64_t) { return std::pair{Fate::Silent, 0}; });
    HttpRequest request = get(store.endpoint() + "/bucket/k");
    request.timeout_ms = 100;
    const std::int64_t begun = monotonic_ns();
    const HttpAnswer answer = run(rig, std::move(request));
    CHECK_FALSE(answer.answered);
    CHECK(answer.sent);
    CHECK((monotonic_ns() - begun) / 1'000'000 < 5'000);
}

TEST_CASE("timers run in order, once, and not when taken back") {
    auto loop = std::move(Loop::create()).value();
    std::string order;
    loop->after(20, [&] { order += 'c'; });
    loop->after(10, [&] {
        order += 'b';
        loop->after(0, [&] { order += 'B'; });
    });
    loop->after(0, [&] { order += 'a'; });
    const Loop::TimerId gone = loop->after(5, [&] { order += 'x'; });
    loop->cancel(gone);
    loop->cancel(gone);
    const std::int64_t end = monotonic_ns() + 10'000'000'000;
    while (order.size() < 4 && monotonic_ns() < end) loop->wait(100);
    CHECK(order == "abBc");
}

TEST_CASE("dates of HTTP") {
    CHECK(parse_http_date("Fri, 24 May 2013 00:00:00 GMT") == 1'369'353'600'000);
    for (const char* bad : {"", "now", "Fri, 24 May 2013 00:00:00", "2013-05-24T00:00:00Z"})
        CHECK(parse_http_date(bad) == -1);
}

}  // namespace hf::s3::testing
