"""Every bound a client can meet: sizes, states, deadlines, queues. Each is named, nothing is half done, neighbours go on."""
import hashlib
import http.client
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from harness import Case, wait_for

BODY = 48 * 1024          # plugin.gateway.body_bytes_max
CPU = 0.1                 # class.<name>.cpu_limit
# Beyond its limit an event is seen at the next tick of the CPU clock (4 ms); a busy machine of two cores gives the
# process a part of the wall time it uses, which is what these tests can measure.
SLACK = 5


def rss(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Sizes(Case):
    def setUp(self):
        super().setUp()
        self.n = self.node(classes=("counter", "misfit"))

    def test_bodies_up_to_the_limit_come_back_whole(self):
        for size in (0, 1, 4095, 16 * 1024, BODY - 1, BODY):
            body = os.urandom(size)
            status, _, answer = self.n.post("/actor/misfit/e/echo", body=body)
            self.assertEqual(status, 200, answer[:200])
            self.assertEqual(hashlib.sha256(answer).digest(), hashlib.sha256(body).digest(), size)
        status, _, answer = self.n.post("/actor/misfit/e/echo", body=os.urandom(BODY + 1))
        self.assertEqual(status, 413, answer)
        self.assertIn(b"body_bytes_max = 49152", answer)
        self.common_checks(self.n)

    def declared(self, size, send, chunked=False):
        """The answer to a body of `size` bytes of which `send` are offered, and how many the node took."""
        with socket.create_connection((self.n.host, self.n.port), timeout=30) as connection:
            framing = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
            connection.sendall(f"POST /actor/misfit/e/echo HTTP/1.1\r\nhost: x\r\n{framing}\r\n\r\n".encode())
            taken = 0
            piece = os.urandom(65536)
            try:
                while taken < send:
                    part = piece[:min(len(piece), send - taken)]
                    connection.sendall(b"%x\r\n%s\r\n" % (len(part), part) if chunked else part)
                    taken += len(part)
            except (BrokenPipeError, ConnectionResetError):
                pass   # it was told enough; the answer lies in our buffer or was lost with the reset
            answer = b""
            try:
                while piece := connection.recv(65536):
                    answer += piece
            except ConnectionResetError:
                pass
        return answer, taken

    def test_a_large_upload_hears_413(self):
        gateway = self.n.plugin_pid("gateway")
        before = rss(gateway)
        for chunked in (False, True):
            for size in (BODY + 1, 64 << 20):
                answer, _ = self.declared(size, size, chunked)
                self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), (size, chunked, answer[:600]))
                self.assertIn(b"body_bytes_max", answer)
        self.assertLess(rss(gateway) - before, 8 << 20, "memory of the gateway is bounded")
        self.assertEqual(self.n.plugin_pid("gateway"), gateway)
        self.common_checks(self.n)

    def test_a_declared_length_is_refused_before_its_body(self):
        for size in (BODY + 1, 5 << 30, (1 << 63) - 1):
            answer, _ = self.declared(size, 0)
            self.assertTrue(answer.startswith(b"HTTP/1.1 413 "), (size, answer[:100]))
        for size in (1 << 64, 10 ** 30):
            answer, _ = self.declared(size, 0)
            self.assertRegex(answer, rb"^HTTP/1.1 4(00|13) ", str(size))
        self.common_checks(self.n)

    def test_a_reply_of_48_kib_arrives_whole(self):
        for size in (0, 1, BODY - 1, BODY):
            status, _, answer = self.n.http("GET", f"/actor/misfit/e/body?{size}")
            self.assertEqual((status, answer), (200, b"b" * size))
        status, _, answer = self.n.http("GET", f"/actor/misfit/e/body?{BODY + 1}")
        self.assertEqual(status, 507, "it is the actor's limit and not the client's")
        self.assertIn(b"reply_bytes: 49152 allowed, 49153 asked for", answer)
        self.common_checks(self.n)

    def test_what_is_not_there(self):
        for path, status in (("/actor/nothing/x", 404), ("/actor/counter", 404), ("/", 404), ("/actor/counter/" + "n" * 401, 400),
                             ("/actor/counter/x?" + "q" * 9000, 414)):
            self.assertEqual(self.n.http("GET", path)[0], status, path[:40])
        status, _, body = self.n.http("GET", "/actor/counter/x", headers={f"h{i}": "v" for i in range(200)})
        self.assertEqual(status, 431, body)
        status, _, body = self.n.http("GET", "/actor/counter/x", headers={"h": "v" * 20000})
        self.assertEqual(status, 431, body)
        self.common_checks(self.n)


class States(Case):
    def test_a_state_that_fills_its_limit_is_kept_and_one_byte_more_is_refused_by_name(self):
        node = self.node({"limits": {"checkpoint_entries": 3}}, ("counter", "misfit"))
        most = BODY - 64 - 32 - 1   # the state's own head, what a pair costs, the key "v"
        for round_ in range(10):    # bases are written among them
            self.assertEqual(node.post(f"/actor/misfit/full/value?{most - round_}")[::2], (200, b"0\n"))
        self.assertEqual(node.post(f"/actor/misfit/full/value?{most}")[::2], (200, b"0\n"))
        for size in (most + 1, BODY):
            status, _, body = node.post(f"/actor/misfit/full/both?{size}")
            self.assertEqual(status, 507, body)
            self.assertIn(b"limit state_max: 49152 allowed", body)
        status, _, body = node.post("/actor/misfit/full/count")
        self.assertIn(status, (500, 507, 200), body)
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.post(f"/actor/misfit/full/value?{most}")[::2], (200, b"0\n"), "a full state is loaded again")
        self.assertGreater(node.cli("actors", "--class", "misfit")["actors"][0]["seq"], 10)
        # A name as long as names may be, beside it: its log's keys and entries fit as well.
        long_name = "n" * (400 - len("actor/default/misfit/"))
        for _ in range(4):
            self.assertEqual(node.post(f"/actor/misfit/{long_name}/value?{most}")[::2], (200, b"0\n"))
        self.assertGreater(node.status()["stats"]["bases"], 0)
        self.assertEqual(node.status()["stats"]["undone"], 0)
        self.common_checks(node)

    def test_many_full_writes_at_once_are_all_kept(self):
        """What merges into one entry is bounded too: 40 writers, 30 KiB each, one actor."""
        node = self.node(classes=("counter", "misfit"))
        with ThreadPoolExecutor(40) as pool:
            answers = list(pool.map(lambda i: node.post(f"/actor/misfit/one/value?{30000 + i}")[::2], range(200)))
        self.assertEqual(set(answers), {(200, b"0\n")})
        self.assertEqual(node.status()["stats"]["undone"], 0)
        self.common_checks(node)

    def test_a_class_state_max_is_named(self):
        node = self.node({"class.misfit": {"state_max": "2KiB"}}, ("counter", "misfit"))
        self.assertEqual(node.post("/actor/misfit/s/both?1000")[0], 200)
        status, _, body = node.post("/actor/misfit/s/both?3000")
        self.assertEqual(status, 507, body)
        self.assertIn(b"limit state_max: 2048 allowed", body)
        self.common_checks(node)


class Misfits(Case):
    """A guest that traps, recurses, grows, aborts or never ends costs one event and nothing else."""

    # Path, status, what the reason names.
    ENDS = [("trap", 500, b"unreachable"), ("divide", 500, b"divide by zero"), ("wild", 500, b"out of bounds"),
            ("indirect", 500, b"call_indirect"), ("recurse", 500, b"trap: "), ("abort", 500, b"the misfit gives up"),
            ("fail", 500, b"-42"), ("silent", 500, b"no reply"), ("headers?20000", 507, b"reply_headers_bytes: 12288"),
            ("write-trap", 500, b"unreachable"), ("write-fail", 500, b"-43")]
    ENDLESS = ("loop", "spin", "fill", "sleepy", "write-loop")

    def test_each_ends_alone_and_leaves_no_write(self):
        node = self.node(classes=("counter", "misfit"))
        pid, fds = node.pid, node.fds()
        runtimes = [node.plugin_pid("runtime", i) for i in range(2)]
        self.assertEqual(node.post("/actor/misfit/m/count")[2], b"1\n")
        count = 1
        for path, wanted, names in self.ENDS:
            status, _, body = node.post(f"/actor/misfit/m/{path}")
            self.assertEqual(status, wanted, (path, body))
            self.assertIn(names, body, path)
            count += 1
            self.assertEqual(node.post("/actor/misfit/m/count")[::2], (200, b"%d\n" % count), f"after {path}")
        for path in self.ENDLESS:
            status, _, body = node.post(f"/actor/misfit/m/{path}")
            self.assertEqual(status, 500, (path, body))
            self.assertIn(b"cpu_limit: the event used more than 100 ms", body, path)
            count += 1
            self.assertEqual(node.post("/actor/misfit/m/count")[::2], (200, b"%d\n" % count), f"after {path}")
        pages = int(node.post("/actor/misfit/m/grow")[2])
        self.assertEqual(pages, 256, "memory_max is 16 MiB")
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.post("/actor/misfit/m/count")[2], b"%d\n" % (count + 1))
        del runtimes
        self.common_checks(node, node.pid, fds)
        self.assertNotEqual(pid, node.pid)

    def test_the_runtimes_live_on_and_give_memory_back(self):
        node = self.node(classes=("counter", "misfit"))
        runtimes = [node.plugin_pid("runtime", i) for i in range(2)]
        node.post("/actor/misfit/m0/ok")
        before = sum(map(rss, runtimes))
        for number in range(60):
            node.post(f"/actor/misfit/m{number}/grow")
            node.post(f"/actor/misfit/m{number}/{('trap', 'recurse', 'wild', 'abort')[number % 4]}")
        self.assertEqual([node.plugin_pid("runtime", i) for i in range(2)], runtimes, "no runtime died of a guest")
        wait_for("their memory is near what it was", lambda: sum(map(rss, runtimes)) < before + (20 << 20), 10)
        self.common_checks(node)

    def test_a_loop_ends_in_time_and_the_other_instance_does_not_notice(self):
        node = self.node(classes=("counter", "misfit"))
        # Where the misfit lives, and a counter on the other instance.
        node.post("/actor/misfit/looping/ok")
        for number in range(16):
            node.post(f"/actor/counter/c{number}")
        places = {row["unit"]: row["instance"] for row in node.cli("actors")["actors"]}
        home = places["actor/default/misfit/looping"]
        others = [unit.rsplit("/", 1)[1] for unit, where in places.items() if "/counter/" in unit and where != home]
        self.assertTrue(others, "16 actors on two instances")
        stop = threading.Event()
        waits = []

        def ask():
            connection = http.client.HTTPConnection(node.host, node.port, timeout=30)
            while not stop.is_set():
                begun = time.monotonic()
                connection.request("GET", f"/actor/counter/{others[0]}")
                answer = connection.getresponse()
                answer.read()
                waits.append((time.monotonic() - begun, answer.status))
                stop.wait(0.001)
            connection.close()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            for _ in range(10):
                begun = time.monotonic()
                status, _, body = node.post("/actor/misfit/looping/loop")
                took = time.monotonic() - begun
                self.assertEqual(status, 500)
                self.assertIn(b"cpu_limit", body)
                self.assertGreaterEqual(took, CPU * 0.9)
                self.assertLess(took, CPU * SLACK + 1)
        finally:
            stop.set()
            asking.join()
        self.assertEqual({status for _, status in waits}, {200})
        took = sorted(wait for wait, _ in waits)
        self.assertGreater(len(took), 100)
        self.assertLess(took[len(took) // 2], CPU / 2, "the other instance waits for the loop")
        self.common_checks(node)

    def test_wall_limit(self):
        """An event whose process is stopped ends by the clock when it goes on."""
        node = self.node({"class.misfit": {"cpu_limit": "400ms", "wall_limit": "500ms"},
                          "plugin.runtime": {"instances": 1}, "limits": {"stall_grace": "60s"}}, ("counter", "misfit"))
        node.post("/actor/misfit/m/ok")
        runtime = node.plugin_pid("runtime")
        answer = []
        used = cpu_ticks(runtime)
        asking = threading.Thread(target=lambda: answer.append(node.post("/actor/misfit/m/loop")))
        asking.start()
        wait_for("it runs", lambda: cpu_ticks(runtime) > used + 5, step=0.002)
        os.kill(runtime, signal.SIGSTOP)
        stopped = time.monotonic()
        wait_for("the wall limit has passed", lambda: time.monotonic() > stopped + 0.8)
        os.kill(runtime, signal.SIGCONT)
        asking.join(30)
        self.assertEqual(answer[0][0], 500, answer)
        self.assertIn(b"wall_limit: the event took more than 500 ms", answer[0][2])
        self.assertEqual(node.plugin_pid("runtime"), runtime)
        self.common_checks(node)


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return int(file.read().rsplit(")", 1)[1].split()[11])


class Queues(Case):
    def slow(self, limits, parallel, actors=1, path="burn?300"):
        """Many requests at once to slow actors; their answers by status."""
        node = self.node({"limits": limits, "class.misfit": {"cpu_limit": "20s", "wall_limit": "30s"}}, ("counter", "misfit"))
        pid = node.pid
        for number in range(actors):
            self.assertEqual(node.post(f"/actor/misfit/q{number}/ok")[0], 200)
        with ThreadPoolExecutor(parallel) as pool:
            answers = list(pool.map(lambda i: node.post(f"/actor/misfit/q{i % actors}/{path}"), range(parallel)))
        by_status = {}
        for answer in answers:
            by_status.setdefault(answer[0], []).append(answer)
        for status, headers, body in by_status.get(503, []):
            self.assertGreaterEqual(int(headers["retry-after"]), 1, (status, body))
        self.assertEqual(set(by_status), {200, 503}, {s: a[0][2] for s, a in by_status.items()})
        # What was refused is taken again as soon as there is room.
        self.assertEqual(node.post("/actor/misfit/q0/ok")[0], 200)
        self.assertEqual(node.status()["open_events"], 0)
        self.common_checks(node, pid)
        return by_status

    def test_a_full_mailbox_answers_503_with_retry_after(self):
        answers = self.slow({"mailbox_events": 4}, 30)
        self.assertLessEqual(len(answers[200]), 30 - 4)
        self.assertGreaterEqual(len(answers[200]), 5, "one runs and four wait")
        self.assertIn(b"mailbox is full", answers[503][0][2])

    def test_a_slow_actor_holds_up_only_its_own_clients(self):
        node = self.node({"plugin.placement": {"policy": "least-loaded"}, "class.misfit": {"cpu_limit": "20s", "wall_limit": "30s"}},
                         ("counter", "misfit"))
        node.post("/actor/misfit/q/ok")
        node.post("/actor/counter/a")   # on the other instance
        with ThreadPoolExecutor(100) as pool:
            slow = [pool.submit(node.post, "/actor/misfit/q/burn?40") for _ in range(100)]
            wait_for("they are accepted", lambda: node.status()["open_events"] >= 80, step=0.005)
            self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
            waiting = sum(not one.done() for one in slow)
        self.assertGreater(waiting, 50, "it waited for the slow one's clients")
        self.assertEqual({one.result()[0] for one in slow}, {200})
        self.common_checks(node)

    def test_mailbox_bytes(self):
        node = self.node({"limits": {"mailbox_bytes": "64KiB"}, "class.misfit": {"cpu_limit": "20s", "wall_limit": "30s"}},
                         ("counter", "misfit"))
        node.post("/actor/misfit/q/ok")
        with ThreadPoolExecutor(12) as pool:
            first = pool.submit(node.post, "/actor/misfit/q/burn?1000")
            wait_for("it runs", lambda: node.status()["open_events"] == 1, step=0.005)
            answers = list(pool.map(lambda _: node.post("/actor/misfit/q/echo", body=bytes(30000)), range(10)))
        self.assertEqual(first.result()[0], 200)
        self.assertEqual([a[0] for a in answers].count(200), 2, "two of 30 kB wait in 64 KiB")
        self.assertTrue(all("retry-after" in a[1] for a in answers if a[0] == 503))
        self.common_checks(node)

    def test_the_bound_of_accepted_events(self):
        answers = self.slow({"accepted_events": 3}, 24, actors=8)
        self.assertGreaterEqual(len(answers[200]), 3)
        self.assertIn(b"limits.accepted_events", answers[503][0][2])

    def test_storage_stands_still(self):
        """504 at the request's deadline, which says that the outcome is not known; then the node goes on."""
        node = self.node({"limits": {"request_timeout": "500ms"}})
        pid, fds = node.pid, node.fds()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        storage = node.plugin_pid("storage")
        os.kill(storage, signal.SIGSTOP)
        try:
            for number, name in enumerate(("a", "a", "fresh")):
                begun = time.monotonic()
                status, _, body = node.post(f"/actor/counter/{name}")
                took = time.monotonic() - begun
                self.assertEqual(status, 504, body)
                self.assertGreaterEqual(took, 0.49, number)
                self.assertLess(took, 2.5, number)
        finally:
            os.kill(storage, signal.SIGCONT)
        # Both were accepted before their deadlines and may take effect; once each at most, and no more after that.
        wait_for("the node answers", lambda: node.http("GET", "/actor/counter/a")[0] == 200, 10)
        value = int(wait_for("a value", lambda: node.http("GET", "/actor/counter/a")[2]))
        self.assertIn(value, (1, 2, 3))
        status, _, body = node.post("/actor/counter/a")
        self.assertEqual((status, int(body)), (200, value + 1))
        self.assertIn(int(node.post("/actor/counter/fresh")[2]), (1, 2))
        self.assertEqual(node.status()["stats"]["fenced"], 0)
        self.assertEqual(node.plugin_pid("storage"), storage, "a pause is no death")
        self.common_checks(node, pid, fds)
