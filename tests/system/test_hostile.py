"""A plugin that was taken over: whatever it writes into its segment, the node lives, the others answer, its end has a reason.

The plugin is tests/system/hostile. It answers well for a while, then does one thing to its own segment, bells or socket.
"""
import os
import random
import shutil

from harness import BIN, LONG, Case, FreshActors, Load, wait_for
from test_policies import HOSTILE, running

# Offsets of the header's words that the supervisor reads while it runs (abi/layout/segment.hpp).
LIVE_WORDS = {"tail": 0x80, "cpu": 0x88, "head": 0x100, "ticket and starved": 0x180,
              "current": 0x200, "progress": 0x208, "forbidden": 0x210}
VALUES = {"zero": 0, "ones": 1, "plus one": 2, "random": 3}

# mode, settings, what the reason says; None: it may be overlooked, but must not hurt.
BROKEN = [
    ("length", {"value": -1}, "broke the link's rules"),
    ("length", {"value": -40}, "broke the link's rules"),
    ("length", {"value": 1}, None),
    ("length", {"value": 4096}, "record length beyond the published bytes"),
    ("huge-length", {"at": 0xFFFFFFF0}, "record length"),
    ("huge-length", {"at": 0x7FFFFFFF}, "record length"),
    ("huge-length", {"at": 65537}, "record length"),
    ("huge-length", {"at": 0}, "broke the link's rules"),
    ("two-paddings", {}, "padding at the ring's start"),
    ("padding-alone", {}, "record length beyond the published bytes"),
    ("tail-back", {}, "tail moved back"),
    ("tail-far", {}, "tail beyond capacity"),
    ("tail-odd", {}, "tail not aligned"),
    ("flags", {}, "record flags not zero"),
    ("seq", {}, "broke the link's rules"),
    ("seq-back", {}, "broke the link's rules"),
    ("generation", {}, "broke the link's rules"),
    ("identifier", {}, "broke the link's rules"),
    ("never-asked", {}, "an answer to no open request"),
    ("twice", {}, "an answer to no open request"),
    ("answer-type", {}, "broke the link's rules"),
    ("two-types", {}, "broke the link's rules"),
    ("unknown-type", {"at": 200}, "broke the link's rules"),
    ("unknown-type", {"at": 65535}, "broke the link's rules"),
    ("unknown-type", {"at": 0}, "broke the link's rules"),
    ("not-allowed", {}, "broke the link's rules"),
    ("from-supervisor", {}, "broke the link's rules"),
    ("greet-again", {}, "Greet twice"),
    ("long-reason", {}, "larger than its request's reply_max"),
    ("request-id", {}, "broke the link's rules"),
    ("deaf", {}, "stalled"),
    ("die-in-the-middle", {}, "exit code 3"),
    ("garbage-and-goodbye", {}, "broke the link's rules"),
    *[("blob", {"at": size, "value": 0}, "broke the link's rules") for size in (0, 1, 2, 3, 4, 7, 8, 65520)],
    *[("blob", {"at": size, "value": 255}, "broke the link's rules") for size in (4, 7, 16, 65520)],
    *[("syscall", {"at": number}, f"seccomp: {name}") for number, name in (
        (101, "ptrace"), (59, "execve"), (41, "socket"), (165, "mount"), (321, "bpf"), (250, "keyctl"))],
    *[("syscall", {"at": number}, None) for number in (9999, 435, 449)],   # nobody's, clone3, futex_waitv: ENOSYS, and it goes on
    ("last-words", {}, None),
    ("control-flood", {}, None),
    ("close-control", {}, None),
    ("facts", {}, None),
]


class Hostile(Case):
    TOML = {"swap": {"answers": 24, "window": "1s"}}

    def calm(self, node, load, seconds=1.0):
        """What others saw of it: nothing."""
        load.stop()
        with load.lock:
            late = sorted(took for _, took in load.latencies)
        self.assertGreater(len(late), 30)
        self.assertLess(late[int(len(late) * 0.99)], seconds, "p99 of the others")
        load.verify(self, allow=(200,))

    def swap_in(self, node, mode, after, settings):
        sets = [word for key, value in {"mode": mode, "after": after, **settings}.items() for word in ("--set", f"{key}={value}")]
        return node.cli("swap", "placement", "--policy", "hostile", "--binary", HOSTILE, *sets, check=False)

    def back(self, node):
        """Whatever happened: the shipped policy serves in the end, and nothing of the other is left."""
        if node.plugins()["placement"]["policy"] == "hostile":
            node.cli("rollback", "placement", check=False)
        wait_for("the shipped policy serves", lambda: (lambda r: r["policy"] == "rendezvous" and r["state"] == "serving")(
            node.plugins()["placement"]), 20)
        wait_for("the hostile one is gone", lambda: not running(node, "hostile-plugin"))

    def attacks(self, cases):
        node = self.node(self.TOML, classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=2, rate=50).start()
        fresh = FreshActors(node, threads=1).start()
        wait_for("the load runs", lambda: load.count() > 10 and fresh.ok() > 10)
        for number, (mode, settings, says) in enumerate(cases):
            after = 3 if number % 2 else 20   # at the self-test, or in the stage
            with self.subTest(mode=mode, after=after, **settings):
                code, _, said = self.swap_in(node, mode, after, settings)
                reason = node.plugins()["placement"]["reason"]
                self.back(node)
                if says is not None:
                    self.assertEqual(code, 1, (mode, after, settings, said))
                    self.assertIn(says, said, (mode, after, settings))
                    self.assertIn(says, reason)
                self.assertEqual(node.pid, pid)
                self.assertIsNone(node.process.poll(), node.stderr()[-2000:])
        fresh.stop(self)
        self.calm(node, load)
        self.common_checks(node, pid, fds)
        return node

    def test_rules_of_the_ring_and_of_messages(self):
        self.attacks(BROKEN)

    def test_words_of_the_header(self):
        words = list(LIVE_WORDS.values()) if not LONG else list(range(0, 0x280, 8))
        cases = []
        for at in words:
            for value in VALUES.values():
                # A tail that is all ones or one too far is a broken rule; others may pass for the truth.
                says = "broke the link's rules" if at == LIVE_WORDS["tail"] and value in (0, 1, 2) else None
                cases.append(("word", {"at": at, "value": value}, says))
        self.attacks(cases)

    def test_bytes_of_a_valid_answer(self):
        size = 112
        places = range(size) if LONG else sorted(random.sample(range(size), 14))
        self.attacks([("flip", {"at": at, "value": value}, None) for at in places
                      for value in ((0, 1, 2) if LONG else (at % 3,))])

    def test_the_configured_policy_is_hostile(self):
        """No earlier build to go back to: the built-in default decides, the process is started under the usual limits."""
        for mode in ("tail-back", "twice", "deaf"):
            with self.subTest(mode=mode):
                node = self.node({"plugin.placement": {"use": "hostile", "binary": HOSTILE, "policy": "hostile"},
                                  "plugin.placement.settings": {"mode": mode, "after": 5}}, name="node-" + mode)
                pid, fds = node.pid, node.fds()
                for number in range(60):
                    self.assertEqual(node.post(f"/actor/counter/a{number}")[0], 200)
                row = wait_for("its end was seen", lambda: (lambda r: r if r["last_exit"] else None)(node.plugins()["placement"]))
                self.assertIn("stalled" if mode == "deaf" else "broke the link's rules", row["last_exit"])
                self.assertGreater(node.status()["stats"]["placed_by_default"], 0)
                node.cli("swap", "placement", "--policy", "rendezvous", "--binary",
                         os.path.abspath(os.path.join(BIN, "scheduler")))
                self.common_checks(node, pid, fds)
                node.stop()

    def test_a_hostile_runtime_and_a_hostile_drain(self):
        node = self.node({"restart": {"intensity": "on"},
                          "plugin.runtime": {"use": "hostile", "binary": HOSTILE, "instances": 1},
                          "plugin.runtime.settings": {"mode": "never-asked"},
                          "limits": {"request_timeout": "1s"}}, wait=False)
        node.wait_ready()
        pid = node.pid
        for number in range(5):
            status, _, body = node.post(f"/actor/counter/a{number}")
            self.assertIn(status, (503, 504), body)
        row = node.plugins()["runtime"]
        self.assertIn("broke the link's rules", row["last_exit"])
        self.assertEqual(node.http("GET", "/healthz")[0], 200)
        self.assertEqual(node.pid, pid)
        self.assertEqual(node.stop(), 0)

    def test_what_goes_wrong_before_it_is_ready(self):
        node = self.node({**self.TOML, "limits": {"ready_timeout": "1s"}})
        pid, fds = node.pid, node.fds()
        for name, says in (("hostile-mute", "stuck in starting"), ("hostile-late", "stuck in warming"),
                           ("hostile-kind", "greets as storage, configured as placement"),
                           ("hostile-names", None), ("hostile-exit", "exit code 1: hostile: I cannot find my moon")):
            with self.subTest(name=name):
                binary = os.path.join(self.dir, name)
                shutil.copy(HOSTILE, binary)
                os.chmod(binary, 0o755)
                code, _, said = node.cli("swap", "placement", "--policy", "hostile", "--binary", binary, check=False)
                if says is not None:
                    self.assertEqual(code, 1, said)
                    self.assertIn(says, said)
                self.back(node)
        self.common_checks(node, pid, fds)

    def test_operators_ask_while_it_rages(self):
        """Floods of one instance, and an operator who wants to know what goes on."""
        node = self.node(self.TOML)
        pid, fds = node.pid, node.fds()
        fresh = FreshActors(node, threads=1).start()
        for mode in ("log-flood", "bell-storm", "counter-flood"):
            self.swap_in(node, mode, 3, {})
            for _ in range(5):
                self.assertIn("placement", node.plugins())
                self.assertEqual(node.http("GET", "/metrics")[0], 200)
            self.back(node)
        fresh.stop(self)
        self.common_checks(node, pid, fds)
