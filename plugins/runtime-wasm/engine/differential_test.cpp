// Every numeric operation over edge values, here and in node's engine: same bits, same traps. NaNs are compared as NaN.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "plugins/runtime-wasm/testing/support.hpp"

namespace hf::wasm {

using testing::actor;
using testing::kAllImports;
using testing::Stage;
using testing::TempDir;
using testing::wasm_of;
using testing::write_file;

namespace {

// Where the edge values lie in memory, 16 of each type.
struct Type {
    std::string name;
    int at;
    int bytes;
    std::vector<std::string> values;
};

const std::vector<Type>& types() {
    static const std::vector<Type> all = {
        {"i32",
         8192,
         4,
         {"0",
          "1",
          "-1",
          "2",
          "31",
          "32",
          "33",
          "0x7fffffff",
          "0x80000000",
          "0x80000001",
          "0xff",
          "0x8000",
          "0xffff",
          "12345",
          "-7",
          "0x55555555"}},
        {"i64",
         8448,
         8,
         {"0",
          "1",
          "-1",
          "2",
          "63",
          "64",
          "65",
          "0x7fffffffffffffff",
          "0x8000000000000000",
          "0x8000000000000001",
          "0xffffffff",
          "0x80000000",
          "0xffff",
          "1234567890123",
          "-7",
          "0x5555555555555555"}},
        {"f32",
         8704,
         4,
         {"0",
          "-0",
          "1",
          "-1",
          "0.5",
          "-0.5",
          "1.5",
          "2.5",
          "inf",
          "-inf",
          "nan",
          "0x1p-149",
          "0x1.fffffep127",
          "2147483648",
          "-2147483649",
          "4294967296"}},
        {"f64",
         8960,
         8,
         {"0",
          "-0",
          "1",
          "-1",
          "0.5",
          "-0.5",
          "1.5",
          "2.5",
          "inf",
          "-inf",
          "nan",
          "0x1p-1074",
          "0x1.fffffffffffffp1023",
          "2147483648.5",
          "-9223372036854775808",
          "18446744073709551616"}},
    };
    return all;
}

const Type& type_of(const std::string& name) {
    for (const Type& type : types())
        if (type.name == name) return type;
    FAIL("no such type");
    return types()[0];
}

struct Operation {
    std::string name;  // "i32.add"
    std::string operand;
    bool binary;
    std::string result;
};

std::vector<Operation> operations() {
    std::vector<Operation> out;
    const auto add = [&](const std::string& type,
                         const std::string& names,
                         bool binary,
                         const std::string& result) {
        std::istringstream in(names);
        for (std::string name; in >> name;)
            out.push_back({type + "." + name, type, binary, result.empty() ? type : result});
    };
    for (const char* type : {"i32", "i64"}) {
        add(type,
            "add sub mul div_s div_u rem_s rem_u and or xor shl shr_s shr_u rotl rotr",
            true,
            "");
        add(type, "eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u", true, "i32");
        add(type, "clz ctz popcnt extend8_s extend16_s", false, "");
        add(type, "eqz", false, "i32");
    }
    for (const char* type : {"f32", "f64"}) {
        add(type, "add sub mul div min max copysign", true, "");
        add(type, "eq ne lt gt le ge", true, "i32");
        add(type, "abs neg ceil floor trunc nearest sqrt", false, "");
    }
    // result.name over operands of another type
    const auto convert =
        [&](const std::string& result, const std::string& name, const std::string& operand) {
            out.push_back({result + "." + name, operand, false, result});
        };
    for (const char* integer : {"i32", "i64"})
        for (const char* real : {"f32", "f64"})
            for (const char* sign : {"_s", "_u"}) {
                convert(integer, std::string("trunc_") + real + sign, real);
                convert(integer, std::string("trunc_sat_") + real + sign, real);
                convert(real, std::string("convert_") + integer + sign, integer);
            }
    convert("i32", "wrap_i64", "i64");
    convert("i64", "extend_i32_s", "i32");
    convert("i64", "extend_i32_u", "i32");
    convert("i64", "extend32_s", "i64");
    convert("f32", "demote_f64", "f64");
    convert("f64", "promote_f32", "f32");
    convert("i32", "reinterpret_f32", "f32");
    convert("f32", "reinterpret_i32", "i32");
    convert("i64", "reinterpret_f64", "f64");
    convert("f64", "reinterpret_i64", "i64");
    return out;
}

std::string value_at(const Type& type, const char* index) {
    return "(" + type.name + ".load offset=" + std::to_string(type.at) + " (i32.mul (local.get " +
           index + ") (i32.const " + std::to_string(type.bytes) + ")))";
}

// Stores a result at 32768; a NaN becomes the one of all ones in the mantissa's head.
std::string stored(const std::string& type, const std::string& value) {
    const std::string store = "(" + type + ".store (i32.const 32768) ";
    if (type[0] == 'i') return store + value + ")";
    return "(local.set $" + type + " " + value + ")" + store + "(select (" + type +
           ".const nan) (local.get $" + type + ") (" + type + ".ne (local.get $" + type +
           ") (local.get $" + type + "))))";
}

std::string module_text(const std::vector<Operation>& all) {
    std::string functions;
    std::string names;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Type& operand = type_of(all[i].operand);
        std::string value = "(" + all[i].name + " " + value_at(operand, "$a");
        if (all[i].binary) value += value_at(operand, "$b");
        names += " $op" + std::to_string(i);
        functions += "(func $op" + std::to_string(i) +
                     " (type $op) (param $a i32) (param $b i32) (local $f32 f32) (local $f64 f64)" +
                     stored(all[i].result, value + ")") + ")\n";
    }
    std::string start = "(func (export \"_initialize\")";
    for (const Type& type : types())
        for (std::size_t i = 0; i < type.values.size(); ++i)
            start += "(" + type.name + ".store (i32.const " +
                     std::to_string(type.at + static_cast<int>(i) * type.bytes) + ") (" +
                     type.name + ".const " + type.values[i] + "))";
    return actor(kAllImports,
                 "(type $op (func (param i32 i32))) (table " + std::to_string(all.size()) +
                     " funcref) (elem (i32.const 0)" + names + ")" + functions + start + ")" + R"(
        (func (export "actor_event") (param i32 i32 i32) (result i32)
          (i64.store (i32.const 32768) (i64.const 0))
          (call_indirect (type $op) (i32.load offset=4 (local.get 1)) (i32.load offset=8 (local.get 1)) (i32.load (local.get 1)))
          (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 32768) (i32.const 8))))");
}

std::string run_node(const std::string& arguments) {
    // NOLINTNEXTLINE(cert-env33-c): the test's own command line
    std::FILE* pipe = ::popen(("node " + arguments + " 2>&1").c_str(), "r");
    REQUIRE(pipe != nullptr);
    std::string text;
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
        text.push_back(static_cast<char>(c));
    return ::pclose(pipe) == 0 ? text : "failed: " + text;
}

}  // namespace

TEST_CASE("every_numeric_operation_gives_what_another_engine_gives") {
    if (run_node("--version").starts_with("failed")) {
        MESSAGE("skipped: node is not installed");
        return;
    }
    const std::vector<Operation> all = operations();
    // _initialize runs in our image phase; the other engine gets it as a start function.
    std::string text = module_text(all);
    Stage stage(wasm_of(text));
    REQUIRE(stage.error == "");
    const std::string marker = "(func (export \"_initialize\")";
    text.replace(text.find(marker), marker.size(), "(start $init) (func $init");

    const TempDir dir;
    write_file(dir / "m.wasm", wasm_of(text));
    nlohmann::json list = nlohmann::json::array();
    for (const Operation& each : all)
        list.push_back({{"name", each.name}, {"first", 16}, {"second", each.binary ? 16 : 1}});
    write_file(dir / "operations.json", as_bytes(list.dump()));
    const std::string said = run_node(std::string(HF_DIFFERENTIAL_MJS) + " " + (dir / "m.wasm") +
                                      " " + (dir / "operations.json"));
    REQUIRE_MESSAGE(!said.starts_with("failed"), said);

    std::istringstream lines(said);
    std::size_t compared = 0;
    std::uint32_t all_traps = 0;
    for (std::uint32_t op = 0; op < all.size(); ++op) {
        std::uint32_t hash = 0x811c9dc5;
        std::uint32_t traps = 0;
        for (std::uint32_t a = 0; a < 16; ++a)
            for (std::uint32_t b = 0; b < (all[op].binary ? 16u : 1u); ++b) {
                Bytes event;
                FlatWriter writer(event);
                for (const std::uint32_t word : {op, a, b}) writer.u32(word);
                const Ran ran = stage.run(1, 1, event);
                if (ran.ended == Ended::Ok) {
                    for (const std::uint8_t byte : ran.output->reply_body)
                        hash = (hash ^ byte) * 0x01000193;
                } else {
                    CHECK(ran.ended == Ended::Trapped);
                    ++traps;
                    hash = (hash ^ 0xff) * 0x01000193;
                }
            }
        all_traps += traps;
        std::string line;
        REQUIRE(static_cast<bool>(std::getline(lines, line)));
        CHECK(line == all[op].name + " " + std::to_string(hash) + " " + std::to_string(traps));
        ++compared;
    }
    CHECK(compared > 120);
    CHECK(all_traps > 100);
}

}  // namespace hf::wasm
