"""Faults of a node's own parts: a store that dies, is slow, does not know or has no room; an event that ends its process.

The faulty binaries are the shipped plugins with another main (tests/system/faults).
"""
import contextlib
import mmap
import os
import random
import re
import signal
import struct
import subprocess
import threading
import time

from harness import BIN, LONG, Case, Load, wait_for

FAULTS = os.path.join(os.path.dirname(os.path.abspath(BIN)), "tests", "system", "faults")
STORAGE, RUNTIME, LIST = (os.path.join(FAULTS, name) for name in ("faulty-storage", "faulty-runtime", "bucket-list"))


class Sheet:
    """The fault sheet (tests/system/faults/fault_sheet.hpp), made before the node and shared with its storage process."""
    WORDS = ("die_one_in", "delay_ms", "unknown_one_in", "refuse", "no_sync", "seed", "", "",
             "puts", "deaths", "unknown_stored", "unknown_lost", "unknown_late", "refused")

    def __init__(self, node, **words):
        store = os.path.join(node.data, "store")
        os.makedirs(store)
        with open(os.path.join(store, "faults"), "w+b") as file:
            file.truncate(4096)
            self.page = mmap.mmap(file.fileno(), 4096)
        self["seed"] = random.SystemRandom().getrandbits(32)
        for word, value in words.items():
            self[word] = value

    def __getitem__(self, word):
        return struct.unpack_from("<Q", self.page, 8 * self.WORDS.index(word))[0]

    def __setitem__(self, word, value):
        struct.pack_into("<Q", self.page, 8 * self.WORDS.index(word), value)

    def unknown(self):
        return self["unknown_stored"] + self["unknown_lost"] + self["unknown_late"]


class Counters:
    """Writers and readers of counter actors. No value once seen may disappear: what any answer showed before a request
    began bounds that request's answer from below, for a write by one more."""

    def __init__(self, node, actors, readers=True, may_break=False):
        self.node, self.may_break = node, may_break
        self.names = [f"c{i}" for i in range(actors)]
        self.lock = threading.Lock()
        self.seen = dict.fromkeys(self.names, 0)
        self.written = dict.fromkeys(self.names, 0)   # answered 200
        self.open = dict.fromkeys(self.names, 0)      # of unknown effect: a broken connection, 504
        self.refused, self.wrong, self.answers = [], [], 0
        self.stopping = threading.Event()
        kinds = ("POST", "GET") if readers else ("POST",)
        self.threads = [threading.Thread(target=self._run, args=(name, kind), daemon=True)
                        for name in self.names for kind in kinds]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def _run(self, name, method):
        while not self.stopping.is_set():
            with self.lock:
                floor = self.seen[name]
            try:
                status, headers, body = self.node.http(method, f"/actor/counter/{name}", timeout=60)
            except OSError as error:
                status, headers, body = 0, {}, repr(error).encode()
            with self.lock:
                if status == 200:
                    value = int(body)
                    self.answers += 1
                    if value < floor + (method == "POST"):
                        self.wrong.append(f"{method} {name} answered {value} after {floor} had been seen")
                    self.seen[name] = max(self.seen[name], value)
                    if method == "POST":
                        self.written[name] += 1
                elif status == 503:
                    self.refused.append((method, name, headers, body))
                elif status == 504 or (status == 0 and self.may_break):
                    self.open[name] += method == "POST"
                else:
                    self.wrong.append(f"{method} {name} was answered {status} {body[:200]}")
            if status != 200 or method == "GET":
                self.stopping.wait(0.02)

    def stop(self, test):
        self.stopping.set()
        for thread in self.threads:
            thread.join(70)
            test.assertFalse(thread.is_alive(), "a request never ended")
        test.assertFalse(self.wrong[:5])
        for name in self.names:
            value = int(self.node.http("GET", f"/actor/counter/{name}")[2])
            test.assertGreaterEqual(value, max(self.written[name], self.seen[name]), name)
            test.assertLessEqual(value, self.written[name] + self.open[name], f"{name}: something was applied twice")
        return self


class FaultyStore(Case):
    def faulty_node(self, toml=None, classes=("counter", "ledger"), **words):
        node = self.node({"plugin.storage": {"binary": STORAGE}, **(toml or {})}, classes, start=False)
        sheet = Sheet(node, **words)
        return node, sheet


class Faults(FaultyStore):
    def test_storage_dies_between_a_commit_and_its_answer(self):
        """Each death leaves a write that is stored and was never answered; nothing of it shows outside."""
        deaths = 1000 if LONG else 60
        node, sheet = self.faulty_node({"restart": {"intensity": "off"}})
        node.start()
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=16, threads=4).start()
        counters = Counters(node, 2, readers=False).start()
        for one_in in (1, 3):
            sheet["die_one_in"] = one_in
            goal = sheet["deaths"] + deaths // 2
            wait_for(f"{deaths // 2} deaths at one put in {one_in}", lambda g=goal: sheet["deaths"] >= g, 60 + deaths // 2)
        sheet["die_one_in"] = 0
        load.stop()
        counters.stop(self)
        self.assertFalse(counters.refused[:1], "a death of storage cost an answer")
        load.verify(self, allow=(200,))
        stats = node.status()["stats"]
        self.assertEqual(stats["fenced"], 0, stats)
        self.assertEqual(stats["undone"], 0, stats)
        self.assertGreaterEqual(stats["restarts"], deaths)
        self.common_checks(node, pid, fds)

    def test_slow_storage_that_does_not_know(self):
        """200 ms a put, one in some *unknown*: stored, not stored, or stored later. Over deaths of a runtime and of the node."""
        one_in, puts = (50, 8000) if LONG else (25, 800)
        node, sheet = self.faulty_node({"plugin.storage": {"binary": STORAGE}})
        node.start()
        sheet["delay_ms"] = 200
        sheet["unknown_one_in"] = one_in
        counters = Counters(node, 12, may_break=True).start()
        load = Load(node, actors=12, threads=12).start()
        wait_for("writes of a third", lambda: sheet["puts"] > puts // 3, 60 + puts // 10)
        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
        wait_for("writes of another third", lambda: sheet["puts"] > 2 * puts // 3, 60 + puts // 10)
        self.assertEqual(node.status()["stats"]["fenced"], 0)
        self.assertGreater(node.status()["stats"]["commit_unknown"], 0)
        self.assertFalse(counters.refused[:1], "503 where the node did not stop")
        node.stop(signal.SIGKILL)
        node.start()
        wait_for("the rest of the writes", lambda: sheet["puts"] > puts, 60 + puts // 10)
        load.stop()
        counters.stop(self)
        load.verify(self, allow=(200, 503, 504, 0))
        for kind in ("unknown_stored", "unknown_lost", "unknown_late"):
            self.assertGreater(sheet[kind], 0, "the fault did not happen")
        self.assertEqual(node.status()["stats"]["fenced"], 0)
        sheet["delay_ms"] = sheet["unknown_one_in"] = 0
        self.common_checks(node)

    def test_storage_refuses_for_a_while(self):
        node, sheet = self.faulty_node()
        node.start()
        pid, fds = node.pid, node.fds()
        counters = Counters(node, 4).start()
        load = Load(node, actors=4, threads=2).start()
        wait_for("the load runs", lambda: load.count() > 20 and min(counters.seen.values()) > 2)
        for _ in range(3):
            before = dict(counters.seen)
            sheet["refuse"] = 1
            wait_for("writes are refused", lambda n=len(counters.refused): len(counters.refused) > n + 20)
            with counters.lock:
                seen = dict(counters.seen)
                reads = counters.answers
            for name, value in seen.items():   # nothing is written now: a read shows what was seen last
                body = wait_for(f"a read of {name}", lambda n=name: self.read(node, n), 5)
                self.assertEqual(int(body), value, "reads of resident actors go on")
            status, headers, body = node.post("/actor/counter/never-seen")
            self.assertEqual(status, 503, body)
            self.assertIn("retry-after", headers)
            wait_for("reads go on", lambda n=reads: counters.answers > n + 20)
            sheet["refuse"] = 0
            wait_for("writes again", lambda b=before: all(counters.seen[n] > b[n] + 1 for n in b), 5)
        load.stop()
        counters.stop(self)
        # A read that saw a write which is then refused is undone with it; no other is refused.
        self.assertFalse([r for r in counters.refused if r[0] == "GET" and b"undone" not in r[3]][:3], "a read was refused")
        self.assertFalse([r for r in counters.refused if "retry-after" not in r[2]][:3], "503 without Retry-After")
        self.assertEqual(sum(counters.open.values()), 0)
        load.verify(self, allow=(200, 503))
        self.assertEqual(node.status()["stats"]["fenced"], 0)
        self.assertEqual(node.post("/actor/counter/never-seen")[2], b"1\n", "a refused event takes no effect")
        self.common_checks(node, pid, fds)

    @staticmethod
    def read(node, name):
        status, _, body = node.http("GET", f"/actor/counter/{name}")
        return body if status == 200 else None

    def test_the_disk_is_full(self):
        """A real one: writes are refused, reads go on, and all is well in 5 s once there is room."""
        node = self.node(classes=("counter", "misfit"), start=False)
        store = os.path.join(node.data, "store")
        os.makedirs(store)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "holdfast-test", store],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system of a fixed size may be mounted here: " + mounted.stderr.strip())
        try:
            node.start()
            self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
            ballast = os.path.join(store, "ballast")
            with open(ballast, "wb", buffering=0) as file:
                with contextlib.suppress(OSError):
                    while file.write(bytes(65536)):
                        pass
            answers = [node.post("/actor/misfit/m/value?40000") for _ in range(4)]
            self.assertEqual(answers[-1][0], 503, answers[-1])
            self.assertIn("retry-after", answers[-1][1])
            self.assertIn(b"full", answers[-1][2])
            kept = int(node.http("GET", "/actor/counter/a")[2])
            self.assertEqual(kept, 1)
            self.assertEqual(node.plugins()["storage"]["restarts"], 0)
            os.unlink(ballast)
            wait_for("writes again", lambda: node.post("/actor/misfit/m/value?40000")[0] == 200, 5)
            self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
            self.common_checks(node)
            node.stop(signal.SIGKILL)
            node.start()
            self.assertEqual(node.post("/actor/counter/a")[2], b"3\n")
            self.assertEqual(node.stop(), 0)
        finally:
            if node.process is not None and node.process.poll() is None:
                node.stop(signal.SIGKILL)
            subprocess.run(["umount", store], check=True)


class Syncs(FaultyStore):
    """Between an event's arrival and its answer lies a sync that has ended, seen by the kernel and not by the product."""
    EVENTS = 40

    def traced(self, node):
        """(events, events with a sync inside of the time from request to answer)"""
        trace = os.path.join(self.dir, "trace")
        strace = subprocess.Popen(["strace", "-f", "-p", str(node.plugin_pid("storage")), "-e", "trace=fdatasync,fsync,msync",
                                   "-y", "-ttt", "-T", "-o", trace], stderr=subprocess.PIPE, text=True)
        self.extra.append(strace)
        said = strace.stderr.readline()
        if "attached" not in said:
            strace.wait(10)
            self.skipTest("ptrace is not permitted: " + said.strip())
        spans = []
        for number in range(self.EVENTS):
            begun = time.time()
            self.assertEqual(node.post(f"/actor/counter/s{number % 4}")[0], 200)
            spans.append((begun, time.time()))
        strace.send_signal(signal.SIGINT)
        strace.wait(10)
        strace.stderr.close()
        syncs, begun = [], {}
        with open(trace, encoding="utf-8", errors="replace") as file:
            for line in file:
                if "data.mdb" not in line and "resumed" not in line:
                    continue
                pid, stamp, call = line.split(None, 2)
                if "unfinished" in call:
                    begun[pid] = float(stamp)
                    continue
                took = re.search(r"= 0 <([0-9.]+)>$", line.strip())
                if took is None or (pid not in begun and "resumed" in call):
                    continue
                start = begun.pop(pid, float(stamp))
                syncs.append((start, start + float(took.group(1))))
        with_sync = sum(1 for a, b in spans if any(a <= start and end <= b for start, end in syncs))
        return len(spans), with_sync

    def test_a_sync_lies_between_event_and_answer(self):
        node = self.node()
        for number in range(4):
            node.post(f"/actor/counter/s{number}")
        events, synced = self.traced(node)
        self.assertEqual(synced, events)

    def test_a_store_without_syncs_is_caught(self):
        node, _ = self.faulty_node(classes=("counter",), no_sync=1)
        node.start()
        for number in range(4):
            node.post(f"/actor/counter/s{number}")
        _, synced = self.traced(node)
        self.assertEqual(synced, 0, "the check sees syncs where none are made")


class Filters(Case):
    def filters(self, pid):
        """What is missing of the two filters; '' when both are there."""
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            fields = dict(line.rstrip("\n").split(":", 1) for line in file)
        if fields["Seccomp"].strip() != "2":
            return f"no filter: Seccomp is {fields['Seccomp'].strip()}"
        if "Seccomp_filters" not in fields:
            self.skipTest("this kernel does not say how many filters a process has")
        count = int(fields["Seccomp_filters"])
        return "" if count >= 2 else f"only {count} filter"

    def test_each_instance_has_two_filters_of_its_own(self):
        own = self.filters(os.getpid())
        node = self.node()
        below = 0 if own.startswith("no filter") else int(re.search(r"\d+", own or "2").group())
        self.assertTrue(below or self.filters(node.pid), "the check finds filters where none are")
        seen = 0
        for row in node.plugins().values():
            for instance in row["instances"]:
                self.assertEqual(self.filters(instance["pid"]), "", row["name"])
                seen += 1
        self.assertEqual(seen, 6)

    def test_the_check_fails_for_a_process_without_a_filter(self):
        plain = subprocess.Popen(["sleep", "60"])
        self.extra.append(plain)
        if self.filters(os.getpid()) == "":
            self.skipTest("the tests themselves run under filters")
        self.assertNotEqual(self.filters(plain.pid), "")


class Poison(Case):
    MARK = {"x-mark": "end-this-process"}

    def test_an_event_that_ends_its_runtime_three_times_is_failed(self):
        node = self.node({"restart": {"intensity": "off"}, "plugin.runtime": {"binary": RUNTIME}}, ("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=8, threads=3).start()
        wait_for("the load runs", lambda: load.count() > 20)
        for round_ in range(1, 4):
            before = node.plugins()["runtime"]["restarts"]
            status, _, body = node.post("/actor/counter/poisoned", headers=self.MARK)
            self.assertEqual(status, 500, body)
            self.assertIn(b"three times", body)
            wait_for("both runtimes serve", lambda: [i.get("state") for i in node.plugins()["runtime"]["instances"]]
                     == ["serving"] * 2)
            row = node.plugins()["runtime"]
            self.assertEqual(row["restarts"], before + 3, "an event ends three runtimes and no more")
            self.assertIn("signal 11", row["last_exit"])
            self.assertEqual(node.status()["stats"]["poisoned"], round_)
            status, _, body = node.post("/actor/counter/poisoned")
            self.assertEqual((status, body), (200, b"%d\n" % round_), "the actor goes on, the poison left nothing")
        load.stop()
        load.verify(self, allow=(200,))
        self.common_checks(node, pid, fds)

    def test_kills_from_outside_are_no_poison(self):
        """Killed five times while it runs one event: the event is not blamed."""
        node = self.node({"restart": {"intensity": "off"}, "plugin.runtime": {"instances": 1},
                          "class.misfit": {"cpu_limit": "20s", "wall_limit": "30s"}}, ("counter", "misfit"))
        node.post("/actor/misfit/m/ok")
        answer = []
        asking = threading.Thread(target=lambda: answer.append(node.post("/actor/misfit/m/burn?1500")))
        asking.start()
        for _ in range(5):
            runtime = node.plugin_pid("runtime")
            wait_for("it runs the event", lambda p=runtime: cpu_seconds(p) > 0.1)
            os.kill(runtime, signal.SIGKILL)
            wait_for("another one serves", lambda p=runtime: node.plugin_pid("runtime") != p)
        asking.join(40)
        self.assertEqual(answer[0][0], 200, answer)
        self.assertEqual(node.status()["stats"]["poisoned"], 0)
        self.common_checks(node)


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


class Bases(Case):
    EVERY = 5

    def entries(self, node, actor):
        """Log entries of a counter actor in the store of a node that is down."""
        done = subprocess.run([LIST, os.path.join(node.data, "store"), f"apps/default/log/actor/default/counter/{actor}/"],
                              capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def test_bases_hold_over_kill_9_at_any_moment(self):
        node = self.node({"limits": {"checkpoint_entries": self.EVERY}}, ("counter", "ledger"))
        count, seals, starts = 0, 0, []
        rng = random.Random(random.SystemRandom().getrandbits(32))
        total = 40 if LONG else 10
        load = Load(node, actors=4, threads=2).start()
        for _ in range(total):
            for _ in range(rng.randrange(self.EVERY + 2, 40)):
                status, _, body = node.post("/actor/counter/b")
                count += 1
                self.assertEqual((status, body), (200, b"%d\n" % count))
            self.assertGreaterEqual(node.status()["stats"]["bases"], 1)
            # One more is on its way when everything ends.
            last = threading.Thread(target=self.quietly, args=(node,))
            last.start()
            node.stop(signal.SIGKILL)
            last.join()
            seals += 1
            entries = self.entries(node, "b")
            # A base and what follows it, what it covers and was not deleted yet, and a seal for each start.
            self.assertLessEqual(len(entries), 3 * self.EVERY + 8 + seals, entries)
            begun = time.monotonic()
            node.start()
            value = int(node.http("GET", "/actor/counter/b")[2])
            starts.append(time.monotonic() - begun)
            self.assertIn(value, (count, count + 1))
            count = value
        load.stop()
        load.verify(self, allow=(200, 503, 504, 0))
        self.assertLess(max(starts[-3:]), max(2.0, 3 * min(starts)), f"restarts get slower: {starts}")
        self.assertEqual(node.status()["stats"]["fenced"], 0)
        self.common_checks(node)

    @staticmethod
    def quietly(node):
        with contextlib.suppress(OSError):
            node.post("/actor/counter/b", timeout=5)
