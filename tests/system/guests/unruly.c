/* An actor that goes wrong in every way a test of the runtime wants to see; tests/system/test_guests.py. GET of:
 *
 *   /served            how many events this memory has served: 1 on a fresh one
 *   /loop              computes for ever
 *   /fill?<pages>      grows by that much, then fills all of its memory for ever, one memory.fill after the other
 *   /sleep             waits an hour by the clock and by poll_oneoff
 *   /grow              grows page by page until refused, answers the pages
 *   /grow-trap         the same, then traps
 *   /recurse           calls itself for ever, with memory on its own stack
 *   /recurse-alone     the same without: only the host's stack is used up
 *   /divide  /unreachable  /indirect  /wild
 *   /half              writes "first", traps before it writes "second"
 *   /half-loop         the same with a loop in place of the trap
 *   /halves            which of the two are there: 0 to 3
 *   /wake?<ms>         an alarm in so many ms, whose handler writes "seen" and traps at its first two attempts
 *   /woken             the attempt that ended well; 0: none yet
 *   /carry?<n>         calls unruly/peer with n bytes and compares what comes back
 *   /fetch?<n>         calls unruly/peer for n bytes
 *   /mail?<n>          sends n bytes to unruly/peer
 *   /mailed            the length and the sum of the last bytes that were sent here
 *
 *   /shout?<n>         n bytes, of which the first 8 are the number of the shout in digits, to every WebSocket of this memory
 *
 * A WebSocket at any path is taken, and each message of it sent back. */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

__attribute__((import_module("wasi_snapshot_preview1"), import_name("poll_oneoff"))) hf_i32
wasi_poll(const void* in, void* out, hf_u32 count, hf_u32* events);
__attribute__((import_module("wasi_snapshot_preview1"), import_name("clock_time_get"))) hf_i32
wasi_clock(hf_u32 id, hf_u64 precision, hf_u64* out);

#define SPACE (64u * 1024u)
static hf_u8 space[SPACE];
static volatile hf_u32 sink;
static hf_u32 served;
/* WebSockets that this memory has seen open, those that closed since included. */
#define EARS 1024u
static hf_u64 ears[EARS];
static hf_u32 ears_count;
static hf_u32 shouts;

static const char peer[] = "unruly/peer";
static hf_text peer_target(void) {
    return hf_lit(peer);
}

static void loop_for_ever(void) {
    for (;;) sink = sink * 31 + 1;
}

static void fill_for_ever(hf_u32 pages) {
    if (__builtin_wasm_memory_grow(0, pages) == (hf_size)-1) __builtin_trap();
    for (;;) {
        /* What lies above the module's own data: its heap, if it had one. */
        hf_size from = 3u * 65536u;
        hf_size end = __builtin_wasm_memory_size(0) * 65536u;
        __builtin_memset((void*)from, (int)sink, end - from);
        sink = *(volatile hf_u8*)from + 1;
    }
}

static void sleep_an_hour(void) {
    hf_u64 begun = 0;
    hf_u64 now = 0;
    hf_u32 events = 0;
    wasi_clock(1, 1, &begun);
    do {
        wasi_poll(space, space + 4096, 1, &events);
        wasi_clock(1, 1, &now);
        sink = events;
    } while (now < begun + 3600ull * 1000 * 1000 * 1000);
}

static hf_u32 grow_until_refused(void) {
    while (__builtin_wasm_memory_grow(0, 1) != (hf_size)-1) sink = 0;
    return (hf_u32)__builtin_wasm_memory_size(0);
}

__attribute__((noinline)) static hf_u32 recurse(hf_u32 depth) {
    volatile hf_u32 here[16];
    here[depth & 15] = depth;
    if (depth == 0xFFFFFFFFu) return 0; /* never reached, but the compiler need not know */
    return recurse(depth + 1) + here[depth & 15];
}

typedef hf_u32 (*step)(hf_u32);
static hf_u32 alone(hf_u32 depth);
static volatile step next_step = alone;
__attribute__((noinline)) static hf_u32 alone(hf_u32 depth) {
    return next_step(depth + 1) * 3 + 1;
}

typedef hf_u64 (*wrong_type)(hf_u64, hf_u64, hf_u64);

static int has(const char* key) {
    return actor_kv_get(key, hf_strlen(key), space, 0) >= 0;
}

static void put(const char* key, hf_u64 value) {
    actor_kv_put(key, hf_strlen(key), &value, sizeof value);
}

static hf_u64 value_of(const char* key) {
    hf_u64 value = 0;
    actor_kv_get(key, hf_strlen(key), &value, sizeof value);
    return value;
}

static void pattern(hf_u32 n) {
    for (hf_u32 i = 0; i < n; ++i) space[i] = (hf_u8)(i * 7 + n);
}

static hf_i32 carry(hf_u32 n) {
    pattern(n);
    hf_i32 handle = hf_call(peer_target(), "echo", space, n, 0);
    if (handle < 0) return handle;
    for (hf_u32 i = 0; i < n; ++i) space[i] = 0;
    if (actor_result_read(handle, space, SPACE) != (hf_i32)n) return hf_reply_text(500, "length\n");
    for (hf_u32 i = 0; i < n; ++i)
        if (space[i] != (hf_u8)(i * 7 + n)) return hf_reply_text(500, "bytes\n");
    return hf_reply_text(200, "same\n");
}

static hf_i32 fetch(hf_u32 n) {
    hf_i32 handle = hf_call(peer_target(), "give", &n, sizeof n, 0);
    if (handle < 0) return hf_reply_number(502, (hf_u64)(-(hf_i64)handle));
    return hf_reply_number(200, (hf_u64)actor_result_read(handle, space, SPACE));
}

static hf_i32 mail(hf_u32 n) {
    pattern(n);
    hf_i32 rc = hf_send(peer_target(), "keep", space, n);
    return rc < 0 ? rc : hf_reply_text(202, "sent\n");
}

static void end_badly(hf_text path) {
    if (hf_same(path, "/loop")) loop_for_ever();
    if (hf_same(path, "/sleep")) sleep_an_hour();
    if (hf_same(path, "/recurse")) sink = recurse(0);
    if (hf_same(path, "/recurse-alone")) sink = alone(0);
    if (hf_same(path, "/divide")) sink = 1000 / sink;
    if (hf_same(path, "/unreachable")) __builtin_trap();
    if (hf_same(path, "/wild")) {
        volatile hf_size far = 0xFFFFFFF0u; /* volatile: a constant would become a static offset */
        *(volatile hf_u32*)far = 1;
    }
    if (hf_same(path, "/indirect")) {
        volatile wrong_type call = (wrong_type)(void*)&alone;
        sink = (hf_u32)call(1, 2, 3);
    }
    if (hf_same(path, "/grow-trap")) {
        grow_until_refused();
        __builtin_trap();
    }
    if (hf_same(path, "/half") || hf_same(path, "/half-loop")) {
        put("first", 1);
        if (hf_same(path, "/half-loop")) loop_for_ever();
        if (sink == 0) __builtin_trap();
        put("second", 2);
    }
}

static hf_i32 shout(hf_u32 n) {
    hf_u32 number = ++shouts;
    hf_i32 rc = 0;
    for (hf_u32 digit = 8; digit-- > 0; number /= 10) space[digit] = (hf_u8)('0' + number % 10);
    for (hf_u32 i = 0; i < ears_count && rc >= 0; ++i)
        rc = actor_ws_send(ears[i], HF_WS_BINARY, space, n);
    return rc < 0 ? rc : hf_reply_number(200, shouts);
}

hf_i32 actor_http(const hf_http* request) {
    hf_text path = hf_path(request);
    hf_u32 n = (hf_u32)hf_number(hf_query(request));
    ++served;
    sink = 0;
    end_badly(path);
    if (hf_same(path, "/served")) return hf_reply_number(200, served);
    if (hf_same(path, "/fill")) fill_for_ever(n);
    if (hf_same(path, "/grow")) return hf_reply_number(200, grow_until_refused());
    if (hf_same(path, "/halves"))
        return hf_reply_number(200, (hf_u64)(has("first") + 2 * has("second")));
    if (hf_same(path, "/wake")) {
        hf_i32 rc = actor_alarm_set(actor_now_ms() + n);
        return rc < 0 ? rc : hf_reply_text(200, "set\n");
    }
    if (hf_same(path, "/woken")) return hf_reply_number(200, value_of("woken") + 100 * has("seen"));
    if (n > SPACE) return hf_reply_text(400, "more than a test needs\n");
    if (hf_same(path, "/carry")) return carry(n);
    if (hf_same(path, "/fetch")) return fetch(n);
    if (hf_same(path, "/mail")) return mail(n);
    if (hf_same(path, "/shout")) return shout(n);
    if (hf_same(path, "/mailed")) {
        hf_i32 rc = actor_kv_get("mail", 4, space, 64);
        return hf_reply(200, space, rc < 0 ? 0 : (hf_u32)rc);
    }
    return hf_reply_text(404, "the unruly one does not know that\n");
}

/* What a failed attempt wrote is undone with it: "seen" is there only if a write of one that failed was kept. */
hf_i32 actor_alarm(const hf_alarm* alarm) {
    if (alarm->attempt < 3) {
        put("seen", 1);
        __builtin_trap();
    }
    put("woken", alarm->attempt);
    return 0;
}

hf_i32 actor_call(const hf_call_event* call) {
    if (hf_same(call->method, "echo")) return hf_answer(call->body);
    if (hf_same(call->method, "give") && call->body.len == sizeof(hf_u32)) {
        hf_u32 n = *(const hf_u32*)(const void*)call->body.at;
        hf_i32 rc = actor_reply(space, n);
        return rc;
    }
    if (hf_same(call->method, "keep")) {
        hf_u64 sum = 0;
        char text[48];
        for (hf_u32 i = 0; i < call->body.len; ++i) sum += (hf_u8)call->body.at[i];
        hf_u32 at = hf_decimal(call->body.len, text);
        text[at++] = ' ';
        at += hf_decimal(sum, text + at);
        return actor_kv_put("mail", 4, text, at);
    }
    return -1;
}

hf_i32 actor_ws_opened(const hf_ws_open* open) {
    if (ears_count < EARS) ears[ears_count++] = open->connection;
    return 0;
}

hf_i32 actor_ws_message(const hf_ws_message* message) {
    return actor_ws_send(message->connection,
                         message->binary ? HF_WS_BINARY : HF_WS_TEXT,
                         message->data.at,
                         message->data.len);
}
