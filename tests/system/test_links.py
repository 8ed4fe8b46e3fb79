"""A plugin that stops running for a while, or for good, without dying: slow is not dead, and dead is not waited for."""
import contextlib
import os
import random
import signal
import time

from harness import LONG, Case, FreshActors, Load, wait_for
from test_policies import dumps


@contextlib.contextmanager
def stopped(pid):
    """SIGSTOP for as long as the block lasts; the process may be gone afterwards."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def held(seconds):
    """Lets a pause of the outside world last; what is waited for is the time itself."""
    end = time.monotonic() + seconds
    wait_for("the pause had its time", lambda: time.monotonic() >= end, seconds + 10, step=0.01)


class Paused(Case):
    def pauses(self, name, seconds, times):
        """Stopped at random moments under load and let go on within its limit: the same process, every answer given."""
        node = self.node(classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=16, threads=4, rate=200).start()
        wait_for("the load runs", lambda: load.count() > 20)
        before = {(r["index"], r["pid"]) for r in node.plugins()[name]["instances"]}
        dice = random.Random(4)
        for _ in range(times):
            held(dice.uniform(0.02, 0.2))
            with stopped(dice.choice(sorted(before))[1]):
                held(seconds)
            seen = load.count()
            wait_for("answers go on", lambda: load.count() > seen + 10, 10)
        self.assertEqual({(r["index"], r["pid"]) for r in node.plugins()[name]["instances"]}, before, "none was restarted")
        self.assertEqual(node.plugins()[name]["restarts"], 0)
        load.stop()
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "a pause cost an answer")
        load.verify(self)
        self.common_checks(node, pid, fds)

    TIMES = 30 if LONG else 3

    def test_runtime_pauses_for_a_second(self):
        self.pauses("runtime", 1.0, self.TIMES)

    def test_storage_pauses_for_a_second(self):
        self.pauses("storage", 1.0, self.TIMES)

    def test_gateway_pauses_for_a_second(self):
        self.pauses("gateway", 1.0, self.TIMES)

    def test_the_node_itself_pauses(self):
        """holdfastd stands still longer than any policy may: that is nobody's stall."""
        node = self.node(classes=("counter", "ledger"))
        load = Load(node, actors=16, threads=2, rate=100).start()
        fresh = FreshActors(node, threads=2).start()
        wait_for("the load runs", lambda: load.count() > 20 and fresh.ok() > 20)
        before = {name: row["pid"] for name, row in node.plugins().items()}
        for _ in range(5 if LONG else 2):
            # The policy as well: what a paused machine looks like.
            with stopped(before["placement"]), stopped(node.pid):
                held(1.5)
            seen = fresh.ok()
            wait_for("answers go on", lambda: fresh.ok() > seen + 20, 10)
        self.assertEqual({name: row["pid"] for name, row in node.plugins().items()}, before)
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        fresh.stop(self)
        load.stop().verify(self, allow=(200,))
        self.common_checks(node, node.pid)

    def test_placement_pauses_and_the_default_answers_meanwhile(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        policy = node.plugin_pid("placement")
        fresh = FreshActors(node, threads=2).start()
        wait_for("the load runs", lambda: fresh.ok() > 20)
        for _ in range(30 if LONG else 10):
            before = node.status()["stats"]
            with stopped(policy):
                wait_for("the default places", lambda: node.status()["stats"]["placed_by_default"] > before["placed_by_default"] + 5,
                         0.8)
            placed = node.status()["stats"]["placed_by_policy"]
            wait_for("the policy places again", lambda: node.status()["stats"]["placed_by_policy"] > placed + 5, 5)
        self.assertEqual(node.plugin_pid("placement"), policy)
        self.assertEqual(node.plugins()["placement"]["restarts"], 0)
        fresh.stop(self)
        self.assertLess(fresh.slowest(), 2.0, "nobody waited for the paused policy")
        self.common_checks(node, pid, fds)


class StoppedJails(Case):
    """The jail is its plugin's parent: while somebody has stopped it, nobody else is told of the plugin's end."""

    @staticmethod
    def jail(node, name):
        with open(f"/proc/{node.plugin_pid(name)}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])

    def test_it_hides_no_death_and_does_not_hold_up_the_end(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        for name in ("gateway", "storage", "runtime", "placement", "drain"):
            victim = node.plugin_pid(name)
            os.kill(self.jail(node, name), signal.SIGSTOP)
            os.kill(victim, signal.SIGKILL)
            wait_for(f"{name} is replaced", lambda n=name, v=victim: node.plugin_pid(n) != v, 10)
            self.assertEqual(node.plugins()[name]["last_exit"], "killed by signal 9 (Killed)")
        self.common_checks(node, pid, fds)
        for name in ("gateway", "storage", "runtime", "placement", "drain"):
            os.kill(self.jail(node, name), signal.SIGSTOP)
        self.assertEqual(node.stop(seconds=10), 0)


class Stopped(Case):
    """Stopped for good: a stall, which is written down, ended and replaced."""

    def stalls(self, name, toml, seconds):
        node = self.node({"limits": {"stall_grace": "500ms"}, **toml}, classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=16, threads=4, rate=100).start()
        wait_for("the load runs", lambda: load.count() > 50)
        victim = node.plugin_pid(name)
        others = {n: row["pid"] for n, row in node.plugins().items() if n not in (name,)}
        os.kill(victim, signal.SIGSTOP)
        wait_for("it was replaced", lambda: node.plugin_pid(name) != victim, seconds)
        seen = load.count()
        wait_for("answers go on", lambda: load.count() > seen + 50, 20)
        row = node.plugins()[name]
        self.assertIn("stalled", row["last_exit"])
        self.assertEqual(row["restarts"], 1)
        self.assertEqual({n: r["pid"] for n, r in node.plugins().items() if n not in (name,)}, others)
        texts = [text for text in dumps(node) if f"pid {victim}\n" in text]
        self.assertEqual(len(texts), 1)
        self.assertIn("State:\tT (stopped)", texts[0])
        load.stop()
        load.verify(self, allow=(200, 503, 504))
        self.assertLess(len([e for e in load.results.values() if e[0] != 200]), 1 + len(load.results) // 10)
        self.common_checks(node, pid, fds)
        return load

    def test_runtime_stopped_for_good(self):
        load = self.stalls("runtime", {"class.counter": {"wall_limit": "1s"}, "class.ledger": {"wall_limit": "1s"}}, 20)
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "a stalled runtime cost an answer")

    def test_storage_stopped_for_good(self):
        if not LONG:
            self.skipTest("storage is given 20 s before it counts as stalled: with --long")
        self.stalls("storage", {}, 60)

    def test_gateway_stopped_for_good(self):
        node = self.node({"limits": {"stall_grace": "500ms"}}, classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=16, threads=4).start()
        wait_for("the load runs", lambda: load.count() > 50)
        victim = node.plugin_pid("gateway")
        runtimes = [node.plugin_pid("runtime", i) for i in range(2)]
        for runtime in runtimes:
            os.kill(runtime, signal.SIGSTOP)
        wait_for("answers are owed", lambda: node.status()["open_events"] > 0)
        os.kill(victim, signal.SIGSTOP)
        for runtime in runtimes:
            os.kill(runtime, signal.SIGCONT)
        wait_for("it was replaced", lambda: node.plugin_pid("gateway") not in (victim, 0, None), 20)
        seen = load.count()
        wait_for("answers go on", lambda: load.count() > seen + 50, 20)
        self.assertIn("its answers lie unread", node.plugins()["gateway"]["last_exit"])
        load.stop()
        load.verify(self, allow=(200, 503, 504, 0))
        self.common_checks(node, pid, fds)

    def test_an_idle_gateway_that_hangs_is_found_when_a_client_comes(self):
        """Who comes waits at the node's door, and is let in by the successor."""
        node = self.node({"limits": {"stall_grace": "500ms"}})
        pid, fds = node.pid, node.fds()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        victim = node.plugin_pid("gateway")
        os.kill(victim, signal.SIGSTOP)
        self.assertEqual(node.post("/actor/counter/a", timeout=30)[2], b"2\n")
        self.assertNotEqual(node.plugin_pid("gateway"), victim)
        self.assertIn("clients wait to be let in", node.plugins()["gateway"]["last_exit"])
        self.common_checks(node, pid, fds)

    def test_placement_stopped_for_good(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        policy = node.plugin_pid("placement")
        fresh = FreshActors(node, threads=2).start()
        wait_for("the load runs", lambda: fresh.ok() > 20)
        os.kill(policy, signal.SIGSTOP)
        row = wait_for("its end was seen", lambda: (lambda r: r if r["last_exit"] else None)(node.plugins()["placement"]), 10)
        self.assertIn("stalled", row["last_exit"])
        wait_for("the default decides and the node says so",
                 lambda: node.status()["policies"]["placement"] == "built-in default", 5)
        self.assertIn("holdfast plugin reset placement", node.plugins()["placement"]["reason"])
        self.assertTrue([text for text in dumps(node) if f"pid {policy}\n" in text])
        seen = fresh.ok()
        wait_for("actors get a place", lambda: fresh.ok() > seen + 20, 10)
        node.cli("plugin", "reset", "placement")
        self.assertNotEqual(node.plugin_pid("placement"), policy)
        fresh.stop(self)
        self.assertLess(fresh.slowest(), 2.0)
        self.common_checks(node, pid, fds)

    def test_drain_stopped_for_good_hurts_nobody(self):
        node = self.node()
        os.kill(node.plugin_pid("drain"), signal.SIGSTOP)
        for number in range(50):
            self.assertEqual(node.post(f"/actor/counter/a{number}")[0], 200)
        self.assertEqual(node.stop(), 0)
