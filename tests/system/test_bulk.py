"""Bodies of 64 MiB, both ways: every byte, with holdfastd's memory as it was, whoever leaves or dies in the middle."""
import contextlib
import hashlib
import http.client
import os
import signal
import socket
import threading

from harness import Case, wait_for
from test_faults import RUNTIME

KIB, MIB = 1024, 1024 * 1024
INLINE = 48 * KIB
LIMIT = 64 * MIB
# What the vault answers to a download.
PATTERN = bytes(range(251))


def pattern(size):
    return (PATTERN * (size // 251 + 1))[:size]


def body_of(size, seed=1):
    """Bytes that differ from page to page."""
    block = hashlib.shake_256(str(seed).encode()).digest(min(size, 1 * MIB) or 1)
    out = b"".join(bytes([i % 256]) + block[1:] for i in range(size // len(block) + 1))
    return out[:size]


def fnv_known(data):
    """FNV-1a as the vault counts it, for small bodies."""
    digest = 0xCBF29CE484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{len(data)} {digest:016x}\n".encode()


def sha(data):
    return hashlib.sha256(data).hexdigest()


def rss(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * KIB
    raise AssertionError("no VmRSS")


class Bulk(Case):
    TOML = {
        "plugin.gateway": {"body_bytes_max": "64MiB", "body_timeout": "2m"},
        "class.vault": {"memory_max": "256MiB", "body_max": "64MiB", "cpu_limit": "20s", "wall_limit": "30s"},
    }

    def vault(self, toml=None, **kw):
        merged = {table: dict(values) for table, values in self.TOML.items()}
        for table, values in (toml or {}).items():
            merged.setdefault(table, {}).update(values)
        return self.node(merged, classes=("vault", "counter"), **kw)

    def empty(self, node):
        """Nothing of any body is left: the core's count, and no memory file open in the daemon or the gateway."""
        wait_for("no large body is open", lambda: node.status()["bulk"] == {"bodies": 0, "bytes": 0})

        def files(pid):
            found = []
            for fd in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{fd}")
                    if "holdfast-upload" in target or "holdfast-reply" in target:
                        found.append(target)
            return found
        for pid in (node.pid, node.plugin_pid("gateway"), node.plugin_pid("runtime")):
            wait_for("no memory file of a body is open", lambda pid=pid: not files(pid))

    def test_64_MiB_up_down_and_back(self):
        node = self.vault()
        pid, fds = node.pid, node.fds()
        self.assertEqual(node.post("/actor/vault/a", body=body_of(100 * KIB))[0], 200)
        before = rss(pid)
        peak = [before]
        stop = threading.Event()

        def watch():
            while not stop.wait(0.02):
                peak.append(rss(pid))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            body = body_of(LIMIT)
            status, _, text = node.post("/actor/vault/a", body=body)
            self.assertEqual(status, 200, text)
            self.assertEqual(int(text.split()[0]), LIMIT)
            # The vault's own count of the same bytes, by another way: kept in its state.
            self.assertEqual(node.http("GET", "/actor/vault/a")[2], text)
            status, headers, back = node.post("/actor/vault/a/echo", body=body)
            self.assertEqual((status, sha(back)), (200, sha(body)))
            self.assertEqual(headers["content-type"], "application/octet-stream")
            status, _, down = node.http("GET", f"/actor/vault/b/download?bytes={LIMIT}")
            self.assertEqual((status, sha(down)), (200, sha(pattern(LIMIT))))
        finally:
            stop.set()
            watcher.join()
        self.assertLess(max(peak) - before, 16 * MIB, "holdfastd kept bytes of a body")
        self.assertLess(rss(node.plugin_pid("gateway")), 64 * MIB)
        self.empty(node)
        self.common_checks(node, pid, fds)

    def test_sizes_around_the_limits(self):
        node = self.vault()
        for size in (0, 1, INLINE - 1, INLINE, INLINE + 1, INLINE + 4096, MIB + 7):
            with self.subTest(size=size):
                body = body_of(size, size)
                status, _, back = node.post("/actor/vault/s/echo", body=body)
                self.assertEqual((status, sha(back)), (200, sha(body)))
                status, _, down = node.http("GET", f"/actor/vault/s/download?bytes={size}")
                self.assertEqual((status, sha(down)), (200, sha(pattern(size))))
        small = body_of(INLINE + 1, 5)
        self.assertEqual(node.post("/actor/vault/s", body=small)[2], fnv_known(small))
        status, _, text = node.post("/actor/vault/s", body=b"x" * (LIMIT + 1))
        self.assertEqual(status, 413)
        self.assertIn(b"body_bytes_max = 67108864", text)
        # An answer above the class's limit names it; nothing of its event is left.
        status, _, text = node.http("GET", f"/actor/vault/s/download?bytes={LIMIT + 1}")
        self.assertEqual(status, 507)
        self.assertIn(b"body_max", text)
        # A head alone that promises too much is answered before anything is sent.
        with socket.create_connection((node.host, node.port), timeout=20) as connection:
            connection.sendall(b"POST /actor/vault/s HTTP/1.1\r\nHost: h\r\nContent-Length: 5368709120\r\n\r\n")
            self.assertTrue(connection.recv(4096).startswith(b"HTTP/1.1 413 "))
        self.assertEqual(node.http("GET", "/actor/vault/s")[2], fnv_known(small))
        self.empty(node)
        self.common_checks(node)

    def test_limits_of_class_and_node_are_told(self):
        node = self.vault({"limits": {"bulk_bytes": "3MiB"}, "class.vault": {"body_max": "4MiB", "memory_max": "6MiB"}})
        status, _, text = node.post("/actor/counter/c", body=body_of(INLINE + 1))
        self.assertEqual(status, 413)
        self.assertIn(b"body_max = 49152 bytes of class counter", text)
        status, _, text = node.post("/actor/vault/c", body=body_of(4 * MIB + 1))
        self.assertEqual(status, 413)
        self.assertIn(b"body_max = 4194304", text)
        status, _, text = node.post("/actor/vault/c", body=body_of(3 * MIB + 1))
        self.assertEqual(status, 413)
        self.assertIn(b"limits.bulk_bytes", text)
        # The answer to what fits does not fit beside it: the event did not happen.
        status, headers, text = node.post("/actor/vault/c/echo", body=body_of(2 * MIB))
        self.assertEqual(status, 503, text)
        self.assertIn(b"limits.bulk_bytes", text)
        self.assertIn("retry-after", headers)
        status, _, text = node.post("/actor/vault/c", body=body_of(MIB), headers={"Prefer": "respond-async"})
        self.assertEqual(status, 413)
        self.assertIn(b"49152", text)
        self.assertEqual(node.post("/actor/vault/c", body=body_of(2 * MIB))[0], 200)
        self.empty(node)
        self.common_checks(node)

    def test_an_actor_without_memory_for_it(self):
        node = self.vault({"class.vault": {"memory_max": "5MiB", "body_max": "5110KiB"}})
        status, _, text = node.post("/actor/vault/m", body=body_of(5100 * KIB))
        self.assertEqual(status, 507, text)
        self.assertIn(b"memory_max", text)
        self.assertEqual(node.post("/actor/vault/m", body=body_of(MIB))[0], 200)
        self.empty(node)

    def test_chunks(self):
        node = self.vault()
        body = body_of(5 * MIB + 1)
        pieces = [body[at:at + 70_001] for at in range(0, len(body), 70_001)]
        connection = http.client.HTTPConnection(node.host, node.port, timeout=40)
        connection.request("POST", "/actor/vault/k/echo", body=iter(pieces), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})
        answer = connection.getresponse()
        self.assertEqual((answer.status, sha(answer.read())), (200, sha(body)))
        # The same connection goes on.
        connection.request("POST", "/actor/vault/k/echo", body=b"small")
        self.assertEqual(connection.getresponse().read(), b"small")
        connection.close()
        self.empty(node)

    def test_clients_that_leave_in_the_middle(self):
        node = self.vault()
        pid, fds = node.pid, node.fds()
        for number in range(6):
            with socket.create_connection((node.host, node.port), timeout=20) as connection:
                connection.sendall(b"POST /actor/vault/l HTTP/1.1\r\nHost: h\r\nContent-Length: 30000000\r\n\r\n")
                connection.sendall(body_of(10 * MIB))
                if number % 2:   # a reset instead of an end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            with socket.create_connection((node.host, node.port), timeout=20) as connection:
                connection.sendall(f"GET /actor/vault/l/download?bytes={30 * MIB} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
                self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200 "))
        self.empty(node)
        self.assertEqual(node.http("GET", "/actor/vault/l")[2], fnv_known(b""), "half an upload is none")
        self.common_checks(node, pid, fds)

    def test_a_slow_reader_holds_up_nobody(self):
        node = self.vault()
        gateway = node.plugin_pid("gateway")
        self.assertEqual(node.http("GET", f"/actor/vault/f/download?bytes={MIB}")[0], 200)
        before = rss(gateway)
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(40)
        slow.connect((node.host, node.port))
        with slow:
            slow.sendall(f"GET /actor/vault/slow/download?bytes={48 * MIB} HTTP/1.1\r\nHost: h\r\n"
                         "Connection: close\r\n\r\n".encode())
            got = slow.recv(100_000)
            self.assertTrue(got.startswith(b"HTTP/1.1 200 "))
            self.assertEqual(node.status()["bulk"], {"bodies": 1, "bytes": 48 * MIB})
            for number in range(20):
                self.assertEqual(node.post(f"/actor/counter/c{number}")[0], 200)
            self.assertLess(rss(gateway) - before, 8 * MIB, "the gateway kept what its client did not read")
            pieces = [got]
            while True:
                piece = slow.recv(1 << 20)
                if not piece:
                    break
                pieces.append(piece)
        down = b"".join(pieces).split(b"\r\n\r\n", 1)[1]
        self.assertEqual(sha(down), sha(pattern(48 * MIB)))
        self.empty(node)

    def test_a_runtime_that_dies_gets_the_same_body_again(self):
        """Killed while it has an upload in its hands: the event runs again elsewhere and answers for the same bytes."""
        node = self.vault({"plugin.runtime": {"instances": 1}})
        body = body_of(LIMIT)
        status, _, expected = node.post("/actor/vault/first", body=body)
        self.assertEqual(status, 200)
        for number in range(3):
            answers = []
            client = threading.Thread(
                target=lambda: answers.append(node.post(f"/actor/vault/r{number}", body=body, timeout=80)))
            runtime = node.plugin_pid("runtime")
            # In memory already, so that all that can be open at the runtime is the upload.
            self.assertEqual(node.http("GET", f"/actor/vault/r{number}")[0], 200)
            client.start()
            wait_for("the upload is at the runtime", lambda: [link["open_requests"] for link in node.status()["links"]
                                                              if link["plugin"].startswith("runtime")] == [1])
            os.kill(runtime, signal.SIGKILL)
            client.join(90)
            self.assertEqual([(a[0], a[2]) for a in answers], [(200, expected)])
        self.assertGreaterEqual(node.status()["stats"]["redelivered"], 1)
        self.empty(node)
        self.common_checks(node)

    def test_a_gateway_that_dies_leaves_nothing(self):
        node = self.vault()
        with socket.create_connection((node.host, node.port), timeout=20) as connection:
            connection.sendall(f"GET /actor/vault/g/download?bytes={48 * MIB} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 200 "))
            self.assertEqual(node.status()["bulk"]["bodies"], 1)
            os.kill(node.plugin_pid("gateway"), signal.SIGKILL)
            wait_for("its answers are given up", lambda: node.status()["bulk"] == {"bodies": 0, "bytes": 0})
        self.common_checks(node)

    def test_a_runtime_whose_answer_is_no_sealed_file(self):
        """It is ended by the rule's name; nothing of its answer is seen, and the node goes on."""
        node = self.vault({"restart": {"intensity": "off"}, "plugin.runtime": {"binary": RUNTIME, "instances": 1}})
        pid, fds = node.pid, node.fds()
        for marker, rule in (("body-not-sealed", "a large body that is not sealed"),
                             ("body-too-short", "a large body of another size than declared"),
                             ("body-no-file", "a large body that is no memory file")):
            with self.subTest(marker):
                status, _, text = node.http("GET", f"/actor/vault/w/download?bytes={MIB}&{marker}", timeout=80)
                self.assertEqual(status, 500, text)
                self.assertIn(rule, node.plugins()["runtime"]["last_exit"])
                status, _, down = node.http("GET", f"/actor/vault/w/download?bytes={MIB}")
                self.assertEqual((status, sha(down)), (200, sha(pattern(MIB))))
        self.empty(node)
        self.common_checks(node, pid, fds)
