/* holdfast plugins in C, and in every language that can call C. One process, one link, one thread.
 *
 * A plugin attaches, takes messages until there are no more, answers each request once, and detaches:
 *
 *   hf_plugin *p = hf_attach(&identity, argc, argv);
 *   if (p == NULL) return hf_exit_code(NULL);
 *   hf_message m;
 *   while (hf_next(p, &m)) ...
 *   return hf_detach(p);
 *
 * Payloads are flatbuffers of the schemas in abi/schema. C has no code from flatc: the hf_place_* accessors read and
 * answer placement messages. Other languages read `envelope` and build answers with their own flatc code and hf_send.
 * Functions return 0 for success unless they say otherwise; hf_last_error has the sentence. */
#ifndef HOLDFAST_PLUGIN_H
#define HOLDFAST_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HF_API __attribute__((visibility("default")))

typedef struct hf_plugin hf_plugin;

/* Numbers of the schema's enum Kind and enum LogLevel. */
enum { HF_GATEWAY = 1, HF_STORAGE = 2, HF_RUNTIME = 3, HF_PLACEMENT = 4, HF_DRAIN = 5 };
enum { HF_TRACE = 0, HF_DEBUG = 1, HF_INFO = 2, HF_WARN = 3, HF_ERROR = 4 };

/* Static facts. Strings are copied. */
typedef struct hf_identity {
    uint8_t kind;
    const char* name;
    const char* version;
    const char* const* policies; /* ends with NULL; may be NULL */
    /* Called once with the settings known (hf_policy, hf_setting, hf_seed). After it the second filter is on: open files
     * and load code here. NULL is success, a sentence refuses the start. May be NULL itself. */
    const char* (*configure)(hf_plugin* plugin, void* user);
    void* user;
} hf_identity;

/* One verified message; the bytes stay good until the next hf_next. */
typedef struct hf_message {
    uint64_t req_id;     /* to be answered; 0 for one-way messages */
    uint16_t type;       /* number in the union Body: 51 is Place */
    int64_t deadline_ns; /* CLOCK_MONOTONIC; 0: none */
    const uint8_t* envelope;
    size_t envelope_bytes;
} hf_message;

/* Attaches to descriptor 3 and waits until the plugin is configured. NULL: it said why on standard error (or did what
 * --help and --version ask); end with hf_exit_code(NULL). */
HF_API hf_plugin* hf_attach(const hf_identity* identity, int argc, char** argv);
/* Waits for the next message. 1: there is one. 0: the end (stop, finished shed); detach and leave. */
HF_API int hf_next(hf_plugin* plugin, hf_message* message);
/* Sends an answer or one-way message: a finished Envelope with seq and generation set to 1 (both are filled in here) and
 * reply_to for an answer. */
HF_API int hf_send(hf_plugin* plugin, const uint8_t* envelope, size_t bytes);
HF_API void hf_log(hf_plugin* plugin, int level, const char* text);
/* The policy and settings of Configure; NULL when there is none of that name. Good until detach. */
HF_API const char* hf_policy(const hf_plugin* plugin);
HF_API const char* hf_setting(const hf_plugin* plugin, const char* key);
HF_API uint64_t hf_seed(const hf_plugin* plugin);
HF_API const char* hf_last_error(const hf_plugin* plugin);
/* Frees the plugin; the process's exit code. */
HF_API int hf_detach(hf_plugin* plugin);
/* The exit code after hf_attach gave NULL. */
HF_API int hf_exit_code(const hf_plugin* plugin);

/* ---- placement */

typedef struct hf_place {
    const char* subject; /* the escaped unit */
    const char* class_name;
    uint64_t sequence;
    uint64_t seed; /* the only randomness allowed: the same request gives the same seed */
    int explain;
    uint32_t candidates; /* 0..64 */
} hf_place;

typedef struct hf_candidate {
    uint32_t id; /* the answer names it */
    const char* node;
    uint32_t instance;
    uint64_t generation;
    int local;
    uint32_t resident; /* units there, those on their way included */
    uint32_t capacity; /* 0: unlimited */
    uint32_t inflight;
    uint32_t weight;
} hf_candidate;

/* Reads a message of type Place. */
HF_API int hf_place_read(hf_plugin* plugin, const hf_message* message, hf_place* place);
HF_API int hf_place_candidate(hf_plugin* plugin,
                              const hf_message* message,
                              uint32_t index,
                              hf_candidate* candidate);
/* The value of a candidate's label, or NULL. */
HF_API const char* hf_place_label(hf_plugin* plugin,
                                  const hf_message* message,
                                  uint32_t index,
                                  const char* key);
/* Answers with a candidate's id, or with nobody and the reason. */
HF_API int hf_placed(hf_plugin* plugin, uint64_t req_id, uint32_t id);
HF_API int hf_placed_nobody(hf_plugin* plugin, uint64_t req_id, const char* reason);

#ifdef __cplusplus
}
#endif

#endif
