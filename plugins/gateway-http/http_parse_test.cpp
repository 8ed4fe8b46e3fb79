// Every malformed form that servers are known to disagree on, whole and cut at each byte: the outcome must be the same.
#include "plugins/gateway-http/http_parse.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace hf::gateway {

namespace {

// What became of a stream of bytes: the requests taken, and the status that ended it (0: it ended between requests, 1: in
// the middle of one).
struct Outcome {
    std::vector<std::string> requests;
    unsigned status = 1;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::string describe(const Head& head, const Bytes& body) {
    std::string text(head.method_text);
    text += " ";
    text += head.target;
    text += head.http11 ? " 1.1" : " 1.0";
    text += head.keep_alive ? " keep" : " close";
    for (const Field& field : head.fields)
        text += "|" + std::string(field.name) + "=" + std::string(field.value);
    text += "|" + std::string(as_text(body));
    return text;
}

// Plays the connection: keeps what is not consumed, and feeds the pieces that `cuts` make.
class Feeder {
public:
    explicit Feeder(const Settings& settings) : parser_(settings) {}

    // False: refused.
    bool feed(std::string_view piece) {
        kept_ += piece;
        for (;;) {
            std::size_t consumed = 0;
            const Parsed parsed =
                in_body_ ? parser_.read_body(kept_.data(), kept_.size(), consumed, &body_)
                         : parser_.read_head(kept_.data(), kept_.size(), consumed, head_);
            REQUIRE(consumed <= kept_.size());
            if (parsed == Parsed::Refused) {
                outcome.status = parser_.refusal().status;
                CHECK_FALSE(parser_.refusal().text.empty());
                return false;
            }
            if (parsed == Parsed::Done && !in_body_) text_ = describe(head_, {});
            kept_.erase(0, consumed);
            if (parsed == Parsed::NeedMore) break;
            if (!in_body_ && head_.has_body) {
                in_body_ = true;
                continue;
            }
            outcome.requests.push_back(text_ + std::string(as_text(body_)));
            body_.clear();
            in_body_ = false;
            parser_.reset();
        }
        outcome.status = kept_.empty() && !in_body_ ? 0 : 1;
        return true;
    }

    Outcome outcome;

private:
    RequestParser parser_;
    Head head_;
    Bytes body_;
    std::string kept_;
    std::string text_;
    bool in_body_ = false;
};

Outcome run(const Settings& settings, std::string_view bytes, std::size_t cut) {
    Feeder feeder(settings);
    if (feeder.feed(bytes.substr(0, cut)) && cut < bytes.size()) feeder.feed(bytes.substr(cut));
    return feeder.outcome;
}

// The outcome of the whole, after checking that no cut changes it.
Outcome every_cut(std::string_view bytes, const Settings& settings = {}) {
    const Outcome whole = run(settings, bytes, bytes.size());
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
        CAPTURE(cut);
        const Outcome split = run(settings, bytes, cut);
        REQUIRE(split.status == whole.status);
        REQUIRE(split.requests == whole.requests);
    }
    Feeder feeder(settings);
    for (const char c : bytes)
        if (!feeder.feed({&c, 1})) break;
    CHECK(feeder.outcome.status == whole.status);
    CHECK(feeder.outcome.requests == whole.requests);
    return whole;
}

std::string post(std::string_view fields, std::string_view body) {
    return "POST /p HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n" + std::string(body);
}

std::string get(std::string_view fields) {
    return "GET / HTTP/1.1\r\nHost: h\r\n" + std::string(fields) + "\r\n";
}

}  // namespace

TEST_CASE("forms that servers read differently are refused, however they are cut") {
    struct Row {
        std::string name;
        std::string bytes;
        unsigned status;
    };
    const std::string nul(1, '\0');
    const std::vector<Row> rows{
        {"two different Content-Length",
         post("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"),
         400},
        {"two equal Content-Length",
         post("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"),
         400},
        {"Content-Length list", post("Content-Length: 5, 5\r\n", "hello"), 400},
        {"Content-Length +5", post("Content-Length: +5\r\n", "hello"), 400},
        {"Content-Length -1", post("Content-Length: -1\r\n", "hello"), 400},
        {"Content-Length 2^64+5", post("Content-Length: 18446744073709551621\r\n", "hello"), 400},
        {"Content-Length empty", post("Content-Length: \r\n", ""), 400},
        {"Content-Length, then Transfer-Encoding",
         post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"Transfer-Encoding, then Content-Length",
         post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"Transfer-Encoding xchunked",
         post("Transfer-Encoding: xchunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"Transfer-Encoding chunked, identity",
         post("Transfer-Encoding: chunked, identity\r\n", "5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"Transfer-Encoding gzip, chunked",
         post("Transfer-Encoding: gzip, chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"two Transfer-Encoding lines",
         post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
              "5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"Transfer-Encoding empty", post("Transfer-Encoding:\r\n", "5\r\nhello\r\n0\r\n\r\n"), 400},
        {"Transfer-Encoding on HTTP/1.0",
         "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
         400},
        {"space before colon", get("X-A : b\r\n"), 400},
        {"space before a name", get(" X-A: b\r\n").replace(16, 9, ""), 400},
        {"bare LF line ends", "GET / HTTP/1.1\nHost: h\n\n", 400},
        {"bare LF at the end", "GET / HTTP/1.1\r\nHost: h\r\n\n", 400},
        {"NUL in a value", get("X-A: a" + nul + "b\r\n"), 400},
        {"bare CR in a value", get("X-A: a\rb\r\n"), 400},
        {"DEL in a value", get("X-A: a\x7F\r\n"), 400},
        {"bad character in a name", get("X(A: b\r\n"), 400},
        {"empty name", get(": b\r\n"), 400},
        {"line without colon", get("nothing\r\n"), 400},
        {"missing Host", "GET / HTTP/1.1\r\n\r\n", 400},
        {"two Hosts", get("Host: other\r\n"), 400},
        {"Host with a slash", "GET / HTTP/1.1\r\nHost: h/x\r\n\r\n", 400},
        {"Host with user information", "GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", 400},
        {"two Hosts on HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", 400},
        {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505},
        {"HTTP/2.0", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505},
        {"HTTP/0.9", "GET /\r\n\r\n", 400},
        {"space in target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"NUL in target", "GET /a" + nul + "b HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"control character in target", "GET /a\x01 HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"bad method", "G(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"TLS hello", std::string("\x16\x03\x01\x02\x00\x01\x00", 7), 400},
        {"two empty lines first", "\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 400},
        {"unknown expectation", post("Content-Length: 1\r\nExpect: tea\r\n", "x"), 417},
        {"chunk size -1", post("Transfer-Encoding: chunked\r\n", "-1\r\nhello\r\n0\r\n\r\n"), 400},
        {"chunk size +5", post("Transfer-Encoding: chunked\r\n", "+5\r\nhello\r\n0\r\n\r\n"), 400},
        {"chunk size of 17 digits",
         post("Transfer-Encoding: chunked\r\n", "00000000000000005\r\nhello\r\n0\r\n\r\n"),
         0},
        {"chunk size beyond 64 bits",
         post("Transfer-Encoding: chunked\r\n", "10000000000000005\r\nhello\r\n0\r\n\r\n"),
         400},
        {"chunk too short", post("Transfer-Encoding: chunked\r\n", "3\r\nhello\r\n0\r\n\r\n"), 400},
        {"chunk size 0x5",
         post("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"),
         400},
        {"chunk size empty", post("Transfer-Encoding: chunked\r\n", "\r\nhello\r\n0\r\n\r\n"), 400},
        {"chunk lines ended by bare LF",
         post("Transfer-Encoding: chunked\r\n", "5\nhello\n0\n\n"),
         400},
        {"chunk data ended by bare LF",
         post("Transfer-Encoding: chunked\r\n", "5\r\nhello\n0\r\n\r\n"),
         400},
        {"extension with LF",
         post("Transfer-Encoding: chunked\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
         400},
        {"trailer with a framing field",
         post("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n"),
         400},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        CHECK(every_cut(row.bytes).status == row.status);
    }
}

TEST_CASE("a 17 digit chunk size of zeros and a five is five") {
    // Refusing by value, not by digits: the size is what counts, and it is bounded.
    const Outcome outcome = every_cut(
        post("Transfer-Encoding: chunked\r\n", "00000000000000005\r\nhello\r\n0\r\n\r\n"));
    REQUIRE(outcome.requests.size() == 1);
    CHECK(outcome.requests[0] == "POST /p 1.1 keep|host=h|transfer-encoding=chunked|hello");
}

TEST_CASE("well-formed requests arrive whole, however they are cut") {
    struct Row {
        std::string name;
        std::string bytes;
        std::vector<std::string> requests;
    };
    const std::vector<Row> rows{
        {"plain", get("X-Thing: a\r\n"), {"GET / 1.1 keep|host=h|x-thing=a|"}},
        {"short name and value", get("X: a\r\n"), {"GET / 1.1 keep|host=h|x=a|"}},
        {"empty value", get("X:\r\n"), {"GET / 1.1 keep|host=h|x=|"}},
        {"spaces around a value", get("X: \t a b \t\r\n"), {"GET / 1.1 keep|host=h|x=a b|"}},
        {"bytes above ASCII in a value",
         get("X: \xC3\xBC\r\n"),
         {"GET / 1.1 keep|host=h|x=\xC3\xBC|"}},
        {"folded value is one line",
         get("X: a\r\n  b\r\n\tc\r\nY: d\r\n"),
         {"GET / 1.1 keep|host=h|x=a b c|y=d|"}},
        {"close", get("Connection: close\r\n"), {"GET / 1.1 close|host=h|connection=close|"}},
        {"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", {"GET / 1.0 close|"}},
        {"HTTP/1.0 kept alive",
         "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
         {"GET / 1.0 keep|connection=keep-alive|"}},
        {"absolute form",
         "GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n",
         {"GET http://h/x 1.1 keep|host=h|"}},
        {"empty line first", "\r\n" + get(""), {"GET / 1.1 keep|host=h|"}},
        {"empty line between",
         get("") + "\r\n" + get(""),
         {"GET / 1.1 keep|host=h|", "GET / 1.1 keep|host=h|"}},
        {"length",
         post("Content-Length: 5\r\n", "hello"),
         {"POST /p 1.1 keep|host=h|content-length=5|hello"}},
        {"length zero",
         post("Content-Length: 0\r\n", ""),
         {"POST /p 1.1 keep|host=h|content-length=0|"}},
        {"GET with a body",
         get("Content-Length: 2\r\n") + "ab" + get(""),
         {"GET / 1.1 keep|host=h|content-length=2|ab", "GET / 1.1 keep|host=h|"}},
        {"chunks",
         post("Transfer-Encoding: Chunked\r\n", "2\r\nhe\r\n3;a=b;c=\"d\\\"\"\r\nllo\r\n0\r\n\r\n"),
         {"POST /p 1.1 keep|host=h|transfer-encoding=Chunked|hello"}},
        {"chunk data that looks like framing",
         post("Transfer-Encoding: chunked\r\n", "7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n"),
         {"POST /p 1.1 keep|host=h|transfer-encoding=chunked|\r\n0\r\n\r\n"}},
        {"a first chunk that begins with LF",
         post("Transfer-Encoding: chunked\r\n", "3\r\n\n\na\r\n0\r\n\r\n"),
         {"POST /p 1.1 keep|host=h|transfer-encoding=chunked|\n\na"}},
        {"no chunk but the last",
         post("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
         {"POST /p 1.1 keep|host=h|transfer-encoding=chunked|"}},
        {"trailers are not passed on",
         post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n"),
         {"POST /p 1.1 keep|host=h|transfer-encoding=chunked|x"}},
        {"pipelined",
         get("") + post("Content-Length: 3\r\n", "GET") +
             post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n") + get(""),
         {"GET / 1.1 keep|host=h|",
          "POST /p 1.1 keep|host=h|content-length=3|GET",
          "POST /p 1.1 keep|host=h|transfer-encoding=chunked|x",
          "GET / 1.1 keep|host=h|"}},
    };
    for (const Row& row : rows) {
        CAPTURE(row.name);
        const Outcome outcome = every_cut(row.bytes);
        CHECK(outcome.status == 0);
        CHECK(outcome.requests == row.requests);
    }
}

TEST_CASE("limits are kept, named, and independent of cuts") {
    Settings settings;
    settings.header_bytes_max = 300;
    settings.header_count_max = 5;
    settings.target_bytes_max = 100;
    settings.body_bytes_max = 10;
    const auto status = [&](const std::string& bytes) { return every_cut(bytes, settings).status; };
    // "Host: h\r\n" and the empty line are 11 bytes, "X: \r\n" five more.
    CHECK(status(get("X: " + std::string(300 - 16, 'a') + "\r\n")) == 0);
    CHECK(status(get("X: " + std::string(300 - 15, 'a') + "\r\n")) == 431);
    CHECK(status("GET / HTTP/1.1\r\nHost: h\r\n" + std::string(2000, 'a')) == 431);
    CHECK(status(get("A: b\r\nA: b\r\nA: b\r\nA: b\r\n")) == 0);
    CHECK(status(get("A: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n")) == 431);
    CHECK(status("GET /" + std::string(99, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n") == 0);
    CHECK(status("GET /" + std::string(100, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n") == 414);
    CHECK(status("GET /" + std::string(900, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n") == 414);
    CHECK(status(std::string(900, 'G')) == 414);
    CHECK(status(post("Content-Length: 10\r\n", "0123456789")) == 0);
    CHECK(status(post("Content-Length: 11\r\n", "")) == 413);
    CHECK(status(post("Content-Length: 5368709120\r\n", "")) == 413);
    CHECK(status(post("Transfer-Encoding: chunked\r\n", "5\r\n01234\r\n5\r\n56789\r\n0\r\n\r\n")) ==
          0);
    CHECK(status(post("Transfer-Encoding: chunked\r\n",
                      "5\r\n01234\r\n6\r\n56789a\r\n0\r\n\r\n")) == 413);
    CHECK(status(post("Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n")) == 413);
    CHECK(status(post("Transfer-Encoding: chunked\r\n", "1;" + std::string(400, 'a'))) == 431);
    CHECK(status(post("Transfer-Encoding: chunked\r\n", "0\r\nX: " + std::string(400, 'a'))) ==
          431);
    std::string framing;
    for (int i = 0; i < 4; ++i) framing += "1;" + std::string(120, 'a') + "\r\nx\r\n";
    CHECK(status(post("Transfer-Encoding: chunked\r\n", framing)) == 400);
    Head head;
    RequestParser parser(settings);
    std::string bytes = post("Content-Length: 11\r\n", "");
    std::size_t consumed = 0;
    CHECK(parser.read_head(bytes.data(), bytes.size(), consumed, head) == Parsed::Refused);
    CHECK(parser.refusal().text.find("body_bytes_max = 10") != std::string::npos);
}

TEST_CASE("an expectation is seen only where a body follows") {
    const auto expects = [](std::string bytes) {
        const Settings settings;
        RequestParser parser(settings);
        Head head;
        std::size_t consumed = 0;
        REQUIRE(parser.read_head(bytes.data(), bytes.size(), consumed, head) == Parsed::Done);
        return head.expect_continue;
    };
    CHECK(expects(post("Expect: 100-Continue\r\nContent-Length: 5\r\n", "")));
    CHECK_FALSE(expects(post("Expect: 100-continue\r\nContent-Length: 0\r\n", "")));
    CHECK_FALSE(expects("POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"));
}

TEST_CASE("a folded value beyond the parser's room is refused") {
    std::string folds;
    for (int i = 0; i < 60; ++i) folds += "\r\n " + std::string(100, 'a');
    CHECK(run({}, get("X: a" + folds + "\r\n"), 0).status == 431);
}

TEST_CASE("statuses have the standard's phrases") {
    CHECK(status_phrase(200) == "OK");
    CHECK(status_phrase(504) == "Gateway Timeout");
    CHECK(status_phrase(299).empty());
}

TEST_CASE("what a node may send beyond a client is taken back from a client") {
    const Settings settings;
    const auto ends = [&](std::string_view target, std::string_view fields, bool narrow) {
        RequestParser parser(settings, kForNodes);
        Head head;
        std::string bytes = "POST /" + std::string(target) + " HTTP/1.1\r\nHost: h\r\n" +
                            std::string(fields) + "\r\n";
        std::size_t consumed = 0;
        if (parser.read_head(bytes.data(), bytes.size(), consumed, head) == Parsed::Refused)
            return parser.refusal().status;
        if (narrow && parser.narrow(head) == Parsed::Refused) return parser.refusal().status;
        return std::uint16_t{200};
    };
    const auto lines = [](std::size_t count) {
        std::string out;
        for (std::size_t i = 0; i < count; ++i) out += "x: 1\r\n";
        return out;
    };
    const auto length = [](std::size_t bytes) {
        return "Content-Length: " + std::to_string(bytes) + "\r\n";
    };
    // Host counts, too.
    CHECK(ends("", lines(99), true) == 200);
    CHECK(ends("", lines(100), false) == 200);
    CHECK(ends("", lines(100), true) == 431);
    CHECK(ends("", lines(124), false) == 431);
    const std::size_t rest = std::string_view("Host: h\r\nx: \r\n\r\n").size();
    const auto field = [](std::size_t bytes) { return "x: " + std::string(bytes, 'x') + "\r\n"; };
    CHECK(ends("", field(kHeaderBytesMax - rest), true) == 200);
    CHECK(ends("", field(kHeaderBytesMax - rest + 1), false) == 200);
    CHECK(ends("", field(kHeaderBytesMax - rest + 1), true) == 431);
    CHECK(ends("", field(kHeaderBytesMax + kForNodes.header_bytes), false) == 431);
    CHECK(ends(std::string(8191, 'p'), "", true) == 200);
    CHECK(ends(std::string(8192, 'p'), "", false) == 200);
    CHECK(ends(std::string(8192, 'p'), "", true) == 414);
    CHECK(ends("", length(kPayloadBytesMax), true) == 200);
    CHECK(ends("", length(kPayloadBytesMax + 1), false) == 200);
    CHECK(ends("", length(kPayloadBytesMax + 1), true) == 413);
    CHECK(ends("", length(kForNodes.body_bytes_least + 1), false) == 413);
}

}  // namespace hf::gateway
