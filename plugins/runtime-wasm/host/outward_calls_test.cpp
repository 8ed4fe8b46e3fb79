// Cursors, answers by kind, alarms, messages and sockets from the guest's side: results, limits, bad pointers.
#include <doctest/doctest.h>

#include "plugins/runtime-wasm/testing/machine.hpp"

namespace hf::wasm {

using namespace testing;  // NOLINT(google-build-using-namespace): the machine's steps

namespace {

constexpr auto kHttp = static_cast<std::uint32_t>(Kind::Http);
constexpr auto kCall = static_cast<std::uint32_t>(Kind::Call);
constexpr auto kAlarm = static_cast<std::uint32_t>(Kind::Alarm);
constexpr auto kWsOpen = static_cast<std::uint32_t>(Kind::WsOpen);
constexpr auto kWsMessage = static_cast<std::uint32_t>(Kind::WsMessage);
constexpr Text kNone{0, 0};
constexpr Text kA{kLetters.at, 1};
constexpr Text kB{kLetters.at + 6, 1};
constexpr std::uint32_t kDescending = 1;
constexpr std::uint32_t kKeysOnly = 2;
constexpr std::uint32_t kMost = 48 * 1024;

Stage& stage() {
    static Stage instance(wasm_of(machine()));
    REQUIRE(instance.error == "");
    return instance;
}

Ran run(std::uint64_t activation, const std::vector<Step>& steps, std::uint32_t kind = kHttp) {
    return stage().run(activation, kind, program(steps));
}

// The two-letter keys "ab", "ac", "ad", "ba", "bb", "bc" by number.
Text letters(std::uint32_t n) {
    return {kLetters.at + 2 * n, 2};
}

void fill(std::uint64_t activation) {
    std::vector<Step> puts;
    for (std::uint32_t i = 0; i < 6; ++i) puts.push_back(put(letters(i), kValue));
    CHECK(run(activation, puts).ended == Ended::Ok);
}

// What `steps` meets when it walks on with `pairs` calls of kv_next: the keys, and the last result.
struct Walked {
    std::string keys;
    std::int32_t last = 0;
};
Walked walk(std::uint64_t activation, std::vector<Step> steps, std::uint32_t pairs = 8) {
    const std::size_t head = steps.size();
    for (std::uint32_t i = 0; i < pairs; ++i) steps.push_back(next(kLast, kFree + 64 * i, 64));
    for (std::uint32_t i = 0; i < pairs; ++i) steps.push_back(word(kFree + 64 * i + 8));
    const Words words = results(run(activation, steps));
    REQUIRE(words.size() == head + 2 * pairs);
    Walked out;
    for (std::size_t i = 0; i < pairs; ++i) {
        out.last = words[head + i];
        if (out.last < 0) break;
        const auto key = static_cast<std::uint32_t>(words[head + pairs + i]);
        out.keys += {static_cast<char>(key), static_cast<char>(key >> 8), ' '};
    }
    return out;
}

std::string failed(const Ran& ran, Ended ended = Ended::Limit) {
    CHECK(ran.ended == ended);
    CHECK(ran.changes.empty());
    CHECK_FALSE(ran.output->replied);
    return ran.error;
}

}  // namespace

TEST_CASE("a_cursor_walks_a_prefix_both_ways_from_a_start_and_up_to_a_limit") {
    fill(1);
    CHECK(walk(1, {list(kNone, kNone, 0, 0)}).keys == "ab ac ad ba bb bc ");
    CHECK(walk(1, {list(kA, kNone, 0, 0)}).keys == "ab ac ad ");
    CHECK(walk(1, {list(kA, letters(1), 0, 0)}).keys == "ac ad ");
    CHECK(walk(1, {list(kB, letters(1), 0, 0)}).keys == "ba bb bc ");  // a start before the prefix
    CHECK(walk(1, {list(kA, kB, 0, 0)}).keys.empty());                 // and one behind it
    CHECK(walk(1, {list(kNone, kNone, 2, 0)}).keys == "ab ac ");
    CHECK(walk(1, {list(kKey, kNone, 0, 0)}).keys.empty());
    CHECK(walk(1, {list(kNone, kNone, 0, kDescending)}).keys == "bc bb ba ad ac ab ");
    CHECK(walk(1, {list(kA, kNone, 0, kDescending)}).keys == "ad ac ab ");
    CHECK(walk(1, {list(kB, letters(4), 0, kDescending)}).keys == "bb ba ");
    CHECK(walk(1, {list(kA, letters(4), 1, kDescending)}).keys == "ad ");
    CHECK(walk(1, {list(kB, letters(1), 0, kDescending)}).keys.empty());
    CHECK(walk(1, {list(kNone, kNone, 0, 0)}).last == -1);
    // 8 bytes of lengths, 2 of key, 5 of value.
    CHECK(walk(1, {list(kNone, kNone, 0, 0)}, 1).last == 15);
    CHECK(walk(1, {list(kNone, kNone, 0, kKeysOnly)}, 1).last == 10);
}

TEST_CASE("a_pair_that_does_not_fit_comes_again_and_is_not_half_written") {
    fill(2);
    const Words words = results(run(2,
                                    {list(kNone, kNone, 2, 0),
                                     next(kLast, kFree, 14),
                                     word(kFree),
                                     next(kLast, kFree, 15),
                                     word(kFree),
                                     word(kFree + 4),
                                     next(kLast, kFree, 15),
                                     next(kLast, kFree, 15)}));
    CHECK(Words(words.begin() + 1, words.end()) == Words{15, 0, 15, 2, 5, 15, -1});
}

TEST_CASE("a_cursor_sees_the_writes_of_its_event") {
    fill(3);
    CHECK(walk(3, {erase(letters(0)), erase(letters(3)), list(kNone, kNone, 0, 0)}).keys ==
          "ac ad bb bc ");
    // Written and deleted ahead of the cursor, behind it, and at it.
    fill(3);
    CHECK(walk(3,
               {list(kNone, kNone, 0, 0),
                next(),
                next(),  // at "ac"
                erase(letters(1)),
                erase(letters(2)),
                put({kLetters.at + 3, 2}, kValue),  // "ca": ahead
                put({kLetters.at + 3, 1}, kValue),  // "c": ahead too
                put(kA, kValue)},                   // "a": behind
               8)
              .keys.substr(0, 6) == "ba bb ");
    fill(4);
    CHECK(walk(4, {put(kKey, kValue), list(kNone, kNone, 0, kDescending)}, 2).keys == "ke bc ");
    // Nothing of a walk outlives its event, and what an undone event wrote is not met.
    CHECK(run(5, {put(kKey, kValue), list(kNone, kNone, 0, 0), finish(-9)}).ended == Ended::Failed);
    CHECK(walk(5, {list(kNone, kNone, 0, 0)}).keys.empty());
}

TEST_CASE("sixteen_cursors_at_once_and_a_closed_ones_number_is_nobodys") {
    fill(6);
    std::vector<Step> steps;
    for (int i = 0; i < 17; ++i) steps.push_back(list(kNone, kNone, 0, 0));
    Words words = results(run(6, steps));
    for (int i = 0; i < 16; ++i) CHECK(words[static_cast<std::size_t>(i)] >= 0);
    CHECK(words[16] == -3);
    const auto first = static_cast<std::uint32_t>(words[0]);
    // Another event: the number means nothing any more, nor does any other.
    CHECK(results(run(6, {next(first), next(5), close(first), close(0x7fffffff)})) ==
          Words{-2, -2, -2, -2});
    words = results(run(6, {list(kNone, kNone, 0, 0), close(), next(), close()}));
    CHECK(Words(words.begin() + 1, words.end()) == Words{0, -2, -2});
    steps.push_back(finish(-1));
    CHECK(failed(run(6, steps)) == "limit cursors_max: 16 allowed, 17 asked for");
    CHECK(results(run(6, {list(kNone, kNone, 0, 4)})) == Words{-2});
    CHECK(failed(run(6, {list({0, 513}, kNone, 0, 0), finish(-1)})) ==
          "limit key_bytes: 512 allowed, 513 asked for");
}

TEST_CASE("wild_pointers_of_every_call_trap_and_leave_nothing") {
    constexpr Text kWild{kMemoryEnd - 1, 2};
    constexpr Text kFar{0xfffffff0, 64};
    fill(7);
    const Step wild[] = {list(kWild, kNone, 0, 0),
                         list(kNone, kFar, 0, 0),
                         next(kLast, kMemoryEnd - 4, 8),
                         reply(kWild),
                         call(kWild, kMethod, kValue),
                         call(kTarget, kFar, kValue),
                         call(kTarget, kMethod, kWild),
                         result(0, kMemoryEnd, 1),
                         send(kFar, kMethod, kValue),
                         send(kTarget, kWild, kValue),
                         send(kTarget, kMethod, {0, 0xffffffff}),
                         ws_send(1, 1, kWild),
                         ws_close(1, 1000, kFar)};
    for (const Step& step : wild)
        CHECK(failed(run(7,
                         {put(kKey, kValue),
                          send(kTarget, kMethod, kValue),
                          list(kNone, kNone, 0, 0),
                          step}),
                     Ended::Trapped) == "trap: out of bounds memory or table access");
    CHECK(results(run(7, {get(kKey)})) == Words{-1});
}

TEST_CASE("each_kind_has_its_own_answer_and_only_one") {
    // An HTTP event's is http_reply, a call's is reply.
    Ran ran = run(8, {reply(kValue), http_reply(404, kValue), http_reply(200, kKey)});
    CHECK(ran.output->reply_status == 404);
    CHECK(Stage::body(ran) == "value");
    ran = run(8, {http_reply(200, kValue), reply(kKey), reply(kValue)}, kCall);
    CHECK(ran.output->replied);
    CHECK(ran.output->reply_status == 0);
    CHECK(Stage::body(ran) == "key");
    CHECK(results(run(8, {http_reply(200, kValue), reply({0, kMost + 1})}, kCall)) ==
          Words{-7, -3});
    CHECK(failed(run(8, {reply({0, kMost + 1}), finish(-1)}, kCall)) ==
          "limit reply_bytes: 49152 allowed, 49153 asked for");
    CHECK_FALSE(run(8, {finish(0)}, kCall).output->replied);
    // A WebSocket may be accepted by 101, and by it alone of its kind.
    ran = run(8, {http_reply(100, kNone), http_reply(101, kNone)}, kWsOpen);
    CHECK(ran.output->reply_status == 101);
    CHECK(run(8, {http_reply(403, kNone)}, kWsOpen).output->reply_status == 403);
    CHECK(results(run(8, {http_reply(101, kNone)})) == Words{-2});
    CHECK_FALSE(run(8, {reply(kKey), http_reply(200, kKey)}, kWsMessage).output->replied);
}

TEST_CASE("an_alarm_is_known_from_the_activation_and_undone_with_its_event") {
    Residents& residents = stage().residents;
    REQUIRE(residents.open(9, "u", stage().actor_class).ok());
    REQUIRE(residents.part(9, 0, true, 5'000).ok());
    CHECK(results(run(9, {alarm_get()})) == Words{5000});
    // Read only: the answer leaves it as it is.
    Ran ran = run(9, {alarm_get()});
    CHECK_FALSE(ran.output->alarm_touched);
    ran = run(9, {alarm_set(std::int64_t{1} << 40), alarm_set(7'000), alarm_get()});
    CHECK(results(ran) == Words{0, 0, 7000});
    CHECK(ran.output->alarm_touched);
    CHECK(ran.output->alarm_ms == 7000);
    CHECK(results(run(9, {alarm_set(0), alarm_set(-5)})) == Words{-2, -2});
    CHECK(run(9, {alarm_set(8'000), finish(-1)}).ended == Ended::Failed);
    CHECK(run(9, {alarm_clear(), trap()}).ended == Ended::Trapped);
    CHECK(results(run(9, {alarm_get()})) == Words{7000});
    ran = run(9, {alarm_clear(), alarm_get()});
    CHECK(results(ran) == Words{0, 0});
    CHECK(ran.output->alarm_touched);
    CHECK(results(run(9, {alarm_get(), alarm_set(9'000)})) == Words{0, 0});
    // Delivered, it is not set any more; delivered in vain, it is.
    CHECK(run(9, {alarm_get(), finish(-1)}, kAlarm).ended == Ended::Failed);
    CHECK(results(run(9, {alarm_get()})) == Words{9000});
    CHECK(run(9, {alarm_get(), word(kResults), put(kKey, {kResults, 4})}, kAlarm).ended ==
          Ended::Ok);
    CHECK(results(run(9, {get(kKey), word(kFree), alarm_get()})) == Words{4, 0, 0});
    ran = run(9, {alarm_set(9'500)}, kAlarm);
    CHECK(ran.output->alarm_touched);
    CHECK(results(run(9, {alarm_get()})) == Words{9500});
}

TEST_CASE("messages_are_gathered_in_order_within_their_limits") {
    Ran ran = run(10, {send(kTarget, kMethod, kValue), send(kTarget, kNone, kNone), passivate()});
    REQUIRE(ran.output->sends.size() == 2);
    CHECK(ran.output->sends[0].target == "bank/alice");
    CHECK(ran.output->sends[0].method == "pay");
    CHECK(as_text(ran.output->sends[0].payload) == "value");
    CHECK(ran.output->sends[1].method.empty());
    CHECK(ran.output->passivate);
    CHECK_FALSE(run(10, {finish(0)}).output->passivate);
    CHECK(run(10, {finish(0)}).output->sends.empty());
    CHECK(results(run(10,
                      {send(kKey, kMethod, kValue),
                       send({kTarget.at, 5}, kMethod, kValue),      // "bank/"
                       send({kTarget.at + 4, 6}, kMethod, kValue),  // "/alice"
                       send(kNone, kMethod, kValue),
                       call(kKey, kMethod, kValue),
                       entity_send(),
                       entity_ask()})) == Words{-2, -2, -2, -2, -2, -7, -7});

    const auto limit = [](std::vector<Step> steps) {
        steps.push_back(finish(-1));
        return failed(run(10, steps));
    };
    CHECK(limit(std::vector<Step>(33, send(kTarget, kMethod, kNone))) ==
          "limit sends_max: 32 allowed, 33 asked for");
    // With what it costs beside its bytes: 13 + 48.
    CHECK(results(run(10, {send(kTarget, kMethod, {0, kMost - 61})})) == Words{0});
    CHECK(limit({send(kTarget, kMethod, {0, kMost - 60})}) ==
          "limit send_bytes: 49152 allowed, 49153 asked for");
    // One entry holds both.
    CHECK(limit({put(kKey, {0, 30'000}), send(kTarget, kMethod, {0, 20'000})})
              .starts_with("limit send_bytes"));
    CHECK(limit({send(kTarget, kMethod, {0, 20'000}), put(kKey, {0, 30'000})})
              .starts_with("limit changes_bytes"));
    CHECK(limit({send(kTarget, kMethod, {0, 49'000}), erase(kKey), put(kKey, kValue), erase(kKey)})
              .starts_with("limit changes_bytes"));
    CHECK(limit({http_reply(200, {0, 40'000}), send(kTarget, kMethod, {0, 30'000})})
              .starts_with("limit event_output_bytes: 61440 allowed"));
    CHECK(limit({send({kTarget.at, 401}, kMethod, kNone)}) ==
          "limit target_bytes: 400 allowed, 401 asked for");
    CHECK(limit({send(kTarget, {0, 257}, kNone)}) ==
          "limit method_bytes: 256 allowed, 257 asked for");
    CHECK(limit({call(kTarget, kMethod, {0, kMost + 1})}) ==
          "limit call_bytes: 49152 allowed, 49153 asked for");
    CHECK(run(10, {finish(0)}).output->sends.empty());
}

TEST_CASE("socket_commands_are_gathered_in_order_within_their_limits") {
    const Ran ran = run(
        11, {ws_send(7, 1, kValue), ws_send(8, 2, kKey), ws_close(7, 1000, kValue)}, kWsMessage);
    REQUIRE(ran.output->sockets.size() == 3);
    const auto& commands = ran.output->sockets;
    CHECK(commands[0].connection == 7);
    CHECK_FALSE(commands[0].binary);
    CHECK(as_text(commands[0].data) == "value");
    CHECK(commands[1].binary);
    CHECK(commands[2].close);
    CHECK(commands[2].code == 1000);
    CHECK(results(run(11,
                      {ws_send(1, 0, kKey),
                       ws_send(1, 3, kKey),
                       ws_close(1, 1005, kNone),
                       ws_close(1, 999, kNone),
                       ws_close(1, 1006, kNone),
                       ws_close(1, 5000, kNone),
                       ws_close(1, 0x10000 + 1000, kNone),
                       ws_close(1, 4999, kNone)})) == Words{-2, -2, -2, -2, -2, -2, -2, 0});
    const auto limit = [](std::vector<Step> steps) {
        steps.push_back(finish(-1));
        return failed(run(11, steps));
    };
    std::vector<Step> in_turn;
    for (std::uint32_t i = 0; i < 65; ++i) in_turn.push_back(ws_send(1, 1 + i % 2, kKey));
    CHECK(limit(in_turn) == "limit socket_commands_max: 64 allowed, 65 asked for");
    CHECK(limit(std::vector<Step>(65, ws_close(1, 1000, kKey))) ==
          "limit socket_commands_max: 64 allowed, 65 asked for");
    CHECK(limit({ws_close(1, 1000, {0, 124})}) == "limit reason_bytes: 123 allowed, 124 asked for");
    CHECK(limit({ws_send(1, 1, {0, kMost + 1})}) ==
          "limit socket_bytes: 49152 allowed, 49153 asked for");
    CHECK(limit({ws_send(1, 1, {0, kMost}), ws_send(1, 1, {0, 12'200})})
              .starts_with("limit event_output_bytes: 61440 allowed"));
    CHECK(limit({ws_send(1, 1, {0, 40'000}), put(kKey, {0, 30'000})})
              .starts_with("limit event_output_bytes"));
}

TEST_CASE("the_same_message_to_many_connections_is_one_command") {
    using Numbers = std::vector<std::uint64_t>;
    // "value" and "abaca" differ, as long as each other; a copy of a message is the same message.
    const Text other{kLetters.at, kValue.size};
    const Ran ran = run(11,
                        {ws_send(1, 1, kValue),
                         ws_send(2, 1, kValue),
                         put(kKey, kValue),
                         get(kKey, kFree),
                         ws_send(3, 1, {kFree, kValue.size}),
                         ws_send(1, 1, kValue),
                         ws_send(4, 2, kValue),
                         ws_send(4, 2, other),
                         ws_close(5, 1000, kNone),
                         ws_send(6, 1, kNone),
                         ws_send(7, 1, kNone),
                         ws_send(8, 1, kValue)});
    CHECK(results(ran) == Words{0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0});
    const auto& commands = ran.output->sockets;
    REQUIRE(commands.size() == 6);
    CHECK(commands[0].connection == 1);
    CHECK(commands[0].also == Numbers{2, 3, 1});
    CHECK(as_text(commands[0].data) == "value");
    // Another kind, other bytes, a close between: each is a command of its own, and the order stays.
    CHECK(commands[1].connection == 4);
    CHECK(commands[1].binary);
    CHECK(commands[1].also.empty());
    CHECK(as_text(commands[2].data) == "abaca");
    CHECK(commands[3].close);
    CHECK(commands[4].connection == 6);
    CHECK(commands[4].also == Numbers{7});
    CHECK(commands[5].connection == 8);
    CHECK(commands[5].also.empty());
    CHECK(ran.output->socket_targets == 10);
}

TEST_CASE("connections_of_one_event_have_a_limit_with_a_name") {
    const auto limit = [](std::vector<Step> steps) {
        steps.push_back(finish(-1));
        return failed(run(11, steps));
    };
    const Ran ran = run(11, {ws_send_each(0, 1024, 1, kValue)});
    CHECK(results(ran) == Words{0});
    REQUIRE(ran.output->sockets.size() == 1);
    CHECK(ran.output->sockets[0].also.size() == 1023);
    CHECK(limit({ws_send_each(0, 1025, 1, kValue)}) ==
          "limit socket_targets_max: 1024 allowed, 1025 asked for");
    // Of all commands together, whatever they do.
    CHECK(limit({ws_send_each(0, 1000, 1, kValue),
                 ws_send_each(0, 24, 1, kKey),
                 ws_close(1, 1000, kNone)}) ==
          "limit socket_targets_max: 1024 allowed, 1025 asked for");
    // Each adds its number to what the event leaves: 49152 + 48 + 1024 * 8, and the rest is too much.
    CHECK(results(run(11, {ws_send_each(0, 1024, 2, {0, kMost})})) == Words{0});
    CHECK(limit({ws_send_each(0, 1024, 2, {0, kMost}), put(kKey, {0, 4200})})
              .starts_with("limit event_output_bytes"));
    // What an earlier event named does not count.
    CHECK(results(run(11, {ws_send_each(0, 1024, 1, kValue)})) == Words{0});
}

TEST_CASE("stop_and_restored_reach_those_who_ask_for_them") {
    CHECK(run(12, {put(kKey, kValue)}, static_cast<std::uint32_t>(Kind::Stop)).state_bytes > 0);
    CHECK(run(12, {erase(kKey)}, static_cast<std::uint32_t>(Kind::Restored)).state_bytes == 0);
    Stage deaf(wasm_of(actor(kAllImports, R"(
        (func (export "actor_event") (param i32 i32 i32) (result i32) unreachable))")));
    REQUIRE(deaf.error == "");
    CHECK(deaf.run(1, static_cast<std::uint32_t>(Kind::Stop)).ended == Ended::Ok);
    CHECK(deaf.run(1, static_cast<std::uint32_t>(Kind::Restored)).ended == Ended::Ok);
    CHECK(deaf.run(1, kHttp).ended == Ended::Trapped);
}

}  // namespace hf::wasm
