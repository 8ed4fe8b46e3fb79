"""A real holdfastd for one test: its own temporary directory, loopback, port 0, ended by pid.

Nothing here trusts the product's word where the outside can be asked: /proc for processes, sockets for answers.
"""
import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

BIN = os.environ.get("HOLDFAST_TEST_BIN", "build/bin")
LONG = os.environ.get("HOLDFAST_LONG") == "1"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READY_S = 30     # a start on a loaded two-core machine, module build included


def wait_for(what, condition, seconds=20, step=0.02):
    """Waits for something seen from outside; fails by name. Nothing else in the suite sleeps but stays_away."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {seconds} s: {what}")
        time.sleep(step)


def stays_away(condition, seconds, step=0.1):
    """Watches that something does not happen for so long, which takes that long; true when it stayed away."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return False
        time.sleep(step)
    return True


def alive(pid):
    """A live process, zombies excluded."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(pid):
    out = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            out.append(int(entry))
    return out


def descendants(pid):
    out, todo = [], [pid]
    while todo:
        for child in children(todo.pop()):
            out.append(child)
            todo.append(child)
    return out


class Node:
    """One node. `toml` is merged over the defaults: {"plugin.runtime": {"instances": 1}}; None removes a key or table."""

    def __init__(self, directory, toml=None, classes=("counter",)):
        self.dir = directory
        self.data = os.path.join(directory, "data")
        self.config = os.path.join(directory, "agent.toml")
        self.process = None
        self.address = None
        self.names = set()   # of its control groups; a new one when its state was damaged
        tables = {
            "node": {"id": "n1", "data": self.data},
            "plugin.gateway": {"use": "gateway-http", "listen": "127.0.0.1:0"},
            "plugin.storage": {"use": "storage-local", "map_bytes": "256MiB"},
            "plugin.runtime": {"use": "runtime-wasm", "instances": 2},
            "plugin.placement": {"use": "scheduler", "policy": "rendezvous"},
            "plugin.drain": {"use": "scheduler", "policy": "paced"},
        }
        for name in classes:
            tables[f"class.{name}"] = {"module": os.path.join(os.path.dirname(BIN), "examples", "actors", name + ".wasm")}
        for table, values in (toml or {}).items():
            if values is None:
                tables.pop(table, None)
                continue
            target = tables.setdefault(table, {})
            for key, value in values.items():
                if value is None:
                    target.pop(key, None)
                else:
                    target[key] = value
        self.tables = tables
        self.write_config()

    def write_config(self):
        with open(self.config, "w", encoding="utf-8") as file:
            for table, values in self.tables.items():
                file.write(f"[{table}]\n")
                for key, value in values.items():
                    file.write(f"{key} = {json.dumps(value, ensure_ascii=False)}\n")

    # --- life ---
    def start(self, wait=True, wrapper=(), env=None, args=()):
        self.out = open(os.path.join(self.dir, "stdout"), "ab")
        self.err = open(os.path.join(self.dir, "stderr"), "ab")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.data, "run", "address"))
        self.process = subprocess.Popen([*wrapper, os.path.join(BIN, "holdfastd"), "--config", self.config, *args],
                                        stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err,
                                        env={**os.environ, **(env or {})}, cwd=self.dir)
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=READY_S):
        path = os.path.join(self.data, "run", "address")

        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"holdfastd ended with {self.process.returncode}:\n{self.stderr()[-3000:]}")
            if not os.path.exists(path):
                return None
            with open(path, encoding="ascii") as file:
                return file.read().strip() or None
        self.address = wait_for("the node is ready", ready, seconds)
        self.control_groups()
        self.host, port = self.address.rsplit(":", 1)
        self.port = int(port)
        return self

    @property
    def pid(self):
        return self.process.pid

    def stderr(self):
        with open(os.path.join(self.dir, "stderr"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self, sig=signal.SIGTERM, seconds=40):
        """Ends the node and proves that nothing of it is left. Returns the exit code."""
        if self.process is None or self.process.poll() is not None:
            return None if self.process is None else self.process.returncode
        family = descendants(self.process.pid)
        self.process.send_signal(sig)
        code = self.process.wait(timeout=seconds)
        wait_for(f"no process of the node is left of {family}", lambda: not [p for p in family if alive(p)], 5)
        return code

    # --- asking ---
    def http(self, method, path, body=None, headers=None, timeout=40):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, dict((k.lower(), v) for k, v in answer.getheaders()), answer.read()
        finally:
            connection.close()

    def post(self, path, **kw):
        return self.http("POST", path, **kw)

    def cli(self, *args, check=True, timeout=60):
        done = subprocess.run([os.path.join(BIN, "holdfast"), "--node", self.data, *args, "--json"], text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                              check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"holdfast {' '.join(args)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        answer = None
        with contextlib.suppress(json.JSONDecodeError):
            answer = json.loads(done.stdout.strip().splitlines()[-1]) if done.stdout.strip() else None
            if answer is None or not isinstance(answer, dict):
                answer = json.loads(done.stdout)
        if answer is None:
            with contextlib.suppress(json.JSONDecodeError):
                answer = json.loads(done.stdout)
        return (answer if check else (done.returncode, answer, done.stdout + done.stderr))

    def status(self):
        return self.cli("status")

    def plugins(self):
        return {row["name"]: row for row in self.cli("plugins")["plugins"]}

    def plugin_pid(self, name, instance=0):
        """The pid of a serving instance; waits for one."""
        def pid():
            rows = [r for r in self.plugins()[name]["instances"] if r["index"] == instance]
            return rows and rows[0].get("state") == "serving" and rows[0].get("pid")
        return wait_for(f"{name}/{instance} serves", pid)

    def all_pids(self):
        """holdfastd and all of its processes."""
        return [self.pid, *descendants(self.pid)]

    def halt(self):
        """SIGSTOP of the whole node, and what was stopped. First holdfastd; then, when nothing of what it had asked of its
        store is under way any more, the rest: a process that is stopped inside a write holds up every node on the store."""
        stopped = self.all_pids()
        storage = self.plugin_pid("storage")
        os.kill(self.pid, signal.SIGSTOP)

        def looks():
            """Each thread's state and how often it slept."""
            out = []
            for task in os.listdir(f"/proc/{storage}/task"):
                with open(f"/proc/{storage}/task/{task}/status", encoding="ascii") as file:
                    lines = dict(line.split(":", 1) for line in file.read().splitlines() if ":" in line)
                out.append((task, lines["State"].split()[0], lines["voluntary_ctxt_switches"].strip()))
            return sorted(out)
        last = [None, 0]

        def rests():
            now = looks()
            still = now == last[0] and all(state == "S" for _, state, _ in now)
            last[0], last[1] = now, last[1] + 1 if still else 0
            return last[1] >= 5
        wait_for("its storage rests", rests, 20, 0.05)
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        return stopped

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def control_groups(self):
        """This node's, in each hierarchy of the machine, under every name it had."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(os.path.join(self.data, "state", "instance.json"), encoding="utf-8") as file:
                self.names.add("holdfast-" + json.load(file)["instance"][:12])
        return [os.path.join(top, one) for top, dirs, _ in os.walk("/sys/fs/cgroup") for one in dirs
                if one.startswith(tuple(self.names))]

    def remove_control_groups(self):
        """A node that was killed leaves them to its next start; here there is none."""
        for group in self.control_groups():
            for top, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(top)


class Clients:
    """Threads that each ask one request after the other, over a connection of their own, until they are stopped.

    A kind of load says what comes next, `request(number)` -> (name, method, path, headers), and takes what came,
    `heard(name, status, body)`; both are called with `lock` held. Status 0 is a connection that broke: the answer is not known.
    """

    def __init__(self, node, threads, rate=None):
        self.node, self.gap = node, threads / rate if rate else 0
        self.lock, self.stopping = threading.Lock(), threading.Event()
        self.latencies = []   # (begun, seconds)
        self.threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(threads)]

    def start(self):
        self.begun = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def _run(self, number):
        connection = None
        due = time.monotonic()
        while not self.stopping.is_set():
            with self.lock:
                name, method, path, headers = self.request(number)
            begun = time.monotonic()
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(self.node.host, self.node.port, timeout=60)
                connection.request(method, path, headers=headers)
                answer = connection.getresponse()
                status, body = answer.status, answer.read()
                broken = answer.will_close
            except (OSError, http.client.HTTPException) as error:
                status, body, broken = 0, repr(error), True
            if broken and connection is not None:
                connection.close()
                connection = None
            with self.lock:
                self.latencies.append((begun, time.monotonic() - begun))
                self.heard(name, status, body)
            if self.gap:
                due += self.gap
                self.stopping.wait(max(0, due - time.monotonic()))
            elif status in (0, 503):
                self.stopping.wait(0.01)
        if connection is not None:
            connection.close()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(70)
            if thread.is_alive():
                raise AssertionError("a request of the load never ended")
        self.seconds = time.monotonic() - self.begun
        return self

    def slowest(self):
        with self.lock:
            return max(took for _, took in self.latencies)


class FreshActors(Clients):
    """Touches actors nobody touched before; `statuses` counts the answers."""

    def __init__(self, node, threads=4, prefix="fresh"):
        super().__init__(node, threads)
        self.prefix, self.numbers = prefix, itertools.count()
        self.statuses, self.bad = {}, []

    def request(self, number):
        return None, "POST", f"/actor/counter/{self.prefix}{next(self.numbers)}", {}

    def heard(self, name, status, body):
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status != 200 and len(self.bad) < 5:
            self.bad.append((status, body))

    def ok(self):
        with self.lock:
            return self.statuses.get(200, 0)

    def stop(self, test=None):
        super().stop()
        if test is not None:
            test.assertFalse(self.bad, "an actor's first request was not answered 200")
        return self


class Load(Clients):
    """Numbered POSTs to ledger actors; each id is sent once and its end is recorded.

    results[id] = (status, body): status 0 is a connection that broke.
    """

    def __init__(self, node, actors=8, threads=4, rate=None, path="/actor/ledger/{actor}/add", class_prefix="a"):
        super().__init__(node, threads, rate)
        self.actors, self.path, self.prefix = actors, path, class_prefix
        self.results, self.where = {}, {}
        self.next_id = 0

    def request(self, number):
        self.next_id += 1
        actor = f"{self.prefix}{self.next_id % self.actors}"
        self.where[self.next_id] = actor
        return self.next_id, "POST", self.path.format(actor=actor), {"x-request-id": f"{self.next_id:016d}"}

    def heard(self, name, status, body):
        self.results[name] = (status, body[:200])

    def count(self, status=200):
        with self.lock:
            return sum(1 for end in self.results.values() if end[0] == status)

    def verify(self, test, allow=(200, 503, 504)):
        """Each id answered 200 was applied exactly once, each 503 never, any other at most once."""
        strange = {i: e for i, e in self.results.items() if e[0] not in allow}
        test.assertFalse(dict(list(strange.items())[:5]), "answers that are not allowed here")
        for ident, (status, reason) in self.results.items():
            times = self.node_times(self.where[ident], ident)
            if status == 200:
                test.assertEqual(times, 1, f"id {ident} was answered 200 and applied {times} times")
            elif status == 503:
                test.assertEqual(times, 0, f"id {ident} was refused ({reason}) and applied {times} times")
            else:
                test.assertLessEqual(times, 1, f"id {ident} ({status}) was applied {times} times")

    def node_times(self, actor, ident):
        """How often the actor says the id was applied, asked over one connection."""
        if not hasattr(self, "_asking"):
            self._asking = http.client.HTTPConnection(self.node.host, self.node.port, timeout=60)

        def answer():
            self._asking.request("GET", f"/actor/ledger/{actor}/id?{ident:016d}")
            got = self._asking.getresponse()
            body = got.read()
            return None if got.status == 503 else (got.status, body)   # 503: later
        status, body = wait_for(f"the ledger of {actor} answers", answer, 10, 0.1)
        if status != 200:
            raise AssertionError(f"the ledger of {actor} cannot be read: {status} {body[:200]}")
        return int(body)


class Case(unittest.TestCase):
    """One temporary directory, nodes that are ended whatever happens, and the common checks after each test."""
    maxDiff = None

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="holdfast-test-")
        os.chmod(self.dir, 0o755)
        self.nodes = []
        self.extra = []   # other processes to end
        self.shm_before = self.shm()

    @staticmethod
    def shm():
        """What is in /dev/shm, but for the directories of storage's unit tests, which may run at the same time."""
        return {name for name in os.listdir("/dev/shm") if not name.startswith("hf-bucket-")}

    def node(self, toml=None, classes=("counter",), name="node", start=True, **kw):
        directory = os.path.join(self.dir, name)
        os.makedirs(directory, exist_ok=True)
        node = Node(directory, toml, classes)
        self.nodes.append(node)
        if start:
            node.start(**kw)
        return node

    def cluster(self, count=3, toml=None, lease="3s", secrets=None, ids=None, **kw):
        """Several nodes on one bucket, all started. `secrets` and `ids`: other ones than the common secret and n1, n2, ..."""
        nodes = []
        for index in range(count):
            name = f"n{index + 1}"
            secret = os.path.join(self.dir, "secret" if secrets is None else f"secret-{name}")
            with open(secret, "w", encoding="ascii") as file:
                file.write((secrets[index] if secrets else "0123456789abcdef" * 3) + "\n")
            os.chmod(secret, 0o600)
            tables = {"node": {"id": ids[index] if ids else name, "lease": lease},
                      "plugin.gateway": {"peer_secret_file": secret},
                      "plugin.storage": {"path": os.path.join(self.dir, "store")},
                      "plugin.runtime": {"instances": 1}}
            for table, values in (toml or {}).items():
                tables[table] = {**tables.get(table, {}), **values}
            nodes.append(self.node(tables, name=name, start=False, **kw))
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        return nodes

    def tearDown(self):
        left = []
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                family = descendants(node.process.pid)
                node.process.kill()
                node.process.wait()
                with contextlib.suppress(AssertionError):   # told below, when everything else is put away
                    wait_for("its processes are gone", lambda: not [p for p in family if alive(p)], 5)  # noqa: B023
                left += [p for p in family if alive(p)]
            node.remove_control_groups()
            for stream in ("out", "err"):
                if hasattr(node, stream):
                    getattr(node, stream).close()
        for process in self.extra:
            if process.poll() is None:
                process.kill()
                process.wait()
        failed = any(error for _, error in getattr(self._outcome, "errors", [])) or bool(
            getattr(getattr(self._outcome, "result", None), "failures", None))
        if failed and os.environ.get("HOLDFAST_KEEP"):
            print("kept:", self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
        self.assertFalse(left, "processes left after the node was killed")
        self.assertFalse(self.shm() - self.shm_before, "left in /dev/shm")

    def common_checks(self, node, pid=None, fds_before=None):
        """After every case: same daemon, no zombie, descriptors as before, the next 100 requests succeed."""
        if pid is not None:
            self.assertEqual(node.pid, pid)
        self.assertIsNone(node.process.poll(), "holdfastd is alive")

        def zombies():
            out = []
            for child in descendants(node.pid):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    with open(f"/proc/{child}/stat", encoding="ascii", errors="replace") as file:
                        if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                            out.append(child)
            return out
        # One that ended this moment is reaped the next.
        wait_for("no zombie stays", lambda: not zombies(), 2)
        if fds_before is not None:
            wait_for(f"descriptors are back near {fds_before}", lambda: node.fds() <= fds_before + 5)
        for _ in range(100):
            status, _, body = node.post("/actor/counter/common-checks")
            self.assertEqual(status, 200, body)


def raw(node, data, timeout=10):
    """Sends bytes as they are, reads until the peer closes or the time is up."""
    with socket.create_connection((node.host, node.port), timeout=timeout) as connection:
        connection.sendall(data)
        out = b""
        with contextlib.suppress(socket.timeout):
            while True:
                piece = connection.recv(65536)
                if not piece:
                    break
                out += piece
        return out
