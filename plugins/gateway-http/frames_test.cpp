// Frames of a client, whole and cut at each byte: the outcome must be the same.
#include "plugins/gateway-http/frames.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "plugins/gateway-http/test_wsclient.hpp"

namespace hf::gateway {

namespace {

// What a stream of bytes was: "t..." and "b..." messages, "c<code> <reason>" a close, "!<code>" a broken one.
using Heard = std::vector<std::string>;

void read_all(FrameReader& reader, std::string_view piece, Heard& heard) {
    for (;;) {
        std::size_t consumed = 0;
        const FrameReader::Got got = reader.read(piece, consumed);
        piece.remove_prefix(consumed);
        if (got == FrameReader::Got::NeedMore) {
            CHECK(piece.empty());
            return;
        }
        if (got == FrameReader::Got::Message)
            heard.push_back((reader.is_binary() ? 'b' : 't') +
                            std::string(as_text(reader.message())));
        else if (got == FrameReader::Got::Close)
            heard.push_back("c" + std::to_string(reader.code()) + " " + reader.reason());
        else
            heard.push_back("!" + std::to_string(reader.code()));
    }
}

Heard hear(const std::string& bytes, std::size_t most = 1000) {
    Heard whole;
    FrameReader at_once(most);
    read_all(at_once, bytes, whole);
    Heard cut;
    FrameReader by_bytes(most);
    for (const char byte : bytes) read_all(by_bytes, {&byte, 1}, cut);
    CHECK(whole == cut);
    if (bytes.size() < 200)
        for (std::size_t at = 1; at < bytes.size(); ++at) {
            CAPTURE(at);
            Heard halves;
            FrameReader reader(most);
            read_all(reader, std::string_view(bytes).substr(0, at), halves);
            read_all(reader, std::string_view(bytes).substr(at), halves);
            CHECK(halves == whole);
        }
    return whole;
}

const FrameShape kMore{.fin = false};

}  // namespace

TEST_CASE("messages of every size of length") {
    CHECK(hear(frame(kText, "hello")) == Heard{"thello"});
    CHECK(hear(frame(kBinary, std::string("\0\xFF", 2))) == Heard{std::string("b\0\xFF", 3)});
    CHECK(hear(frame(kText, "")) == Heard{"t"});
    for (const std::size_t size : {125, 126, 127, 4096, 65535, 65536, 70'000}) {
        CAPTURE(size);
        CHECK(hear(frame(kBinary, std::string(size, 'x')), 70'000) ==
              Heard{"b" + std::string(size, 'x')});
    }
    std::string many;
    Heard expected;
    for (int i = 0; i < 50; ++i) {
        many += frame(i % 2 == 0 ? kText : kBinary, std::to_string(i));
        expected.push_back((i % 2 == 0 ? "t" : "b") + std::to_string(i));
    }
    CHECK(hear(many) == expected);
}

TEST_CASE("a message in pieces is put together, control frames between them are not part of it") {
    CHECK(hear(frame(kText, "one ", kMore) + frame(0, "two ", kMore) + frame(0, "three")) ==
          Heard{"tone two three"});
    // A character may be cut anywhere.
    CHECK(hear(frame(kText, "\xE2\x82", kMore) + frame(0, "\xAC")) == Heard{"t\xE2\x82\xAC"});
    CHECK(hear(frame(kText, "a", kMore) + frame(kPing, "p") + frame(kPong, "q") + frame(0, "b")) ==
          Heard{"tab"});
    CHECK(hear(frame(kText, "", kMore) + frame(0, "", kMore) + frame(0, "")) == Heard{"t"});
}

TEST_CASE("pieces out of turn break the protocol") {
    CHECK(hear(frame(0, "x")) == Heard{"!1002"});
    CHECK(hear(frame(kText, "x", kMore) + frame(kText, "y")) == Heard{"!1002"});
    CHECK(hear(frame(kText, "x") + frame(0, "y")) == Heard{"tx", "!1002"});
    CHECK(hear(frame(kPing, "x", kMore)) == Heard{"!1002"});
}

TEST_CASE("frames that a client must not send") {
    CHECK(hear(frame(kText, "x", {.masked = false})) == Heard{"!1002"});
    CHECK(hear(frame(kText, "", {.masked = false})) == Heard{"!1002"});
    for (const unsigned rsv : {1U, 2U, 4U, 7U})
        CHECK(hear(frame(kText, "x", {.rsv = rsv})) == Heard{"!1002"});
    for (const unsigned opcode : {3U, 4U, 7U, 11U, 15U}) {
        CAPTURE(opcode);
        CHECK(hear(frame(opcode, "x")) == Heard{"!1002"});
    }
    CHECK(hear(frame(kPing, std::string(126, 'x'))) == Heard{"!1002"});
    // Lengths that are not the shortest spelling, or no length at all.
    CHECK(hear(frame(kText, "x", {.length_bytes = 2})) == Heard{"!1002"});
    CHECK(hear(frame(kText, "x", {.length_bytes = 8})) == Heard{"!1002"});
    CHECK(hear(frame(kBinary, "x", {.says_bytes = std::uint64_t{1} << 63U})) == Heard{"!1002"});
    CHECK(hear(frame(kBinary, "x", {.says_bytes = ~std::uint64_t{0}})) == Heard{"!1002"});
    // What follows is not looked at.
    CHECK(hear(frame(kText, "x", {.masked = false}) + frame(kText, "y")) == Heard{"!1002"});
}

TEST_CASE("messages beyond their bound are refused when they say how long they are") {
    CHECK(hear(frame(kBinary, std::string(1000, 'x'))) == Heard{"b" + std::string(1000, 'x')});
    CHECK(hear(frame(kBinary, std::string(1001, 'x'))) == Heard{"!1009"});
    CHECK(hear(frame(kBinary, "x", {.says_bytes = (std::uint64_t{1} << 63U) - 1})) ==
          Heard{"!1009"});
    CHECK(hear(frame(kBinary, std::string(600, 'x'), kMore) + frame(0, std::string(401, 'x'))) ==
          Heard{"!1009"});
    std::string endless = frame(kText, "x", kMore);
    for (int i = 0; i < 1200; ++i) endless += frame(0, "x", kMore);
    CHECK(hear(endless) == Heard{"!1009"});
    std::string empty = frame(kText, "", kMore);
    for (int i = 0; i < 1200; ++i) empty += frame(0, "", kMore);
    CHECK(hear(empty) == Heard{"!1008"});
}

TEST_CASE("text is UTF-8, binary is anything") {
    for (const char* bad : {"\x80",
                            "\xC0\xAF",  // not the shortest spelling
                            "\xE0\x80\xAF",
                            "\xED\xA0\x80",      // half of a pair of UTF-16
                            "\xF4\x90\x80\x80",  // beyond the last character
                            "\xF8\x88\x80\x80\x80",
                            "\xE2\x82",  // cut
                            "\xFF",
                            "plain and then \xC3("}) {
        CAPTURE(bad);
        CHECK(hear(frame(kText, bad)) == Heard{"!1007"});
        CHECK(hear(frame(kText, std::string(40, 'a') + bad)) == Heard{"!1007"});
        CHECK(hear(frame(kText, bad + std::string(40, 'a'))) == Heard{"!1007"});
        CHECK(hear(frame(kBinary, bad)) == Heard{"b" + std::string(bad)});
    }
    const std::string good = "\xCE\xBA\xE2\x82\xAC\xF0\x9F\x90\x99\xEF\xBF\xBF\xF4\x8F\xBF\xBF";
    CHECK(hear(frame(kText, good)) == Heard{"t" + good});
    CHECK(is_utf8(std::string("a\0b", 3)));
    // Every place of a bad byte, for each length around the words it is read by.
    for (std::size_t size = 1; size < 40; ++size)
        for (std::size_t at = 0; at < size; ++at) {
            std::string text(size, 'a');
            CHECK(is_utf8(text));
            text[at] = '\xE9';
            CHECK_FALSE(is_utf8(text));
        }
}

TEST_CASE("closes") {
    CHECK(hear(frame(kClose, "")) == Heard{"c1005 "});
    CHECK(hear(frame(kClose, closing(1000))) == Heard{"c1000 "});
    CHECK(hear(frame(kClose, closing(4999, "bye"))) == Heard{"c4999 bye"});
    CHECK(hear(frame(kText, "x", kMore) + frame(kClose, closing(1001))) == Heard{"c1001 "});
    CHECK(hear(frame(kClose, closing(1000)) + frame(kText, "late")) == Heard{"c1000 "});
    CHECK(hear(frame(kClose, "x")) == Heard{"!1002"});
    for (const unsigned code :
         {0U, 999U, 1004U, 1005U, 1006U, 1015U, 1016U, 2999U, 5000U, 65535U}) {
        CAPTURE(code);
        CHECK(hear(frame(kClose, closing(code))) == Heard{"!1002"});
    }
    CHECK(hear(frame(kClose, closing(1000, "\xC3("))) == Heard{"!1007"});
    CHECK(hear(frame(kClose, closing(1000, std::string(123, 'x')))) ==
          Heard{"c1000 " + std::string(123, 'x')});
}

TEST_CASE("only the last ping needs an answer, only our own pong is one") {
    FrameReader reader(1000);
    Heard heard;
    std::string payload;
    CHECK_FALSE(reader.take_ping(payload));
    read_all(reader, frame(kPing, "one") + frame(kPing, "two"), heard);
    CHECK(reader.take_ping(payload));
    CHECK(payload == "two");
    CHECK_FALSE(reader.take_ping(payload));
    read_all(reader, frame(kPong, ""), heard);
    CHECK_FALSE(reader.take_pong());
    reader.expect_pong("ours");
    read_all(reader, frame(kPong, "other"), heard);
    CHECK_FALSE(reader.take_pong());
    read_all(reader, frame(kPong, "ours") + frame(kPong, "other"), heard);
    CHECK(reader.take_pong());
    read_all(reader, frame(kPong, "ours"), heard);
    CHECK_FALSE(reader.take_pong());
    CHECK(heard.empty());
}

TEST_CASE("what is behind a message waits until it is asked for") {
    FrameReader reader(1000);
    const std::string bytes = frame(kText, "one") + frame(kPing, "p") + frame(kText, "two");
    std::size_t consumed = 0;
    CHECK(reader.read(bytes, consumed) == FrameReader::Got::Message);
    CHECK(as_text(reader.message()) == "one");
    std::string payload;
    CHECK_FALSE(reader.take_ping(payload));
    CHECK(reader.read(std::string_view(bytes).substr(consumed), consumed) ==
          FrameReader::Got::Message);
    CHECK(as_text(reader.message()) == "two");
    CHECK(reader.take_ping(payload));
    CHECK(reader.read({}, consumed) == FrameReader::Got::NeedMore);
    CHECK_FALSE(reader.is_in_message());
    CHECK(reader.read(frame(kText, "half", kMore), consumed) == FrameReader::Got::NeedMore);
    CHECK(reader.is_in_message());
    CHECK(reader.held_bytes() == 4);
}

TEST_CASE("frames of the server") {
    Bytes out;
    write_message(out, false, as_bytes("hi"));
    write_message(out, true, {});
    write_close(out, 1012, "bye");
    write_close(out, kCloseNoCode, "");
    write_ping(out, "p");
    write_pong(out, "");
    CHECK(as_text(out) == std::string("\x81\x02hi\x82\x00\x88\x05\x03\xF4"
                                      "bye\x88\x00\x89\x01p\x8A\x00",
                                      20));
    out.clear();
    write_message(out, true, as_bytes(std::string(126, 'x')));
    CHECK(as_text(out).substr(0, 4) == std::string("\x82\x7E\x00\x7E", 4));
    out.clear();
    write_message(out, true, as_bytes(std::string(65536, 'x')));
    CHECK(as_text(out).substr(0, 10) == std::string("\x82\x7F\0\0\0\0\0\x01\0\0", 10));
    CHECK(out.size() == 65546);
}

TEST_CASE("a close's reason is cut between characters") {
    CHECK(close_reason_of("short") == "short");
    CHECK(close_reason_of(std::string(200, 'x')).size() == 123);
    std::string euros;
    for (int i = 0; i < 60; ++i) euros += "\xE2\x82\xAC";
    CHECK(close_reason_of(euros).size() == 123);
    CHECK(close_reason_of("a" + euros).size() == 121);
    CHECK(close_reason_of("\xFF").empty());
}

}  // namespace hf::gateway
