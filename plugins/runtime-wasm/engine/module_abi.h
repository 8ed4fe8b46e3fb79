/* The seam between a compiled module (<key>.so, generated C) and the host that loads it.
 *
 * Included by the engine and, word for word, by the C that holdfast-wasm-build generates, so both sides agree by
 * construction; HF_MODULE_ABI is part of the cache key and is checked at load besides. A module calls nothing but libc,
 * libm and the functions of hf_host_v1: it needs no symbol of the executable that loads it.
 * C11 and C++20; needs wasm-rt.h before it. */
#ifndef HF_MODULE_ABI_H
#define HF_MODULE_ABI_H

#define HF_MODULE_ABI 2u

#ifdef __cplusplus
extern "C" {
#endif

/* What the host offers. The instance meant is the one the calling thread runs: an instance pointer that came through
 * guest code's tables would be an allegation. Guest pointers are offsets into its memory and are checked by the host.
 * None of these returns when the guest is to be stopped. */
struct hf_host_v1 {
    /* from wasm-rt.h */
    void (*trap)(int code);
    uint32_t (*register_func_type)(uint32_t params, uint32_t results, const int* types);
    void (*allocate_memory)(wasm_rt_memory_t* memory, uint32_t pages, uint32_t max_pages);
    uint32_t (*grow_memory)(wasm_rt_memory_t* memory, uint32_t pages);
    void (*allocate_table)(wasm_rt_funcref_table_t* table, uint32_t size, uint32_t max_size);
    /* guest ABI v1, import module "actor" */
    uint32_t (*kv_get)(uint32_t kp, uint32_t kl, uint32_t out, uint32_t cap);
    uint32_t (*kv_put)(uint32_t kp, uint32_t kl, uint32_t vp, uint32_t vl);
    uint32_t (*kv_delete)(uint32_t kp, uint32_t kl);
    uint32_t (*kv_list)(
        uint32_t pp, uint32_t pl, uint32_t sp, uint32_t sl, uint32_t limit, uint32_t flags);
    uint32_t (*kv_next)(uint32_t cursor, uint32_t out, uint32_t cap);
    uint32_t (*kv_close)(uint32_t cursor);
    uint32_t (*reply)(uint32_t p, uint32_t l);
    uint32_t (*http_reply)(uint32_t status, uint32_t hp, uint32_t hl, uint32_t bp, uint32_t bl);
    uint32_t (*alarm_set)(uint64_t ms);
    uint64_t (*alarm_get)(void);
    uint32_t (*alarm_clear)(void);
    uint32_t (*call)(uint32_t tp,
                     uint32_t tl,
                     uint32_t mp,
                     uint32_t ml,
                     uint32_t bp,
                     uint32_t bl,
                     uint32_t timeout_ms);
    uint32_t (*result_read)(uint32_t handle, uint32_t out, uint32_t cap);
    uint32_t (*send)(uint32_t tp, uint32_t tl, uint32_t mp, uint32_t ml, uint32_t bp, uint32_t bl);
    uint32_t (*entity_send)(
        uint32_t tp, uint32_t tl, uint32_t mp, uint32_t ml, uint32_t bp, uint32_t bl);
    uint32_t (*entity_ask)(uint32_t tp,
                           uint32_t tl,
                           uint32_t mp,
                           uint32_t ml,
                           uint32_t bp,
                           uint32_t bl,
                           uint32_t timeout_ms);
    uint32_t (*ws_send)(uint64_t connection, uint32_t kind, uint32_t p, uint32_t l);
    uint32_t (*ws_close)(uint64_t connection, uint32_t code, uint32_t p, uint32_t l);
    uint32_t (*passivate)(void);
    void (*log)(uint32_t level, uint32_t p, uint32_t l);
    uint64_t (*now_ms)(void);
    void (*random)(uint32_t p, uint32_t l);
    void (*abort)(uint32_t p, uint32_t l);
    /* import module "wasi_snapshot_preview1", what of it is not a constant */
    uint32_t (*wasi_fd_write)(uint32_t fd, uint32_t iovs, uint32_t count, uint32_t written);
    uint32_t (*wasi_fd_fdstat_get)(uint32_t fd, uint32_t out);
    uint32_t (*wasi_clock_time_get)(uint32_t id, uint64_t precision, uint32_t out);
    uint32_t (*wasi_clock_res_get)(uint32_t id, uint32_t out);
    uint32_t (*wasi_random_get)(uint32_t p, uint32_t l);
    uint32_t (*wasi_sizes_get)(uint32_t count, uint32_t bytes);
    void (*wasi_proc_exit)(uint32_t code);
};

/* One mutable global: where it lies in an instance and its size (4 or 8). */
struct hf_global_v1 {
    void* (*at)(void* instance);
    uint32_t bytes;
};

/* What a module is. The only symbol it exports is `hf_module` of this type. Optional entries are null. */
struct hf_module_v1 {
    uint32_t abi;          /* HF_MODULE_ABI */
    uint32_t module_bytes; /* sizeof(struct hf_module_v1) */
    uint32_t host_bytes;   /* sizeof(struct hf_host_v1) */
    uint32_t instance_bytes;
    uint32_t max_pages; /* as declared; UINT32_MAX: none declared */
    uint32_t global_count;
    const struct hf_global_v1* globals;
    void (*set_host)(const struct hf_host_v1* host);
    void (*init)(void);                  /* once a process, registers function types */
    void (*instantiate)(void* instance); /* memory, data, table; runs no guest code */
    wasm_rt_memory_t* (*memory)(void* instance);
    wasm_rt_funcref_table_t* (*table)(void* instance); /* optional */
    uint32_t (*actor_alloc)(void* instance, uint32_t len);
    uint32_t (*actor_event)(void* instance, uint32_t kind, uint32_t ptr, uint32_t len);
    void (*actor_free)(void* instance, uint32_t ptr, uint32_t len); /* optional */
    void (*actor_fresh)(void* instance);                            /* optional */
    void (*actor_on_stop)(void* instance); /* optional marker, never called, as the next */
    void (*actor_on_restored)(void* instance);
    void (*start)(void* instance); /* optional; image phase only, as the next two */
    void (*initialize)(void* instance);
    void (*actor_prepare)(void* instance);
};

#ifdef __cplusplus
}
#endif
#endif
