"""Rows about actors: calls, messages, WebSockets, how many fit, and healthy ones beside hostile guests."""
import base64
import concurrent.futures
import http.client
import os
import socket
import struct
import tempfile
import time

from measure import harness, median, start_node, wrk
import guests  # of tests/system

UNRULY = {"class.unruly": {"module": guests.UNRULY}}
EARS = 100


class Plain:
    """A blocking socket and as little of HTTP and WebSockets as a round trip needs: the same cost on the client for both."""

    def __init__(self, node):
        self.socket = socket.create_connection((node.host, node.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def http_round(self, request):
        self.socket.sendall(request)
        data = self.socket.recv(65536)
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(65536)
        assert data.startswith(b"HTTP/1.1 200"), data[:200]

    def upgrade(self, path):
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nhost: h\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
                            f"sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n\r\n".encode())
        data = b""
        while b"\r\n\r\n" not in data:
            data += self.socket.recv(65536)
        assert data.startswith(b"HTTP/1.1 101"), data[:200]

    def echo_round(self, frame, answer):
        self.socket.sendall(frame)
        data = self.socket.recv(65536)
        while len(data) < len(answer):
            data += self.socket.recv(65536)
        assert data == answer, data[:200]

    def hear(self, size):
        data = self.socket.recv(65536)
        while len(data) < size:
            data += self.socket.recv(65536)
        assert len(data) == size, data[:200]


def p50_us(once, seconds):
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic_ns()
        once()
        times.append((time.monotonic_ns() - begun) / 1000)
    return median(times)


def lua(directory, name, method, path):
    """wrk's requests go round 64 actors; `path` holds their number as ".. n ..'"."""
    script = os.path.join(directory, name)
    with open(script, "w", encoding="ascii") as file:
        file.write(f'local n = 0\nrequest = function()\n  n = (n + 1) % 64\n  return wrk.format("{method}", "{path}")\nend\n')
    return script


def bench_actors(table, quick):
    seconds, rounds = (1, 3) if quick else (2, 11)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "actors", UNRULY)
        try:
            for i in range(64):
                node.post(f"/actor/unruly/a{i}/served")
                node.post(f"/actor/counter/a{i}")
            plain, calling, echo = Plain(node), Plain(node), Plain(node)
            echo.upgrade("/actor/unruly/socket")
            ears = [Plain(node) for _ in range(EARS)]
            for ear in ears:
                ear.upgrade("/actor/unruly/loud")
            text = b"0123456789abcdef"
            frame = struct.pack("!BB4s", 0x81, 0x80 | len(text), bytes(4)) + text
            answer = struct.pack("!BB", 0x81, len(text)) + text
            get = "GET /actor/unruly/a0/{} HTTP/1.1\r\nhost: h\r\n\r\n"
            shout = get.replace("a0", "loud").format("shout?16").encode()

            def shout_round():
                calling.http_round(shout)
                for ear in ears:
                    ear.hear(2 + 16)
            served, carry = get.format("served").encode(), get.format("carry?16").encode()
            post = lua(directory, "post.lua", "POST", '/actor/counter/a" .. n .. "')
            mail = lua(directory, "mail.lua", "POST", '/actor/unruly/a" .. n .. "/mail?100')
            calls, echoes, shouts, rates, applied = [], [], [], [], []
            for _ in range(rounds):
                without = p50_us(lambda: plain.http_round(served), seconds)
                calls.append(p50_us(lambda: calling.http_round(carry), seconds) / without)
                echoes.append(p50_us(lambda: echo.echo_round(frame, answer), seconds) / without)
                shouts.append(p50_us(shout_round, seconds) / without)
                writes = wrk(f"http://{node.address}/", seconds, 64, post)
                before, begun = node.status()["stats"], time.monotonic()
                sends = wrk(f"http://{node.address}/", seconds, 64, mail)
                assert writes["bad"] == 0 and sends["bad"] == 0, (writes, sends)
                harness.wait_for("every message was applied", lambda b=before: arrived(node, b), 120, 0.005)
                after, took = node.status()["stats"], time.monotonic() - begun
                rates.append(sends["rate"] / writes["rate"])
                applied.append((after["messages_applied"] - before["messages_applied"]) / took)
            table.add("a call to another actor, no write, against the event without it, depth 1, p50", f"{median(calls):.2f}×", "–", None)
            table.add("WebSocket echo against an HTTP round trip, no write, depth 1, p50", f"{median(echoes):.2f}×", "–", None)
            table.add(f"a message to {EARS} WebSockets until the last has it, against an HTTP round trip, no write, p50",
                      f"{median(shouts):.1f}×", "–", None)
            table.add("events that send a message, 64 clients on 64 actors, against durable writes", f"{median(rates):.2f}×", "–", None)
            table.add("the same: messages applied by one receiver", f"{median(applied):.0f}/s", "–", None)
        finally:
            node.stop()


def arrived(node, before):
    stats = node.status()["stats"]
    return stats["messages_applied"] - before["messages_applied"] >= stats["messages_sent"] - before["messages_sent"]


def memory_kib(pid):
    """Resident pages and page tables."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        resident = next(int(line.split()[1]) for line in file if line.startswith("Rss:"))
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        tables = next(int(line.split()[1]) for line in file if line.startswith("VmPTE:"))
    return resident + tables


def touch(node, first, last):
    """One POST to each counter of a range, over one connection."""
    connection = http.client.HTTPConnection(node.host, node.port, timeout=60)
    for number in range(first, last):
        connection.request("POST", f"/actor/counter/dense-{number}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
    connection.close()


def bench_density(table, quick):
    """Each actor has served once and stays in memory."""
    clients = 16
    for actors in (1000,) if quick else (10_000, 20_000):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
            os.chmod(directory, 0o755)
            node = start_node(directory, "density", {"plugin.runtime": {"instances": 1, "resident_units_max": 20_000},
                                                     "plugin.storage": {"map_bytes": "4GiB"}})
            try:
                runtime = node.plugin_pid("runtime")
                touch(node, 0, 1)
                before = memory_kib(runtime)
                share = actors // clients
                with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                    list(pool.map(lambda i, n=node, s=share: touch(n, 1 + i * s, 1 + (i + 1) * s), range(clients)))
                resident = node.plugins()["runtime"]["instances"][0]["resident"]
                assert resident >= share * clients, f"only {resident} actors stayed"
                assert node.plugin_pid("runtime") == runtime
                each = (memory_kib(runtime) - before) / (share * clients)
                table.add(f"memory of a resident actor on a node, page tables included ({actors} actors)", f"{each:.1f} KiB", "≤ 25 KiB",
                          each <= 25)
            finally:
                node.stop()


def bench_guests(table, quick):
    """Healthy actors alone, then beside guests that loop, trap and take memory: those in the hostile one's process, which
    runs one event at a time, and those in the other."""
    rounds = 2 if quick else 11
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "guests", UNRULY)
        try:
            node.post("/actor/unruly/u/served")
            healthy = guests.Healthy(node).start()
            harness.wait_for("each healthy actor was asked", lambda: healthy.count() > 500, 60)
            homes = {row["unit"].rsplit("/", 1)[1]: row["instance"] for row in node.cli("actors")["actors"]}
            where = {"the same process": {name for name in healthy.names if homes[name] == homes["u"]}}
            where["the other process"] = set(healthy.names) - where["the same process"]
            assert all(where.values()), "20 actors on two instances"
            ratios = {place: [] for place in where}
            for _ in range(rounds):
                calm = time.monotonic()
                harness.wait_for("a calm second", lambda since=calm: time.monotonic() > since + 1)
                hostile = time.monotonic()
                for path, names in guests.ENDS:
                    body = node.post(f"/actor/unruly/u/{path}")[2]
                    assert names in body, body
                ended = time.monotonic()
                for place, actors in where.items():
                    ratios[place].append(healthy.p99_ms(hostile, ended, actors) / healthy.p99_ms(calm, hostile, actors))
            healthy.stop()
            assert not healthy.wrong, healthy.wrong[:3]
            for place, values in ratios.items():
                table.add(f"20 healthy actors beside hostile guests, p99 against alone, in {place}",
                          f"{median(values):.1f}×, {healthy.count()} answered, 0 failed", "< 2×", median(values) < 2)
        finally:
            node.stop()
