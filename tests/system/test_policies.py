"""Policies that go wrong: each ends by itself in the old one or the built-in default, and no request is lost on the way."""
import os
import shutil
import signal
import threading
import time

from harness import BIN, LONG, Case, FreshActors, Load, descendants, stays_away, wait_for
from test_swap import refused

FAULTY = os.path.abspath(os.path.join(BIN, "faulty-policy"))
HOSTILE = os.path.join(os.path.dirname(os.path.abspath(BIN)), "tests", "system", "hostile", "hostile-plugin")


def swap_args(policy, **settings):
    sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    return ("swap", "placement", "--binary", FAULTY, "--policy", policy, *sets)


def running(node, name):
    """Pids of the node's processes that run this program."""
    out = []
    for pid in descendants(node.pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if os.path.basename(file.read().split(b"\0")[0].decode()) == name:
                    out.append(pid)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return out


def dumps(node):
    directory = os.path.join(node.data, "dumps")
    texts = []
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return texts


class Faulty(Case):
    def wrong(self, modes):
        """Each mode at each moment of a swap, under load: at the self-test, in the stage, and after it."""
        node = self.node(classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=2, rate=60).start()
        fresh = FreshActors(node, threads=3).start()
        wait_for("the load runs", lambda: load.count() > 10 and fresh.ok() > 20)
        for mode, says in modes:
            for after in (0, 20, 300):
                with self.subTest(mode=mode, after=after):
                    code, _, said = node.cli(*swap_args(mode, after=after), check=False)
                    if after == 300:
                        self.assertEqual(code, 0, said)
                        self.assertIn("Full", said)
                    else:
                        self.assertEqual(code, 1, said)
                        self.assertIn("RolledBack", said)
                        self.assertIn("scheduler/rendezvous is in charge", said)
                    wait_for("the old one is back", lambda: node.plugins()["placement"]["policy"] == "rendezvous", 20)
                    row = wait_for("and serves", lambda: (lambda r: r if r["state"] == "serving" else None)(
                        node.plugins()["placement"]), 20)
                    self.assertIn(says, row["reason"])
                    self.assertIn("faulty-policy/" + mode, row["reason"])
                    remembered = node.cli("plugins")["remembered_bad_builds"]
                    self.assertTrue([b for b in remembered if f"|{mode}|after={after}" in b["identity"]], remembered)
        wait_for("none of them runs", lambda: not running(node, "faulty-policy"))
        fresh.stop(self)
        load.stop()
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "a bad policy cost an answer")
        load.verify(self)
        self.assertFalse(running(node, "faulty-policy"), "it was not started again by itself")
        self.common_checks(node, pid, fds)
        return node

    def test_crash_and_exit(self):
        self.wrong([("crash", "signal 11"), ("exit", "exit code 1")])

    def test_lie_and_garbage(self):
        self.wrong([("lie", "no candidate"), ("garbage", "broke the link's rules")])

    def test_stall_is_dumped_and_ended(self):
        node = self.wrong([("stall", "stalled"), ("mute", "stalled"), ("spin", "stalled")])
        texts = [text for text in dumps(node) if "Name:\tfaulty-policy" in text]
        self.assertGreaterEqual(len(texts), 9)
        for text in texts:
            self.assertIn("stalled", text)
            self.assertIn("open requests: ", text)

    def test_slow_is_counted_and_stays(self):
        node = self.node()
        node.cli(*swap_args("slow", after=80, every=50))
        row = node.plugins()["placement"]
        fresh = FreshActors(node, threads=3).start()
        wait_for("an answer was late", lambda: node.status()["stats"]["place_late"] >= 1, 60)
        used = node.status()["stats"]["placed_by_policy"]
        wait_for("more answers were late", lambda: node.status()["stats"]["place_late"] >= 4, 60)
        fresh.stop(self)
        after = node.plugins()["placement"]
        self.assertEqual((after["policy"], after["pid"], after["restarts"], after["state"]),
                         ("slow", row["pid"], row["restarts"], "serving"))
        stats = node.status()["stats"]
        self.assertGreater(stats["placed_by_policy"], used, "it is asked again once it has caught up")
        self.assertGreater(stats["placed_by_default"], 0, "nobody waits for it meanwhile")
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        self.common_checks(node, node.pid)

    def test_kill_9_from_outside_brands_nothing(self):
        node = self.node({"swap": {"answers": 100000, "window": "20s"}})
        # In the stage: it rolls back, and may be chosen again.
        ends = []
        thread = threading.Thread(target=lambda: ends.append(node.cli(*swap_args("crash", after=1000000), check=False)))
        thread.start()
        wait_for("it is in charge", lambda: running(node, "faulty-policy") and
                 node.plugins()["placement"].get("swap", {}).get("answers", 0) > 10)
        for pid in running(node, "faulty-policy"):
            os.kill(pid, signal.SIGKILL)
        thread.join(30)
        self.assertEqual(ends[0][0], 1, ends)
        self.assertIn("RolledBack", ends[0][2])
        self.assertIn("signal 9", ends[0][2])
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        node.stop()
        # After the stage: it is started again.
        node.tables["swap"] = {"answers": 16}
        node.write_config()
        node.start()
        node.cli(*swap_args("crash", after=1000000))
        for _ in range(3):
            pid = node.plugin_pid("placement")
            os.kill(pid, signal.SIGKILL)
            wait_for("it is another process", lambda old=pid: node.plugin_pid("placement") != old)
        row = node.plugins()["placement"]
        self.assertEqual((row["policy"], row["use"]), ("crash", "faulty-policy"))
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        self.common_checks(node, node.pid)

    def test_a_bad_build_in_the_configuration_stays_down_until_it_is_reset(self):
        node = self.node()
        self.assertIn("RolledBack", refused(self, node, *swap_args("stall", after=20)))
        self.assertEqual(node.stop(), 0)
        node.tables["plugin.placement"] = {"use": "faulty-policy", "binary": FAULTY, "policy": "stall"}
        node.tables["plugin.placement.settings"] = {"after": 20}
        node.write_config()
        node.start()
        row = node.plugins()["placement"]
        self.assertEqual(row["state"], "failed")
        self.assertIn("holdfast plugin reset placement", row["reason"])
        self.assertIn("stalled", row["reason"])
        self.assertEqual(node.status()["policies"]["placement"], "built-in default")
        for number in range(30):
            self.assertEqual(node.post(f"/actor/counter/a{number}")[0], 200)
        self.assertFalse(running(node, "faulty-policy"))
        self.assertEqual(node.status()["stats"]["placed_by_default"], 30)
        node.cli("plugin", "reset", "placement")
        wait_for("it serves", lambda: node.plugins()["placement"]["state"] == "serving")
        for number in range(30):   # the 21st stalls it again
            self.assertEqual(node.post(f"/actor/counter/b{number}")[0], 200)
        wait_for("it is down again", lambda: node.plugins()["placement"]["state"] == "failed")
        self.assertEqual(len(node.cli("plugins")["remembered_bad_builds"]), 1)
        # Another policy may be swapped in, and serves.
        node.cli("swap", "placement", "--policy", "least-loaded", "--binary", os.path.abspath(os.path.join(BIN, "scheduler")))
        self.assertEqual(node.plugins()["placement"]["state"], "serving")
        self.common_checks(node, node.pid)


class CrashLoop(Case):
    def own(self, name):
        """The hostile plugin under a name that tells it what to do at its start."""
        path = os.path.join(self.dir, name)
        shutil.copy(HOSTILE, path)
        os.chmod(path, 0o755)
        return path

    def test_one_that_ends_at_its_start_is_started_ever_more_slowly(self):
        binary = self.own("hostile-exit")
        node = self.node({"plugin.placement": {"use": "hostile", "binary": binary, "policy": "hostile"}})
        pid, fds = node.pid, node.fds()
        starts = {}

        def look():
            row = node.plugins()["placement"]
            starts.setdefault(row["restarts"], time.monotonic())
            return row
        wanted = 10 if LONG else 6
        wait_for("it was started again", lambda: look()["restarts"] >= wanted, 120)
        # After death n, which counts as a restart, it waits 100 ms doubled n - 1 times, up to 10 s; the first may have been
        # seen late.
        first, last = min(n for n in starts if n > 0), max(starts)
        waited = sum(min(0.1 * 2 ** (n - 1), 10) for n in range(first, last))
        self.assertGreater(starts[last] - starts[first], 0.8 * waited, starts)
        row = node.plugins()["placement"]
        self.assertEqual(row["last_exit"], "exit code 1: hostile: I cannot find my moon")
        self.assertIn("the stars are out", row["instances"][0]["last_stderr"], "the tail, not the last line alone")
        self.assertEqual(node.status()["policies"]["placement"], "built-in default")
        for number in range(20):
            self.assertEqual(node.post(f"/actor/counter/a{number}")[0], 200)
        if LONG:
            row = wait_for("it is failed", lambda: (lambda r: r if r["state"] == "failed" else None)(look()), 120)
            self.assertLessEqual(row["restarts"], 10)
            self.assertIn("10 short lives in 120 s", row["reason"])
            self.assertIn("cannot find my moon", row["reason"])
            self.assertTrue(stays_away(lambda: node.plugins()["placement"]["restarts"] > row["restarts"], 15), "it was started")
            node.cli("plugin", "reset", "placement")
            wait_for("it is tried again", lambda: node.plugins()["placement"]["restarts"] > row["restarts"])
        else:
            restarts = row["restarts"]
            node.cli("plugin", "reset", "placement")
            # The next delays are the short ones of the beginning.
            wait_for("it is tried again at once", lambda: node.plugins()["placement"]["restarts"] >= restarts + 2, 3)
        self.common_checks(node, pid, fds)


class Required(Case):
    def test_a_required_policy_that_stalls_fails_closed_by_name(self):
        node = self.node({"plugin.placement": {"use": "faulty-policy", "binary": FAULTY, "policy": "stall", "required": True},
                          "plugin.placement.settings": {"after": 5}})
        pid, fds = node.pid, node.fds()
        for number in range(5):
            self.assertEqual(node.post(f"/actor/counter/good{number}")[0], 200)
        for number in range(20):
            status, _, body = node.post(f"/actor/counter/bad{number}")
            self.assertEqual(status, 503, body)
            self.assertIn(b"placement policy faulty-policy/stall", body)
            self.assertIn(b"required", body)
        self.assertEqual(sum(r["resident"] for r in node.plugins()["runtime"]["instances"]), 5, "none passed unchecked")
        wait_for("it is down", lambda: node.plugins()["placement"]["state"] == "failed")
        status, _, body = node.post("/actor/counter/later")
        self.assertEqual(status, 503, body)
        self.assertIn(b"placement policy faulty-policy/stall", body)
        # Who has a place keeps it.
        for number in range(5):
            self.assertEqual(node.post(f"/actor/counter/good{number}")[2], b"2\n")
        stats = node.status()["stats"]
        self.assertEqual(stats["placed_by_default"], 0)
        node.cli("swap", "placement", "--policy", "rendezvous", "--binary", os.path.abspath(os.path.join(BIN, "scheduler")))
        for number in range(20):
            self.assertEqual(node.post(f"/actor/counter/bad{number}")[2], b"1\n", "a refused request took no effect")
        self.common_checks(node, pid, fds)


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) * 1024


class Flood(Case):
    def flood(self, mode, seconds):
        node = self.node({"log": {"file_bytes_max": "1MiB", "files": 2}, "swap": {"answers": 16}},
                         classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=2, rate=200).start()
        wait_for("the load runs", lambda: load.count() > 50)
        before = rss(pid)
        node.cli("swap", "placement", "--binary", HOSTILE, "--policy", "hostile", "--set", f"mode={mode}", "--set", "after=4")
        begun = time.monotonic()
        seen = load.count()
        grown = 0

        def over():
            nonlocal grown
            grown = max(grown, rss(pid) - before)
            return time.monotonic() - begun > seconds
        wait_for("the flood had its time", over, seconds + 10, step=0.1)
        self.assertLess(grown, 50 << 20, "holdfastd grew")
        self.assertGreater(load.count() - seen, 10, "the load went on")
        with load.lock:
            late = sorted(took for when, took in load.latencies if when >= begun)
        self.assertLess(late[int(len(late) * 0.99)], 1.0, "p99 of the load")
        log = os.path.join(node.data, "log")
        self.assertLess(sum(os.path.getsize(os.path.join(log, name)) for name in os.listdir(log)), (2 << 20) + 65536)
        self.assertIn(node.plugins()["placement"]["state"], ("serving", "restarting", "failed"))
        # It is still answered, or no longer used: actors get a place either way.
        for number in range(20):
            self.assertEqual(node.post(f"/actor/counter/new{number}")[0], 200)
        if node.plugins()["placement"]["policy"] == "hostile":
            node.cli("rollback", "placement")
        load.stop()
        load.verify(self, allow=(200,))
        self.common_checks(node, pid, fds)
        return node

    def test_lines_on_stderr(self):
        node = self.flood("stderr-lines", 30 if LONG else 4)
        with open(os.path.join(node.data, "log", "holdfastd.log"), encoding="utf-8", errors="replace") as file:
            self.assertIn("suppressed=", file.read(), "what was left out is counted")

    def test_one_endless_line_on_stderr(self):
        self.flood("stderr-line", 30 if LONG else 3)

    def test_log_messages(self):
        self.flood("log-flood", 10 if LONG else 3)

    def test_huge_log_messages(self):
        self.flood("log-huge", 10 if LONG else 3)

    def test_counters_with_ever_new_names(self):
        self.flood("counter-flood", 10 if LONG else 3)

    def test_bells(self):
        self.flood("bell-storm", 10 if LONG else 3)
