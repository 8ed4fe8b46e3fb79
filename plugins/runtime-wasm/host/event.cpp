#include "plugins/runtime-wasm/host/event.hpp"

#include <algorithm>

namespace hf::wasm {

void Event::reset(UnitState* unit_state,
                  Kind event_kind,
                  std::int64_t time_ms,
                  std::int64_t alarm) {
    state = unit_state;
    kind = event_kind;
    now_ms = time_ms;
    replied = false;
    reply_status = 0;
    reply_headers.clear();
    reply_body.clear();
    reply_large.reset();
    reply_large_bytes = 0;
    alarm_ms = alarm;
    alarm_touched = false;
    sends.clear();
    send_bytes = 0;
    sockets.clear();
    socket_bytes = 0;
    socket_targets = 0;
    passivate = false;
    if (call.n != 0) {
        call.n = 0;
        results.clear();
        results_first = 0;
        results_bytes = 0;
    }
    if (cursors_open > 0)
        for (Cursor& cursor : cursors) cursor.open = false;
    cursors_open = 0;
    limit = LimitHit{};
    abort.clear();
    logs.clear();
    log_lines = 0;
    logs_dropped = 0;
    if (lines_open)
        for (std::string& line : open_lines) line.clear();
    lines_open = false;
}

void Event::answered(std::int32_t code, BytesView payload) {
    call.what.payload.clear();
    if (code < 0) {
        call_code = code;
        return;
    }
    call_code = static_cast<std::int32_t>(results.size());
    results.emplace_back(payload.begin(), payload.end());
    results_bytes += payload.size();
    while (results_bytes > kResultsBytesMax) {
        results_bytes -= results[results_first].size();
        results[results_first++] = Bytes();
    }
}

void Event::add_log(std::uint32_t level, std::string_view text) {
    if (log_lines >= kLogLinesPerEventMax) {
        ++logs_dropped;
        return;
    }
    ++log_lines;
    logs.push_back({std::min(level, 4u), std::string(text.substr(0, kLogLineBytesMax))});
}

void Event::end_open_lines() {
    lines_open = false;
    for (std::size_t i = 0; i < open_lines.size(); ++i) {
        if (open_lines[i].empty()) continue;
        add_log(i == 0 ? 2 : 3, open_lines[i]);
        open_lines[i].clear();
    }
}

void Event::forget_logs() {
    logs.clear();
    logs_dropped = 0;
}

}  // namespace hf::wasm
