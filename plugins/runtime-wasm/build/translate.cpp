#include "plugins/runtime-wasm/build/translate.hpp"

#include <wabt/apply-names.h>
#include <wabt/binary-reader-ir.h>
#include <wabt/c-writer.h>
#include <wabt/generate-names.h>
#include <wabt/ir.h>
#include <wabt/stream.h>
#include <wabt/validator.h>

#include <memory>
#include <set>

#include "plugins/runtime-wasm/build/policy.hpp"
#include "plugins/runtime-wasm/build/shim.hpp"
#include "plugins/runtime-wasm/build/wabt_reader.hpp"

namespace hf::wasm {

namespace {

void add_export(wabt::Module& module,
                const std::string& name,
                wabt::ExternalKind kind,
                wabt::Index index) {
    auto field = std::make_unique<wabt::ExportModuleField>();
    field->export_.name = name;
    field->export_.kind = kind;
    field->export_.var = wabt::Var(index, wabt::Location());
    module.AppendField(std::move(field));
}

// wasm2c emits an accessor for whatever is exported, which is how the host finds what it keeps. The start function
// becomes an export too, so that instantiating never runs guest code.
ShimFacts expose(wabt::Module& module) {
    ShimFacts facts;
    for (wabt::Index i = 0; i < module.globals.size(); ++i) {
        if (!module.globals[i]->mutable_) continue;
        const wabt::Type type = module.globals[i]->type;
        const std::string name =
            std::string(kReservedPrefix) + "g" + std::to_string(facts.globals.size());
        add_export(module, name, wabt::ExternalKind::Global, i);
        facts.globals.push_back(
            {name, type == wabt::Type::I32 || type == wabt::Type::F32 ? 4u : 8u});
    }
    if (!module.tables.empty()) {
        add_export(module, "__hf_table", wabt::ExternalKind::Table, 0);
        facts.has_table = true;
    }
    if (!module.starts.empty()) {
        add_export(
            module, "__hf_start", wabt::ExternalKind::Func, module.GetFuncIndex(*module.starts[0]));
        facts.has_start = true;
        for (auto field = module.fields.begin(); field != module.fields.end();)
            field = field->type() == wabt::ModuleFieldType::Start ? module.fields.erase(field)
                                                                  : ++field;
        module.starts.clear();
    }
    for (const KnownExport& known : known_exports())
        if (module.GetExport(known.name) != nullptr) facts.exports.emplace(known.name);
    for (const wabt::Import* import : module.imports)
        facts.imports.emplace(import->module_name, import->field_name);
    const wabt::Limits& limits = module.memories[0]->page_limits;
    facts.pages_max = limits.has_max ? limits.max : UINT32_MAX;
    return facts;
}

std::string text_of(wabt::MemoryStream& stream) {
    const auto& bytes = stream.output_buffer().data;
    return {bytes.begin(), bytes.end()};
}

}  // namespace

Result<Translation> translate(BytesView wasm, bool write_c) {
    HF_TRY(scan(wasm));
    wabt::Errors errors;
    wabt::Module module;
    const auto first_error = [&errors] {
        return reader_sentence(errors.empty() ? std::string() : errors[0].message);
    };
    if (wabt::Failed(wabt::ReadBinaryIr(
            "module", wasm.data(), wasm.size(), reader_options(), &errors, &module)))
        return fail(Code::Refused, first_error());
    if (wabt::Failed(wabt::ValidateModule(&module, &errors, wabt::ValidateOptions(features()))))
        return fail(Code::Refused, first_error());
    HF_TRY(check(module));

    Translation out;
    for (const wabt::Export* item : module.exports) out.exports.push_back(item->name);
    for (const wabt::Import* item : module.imports)
        out.imports.push_back(item->module_name + "." + item->field_name);
    const wabt::Limits& limits = module.memories[0]->page_limits;
    out.pages = static_cast<std::uint32_t>(limits.initial);
    out.pages_max = static_cast<std::uint32_t>(limits.has_max ? limits.max : 65536);
    if (!write_c) return out;

    const ShimFacts facts = expose(module);
    wabt::MemoryStream c;
    wabt::MemoryStream header;
    wabt::WriteCOptions options;
    options.module_name = "hf";  // ours, never the guest's
    if (wabt::Failed(wabt::GenerateNames(&module)) || wabt::Failed(wabt::ApplyNames(&module)) ||
        wabt::Failed(wabt::WriteC(&c, &header, "m.h", &module, options)))
        return fail(Code::Unavailable, "wasm2c could not translate the module");
    out.c = text_of(c) + shim(facts);
    out.header = text_of(header);
    return out;
}

}  // namespace hf::wasm
