#include "plugins/gateway-http/http_write.hpp"

#include <doctest/doctest.h>

#include <ctime>
#include <string>
#include <utility>
#include <vector>

namespace hf::gateway {

namespace {

Bytes flat(const std::vector<std::pair<std::string, std::string>>& fields) {
    Bytes bytes;
    FlatWriter writer(bytes);
    for (const auto& [name, value] : fields) {
        writer.field(std::string_view(name));
        writer.field(std::string_view(value));
    }
    return bytes;
}

// The text with the date, which it must have exactly once, taken out.
std::string undated(const Bytes& out) {
    std::string text(as_text(out));
    const std::size_t at = text.find("Date: ");
    REQUIRE(at != std::string::npos);
    std::tm parts{};
    const char* const end =
        ::strptime(text.c_str() + at, "Date: %a, %d %b %Y %H:%M:%S GMT", &parts);
    REQUIRE(end != nullptr);
    CHECK(std::string_view(end).substr(0, 2) == "\r\n");
    CHECK(end - (text.c_str() + at) == 35);
    text.erase(at, 37);
    CHECK(text.find("Date: ") == std::string::npos);
    return text;
}

std::string actor(std::uint16_t status,
                  const std::vector<std::pair<std::string, std::string>>& fields,
                  std::string_view body,
                  const Framing& framing = {}) {
    Bytes out;
    REQUIRE(write_actor(out, framing, status, flat(fields), as_bytes(body)));
    return undated(out);
}

}  // namespace

TEST_CASE("an actor's answer is one well-formed message") {
    CHECK(actor(200, {{"Content-Type", "text/plain"}}, "hi") ==
          "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: holdfast\r\nContent-Length: "
          "2\r\n\r\nhi");
    CHECK(actor(200, {}, "") == "HTTP/1.1 200 OK\r\nServer: holdfast\r\nContent-Length: 0\r\n\r\n");
    CHECK(actor(299, {}, "") == "HTTP/1.1 299 \r\nServer: holdfast\r\nContent-Length: 0\r\n\r\n");
    CHECK(actor(200, {{"server", "mine"}}, "") ==
          "HTTP/1.1 200 OK\r\nserver: mine\r\nContent-Length: 0\r\n\r\n");
}

TEST_CASE("actor_frames_its_own_answer") {
    CHECK(actor(200,
                {{"Content-Length", "99"},
                 {"Transfer-Encoding", "chunked"},
                 {"CONNECTION", "close"},
                 {"Keep-Alive", "1"},
                 {"Upgrade", "h2c"},
                 {"Trailer", "x"},
                 {"X-Holdfast-Peer", "n"},
                 {"x", "y"}},
                "hi") ==
          "HTTP/1.1 200 OK\r\nx: y\r\nServer: holdfast\r\nContent-Length: 2\r\n\r\nhi");
}

TEST_CASE("actor_splits_a_header") {
    const std::vector<std::pair<std::string, std::string>> bad[] = {{{"x", "a\r\nSet-Cookie: b"}},
                                                                    {{"x", "a\nb"}},
                                                                    {{"x", std::string("a\0b", 3)}},
                                                                    {{"x", "\x7F"}},
                                                                    {{"x\r\ny", "a"}},
                                                                    {{"x y", "a"}},
                                                                    {{"x:", "a"}},
                                                                    {{"", "a"}},
                                                                    {{"\xC3\xBC", "a"}}};
    for (const auto& fields : bad) {
        Bytes out{'k'};
        CHECK_FALSE(write_actor(out, {}, 200, flat(fields), {}));
        CHECK(as_text(out) == "k");
    }
    Bytes out;
    Bytes cut = flat({{"x", "abc"}});
    cut.pop_back();
    CHECK_FALSE(write_actor(out, {}, 200, cut, {}));
    CHECK_FALSE(write_actor(out, {}, 200, BytesView(cut).first(5), {}));
    for (const int status : {0, 1, 100, 101, 199, 600, 65535})
        CHECK_FALSE(write_actor(out, {}, static_cast<std::uint16_t>(status), {}, {}));
    CHECK(out.empty());
}

TEST_CASE("answers without a body have none") {
    CHECK(actor(204, {}, "hi") == "HTTP/1.1 204 No Content\r\nServer: holdfast\r\n\r\n");
    CHECK(actor(304, {{"ETag", "x"}}, "hi") ==
          "HTTP/1.1 304 Not Modified\r\nETag: x\r\nServer: holdfast\r\n\r\n");
    CHECK(actor(200, {}, "hi", {.head_only = true}) ==
          "HTTP/1.1 200 OK\r\nServer: holdfast\r\nContent-Length: 2\r\n\r\n");
}

TEST_CASE("a HEAD answer without its body may announce it") {
    const Framing head{.head_only = true};
    CHECK(actor(200, {{"Content-Length", "99"}, {"Content-Length", "98"}}, "", head) ==
          "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nServer: holdfast\r\n\r\n");
    CHECK(actor(200, {{"Content-Length", "9, 9"}}, "", head) ==
          "HTTP/1.1 200 OK\r\nServer: holdfast\r\n\r\n");
    CHECK(actor(200, {{"Content-Length", "99"}}, "hi", head) ==
          "HTTP/1.1 200 OK\r\nServer: holdfast\r\nContent-Length: 2\r\n\r\n");
    CHECK(actor(204, {{"Content-Length", "99"}}, "", head) ==
          "HTTP/1.1 204 No Content\r\nServer: holdfast\r\n\r\n");
}

TEST_CASE("the connection's fate is told") {
    CHECK(actor(200, {}, "", {.keep_alive = false}) ==
          "HTTP/1.1 200 OK\r\nServer: holdfast\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    CHECK(actor(200, {}, "", {.http11 = false}) ==
          "HTTP/1.1 200 OK\r\nServer: holdfast\r\nConnection: keep-alive\r\nContent-Length: "
          "0\r\n\r\n");
}

TEST_CASE("errors are one JSON object, whatever bytes they quote") {
    Bytes out;
    write_local(out,
                {},
                {.status = 503, .reason = "busy", .text = "no \"room\"\n\xFF", .retry_after_s = 2});
    CHECK(undated(out) ==
          "HTTP/1.1 503 Service Unavailable\r\nServer: holdfast\r\nRetry-After: 2\r\n"
          "Content-Type: application/json\r\nContent-Length: 45\r\n\r\n"
          "{\"error\":\"no \\\"room\\\"\\n\xEF\xBF\xBD\",\"reason\":\"busy\"}\n");
    out.clear();
    write_local(out, {}, {.status = 204, .allow = "GET"});
    CHECK(undated(out) == "HTTP/1.1 204 No Content\r\nServer: holdfast\r\nAllow: GET\r\n\r\n");
}

TEST_CASE("a page's content type cannot split the header") {
    Bytes out;
    write_page(out, {}, 200, "a\r\nb", as_bytes("x"));
    CHECK(undated(out) ==
          "HTTP/1.1 200 OK\r\nServer: holdfast\r\nContent-Type: text/plain; charset=utf-8\r\n"
          "Cache-Control: no-store\r\nContent-Length: 1\r\n\r\nx");
}

}  // namespace hf::gateway
