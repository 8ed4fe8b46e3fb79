// Any bytes as a module: both looks of the policy and the translation into C. Refused with one printable sentence, or
// translated into C whose comments are whole and whose names are those the policy lets through; never a crash, and never
// accepted by one way of asking and refused by the other.
#include <wabt/binary-writer.h>
#include <wabt/ir.h>
#include <wabt/stream.h>
#include <wabt/wast-lexer.h>
#include <wabt/wast-parser.h>

#include <algorithm>
#include <memory>
#include <string>

#include "plugins/runtime-wasm/build/policy.hpp"
#include "plugins/runtime-wasm/build/translate.hpp"
#include "tests/fuzz/target.hpp"

namespace {

using hf::Bytes;
using hf::fuzz::must;

Bytes wasm_of(const std::string& wat) {
    wabt::Errors errors;
    const auto lexer =
        wabt::WastLexer::CreateBufferLexer("seed.wat", wat.data(), wat.size(), &errors);
    wabt::Features features;
    features.EnableAll();
    wabt::WastParseOptions options(features);
    std::unique_ptr<wabt::Module> module;
    must(wabt::Succeeded(wabt::ParseWatModule(lexer.get(), &module, &errors, &options)));
    wabt::MemoryStream stream;
    wabt::WriteBinaryOptions write;
    write.features = features;
    must(wabt::Succeeded(wabt::WriteBinaryModule(&stream, module.get(), write)));
    return stream.output_buffer().data;
}

std::string actor(const std::string& imports, const std::string& rest) {
    return "(module " + imports + R"((memory (export "memory") 2)
        (func (export "actor_abi_v1"))
        (func (export "actor_alloc") (param i32) (result i32) (i32.const 1024))
        (func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0)))" +
           rest + ")";
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> out;
    for (const char* rest : {
             "",
             R"((data (i32.const 16) "text") (global (mut i64) (i64.const 1)) (start 1))",
             R"((table 4 funcref) (elem (i32.const 0) func 0 1 2)
                (func (param i32) (result i32) (call_indirect (param i32) (result i32)
                  (local.get 0) (local.get 0))))",
             R"((func (param i32) (result f64) (local i64 f32 f64)
                (block (loop (br_if 1 (local.get 0)) (br_table 0 1 (local.get 0))))
                (if (local.get 0) (then (nop)) (else (unreachable)))
                (memory.fill (i32.const 0) (i32.const 1) (local.get 0))
                (memory.copy (i32.const 0) (i32.const 1) (local.get 0))
                (drop (memory.grow (i32.const 1)))
                (i64.store offset=9 (local.get 0) (local.get 1))
                (f64.div (f64.const 1) (f64.load align=1 (local.get 0)))))",
             R"((func (export "two") (result i32 i64) (i32.const 1) (i64.const 2)))",
             "(func (drop (v128.const i32x4 1 2 3 4)))",
         })
        out.push_back(wasm_of(actor("", rest)));
    out.push_back(
        wasm_of(actor(R"((import "actor" "kv_get" (func (param i32 i32 i32 i32) (result i32)))
                 (import "wasi_snapshot_preview1" "proc_exit" (func (param i32))))",
                      "")));
    out.push_back(wasm_of(actor(R"((import "a*/ int evil" "kv_get" (func)))", "")));
    // A block where an initialiser has its constant: the library's reader of modules does not expect one.
    Bytes block = wasm_of(actor("", "(global (mut i64) (i64.const 1))"));
    const Bytes constant = {0x7e, 1, 0x42, 1, 0x0b};
    const auto at = std::search(block.begin(), block.end(), constant.begin(), constant.end());
    must(at != block.end());
    at[2] = 0x02;
    at[3] = 0x40;
    out.push_back(block);
    return out;
}

std::size_t count(std::string_view text, std::string_view what) {
    std::size_t n = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size()))
        ++n;
    return n;
}

}  // namespace

std::vector<hf::Bytes> hf::fuzz::good_inputs() {
    return seeds();
}

void hf::fuzz::take(BytesView input) {
    const Bytes wasm(input.begin(), input.end());
    const auto facts = hf::wasm::translate(wasm, false);
    const auto whole = hf::wasm::translate(wasm, true);
    must(facts.ok() == whole.ok());
    if (!facts) {
        const std::string& why = facts.error().message;
        must(facts.error().code == hf::Code::Refused && why == whole.error().message);
        must(!why.empty() &&
             std::all_of(why.begin(), why.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
        return;
    }
    must(facts->pages <= hf::wasm::kInitialPagesMax && facts->pages <= facts->pages_max);
    for (const std::string& name : whole->exports) must(hf::wasm::name_allowed(name));
    for (const std::string* text : {&whole->c, &whole->header}) {
        must(count(*text, "/*") == count(*text, "*/"));
        must(text->find('\0') == text->npos);
    }
}
