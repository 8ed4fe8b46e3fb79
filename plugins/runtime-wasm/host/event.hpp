// What one event may touch and what it leaves: the seam between the guest ABI's functions and whoever runs events.
// Reused from event to event; reset() keeps the buffers. While its guest waits for an answer it lies still.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/limits.hpp"
#include "abi/base/unique_fd.hpp"
#include "plugins/runtime-wasm/engine/program.hpp"
#include "plugins/runtime-wasm/state/unit_state.hpp"

namespace hf::wasm {

// A Delivered must fit one record beside its envelope, error sentence and padding, for which 4 KiB stay.
inline constexpr std::size_t kEventOutputBytesMax = kRecordBytesMax - 4 * 1024;
// One call of `random`: a host function cannot be interrupted, so it must be short.
inline constexpr std::uint32_t kRandomBytesMax = 64 * 1024;
// A log line is cut here, an event's further lines are counted only: a screenful is what a person reads of one event.
inline constexpr std::uint32_t kLogLineBytesMax = 1024;
inline constexpr std::size_t kLogLinesPerEventMax = 16;
// The message of abort(): it travels in `error` of a Delivered.
inline constexpr std::uint32_t kAbortBytesMax = 256;
// What one send or socket command costs in a Delivered beyond its bytes: table, place in the list, lengths, padding.
inline constexpr std::size_t kOutputOverheadBytes = 48;
// Tables of a Delivered are bounded by the schema (192); these two leave half of it.
inline constexpr std::size_t kSendsMax = 32;
inline constexpr std::size_t kSocketCommandsMax = 64;
// Connections that the socket commands of one event name together. Their numbers take 8 KiB of an answer, and a message of
// the largest size to all of them 48 MiB of the gateway's ring, which it reads in some 50 ms.
inline constexpr std::size_t kSocketTargetsMax = 1024;
// What each costs: its number.
inline constexpr std::size_t kSocketTargetBytes = 8;
// Each waits for another actor: more than this in one event is a loop.
inline constexpr std::uint32_t kCallsMax = 256;
// A unit's name in its longest form, and what anybody would call a method.
inline constexpr std::uint32_t kTargetBytesMax = kUnitBytesMax;
inline constexpr std::uint32_t kMethodBytesMax = 256;
// RFC 6455: a control frame has 125 bytes, two of them are the code.
inline constexpr std::uint32_t kReasonBytesMax = 123;
inline constexpr std::size_t kCursorsMax = 16;
// Answers an event keeps for result_read, the oldest go first. Five full ones; a thousand waiting events hold 256 MiB.
inline constexpr std::size_t kResultsBytesMax = 256 * 1024;

// Kinds of events, as guest ABI v1 numbers them.
enum class Kind : std::uint32_t {
    None = 0,
    Http = 1,
    Call = 2,
    Alarm = 3,
    WsOpen = 4,
    WsMessage = 5,
    WsClose = 6,
    Restored = 7,
    Stop = 8,
};

struct LogLine {
    std::uint32_t level = 0;
    std::string text;
};

struct OutwardSend {
    std::string target;
    std::string method;
    Bytes payload;
};

struct SocketCommand {
    std::uint64_t connection = 0;
    bool close = false;
    std::uint16_t code = 0;  // of a close
    bool binary = false;
    Bytes data;  // of a close: the reason
    // Further connections that the same message is for, in order.
    std::vector<std::uint64_t> also = {};
};

// The call an event waits for, or waited for last.
struct OutwardCall {
    std::uint32_t n = 0;  // counts the calls of one event, from 1; 0: none yet
    OutwardSend what;
    std::uint32_t timeout_ms = 0;
};

struct Cursor {
    bool open = false;
    bool keys_only = false;
    bool bounded = false;
    std::uint32_t left = 0;  // pairs, when bounded
    std::uint32_t generation = 0;
    Walk walk;
};

struct Event {
    UnitState* state =
        nullptr;  // null in the image phase: everything that is not pure computing stops the guest
    Kind kind = Kind::None;
    std::int64_t now_ms = 0;

    bool replied = false;
    std::uint16_t reply_status = 0;
    Bytes reply_headers;
    Bytes reply_body;
    std::uint64_t body_max = kPayloadBytesMax;  // of a reply to a request
    UniqueFd reply_large;  // a body beyond a record, sealed; reply_body is empty then
    std::uint64_t reply_large_bytes = 0;
    std::int64_t alarm_ms = 0;  // 0: none is set
    bool alarm_touched = false;
    std::vector<OutwardSend> sends;
    std::size_t send_bytes = 0;  // with kOutputOverheadBytes each, as the next
    std::vector<SocketCommand> sockets;
    std::size_t socket_bytes = 0;    // with kSocketTargetBytes for each connection too
    std::size_t socket_targets = 0;  // connections they name
    bool passivate = false;

    OutwardCall call;
    std::int32_t call_code =
        0;  // what the resumed call answers; >= 0: its answer is the last of `results`
    std::vector<Bytes> results;     // by handle; empty once it had to go
    std::size_t results_first = 0;  // the oldest one that is kept
    std::size_t results_bytes = 0;

    std::size_t cursors_open = 0;
    LimitHit limit;     // the last limit a host function refused by
    std::string abort;  // why, when the guest was stopped by Stop::Abort
    std::vector<LogLine> logs;
    std::uint32_t log_lines = 0;  // of this event so far, those already told included
    std::uint32_t logs_dropped = 0;
    bool lines_open = false;
    std::array<std::string, 2> open_lines;  // of standard output and error, without their end yet
    std::array<Cursor, kCursorsMax> cursors;

    void reset(UnitState* unit_state, Kind event_kind, std::int64_t time_ms, std::int64_t alarm);
    // What the answer of a call becomes; only while the guest waits for it.
    void answered(std::int32_t code, BytesView payload);
    // Lines without an end become lines.
    void end_lines() {
        if (lines_open) end_open_lines();
    }
    void add_log(std::uint32_t level, std::string_view text);
    void forget_logs();

    // What leaves beside the changes of the state.
    [[nodiscard]] std::size_t other_bytes() const {
        return reply_headers.size() + reply_body.size() + send_bytes + socket_bytes;
    }
    // The limit that `more` bytes would break, if any.
    [[nodiscard]] LimitHit output_limit(std::size_t more) const {
        const std::size_t total = other_bytes() + state->change_bytes() + more;
        if (total <= kEventOutputBytesMax) return {};
        return {"event_output_bytes", kEventOutputBytesMax, total};
    }
    // Bytes that the changes of the state may take together, and the limit beyond.
    [[nodiscard]] ChangesRoom changes_room() const {
        const std::size_t other = other_bytes();
        // Neither passes its bound: output_limit() and the sends' own see to it.
        const std::size_t beside = kPayloadBytesMax - send_bytes;
        const std::size_t record = kEventOutputBytesMax - other;
        if (record < beside) return {record, "event_output_bytes"};
        return {beside, "changes_bytes"};
    }

private:
    void end_open_lines();
};

// Fills the guest ABI's part of the host table. They act on Event through Instance::event.
void fill_guest_calls(hf_host_v1& host);
// Parts of it: other actors, alarms and sockets; what C libraries import.
void fill_outward_calls(hf_host_v1& host);
void fill_wasi_calls(hf_host_v1& host);

}  // namespace hf::wasm
