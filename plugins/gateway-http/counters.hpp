// What this process has counted since its start, by name, for the supervisor's /metrics.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hf::gateway {

enum class Count : std::uint8_t {
    ConnectionsOpened,
    ConnectionsClosed,
    ConnectionsRefused,  // connections_max
    Requests,
    Answers2xx,
    Answers3xx,
    Answers4xx,
    Answers5xx,
    RefusedMalformed,  // what the gate refused, but for the limits below
    RefusedHeader,     // header_bytes_max, header_count_max
    RefusedTarget,     // target_bytes_max
    RefusedBody,       // body_bytes_max
    RefusedOpen,       // requests_open_max
    TimedOutHead,
    TimedOutBody,
    TimedOutRequest,  // no answer came: 504 by the gateway itself
    TimedOutWrite,
    ClientsGone,  // while their request was open
    LateAnswers,  // nobody waited for them any more
};
inline constexpr std::size_t kCounts = 19;

inline constexpr std::array<std::string_view, kCounts> kCountNames{"http_connections_opened",
                                                                   "http_connections_closed",
                                                                   "http_connections_refused",
                                                                   "http_requests",
                                                                   "http_answers_2xx",
                                                                   "http_answers_3xx",
                                                                   "http_answers_4xx",
                                                                   "http_answers_5xx",
                                                                   "http_refused_malformed",
                                                                   "http_refused_header",
                                                                   "http_refused_target",
                                                                   "http_refused_body",
                                                                   "http_refused_requests_open",
                                                                   "http_timed_out_head",
                                                                   "http_timed_out_body",
                                                                   "http_timed_out_request",
                                                                   "http_timed_out_write",
                                                                   "http_clients_gone",
                                                                   "http_late_answers"};

class Counters {
public:
    void add(Count what) {
        ++values_[static_cast<std::size_t>(what)];
        changed_ = true;
    }
    void add_answer(std::uint16_t status) {
        add(status < 300   ? Count::Answers2xx
            : status < 400 ? Count::Answers3xx
            : status < 500 ? Count::Answers4xx
                           : Count::Answers5xx);
    }
    [[nodiscard]] std::uint64_t value(std::size_t index) const { return values_[index]; }
    [[nodiscard]] bool changed() const { return changed_; }
    void told() { changed_ = false; }

private:
    std::array<std::uint64_t, kCounts> values_{};
    bool changed_ = false;
};

}  // namespace hf::gateway
