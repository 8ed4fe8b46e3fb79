// What one event may touch and what it leaves: the seam between the guest ABI's functions and whoever runs events.
// Reused from event to event; reset() keeps the buffers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/base/bytes.hpp"
#include "abi/base/limits.hpp"
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

struct LogLine {
    std::uint32_t level = 0;
    std::string text;
};

struct Event {
    UnitState* state =
        nullptr;  // null in the image phase: everything that is not pure computing stops the guest
    std::int64_t now_ms = 0;

    bool replied = false;
    std::uint16_t reply_status = 0;
    Bytes reply_headers;
    Bytes reply_body;
    LimitHit limit;     // the last limit a host function refused by
    std::string abort;  // why, when the guest was stopped by Stop::Abort
    std::vector<LogLine> logs;
    std::uint32_t logs_dropped = 0;

    void reset(UnitState* unit_state, std::int64_t time_ms);
    [[nodiscard]] std::size_t reply_bytes() const {
        return reply_headers.size() + reply_body.size();
    }
};

// Fills the guest ABI's part of the host table. They act on Event through Instance::event.
void fill_guest_calls(hf_host_v1& host);

}  // namespace hf::wasm
