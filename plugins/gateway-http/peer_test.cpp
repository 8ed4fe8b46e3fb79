// What nodes say to each other, without a wire: the text that is signed, the door, the request that a call becomes, and answers.
#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "abi/base/limits.hpp"
#include "plugins/gateway-http/answers.hpp"
#include "plugins/gateway-http/once_table.hpp"
#include "plugins/gateway-http/peer_answer.hpp"
#include "plugins/gateway-http/peer_door.hpp"
#include "plugins/gateway-http/peer_request.hpp"
#include "plugins/gateway-http/peer_text.hpp"

namespace hf::gateway {

namespace {

constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";
constexpr std::string_view kHi = "8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4";
constexpr std::int64_t kNow = 1'700'000'000'000;

PeerFacts facts() {
    PeerFacts out;
    out.origin.node = "a";
    out.target = "b";
    out.tenant = "default";
    out.app = "shop";
    out.time_ms = kNow;
    out.once = "00112233445566778899aabbccddeeff";
    out.deadline_ms = 2500;
    return out;
}

// A call as it comes, for the door. `bend` changes what was signed.
struct Sent {
    std::string method = "POST";
    std::string target = "/actor/counter/alice/a?b=c";
    PeerFields others{{"host", "h"}, {"x", "1"}};
    std::string body = "hi";
    PeerFields fields;  // of nodes, the signature last
    std::string secret{kSecret};

    void sign(PeerFacts of) {
        of.fields_sha256 = fields_digest(others);
        fields = peer_fields(of);
        Sha256 digest;
        digest.add(as_bytes(body));
        fields.emplace_back(
            kPeerSignature,
            signature_of(secret, canonical_text(method, target, fields, digest.hex_digest())));
    }
    std::string& field(std::string_view name) {
        for (auto& [known, value] : fields)
            if (known == std::string(kPeerPrefix) + std::string(name)) return value;
        return fields.emplace_back(std::string(kPeerPrefix) + std::string(name), "").second;
    }
};

PeerDoor door(std::int64_t started_ms = 0) {
    return PeerDoor({std::string(kSecret), "b", "default", "shop", started_ms});
}

std::string refused(PeerDoor& at,
                    const Sent& sent,
                    std::int64_t unix_ms = kNow,
                    std::int64_t now = 0) {
    Head head;
    head.method_text = sent.method;
    head.target = sent.target;
    for (const auto& [name, value] : sent.others) head.fields.push_back({name, value});
    for (const auto& [name, value] : sent.fields) head.fields.push_back({name, value});
    REQUIRE(PeerClaim::is_made_by(head));
    PeerClaim claim(head);
    claim.add_body(as_bytes(sent.body).first(1));
    claim.add_body(as_bytes(sent.body).subspan(1));
    return at.check(claim, unix_ms, now).refused;
}

bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the text that is signed, and its signature") {
    const PeerFields fields = peer_fields(facts());
    const std::string text = canonical_text("POST", "/actor/counter/alice/a?b=c", fields, kHi);
    CHECK(text ==
          "v1\nPOST\n/actor/counter/alice/a?b=c\ndefault\nshop\n"
          "x-wasmkeep-app:shop\nx-wasmkeep-ask:request\nx-wasmkeep-deadline-ms:2500\n"
          "x-wasmkeep-forwarded:1\nx-wasmkeep-node:a\n"
          "x-wasmkeep-once:00112233445566778899aabbccddeeff\nx-wasmkeep-target:b\n"
          "x-wasmkeep-tenant:default\nx-wasmkeep-time:1700000000000\n" +
              std::string(kHi));
    const std::string right = "v1=296fdc430091b192b810aecc073aa1470a56b6303b108e556e5a9edd1f87b67c";
    CHECK(signature_of(kSecret, text) == right);
    CHECK(is_signature(right, kSecret, text));
    for (const std::string& wrong :
         {std::string(), right.substr(0, 66), right + "0", "v2" + right.substr(2)})
        CHECK_FALSE(is_signature(wrong, kSecret, text));
    // The signature and what is not between nodes have no part in it.
    PeerFields more = fields;
    more.emplace_back("x-other", "1");
    more.emplace_back(kPeerSignature, right);
    CHECK(canonical_text("POST", "/actor/counter/alice/a?b=c", more, kHi) == text);
    CHECK(fields_digest(
              {{"x", "1"}, {"host", "h"}, {"x", "0"}, {"content-length", "2"}, {"te", "x"}}) ==
          "fa554b8e373f788585cb375a71ccc238ec2b144fc50dc7fa9d255d051f73e4f1");
    CHECK(Sha256().hex_digest() ==
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_CASE("what a call says of itself is read back") {
    PeerFacts said = facts();
    said.origin.ask = abi::PeerAsk::Message;
    said.origin.source = "actor/default/c/%20 \x01";
    said.origin.n = ~std::uint64_t{0};
    said.origin.chain = {"actor/default/c/a", "actor/default/c/b"};
    said.origin.http = said.origin.last = true;
    PeerFacts read;
    CHECK(read_peer_fields(peer_fields(said), read) == "");
    CHECK(read.origin.node == "a");
    CHECK(read.origin.ask == abi::PeerAsk::Message);
    CHECK(read.origin.source == said.origin.source);
    CHECK(read.origin.n == said.origin.n);
    CHECK(read.origin.chain == said.origin.chain);
    CHECK((read.origin.http && read.origin.last));
    CHECK(read.target == "b");
    CHECK(read.time_ms == kNow);
    CHECK(read.deadline_ms == 2500);

    Origin alarm;
    alarm.due_ms = -5;
    alarm.nonce = 7;
    const Bytes body = alarm_body(alarm, as_bytes("x"));
    Origin again;
    REQUIRE(read_alarm(body, again));
    CHECK(again.due_ms == -5);
    CHECK(again.nonce == 7);
    CHECK_FALSE(read_alarm(BytesView(body).first(15), again));
    for (const std::string text : {"", " ", "a b", "a%b", "\n\x7f\xff", " a ", "%41"}) {
        CHECK(from_field(to_field(text)) == text);
        for (const char c : to_field(text)) CHECK((c >= ' ' && c < 0x7f));
    }
}

TEST_CASE("fields_of_a_call_are_not_what_they_must_be") {
    const auto broken = [](const std::function<void(PeerFacts&)>& change,
                           std::string_view name = {},
                           std::string_view value = {}) {
        PeerFacts of = facts();
        change(of);
        PeerFields fields = peer_fields(of);
        for (auto& [known, is] : fields)
            if (!name.empty() && known == std::string(kPeerPrefix) + std::string(name)) is = value;
        PeerFacts read;
        return std::string(read_peer_fields(fields, read));
    };
    const auto same = [](PeerFacts&) {};
    CHECK(broken(same).empty());
    CHECK(says(broken(same, "ask", "reply"), "x-wasmkeep-ask"));
    CHECK(says(broken(same, "ask", "call"), "x-wasmkeep-forwarded"));
    CHECK(says(broken(same, "ask", "alarm"), "x-wasmkeep-forwarded"));
    CHECK(says(broken(same, "node", ""), "x-wasmkeep-node"));
    for (const char* value : {"", "-1", "1x", "99999999999999999999"})
        CHECK(says(broken(same, "time", value), "x-wasmkeep-time"));
    for (const char* value : {"", "0", "00112233445566778899AABBCCDDEEFF"})
        CHECK(says(broken(same, "once", value), "x-wasmkeep-once"));
    CHECK(says(broken(same, "deadline-ms", "soon"), "x-wasmkeep-deadline-ms"));
    CHECK(says(broken([](PeerFacts& of) { of.origin.ask = abi::PeerAsk::Settled; }),
               "x-wasmkeep-source"));
    CHECK(says(broken([](PeerFacts& of) { of.origin.chain.assign(17, "u"); }), "x-wasmkeep-chain"));
    CHECK(broken([](PeerFacts& of) { of.origin.chain.assign(16, "u"); }).empty());
}

TEST_CASE("the door lets a call in that is signed, meant, fresh and new") {
    PeerDoor at = door();
    Sent good;
    good.sign(facts());
    CHECK(refused(at, good) == "");
    CHECK(says(refused(at, good), "used before"));

    Sent other;
    PeerFacts of = facts();
    of.once.back() = '0';
    other.secret = "0123456789abcdef0123456789abcdeF";
    other.sign(of);
    CHECK(says(refused(at, other), "signature"));
    PeerDoor closed({"", "b", "default", "shop", 0});
    CHECK(says(refused(closed, good), "takes no calls from others"));

    const auto told = [&](const std::function<void(PeerFacts&)>& change) {
        Sent sent;
        PeerFacts changed = of;
        change(changed);
        sent.sign(changed);
        return refused(at, sent);
    };
    CHECK(says(told([](PeerFacts& f) { f.target = "c"; }), "this is node b, not c"));
    CHECK(says(told([](PeerFacts& f) { f.tenant = "x"; }), "serves tenant default and app shop"));
    CHECK(says(told([](PeerFacts& f) { f.app = "x"; }), "serves tenant default and app shop"));
    CHECK(says(told([](PeerFacts& f) { f.time_ms -= 30'001; }), "30 s behind"));
    CHECK(says(told([](PeerFacts& f) { f.time_ms += 30'001; }), "30 s ahead"));
    CHECK(says(told([](PeerFacts& f) { f.origin.node = ""; }), "x-wasmkeep-node"));
    // None of them was used up by it.
    CHECK(told([](PeerFacts& f) { f.time_ms += 30'000; }) == "");
    Sent get;
    get.method = "GET";
    PeerFacts call = facts();
    call.origin.ask = abi::PeerAsk::Call;
    call.once.back() = '1';
    get.sign(call);
    CHECK(says(refused(at, get), "POST"));
}

TEST_CASE("whatever_is_changed_on_the_way_is_seen") {
    PeerDoor at = door();
    const auto bent = [&](const std::function<void(Sent&)>& bend) {
        Sent sent;
        sent.sign(facts());
        bend(sent);
        return refused(at, sent);
    };
    CHECK(says(bent([](Sent& s) { s.body = "ho"; }), "signature"));
    CHECK(says(bent([](Sent& s) { s.target += "d"; }), "signature"));
    CHECK(says(bent([](Sent& s) { s.method = "PUT"; }), "signature"));
    for (const char* name :
         {"node", "target", "tenant", "app", "ask", "time", "once", "deadline-ms", "forwarded"})
        CHECK(says(bent([&](Sent& s) { s.field(name) += "1"; }), "signature"));
    CHECK(says(bent([](Sent& s) { s.field("more") = "1"; }), "signature"));
    CHECK(says(bent([](Sent& s) { s.fields.push_back(s.fields.front()); }), "signature"));
    CHECK(says(bent([](Sent& s) { s.fields.erase(s.fields.begin()); }), "signature"));
    CHECK(says(bent([](Sent& s) { s.others[1].second = "2"; }), "header field"));
    CHECK(says(bent([](Sent& s) { s.others.emplace_back("authorization", "x"); }), "header field"));
    CHECK(bent([](Sent&) {}) == "");
}

TEST_CASE("what was signed before this process began may have been used") {
    PeerDoor at = door(kNow);
    Sent sent;
    PeerFacts of = facts();
    of.time_ms = kNow - 1;
    sent.sign(of);
    CHECK(says(refused(at, sent), "before this gateway began"));
    of.time_ms = kNow;
    sent.sign(of);
    CHECK(refused(at, sent) == "");
}

TEST_CASE("whom a socket is for") {
    const PeerDoor at = door();
    CHECK(at.wrong_door(DoorFor::Everybody, false).empty());
    CHECK(at.wrong_door(DoorFor::Everybody, true).empty());
    CHECK(at.wrong_door(DoorFor::Clients, false).empty());
    CHECK_FALSE(at.wrong_door(DoorFor::Clients, true).empty());
    CHECK_FALSE(at.wrong_door(DoorFor::Nodes, false).empty());
    CHECK(at.wrong_door(DoorFor::Nodes, true).empty());
    CHECK_FALSE(PeerDoor({}).wrong_door(DoorFor::Everybody, true).empty());
    CHECK(PeerDoor({}).wrong_door(DoorFor::Everybody, false).empty());
}

TEST_CASE("a number is known for a minute, and so many are") {
    OnceTable table;
    constexpr std::int64_t kMinute = OnceTable::kKeepNs;
    CHECK(table.use("a", 0) == OnceTable::Seen::First);
    CHECK(table.use("a", kMinute - 1) == OnceTable::Seen::Before);
    CHECK(table.use("a", kMinute) == OnceTable::Seen::First);
    CHECK(table.size() == 1);
    for (std::size_t i = 1; i < OnceTable::kMost; ++i)
        REQUIRE(table.use(std::to_string(i), kMinute + 1) == OnceTable::Seen::First);
    CHECK(table.use("late", kMinute + 2) == OnceTable::Seen::Full);
    CHECK(table.use("1", kMinute + 2) == OnceTable::Seen::Before);
    // The first one makes room.
    CHECK(table.use("late", 2 * kMinute) == OnceTable::Seen::First);
    CHECK(table.use("later", 2 * kMinute) == OnceTable::Seen::Full);
}

namespace {

Bytes event_of(std::string_view method,
               std::string_view url,
               const PeerFields& headers,
               std::string_view body) {
    Bytes out;
    FlatWriter writer(out);
    writer.field(method);
    writer.field(url);
    writer.u32(static_cast<std::uint32_t>(headers.size()));
    for (const auto& [name, value] : headers) {
        writer.field(name);
        writer.field(value);
    }
    writer.field(body);
    return out;
}

Result<PeerRequest> read_call(const std::string& peer,
                              BytesView event,
                              abi::PeerAsk ask = abi::PeerAsk::Request,
                              const std::string& name = "n/ \xff.") {
    flatbuffers::FlatBufferBuilder builder;
    const auto address = builder.CreateString(peer);
    const auto target = builder.CreateString("b");
    const auto class_name = builder.CreateString("c");
    const auto actor = builder.CreateString(name);
    const auto bytes = builder.CreateVector(event.data(), event.size());
    const auto node = builder.CreateString("a");
    const auto origin = abi::CreatePeerOrigin(builder, node, ask, 0, 0, 0, false, false, 5, 6);
    builder.Finish(abi::CreatePeerCall(builder, address, target, class_name, actor, bytes, origin));
    return read_peer_call(*flatbuffers::GetRoot<abi::PeerCall>(builder.GetBufferPointer()));
}

}  // namespace

TEST_CASE("a call becomes a request of which nothing can be read as anything else") {
    const PeerFields headers{{"Host", "client"},
                             {"X-A", "1"},
                             {"Content-Length", "2"},
                             {"x-wasmkeep-node", "me"},
                             {"transfer-encoding", "gz"},
                             {"empty", ""}};
    const auto good = read_call("10.0.0.1:80", event_of("PATCH", "/p?q=/", headers, "hi"));
    REQUIRE(good.ok());
    CHECK(good->url == "http://10.0.0.1:80/");
    CHECK(good->target == "/actor/c/n%2F%20%FF./p?q=/");
    CHECK(good->method == "PATCH");
    CHECK(good->body == "hi");
    CHECK(good->headers == PeerFields{{"host", "client"}, {"x-a", "1"}, {"empty", ""}});
    // HTTP/1.0 needs none, and this does.
    const auto bare = read_call("node:1", event_of("GET", "/", {}, ""));
    REQUIRE(bare.ok());
    CHECK(bare->headers == PeerFields{{"host", "node:1"}});
    const auto alarm = read_call("[::1]:65535", as_bytes("e"), abi::PeerAsk::Alarm);
    REQUIRE(alarm.ok());
    CHECK(alarm->method == "POST");
    CHECK(alarm->target == "/actor/c/n%2F%20%FF.");
    CHECK(alarm->body.size() == kAlarmBytes + 1);

    for (const char* peer :
         {"", "host", "host:", ":80", "a b:80", "h:8x", "u@h:80", "h/x:80", "[::1:80", "h:800000"})
        CHECK(says(read_call(peer, event_of("GET", "/", {}, "")).error().message, "no host:port"));
    CHECK(says(read_call("h:1", event_of("GET", "/ x", {}, "")).error().message, "path"));
    CHECK(says(read_call("h:1", event_of("GET", "x", {}, "")).error().message, "path"));
    CHECK(says(read_call("h:1", event_of("G T", "/", {}, "")).error().message, "method"));
    CHECK(
        says(read_call("h:1", event_of("GET", "/", {{"a b", ""}}, "")).error().message, "header"));
    CHECK(says(read_call("h:1", event_of("GET", "/", {{"a", "\r\nb: c"}}, "")).error().message,
               "header"));
    CHECK(says(read_call("h:1", as_bytes("")).error().message, "ends early"));
    CHECK(says(
        read_call("h:1", event_of("GET", "/", {}, ""), abi::PeerAsk::Request, "").error().message,
        "which actor"));
}

namespace {

// What the asker reads of what the asked writes.
PeerAnswer through(const std::function<void(Bytes&, Framing&)>& write,
                   abi::PeerAsk ask,
                   int* status = nullptr) {
    Bytes out;
    Framing framing;
    framing.peer = ask;
    write(out, framing);
    const std::string text(as_text(out));
    web::HttpAnswer answer;
    answer.answered = true;
    answer.status = std::stoi(text.substr(9, 3));
    if (status != nullptr) *status = answer.status;
    for (std::size_t at = text.find("\r\n") + 2; text.compare(at, 2, "\r\n") != 0;) {
        const std::size_t end = text.find("\r\n", at);
        const std::size_t colon = text.find(": ", at);
        std::string name = text.substr(at, colon - at);
        for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
        answer.headers.emplace_back(name, text.substr(colon + 2, end - colon - 2));
        at = end + 2;
    }
    return read_peer_answer(answer, false);
}

PeerAnswer replied(abi::ReplyReason reason,
                   std::uint16_t status,
                   std::string_view words,
                   abi::PeerAsk ask,
                   int* line = nullptr,
                   std::string_view header = "x-a") {
    flatbuffers::FlatBufferBuilder builder;
    Bytes flat;
    FlatWriter writer(flat);
    writer.field(header);
    writer.field(std::string_view("1"));
    writer.field(std::string_view("x-wasmkeep-reason"));
    writer.field(std::string_view("Busy"));
    const auto headers = builder.CreateVector(flat.data(), flat.size());
    const auto text = builder.CreateString(words.data(), words.size());
    builder.Finish(abi::CreateReply(builder, status, reason, 1500, headers, 0, text));
    const auto& reply = *flatbuffers::GetRoot<abi::Reply>(builder.GetBufferPointer());
    return through(
        [&](Bytes& out, Framing& framing) { (void)write_reply(out, framing, reply); }, ask, line);
}

}  // namespace

TEST_CASE("an answer between nodes says what the supervisor said") {
    int line = 0;
    for (const abi::PeerAsk ask : {abi::PeerAsk::Request, abi::PeerAsk::Call}) {
        const PeerAnswer ok = replied(abi::ReplyReason::Ok, 404, "", ask, &line);
        CHECK(line == (ask == abi::PeerAsk::Request ? 404 : 200));
        CHECK(ok.reason == abi::ReplyReason::Ok);
        CHECK(ok.status == 404);
        // An actor cannot say it.
        CHECK(as_text(ok.headers).find("x-a") != std::string_view::npos);
        CHECK(as_text(ok.headers).find("wasmkeep") == std::string_view::npos);
        CHECK(replied(abi::ReplyReason::Ok, 0, "", ask).status == 0);
        for (const abi::ReplyReason reason : abi::EnumValuesReplyReason()) {
            if (reason == abi::ReplyReason::Ok) continue;
            const PeerAnswer said = replied(reason, 0, "why:\n100% \xc3\xa4", ask);
            CHECK(said.reason == reason);
            CHECK(said.text == "why:\n100% \xc3\xa4");
            CHECK(said.retry_after_ms == 1500);
            CHECK(said.headers.empty());
        }
    }
    CHECK(replied(abi::ReplyReason::Ok, 200, "", abi::PeerAsk::Request, &line, "a b").reason ==
          abi::ReplyReason::ActorFailed);
    CHECK(line == 502);
}

TEST_CASE("an answer of the other gateway itself") {
    const auto own = [](const LocalAnswer& answer) {
        return through([&](Bytes& out, Framing& framing) { write_answer(out, framing, answer); },
                       abi::PeerAsk::Call);
    };
    const PeerAnswer turned_away = own(refused_call("this is node b, not c"));
    CHECK(turned_away.reason == abi::ReplyReason::Unavailable);
    CHECK(says(turned_away.text, "this is node b, not c"));
    CHECK(own(no_room("full")).reason == abi::ReplyReason::Busy);
    CHECK(own(no_room("full")).retry_after_ms == 1000);
    CHECK(own(ends_now()).reason == abi::ReplyReason::Unavailable);
    CHECK(own(no_answer()).reason == abi::ReplyReason::Deadline);
    CHECK(own(event_too_large()).reason == abi::ReplyReason::TooLarge);
    // Somebody else listens there.
    web::HttpAnswer stranger;
    stranger.status = 200;
    CHECK(read_peer_answer(stranger, false).reason == abi::ReplyReason::Internal);
    stranger.headers.emplace_back("x-wasmkeep-reason", "Fine");
    CHECK(read_peer_answer(stranger, false).reason == abi::ReplyReason::Internal);
    stranger.headers.front().second = "Ok";
    CHECK(read_peer_answer(stranger, false).reason == abi::ReplyReason::Ok);
    stranger.headers.emplace_back("x", std::string(13 * 1024, 'x'));
    CHECK(read_peer_answer(stranger, false).reason == abi::ReplyReason::Internal);
}

}  // namespace hf::gateway
