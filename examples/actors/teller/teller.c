/* A teller moves money between two accounts: POST /transfer?<from>,<to>,<amount>, and POST /deposit?<to>,<amount>.
 *
 * It calls account/<from> to withdraw and waits for the answer. The deposit is a message: kept with the teller's record of
 * the transfer, and applied once, whatever dies when. The call itself may run again when this event does; a real bank would
 * number its withdrawals.
 *
 *   200  the number of transfers so far       402  the account is too poor, nothing moved
 *   502  the account did not answer           GET / answers the number of transfers */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

#define kTimeoutMs 2000u

static hf_u64 load(void) {
    hf_u64 n = 0;
    return actor_kv_get("transfers", 9, &n, sizeof n) == sizeof n ? n : 0;
}

/* Up to the next comma, and past it. */
static hf_text word(hf_text* rest) {
    hf_text w = {rest->at, 0};
    while (w.len < rest->len && w.at[w.len] != ',') ++w.len;
    hf_u32 step = w.len < rest->len ? w.len + 1 : w.len;
    rest->at += step;
    rest->len -= step;
    return w;
}

static hf_i32 deposit(hf_text to, hf_text amount) {
    char name[HF_KEY_MAX];
    hf_text target = hf_target("account", to, name, sizeof name);
    return hf_send(target, "deposit", amount.at, amount.len);
}

static hf_i32 done(void) {
    hf_u64 n = load() + 1;
    hf_i32 rc = actor_kv_put("transfers", 9, &n, sizeof n);
    if (rc < 0) return rc;
    return hf_reply_number(200, n);
}

static hf_i32 transfer(hf_text from, hf_text to, hf_text amount) {
    char name[HF_KEY_MAX];
    char said[32];
    hf_text target = hf_target("account", from, name, sizeof name);
    hf_i32 handle = hf_call(target, "withdraw", amount.at, amount.len, kTimeoutMs);
    if (handle < 0) return hf_reply_text(502, "the account did not answer\n");
    hf_i32 len = actor_result_read(handle, said, sizeof said);
    if (len < 0) return len;
    hf_text answer = {said, (hf_u32)len < sizeof said ? (hf_u32)len : (hf_u32)sizeof said};
    if (hf_same(answer, "poor")) return hf_reply_text(402, "the account is too poor\n");
    hf_i32 rc = deposit(to, amount);
    return rc < 0 ? rc : done();
}

hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    hf_text rest = hf_query(request);
    if (hf_same(request->method, "GET")) return hf_reply_number(200, load());
    hf_text first = word(&rest);
    hf_text second = word(&rest);
    if (hf_same(path, "/deposit")) {
        if (first.len == 0 || hf_number(second) == 0)
            return hf_reply_text(400, "POST /deposit?<to>,<amount>\n");
        hf_i32 rc = deposit(first, second);
        return rc < 0 ? rc : done();
    }
    if (!hf_same(path, "/transfer")) return hf_reply_text(404, "a teller does not know that\n");
    if (first.len == 0 || second.len == 0 || hf_number(rest) == 0)
        return hf_reply_text(400, "POST /transfer?<from>,<to>,<amount>\n");
    return transfer(first, second, rest);
}
