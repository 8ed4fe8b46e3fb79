// Guest ABI v1 as tables: what may be imported and what must be exported.
#include "plugins/runtime-wasm/build/policy.hpp"

namespace hf::wasm {

namespace {

// Error numbers of wasi_snapshot_preview1.
constexpr std::uint32_t kErrBadDescriptor = 8;
constexpr std::uint32_t kErrNotSupported = 58;

KnownImport actor(std::string_view name, std::string_view params, std::string_view result) {
    return {kActorModule, name, params, result, name, 0};
}
KnownImport wasi(std::string_view name,
                 std::string_view params,
                 std::string_view result,
                 std::string_view host) {
    return {kWasiModule, name, params, result, host, 0};
}
KnownImport constant(std::string_view name, std::string_view params, std::uint32_t answer) {
    return {kWasiModule, name, params, "i", "", answer};
}
// No descriptor but 1 and 2 exists, so none is good for anything else.
KnownImport no_descriptor(std::string_view name, std::string_view params) {
    return constant(name, params, kErrBadDescriptor);
}

}  // namespace

// Types of the second half as wasi-libc declares them (wasi/api.h).
const std::vector<KnownImport>& known_imports() {
    static const std::vector<KnownImport> imports = {
        actor("kv_get", "iiii", "i"),
        actor("kv_put", "iiii", "i"),
        actor("kv_delete", "ii", "i"),
        actor("kv_list", "iiiiii", "i"),
        actor("kv_next", "iii", "i"),
        actor("kv_close", "i", "i"),
        actor("reply", "ii", "i"),
        actor("http_reply", "iiiii", "i"),
        actor("alarm_set", "I", "i"),
        actor("alarm_get", "", "I"),
        actor("alarm_clear", "", "i"),
        actor("call", "iiiiiii", "i"),
        actor("result_read", "iii", "i"),
        actor("send", "iiiiii", "i"),
        actor("entity_send", "iiiiii", "i"),
        actor("entity_ask", "iiiiiii", "i"),
        actor("ws_send", "Iiii", "i"),
        actor("ws_close", "Iiii", "i"),
        actor("passivate", "", "i"),
        actor("log", "iii", ""),
        actor("now_ms", "", "I"),
        actor("random", "ii", ""),
        actor("abort", "ii", ""),
        wasi("fd_write", "iiii", "i", "wasi_fd_write"),
        wasi("fd_fdstat_get", "ii", "i", "wasi_fd_fdstat_get"),
        wasi("clock_time_get", "iIi", "i", "wasi_clock_time_get"),
        wasi("clock_res_get", "ii", "i", "wasi_clock_res_get"),
        wasi("random_get", "ii", "i", "wasi_random_get"),
        wasi("args_sizes_get", "ii", "i", "wasi_sizes_get"),
        wasi("environ_sizes_get", "ii", "i", "wasi_sizes_get"),
        wasi("proc_exit", "i", "", "wasi_proc_exit"),
        constant("args_get", "ii", 0),
        constant("environ_get", "ii", 0),
        constant("sched_yield", "", 0),
        constant("poll_oneoff", "iiii", kErrNotSupported),
        constant("proc_raise", "i", kErrNotSupported),
        no_descriptor("fd_advise", "iIIi"),
        no_descriptor("fd_allocate", "iII"),
        no_descriptor("fd_close", "i"),
        no_descriptor("fd_datasync", "i"),
        no_descriptor("fd_fdstat_set_flags", "ii"),
        no_descriptor("fd_fdstat_set_rights", "iII"),
        no_descriptor("fd_filestat_get", "ii"),
        no_descriptor("fd_filestat_set_size", "iI"),
        no_descriptor("fd_filestat_set_times", "iIIi"),
        no_descriptor("fd_pread", "iiiIi"),
        no_descriptor("fd_prestat_get", "ii"),
        no_descriptor("fd_prestat_dir_name", "iii"),
        no_descriptor("fd_pwrite", "iiiIi"),
        no_descriptor("fd_read", "iiii"),
        no_descriptor("fd_readdir", "iiiIi"),
        no_descriptor("fd_renumber", "ii"),
        no_descriptor("fd_seek", "iIii"),
        no_descriptor("fd_sync", "i"),
        no_descriptor("fd_tell", "ii"),
        no_descriptor("path_create_directory", "iii"),
        no_descriptor("path_filestat_get", "iiiii"),
        no_descriptor("path_filestat_set_times", "iiiiIIi"),
        no_descriptor("path_link", "iiiiiii"),
        no_descriptor("path_open", "iiiiiIIii"),
        no_descriptor("path_readlink", "iiiiii"),
        no_descriptor("path_remove_directory", "iii"),
        no_descriptor("path_rename", "iiiiii"),
        no_descriptor("path_symlink", "iiiii"),
        no_descriptor("path_unlink_file", "iii"),
        no_descriptor("sock_accept", "iii"),
        no_descriptor("sock_recv", "iiiiii"),
        no_descriptor("sock_send", "iiiii"),
        no_descriptor("sock_shutdown", "ii"),
    };
    return imports;
}

const std::vector<KnownExport>& known_exports() {
    static const std::vector<KnownExport> exports = {
        {"actor_abi_v1", "", "", true},
        {"actor_alloc", "i", "i", true},
        {"actor_event", "iii", "i", true},
        {"actor_free", "ii", "", false},
        {"actor_fresh", "", "", false},
        {"actor_on_stop", "", "", false},
        {"actor_on_restored", "", "", false},
        {"actor_prepare", "", "", false},
        {"_initialize", "", "", false},
    };
    return exports;
}

bool name_allowed(std::string_view name) {
    if (name.empty() || name.size() > kNameBytesMax) return false;
    for (const char c : name) {
        const bool letter =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && std::string_view("_.:$-").find(c) == std::string_view::npos) return false;
    }
    return true;
}

}  // namespace hf::wasm
