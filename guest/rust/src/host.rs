//! The host's functions as they are: module "actor" of guest ABI v1. Lengths and offsets are those of this memory.

#[link(wasm_import_module = "actor")]
extern "C" {
    pub fn kv_get(key: *const u8, key_len: u32, out: *mut u8, cap: u32) -> i32;
    pub fn kv_put(key: *const u8, key_len: u32, value: *const u8, len: u32) -> i32;
    pub fn kv_delete(key: *const u8, key_len: u32) -> i32;
    pub fn kv_list(prefix: *const u8, prefix_len: u32, start: *const u8, start_len: u32, limit: u32, flags: u32) -> i32;
    pub fn kv_next(cursor: i32, out: *mut u8, cap: u32) -> i32;
    pub fn kv_close(cursor: i32) -> i32;
    pub fn reply(body: *const u8, len: u32) -> i32;
    pub fn http_reply(status: u32, headers: *const u8, headers_len: u32, body: *const u8, len: u32) -> i32;
    pub fn alarm_set(ms: i64) -> i32;
    pub fn alarm_get() -> i64;
    pub fn alarm_clear() -> i32;
    pub fn call(
        target: *const u8,
        target_len: u32,
        method: *const u8,
        method_len: u32,
        body: *const u8,
        len: u32,
        timeout_ms: u32,
    ) -> i32;
    pub fn result_read(handle: i32, out: *mut u8, cap: u32) -> i32;
    pub fn send(
        target: *const u8,
        target_len: u32,
        method: *const u8,
        method_len: u32,
        body: *const u8,
        len: u32,
    ) -> i32;
    pub fn ws_send(connection: u64, kind: u32, data: *const u8, len: u32) -> i32;
    pub fn ws_close(connection: u64, code: u32, reason: *const u8, len: u32) -> i32;
    pub fn passivate() -> i32;
    pub fn log(level: u32, text: *const u8, len: u32);
    pub fn now_ms() -> i64;
    pub fn random(out: *mut u8, len: u32);
    pub fn abort(text: *const u8, len: u32);
}
