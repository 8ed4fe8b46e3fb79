// A guest that does what its event says: a program of calls of the guest ABI, whose results are what it answers.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm::testing {

// One step: what to do and up to seven words for it. Its result is gathered, and the whole answered as reply or
// http_reply, whichever the event takes, unless `finish` ends it earlier.
struct Step {
    std::uint32_t op = 0;
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    std::uint32_t c = 0;
    std::uint32_t d = 0;
    std::uint32_t e = 0;
    std::uint32_t f = 0;
    std::uint32_t g = 0;
};

// Texts in the guest's memory.
struct Text {
    std::uint32_t at;
    std::uint32_t size;
};
inline constexpr Text kKey{16, 3};       // "key"
inline constexpr Text kValue{32, 5};     // "value"
inline constexpr Text kTarget{64, 10};   // "bank/alice"
inline constexpr Text kMethod{80, 3};    // "pay"
inline constexpr Text kLetters{96, 12};  // "abacadbabbbc": keys "ab", "ac", "ad", "ba", "bb", "bc"
inline constexpr std::uint32_t kMemoryEnd = 131'072;
inline constexpr std::uint32_t kResults = 32'768;
inline constexpr std::uint32_t kFree = 65'536;  // from here to the end nobody keeps anything

inline Step get(Text key, std::uint32_t out = kFree, std::uint32_t cap = 8) {
    return {1, key.at, key.size, out, cap};
}
inline Step put(Text key, Text value) {
    return {2, key.at, key.size, value.at, value.size};
}
inline Step erase(Text key) {
    return {3, key.at, key.size};
}
inline Step http_reply(std::uint32_t status, Text body, std::uint32_t headers = 0) {
    return {4, status, headers, body.at, body.size};
}
inline Step log(std::uint32_t level, Text text) {
    return {5, level, text.at, text.size};
}
inline Step random(std::uint32_t at, std::uint32_t size) {
    return {6, at, size};
}
inline Step abort(Text text) {
    return {7, text.at, text.size};
}
// 1 when the clock shows that many seconds.
inline Step clock_shows(std::uint32_t seconds) {
    return {8, seconds};
}
inline Step finish(std::int32_t rc) {
    return {9, static_cast<std::uint32_t>(rc)};
}
inline Step list(Text prefix, Text start, std::uint32_t limit, std::uint32_t flags) {
    return {10, prefix.at, prefix.size, start.at, start.size, limit, flags};
}
// As a cursor: the one that list() opened last.
inline constexpr std::uint32_t kLast = 0xffffffff;
inline Step next(std::uint32_t cursor = kLast,
                 std::uint32_t out = kFree,
                 std::uint32_t cap = 1000) {
    return {11, cursor, out, cap};
}
inline Step close(std::uint32_t cursor = kLast) {
    return {12, cursor};
}
inline Step reply(Text body) {
    return {13, body.at, body.size};
}
inline Step alarm_set(std::int64_t ms) {
    const auto bits = static_cast<std::uint64_t>(ms);
    return {14, static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32)};
}
// The lower half.
inline Step alarm_get() {
    return {15};
}
inline Step alarm_clear() {
    return {16};
}
inline Step call(Text target, Text method, Text body, std::uint32_t timeout_ms = 0) {
    return {17, target.at, target.size, method.at, method.size, body.at, body.size, timeout_ms};
}
inline Step result(std::uint32_t handle, std::uint32_t out = kFree, std::uint32_t cap = 1000) {
    return {18, handle, out, cap};
}
inline Step send(Text target, Text method, Text body) {
    return {19, target.at, target.size, method.at, method.size, body.at, body.size};
}
inline Step entity_send() {
    return {20, kTarget.at, kTarget.size};
}
inline Step entity_ask() {
    return {21, kTarget.at, kTarget.size};
}
inline Step ws_send(std::uint32_t connection, std::uint32_t kind, Text data) {
    return {22, connection, kind, data.at, data.size};
}
// The same to each connection from `first` on, before `end`; the first refusal ends it.
inline Step ws_send_each(std::uint32_t first, std::uint32_t end, std::uint32_t kind, Text data) {
    return {31, first, kind, data.at, data.size, end};
}
inline Step ws_close(std::uint32_t connection, std::uint32_t code, Text reason) {
    return {23, connection, code, reason.at, reason.size};
}
inline Step passivate() {
    return {24};
}
inline Step trap() {
    return {25};
}
// So many rounds of a loop that stores.
inline Step burn(std::uint32_t rounds) {
    return {26, rounds};
}
inline Step spin() {
    return {27};
}
// For ever, with a call of the host in each frame, and without one: a fault.
inline Step recurse() {
    return {28};
}
inline Step recurse_alone() {
    return {30};
}
// The word at an address.
inline Step word(std::uint32_t at) {
    return {29, at};
}

std::string machine();
Bytes program(const std::vector<Step>& steps);
// The steps' results; checks that the event ended well.
std::vector<std::int32_t> results(const Ran& ran);
using Words = std::vector<std::int32_t>;

}  // namespace hf::wasm::testing
