"""Guests that loop, sleep, trap and take memory: each ends inside its limit by name, the next call finds a fresh instance,
healthy actors beside them are answered throughout, and what no node should run is refused before it serves."""
import os
import signal
import time

from guests import ENDS, UNRULY, Healthy, rss, wat, with_custom_section
from harness import Case, wait_for

WALL = 5.0                # class.<name>.wall_limit, the default
REQUEST = 30.0            # limits.request_timeout, the default
RSS_BACK = 20 << 20       # what a runtime may keep after a guest's end: the allocator's, a few slots' page tables
START = 20                # a start that is refused, the compiler's part included, on two busy cores
ROUNDS = 3


class Hostile(Case):
    def start(self, toml=None):
        return self.node({"class.unruly": {"module": UNRULY}, **(toml or {})})

    def fresh(self, node, name="u"):
        for served in (b"1\n", b"2\n"):
            self.assertEqual(node.post(f"/actor/unruly/{name}/served")[::2], (200, served))

    def test_each_ends_by_name_beside_healthy_actors(self):
        node = self.start()
        pid, fds = node.pid, node.fds()
        runtimes = [node.plugin_pid("runtime", i) for i in range(2)]
        node.post("/actor/unruly/u/served")
        healthy = Healthy(node).start()
        wait_for("each healthy actor was asked", lambda: healthy.count() > 1000)
        memory = sum(map(rss, runtimes))
        begun = time.monotonic()
        wait_for("they were asked for a while", lambda: time.monotonic() > begun + 1)
        hostile = time.monotonic()
        for _ in range(ROUNDS):
            for path, names in ENDS:
                with self.subTest(path=path):
                    asked = time.monotonic()
                    status, _, body = node.post(f"/actor/unruly/u/{path}")
                    took = time.monotonic() - asked
                    self.assertEqual(status, 500, (path, body))
                    self.assertIn(names, body, path)
                    self.assertLess(took, WALL * 1.1, path)
                    self.fresh(node)
            # Refused growth is no failure by itself.
            self.assertEqual(node.post("/actor/unruly/u/grow")[::2], (200, b"256\n"), "memory_max is 16 MiB")
            self.assertEqual(node.post("/actor/unruly/u/unreachable")[0], 500)
        ended = time.monotonic()
        wait_for("the runtimes' memory is near what it was", lambda: sum(map(rss, runtimes)) < memory + RSS_BACK, 10)
        healthy.stop()
        before, during = healthy.p99_ms(begun, hostile), healthy.p99_ms(hostile, ended)
        print(f"healthy actors' p99: {before:.1f} ms before, {during:.1f} ms beside hostile guests, {during / before:.1f} x")
        self.assertFalse(healthy.wrong[:3], "a healthy actor's request failed")
        self.assertLess(healthy.slowest_s(), REQUEST)
        self.assertEqual([node.plugin_pid("runtime", i) for i in range(2)], runtimes, "no runtime died of a guest")
        self.assertEqual(node.plugins()["runtime"]["restarts"], 0)
        self.common_checks(node, pid, fds)

    def test_a_fill_of_much_memory_ends_and_gives_it_back(self):
        node = self.start({"class.unruly": {"module": UNRULY, "memory_max": "512MiB"}, "plugin.runtime": {"instances": 1}})
        runtime = node.plugin_pid("runtime")
        node.post("/actor/unruly/u/served")
        memory = rss(runtime)
        for number in range(6):
            status, _, body = node.post(f"/actor/unruly/u{number}/fill?8000")
            self.assertEqual(status, 500, body)
            self.assertIn(b"cpu_limit", body)
            self.fresh(node, f"u{number}")
        wait_for("its memory is near what it was", lambda: rss(runtime) < memory + RSS_BACK, 10)
        self.assertEqual(node.plugin_pid("runtime"), runtime)
        self.common_checks(node)

    def test_a_handler_that_traps_while_an_alarm_runs_is_tried_again(self):
        """2 s after the first failure, 4 s after the second; what failed attempts wrote is not there."""
        node = self.start()
        set_at = time.monotonic()
        self.assertEqual(node.post("/actor/unruly/a/wake?100")[::2], (200, b"set\n"))
        stats = wait_for("it fired", lambda: (lambda s: s if s["alarms_fired"] else None)(node.status()["stats"]), 30)
        self.assertEqual((stats["alarms_fired"], stats["alarms_failed"]), (1, 2))
        self.assertGreater(time.monotonic() - set_at, 0.1 + 2 + 4)
        self.assertEqual(node.http("GET", "/actor/unruly/a/woken")[::2], (200, b"3\n"), "the third attempt, and nothing of the others")
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.http("GET", "/actor/unruly/a/woken")[2], b"3\n")
        self.common_checks(node)

    def test_neither_of_two_writes_with_a_trap_between_is_visible(self):
        node = self.start()
        for path in ("half", "half-loop"):
            self.assertEqual(node.post(f"/actor/unruly/w/{path}")[0], 500)
            self.assertEqual(node.http("GET", "/actor/unruly/w/halves")[::2], (200, b"0\n"), path)
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.http("GET", "/actor/unruly/w/halves")[2], b"0\n")
        self.common_checks(node)


class Refused(Case):
    """A node with such a module does not start, and says which class and why; `holdfast build` says the same where it can
    be seen without running the module."""
    IMPORT = "(import \"{}\" \"{}\" (func (param i32) (result i32)))"

    def modules(self):
        """What, the module, what a node says of it, what `holdfast build` says; None: it takes running it to see."""
        good = wat()
        none = "is no WebAssembly module of version 1"
        for what, module, says in (
                ("65536 pages", wat(pages="65536"), "65536 memory pages at the start, at most 4096"),
                ("50 MB", with_custom_section(good, 50_000_000), "at most 8388608"),
                ("30000 functions", wat("(func)" * 30_000), "functions, at most 20000"),
                ("half of it", good[:len(good) // 2], "not a valid module"),
                ("an unknown import", wat(imports=self.IMPORT.format("actor", "sleep")), "\"sleep\" is not known"),
                ("an unknown module", wat(imports=self.IMPORT.format("env", "kv_get")), "is not known")):
            yield what, module, says, says
        for what, module in (("no bytes", b""), ("text", b"int main() { return 0; }\n"), ("bad magic", b"\0asn" + good[4:]),
                             ("another version", good[:4] + b"\2\0\0\0" + good[8:])):
            yield what, module, none, "not a valid module"
        yield ("a start that loops", wat("(start $s) (func $s (loop (br 0)))"),
               "the start function stopped: it ", None)   # 2 s of CPU time, or 10 s by the clock on a machine that has none to give
        yield "a start that traps", wat("(start $s) (func $s unreachable)"), "the start function stopped: trap: unreachable", None

    def test_each_is_refused_by_name(self):
        for number, (what, module, says, build_says) in enumerate(self.modules()):
            with self.subTest(what):
                path = os.path.join(self.dir, f"m{number}.wasm")
                with open(path, "wb") as file:
                    file.write(module)
                node = self.node({"class.odd": {"module": path}}, name=f"node{number}", start=False)
                code, _, said = node.cli("build", path, check=False)
                self.assertEqual(code, 0 if build_says is None else 1, said)
                self.assertIn(build_says or "memory_pages", said)
                node.start(wait=False)
                self.assertIn(node.process.wait(timeout=START), (1, 2), node.stderr())
                self.assertRegex(node.stderr(), r"class[ .]odd\b")
                self.assertIn(path, node.stderr())
                self.assertIn(says, node.stderr())
                self.assertFalse(os.path.exists(os.path.join(node.data, "run", "address")))

    def test_a_memory_larger_than_the_class_allows_is_told_to_callers(self):
        path = os.path.join(self.dir, "large.wasm")
        with open(path, "wb") as file:
            file.write(wat(pages="4096"))
        node = self.node({"class.large": {"module": path}})
        status, _, body = node.post("/actor/large/a")
        self.assertGreaterEqual(status, 500, body)
        self.assertIn(b"memory_max is 256 pages of 64 KiB, the module starts with 4096", body)
        self.common_checks(node)

    def test_ten_thousand_functions_are_served(self):
        path = os.path.join(self.dir, "many.wasm")
        body = "(func (param i32) (result i32) (i32.add (local.get 0) (i32.const %d)))"
        with open(path, "wb") as file:
            file.write(wat("".join(body % i for i in range(10_000))))
        node = self.node({"class.many": {"module": path}}, start=False)
        node.start(wait=False)
        node.wait_ready(120)
        status, _, body = node.post("/actor/many/a")
        self.assertEqual(status, 500, body)
        self.assertIn(b"no reply", body, "it ran and answered nothing")
        self.common_checks(node)
