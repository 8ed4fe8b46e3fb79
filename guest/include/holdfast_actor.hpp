// Holdfast guest SDK for C++17: what holdfast_actor.h offers, with string_views, readers that cannot be misused and a class
// for the handlers. Needs the headers of a C++ library (libc++) but none of its code: nothing here allocates or throws.
//
//   class Greeter : public holdfast::Actor {
//   public:
//       std::int32_t http(const holdfast::Http& request) {
//           return holdfast::reply_text(200, "hello\n");
//       }
//   };
//   HOLDFAST_ACTOR(Greeter)
//
// An object of the class lives for one event. A handler that is not written has the default of holdfast_actor.h; to be
// asked before a stop and after a restart, add HF_WANT_STOP; and HF_WANT_RESTORED; behind the class.
//
//   clang++ --target=wasm32-wasi --sysroot=/usr -mexec-model=reactor -O2 -fno-exceptions -mbulk-memory -std=c++17 ...
//
// This header is dedicated to the public domain: use it in your actors without conditions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "holdfast_actor.h"

namespace holdfast {

using Text = std::string_view;

// Results of the host: >= 0, or one of HF_E_....
using Result = std::int32_t;

inline hf_text to_c(Text text) {
    return {text.data(), static_cast<hf_u32>(text.size())};
}
inline Text from_c(hf_text text) {
    return {text.at, text.len};
}
inline hf_u32 size_of(Text text) {
    return static_cast<hf_u32>(text.size());
}

// Reads flat fields; after a read beyond the end everything is empty and ok() is false.
class Reader {
public:
    explicit Reader(Text bytes)
        : reader_{reinterpret_cast<const hf_u8*>(bytes.data()), size_of(bytes), 0} {}
    std::uint32_t u32() { return hf_read_u32(&reader_); }
    std::uint64_t u64() { return hf_read_u64(&reader_); }
    std::int64_t i64() { return static_cast<std::int64_t>(hf_read_u64(&reader_)); }
    Text field() { return from_c(hf_read_field(&reader_)); }
    [[nodiscard]] bool ok() const { return reader_.broken == 0; }
    [[nodiscard]] bool done() const { return reader_.left == 0; }

private:
    hf_reader reader_;
};

// --- state -------------------------------------------------------------------------------------------------------------
// The value's full length and as much of it as fits.
inline Result kv_get(Text key, void* out, std::size_t cap) {
    return actor_kv_get(key.data(), size_of(key), out, static_cast<hf_u32>(cap));
}
// A value of exactly that type, as kv_put_as() wrote it.
template <class T>
std::optional<T> kv_get_as(Text key) {
    T value{};
    if (kv_get(key, &value, sizeof value) != static_cast<Result>(sizeof value)) return std::nullopt;
    return value;
}
inline Result kv_put(Text key, Text value) {
    return actor_kv_put(key.data(), size_of(key), value.data(), size_of(value));
}
template <class T>
Result kv_put_as(Text key, const T& value) {
    static_assert(__is_trivially_copyable(T), "kept as its bytes");
    return actor_kv_put(key.data(), size_of(key), &value, sizeof value);
}
inline Result kv_delete(Text key) {
    return actor_kv_delete(key.data(), size_of(key));
}

// The keys with a prefix, one after the other; closed with its scope.
//   for (holdfast::Cursor<256> each("user/"); each.next();) use(each.key(), each.value());
template <std::size_t kPairBytesMax = 1024>
class Cursor {
public:
    explicit Cursor(Text prefix, Text start = {}, std::uint32_t limit = 0, std::uint32_t flags = 0)
        : cursor_(actor_kv_list(
              prefix.data(), size_of(prefix), start.data(), size_of(start), limit, flags)) {}
    Cursor(const Cursor&) = delete;
    Cursor& operator=(const Cursor&) = delete;
    ~Cursor() {
        if (cursor_ >= 0) actor_kv_close(cursor_);
    }
    // False at the end and on an error, which error() then tells: HF_E_LIMIT when a pair has more than kPairBytesMax - 8.
    bool next() {
        hf_text key{};
        hf_text value{};
        const Result got =
            cursor_ < 0 ? cursor_ : hf_next(cursor_, buffer_, sizeof buffer_, &key, &value);
        error_ = got < 0 ? got : 0;
        key_ = from_c(key);
        value_ = from_c(value);
        return got > 0;
    }
    [[nodiscard]] Text key() const { return key_; }
    [[nodiscard]] Text value() const { return value_; }
    [[nodiscard]] Result error() const { return error_; }

private:
    Result cursor_;
    Result error_ = 0;
    Text key_;
    Text value_;
    char buffer_[kPairBytesMax];
};

// --- events ------------------------------------------------------------------------------------------------------------
class Http {
public:
    explicit Http(const hf_http& request) : request_(request) {}
    [[nodiscard]] Text method() const { return from_c(request_.method); }
    [[nodiscard]] Text url() const { return from_c(request_.url); }
    [[nodiscard]] Text path() const { return from_c(hf_path(&request_)); }
    [[nodiscard]] Text query() const { return from_c(hf_query(&request_)); }
    [[nodiscard]] Text body() const { return from_c(request_.body); }
    // The first of that name, compared without case.
    [[nodiscard]] std::optional<Text> header(const char* name) const {
        const hf_text value = hf_header(&request_, name);
        if (value.at == nullptr) return std::nullopt;
        return from_c(value);
    }

private:
    const hf_http& request_;
};

struct Call {
    bool one_way;
    std::uint64_t id_high;
    std::uint64_t id_low;
    Text caller;
    Text method;
    Text body;
};
struct Alarm {
    std::uint64_t id;
    std::int64_t due_ms;
    std::uint32_t attempt;
};
struct SocketMessage {
    std::uint64_t connection;
    bool binary;
    Text data;
};
struct SocketClosed {
    std::uint64_t connection;
    std::uint32_t code;
    Text reason;
};
struct Stop {
    std::uint32_t reason;
    std::int64_t deadline_ms;
};

// --- answers -----------------------------------------------------------------------------------------------------------
inline Result reply(std::uint32_t status, Text body) {
    return hf_reply(status, body.data(), size_of(body));
}
inline Result reply_text(std::uint32_t status, Text body) {
    return reply(status, body);
}
inline Result reply_number(std::uint32_t status, std::uint64_t number) {
    return hf_reply_number(status, number);
}
// `headers`: flat pairs of name and value.
inline Result reply_with(std::uint32_t status, Text headers, Text body) {
    return actor_http_reply(status, headers.data(), size_of(headers), body.data(), size_of(body));
}
inline Result answer(Text body) {
    return actor_reply(body.data(), size_of(body));
}

// --- others ------------------------------------------------------------------------------------------------------------
// Waits for `target` ("class/name"); >= 0: a handle for result_read().
inline Result call(Text target, Text method, Text body, std::uint32_t timeout_ms = 0) {
    return actor_call_actor(target.data(),
                            size_of(target),
                            method.data(),
                            size_of(method),
                            body.data(),
                            size_of(body),
                            timeout_ms);
}
inline Result result_read(Result handle, void* out, std::size_t cap) {
    return actor_result_read(handle, out, static_cast<hf_u32>(cap));
}
inline Result send(Text target, Text method, Text body) {
    return actor_send(
        target.data(), size_of(target), method.data(), size_of(method), body.data(), size_of(body));
}
inline Result socket_text(std::uint64_t connection, Text text) {
    return actor_ws_send(connection, HF_WS_TEXT, text.data(), size_of(text));
}
inline Result socket_binary(std::uint64_t connection, Text bytes) {
    return actor_ws_send(connection, HF_WS_BINARY, bytes.data(), size_of(bytes));
}
inline Result socket_close(std::uint64_t connection, std::uint32_t code, Text reason = {}) {
    return actor_ws_close(connection, code, reason.data(), size_of(reason));
}
inline std::int64_t now_ms() {
    return actor_now_ms();
}
inline Result alarm_set(std::int64_t at_ms) {
    return actor_alarm_set(at_ms);
}
inline std::int64_t alarm_get() {
    return actor_alarm_get();
}
inline Result alarm_clear() {
    return actor_alarm_clear();
}
inline Result passivate() {
    return actor_passivate();
}
inline void log(std::uint32_t level, Text text) {
    actor_log(level, text.data(), size_of(text));
}
inline void random(void* out, std::size_t size) {
    actor_random(out, static_cast<hf_u32>(size));
}

// What a class of handlers derives from: the defaults. Handlers are hidden, not overridden; HOLDFAST_ACTOR names the class.
class Actor {
public:
    Result http(const Http&) { return reply_text(404, "no HTTP here\n"); }
    Result call(const Call&) { return HF_E_NOT_NOW; }
    Result alarm(const Alarm&) { return 0; }
    Result socket_opened(std::uint64_t, const Http&) {
        return reply_text(404, "no WebSocket here\n");
    }
    Result socket_message(const SocketMessage&) { return 0; }
    Result socket_closed(const SocketClosed&) { return 0; }
    Result restored() { return 0; }
    Result stop(const Stop&) { return 0; }
};

}  // namespace holdfast

// Once, in the file that defines HF_ACTOR_IMPLEMENTATION before its includes.
#define HOLDFAST_ACTOR(Class)                                                                      \
    extern "C" {                                                                                   \
    hf_i32 actor_http(const hf_http* e) {                                                          \
        return Class().http(holdfast::Http(*e));                                                   \
    }                                                                                              \
    hf_i32 actor_call(const hf_call_event* e) {                                                    \
        return Class().call({e->one_way != 0,                                                      \
                             e->id[0],                                                             \
                             e->id[1],                                                             \
                             holdfast::from_c(e->caller),                                          \
                             holdfast::from_c(e->method),                                          \
                             holdfast::from_c(e->body)});                                          \
    }                                                                                              \
    hf_i32 actor_alarm(const hf_alarm* e) {                                                        \
        return Class().alarm({e->id, e->due_ms, e->attempt});                                      \
    }                                                                                              \
    hf_i32 actor_ws_opened(const hf_ws_open* e) {                                                  \
        return Class().socket_opened(e->connection, holdfast::Http(e->request));                   \
    }                                                                                              \
    hf_i32 actor_ws_message(const hf_ws_message* e) {                                              \
        return Class().socket_message({e->connection, e->binary != 0, holdfast::from_c(e->data)}); \
    }                                                                                              \
    hf_i32 actor_ws_closed(const hf_ws_close* e) {                                                 \
        return Class().socket_closed({e->connection, e->code, holdfast::from_c(e->reason)});       \
    }                                                                                              \
    hf_i32 actor_restored(void) {                                                                  \
        return Class().restored();                                                                 \
    }                                                                                              \
    hf_i32 actor_stop(const hf_stop* e) {                                                          \
        return Class().stop({e->reason, e->deadline_ms});                                          \
    }                                                                                              \
    }
