#include "plugins/gateway-http/upgrade.hpp"

#include <doctest/doctest.h>

#include <string>

#include "plugins/gateway-http/event.hpp"
#include "plugins/gateway-http/fields.hpp"
#include "plugins/gateway-http/http_write.hpp"

namespace hf::gateway {

namespace {

// A request's head; its bytes live as long as it does.
struct Asked {
    Settings settings;
    std::string bytes;
    Head head;

    explicit Asked(std::string text) : bytes(std::move(text)) {
        RequestParser parser(settings);
        std::size_t consumed = 0;
        REQUIRE(parser.read_head(bytes.data(), bytes.size(), consumed, head) == Parsed::Done);
    }
};

std::string request(std::string_view line, std::string_view fields) {
    return std::string(line) + "\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}

constexpr std::string_view kUp = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
constexpr std::string_view kKey = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
constexpr std::string_view kThirteen = "Sec-WebSocket-Version: 13\r\n";

Handshake judge(std::string_view fields, std::string_view line = "GET /actor/a/b HTTP/1.1") {
    const Asked asked(request(line, fields));
    std::string_view why;
    const Handshake handshake = read_handshake(asked.head, why);
    CHECK(why.empty() == (handshake == Handshake::None || handshake == Handshake::Good));
    return handshake;
}

std::string all(std::string_view a, std::string_view b = {}, std::string_view c = {}) {
    return std::string(a) + std::string(b) + std::string(c);
}

Bytes flat(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
    Bytes bytes;
    FlatWriter writer(bytes);
    for (const auto& [name, value] : fields) {
        writer.field(name);
        writer.field(value);
    }
    return bytes;
}

}  // namespace

TEST_CASE("what browsers send is a handshake") {
    CHECK(judge(all(kUp, kKey, kThirteen)) == Handshake::Good);
    CHECK(judge("Connection: keep-alive, UPGRADE\r\nUpgrade: h2c, WebSocket\r\n" +
                all(kKey, kThirteen, "Sec-WebSocket-Protocol: a, b\r\nOrigin: http://h\r\n")) ==
          Handshake::Good);
    CHECK(judge(all(kUp, kKey, all(kThirteen, "Content-Length: 0\r\n"))) == Handshake::Good);
}

TEST_CASE("other requests are no handshakes") {
    CHECK(judge("") == Handshake::None);
    CHECK(judge("Connection: Upgrade\r\nUpgrade: h2c\r\n") == Handshake::None);
    CHECK(judge("Connection: Upgrade\r\nUpgrade: websocket2\r\n") == Handshake::None);
    CHECK(judge(all(kKey, kThirteen)) == Handshake::None);
    // HTTP/1.0 knows no upgrade.
    CHECK(judge(all(kUp, kKey, kThirteen), "GET /actor/a/b HTTP/1.0") == Handshake::None);
}

TEST_CASE("handshakes that are not well-formed are refused") {
    const std::string good = all(kUp, kKey, kThirteen);
    CHECK(judge(good, "POST /actor/a/b HTTP/1.1") == Handshake::Malformed);
    CHECK(judge(all("Upgrade: websocket\r\n", kKey, kThirteen)) == Handshake::Malformed);
    CHECK(judge(all("Connection: close\r\nUpgrade: websocket\r\n", kKey, kThirteen)) ==
          Handshake::Malformed);
    CHECK(judge(good + "Content-Length: 5\r\n") == Handshake::Malformed);
    CHECK(judge(good + "Transfer-Encoding: chunked\r\n") == Handshake::Malformed);
    CHECK(judge(all(kUp, kThirteen)) == Handshake::Malformed);
    CHECK(judge(good + std::string(kKey)) == Handshake::Malformed);
    for (const char* key : {"",
                            "dGhlIHNhbXBsZSBub25jZQ=",
                            "dGhlIHNhbXBsZSBub25jZQ===",
                            "dGhlIHNhbXBsZSBub25jZR==",  // not the spelling of any 16 bytes
                            "dGhlIHNhbXBsZSBub25jZSEh",  // 18 bytes
                            "dGhlIHNhbXBsZSBub25jZ!==",
                            "dGhlIHNhbXBsZSBub25jZQ== x"}) {
        CAPTURE(key);
        CHECK(judge(all(kUp, kThirteen) + "Sec-WebSocket-Key: " + key + "\r\n") ==
              Handshake::Malformed);
    }
    CHECK(judge(good + "Sec-WebSocket-Protocol: a, b c\r\n") == Handshake::Malformed);
}

TEST_CASE("other versions are told which one is spoken") {
    CHECK(judge(all(kUp, kKey)) == Handshake::BadVersion);
    for (const char* version : {"12", "8", "", "130", "13, 8", "x"})
        CHECK(judge(all(kUp, kKey) + "Sec-WebSocket-Version: " + version + "\r\n") ==
              Handshake::BadVersion);
    CHECK(judge(all(kUp, kKey, all(kThirteen, kThirteen))) == Handshake::BadVersion);
    Bytes out;
    write_local(out, {}, {.status = 426, .version = kWebSocketVersion});
    const std::string text(as_text(out));
    CHECK(text.find("HTTP/1.1 426 ") == 0);
    CHECK(text.find("\r\nSec-WebSocket-Version: 13\r\n") != std::string::npos);
    CHECK(text.find("\r\nConnection: upgrade\r\n") != std::string::npos);
}

TEST_CASE("the answer proves that the handshake was read") {
    const Asked asked(request("GET /actor/a/b HTTP/1.1",
                              all(kUp, kKey, kThirteen) + "Sec-WebSocket-Protocol: one\r\n" +
                                  "Sec-WebSocket-Protocol: two , three\r\n"));
    const Offer offer = read_offer(asked.head);
    // The example of RFC 6455, 1.3.
    CHECK(offer.accept == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    CHECK(offer.protocols == std::vector<std::string>{"one", "two", "three"});

    Bytes out;
    REQUIRE(write_upgraded(out,
                           offer,
                           flat({{"X-Mine", "yes"},
                                 {"Sec-WebSocket-Protocol", "two"},
                                 {"SEC-WEBSOCKET-ACCEPT", "forged"},
                                 {"Sec-WebSocket-Extensions", "permessage-deflate"},
                                 {"Connection", "close"},
                                 {"Upgrade", "h2c"},
                                 {"Content-Length", "5"},
                                 {"Transfer-Encoding", "chunked"},
                                 {"X-Holdfast-Peer", "me"}})));
    std::string text(as_text(out));
    CHECK(
        text.starts_with("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                         "Connection: Upgrade\r\n"
                         "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
                         "X-Mine: yes\r\nSec-WebSocket-Protocol: two\r\n"));
    CHECK(text.ends_with("\r\n\r\n"));
    for (const char* left_out : {"forged", "deflate", "close", "h2c", "Content", "chunked", "Peer"})
        CHECK(text.find(left_out) == std::string::npos);
}

TEST_CASE("actor_chooses_what_was_not_offered") {
    const Offer offer{"accept", {"one", "two"}};
    Bytes out{'x'};
    CHECK_FALSE(write_upgraded(out, offer, flat({{"Sec-WebSocket-Protocol", "three"}})));
    CHECK_FALSE(write_upgraded(out, offer, flat({{"Sec-WebSocket-Protocol", "one, two"}})));
    CHECK_FALSE(write_upgraded(
        out, offer, flat({{"Sec-WebSocket-Protocol", "one"}, {"sec-websocket-protocol", "two"}})));
    CHECK_FALSE(write_upgraded(out, offer, flat({{"X", "a\r\nY: b"}})));
    CHECK_FALSE(write_upgraded(out, offer, flat({{"X Y", "a"}})));
    CHECK(out.size() == 1);
    // It need not choose any.
    CHECK(write_upgraded(out, offer, {}));
}

TEST_CASE("respond-async is read in any case and among others, and only where it is a preference") {
    const auto prefers = [](const std::string& fields) {
        const Asked asked(request("GET / HTTP/1.1", fields));
        return has_preference(asked.head, "respond-async");
    };
    CHECK(prefers("Prefer: respond-async\r\n"));
    CHECK(prefers("PREFER:   Respond-Async  \r\n"));
    CHECK(prefers("Prefer: wait=10, RESPOND-ASYNC;x=1\r\n"));
    CHECK(prefers("Prefer: return=minimal\r\nPrefer: a=\"x, y\\\" z\" , respond-async ; p\r\n"));
    CHECK(prefers("Prefer: respond-async=\"\"\r\n"));
    CHECK_FALSE(prefers(""));
    CHECK_FALSE(prefers("Prefer: respond-async=no\r\n"));
    CHECK_FALSE(prefers("Prefer: respond-asynchronously\r\n"));
    CHECK_FALSE(prefers("Prefer: x=\"a, respond-async, b\"\r\n"));
    CHECK_FALSE(prefers("Prefer: wait=10; respond-async\r\n"));
    CHECK_FALSE(prefers("X-Prefer: respond-async\r\n"));
}

TEST_CASE("an accepted asynchronous request says that it was one") {
    const auto answer = [](std::uint16_t status, bool durable, const Bytes& headers) {
        Bytes out;
        REQUIRE(write_actor(out, {.durable = durable}, status, headers, {}));
        return std::string(as_text(out));
    };
    const std::string line = "\r\nPreference-Applied: respond-async\r\n";
    CHECK(answer(202, true, {}).find(line) != std::string::npos);
    CHECK(answer(202, false, {}).find("Preference") == std::string::npos);
    CHECK(answer(200, true, {}).find("Preference") == std::string::npos);
    const std::string own = answer(202, true, flat({{"preference-applied", "respond-async"}}));
    CHECK(own.find("Preference-Applied") == std::string::npos);
}

}  // namespace hf::gateway
