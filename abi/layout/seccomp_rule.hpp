// Seccomp rules as data: who may call what, and why. Tables of these lie in jail/profile_*.cpp (the first filter) and
// abi/sdk/lockdown_profiles.cpp (the second); seccomp_filter.hpp turns them into a filter.
//
// A filter is three lists: what is allowed, what is forbidden (the process ends and the call is named), and everything
// else, which answers ENOSYS so that a newer library falls back to an older call.
#pragma once

#include <cstdint>
#include <span>

namespace hf::layout {

// One test of one argument of the call. Pointers cannot be looked into.
struct Condition {
    enum class Test : std::uint8_t { Always, Equal, NotEqual, MaskedEqual, OwnPid, NotOwnPid };
    Test test = Test::Always;
    std::uint8_t arg = 0;
    std::uint64_t mask = 0;
    std::uint64_t value = 0;
    friend bool operator==(const Condition&, const Condition&) = default;
};

struct Rule {
    const char* call;
    Condition when;
    const char* reason;  // who needs it, or what it would open up
};

using Rules = std::span<const Rule>;

inline constexpr Condition kAlways{};
constexpr Condition arg_is(std::uint8_t arg, std::uint64_t value) {
    return {Condition::Test::Equal, arg, 0, value};
}
constexpr Condition arg_is_not(std::uint8_t arg, std::uint64_t value) {
    return {Condition::Test::NotEqual, arg, 0, value};
}
constexpr Condition arg_masked(std::uint8_t arg, std::uint64_t mask, std::uint64_t value) {
    return {Condition::Test::MaskedEqual, arg, mask, value};
}
constexpr Condition arg_has(std::uint8_t arg, std::uint64_t bits) {
    return arg_masked(arg, bits, bits);
}
constexpr Condition arg_lacks(std::uint8_t arg, std::uint64_t bits) {
    return arg_masked(arg, bits, 0);
}
// The argument names (or does not name) the process the filter is laid on.
constexpr Condition arg_is_own_pid(std::uint8_t arg) {
    return {Condition::Test::OwnPid, arg, 0, 0};
}
constexpr Condition arg_is_foreign_pid(std::uint8_t arg) {
    return {Condition::Test::NotOwnPid, arg, 0, 0};
}

// Forbidden to every plugin by both filters (seccomp_forbidden.cpp).
extern const Rules kForbiddenToAll;
// Forbidden unless a profile needs the group.
extern const Rules kForbiddenExec;        // all but the builder
extern const Rules kForbiddenFork;        // all but the builder
extern const Rules kForbiddenSockets;     // all but gateways
extern const Rules kForbiddenRawSockets;  // gateways: families beyond IP and unix
extern const Rules
    kForbiddenMemoryFiles;  // all that make no large bodies, but for the wasm runtime
// To those that make them: every memory file but the one kind that the last group lets through.
extern const Rules kForbiddenOpenMemoryFiles;
extern const Rules kAllowSealableMemoryFiles;
extern const Rules kForbiddenResize;  // all but storage, runtime and builder
// To those that make connections of their own, by both filters: sockets of IP, names, timers (seccomp_outgoing.cpp).
extern const Rules kAllowOutgoing;

}  // namespace hf::layout
