#include "plugins/runtime-wasm/testing/machine.hpp"

namespace hf::wasm::testing {

namespace {

// What op N does; its words are $a to $g, its result goes to $r.
const char* const kOps[] = {
    "",
    "(local.set $r (call $kv_get (local.get $a) (local.get $b) (local.get $c) (local.get $d)))",
    "(local.set $r (call $kv_put (local.get $a) (local.get $b) (local.get $c) (local.get $d)))",
    "(local.set $r (call $kv_delete (local.get $a) (local.get $b)))",
    "(local.set $r (call $http_reply (local.get $a) (i32.const 0) (local.get $b) (local.get $c) "
    "(local.get $d)))",
    "(call $log (local.get $a) (local.get $b) (local.get $c))",
    "(call $random (local.get $a) (local.get $b))",
    "(call $abort (local.get $a) (local.get $b))",
    "(local.set $r (i32.eq (i32.wrap_i64 (i64.div_u (call $now_ms) (i64.const 1000))) (local.get "
    "$a)))",
    "(return (local.get $a))",
    "(local.set $r (call $kv_list (local.get $a) (local.get $b) (local.get $c) (local.get $d) "
    "(local.get $e) (local.get $f))) (local.set $last (local.get $r))",
    "(local.set $r (call $kv_next (select (local.get $last) (local.get $a) (i32.eq (local.get $a) "
    "(i32.const -1))) (local.get $b) (local.get $c)))",
    "(local.set $r (call $kv_close (select (local.get $last) (local.get $a) (i32.eq (local.get $a) "
    "(i32.const -1)))))",
    "(local.set $r (call $reply (local.get $a) (local.get $b)))",
    "(local.set $r (call $alarm_set (i64.or (i64.extend_i32_u (local.get $a)) (i64.shl "
    "(i64.extend_i32_u (local.get $b)) (i64.const 32)))))",
    "(local.set $r (i32.wrap_i64 (call $alarm_get)))",
    "(local.set $r (call $alarm_clear))",
    "(local.set $r (call $call (local.get $a) (local.get $b) (local.get $c) (local.get $d) "
    "(local.get $e) (local.get $f) (local.get $g)))",
    "(local.set $r (call $result_read (local.get $a) (local.get $b) (local.get $c)))",
    "(local.set $r (call $send (local.get $a) (local.get $b) (local.get $c) (local.get $d) "
    "(local.get $e) (local.get $f)))",
    "(local.set $r (call $entity_send (local.get $a) (local.get $b) (local.get $c) (local.get $d) "
    "(local.get $e) (local.get $f)))",
    "(local.set $r (call $entity_ask (local.get $a) (local.get $b) (local.get $c) (local.get $d) "
    "(local.get $e) (local.get $f) (local.get $g)))",
    "(local.set $r (call $ws_send (i64.extend_i32_u (local.get $a)) (local.get $b) (local.get $c) "
    "(local.get $d)))",
    "(local.set $r (call $ws_close (i64.extend_i32_u (local.get $a)) (local.get $b) (local.get $c) "
    "(local.get $d)))",
    "(local.set $r (call $passivate))",
    "(unreachable)",
    "(loop $burn (local.set $a (i32.sub (local.get $a) (i32.const 1))) (i32.store (i32.const 8) "
    "(local.get $a)) (br_if $burn (local.get $a)))",
    "(loop $spin (br $spin))",
    "(local.set $r (call $deeper (i32.const 1)))",
    "(local.set $r (i32.load (local.get $a)))",
    "(local.set $r (call $sink (i32.const 1)))",
    "(loop $each (local.set $r (call $ws_send (i64.extend_i32_u (local.get $a)) (local.get $b) "
    "(local.get $c) (local.get $d))) (local.set $a (i32.add (local.get $a) (i32.const 1))) (br_if "
    "$each (i32.and (i32.eqz (local.get $r)) (i32.lt_u (local.get $a) (local.get $e)))))",
};

}  // namespace

std::string machine() {
    std::string body = R"(
  (data (i32.const 16) "key")
  (data (i32.const 32) "value")
  (data (i32.const 64) "bank/alice")
  (data (i32.const 80) "pay")
  (data (i32.const 96) "abacadbabbbc")
  (func (export "actor_on_stop"))
  (func (export "actor_on_restored"))
  (func $sink (param i32) (result i32)
    (i32.add (call $sink (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
  (func $deeper (param i32) (result i32)
    (drop (call $kv_get (i32.const 16) (i32.const 3) (i32.const 65536) (i32.const 8)))
    (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
  (func (export "actor_event") (param $kind i32) (param $p i32) (param $l i32) (result i32)
    (local $i i32) (local $out i32) (local $op i32) (local $r i32) (local $last i32)
    (local $a i32) (local $b i32) (local $c i32) (local $d i32) (local $e i32) (local $f i32) (local $g i32)
    (local.set $out (i32.const 32768))
    (block $end (loop $next
      (br_if $end (i32.ge_u (local.get $i) (local.get $l)))
      (local.set $op (i32.load (i32.add (local.get $p) (local.get $i)))))";
    const char* const words = "abcdefg";
    for (int i = 0; i < 7; ++i)
        body += std::string("(local.set $") + words[i] +
                " (i32.load offset=" + std::to_string(4 + 4 * i) +
                " (i32.add (local.get $p) (local.get $i))))";
    body += "(local.set $i (i32.add (local.get $i) (i32.const 32))) (local.set $r (i32.const 0))";
    for (std::size_t op = 1; op < std::size(kOps); ++op)
        body += "(if (i32.eq (local.get $op) (i32.const " + std::to_string(op) + ")) (then " +
                kOps[op] + "))\n";
    body += R"(
      (i32.store (local.get $out) (local.get $r))
      (local.set $out (i32.add (local.get $out) (i32.const 4)))
      (br $next)))
    (drop (call $http_reply (i32.const 200) (i32.const 0) (i32.const 0) (i32.const 32768) (i32.sub (local.get $out) (i32.const 32768))))
    (drop (call $reply (i32.const 32768) (i32.sub (local.get $out) (i32.const 32768))))
    (i32.const 0)))";
    return actor(kAllImports, body);
}

Bytes program(const std::vector<Step>& steps) {
    Bytes out;
    FlatWriter writer(out);
    for (const Step& step : steps)
        for (const std::uint32_t word :
             {step.op, step.a, step.b, step.c, step.d, step.e, step.f, step.g})
            writer.u32(word);
    return out;
}

std::vector<std::int32_t> results(const Ran& ran) {
    CHECK(ran.ended == Ended::Ok);
    CHECK(ran.error == "");
    std::vector<std::int32_t> out;
    FlatReader reader(ran.output->reply_body);
    for (std::uint32_t word = 0; reader.u32(word);) out.push_back(static_cast<std::int32_t>(word));
    return out;
}

}  // namespace hf::wasm::testing
