#include "plugins/runtime-wasm/build/shim.hpp"

#include <string_view>

#include "abi/base/check.hpp"
#include "plugins/runtime-wasm/build/policy.hpp"

// The seam's header as text, so that both sides read one file.
asm(R"(
    .section .rodata
    .global hf_module_abi_text
    .global hf_module_abi_text_end
hf_module_abi_text:
    .incbin ")" HF_MODULE_ABI_PATH R"("
hf_module_abi_text_end:
    .byte 0
    .text
)");
extern "C" const char hf_module_abi_text[];
extern "C" const char hf_module_abi_text_end[];

namespace hf::wasm {

namespace {

constexpr std::string_view kRuntime = R"(
static const struct hf_host_v1* hf_host;
void wasm_rt_trap(wasm_rt_trap_t code) {
    hf_host->trap((int)code);
    __builtin_unreachable();
}
bool wasm_rt_is_initialized(void) { return true; }
#include <stdarg.h>
uint32_t wasm_rt_register_func_type(uint32_t params, uint32_t results, ...) {
    int types[HF_TYPES_MAX];
    va_list args;
    va_start(args, results);
    for (uint32_t i = 0; i < params + results; ++i) types[i] = (int)va_arg(args, wasm_rt_type_t);
    va_end(args);
    return hf_host->register_func_type(params, results, types);
}
void wasm_rt_allocate_memory(wasm_rt_memory_t* m, uint32_t pages, uint32_t max) { hf_host->allocate_memory(m, pages, max); }
uint32_t wasm_rt_grow_memory(wasm_rt_memory_t* m, uint32_t pages) { return hf_host->grow_memory(m, pages); }
void wasm_rt_free_memory(wasm_rt_memory_t* m) {}
void wasm_rt_allocate_funcref_table(wasm_rt_funcref_table_t* t, uint32_t n, uint32_t max) { hf_host->allocate_table(t, n, max); }
void wasm_rt_free_funcref_table(wasm_rt_funcref_table_t* t) {}
static void hf_set_host(const struct hf_host_v1* host) { hf_host = host; }
)";

const char* c_type(std::string_view letters) {
    if (letters.empty()) return "void";
    return letters == "I" ? "u64" : "u32";
}

// u32 Z_actorZ_kv_get(struct Z_actor_instance_t* i, u32 a0, ...) { return hf_host->kv_get(a0, ...); }
std::string import_function(const KnownImport& known) {
    const std::string module(known.module);
    std::string params = "struct Z_" + module + "_instance_t* i";
    std::string args;
    for (std::size_t n = 0; n < known.params.size(); ++n) {
        const std::string name = "a" + std::to_string(n);
        params += std::string(", ") + c_type(known.params.substr(n, 1)) + " " + name;
        args += (n == 0 ? "" : ", ") + name;
    }
    const std::string body = known.host.empty()
                                 ? std::to_string(known.answer)
                                 : "hf_host->" + std::string(known.host) + "(" + args + ")";
    return std::string(c_type(known.result)) + " Z_" + module + "Z_" + std::string(known.name) +
           "(" + params + ") { " + (known.result.empty() ? "" : "return ") + body + "; }\n";
}

std::string entry(std::string_view field, std::string_view symbol, bool present) {
    if (!present) return "";
    return "    ." + std::string(field) + " = (void*)Z_hfZ_" + std::string(symbol) + ",\n";
}

}  // namespace

std::string shim(const ShimFacts& facts) {
    std::string out =
        "\n/* holdfast */\n#define HF_TYPES_MAX " + std::to_string(kParamsMax + kResultsMax) + "\n";
    out.append(hf_module_abi_text, hf_module_abi_text_end);
    out += kRuntime;
    for (const KnownImport& known : known_imports())
        if (facts.imports.contains({std::string(known.module), std::string(known.name)}))
            out += import_function(known);
    // One instance argument for each module that is imported from; ours have none.
    std::set<std::string> modules;
    for (const auto& [module, field] : facts.imports) modules.insert(module);
    out += "static void hf_instantiate(void* i) { Z_hf_instantiate(i";
    for (std::size_t i = 0; i < modules.size(); ++i) out += ", 0";
    out += "); }\n";
    out += "static const struct hf_global_v1 hf_globals[] = {\n";
    for (const ShimGlobal& global : facts.globals)
        out += "    {(void*)Z_hfZ_" + global.name + ", " + std::to_string(global.bytes) + "},\n";
    out += "    {0, 0}};\n";
    out +=
        "__attribute__((visibility(\"default\"))) const struct hf_module_v1 hf_module = {\n"
        "    .abi = HF_MODULE_ABI,\n    .module_bytes = sizeof(struct hf_module_v1),\n"
        "    .host_bytes = sizeof(struct hf_host_v1),\n    .instance_bytes = "
        "sizeof(Z_hf_instance_t),\n"
        "    .max_pages = " +
        std::to_string(facts.pages_max) +
        "u,\n"
        "    .global_count = " +
        std::to_string(facts.globals.size()) +
        ",\n    .globals = hf_globals,\n"
        "    .set_host = hf_set_host,\n    .init = Z_hf_init_module,\n    .instantiate = "
        "hf_instantiate,\n";
    out += entry("memory", "memory", true);
    out += entry("table", "__hf_table", facts.has_table);
    out += entry("start", "__hf_start", facts.has_start);
    for (const KnownExport& known : known_exports()) {
        if (known.name == "actor_abi_v1") continue;
        const std::string_view field = known.name == "_initialize" ? "initialize" : known.name;
        out += entry(field, known.name, facts.exports.contains(std::string(known.name)));
    }
    return out + "};\n";
}

}  // namespace hf::wasm
