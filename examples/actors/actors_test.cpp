// The example actors as a node runs them, each through a real plugin process; what they ask of others is answered here.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "abi/ring/bodies.hpp"
#include "plugins/runtime-wasm/testing/plain_process.hpp"

namespace hf::examples {

using wasm::testing::Answer;
using wasm::testing::Command;
using wasm::testing::http_event;
using wasm::testing::ModuleFile;
using wasm::testing::Plain;
using wasm::testing::Sent;
using wasm::testing::TempDir;
using Kind = abi::EventKind;

namespace {

constexpr std::int64_t kNow = 1'700'000'000'000;

ModuleFile build(const std::string& class_name, const std::string& wasm) {
    static const TempDir cache;
    const wasm::testing::Said built =
        wasm::testing::run_builder("--module " + wasm + " --cache " + cache.path());
    REQUIRE_MESSAGE(built.exit == 0, built.text);
    const auto json = nlohmann::json::parse(built.text);
    return {class_name, json["so"], json["key"]};
}

void u64(Bytes& out, std::uint64_t value) {
    FlatWriter writer(out);
    writer.u32(static_cast<std::uint32_t>(value));
    writer.u32(static_cast<std::uint32_t>(value >> 32));
}

Bytes call_event(std::string_view method, std::string_view body, bool one_way = false) {
    Bytes out;
    FlatWriter writer(out);
    writer.u32(one_way ? 1 : 0);
    u64(out, 7);
    u64(out, 8);
    writer.field(std::string_view("teller/t"));
    writer.field(method);
    writer.field(body);
    return out;
}

Bytes alarm_event(std::int64_t due_ms) {
    Bytes out;
    u64(out, 1);
    u64(out, static_cast<std::uint64_t>(due_ms));
    FlatWriter(out).u32(1);
    return out;
}

Bytes opened(std::uint64_t connection) {
    Bytes out;
    u64(out, connection);
    const Bytes request = http_event("GET", "/");
    out.insert(out.end(), request.begin(), request.end());
    return out;
}

Bytes said(std::uint64_t connection, std::string_view text, bool binary = false) {
    Bytes out;
    u64(out, connection);
    FlatWriter writer(out);
    writer.u32(binary ? 1 : 0);
    writer.field(text);
    return out;
}

Bytes closed(std::uint64_t connection) {
    Bytes out;
    u64(out, connection);
    FlatWriter writer(out);
    writer.u32(1000);
    writer.field(std::string_view("bye"));
    return out;
}

}  // namespace

TEST_CASE("a_teller_moves_money_between_two_accounts_by_a_call_and_a_message") {
    Plain runtime({build("teller", HF_TELLER_WASM), build("account", HF_ACCOUNT_WASM)});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    constexpr std::uint64_t kTeller = 1;
    constexpr std::uint64_t kAlice = 2;
    constexpr std::uint64_t kBob = 3;
    CHECK(runtime.activate(kTeller, "teller").empty());
    CHECK(runtime.activate(kAlice, "account").empty());
    CHECK(runtime.activate(kBob, "account").empty());

    Answer teller = runtime.deliver(kTeller, http_event("POST", "/deposit?alice,100"));
    REQUIRE(teller.sends == std::vector<Sent>{{"account/alice", "deposit", "100"}});
    Answer account = runtime.deliver(kAlice, call_event("deposit", "100", true), Kind::Call);
    CHECK(account.body == "100");

    // The teller waits while the account it called runs in the same process.
    const Bytes transfer = http_event("POST", "/transfer?alice,bob,30");
    teller = runtime.deliver(kTeller, transfer);
    REQUIRE(teller.status == abi::DeliverStatus::Calling);
    CHECK(teller.call == Sent{"account/alice", "withdraw", "30"});
    account = runtime.deliver(kAlice, call_event("withdraw", "30"), Kind::Call);
    CHECK(account.replied);
    CHECK(account.body == "70");
    teller = runtime.resume(kTeller, 1, account.body);
    CHECK(teller.body == "2\n");
    REQUIRE(teller.sends == std::vector<Sent>{{"account/bob", "deposit", "30"}});
    CHECK(runtime.deliver(kBob, call_event("deposit", "30", true), Kind::Call).body == "30");
    CHECK(runtime.get(kBob, "/").body == "30\n");

    // Too poor: nothing is sent and nothing counted. No answer: the same.
    CHECK(runtime.deliver(kTeller, http_event("POST", "/transfer?alice,bob,71")).call_n == 1);
    account = runtime.deliver(kAlice, call_event("withdraw", "71"), Kind::Call);
    CHECK(account.body == "poor");
    CHECK(account.changes.empty());
    teller = runtime.resume(kTeller, 1, account.body);
    CHECK(teller.reply == 402);
    CHECK(teller.sends.empty());
    CHECK(runtime.deliver(kTeller, transfer).call_n == 1);
    CHECK(runtime.resume(kTeller, 1, "", -5).reply == 502);
    CHECK(runtime.get(kTeller, "/").body == "2\n");
    CHECK(runtime.deliver(kAlice, call_event("steal", "1"), Kind::Call).status ==
          abi::DeliverStatus::Failed);
    CHECK(runtime.deliver(kTeller, http_event("POST", "/transfer?alice")).reply == 400);
    // What a class did not write has its default.
    CHECK(runtime.deliver(kTeller, call_event("x", "y"), Kind::Call).status ==
          abi::DeliverStatus::Failed);
    CHECK(runtime.deliver(kTeller, opened(1), Kind::WsOpen).reply == 404);
    CHECK(runtime.deliver(kTeller, alarm_event(1), Kind::Alarm).status == abi::DeliverStatus::Ok);
}

TEST_CASE("a_vault_takes_and_gives_bodies_that_are_files") {
    constexpr std::size_t kMiB = std::size_t{1} << 20U;
    ModuleFile module = build("vault", HF_VAULT_WASM);
    module.pages_max = 128;  // 8 MiB
    module.cpu_us = 5'000'000;
    module.wall_us = 10'000'000;
    module.body_max = 4 * kMiB;
    Plain runtime({module});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "vault").empty());
    const auto file_of = [](const std::string& text) {
        auto file = ring::make_body("hf-test-body");
        REQUIRE(ring::append_body(file->get(), text.data(), text.size()).ok());
        REQUIRE(ring::seal_body(file->get()).ok());
        return std::make_shared<const port::SealedBody>(std::move(file).value(), text.size());
    };
    const auto text_in = [](const port::SealedBody& body) {
        std::string text(body.bytes(), '\0');
        REQUIRE(ring::read_body(body.fd(), text.data(), text.size(), 0));
        return text;
    };
    const auto post = [&](const std::string& url, const std::string& text) {
        return runtime.deliver(1, http_event("POST", url), Kind::Http, kNow, file_of(text));
    };
    std::string body(3 * kMiB + 5, '\0');
    for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 31 + i / 4096);

    // The same bytes weigh the same, whichever way they came.
    const std::string small = body.substr(0, 1000);
    const Answer inline_one = runtime.deliver(1, http_event("POST", "/", small));
    CHECK(post("/", small).body == inline_one.body);
    Answer answer = post("/", body);
    CHECK(answer.status == abi::DeliverStatus::Ok);
    CHECK(answer.body.starts_with(std::to_string(body.size()) + " "));
    CHECK_FALSE(answer.changes.empty());
    CHECK(runtime.get(1, "/").body == answer.body);

    answer = post("/echo", body);
    REQUIRE(answer.large != nullptr);
    CHECK(answer.reply == 200);
    CHECK(answer.body.empty());
    CHECK(text_in(*answer.large) == body);
    answer = runtime.get(1, "/download?bytes=" + std::to_string(4 * kMiB));
    REQUIRE(answer.large != nullptr);
    CHECK(answer.large->bytes() == 4 * kMiB);
    CHECK(text_in(*answer.large)[1000] == static_cast<char>(1000 % 251));
    CHECK(runtime.get(1, "/download?bytes=49152").body.size() == 49'152);

    // Limits by name; nothing of the event is left.
    answer = runtime.get(1, "/download?bytes=" + std::to_string(4 * kMiB + 1));
    CHECK(answer.status == abi::DeliverStatus::Limit);
    CHECK(answer.error.find("body_max") != std::string::npos);
    answer = post("/", std::string(4 * kMiB + 1, 'x'));
    CHECK(answer.status == abi::DeliverStatus::Limit);
    CHECK(answer.error.find("body_max") != std::string::npos);
    CHECK(runtime.get(1, "/").body.starts_with(std::to_string(body.size()) + " "));
    // What was grown for it is not kept.
    CHECK(runtime.rss_kib() < 64 * 1024);
}

TEST_CASE("a_body_that_finds_no_memory_in_its_actor_names_the_limit") {
    ModuleFile module = build("vault", HF_VAULT_WASM);
    module.pages_max = 16;
    module.body_max = std::uint64_t{1} << 20U;
    Plain runtime({module});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "vault").empty());
    auto file = ring::make_body("hf-test-body");
    const std::string text(1'000'000, 'x');
    REQUIRE(ring::append_body(file->get(), text.data(), text.size()).ok());
    REQUIRE(ring::seal_body(file->get()).ok());
    const Answer answer = runtime.deliver(
        1,
        http_event("POST", "/"),
        Kind::Http,
        kNow,
        std::make_shared<const port::SealedBody>(std::move(file).value(), text.size()));
    CHECK(answer.status == abi::DeliverStatus::Limit);
    CHECK(answer.error.find("limit memory_max") == 0);
    CHECK(runtime.get(1, "/").status == abi::DeliverStatus::Ok);
}

TEST_CASE("a_limiter_in_cpp_closes_its_windows_by_alarms") {
    Plain runtime({build("limiter", HF_LIMITER_WASM)});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "limiter").empty());
    const auto take = [&](const std::string& key, std::int64_t at) {
        return runtime.deliver(1, http_event("POST", "/take?" + key), Kind::Http, at);
    };
    CHECK(runtime.deliver(1, http_event("PUT", "/", "2 500")).body == "ok\n");
    CHECK(runtime.deliver(1, http_event("PUT", "/", "two")).reply == 400);
    Answer answer = take("a", kNow);
    CHECK(answer.body == "1\n");
    CHECK(answer.alarm_ms == kNow + 500);
    answer = take("a", kNow + 10);
    CHECK(answer.body == "0\n");
    CHECK(answer.alarm_ms == -1);
    CHECK(take("a", kNow + 499).reply == 429);
    CHECK(take("b", kNow + 300).body == "1\n");
    CHECK(runtime.get(1, "/").body == "a 2\nb 1\n");
    // A late alarm changes nothing: by the clock the window is over.
    CHECK(take("a", kNow + 500).body == "1\n");
    answer = runtime.deliver(1, alarm_event(kNow + 500), Kind::Alarm, kNow + 900);
    CHECK(answer.status == abi::DeliverStatus::Ok);
    CHECK(answer.alarm_ms == kNow + 1000);
    CHECK(runtime.get(1, "/").body == "a 1\n");
    answer = runtime.deliver(1, alarm_event(kNow + 1000), Kind::Alarm, kNow + 1000);
    CHECK(answer.alarm_ms == -1);
    CHECK(answer.state_bytes < 64);
    CHECK(runtime.get(1, "/").body.empty());
    REQUIRE(runtime.logs.size() >= 2);
    CHECK(runtime.logs.back() == "actor/t/c/n: 1 windows are over");
    // Elsewhere it goes on from its entries and its alarm.
    answer = take("c", kNow + 2000);
    CHECK(runtime.activate(2, "limiter", {{answer.changes, false}}, answer.alarm_ms).empty());
    const Answer moved = runtime.deliver(2, http_event("POST", "/take?c"), Kind::Http, kNow + 2100);
    CHECK(moved.body == "3\n");  // the rule stayed behind with the other entries
    CHECK(moved.alarm_ms == -1);
}

TEST_CASE("a_chat_room_tells_everybody_who_is_there") {
    Plain runtime({build("chat", HF_CHAT_WASM)});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "chat").empty());
    const auto message = [&](std::uint64_t connection, std::string_view text, bool binary = false) {
        return runtime.deliver(1, said(connection, text, binary), Kind::WsMessage);
    };
    Answer answer = runtime.deliver(1, opened(10), Kind::WsOpen);
    CHECK(answer.status == abi::DeliverStatus::Ok);
    CHECK(answer.reply == 0);
    CHECK(answer.sockets.empty());
    CHECK(message(10, "/name ann").sockets.empty());
    CHECK(runtime.deliver(1, opened(0xfedcba9876543210), Kind::WsOpen).reply == 0);
    answer = message(10, "hello");
    // One command for all.
    CHECK(answer.sockets ==
          std::vector<Command>{{10, false, 0, "ann: hello", {0xfedcba9876543210}}});
    answer = message(0xfedcba9876543210, "hi");
    REQUIRE(answer.sockets.size() == 1);
    CHECK(answer.sockets[0].data == "somebody: hi");
    CHECK(answer.sockets[0].also.size() == 1);
    CHECK(runtime.get(1, "/").body == "ann\nsomebody\n");
    // Who comes later is greeted with what was said, in order.
    answer = runtime.deliver(1, opened(11), Kind::WsOpen);
    CHECK(answer.sockets ==
          std::vector<Command>{{11, false, 0, "ann: hello"}, {11, false, 0, "somebody: hi"}});
    CHECK(message(11, "x", true).sockets == std::vector<Command>{{11, true, 1003, "text only"}});
    CHECK(runtime.deliver(1, closed(11), Kind::WsClose).status == abi::DeliverStatus::Ok);
    CHECK(message(11, "late").sockets.empty());
    for (int i = 0; i < 30; ++i)
        CHECK(message(10, "line " + std::to_string(i)).sockets.size() == 1);
    answer = runtime.deliver(1, opened(12), Kind::WsOpen);
    REQUIRE(answer.sockets.size() == 20);
    CHECK(answer.sockets[19].data == "ann: line 29");
    CHECK(message(10, std::string(40'000, 'x')).sockets[0].data.size() == 405);
    // After a restart nobody is there; the lines are.
    CHECK(runtime.deliver(1, {}, Kind::Restored).status == abi::DeliverStatus::Ok);
    CHECK(runtime.get(1, "/").body.empty());
    for (std::uint64_t i = 0; i < 400; ++i)
        CHECK(runtime.deliver(1, opened(100 + i), Kind::WsOpen).reply == 0);
    CHECK(runtime.deliver(1, opened(1000), Kind::WsOpen).reply == 503);
    CHECK(message(100, "/name " + std::string(32, 'n')).status == abi::DeliverStatus::Ok);
    answer = message(100, std::string(400, 'y'));
    REQUIRE(answer.sockets.size() == 1);
    CHECK(answer.sockets[0].also.size() == 399);
}

TEST_CASE("notes_in_rust_are_kept_listed_and_told_once") {
    if (!std::filesystem::exists(HF_NOTES_WASM)) {
        MESSAGE("skipped: " HF_NOTES_WASM " was not built, Debian's rustc is not installed");
        return;
    }
    Plain runtime({build("notes", HF_NOTES_WASM)});
    REQUIRE_MESSAGE(runtime.ready, runtime.error);
    CHECK(runtime.activate(1, "notes").empty());
    const auto put = [&](const std::string& name, const std::string& text) {
        return runtime.deliver(1, http_event("PUT", "/" + name, text));
    };
    const Answer kept = put("milk", "two bottles");
    CHECK(kept.body == "kept\n");
    CHECK(kept.sends == std::vector<Sent>{{"journal/all", "noted", "milk"}});
    CHECK(put("mice", std::string(3000, 'm')).reply == 200);
    CHECK(put("bread", "one").reply == 200);
    CHECK(runtime.get(1, "/milk").body == "two bottles");
    CHECK(runtime.get(1, "/").body == "bread 3\nmice 3000\nmilk 11\n");
    CHECK(runtime.get(1, "/?mi").body == "mice 3000\nmilk 11\n");
    CHECK(runtime.deliver(1, http_event("DELETE", "/milk")).reply == 200);
    CHECK(runtime.deliver(1, http_event("DELETE", "/milk")).reply == 404);
    CHECK(runtime.get(1, "/milk").reply == 404);
    CHECK(runtime.deliver(1, http_event("PATCH", "/milk")).reply == 405);
    // A limit of the host is the caller's answer, and nothing is kept.
    CHECK(put("big", std::string(48 * 1024, 'b')).error.starts_with("limit "));
    CHECK(put("\xff\xfe", "x").status == abi::DeliverStatus::Failed);
    CHECK(runtime.get(1, "/").body == "bread 3\nmice 3000\n");
    CHECK(runtime.deliver(1, call_event("x", ""), Kind::Call).status == abi::DeliverStatus::Failed);
    CHECK(std::find(runtime.logs.begin(), runtime.logs.end(), "actor/t/c/n: milk has 11 bytes") !=
          runtime.logs.end());
}

}  // namespace hf::examples
