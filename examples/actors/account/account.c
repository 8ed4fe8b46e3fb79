/* An account holds money. Other actors call it; it takes no HTTP but to look.
 *
 *   call  "deposit"   amount in decimal   answers the new balance
 *   call  "withdraw"  amount in decimal   answers the new balance, or "poor" and changes nothing
 *   send  "deposit"                       the same, once however often it is delivered
 *   GET /                                 answers the balance
 *
 * The unit of money is the whole number. A teller moves it between two accounts, see teller.c. */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static hf_u64 load(void) {
    hf_u64 balance = 0;
    return actor_kv_get("balance", 7, &balance, sizeof balance) == sizeof balance ? balance : 0;
}

static hf_i32 answer_number(hf_u64 number) {
    char text[20];
    return actor_reply(text, hf_decimal(number, text));
}

hf_i32 actor_call(const hf_call_event* call) {
    hf_u64 amount = hf_number(call->body);
    hf_u64 balance = load();
    if (hf_same(call->method, "withdraw")) {
        if (amount > balance) return hf_answer(hf_lit("poor"));
        balance -= amount;
    } else if (hf_same(call->method, "deposit")) {
        balance += amount;
    } else {
        return HF_E_ARGUMENT; /* undoes nothing, tells the caller that it failed */
    }
    hf_i32 rc = actor_kv_put("balance", 7, &balance, sizeof balance);
    if (rc < 0) return rc;
    return answer_number(balance);
}

hf_i32 actor_http(const hf_http* request) {
    if (!hf_same(request->method, "GET")) return hf_reply_text(405, "an account knows GET\n");
    return hf_reply_number(200, load());
}
