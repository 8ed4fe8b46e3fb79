#include "plugins/gateway-http/event.hpp"

#include <doctest/doctest.h>

#include <string>

namespace hf::gateway {

namespace {

// The event of a request, read back: "method url|name=value...|body".
std::string event_of(std::string bytes, std::string_view body) {
    const Settings settings;
    RequestParser parser(settings);
    Head head;
    std::size_t consumed = 0;
    REQUIRE(parser.read_head(bytes.data(), bytes.size(), consumed, head) == Parsed::Done);
    TargetParts parts;
    REQUIRE(split_target(head.target, parts));
    Route route;
    find_route(head.method, parts, "default", route);
    REQUIRE(route.kind == RouteKind::Actor);
    Bytes event{1, 2, 3};
    begin_event(event, head, parts, route);
    const std::size_t head_bytes = event.size();
    const BytesView more = as_bytes(body);
    event.insert(event.end(), more.begin(), more.end());
    end_event(event, head_bytes);

    FlatReader reader(event);
    std::string_view method;
    std::string_view url;
    std::uint32_t count = 0;
    REQUIRE(reader.field(method));
    REQUIRE(reader.field(url));
    REQUIRE(reader.u32(count));
    std::string text = std::string(method) + " " + std::string(url);
    for (std::uint32_t i = 0; i < count; ++i) {
        std::string_view name;
        std::string_view value;
        REQUIRE(reader.field(name));
        REQUIRE(reader.field(value));
        text += "|" + std::string(name) + "=" + std::string(value);
    }
    std::string_view read_body;
    REQUIRE(reader.field(read_body));
    CHECK(reader.done());
    return text + "|" + std::string(read_body);
}

std::string request(std::string_view fields, std::string_view target = "/actor/c/n/a?b=c") {
    return "POST " + std::string(target) + " HTTP/1.1\r\nHost: h\r\n" + std::string(fields) +
           "\r\n";
}

}  // namespace

TEST_CASE("an event carries method, url, headers in lower case and body") {
    CHECK(event_of(request("X-Thing: A\r\nContent-Length: 2\r\n"), "hi") ==
          "POST /a?b=c|host=h|x-thing=A|content-length=2|hi");
    CHECK(event_of(request("", "/actor/c/n"), "") == "POST /|host=h|");
    CHECK(event_of(request("", "/actor/c/n?q"), "") == "POST /?q|host=h|");
}

TEST_CASE("fields of the connection do not reach the actor") {
    CHECK(event_of(request("Connection: keep-alive, X-Mine , host,content-length\r\nX-Mine: "
                           "1\r\nX-Other: 2\r\n"
                           "Keep-Alive: 5\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\n"
                           "Proxy-Connection: close\r\nProxy-Authorization: "
                           "x\r\nTransfer-Encoding: chunked\r\n"
                           "Expect: 100-continue\r\n"),
                   "") == "POST /a?b=c|host=h|x-other=2|");
}

TEST_CASE("client_forges_the_fields_of_peers") {
    CHECK(
        event_of(
            request(
                "X-Wasmkeep-Forwarded: n1\r\nx-wasmkeep-alarm-handoff: 1\r\nX-Holdfast-Peer: n1\r\n"
                "X-HOLDFAST-: 1\r\nX-Holdfastly: 1\r\nX-Wasmkeep-Forwarded-For: 1\r\n"),
            "") == "POST /a?b=c|host=h|x-holdfastly=1|");
}

TEST_CASE("an absolute target decides the host") {
    CHECK(event_of(request("", "http://other:81/actor/c/n/x"), "") == "POST /x|host=other:81|");
}

}  // namespace hf::gateway
