/* An actor that keeps what it is given, each under a key of its own; tests/system/test_large_state.py.
 *
 *   POST /put?<n>   keeps the body under number n; answers how many it has kept in all, replaced ones too
 *   GET  /get?<n>   answers what number n holds; 404: nothing
 *   GET  /sum       "<values> <bytes of all of them>"
 *   POST /drop?<n>  forgets number n */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static hf_u8 space[HF_VALUE_MAX + 64];

/* "v" and ten digits: keys sort as their numbers do. */
static void key_of(hf_u64 n, char* key) {
    key[0] = 'v';
    for (int i = 10; i > 0; --i) {
        key[i] = (char)('0' + n % 10);
        n /= 10;
    }
}

static hf_i32 put(hf_u64 n, hf_text body) {
    char key[11];
    hf_u64 count = 0;
    key_of(n, key);
    hf_i32 rc = actor_kv_put(key, sizeof key, body.at, body.len);
    if (rc < 0) return rc;
    actor_kv_get("n", 1, &count, sizeof count);
    ++count;
    rc = actor_kv_put("n", 1, &count, sizeof count);
    return rc < 0 ? rc : hf_reply_number(200, count);
}

static hf_i32 get(hf_u64 n) {
    char key[11];
    key_of(n, key);
    hf_i32 len = actor_kv_get(key, sizeof key, space, sizeof space);
    if (len < 0) return hf_reply_text(404, "nothing\n");
    return hf_reply(200, space, (hf_u32)len);
}

static hf_i32 sum(void) {
    hf_u64 values = 0;
    hf_u64 bytes = 0;
    hf_i32 cursor = actor_kv_list("v", 1, "", 0, 0, 0);
    if (cursor < 0) return cursor;
    for (;;) {
        /* u32 key length, u32 value length, key, value. */
        hf_i32 len = actor_kv_next(cursor, space, sizeof space);
        if (len == HF_E_ABSENT) break;
        if (len < 0) return len;
        bytes += (hf_u64)len - 8 - 11;
        ++values;
    }
    char text[64];
    hf_u32 at = hf_decimal(values, text);
    text[at++] = ' ';
    at += hf_decimal(bytes, text + at);
    text[at++] = '\n';
    return hf_reply(200, text, at);
}

hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    hf_u64 n = hf_number(hf_query(request));
    if (hf_same(path, "/sum")) return sum();
    if (hf_same(path, "/get")) return get(n);
    if (hf_same(path, "/put")) return put(n, request->body);
    if (!hf_same(path, "/drop")) return hf_reply_text(404, "put, get, sum, drop\n");
    char key[11];
    key_of(n, key);
    hf_i32 rc = actor_kv_delete(key, sizeof key);
    return hf_reply_number(rc < 0 ? 404 : 200, n);
}
