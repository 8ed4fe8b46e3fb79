/* A diary kept in memory and written down when memory is left: for what nobody misses after a crash, which says no goodbye.
 *
 *   GET /          a line for each time it was put away: why, and the visits since the time before
 *   POST /         a visit; answers their number since it was last put away
 *   POST /leave    the same, and asks to be put away
 *   POST /tear     from now on writing it down fails */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static hf_u32 visits;

/* Kept under "diary"; when it is full it starts anew. */
static char text[4096];

static hf_u32 add(hf_u32 at, hf_text what) {
    for (hf_u32 i = 0; i < what.len; ++i) text[at + i] = what.at[i];
    return at + what.len;
}

HF_WANT_STOP
hf_i32 actor_stop(const hf_stop* stop) {
    static const char* const kWhy[] = {"", "move ", "drain ", "passivate ", "evict "};
    char number[20];
    hf_i32 len = actor_kv_get("diary", 5, text, sizeof text);
    hf_u32 at = len < 0 || (hf_u32)len + 64 > sizeof text ? 0 : (hf_u32)len;
    hf_text digits = {number, hf_decimal(visits, number)};
    at = add(at, hf_lit(stop->reason <= HF_STOP_EVICT ? kWhy[stop->reason] : "? "));
    at = add(at, digits);
    text[at++] = '\n';
    hf_i32 rc = actor_kv_put("diary", 5, text, at);
    char torn = 0;
    if (actor_kv_get("torn", 4, &torn, 1) == 1) return -1; /* and the put is undone */
    return rc;
}

hf_i32 actor_http(const hf_http* request) {
    if (hf_same(request->method, "GET")) {
        hf_i32 len = actor_kv_get("diary", 5, text, sizeof text);
        return hf_reply(200, text, len < 0 ? 0 : (hf_u32)len);
    }
    if (!hf_same(request->method, "POST"))
        return hf_reply_text(405, "a diary knows GET and POST\n");
    hf_text path = hf_path(request);
    if (hf_same(path, "/tear")) {
        hf_i32 rc = actor_kv_put("torn", 4, "1", 1);
        if (rc < 0) return rc;
    }
    if (hf_same(path, "/leave")) actor_passivate();
    return hf_reply_number(200, ++visits);
}
