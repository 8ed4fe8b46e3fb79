"""Guests that go wrong, and healthy ones beside them: for tests/system/test_guests.py and tests/bench/run.py."""
import http.client
import os
import subprocess
import threading
import time

from harness import BIN

UNRULY = os.path.join(os.path.dirname(os.path.abspath(BIN)), "tests", "system", "guests", "unruly.wasm")

# Path, what its end is called. Each traps or meets a limit; what meets none of them runs for ever.
ENDS = [("loop", b"cpu_limit: the event used more than 100 ms"),
        ("fill?200", b"cpu_limit: the event used more than 100 ms"),
        ("sleep", b"cpu_limit: the event used more than 100 ms"),
        ("grow-trap", b"memory.grow beyond memory_max, 256 pages, was refused"),
        ("recurse", b"trap: "), ("recurse-alone", b"trap: "),
        ("divide", b"divide by zero"), ("unreachable", b"unreachable"), ("indirect", b"call_indirect"), ("wild", b"out of bounds"),
        ("half", b"unreachable"), ("half-loop", b"cpu_limit")]


def rss(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Healthy:
    """Counters that are asked one after the other, over connections that stay: every answer, and how long it took."""
    ACTORS = 20
    CLIENTS = 4

    def __init__(self, node):
        self.node = node
        self.names = [f"healthy-{i}" for i in range(self.ACTORS)]
        self.lock = threading.Lock()
        self.answers = []        # (begun, took, status, name)
        self.posted = dict.fromkeys(self.names, 0)
        self.wrong = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(i,), daemon=True) for i in range(self.CLIENTS)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def _run(self, client):
        connection = http.client.HTTPConnection(self.node.host, self.node.port, timeout=60)
        mine, turn = self.names[client::self.CLIENTS], 0
        while not self.stopping.is_set():
            name, method = mine[turn % len(mine)], "POST" if turn % 4 == 0 else "GET"
            turn += 1
            begun = time.monotonic()
            try:
                connection.request(method, f"/actor/counter/{name}")
                answer = connection.getresponse()
                status, body = answer.status, answer.read()
            except (OSError, http.client.HTTPException) as error:
                status, body = 0, repr(error).encode()
                connection.close()
            took = time.monotonic() - begun
            with self.lock:
                self.answers.append((begun, took, status, name))
                self.posted[name] += method == "POST" and status == 200
                if status != 200 or int(body) != self.posted[name]:
                    self.wrong.append((name, method, status, body[:200], self.posted[name]))
        connection.close()

    def count(self):
        with self.lock:
            return len(self.answers)

    def p99_ms(self, since, until, names=None):
        """Of requests begun in that time, to these actors or to all."""
        with self.lock:
            took = sorted(t for begun, t, _, name in self.answers if since <= begun < until and (names is None or name in names))
        return took[int(len(took) * 0.99)] * 1000 if took else float("nan")

    def slowest_s(self):
        with self.lock:
            return max(took for _, took, _, _ in self.answers)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(70)
            if thread.is_alive():
                raise AssertionError("a request to a healthy actor never ended")
        return self


# --- modules made on the spot --------------------------------------------------------------------------------------------

# What every module has; "%s" is the rest.
FRAME = """(module {imports}
  (memory (export "memory") {pages})
  (func (export "actor_abi_v1"))
  (func (export "actor_alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "actor_event") (param i32 i32 i32) (result i32) (i32.const 0))
  {rest})"""


def wat(rest="", imports="", pages="2"):
    """A module of this text, in bytes."""
    text = FRAME.format(imports=imports, pages=pages, rest=rest)
    return subprocess.run(["wat2wasm", "--output=-", "-"], input=text.encode(), capture_output=True, check=True).stdout


def leb(value):
    """Unsigned LEB128, as wasm writes its sizes."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def with_custom_section(module, size):
    """The module and a custom section of so many bytes, which no engine looks into."""
    name = b"\x07ballast"
    return module + b"\x00" + leb(len(name) + size) + name + bytes(size)
