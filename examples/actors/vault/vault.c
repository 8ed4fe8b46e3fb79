/* A vault weighs what it is given, whatever its size: bodies up to the class's body_max, both ways.
 *
 *   POST /                    answers length and FNV-1a of the body, and keeps both
 *   GET /                     answers what it was given last, "0 cbf29ce484222325" for nothing
 *   POST /echo                answers the body itself
 *   GET /download?bytes=N     answers N bytes: 0, 1, ... 250, and again
 *
 * Its class needs a memory_max of twice the body_max and some, and a cpu_limit for looking at every byte. */
#define HF_LARGE_BODIES
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static const char kBytesType[] = "\x0c\0\0\0content-type\x18\0\0\0application/octet-stream";

typedef struct {
    hf_u64 length;
    hf_u64 digest;
} weight;

static hf_u64 fnv1a(hf_text bytes) {
    hf_u64 hash = 0xcbf29ce484222325ull;
    for (hf_u32 i = 0; i < bytes.len; ++i) hash = (hash ^ (hf_u8)bytes.at[i]) * 0x100000001b3ull;
    return hash;
}

static hf_i32 answer_weight(weight w) {
    char text[40];
    hf_u32 n = hf_decimal(w.length, text);
    text[n++] = ' ';
    for (int shift = 60; shift >= 0; shift -= 4)
        text[n++] = "0123456789abcdef"[w.digest >> shift & 15];
    text[n++] = '\n';
    return hf_reply(200, text, n);
}

static hf_i32 answer_bytes(const void* bytes, hf_u32 len) {
    return actor_http_reply(200, kBytesType, sizeof kBytesType - 1, bytes, len);
}

static hf_i32 download(hf_text query) {
    if (!hf_starts(query, "bytes=")) return hf_reply_text(400, "how many? ?bytes=N\n");
    query.at += 6;
    query.len -= 6;
    hf_u64 n = hf_number(query);
    if (n > 0xffffffffull) return hf_reply_text(400, "not that many\n");
    hf_u8* bytes = (hf_u8*)hf_large((hf_u32)n);
    if (bytes == 0) return hf_reply_text(507, "memory_max of this class holds no such answer\n");
    for (hf_u32 i = 0, byte = 0; i < n; ++i) {
        bytes[i] = (hf_u8)byte;
        byte = byte == 250 ? 0 : byte + 1;
    }
    return answer_bytes(bytes, (hf_u32)n);
}

hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    weight w = {0, 0xcbf29ce484222325ull};
    if (hf_same(request->method, "GET")) {
        if (hf_same(path, "/download")) return download(hf_query(request));
        actor_kv_get("last", 4, &w, sizeof w);
        return answer_weight(w);
    }
    if (!hf_same(request->method, "POST"))
        return hf_reply_text(405, "a vault knows GET and POST\n");
    if (hf_same(path, "/echo")) return answer_bytes(request->body.at, request->body.len);
    w.length = request->body.len;
    w.digest = fnv1a(request->body);
    hf_i32 rc = actor_kv_put("last", 4, &w, sizeof w);
    return rc < 0 ? rc : answer_weight(w);
}
