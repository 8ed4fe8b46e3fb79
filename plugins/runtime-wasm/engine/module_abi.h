/* The seam between a compiled module (<key>.so, generated C) and the host that loads it.
 *
 * Included by the engine and, word for word, by the C that holdfast-wasm-build generates, so both sides agree by
 * construction; HF_MODULE_ABI is part of the cache key and is checked at load besides. A module calls nothing but libc,
 * libm and the functions of hf_host_v1: it needs no symbol of the executable that loads it.
 * C11 and C++20; needs wasm-rt.h before it. */
#ifndef HF_MODULE_ABI_H
#define HF_MODULE_ABI_H

#define HF_MODULE_ABI 1u

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
    uint32_t (*http_reply)(uint32_t status, uint32_t hp, uint32_t hl, uint32_t bp, uint32_t bl);
    void (*log)(uint32_t level, uint32_t p, uint32_t l);
    uint64_t (*now_ms)(void);
    void (*random)(uint32_t p, uint32_t l);
    void (*abort)(uint32_t p, uint32_t l);
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
    void (*start)(void* instance); /* optional; image phase only, as the next two */
    void (*initialize)(void* instance);
    void (*actor_prepare)(void* instance);
};

#ifdef __cplusplus
}
#endif
#endif
