// The first look: one pass over the raw bytes without building anything.
#include <wabt/binary-reader-nop.h>
#include <wabt/binary-reader.h>

#include "plugins/runtime-wasm/build/policy.hpp"
#include "plugins/runtime-wasm/build/wabt_reader.hpp"

namespace hf::wasm {

namespace {

using wabt::Address;
using wabt::Index;
using wabt::Offset;

std::string printable(std::string_view name) {
    std::string out = "\"";
    for (const char c : name.substr(0, 40))
        out.push_back(c >= 0x20 && c < 0x7f && c != '"' ? c : '?');
    out.push_back('"');
    return out;
}

class Scanner final : public wabt::BinaryReaderNop {
public:
    std::string refusal;  // ours; first one wins
    std::string invalid;  // the reader's own

    bool OnError(const wabt::Error& error) override {
        if (invalid.empty()) invalid = error.message;
        return true;
    }
    wabt::Result OnTypeCount(Index n) override { return bound("types", n, kTypesMax); }
    wabt::Result OnImportCount(Index n) override { return bound("imports", n, kImportsMax); }
    wabt::Result OnFunctionCount(Index n) override { return bound("functions", n, kFunctionsMax); }
    wabt::Result OnTableCount(Index n) override { return bound("tables", n, 1); }
    wabt::Result OnMemoryCount(Index n) override { return bound("memories", n, 1); }
    wabt::Result OnGlobalCount(Index n) override { return bound("globals", n, kGlobalsMax); }
    wabt::Result OnExportCount(Index n) override { return bound("exports", n, kExportsMax); }
    wabt::Result OnElemSegmentCount(Index n) override {
        return bound("element segments", n, kSegmentsMax);
    }
    wabt::Result OnDataSegmentCount(Index n) override {
        return bound("data segments", n, kSegmentsMax);
    }
    wabt::Result BeginCodeSection(Offset size) override {
        return bound("bytes of code", size, kCodeBytesMax);
    }

    // Outside of a body there are initialisers only, and the library asserts on blocks among them.
    wabt::Result OnOpcode(wabt::Opcode opcode) override {
        if (function_ != wabt::kInvalidIndex) return wabt::Result::Ok;
        switch (opcode) {
            case wabt::Opcode::I32Const:
            case wabt::Opcode::I64Const:
            case wabt::Opcode::F32Const:
            case wabt::Opcode::F64Const:
            case wabt::Opcode::GlobalGet:
            case wabt::Opcode::RefNull:
            case wabt::Opcode::RefFunc:
            case wabt::Opcode::End:
                return wabt::Result::Ok;
            default:
                return refuse(std::string("an initialiser uses ") + opcode.GetName() +
                              ": only constants are allowed");
        }
    }

    wabt::Result OnFuncType(
        Index i, Index params, wabt::Type*, Index results, wabt::Type*) override {
        if (params > kParamsMax) return above("type", i, "parameters", params, kParamsMax);
        if (results > kResultsMax) return above("type", i, "results", results, kResultsMax);
        params_.push_back(params);
        return wabt::Result::Ok;
    }
    wabt::Result OnImport(Index i,
                          wabt::ExternalKind kind,
                          std::string_view module,
                          std::string_view field) override {
        if (!name_allowed(module) || !name_allowed(field))
            return refuse("import " + std::to_string(i) + " is named " + printable(module) + " " +
                          printable(field) + ": names are 1 to 128 of letters, digits and _.:$-");
        if (kind != wabt::ExternalKind::Func)
            return refuse("import " + printable(module) + " " + printable(field) +
                          " is not a function: memory, table and globals must be the module's own");
        ++imported_functions_;
        return wabt::Result::Ok;
    }
    wabt::Result OnFunction(Index, Index sig) override {
        function_types_.push_back(sig);
        return wabt::Result::Ok;
    }
    wabt::Result OnExport(Index i, wabt::ExternalKind, Index, std::string_view name) override {
        if (!name_allowed(name))
            return refuse("export " + std::to_string(i) + " is named " + printable(name) +
                          ": names are 1 to 128 of letters, digits and _.:$-");
        if (name.starts_with(kReservedPrefix))
            return refuse("export " + printable(name) + " begins with __hf_, which is reserved");
        return wabt::Result::Ok;
    }
    wabt::Result OnTable(Index, wabt::Type type, const wabt::Limits* limits) override {
        if (type != wabt::Type::FuncRef)
            return refuse("table 0 does not hold functions: only funcref tables are allowed");
        return bound("table entries", limits->initial, kTableEntriesMax);
    }
    wabt::Result OnMemory(Index, const wabt::Limits* limits) override {
        return bound("memory pages at the start", limits->initial, kInitialPagesMax);
    }
    wabt::Result BeginGlobal(Index i, wabt::Type type, bool) override {
        if (type.IsRef())
            return refuse("global " + std::to_string(i) +
                          " is a reference: only numbers are allowed");
        return wabt::Result::Ok;
    }
    wabt::Result BeginFunctionBody(Index i, Offset size) override {
        function_ = i;
        depth_ = 0;
        const Index own = i - imported_functions_;
        locals_ = own < function_types_.size() && function_types_[own] < params_.size()
                      ? params_[function_types_[own]]
                      : 0;
        if (size > kBodyBytesMax) return above("function", i, "bytes", size, kBodyBytesMax);
        return wabt::Result::Ok;
    }
    wabt::Result OnLocalDecl(Index, Index count, wabt::Type type) override {
        locals_ += count;
        if (locals_ > kLocalsMax)
            return above("function", function_, "locals", locals_, kLocalsMax);
        if (type.IsRef()) return forbidden("a local of a reference type");
        return wabt::Result::Ok;
    }
    wabt::Result OnBlockExpr(wabt::Type) override { return deeper(); }
    wabt::Result OnLoopExpr(wabt::Type) override { return deeper(); }
    wabt::Result OnIfExpr(wabt::Type) override { return deeper(); }
    wabt::Result OnEndExpr() override {
        if (depth_ > 0) --depth_;
        return wabt::Result::Ok;
    }
    wabt::Result OnLoadExpr(wabt::Opcode, Index, Address, Address offset) override {
        return reach(offset);
    }
    wabt::Result OnStoreExpr(wabt::Opcode, Index, Address, Address offset) override {
        return reach(offset);
    }

    // State outside memory and globals, or values that are none of the four number types: nothing of it is kept.
    wabt::Result OnDataDropExpr(Index) override { return forbidden("data.drop"); }
    wabt::Result OnElemDropExpr(Index) override { return forbidden("elem.drop"); }
    wabt::Result OnTableGetExpr(Index) override { return forbidden("table.get"); }
    wabt::Result OnTableSetExpr(Index) override { return forbidden("table.set"); }
    wabt::Result OnTableGrowExpr(Index) override { return forbidden("table.grow"); }
    wabt::Result OnTableInitExpr(Index, Index) override { return forbidden("table.init"); }
    wabt::Result OnTableCopyExpr(Index, Index) override { return forbidden("table.copy"); }
    wabt::Result OnTableFillExpr(Index) override { return forbidden("table.fill"); }
    wabt::Result OnRefFuncExpr(Index) override { return body_only("ref.func"); }
    wabt::Result OnRefNullExpr(wabt::Type) override { return body_only("ref.null"); }
    wabt::Result OnRefIsNullExpr() override { return forbidden("ref.is_null"); }

    wabt::Result OnElemSegmentElemExprCount(Index, Index count) override {
        elements_ += count;
        return bound("element entries", elements_, kTableEntriesMax);
    }
    wabt::Result OnDataSegmentData(Index, const void*, Address size) override {
        data_bytes_ += size;
        return bound("bytes of data", data_bytes_, kDataBytesMax);
    }
    wabt::Result EndCodeSection() override {
        function_ = wabt::kInvalidIndex;
        return wabt::Result::Ok;
    }

private:
    // In a global's initialiser a reference is caught by the type.
    wabt::Result body_only(const char* what) {
        if (function_ == wabt::kInvalidIndex) return wabt::Result::Ok;
        return forbidden(what);
    }
    wabt::Result refuse(std::string why) {
        if (refusal.empty()) refusal = std::move(why);
        return wabt::Result::Error;
    }
    wabt::Result bound(const char* what, std::uint64_t n, std::uint64_t allowed) {
        if (n <= allowed) return wabt::Result::Ok;
        return refuse("the module has " + std::to_string(n) + " " + what + ", at most " +
                      std::to_string(allowed) + " are allowed");
    }
    wabt::Result above(
        const char* where, Index i, const char* what, std::uint64_t n, std::uint64_t allowed) {
        return refuse(std::string(where) + " " + std::to_string(i) + " has " + std::to_string(n) +
                      " " + what + ", at most " + std::to_string(allowed) + " are allowed");
    }
    wabt::Result forbidden(const char* what) {
        return refuse("function " + std::to_string(function_) + " uses " + what +
                      ", which is not supported");
    }
    wabt::Result deeper() {
        if (++depth_ > kDepthMax)
            return above("function", function_, "nested blocks", depth_, kDepthMax);
        return wabt::Result::Ok;
    }
    wabt::Result reach(std::uint64_t offset) {
        if (offset < kOffsetMax) return wabt::Result::Ok;
        return refuse("function " + std::to_string(function_) +
                      " accesses memory at a static offset of " + std::to_string(offset) +
                      ", it must be below " + std::to_string(kOffsetMax));
    }

    std::vector<Index> params_;          // per type
    std::vector<Index> function_types_;  // per own function
    Index imported_functions_ = 0;
    Index function_ = wabt::kInvalidIndex;
    std::uint64_t locals_ = 0;
    std::uint32_t depth_ = 0;
    std::uint64_t elements_ = 0;
    std::uint64_t data_bytes_ = 0;
};

}  // namespace

Result<void> scan(BytesView wasm) {
    if (wasm.size() > kModuleBytesMax)
        return fail(Code::Refused,
                    "the file has " + std::to_string(wasm.size()) + " bytes, at most " +
                        std::to_string(kModuleBytesMax) + " are allowed");
    Scanner scanner;
    const wabt::Result result =
        wabt::ReadBinary(wasm.data(), wasm.size(), &scanner, reader_options());
    if (!scanner.refusal.empty()) return fail(Code::Refused, scanner.refusal);
    if (wabt::Failed(result)) return fail(Code::Refused, reader_sentence(scanner.invalid));
    return {};
}

}  // namespace hf::wasm
