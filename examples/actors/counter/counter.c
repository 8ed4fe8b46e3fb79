/* A counter: POST adds one and answers the new number, GET answers the number (0 when nothing was counted yet). */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static hf_u64 load(void) {
    hf_u64 n = 0;
    return actor_kv_get("n", 1, &n, sizeof n) == sizeof n ? n : 0;
}

hf_i32 actor_http(const hf_http* request) {
    hf_u64 n = load();
    if (hf_same(request->method, "POST")) {
        ++n;
        hf_i32 rc = actor_kv_put("n", 1, &n, sizeof n);
        if (rc < 0) return rc;
        return hf_reply_number(200, n);
    }
    if (hf_same(request->method, "GET")) return hf_reply_number(200, n);
    return hf_reply_text(405, "a counter knows GET and POST\n");
}
