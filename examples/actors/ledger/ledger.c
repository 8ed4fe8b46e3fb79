/* A ledger for tests: it stores how often each request id was applied, so that a request that took effect twice is seen
 * even when its answer was lost.
 *
 *   POST /add   with header x-request-id   applies the id once more; answers how often it was applied by now
 *   GET /ids                                answers "<ids> <sum of applications>"
 *   GET /id?<id>                            answers how often that id was applied (0 when never)
 *   DELETE /                                forgets everything
 *
 * One key, "ids", with records of 16 bytes: 12 of the id (two hashes of it, 96 bits) and a count of 4. At kRecordsMax ids
 * a POST of a new one answers 507 and stores nothing. */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

/* 2048 x 16 bytes = 32 KiB: two thirds of what one value, and one event's changes, may be. */
#define kRecordsMax 2048u

typedef struct {
    hf_u32 id[3];
    hf_u32 count;
} record;

static record records[kRecordsMax];

static hf_u32 load(void) {
    hf_i32 n = actor_kv_get("ids", 3, records, sizeof records);
    return n < 0 ? 0 : (hf_u32)n / (hf_u32)sizeof(record);
}

static record named(hf_text id) {
    hf_u64 a = 0xCBF29CE484222325ULL;
    hf_u32 b = 0x811C9DC5u;
    for (hf_u32 i = 0; i < id.len; ++i) {
        a = (a ^ (hf_u8)id.at[i]) * 0x100000001B3ULL;
        b = (b + (hf_u8)id.at[i]) * 0x9E3779B1u;
        b ^= b >> 15;
    }
    record r = {{(hf_u32)a, (hf_u32)(a >> 32), b}, 0};
    return r;
}

static record* find(record wanted, hf_u32 n) {
    for (hf_u32 i = 0; i < n; ++i)
        if (records[i].id[0] == wanted.id[0] && records[i].id[1] == wanted.id[1] &&
            records[i].id[2] == wanted.id[2])
            return &records[i];
    return 0;
}

static hf_i32 add(const hf_http* request) {
    hf_text id = hf_header(request, "x-request-id");
    if (id.len == 0) return hf_reply_text(400, "POST /add needs a header x-request-id\n");
    hf_u32 n = load();
    record wanted = named(id);
    record* found = find(wanted, n);
    if (found == 0) {
        if (n == kRecordsMax) return hf_reply_text(507, "this ledger is full\n");
        records[n] = wanted;
        found = &records[n++];
    }
    ++found->count;
    hf_u32 count = found->count;
    hf_i32 rc = actor_kv_put("ids", 3, records, n * (hf_u32)sizeof(record));
    if (rc < 0) return rc;
    return hf_reply_number(200, count);
}

static hf_i32 totals(void) {
    char text[42];
    hf_u64 sum = 0;
    hf_u32 n = load();
    for (hf_u32 i = 0; i < n; ++i) sum += records[i].count;
    hf_u32 at = hf_decimal(n, text);
    text[at++] = ' ';
    at += hf_decimal(sum, text + at);
    text[at++] = '\n';
    return hf_reply(200, text, at);
}

hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    if (hf_same(request->method, "POST") && hf_same(path, "/add")) return add(request);
    if (hf_same(request->method, "GET") && hf_same(path, "/ids")) return totals();
    if (hf_same(request->method, "GET") && hf_same(path, "/id")) {
        record* found = find(named(hf_query(request)), load());
        return hf_reply_number(200, found == 0 ? 0 : found->count);
    }
    if (hf_same(request->method, "DELETE")) {
        actor_kv_delete("ids", 3);
        return hf_reply_text(200, "forgotten\n");
    }
    return hf_reply_text(404, "a ledger knows POST /add, GET /ids, GET /id?<id> and DELETE /\n");
}
