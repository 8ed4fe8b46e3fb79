/* An actor that misbehaves on request, for tests of limits. GET or POST of:
 *
 *   /ok            answers "ok"                        /count         adds one to key "n", answers it
 *   /loop          computes for ever                   /spin          an empty loop
 *   /fill          fills memory for ever               /sleepy        waits for the clock, which stands still in an event
 *   /burn?<n>      n million rounds, then "done"       /recurse       calls itself for ever
 *   /trap          unreachable                         /divide        divides by zero
 *   /wild          stores outside its memory           /indirect      calls a function pointer of another type
 *   /grow          grows until refused, answers pages  /keep?<pages>  grows by that much and keeps it
 *   /hold?<pages>  the same, and writes into each page
 *   /abort         actor_abort with a message          /fail          returns -42
 *   /write-trap    /write-fail   /write-loop           writes "n" = 999 and "m", then ends that way
 *   /value?<n>     stores n bytes under "v"; answers the result of the put
 *   /body?<n>      answers n bytes                     /headers?<n>   answers n bytes of headers
 *   /log?<n>       logs n lines                        /random        answers 16 random bytes in hex
 *   /silent        answers nothing                     /twice         replies twice; answers what the second one returned
 *   /both?<n>      stores n bytes and answers n bytes   /echo          answers the request's body */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

static hf_u8 space[64 * 1024];
static volatile hf_u32 sink;

static hf_u64 count_up(void) {
    hf_u64 n = 0;
    actor_kv_get("n", 1, &n, sizeof n);
    ++n;
    actor_kv_put("n", 1, &n, sizeof n);
    return n;
}

static void write_two(void) {
    hf_u64 n = 999;
    actor_kv_put("n", 1, &n, sizeof n);
    actor_kv_put("m", 1, "half", 4);
}

static void loop_for_ever(void) {
    for (;;) sink = sink * 31 + 1;
}

__attribute__((noinline)) static hf_u32 recurse(hf_u32 depth) {
    volatile hf_u32 here[16];
    here[depth & 15] = depth;
    if (depth == 0xFFFFFFFFu) return 0; /* never reached, but the compiler need not know */
    return recurse(depth + 1) + here[depth & 15];
}

typedef hf_u64 (*wrong_type)(hf_u64, hf_u64, hf_u64);

static hf_i32 grow_until_refused(void) {
    while (__builtin_wasm_memory_grow(0, 1) != (__SIZE_TYPE__)-1) sink = 0;
    return hf_reply_number(200, __builtin_wasm_memory_size(0));
}

static hf_i32 reply_result(hf_i32 rc) {
    char text[22];
    hf_u32 at = 0;
    if (rc < 0) text[at++] = '-';
    at += hf_decimal(rc < 0 ? (hf_u64)(-(hf_i64)rc) : (hf_u64)rc, text + at);
    text[at++] = '\n';
    return hf_reply(200, text, at);
}

static hf_i32 reply_headers(hf_u32 bytes) {
    /* One header "x" whose value takes the rest. */
    hf_u32 value = bytes < 9 ? 0 : bytes - 9;
    if (value > sizeof space - 16) value = sizeof space - 16;
    hf_u8 head[9] = {1,
                     0,
                     0,
                     0,
                     'x',
                     (hf_u8)value,
                     (hf_u8)(value >> 8),
                     (hf_u8)(value >> 16),
                     (hf_u8)(value >> 24)};
    for (hf_u32 i = 0; i < 9; ++i) space[i] = head[i];
    for (hf_u32 i = 0; i < value; ++i) space[9 + i] = 'h';
    hf_i32 rc = actor_http_reply(200, space, 9 + value, "headers\n", 8);
    return rc;
}

static hf_i32 reply_random(void) {
    hf_u8 bytes[16];
    char text[33];
    actor_random(bytes, sizeof bytes);
    for (hf_u32 i = 0; i < 16; ++i) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
    text[32] = '\n';
    return hf_reply(200, text, sizeof text);
}

static hf_i32 sized(hf_text path, hf_u32 n, int* known) {
    hf_u32 bytes = n < sizeof space ? n : (hf_u32)sizeof space;
    *known = 1;
    if (hf_same(path, "/value")) return reply_result(actor_kv_put("v", 1, space, bytes));
    if (hf_same(path, "/body")) {
        for (hf_u32 i = 0; i < bytes; ++i) space[i] = 'b';
        return hf_reply(200, space, bytes);
    }
    if (hf_same(path, "/both")) {
        hf_i32 rc = actor_kv_put("v", 1, space, bytes);
        return rc < 0 ? rc : hf_reply(200, space, bytes);
    }
    if (hf_same(path, "/headers")) return reply_headers(bytes);
    if (hf_same(path, "/keep")) {
        return reply_result((hf_i32)__builtin_wasm_memory_grow(0, n));
    }
    if (hf_same(path, "/hold")) {
        hf_size before = __builtin_wasm_memory_grow(0, n);
        for (hf_u32 i = 0; before != (hf_size)-1 && i < n * 16; ++i)
            *(volatile hf_u8*)(before * 65536 + i * 4096) = 1;
        return reply_result((hf_i32)before);
    }
    if (hf_same(path, "/burn")) {
        for (hf_u32 i = 0; i < n; ++i)
            for (hf_u32 j = 0; j < 1000000; ++j) sink = sink * 31 + j;
        return hf_reply_text(200, "done\n");
    }
    if (hf_same(path, "/log")) {
        for (hf_u32 i = 0; i < n; ++i) actor_log(2, "a misfit says something", 23);
        return hf_reply_text(200, "logged\n");
    }
    *known = 0;
    return 0;
}

static hf_i32 never_ending(hf_text path, int* known) {
    *known = 1;
    if (hf_same(path, "/loop")) loop_for_ever();
    if (hf_same(path, "/spin"))
        for (;;) __asm__ volatile("");
    if (hf_same(path, "/fill"))
        for (;;) {
            __builtin_memset(space, (int)sink, sizeof space);
            sink = space[17];
        }
    if (hf_same(path, "/sleepy")) {
        hf_i64 until = actor_now_ms() + 3600 * 1000;
        while (actor_now_ms() < until) sink = 1;
    }
    if (hf_same(path, "/recurse")) return (hf_i32)recurse(0);
    if (hf_same(path, "/trap")) __builtin_trap();
    if (hf_same(path, "/divide")) return (hf_i32)(1000 / sink);
    if (hf_same(path, "/wild")) {
        volatile hf_size far =
            0xFFFFFFF0u; /* volatile: a constant address would become a static offset */
        *(volatile hf_u32*)far = 1;
    }
    if (hf_same(path, "/indirect")) {
        volatile wrong_type call = (wrong_type)(void*)&count_up;
        return (hf_i32)call(1, 2, 3);
    }
    if (hf_same(path, "/abort")) actor_abort("the misfit gives up", 19);
    if (hf_same(path, "/write-trap")) {
        write_two();
        __builtin_trap();
    }
    if (hf_same(path, "/write-loop")) {
        write_two();
        loop_for_ever();
    }
    *known = 0;
    return 0;
}

hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    int known = 0;
    hf_i32 rc = never_ending(path, &known);
    if (known) return rc;
    rc = sized(path, (hf_u32)hf_number(hf_query(request)), &known);
    if (known) return rc;
    if (hf_same(path, "/ok")) return hf_reply_text(200, "ok\n");
    if (hf_same(path, "/count")) return hf_reply_number(200, count_up());
    if (hf_same(path, "/grow")) return grow_until_refused();
    if (hf_same(path, "/fail")) return -42;
    if (hf_same(path, "/write-fail")) {
        write_two();
        return -43;
    }
    if (hf_same(path, "/random")) return reply_random();
    if (hf_same(path, "/silent")) return 0;
    if (hf_same(path, "/echo")) return hf_reply(200, request->body.at, request->body.len);
    if (hf_same(path, "/twice")) {
        hf_reply_text(200, "first\n");
        return actor_http_reply(200, 0, 0, "second\n", 7) == HF_E_NOT_NOW ? 0 : -1;
    }
    return hf_reply_text(404, "a misfit does not know that one\n");
}
