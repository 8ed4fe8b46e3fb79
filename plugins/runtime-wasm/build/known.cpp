// Guest ABI v1 as tables: what may be imported and what must be exported.
#include "plugins/runtime-wasm/build/policy.hpp"

namespace hf::wasm {

const std::vector<KnownImport>& known_imports() {
    static const std::vector<KnownImport> imports = {
        {"kv_get", "iiii", "i"},
        {"kv_put", "iiii", "i"},
        {"kv_delete", "ii", "i"},
        {"http_reply", "iiiii", "i"},
        {"log", "iii", ""},
        {"now_ms", "", "I"},
        {"random", "ii", ""},
        {"abort", "ii", ""},
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
