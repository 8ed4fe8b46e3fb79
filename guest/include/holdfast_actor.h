/* Holdfast guest SDK: what an actor written in C needs, in one header and without a C library.
 *
 * An actor is a WebAssembly module. The host calls actor_event for each event, one at a time; what the actor stores with
 * actor_kv_put is its state, kept by the host and made durable before the answer leaves. Guest memory is only a cache: it
 * may be dropped between any two events, and the next one starts from the module's image again.
 *
 *   clang --target=wasm32 -O2 -nostdlib -mbulk-memory -Wl,--no-entry -Wl,--stack-first -o mine.wasm mine.c
 *
 * Define HF_ACTOR_IMPLEMENTATION in exactly one file before including this header: it brings actor_alloc, the ABI marker
 * and the event buffer. Then write, in that file, a function for each kind of event the actor takes; what is not written
 * has a default:
 *
 *   hf_i32 actor_http(const hf_http* request);               answered 404
 *   hf_i32 actor_call(const hf_call_event* call);            fails, the caller gets HF_E_FAILED
 *   hf_i32 actor_alarm(const hf_alarm* alarm);               nothing happens
 *   hf_i32 actor_ws_opened(const hf_ws_open* open);            refused with 404
 *   hf_i32 actor_ws_message(const hf_ws_message* message);   nothing happens
 *   hf_i32 actor_ws_closed(const hf_ws_close* close);         nothing happens
 *   hf_i32 actor_stop(const hf_stop* stop);                  with HF_WANT_STOP, else the actor is not asked
 *   hf_i32 actor_restored(void);                             with HF_WANT_RESTORED, as above
 *
 * Each answers >= 0, or a negative number: that, a trap and a missed deadline undo every write of the event. Functions of
 * the host answer >= 0 for success or a full length, and one of HF_E_... otherwise. Pointers must lie in the actor's own
 * memory: others trap.
 *
 * The same header serves with wasi-libc (--target=wasm32-wasi -mexec-model=reactor); what is printed there becomes lines
 * of the log. holdfast_actor.hpp is the same for C++.
 *
 * This header is dedicated to the public domain: use it in your actors without conditions. */
#ifndef HOLDFAST_ACTOR_H
#define HOLDFAST_ACTOR_H

#ifdef __cplusplus
extern "C" {
#endif

typedef signed char hf_i8;
typedef unsigned char hf_u8;
typedef unsigned int hf_u32;
typedef int hf_i32;
typedef long long hf_i64;
typedef unsigned long long hf_u64;
typedef __SIZE_TYPE__ hf_size;

#define HF_E_ABSENT (-1)   /* no such key, no more pairs */
#define HF_E_ARGUMENT (-2) /* makes no sense: empty key, status outside 200..599, broken headers */
#define HF_E_LIMIT (-3)    /* a limit; fail the event and the caller is told its name */
#define HF_E_BUSY (-4)     /* busy, or the call would wait for itself */
#define HF_E_TIMEOUT (-5)  /* the time is up */
#define HF_E_FAILED (-6)   /* the other actor failed */
#define HF_E_NOT_NOW (-7)  /* a second reply, or another kind's; not in this node's role */

/* Kinds of events. */
#define HF_EVENT_HTTP 1
#define HF_EVENT_CALL 2
#define HF_EVENT_ALARM 3
#define HF_EVENT_WS_OPEN 4
#define HF_EVENT_WS_MESSAGE 5
#define HF_EVENT_WS_CLOSE 6
#define HF_EVENT_RESTORED 7
#define HF_EVENT_STOP 8

/* Bounds of the host: key 512 bytes; value, a call's body and answer 48 KiB each; the state the class's state_max, a request's
 * body and its reply's its body_max, each 48 KiB unless the class says more; changes and sends of one event 48 KiB together; reply headers 12 KiB;
 * everything one event leaves but such a reply 60 KiB. */
#define HF_KEY_MAX 512u
#define HF_VALUE_MAX 49152u

#define HF_IMPORT(name) __attribute__((import_module("actor"), import_name(#name)))
#define HF_EXPORT(name) __attribute__((export_name(#name)))

/* --- the host's functions, as they are ------------------------------------------------------------------------- */
HF_IMPORT(kv_get)
hf_i32 actor_kv_get(const void* key, hf_u32 key_len, void* out, hf_u32 cap); /* full length */
HF_IMPORT(kv_put)
hf_i32 actor_kv_put(const void* key, hf_u32 key_len, const void* value, hf_u32 len);
HF_IMPORT(kv_delete) hf_i32 actor_kv_delete(const void* key, hf_u32 key_len);
/* A cursor over the keys with a prefix, from `start` on (empty: from the first), at most `limit` (0: all). See hf_next. */
#define HF_LIST_DESCENDING 1u
#define HF_LIST_KEYS_ONLY 2u
HF_IMPORT(kv_list)
hf_i32 actor_kv_list(const void* prefix,
                     hf_u32 prefix_len,
                     const void* start,
                     hf_u32 start_len,
                     hf_u32 limit,
                     hf_u32 flags);
HF_IMPORT(kv_next) hf_i32 actor_kv_next(hf_i32 cursor, void* out, hf_u32 cap);
HF_IMPORT(kv_close) hf_i32 actor_kv_close(hf_i32 cursor);
HF_IMPORT(reply) hf_i32 actor_reply(const void* body, hf_u32 len); /* the answer to a call */
/* Headers: flat fields, name then value, n times. One reply an event. */
HF_IMPORT(http_reply)
hf_i32 actor_http_reply(
    hf_u32 status, const void* headers, hf_u32 headers_len, const void* body, hf_u32 body_len);
/* One alarm an actor, Unix ms; another one replaces it. 0: none is set. */
HF_IMPORT(alarm_set) hf_i32 actor_alarm_set(hf_i64 ms);
HF_IMPORT(alarm_get) hf_i64 actor_alarm_get(void);
HF_IMPORT(alarm_clear) hf_i32 actor_alarm_clear(void);
/* Waits for another actor, "class/name", to answer: a handle for actor_result_read, or HF_E_.... `timeout_ms` 0: as long
 * as this event may take. */
HF_IMPORT(call)
hf_i32 actor_call_actor(const void* target,
                        hf_u32 target_len,
                        const void* method,
                        hf_u32 method_len,
                        const void* body,
                        hf_u32 len,
                        hf_u32 timeout_ms);
HF_IMPORT(result_read) hf_i32 actor_result_read(hf_i32 handle, void* out, hf_u32 cap);
/* A message that is kept with this event's writes and applied once, in order for each target. */
HF_IMPORT(send)
hf_i32 actor_send(const void* target,
                  hf_u32 target_len,
                  const void* method,
                  hf_u32 method_len,
                  const void* body,
                  hf_u32 len);
/* Leave once the event is stored. */
#define HF_WS_TEXT 1u
#define HF_WS_BINARY 2u
HF_IMPORT(ws_send) hf_i32 actor_ws_send(hf_u64 connection, hf_u32 kind, const void* p, hf_u32 len);
HF_IMPORT(ws_close)
hf_i32 actor_ws_close(hf_u64 connection, hf_u32 code, const void* reason, hf_u32 len);
HF_IMPORT(passivate) hf_i32 actor_passivate(void); /* leave memory after this event */
HF_IMPORT(log)
void actor_log(hf_u32 level,
               const void* text,
               hf_u32 len);                  /* 0 trace .. 4 error; cut at 1 KiB, 16 an event */
HF_IMPORT(now_ms) hf_i64 actor_now_ms(void); /* Unix time; the same all through one event */
HF_IMPORT(random)
void actor_random(void* out, hf_u32 len); /* from the kernel; at most 64 KiB a call */
HF_IMPORT(abort)
void actor_abort(const void* text, hf_u32 len); /* does not return; the caller sees the text */

/* --- the actor's side of the contract ------------------------------------------------------------------------------
 * Exports the host looks for: memory, actor_abi_v1, actor_alloc, actor_event; optional: actor_free(ptr, len) after each
 * event, actor_fresh() before the first event on a fresh memory (seed generators there), and at image time, when only log
 * and abort may be called, _initialize() and actor_prepare(). */

/* Beside the handler they are for, at file scope. */
#define HF_WANT_STOP \
    HF_EXPORT(actor_on_stop) void hf_wants_stop(void) {}
#define HF_WANT_RESTORED \
    HF_EXPORT(actor_on_restored) void hf_wants_restored(void) {}

/* --- text ------------------------------------------------------------------------------------------------------- */
typedef struct {
    const char* at;
    hf_u32 len;
} hf_text;

static inline hf_u32 hf_strlen(const char* s) {
    hf_u32 n = 0;
    while (s[n] != 0) ++n;
    return n;
}
static inline hf_text hf_lit(const char* s) {
    hf_text t = {s, hf_strlen(s)};
    return t;
}
static inline int hf_same(hf_text a, const char* b) {
    hf_u32 n = hf_strlen(b);
    if (a.len != n) return 0;
    for (hf_u32 i = 0; i < n; ++i)
        if (a.at[i] != b[i]) return 0;
    return 1;
}
static inline char hf_lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}
/* Header names are compared without case. */
static inline int hf_same_name(hf_text a, const char* b) {
    hf_u32 n = hf_strlen(b);
    if (a.len != n) return 0;
    for (hf_u32 i = 0; i < n; ++i)
        if (hf_lower(a.at[i]) != hf_lower(b[i])) return 0;
    return 1;
}
static inline int hf_starts(hf_text a, const char* b) {
    hf_u32 n = hf_strlen(b);
    if (a.len < n) return 0;
    for (hf_u32 i = 0; i < n; ++i)
        if (a.at[i] != b[i]) return 0;
    return 1;
}
/* Writes a decimal number, no terminator; `out` holds 20 bytes. Returns the length. */
static inline hf_u32 hf_decimal(hf_u64 value, char* out) {
    char digits[20];
    hf_u32 n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    for (hf_u32 i = 0; i < n; ++i) out[i] = digits[n - 1 - i];
    return n;
}
/* Reads digits up to the first other byte; 0 when there are none. */
static inline hf_u64 hf_number(hf_text t) {
    hf_u64 value = 0;
    for (hf_u32 i = 0; i < t.len && t.at[i] >= '0' && t.at[i] <= '9'; ++i)
        value = value * 10 + (hf_u64)(t.at[i] - '0');
    return value;
}

/* --- flat fields: u32 length, little-endian, then the bytes ----------------------------------------------------- */
typedef struct {
    const hf_u8* at;
    hf_u32 left;
    int broken; /* set by a read beyond the end; later reads give nothing */
} hf_reader;

static inline hf_u32 hf_read_u32(hf_reader* r) {
    if (r->broken || r->left < 4) {
        r->broken = 1;
        return 0;
    }
    hf_u32 v =
        (hf_u32)r->at[0] | (hf_u32)r->at[1] << 8 | (hf_u32)r->at[2] << 16 | (hf_u32)r->at[3] << 24;
    r->at += 4;
    r->left -= 4;
    return v;
}
static inline hf_u64 hf_read_u64(hf_reader* r) {
    hf_u64 low = hf_read_u32(r);
    return low | (hf_u64)hf_read_u32(r) << 32;
}
static inline hf_text hf_read_field(hf_reader* r) {
    hf_text t = {(const char*)r->at, 0};
    hf_u32 n = hf_read_u32(r);
    if (r->broken || n > r->left) {
        r->broken = 1;
        return t;
    }
    t.at = (const char*)r->at;
    t.len = n;
    r->at += n;
    r->left -= n;
    return t;
}

/* --- HTTP events ------------------------------------------------------------------------------------------------- */
typedef struct {
    hf_text method; /* "GET" */
    hf_text url;    /* the path after the actor's name, "/" at least, with "?query" */
    hf_text body;
    const hf_u8* headers; /* first of header_count flat pairs */
    hf_u32 headers_len;
    hf_u32 header_count;
} hf_http;

static inline int hf_read_request(hf_reader* r, hf_http* out) {
    out->method = hf_read_field(r);
    out->url = hf_read_field(r);
    out->header_count = hf_read_u32(r);
    out->headers = r->at;
    for (hf_u32 i = 0; i < out->header_count && !r->broken; ++i) {
        hf_read_field(r);
        hf_read_field(r);
    }
    out->headers_len = (hf_u32)(r->at - out->headers);
    out->body = hf_read_field(r);
    return !r->broken;
}
/* 0 when the bytes are not an HTTP event. Everything points into them. */
static inline int hf_read_http(const void* bytes, hf_u32 len, hf_http* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    return hf_read_request(&r, out);
}
/* The first header of that name; len 0 and at 0 when there is none. */
static inline hf_text hf_header(const hf_http* request, const char* name) {
    hf_reader r = {request->headers, request->headers_len, 0};
    for (hf_u32 i = 0; i < request->header_count; ++i) {
        hf_text key = hf_read_field(&r);
        hf_text value = hf_read_field(&r);
        if (hf_same_name(key, name)) return value;
    }
    hf_text none = {0, 0};
    return none;
}
/* The url without its query, and the query without "?". */
static inline hf_text hf_path(const hf_http* request) {
    hf_text t = request->url;
    for (hf_u32 i = 0; i < t.len; ++i)
        if (t.at[i] == '?') t.len = i;
    return t;
}
static inline hf_text hf_query(const hf_http* request) {
    hf_text path = hf_path(request);
    hf_text t = {request->url.at + path.len, request->url.len - path.len};
    if (t.len > 0) {
        ++t.at;
        --t.len;
    }
    return t;
}

/* Answers with text/plain. The results of these are what actor_http may return. */
static inline hf_i32 hf_reply(hf_u32 status, const void* body, hf_u32 len) {
    static const char headers[] = "\x0c\0\0\0content-type\x0a\0\0\0text/plain";
    return actor_http_reply(status, headers, sizeof headers - 1, body, len);
}
static inline hf_i32 hf_reply_text(hf_u32 status, const char* text) {
    return hf_reply(status, text, hf_strlen(text));
}
/* The number and a line feed. */
static inline hf_i32 hf_reply_number(hf_u32 status, hf_u64 value) {
    char text[21];
    hf_u32 n = hf_decimal(value, text);
    text[n++] = '\n';
    return hf_reply(status, text, n);
}

/* --- the other events -------------------------------------------------------------------------------------------- */
typedef struct {
    int one_way;    /* sent, not called: an answer goes nowhere */
    hf_u64 id[2];   /* high and low; the same however often this message is delivered */
    hf_text caller; /* "class/name"; empty: the outside */
    hf_text method;
    hf_text body;
} hf_call_event;

typedef struct {
    hf_u64 id;      /* the same through all attempts */
    hf_i64 due_ms;  /* Unix time */
    hf_u32 attempt; /* from 1 */
} hf_alarm;

typedef struct {
    hf_u64 connection;
    hf_http request;
} hf_ws_open;

typedef struct {
    hf_u64 connection;
    int binary;
    hf_text data;
} hf_ws_message;

typedef struct {
    hf_u64 connection;
    hf_u32 code;
    hf_text reason;
} hf_ws_close;

#define HF_STOP_MOVE 1u
#define HF_STOP_DRAIN 2u
#define HF_STOP_PASSIVATE 3u
#define HF_STOP_EVICT 4u
typedef struct {
    hf_u32 reason;
    hf_i64 deadline_ms; /* Unix time */
} hf_stop;

/* Each: 0 when the bytes are not such an event. */
static inline int hf_read_call(const void* bytes, hf_u32 len, hf_call_event* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->one_way = (int)(hf_read_u32(&r) & 1u);
    out->id[0] = hf_read_u64(&r);
    out->id[1] = hf_read_u64(&r);
    out->caller = hf_read_field(&r);
    out->method = hf_read_field(&r);
    out->body = hf_read_field(&r);
    return !r.broken;
}
static inline int hf_read_alarm(const void* bytes, hf_u32 len, hf_alarm* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->id = hf_read_u64(&r);
    out->due_ms = (hf_i64)hf_read_u64(&r);
    out->attempt = hf_read_u32(&r);
    return !r.broken;
}
static inline int hf_read_ws_open(const void* bytes, hf_u32 len, hf_ws_open* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->connection = hf_read_u64(&r);
    return hf_read_request(&r, &out->request);
}
static inline int hf_read_ws_message(const void* bytes, hf_u32 len, hf_ws_message* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->connection = hf_read_u64(&r);
    out->binary = hf_read_u32(&r) != 0;
    out->data = hf_read_field(&r);
    return !r.broken;
}
static inline int hf_read_ws_close(const void* bytes, hf_u32 len, hf_ws_close* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->connection = hf_read_u64(&r);
    out->code = hf_read_u32(&r);
    out->reason = hf_read_field(&r);
    return !r.broken;
}
static inline int hf_read_stop(const void* bytes, hf_u32 len, hf_stop* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->reason = hf_read_u32(&r);
    out->deadline_ms = (hf_i64)hf_read_u64(&r);
    return !r.broken;
}

/* --- other actors ------------------------------------------------------------------------------------------------ */
/* A handle, or HF_E_...; the answer is read with actor_result_read(handle, out, cap), which gives its full length. */
static inline hf_i32 hf_call(
    hf_text target, const char* method, const void* body, hf_u32 len, hf_u32 timeout_ms) {
    return actor_call_actor(
        target.at, target.len, method, hf_strlen(method), body, len, timeout_ms);
}
static inline hf_i32 hf_send(hf_text target, const char* method, const void* body, hf_u32 len) {
    return actor_send(target.at, target.len, method, hf_strlen(method), body, len);
}
/* The answer to a call. */
static inline hf_i32 hf_answer(hf_text body) {
    return actor_reply(body.at, body.len);
}
/* "class/name" in `out`; empty when it does not fit. */
static inline hf_text hf_target(const char* class_name, hf_text name, char* out, hf_u32 cap) {
    hf_text t = {out, 0};
    hf_u32 n = hf_strlen(class_name);
    if (n + 1 + name.len > cap) return t;
    for (hf_u32 i = 0; i < n; ++i) out[i] = class_name[i];
    out[n] = '/';
    for (hf_u32 i = 0; i < name.len; ++i) out[n + 1 + i] = name.at[i];
    t.len = n + 1 + name.len;
    return t;
}
static inline hf_i32 hf_ws_text(hf_u64 connection, hf_text text) {
    return actor_ws_send(connection, HF_WS_TEXT, text.at, text.len);
}

/* --- walking over keys ------------------------------------------------------------------------------------------- */
/* The next pair of actor_kv_list's cursor: 1, 0 at the end, or HF_E_...; HF_E_LIMIT when it does not fit `buffer`, and it
 * comes again. Key and value point into the buffer. */
static inline hf_i32 hf_next(
    hf_i32 cursor, void* buffer, hf_u32 cap, hf_text* key, hf_text* value) {
    hf_i32 n = actor_kv_next(cursor, buffer, cap);
    if (n == HF_E_ABSENT) return 0;
    if (n < 0) return n;
    if ((hf_u32)n > cap) return HF_E_LIMIT;
    hf_reader r = {(const hf_u8*)buffer, (hf_u32)n, 0};
    key->len = hf_read_u32(&r);
    value->len = hf_read_u32(&r);
    key->at = (const char*)r.at;
    value->at = key->at + key->len;
    return 1;
}

/* --- implementation, once per actor ------------------------------------------------------------------------------ */
#ifdef HF_ACTOR_IMPLEMENTATION

#define HF_WEAK __attribute__((weak))
HF_WEAK hf_i32 actor_http(const hf_http* request);
HF_WEAK hf_i32 actor_call(const hf_call_event* call);
HF_WEAK hf_i32 actor_alarm(const hf_alarm* alarm);
HF_WEAK hf_i32 actor_ws_opened(const hf_ws_open* open);
HF_WEAK hf_i32 actor_ws_message(const hf_ws_message* message);
HF_WEAK hf_i32 actor_ws_closed(const hf_ws_close* close);
HF_WEAK hf_i32 actor_restored(void);
HF_WEAK hf_i32 actor_stop(const hf_stop* stop);

/* An event is at most a body of 48 KiB, 12 KiB of headers, method and url. Kept from event to event. */
#ifndef HF_EVENT_MAX
#define HF_EVENT_MAX (62u * 1024u)
#endif
static hf_u8 hf_event_buffer[HF_EVENT_MAX];

HF_EXPORT(actor_abi_v1) void hf_abi_marker(void) {}

/* With HF_LARGE_BODIES: memory behind the module's own, zeroed, for one event whose body or answer is larger than 48 KiB;
 * the host takes it back after that event. 0: memory_max of the class allows no more. Not for modules with a C library,
 * whose allocator owns what lies there: these set HF_EVENT_MAX. */
#ifdef HF_LARGE_BODIES
static inline void* hf_large(hf_u32 len) {
    hf_size before = __builtin_wasm_memory_grow(0, len / 65536u + 1);
    return before == (hf_size)-1 ? 0 : (void*)(before * 65536u);
}
#endif

HF_EXPORT(actor_alloc) void* hf_event_alloc(hf_u32 len) {
#ifdef HF_LARGE_BODIES
    if (len > sizeof hf_event_buffer) return hf_large(len);
#endif
    return len <= sizeof hf_event_buffer ? hf_event_buffer : 0;
}

static hf_i32 hf_dispatch_ws(hf_u32 kind, const void* bytes, hf_u32 len) {
    hf_ws_open open;
    hf_ws_message message;
    hf_ws_close close;
    if (kind == HF_EVENT_WS_OPEN) {
        if (!hf_read_ws_open(bytes, len, &open)) return HF_E_ARGUMENT;
        return actor_ws_opened ? actor_ws_opened(&open) : hf_reply_text(404, "no WebSocket here\n");
    }
    if (kind == HF_EVENT_WS_MESSAGE) {
        if (!hf_read_ws_message(bytes, len, &message)) return HF_E_ARGUMENT;
        return actor_ws_message ? actor_ws_message(&message) : 0;
    }
    if (!hf_read_ws_close(bytes, len, &close)) return HF_E_ARGUMENT;
    return actor_ws_closed ? actor_ws_closed(&close) : 0;
}

HF_EXPORT(actor_event) hf_i32 hf_event(hf_u32 kind, const void* bytes, hf_u32 len) {
    hf_http request;
    hf_call_event call;
    hf_alarm alarm;
    hf_stop stop;
    switch (kind) {
        case HF_EVENT_HTTP:
            if (!hf_read_http(bytes, len, &request)) return HF_E_ARGUMENT;
            return actor_http ? actor_http(&request) : hf_reply_text(404, "no HTTP here\n");
        case HF_EVENT_CALL:
            if (!hf_read_call(bytes, len, &call)) return HF_E_ARGUMENT;
            return actor_call ? actor_call(&call) : HF_E_NOT_NOW;
        case HF_EVENT_ALARM:
            if (!hf_read_alarm(bytes, len, &alarm)) return HF_E_ARGUMENT;
            return actor_alarm ? actor_alarm(&alarm) : 0;
        case HF_EVENT_WS_OPEN:
        case HF_EVENT_WS_MESSAGE:
        case HF_EVENT_WS_CLOSE:
            return hf_dispatch_ws(kind, bytes, len);
        case HF_EVENT_RESTORED:
            return actor_restored ? actor_restored() : 0;
        case HF_EVENT_STOP:
            if (!hf_read_stop(bytes, len, &stop)) return HF_E_ARGUMENT;
            return actor_stop ? actor_stop(&stop) : 0;
        default:
            return HF_E_ARGUMENT;
    }
}

/* Compilers call these for struct copies, initialisers and comparisons even without a C library. With one (__wasi__) they
 * are its own, unless HF_ACTOR_NO_LIBC says that it is not linked. */
#if !defined(__wasi__) || defined(HF_ACTOR_NO_LIBC)
HF_WEAK void* memcpy(void* to, const void* from, hf_size n) {
    hf_u8* t = (hf_u8*)to;
    const hf_u8* f = (const hf_u8*)from;
    for (hf_size i = 0; i < n; ++i) {
        t[i] = f[i];
        __asm__ volatile("" ::: "memory"); /* keeps the loop from becoming a call of itself */
    }
    return to;
}
HF_WEAK void* memmove(void* to, const void* from, hf_size n) {
    hf_u8* t = (hf_u8*)to;
    const hf_u8* f = (const hf_u8*)from;
    if (t <= f) return memcpy(to, from, n);
    while (n-- > 0) {
        t[n] = f[n];
        __asm__ volatile("" ::: "memory");
    }
    return to;
}
HF_WEAK void* memset(void* to, int value, hf_size n) {
    hf_u8* t = (hf_u8*)to;
    for (hf_size i = 0; i < n; ++i) {
        t[i] = (hf_u8)value;
        __asm__ volatile("" ::: "memory");
    }
    return to;
}
HF_WEAK int memcmp(const void* a, const void* b, hf_size n) {
    const hf_u8* x = (const hf_u8*)a;
    const hf_u8* y = (const hf_u8*)b;
    for (hf_size i = 0; i < n; ++i) {
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
        __asm__ volatile("" ::: "memory");
    }
    return 0;
}
HF_WEAK void* memchr(const void* at, int value, hf_size n) {
    const hf_u8* a = (const hf_u8*)at;
    for (hf_size i = 0; i < n; ++i)
        if (a[i] == (hf_u8)value) return (void*)(a + i);
    return 0;
}
HF_WEAK void abort(void) {
    __builtin_trap();
}
HF_WEAK hf_size strlen(const char* s) {
    hf_size n = 0;
    while (s[n] != 0) {
        ++n;
        __asm__ volatile("" ::: "memory");
    }
    return n;
}
#endif

#endif /* HF_ACTOR_IMPLEMENTATION */

#ifdef __cplusplus
}
#endif
#endif
