/* Holdfast guest SDK: what an actor written in C needs, in one header and without a C library.
 *
 * An actor is a WebAssembly module. The host calls actor_event for each event, one at a time; what the actor stores with
 * actor_kv_put is its state, kept by the host and made durable before the answer leaves. Guest memory is only a cache: it
 * may be dropped between any two events, and the next one starts from the module's image again.
 *
 *   clang --target=wasm32 -O2 -nostdlib -mbulk-memory -Wl,--no-entry -Wl,--stack-first -o mine.wasm mine.c
 *
 * Define HF_ACTOR_IMPLEMENTATION in exactly one file before including this header: it brings actor_alloc, the ABI marker
 * and the event buffer. Then write one function:
 *
 *   int32_t actor_http(const hf_http* request);   // return hf_reply_text(200, "hello"), or a negative number to fail
 *
 * A negative result, a trap and a missed deadline undo every write of the event. Functions answer >= 0 for success or a
 * full length, and one of HF_E_... otherwise. Pointers must lie in the actor's own memory: others trap.
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

#define HF_E_ABSENT (-1)   /* no such key */
#define HF_E_ARGUMENT (-2) /* makes no sense: empty key, status outside 200..599, broken headers */
#define HF_E_LIMIT (-3)    /* a limit; fail the event and the caller is told its name */
#define HF_E_NOT_NOW (-7)  /* a second reply */

/* Kinds of events. */
#define HF_EVENT_HTTP 1

/* Bounds of the host: key 512 bytes; value, reply body, state and changes of one event 48 KiB each; reply headers 12 KiB;
 * reply and changes of one event together 60 KiB. */
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
/* Headers: flat fields, name then value, n times. One reply an event. */
HF_IMPORT(http_reply)
hf_i32 actor_http_reply(
    hf_u32 status, const void* headers, hf_u32 headers_len, const void* body, hf_u32 body_len);
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

/* 0 when the bytes are not an HTTP event. Everything points into them. */
static inline int hf_read_http(const void* bytes, hf_u32 len, hf_http* out) {
    hf_reader r = {(const hf_u8*)bytes, len, 0};
    out->method = hf_read_field(&r);
    out->url = hf_read_field(&r);
    out->header_count = hf_read_u32(&r);
    out->headers = r.at;
    for (hf_u32 i = 0; i < out->header_count && !r.broken; ++i) {
        hf_read_field(&r);
        hf_read_field(&r);
    }
    out->headers_len = (hf_u32)(r.at - out->headers);
    out->body = hf_read_field(&r);
    return !r.broken;
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

/* --- implementation, once per actor ------------------------------------------------------------------------------ */
#ifdef HF_ACTOR_IMPLEMENTATION

hf_i32 actor_http(const hf_http* request);

/* An event is at most a body of 48 KiB, 12 KiB of headers, method and url. Kept from event to event. */
#ifndef HF_EVENT_MAX
#define HF_EVENT_MAX (62u * 1024u)
#endif
static hf_u8 hf_event_buffer[HF_EVENT_MAX];

HF_EXPORT(actor_abi_v1) void hf_abi_marker(void) {}

HF_EXPORT(actor_alloc) void* hf_event_alloc(hf_u32 len) {
    return len <= sizeof hf_event_buffer ? hf_event_buffer : 0;
}

HF_EXPORT(actor_event) hf_i32 hf_event(hf_u32 kind, const void* bytes, hf_u32 len) {
    hf_http request;
    if (kind != HF_EVENT_HTTP) return HF_E_ARGUMENT;
    if (!hf_read_http(bytes, len, &request)) return HF_E_ARGUMENT;
    return actor_http(&request);
}

/* clang calls these for struct copies and array initialisers even without a C library. */
void* memcpy(void* to, const void* from, hf_size n) {
    hf_u8* t = (hf_u8*)to;
    const hf_u8* f = (const hf_u8*)from;
    for (hf_size i = 0; i < n; ++i) {
        t[i] = f[i];
        __asm__ volatile("" ::: "memory"); /* keeps the loop from becoming a call of itself */
    }
    return to;
}
void* memset(void* to, int value, hf_size n) {
    hf_u8* t = (hf_u8*)to;
    for (hf_size i = 0; i < n; ++i) {
        t[i] = (hf_u8)value;
        __asm__ volatile("" ::: "memory");
    }
    return to;
}

#endif /* HF_ACTOR_IMPLEMENTATION */

#ifdef __cplusplus
}
#endif
#endif
