/* A chat room: everybody who opens a WebSocket to the actor hears what the others say.
 *
 *   text message "/name <name>"    from now on that is who speaks
 *   any other text                 goes to all as "<name>: <text>", and is kept; the last 20 lines greet who comes
 *   binary                         is not for a chat room: closed with 1003
 *   GET /                          who is there, a line each
 *
 * Keys: "in/<connection>" is the name of one who is there, "line/<number>" a line, "next" the next number. */
#define HF_ACTOR_IMPLEMENTATION
#include "holdfast_actor.h"

#define kLinesKept 20u
#define kTextMax \
    400u /* of a line: twenty of them greet who comes, a fifth of what an event may leave */
#define kPeopleMax 400u /* their names take two thirds of the state, the lines a fifth */
#define kNameMax 32u

static char line[kNameMax + 2 + kTextMax];
static char pair[1024];

static hf_u32 copy(char* to, hf_text from, hf_u32 most) {
    hf_u32 n = from.len < most ? from.len : most;
    for (hf_u32 i = 0; i < n; ++i) to[i] = from.at[i];
    return n;
}

/* "prefix" and 16 hex digits, which sort as numbers do. */
static hf_u32 numbered(const char* prefix, hf_u64 number, char* out) {
    hf_u32 n = copy(out, hf_lit(prefix), 16);
    for (int shift = 60; shift >= 0; shift -= 4)
        out[n++] = "0123456789abcdef"[(number >> shift) & 15];
    return n;
}

static hf_u64 number_of(hf_text key, hf_u32 prefix) {
    hf_u64 number = 0;
    for (hf_u32 i = prefix; i < key.len; ++i)
        number = number * 16 + (hf_u64)(key.at[i] <= '9' ? key.at[i] - '0' : key.at[i] - 'a' + 10);
    return number;
}

static hf_i32 tell_all(hf_text text) {
    hf_text key;
    hf_text value;
    hf_i32 rc = 0;
    hf_i32 cursor = actor_kv_list("in/", 3, 0, 0, 0, HF_LIST_KEYS_ONLY);
    if (cursor < 0) return cursor;
    while (rc >= 0 && hf_next(cursor, pair, sizeof pair, &key, &value) > 0)
        rc = hf_ws_text(number_of(key, 3), text);
    actor_kv_close(cursor);
    return rc;
}

static hf_i32 keep(hf_text text) {
    hf_u64 next = 0;
    char key[32];
    actor_kv_get("next", 4, &next, sizeof next);
    hf_i32 rc = actor_kv_put(key, numbered("line/", next, key), text.at, text.len);
    if (rc < 0) return rc;
    if (next >= kLinesKept) actor_kv_delete(key, numbered("line/", next - kLinesKept, key));
    ++next;
    return actor_kv_put("next", 4, &next, sizeof next);
}

static hf_i32 say(hf_text name, hf_text text) {
    hf_text whole = {line, copy(line, name, kNameMax)};
    line[whole.len++] = ':';
    line[whole.len++] = ' ';
    whole.len += copy(line + whole.len, text, kTextMax);
    hf_i32 rc = keep(whole);
    return rc < 0 ? rc : tell_all(whole);
}

static hf_u32 people(void) {
    hf_text key;
    hf_text value;
    hf_u32 n = 0;
    hf_i32 cursor = actor_kv_list("in/", 3, 0, 0, 0, HF_LIST_KEYS_ONLY);
    while (hf_next(cursor, pair, sizeof pair, &key, &value) > 0) ++n;
    actor_kv_close(cursor);
    return n;
}

hf_i32 actor_ws_opened(const hf_ws_open* open) {
    char key[32];
    hf_text found;
    hf_text text;
    if (people() >= kPeopleMax) return hf_reply_text(503, "the room is full\n");
    hf_i32 cursor = actor_kv_list("line/", 5, 0, 0, 0, 0);
    hf_i32 rc = cursor;
    while (rc >= 0 && hf_next(cursor, pair, sizeof pair, &found, &text) > 0)
        rc = hf_ws_text(open->connection, text);
    if (rc < 0) return rc;
    actor_kv_close(cursor);
    return actor_kv_put(key, numbered("in/", open->connection, key), "somebody", 8);
}

hf_i32 actor_ws_message(const hf_ws_message* message) {
    char key[32];
    char name[kNameMax];
    hf_u32 key_len = numbered("in/", message->connection, key);
    hf_i32 known = actor_kv_get(key, key_len, name, sizeof name);
    if (known < 0) return 0; /* of a connection that closed meanwhile */
    if (message->binary) return actor_ws_close(message->connection, 1003, "text only", 9);
    hf_text text = message->data;
    if (hf_starts(text, "/name ")) {
        hf_u32 n = text.len - 6 < kNameMax ? text.len - 6 : kNameMax;
        return n == 0 ? 0 : actor_kv_put(key, key_len, text.at + 6, n);
    }
    hf_text who = {name, (hf_u32)known};
    return say(who, text);
}

hf_i32 actor_ws_closed(const hf_ws_close* close) {
    char key[32];
    actor_kv_delete(key, numbered("in/", close->connection, key));
    return 0;
}

/* After a restart nobody is there any more: their connections are gone. */
HF_WANT_RESTORED
hf_i32 actor_restored(void) {
    hf_text key;
    hf_text value;
    hf_i32 cursor = actor_kv_list("in/", 3, 0, 0, 0, HF_LIST_KEYS_ONLY);
    while (hf_next(cursor, pair, sizeof pair, &key, &value) > 0) actor_kv_delete(key.at, key.len);
    return 0;
}

hf_i32 actor_http(const hf_http* request) {
    static char names[kPeopleMax * (kNameMax + 1)];
    hf_u32 len = 0;
    hf_text key;
    hf_text value;
    if (!hf_same(request->method, "GET")) return hf_reply_text(405, "a room knows GET\n");
    hf_i32 cursor = actor_kv_list("in/", 3, 0, 0, kPeopleMax, 0);
    while (hf_next(cursor, pair, sizeof pair, &key, &value) > 0) {
        len += copy(names + len, value, kNameMax);
        names[len++] = '\n';
    }
    return hf_reply(200, names, len);
}
