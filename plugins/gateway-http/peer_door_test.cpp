// Signed calls as bytes: what the gateway process lets in, where, and what a client cannot claim.
#include <functional>
#include <string>
#include <vector>

#include "abi/base/clock.hpp"
#include "abi/base/hex.hpp"
#include "abi/base/limits.hpp"
#include "plugins/gateway-http/peer_text.hpp"
#include "plugins/gateway-http/test_client.hpp"
#include "plugins/gateway-http/test_cluster.hpp"

namespace hf::gateway {

namespace {

// A call to node b, as another implementation would sign it.
struct RawCall {
    std::string method = "POST";
    std::string target = "/actor/echo/n/x";
    std::string body = "hi";
    std::string secret{kTestSecret};
    PeerFacts facts;
    PeerFields others{{"x", "1"}};
    std::string sent_target = {};  // what goes out instead of what was signed
    std::string sent_body = {};
    PeerFields added = {};  // beside what was signed

    RawCall() {
        static std::uint64_t count = 0;
        facts.origin.node = "a";
        facts.target = "b";
        facts.tenant = "default";
        facts.app = "app";
        facts.time_ms = wall_ms();
        facts.once = hex(std::uint64_t{7}) + hex(++count);
        facts.deadline_ms = 5000;
    }
    [[nodiscard]] std::string bytes() const {
        PeerFacts signed_facts = facts;
        PeerFields digested = others;
        digested.emplace_back("host", "h");
        signed_facts.fields_sha256 = fields_digest(digested);
        const PeerFields fields = peer_fields(signed_facts);
        Sha256 digest;
        digest.add(as_bytes(body));
        std::string lines;
        for (const auto& list : {others, fields, added})
            for (const auto& [name, value] : list) lines += name + ": " + value + "\r\n";
        lines += std::string(kPeerSignature) + ": " +
                 signature_of(secret, canonical_text(method, target, fields, digest.hex_digest())) +
                 "\r\n";
        const std::string& out = sent_body.empty() ? body : sent_body;
        return method + " " + (sent_target.empty() ? target : sent_target) +
               " HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(out.size()) + "\r\n" +
               lines + "\r\n" + out;
    }
};

bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// The answer to a call that was changed by `change`.
Answer answer_to(std::uint16_t port, const std::function<void(RawCall&)>& change) {
    RawCall call;
    change(call);
    TestClient client(port);
    return client.ask(call.bytes());
}

void refused(std::uint16_t port,
             const std::function<void(RawCall&)>& change,
             std::string_view why) {
    CAPTURE(why);
    const Answer answer = answer_to(port, change);
    CHECK(answer.status == 403);
    const auto found = answer.fields.find("x-wasmkeep-refused");
    REQUIRE(found != answer.fields.end());
    CHECK(says(found->second, why));
    CHECK_FALSE(answer.fields.contains("x-wasmkeep-reason"));
}

const std::function<void(RawCall&)> kAsItIs = [](RawCall&) {};

}  // namespace

TEST_CASE("a good call is let in, and says what became of it") {
    const SecretFile secret;
    TestSupervisor b(node_options("b", secret));
    REQUIRE(b.ready());
    const Answer answer = answer_to(b.port(), kAsItIs);
    CHECK(answer.status == 200);
    CHECK(answer.body == "POST /x|host=h|content-length=2|x=1|hi");
    CHECK(answer.fields.at("x-wasmkeep-reason") == "Ok");
    CHECK(answer.fields.at("x-wasmkeep-status") == "200");
    CHECK(b.seen().origins == std::vector<std::string>{"request of a"});
    // Its connection goes on, with calls and with clients' requests.
    TestClient client(b.port());
    CHECK(client.ask(RawCall().bytes()).status == 200);
    CHECK(client.ask(get("/actor/fixed/x")).status == 200);
    CHECK(client.ask(RawCall().bytes()).status == 200);
    CHECK(b.seen().origins.size() == 3);
    // In time, by its own word.
    CHECK(answer_to(b.port(), [](RawCall& call) { call.facts.deadline_ms = 1; }).status == 200);
    CHECK(b.seen().deadline_ns - monotonic_ns() < 1'000'000'000);
}

TEST_CASE("the_call_is_not_as_it_was_signed") {
    const SecretFile secret;
    TestSupervisor b(node_options("b", secret));
    refused(
        b.port(), [](RawCall& call) { call.secret.back() = '!'; }, "signature");
    refused(
        b.port(), [](RawCall& call) { call.sent_body = "ho"; }, "signature");
    refused(
        b.port(), [](RawCall& call) { call.sent_body = std::string(40'000, 'x'); }, "signature");
    refused(
        b.port(), [](RawCall& call) { call.sent_target = "/actor/echo/m/x"; }, "signature");
    refused(
        b.port(), [](RawCall& call) { call.sent_target = "/actor/echo/n/x?y"; }, "signature");
    refused(
        b.port(),
        [](RawCall& call) {
            call.added = {{"x-wasmkeep-last", "1"}};
        },
        "signature");
    refused(
        b.port(),
        [](RawCall& call) {
            call.added = {{"x-wasmkeep-node", "c"}};
        },
        "signature");
    refused(
        b.port(),
        [](RawCall& call) {
            call.added = {{"cookie", "me=root"}};
        },
        "header field");
    refused(
        b.port(),
        [](RawCall& call) {
            call.method = "GET";
            call.target = "/metrics";
        },
        "about an actor");
    CHECK(b.seen().requests == 0);
    CHECK(b.seen().queries == 0);
    CHECK(answer_to(b.port(), kAsItIs).status == 200);
}

TEST_CASE("the_call_is_for_somebody_else_or_another_time") {
    const SecretFile secret;
    TestSupervisor b(node_options("b", secret));
    refused(
        b.port(), [](RawCall& call) { call.facts.target = "c"; }, "this is node b, not c");
    refused(
        b.port(),
        [](RawCall& call) { call.facts.tenant = "other"; },
        "serves tenant default and app app");
    refused(
        b.port(),
        [](RawCall& call) { call.facts.app = "other"; },
        "serves tenant default and app app");
    refused(
        b.port(), [](RawCall& call) { call.facts.time_ms -= 40'000; }, "behind");
    refused(
        b.port(), [](RawCall& call) { call.facts.time_ms += 40'000; }, "ahead");
    refused(
        b.port(), [](RawCall& call) { call.facts.time_ms -= 20'000; }, "before this gateway began");
    refused(
        b.port(), [](RawCall& call) { call.facts.once = "1"; }, "x-wasmkeep-once");
    CHECK(b.seen().requests == 0);
    CHECK(answer_to(b.port(), [](RawCall& call) { call.facts.time_ms += 20'000; }).status == 200);
}

TEST_CASE("the_call_comes_again") {
    const SecretFile secret;
    TestSupervisor b(node_options("b", secret));
    const RawCall call;
    TestClient client(b.port());
    CHECK(client.ask(call.bytes()).status == 200);
    const Answer again = client.ask(call.bytes());
    CHECK(again.status == 403);
    CHECK(says(again.fields.at("x-wasmkeep-refused"), "used before"));
    CHECK(TestClient(b.port()).ask(call.bytes()).status == 403);
    // The same number over other words is the same number.
    refused(
        b.port(),
        [&](RawCall& other) {
            other.facts.once = call.facts.once;
            other.body = "other";
        },
        "used before");
    CHECK(b.seen().requests == 1);
}

TEST_CASE("a client claims to be a node") {
    const SecretFile secret;
    TestSupervisor b(node_options("b", secret));
    TestClient client(b.port());
    const std::string claims =
        "X-Wasmkeep-Forwarded: 1\r\nx-wasmkeep-node: a\r\nX-WASMKEEP-Ask: alarm\r\nX-Mine: 1\r\n";
    CHECK(client.ask(post("/actor/echo/n", "hi", claims)).body ==
          "POST /|host=h|content-length=2|x-mine=1|hi");
    CHECK(b.seen().origins.empty());
    CHECK(client.ask(post("/actor/echo/n", "hi", claims + "X-Wasmkeep-Signature: v1=00\r\n"))
              .status == 403);
    CHECK(client.ask(get("/actor/fixed/n")).status == 200);
    // Nor does an actor.
    CHECK_FALSE(client.ask(get("/actor/header/x")).fields.contains("x-wasmkeep-reason"));
    CHECK(b.seen().origins.empty());
}

TEST_CASE("a client gets no more room where nodes come as well") {
    const SecretFile secret;
    TestSupervisor b(node_options("b", secret));
    const Answer header =
        TestClient(b.port()).ask(get("/", "X: " + std::string(13'000, 'x') + "\r\n"));
    CHECK(header.status == 431);
    CHECK(says(header.body, "header_bytes_max = 12288"));
    std::string many;
    for (int i = 0; i < 101; ++i) many += "X: y\r\n";
    CHECK(TestClient(b.port()).ask(get("/", many)).status == 431);
    const Answer target = TestClient(b.port()).ask(get("/" + std::string(8192, 'x')));
    CHECK(target.status == 414);
    CHECK(says(target.body, "target_bytes_max = 8192"));
    const Answer body =
        TestClient(b.port()).ask(post("/actor/body/b", std::string(kPayloadBytesMax + 1, 'x')));
    CHECK(body.status == 413);
    CHECK(says(body.body, "body_bytes_max = 49152"));
    std::string chunks =
        "POST /actor/body/b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 7; ++i) chunks += "2000\r\n" + std::string(0x2000, 'x') + "\r\n";
    CHECK(TestClient(b.port()).ask(chunks + "0\r\n\r\n").status == 413);
    CHECK(TestClient(b.port()).ask(get("/actor/fixed/n")).status == 200);
}

TEST_CASE("with a socket for nodes, each takes its own and nothing else") {
    const SecretFile secret;
    TestSupervisor::Options options =
        node_options("b", secret, {{"cluster_listen", "127.0.0.1:0"}});
    options.second_listener = true;
    TestSupervisor b(options);
    REQUIRE(b.ready());
    refused(b.port(), kAsItIs, "cluster address only");
    CHECK(TestClient(b.port()).ask(get("/actor/fixed/n")).status == 200);
    CHECK(b.seen().requests == 1);
    for (const char* path : {"/actor/fixed/n", "/metrics", "/healthz", "/nothing"}) {
        const Answer answer = TestClient(b.cluster_port()).ask(get(path));
        CHECK(answer.status == 403);
        CHECK(says(answer.body, "calls between nodes only"));
    }
    CHECK(b.seen().requests == 1);
    CHECK(b.seen().queries == 0);
    CHECK(answer_to(b.cluster_port(), kAsItIs).status == 200);
    refused(
        b.cluster_port(), [](RawCall& call) { call.secret = "x"; }, "signature");
    CHECK(b.seen().requests == 2);
    // And out of such a node.
    TestSupervisor a(node_options("a", secret));
    TestSupervisor::PeerAsked asked;
    asked.peer = at(b.cluster_port());
    asked.event = request_event("GET", "/", {{"host", "h"}}, "");
    CHECK(a.peer_said(a.call_peer(asked)).body == "GET /|host=h|");
}

TEST_CASE("a gateway without a secret takes no calls") {
    TestSupervisor::Options options;
    options.binary = HF_GATEWAY_HTTP;
    options.node = "b";
    TestSupervisor b(options);
    refused(b.port(), kAsItIs, "takes no calls from others");
    CHECK(b.seen().requests == 0);
}

TEST_CASE("a_secret_that_is_none") {
    const SecretFile short_one("too short");
    TestSupervisor b(node_options("b", short_one));
    CHECK_FALSE(b.ready());
    CHECK(says(b.error(), "peer_secret_file holds 9 bytes"));
    CHECK(b.exit_code() == 1);
    const SecretFile secret;
    TestSupervisor one(node_options("b", secret, {{"cluster_listen", "127.0.0.1:0"}}));
    CHECK_FALSE(one.ready());
    CHECK(says(one.error(), "no second socket"));
}

}  // namespace hf::gateway
