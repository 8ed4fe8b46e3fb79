"""Swap and roll-back of a policy on a live node: nothing is lost, the new one serves, what cannot be is refused in words."""
import os
import shutil
import subprocess
import sys
import threading

from harness import BIN, LONG, ROOT, Case, FreshActors, Load, wait_for


def refused(test, node, *args):
    """The command ends with exit code 1 and says why; returns what it said."""
    code, _, said = node.cli(*args, check=False)
    test.assertEqual(code, 1, said)
    return said


class Swap(Case):
    def resident(self, node):
        return [row["resident"] for row in node.plugins()["runtime"]["instances"]]

    def test_swap_and_roll_back_under_load(self):
        node = self.node(classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=2).start()
        fresh = FreshActors(node).start()
        wait_for("the load runs", lambda: load.count() > 20 and fresh.ok() > 50)
        before = node.plugins()["placement"]
        node.cli("swap", "placement", "--policy", "least-loaded")
        swapped = node.plugins()["placement"]
        self.assertEqual(swapped["policy"], "least-loaded")
        self.assertGreater(swapped["generation"], before["generation"])
        self.assertNotEqual(swapped["pid"], before["pid"])
        self.assertEqual(node.status()["policies"]["placement"], "least-loaded")
        placed = node.status()["stats"]["placed_by_policy"]
        wait_for("the new policy places", lambda: node.status()["stats"]["placed_by_policy"] > placed + 20)
        node.cli("rollback", "placement")
        back = node.plugins()["placement"]
        self.assertEqual(back["policy"], before["policy"])
        self.assertGreater(back["generation"], swapped["generation"])
        fresh.stop(self)
        load.stop()
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "a swap cost an answer")
        load.verify(self)
        self.common_checks(node, pid, fds)

    def test_least_loaded_evens_out_what_pinned_piled_up(self):
        node = self.node({"plugin.placement": {"policy": "pinned"}, "plugin.placement.settings": {"instance": 0}})
        for number in range(200):
            self.assertEqual(node.post(f"/actor/counter/pinned{number}")[0], 200)
        self.assertEqual(self.resident(node), [200, 0])
        node.cli("swap", "placement", "--policy", "least-loaded")
        fresh = FreshActors(node).start()
        wait_for("the counts meet", lambda: self.resident(node)[1] >= self.resident(node)[0] - 1, 60)
        # What is being placed while we look is counted already: the counts differ by one at most, at every look.
        for _ in range(20):
            counts = self.resident(node)
            self.assertLessEqual(abs(counts[0] - counts[1]), 1, counts)
        fresh.stop(self)
        counts = self.resident(node)
        self.assertLessEqual(abs(counts[0] - counts[1]), 1, counts)
        print(f"  {fresh.ok() / fresh.seconds:.0f} new actors/s meanwhile")
        self.common_checks(node, node.pid)

    def test_swap_of_drain(self):
        node = self.node()
        before = node.plugins()["drain"]
        node.cli("swap", "drain", "--policy", "paced", "--set", "in_flight_max=3")
        after = node.plugins()["drain"]
        self.assertEqual(after["policy"], "paced")
        self.assertGreater(after["generation"], before["generation"])
        node.cli("rollback", "drain")
        self.assertGreater(node.plugins()["drain"]["generation"], after["generation"])
        self.common_checks(node, node.pid)

    def test_every_slot_can_be_swapped_under_load(self):
        node = self.node(classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=2, rate=100).start()
        for slot, program in (("runtime", "runtime-wasm"), ("storage", "storage-local"), ("gateway", "gateway-http")):
            other = os.path.join(self.dir, program)
            shutil.copy(os.path.join(BIN, program), other)
            with open(other, "ab") as file:
                file.write(b"another build")
            old = {row["pid"] for row in node.plugins()[slot]["instances"]}
            for command in (("swap", slot, "--binary", other), ("rollback", slot)):
                node.cli(*command)
                seen = load.count()
                wait_for("answers go on", lambda: load.count() > seen + 20, 20)
            self.assertFalse(old & {row["pid"] for row in node.plugins()[slot]["instances"]})
            self.assertEqual(node.plugins()[slot]["binary"], os.path.abspath(os.path.join(BIN, program)))
        load.stop()
        # A client's connection ends with the gateway that held it; all else is answered.
        load.verify(self, allow=(200, 0))
        self.assertLess(len([e for e in load.results.values() if e[0] == 0]), 10)
        self.common_checks(node, pid, fds)

    def test_what_cannot_be_swapped_is_refused_in_words_and_changes_nothing(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        before = node.plugins()["placement"]
        self.assertIn("already runs scheduler/rendezvous", refused(self, node, "swap", "placement", "--policy", "rendezvous"))
        self.assertIn("no plugin slot named 'nothing'", refused(self, node, "swap", "nothing", "--policy", "rendezvous"))
        said = refused(self, node, "swap", "placement", "--policy", "no-such-policy")
        self.assertIn("no-such-policy", said)
        self.assertIn("least-loaded", said, "it tells what there is")
        said = refused(self, node, "swap", "placement", "--policy", "least-loaded", "--set", "speed=9")
        self.assertIn("speed", said)
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"], "a slip of the operator says nothing on the build")
        self.assertIn("no earlier build", refused(self, node, "rollback", "placement"))
        self.assertIn("no plugin slot named 'nothing'", refused(self, node, "rollback", "nothing"))
        code, _, said = node.cli("swap", "placement", "--policy", "x", "--binary", "/no/such/file", check=False)
        self.assertNotEqual(code, 0)
        self.assertIn("/no/such/file", said)
        # A file that is there and cannot be run, and a program that is no plugin.
        text = os.path.join(self.dir, "text")
        with open(text, "w", encoding="ascii") as file:
            file.write("not a program\n")
        for binary in (text, "/bin/true", "/bin/cat"):
            said = refused(self, node, "swap", "placement", "--policy", "x", "--binary", binary)
            self.assertIn("is not executable" if binary == text else "in charge", said)
        after = node.plugins()["placement"]
        self.assertEqual((after["policy"], after["pid"], after["generation"]),
                         (before["policy"], before["pid"], before["generation"]))
        self.common_checks(node, pid, fds)

    def test_two_swaps_at_once_the_second_is_refused(self):
        # Without traffic the stage lasts as long as its window.
        node = self.node({"swap": {"answers": 100000, "window": "3s"}})
        ends = []
        first = threading.Thread(target=lambda: ends.append(node.cli("swap", "placement", "--policy", "least-loaded", check=False)))
        first.start()
        wait_for("the first is under way", lambda: "swap" in node.plugins()["placement"])
        self.assertIn("under way", refused(self, node, "swap", "placement", "--policy", "two-choices"))
        self.assertIn("under way", refused(self, node, "swap", "placement", "--policy", "least-loaded"))
        first.join(30)
        self.assertEqual(ends[0][0], 0, ends)
        self.assertEqual(node.plugins()["placement"]["policy"], "least-loaded")
        self.common_checks(node, node.pid)

    def test_many_swaps_under_load(self):
        node = self.node(classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=2).start()
        fresh = FreshActors(node, threads=3).start()
        wait_for("the load runs", lambda: load.count() > 20)
        for number in range(100 if LONG else 20):
            policy = ("least-loaded", "two-choices", "rendezvous")[number % 3]
            node.cli("swap", "placement", "--policy", policy)
            self.assertEqual(node.plugins()["placement"]["policy"], policy)
        fresh.stop(self)
        load.stop()
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "a swap cost an answer")
        load.verify(self)
        self.common_checks(node, pid, fds)


class OutOfTree(Case):
    """A policy whose author has the installed SDK and nothing else of this tree."""

    build = os.path.dirname(os.path.abspath(BIN))

    def sdk(self):
        prefix = os.path.join(self.dir, "sdk")
        subprocess.run([os.path.join(ROOT, "packaging", "install-sdk.sh"), self.build, prefix], check=True,
                       stdout=subprocess.DEVNULL)
        return prefix

    def test_least_busy_built_with_pkg_config_and_swapped_in(self):
        node = self.node()
        prefix = self.sdk()
        source = os.path.join(self.dir, "mine")
        shutil.copytree(os.path.join(ROOT, "examples", "policies", "least-busy"), source)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "holdfast-sdk"], check=True, text=True,
                               stdout=subprocess.PIPE,
                               env={**os.environ, "PKG_CONFIG_PATH": os.path.join(prefix, "lib", "pkgconfig")}).stdout.split()
        binary = os.path.join(source, "least-busy")
        subprocess.run(["g++", "-std=c++20", "-O1", "main.cpp", "-o", binary, *flags], cwd=source, check=True)
        said = node.cli("swap", "placement", "--policy", "least-busy", "--binary", binary)
        self.assertIn("Full", str(said))
        row = node.plugins()["placement"]
        self.assertEqual((row["policy"], row["binary"]), ("least-busy", binary))
        with open(f"/proc/{row['pid']}/cmdline", "rb") as file:
            self.assertIn(b"least-busy", file.read())
        placed = node.status()["stats"]["placed_by_policy"]
        default = node.status()["stats"]["placed_by_default"]
        for number in range(50):
            self.assertEqual(node.post(f"/actor/counter/mine{number}")[0], 200)
        stats = node.status()["stats"]
        self.assertEqual(stats["placed_by_policy"] + stats["placed_by_default"], placed + default + 50)
        self.assertGreater(stats["placed_by_policy"], placed + 40)
        self.common_checks(node, node.pid)

    def test_the_tutorial_as_it_stands(self):
        node = self.node()
        done = subprocess.run([sys.executable, os.path.join(ROOT, "examples", "policies", "tutorial_test.py"), "--node",
                               os.path.join(ROOT, "docs", "policy-tutorial.md"), self.build],
                              env={**os.environ, "HOLDFAST_BIN": os.path.abspath(BIN), "HOLDFAST_DATA": node.data,
                                   "PATH": "/usr/bin:/bin:" + os.environ["PATH"]},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])
        self.assertEqual(node.plugins()["placement"]["policy"], "rendezvous", "rolled back at the end")
        self.common_checks(node, node.pid)
