/* A placement policy in C, as an outside author would write it: the least loaded candidate with room, local ones first. */
#include <stdio.h>
#include <string.h>

#include "abi/capi/holdfast_plugin.h"

static const char* configure(hf_plugin* plugin, void* user) {
    (void)user;
    if (strcmp(hf_policy(plugin), "least-loaded") != 0)
        return "this plugin knows the policy least-loaded only";
    const char* mode = hf_setting(plugin, "mode");
    return mode == NULL || strcmp(mode, "plain") == 0 ? NULL : "mode is plain or absent";
}

static void place(hf_plugin* plugin, const hf_message* message) {
    hf_place want;
    hf_candidate best = {0}, one;
    int found = 0;
    if (hf_place_read(plugin, message, &want) != 0) return;
    for (uint32_t i = 0; i < want.candidates; ++i) {
        if (hf_place_candidate(plugin, message, i, &one) != 0) continue;
        if (one.capacity != 0 && one.resident >= one.capacity) continue;
        if (hf_place_label(plugin, message, i, "cordoned") != NULL) continue;
        if (!found || one.resident < best.resident) best = one;
        found = 1;
    }
    if (found)
        hf_placed(plugin, message->req_id, best.id);
    else
        hf_placed_nobody(plugin, message->req_id, "no candidate has room");
}

int main(int argc, char** argv) {
    static const char* const policies[] = {"least-loaded", NULL};
    const hf_identity identity = {HF_PLACEMENT, "c-policy", "1", policies, configure, NULL};
    hf_plugin* plugin = hf_attach(&identity, argc, argv);
    hf_message message;
    int first = 1;
    if (plugin == NULL) return hf_exit_code(NULL);
    while (hf_next(plugin, &message)) {
        if (message.type == 51 && first) hf_log(plugin, HF_INFO, "first question"), first = 0;
        if (message.type == 51) place(plugin, &message);
        /* A second answer is refused and not sent. */
        if (message.type == 51 && hf_placed(plugin, message.req_id, 0) == 0) return 3;
    }
    return hf_detach(plugin);
}
