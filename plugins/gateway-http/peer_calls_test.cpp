// Calls of one gateway process to another, and to peers that break in every way: what the supervisor hears is what is certain.
#include <memory>
#include <string>
#include <vector>

#include "abi/base/clock.hpp"
#include "abi/base/limits.hpp"
#include "plugins/gateway-http/test_cluster.hpp"

namespace hf::gateway {

namespace {

using abi::PeerOutcome;
using abi::ReplyReason;
using Asked = TestSupervisor::PeerAsked;
using Said = TestSupervisor::PeerSaid;

constexpr std::size_t kMiB = std::size_t{1} << 20U;

std::string some(std::size_t bytes) {
    std::string out(bytes, '\0');
    for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i * 31 + i / 4096);
    return out;
}

Asked passed_on(const std::string& peer,
                std::string class_name = "echo",
                std::string_view body = {}) {
    Asked asked;
    asked.peer = peer;
    asked.class_name = std::move(class_name);
    asked.event = request_event("POST", "/", {{"host", "h"}}, body);
    return asked;
}

bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

const std::string kOk = "HTTP/1.1 200 OK\r\nx-wasmkeep-reason: Ok\r\nContent-Length: 2\r\n\r\nok";

}  // namespace

TEST_CASE("a request that is passed on arrives as its client sent it") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    TestSupervisor b(node_options("b", secret));
    REQUIRE(a.ready());
    REQUIRE(b.ready());
    Asked asked;
    asked.peer = at(b.port());
    asked.name = "al ice/\xff";
    asked.event = request_event("PATCH",
                                "/a?b=%20c?",
                                {{"host", "client:81"}, {"x", "1"}, {"empty", ""}, {"x", "2"}},
                                "hi");
    const Said said = a.peer_said(a.call_peer(asked));
    CHECK(said.text == "");
    REQUIRE(said.outcome == PeerOutcome::Answered);
    CHECK(said.status == 200);
    CHECK(said.reason == ReplyReason::Ok);
    CHECK(said.body == "PATCH /a?b=%20c?|host=client:81|x=1|empty=|x=2|content-length=2|hi");
    CHECK(said.headers.at("content-type") == "text/plain");
    CHECK_FALSE(said.headers.contains("server"));
    CHECK_FALSE(said.headers.contains("content-length"));
    CHECK(b.seen().origins == std::vector<std::string>{"request of a"});
    CHECK(b.seen().deadline_ns - monotonic_ns() < 10'000'000'000);

    asked.event = request_event("GET", "/", {{"host", "h"}}, "");
    CHECK(a.peer_said(a.call_peer(asked)).body == "GET /|host=h|");
    asked.event = request_event("HEAD", "/", {{"host", "h"}}, "");
    const Said head = a.peer_said(a.call_peer(asked));
    CHECK(head.status == 200);
    CHECK(head.body.empty());
    // As large as a client's request may be.
    asked.class_name = "body";
    asked.event = request_event("POST",
                                "/" + std::string(8000, 'p'),
                                {{"host", "h"}, {"x", std::string(3000, 'x')}},
                                some(kPayloadBytesMax));
    CHECK(a.peer_said(a.call_peer(asked)).body == some(kPayloadBytesMax));
    asked.event = request_event("POST", "/", {{"host", "h"}, {"x", std::string(12'000, 'x')}}, "b");
    CHECK(a.peer_said(a.call_peer(asked)).body == "b");
    CHECK(a.seen().fault.empty());
    CHECK(b.seen().fault.empty());
}

TEST_CASE("calls, messages, settled ones and alarms arrive as they are") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    TestSupervisor b(node_options("b", secret));
    Asked asked = passed_on(at(b.port()));
    // More than a request's body in a record: a call's is 48 KiB and what leads it, and the chain is as long as one may be.
    asked.ask = abi::PeerAsk::Call;
    for (int i = 0; i < 16; ++i)
        asked.chain.push_back("actor/default/c/" + std::string(380, 'u') + std::to_string(i % 10));
    asked.class_name = "status";
    asked.name = "200";
    asked.event = request_event("", "", {}, std::string(kPayloadBytesMax + 1000, 'x'));
    CHECK(a.peer_said(a.call_peer(asked)).body.size() == 100);
    asked.class_name = "echo";
    asked.chain = {"actor/default/c/a", "shard/default/t/1"};
    asked.event = {0, 1, 255};
    const Said call = a.peer_said(a.call_peer(asked));
    CHECK(call.outcome == PeerOutcome::Answered);
    CHECK(call.reason == ReplyReason::Ok);
    CHECK(call.status == 0);
    CHECK(call.body == std::string("\0\1\xff", 3));

    asked.chain.clear();
    asked.ask = abi::PeerAsk::Message;
    asked.source = "actor/default/c/.20";
    asked.n = 18'446'744'073'709'551'615U;
    asked.http = asked.last = true;
    CHECK(a.peer_said(a.call_peer(asked)).body == std::string("\0\1\xff", 3));
    asked.ask = abi::PeerAsk::Settled;
    asked.http = asked.last = false;
    asked.event.clear();
    CHECK(a.peer_said(a.call_peer(asked)).reason == ReplyReason::Ok);
    asked = passed_on(at(b.port()));
    asked.ask = abi::PeerAsk::Alarm;
    asked.due_ms = 1'700'000'000'123;
    asked.nonce = 77;
    asked.event.clear();
    CHECK(a.peer_said(a.call_peer(asked)).reason == ReplyReason::Ok);
    const auto origins = b.seen().origins;
    REQUIRE(origins.size() == 5);
    CHECK(says(origins[0], "call of a, for actor/default/c/u"));
    CHECK(origins[1] == "call of a, for actor/default/c/a, for shard/default/t/1");
    CHECK(origins[2] ==
          "message of a, source actor/default/c/.20, n 18446744073709551615, http, last");
    CHECK(origins[3] == "settled of a, source actor/default/c/.20, n 18446744073709551615");
    CHECK(origins[4] == "alarm of a, due 1700000000123, nonce 77");
}

TEST_CASE("what the other supervisor says comes back as it said it") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    TestSupervisor b(node_options("b", secret));
    Asked asked = passed_on(at(b.port()), "reason");
    for (int reason = 1; reason < 10; ++reason) {
        CAPTURE(reason);
        asked.name = std::to_string(reason);
        const Said said = a.peer_said(a.call_peer(asked));
        CHECK(said.outcome == PeerOutcome::Answered);
        CHECK(said.reason == static_cast<ReplyReason>(reason));
        CHECK(said.retry_after_ms == 1500);
        CHECK(said.text == "why: " + asked.name);
        CHECK(said.body.empty());
    }
    asked.class_name = "status";
    for (const char* status : {"204", "304", "418", "599"}) {
        asked.name = status;
        CHECK(a.peer_said(a.call_peer(asked)).status == static_cast<unsigned>(std::atoi(status)));
    }
    asked.name = "99";
    CHECK(a.peer_said(a.call_peer(asked)).reason == ReplyReason::ActorFailed);
    asked.class_name = "nothing";
    asked.name = std::string(392, 'n');
    CHECK(a.peer_said(a.call_peer(asked)).reason == ReplyReason::BadName);
}

TEST_CASE("large bodies pass between nodes, both ways") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    TestSupervisor b(node_options("b", secret, {{"body_bytes_max", std::to_string(16 * kMiB)}}));
    for (const std::size_t size : {kPayloadBytesMax + 1, 5 * kMiB + 3}) {
        CAPTURE(size);
        Asked asked = passed_on(at(b.port()), "body");
        asked.large = some(size);
        const Said said = a.peer_said(a.call_peer(asked));
        CHECK(said.text == "");
        CHECK(said.outcome == PeerOutcome::Answered);
        CHECK(said.large);
        CHECK(said.body == some(size));
        CHECK(b.wait_until([&](const auto& seen) { return seen.released == seen.bodies.size(); }));
    }
    Asked asked = passed_on(at(b.port()), "large");
    asked.name = "70000";
    CHECK(a.peer_said(a.call_peer(asked)).body.size() == 70'000);
    // What that node does not take it refuses by name.
    asked.class_name = "body";
    asked.large = some(16 * kMiB + 1);
    const Said said = a.peer_said(a.call_peer(asked));
    CHECK(said.outcome == PeerOutcome::Answered);
    CHECK(said.reason == ReplyReason::TooLarge);
    CHECK(says(said.text, "body_bytes_max = 16777216"));
    CHECK(a.seen().fault.empty());
    // No room here for the answer: it happened, and nobody can say with what result.
    TestSupervisor small(node_options("a", secret, {{"bodies_memory_max", std::to_string(kMiB)}}));
    asked = passed_on(at(b.port()), "large");
    asked.name = std::to_string(4 * kMiB);
    CHECK(small.peer_said(small.call_peer(asked)).outcome == PeerOutcome::Unknown);
    asked.name = "70000";
    CHECK(small.peer_said(small.call_peer(asked)).body.size() == 70'000);
}

TEST_CASE("a node that refuses a call is heard") {
    const SecretFile secret;
    const SecretFile other("another secret of at least 32 letters");
    TestSupervisor b(node_options("b", secret));
    TestSupervisor stranger(node_options("a", other));
    Said said = stranger.peer_said(stranger.call_peer(passed_on(at(b.port()))));
    CHECK(said.outcome == PeerOutcome::Answered);
    CHECK(said.reason == ReplyReason::Unavailable);
    CHECK(says(said.text, "signature"));
    TestSupervisor a(node_options("a", secret));
    Asked asked = passed_on(at(b.port()));
    asked.target = "c";
    said = a.peer_said(a.call_peer(asked));
    CHECK(said.reason == ReplyReason::Unavailable);
    CHECK(says(said.text, "this is node b, not c"));
    CHECK(b.seen().requests == 0);
    // Without a secret none is made, and none taken.
    TestSupervisor::Options alone;
    alone.binary = HF_GATEWAY_HTTP;
    TestSupervisor without(alone);
    said = without.peer_said(without.call_peer(passed_on(at(b.port()))));
    CHECK(said.outcome == PeerOutcome::NotSent);
    CHECK(says(said.text, "peer_secret_file"));
    said = a.peer_said(a.call_peer(passed_on(at(without.port()))));
    CHECK(said.reason == ReplyReason::Unavailable);
    CHECK(says(said.text, "takes no calls from others"));
}

TEST_CASE("what_certainly_did_not_leave_is_told_so") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret, {{"peer_connections", "1"}}));
    FakePeer peer;
    // One connection, and it is busy: the second call waits until its time is up.
    const std::uint64_t first = a.call_peer(passed_on(peer.address()));
    peer.accept();
    (void)peer.take();
    Asked second = passed_on(peer.address());
    second.within_ms = 100;
    Said said = a.peer_said(a.call_peer(second));
    CHECK(said.outcome == PeerOutcome::NotSent);
    CHECK(says(said.text, "before the call could be sent"));
    peer.say(kOk);
    CHECK(a.peer_said(first).body == "ok");
    peer.close();
    peer.refuse();
    said = a.peer_said(a.call_peer(passed_on(peer.address())));
    CHECK(said.outcome == PeerOutcome::NotSent);
    CHECK(says(said.text, "cannot be reached"));
    CHECK(a.peer_said(a.call_peer(passed_on("no-such-host.invalid:80"))).outcome ==
          PeerOutcome::NotSent);
    CHECK(a.peer_said(a.call_peer(passed_on("127.0.0.1"))).outcome == PeerOutcome::NotSent);
    Asked late = passed_on(at(a.port()));
    late.within_ms = -1;
    CHECK(a.peer_said(a.call_peer(late)).outcome == PeerOutcome::NotSent);
    CHECK(a.wait_until([](const auto& seen) {
        const auto count = seen.counters.find("http_peer_calls_not_sent");
        return count != seen.counters.end() && count->second == 5;
    }));
}

TEST_CASE("peer_breaks_after_the_call_was_sent") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    const auto unknown = [&](FakePeer& peer, std::string_view answer) {
        const std::uint64_t call = a.call_peer(passed_on(peer.address()));
        peer.accept();
        (void)peer.take();
        if (!answer.empty()) peer.say(answer);
        peer.close();
        const Said said = a.peer_said(call);
        CHECK(said.outcome == PeerOutcome::Unknown);
        CHECK(says(said.text, "was sent the call"));
        // It did not go again.
        CHECK_FALSE(peer.knocked());
    };
    FakePeer peer;
    unknown(peer, "");
    unknown(peer, "HTTP/1.1 200 OK\r\nx-wasmkeep-rea");
    unknown(peer, kOk.substr(0, kOk.size() - 1));
    unknown(peer, "SSH-2.0-OpenSSH_9.2p1\r\n");
    unknown(peer, "\x16\x03\x01 garbage \r\n\r\n");
    unknown(peer,
            "HTTP/1.1 200 OK\r\nx: " + std::string(40'000, 'x') + "\r\nContent-Length: 0\r\n\r\n");
}

TEST_CASE("peer_closes_a_kept_connection_under_a_call") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    FakePeer peer;
    for (const std::string method : {"GET", "POST"}) {
        CAPTURE(method);
        Asked asked = passed_on(peer.address());
        asked.event = request_event(method, "/", {{"host", "h"}}, "");
        std::uint64_t call = a.call_peer(asked);
        peer.accept();
        (void)peer.take();
        peer.say(kOk);
        CHECK(a.peer_said(call).body == "ok");
        call = a.call_peer(asked);
        // The same connection: libcurl takes its end for a sign that nobody read what it sent.
        (void)peer.take();
        peer.close();
        CHECK(a.peer_said(call).outcome == PeerOutcome::Unknown);
        CHECK(peer.hears_nothing());
    }
    // Closed while nothing is on its way: seen, and another one is made.
    std::uint64_t call = a.call_peer(passed_on(peer.address()));
    peer.accept();
    (void)peer.take();
    peer.say(kOk);
    CHECK(a.peer_said(call).body == "ok");
    peer.close();
    call = a.call_peer(passed_on(peer.address()));
    peer.accept();
    (void)peer.take();
    peer.say(kOk);
    CHECK(a.peer_said(call).body == "ok");
}

TEST_CASE("peer_is_slower_than_the_deadline") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    FakePeer peer;
    Asked asked = passed_on(peer.address());
    asked.within_ms = 500;
    const std::int64_t begun = monotonic_ns();
    const std::uint64_t call = a.call_peer(asked);
    peer.accept();
    const std::string request = peer.take();
    CHECK(says(request, "x-wasmkeep-deadline-ms: "));
    peer.say("HTTP/1.1 200 OK\r\n");
    const Said said = a.peer_said(call);
    CHECK(said.outcome == PeerOutcome::Unknown);
    CHECK(says(said.text, "in time"));
    CHECK(monotonic_ns() - begun < 5'000'000'000);
    // What it says too late is nobody's answer.
    asked.within_ms = 10'000;
    const std::uint64_t next = a.call_peer(asked);
    peer.accept();
    (void)peer.take();
    peer.say(kOk);
    CHECK(a.peer_said(next).body == "ok");
}

TEST_CASE("peer_answers_without_saying_what_became_of_the_call") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    FakePeer peer;
    const std::uint64_t call = a.call_peer(passed_on(peer.address()));
    peer.accept();
    (void)peer.take();
    peer.say("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    const Said said = a.peer_said(call);
    CHECK(said.outcome == PeerOutcome::Answered);
    CHECK(said.reason == ReplyReason::Internal);
    CHECK(says(said.text, "status 503"));
}

TEST_CASE("more calls than connections wait, and connections are kept") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret, {{"peer_connections", "4"}}));
    TestSupervisor b(node_options("b", secret));
    std::vector<std::uint64_t> calls;
    for (int i = 0; i < 300; ++i)
        calls.push_back(a.call_peer(passed_on(at(b.port()), "body", std::to_string(i))));
    for (int i = 0; i < 300; ++i) {
        const Said said = a.peer_said(calls[static_cast<std::size_t>(i)]);
        REQUIRE(said.outcome == PeerOutcome::Answered);
        CHECK(said.body == std::to_string(i));
    }
    CHECK(b.wait_until([](const auto& seen) {
        const auto count = seen.counters.find("http_peer_calls_taken");
        return count != seen.counters.end() && count->second == 300;
    }));
    CHECK(b.seen().counters.at("http_connections_opened") <= 4);
}

TEST_CASE("a peer is found by its name") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    TestSupervisor b(node_options("b", secret));
    const Said said = a.peer_said(a.call_peer(passed_on("localhost:" + std::to_string(b.port()))));
    CHECK(said.text == "");
    CHECK(said.outcome == PeerOutcome::Answered);
    CHECK(a.seen().fault.empty());
}

TEST_CASE("calls that are open when the process is to end are finished") {
    const SecretFile secret;
    TestSupervisor a(node_options("a", secret));
    FakePeer peer;
    const std::uint64_t call = a.call_peer(passed_on(peer.address()));
    peer.accept();
    (void)peer.take();
    a.shed(10'000);
    peer.say(kOk);
    CHECK(a.peer_said(call).body == "ok");
    CHECK(a.exit_code() == 0);
}

}  // namespace hf::gateway
