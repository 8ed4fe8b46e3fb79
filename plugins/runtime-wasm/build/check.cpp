// The second look: names and types of a validated module against guest ABI v1.
#include <wabt/ir.h>

#include "plugins/runtime-wasm/build/policy.hpp"

namespace hf::wasm {

namespace {

char letter(wabt::Type type) {
    switch (type) {
        case wabt::Type::I32:
            return 'i';
        case wabt::Type::I64:
            return 'I';
        case wabt::Type::F32:
            return 'f';
        case wabt::Type::F64:
            return 'F';
        default:
            return '?';
    }
}

std::string letters(const wabt::TypeVector& types) {
    std::string out;
    for (const wabt::Type type : types) out.push_back(letter(type));
    return out;
}

std::string spelled(std::string_view params, std::string_view results) {
    const auto words = [](std::string_view types) {
        std::string out;
        for (const char type : types) {
            if (!out.empty()) out += ' ';
            out += type == 'i'   ? "i32"
                   : type == 'I' ? "i64"
                   : type == 'f' ? "f32"
                   : type == 'F' ? "f64"
                                 : "ref";
        }
        return out;
    };
    return "(" + words(params) + ") -> (" + words(results) + ")";
}

Result<void> same_type(const std::string& what,
                       const wabt::FuncSignature& have,
                       std::string_view params,
                       std::string_view result) {
    const std::string have_params = letters(have.param_types);
    const std::string have_results = letters(have.result_types);
    if (have_params == params && have_results == result) return {};
    return fail(Code::Refused,
                what + " has the type " + spelled(have_params, have_results) + ", it must be " +
                    spelled(params, result));
}

Result<void> check_import(const wabt::Import& import) {
    const std::string what = "import \"" + import.module_name + "\" \"" + import.field_name + "\"";
    std::string offered;
    for (const KnownImport& known : known_imports()) {
        if (known.module != import.module_name) continue;
        if (known.name == import.field_name && import.kind() == wabt::ExternalKind::Func)
            return same_type(what,
                             static_cast<const wabt::FuncImport&>(import).func.decl.sig,
                             known.params,
                             known.result);
        offered += (offered.empty() ? "" : ", ") + std::string(known.name);
    }
    if (import.module_name == kActorModule)
        return fail(Code::Refused, what + " is not known: guest ABI v1 offers " + offered);
    if (import.module_name == kWasiModule)
        return fail(Code::Refused, what + " is not one of that version's functions");
    return fail(Code::Refused,
                what +
                    " is not known: modules \"actor\" and \"wasi_snapshot_preview1\" are offered; "
                    "a function that the linker did not find becomes an import of \"env\"");
}

}  // namespace

Result<void> check(const wabt::Module& module) {
    for (const wabt::Import* import : module.imports) HF_TRY(check_import(*import));
    for (const wabt::TypeEntry* entry : module.types) {
        if (entry->kind() != wabt::TypeEntryKind::Func)
            return fail(Code::Refused, "a type is not a function type");
        const auto& sig = static_cast<const wabt::FuncType*>(entry)->sig;
        if ((letters(sig.param_types) + letters(sig.result_types)).find('?') != std::string::npos)
            return fail(
                Code::Refused,
                "a function type has a reference among its values: only numbers are allowed");
    }
    if (module.memories.size() != 1)
        return fail(Code::Refused, "the module has no memory, it must have exactly one");
    const wabt::Export* memory = module.GetExport("memory");
    if (memory == nullptr || memory->kind != wabt::ExternalKind::Memory)
        return fail(Code::Refused, "the module does not export its memory as \"memory\"");
    for (const KnownExport& known : known_exports()) {
        const wabt::Export* found = module.GetExport(known.name);
        const std::string what = "export \"" + std::string(known.name) + "\"";
        if (found == nullptr) {
            if (!known.required) continue;
            return fail(Code::Refused,
                        what + " is missing: guest ABI v1 needs a function " +
                            spelled(known.params, known.result));
        }
        if (found->kind != wabt::ExternalKind::Func)
            return fail(Code::Refused, what + " is not a function");
        HF_TRY(same_type(what, module.GetFunc(found->var)->decl.sig, known.params, known.result));
    }
    return {};
}

}  // namespace hf::wasm
