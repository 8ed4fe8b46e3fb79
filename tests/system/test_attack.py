"""What an operator's slip or a stranger's bytes once brought down for good."""
import json
import os
import signal
import socket
import threading
import time

from harness import Case, raw, wait_for


def control(node, request, timeout=10):
    """One line to the control socket; the last line of the answer."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout)
        client.connect(os.path.join(node.data, "run", "control.sock"))
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as lines:
            for line in lines:
                answer = json.loads(line)
                if "progress" not in answer:
                    return answer
    raise AssertionError("the node closed the connection before it answered")


class Operator(Case):
    def test_odd_swaps_are_refused_at_once_and_the_node_serves_on(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        fifo, huge = os.path.join(self.dir, "fifo"), os.path.join(self.dir, "huge")
        os.mkfifo(fifo, 0o755)
        with open(huge, "wb") as file:
            file.truncate(20 << 30)   # sparse
        os.chmod(huge, 0o755)
        cases = [
            ({"binary": fifo}, "no plain file"),
            ({"binary": "/dev/zero"}, "no plain file"),
            ({"binary": self.dir}, "no plain file"),
            ({"binary": "/etc/passwd"}, "not executable"),
            ({"binary": huge}, "larger than 256 MiB"),
            ({"policy": "p" * 65}, "at most 64 bytes"),
            ({"settings": [1]}, "must be an object"),
            ({"settings": {"a": {"b": 1}}}, "must be text, a number, true or false"),
            ({"settings": {"": "b"}}, "a key of 1 to 64 bytes"),
            ({"settings": {"a": "v" * 1025}}, "a value of at most 1024"),
            ({"settings": {f"key{i}": 1 for i in range(65)}}, "at most 64 settings"),
            ({"settings": {f"key{i}": "v" * 1000 for i in range(9)}}, "at most 64 settings of together 8 KiB"),
            ({"plugin": "gateway", "policy": "any"}, "has no policies"),
            ({"plugin": "storage", "settings": {"path": "/elsewhere"}}, "cannot be changed by a swap"),
        ]
        for request, says in cases:
            with self.subTest(**{key: str(value)[:60] for key, value in request.items()}):
                begun = time.monotonic()
                answer = control(node, {"op": "swap", "plugin": "placement", **request})
                self.assertFalse(answer["ok"], answer)
                self.assertIn(says, answer["error"]["message"])
                self.assertLess(time.monotonic() - begun, 5)
                self.assertEqual(node.post("/actor/counter/a", timeout=5)[0], 200)
        self.common_checks(node, pid, fds)


class Stores(Case):
    def test_another_store_in_its_place_takes_no_write(self):
        """The store's file goes away under a live node (a mount that fell off, a careless hand), then storage dies."""
        node = self.node({"limits": {"request_timeout": "500ms"}})
        pid, fds = node.pid, node.fds()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        store = os.path.join(node.data, "store")
        data, away = os.path.join(store, "data.mdb"), os.path.join(self.dir, "away")
        os.rename(data, away)
        os.kill(node.plugin_pid("storage"), signal.SIGKILL)
        self.assertEqual(node.post("/actor/counter/a")[0], 504, "an answer was given that the node's store does not hold")
        row = wait_for("it is noticed", lambda: (lambda r: "another one" in (r["last_exit"] or "") and r)(
            node.plugins()["storage"]))
        self.assertIn("no record 'store'", row["last_exit"])
        self.assertIn("no storage instance serves", node.status()["not_ready_because"])
        os.rename(away, data)
        wait_for("the node finds its own again", lambda: node.http("GET", "/actor/counter/a")[0] == 200, 10)
        self.assertEqual(node.post("/actor/counter/a")[::2], (200, b"3\n"), "what was sent meanwhile, once")
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[::2], (200, b"4\n"))
        node.stop(signal.SIGKILL)
        node.start()
        self.common_checks(node, fds_before=fds)
        self.assertNotEqual(node.pid, pid)


class Strangers(Case):
    def test_refused_bodies_leave_room_for_others(self):
        """Each of these ends a request whose body was on its way; each frees one place, neither none nor two."""
        node = self.node({"plugin.gateway": {"requests_open_max": 4, "body_timeout": "200ms"}})
        pid, fds = node.pid, node.fds()
        head = b"POST /actor/counter/a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        for _ in range(6):
            self.assertIn(b" 400 ", raw(node, head + b"no size\r\n"))
            self.assertIn(b" 400 ", raw(node, head + b"F" * 17 + b"\r\n"))
            self.assertIn(b" 413 ", raw(node, head + b"20000\r\n" + b"b" * 0x20000))
            self.assertIn(b" 408 ", raw(node, head + b"5\r\nhel"))
            with socket.create_connection((node.host, node.port)) as gone:
                gone.sendall(head + b"5\r\nhel")
            self.assertEqual(node.post("/actor/counter/a")[0], 200)
        self.assertEqual(node.plugins()["gateway"]["restarts"], 0)
        self.common_checks(node, pid, fds)

    def test_more_actors_than_a_runtime_holds(self):
        """Names are free: what was touched and left must not keep others out."""
        node = self.node({"plugin.runtime": {"instances": 1, "resident_units_max": 10}})
        pid, fds = node.pid, node.fds()
        for turn in range(1, 4):
            for number in range(30):
                self.assertEqual(node.post(f"/actor/counter/a{number}")[::2], (200, b"%d\n" % turn))
        self.assertLessEqual(node.plugins()["runtime"]["instances"][0]["resident"], 10)
        self.assertEqual(node.status()["stats"]["acquires"], 30, "a hold outlives its memory")
        wrong = []

        def ask(client):
            for number in range(40):
                answer = node.post(f"/actor/counter/b{client}-{number % 6}")
                if answer[::2] != (200, b"%d\n" % (number // 6 + 1)):
                    wrong.append(answer)
        clients = [threading.Thread(target=ask, args=(client,)) for client in range(8)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(60)
        self.assertFalse(wrong[:3])
        self.common_checks(node, pid, fds)
