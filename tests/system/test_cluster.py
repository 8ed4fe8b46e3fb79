"""Several nodes on one bucket: one owner for each actor, reached through any node; what becomes of it when its node is killed,
stopped, suspended, or told another secret."""
import contextlib
import http.client
import os
import signal
import socket
import subprocess
import threading
import time

from harness import BIN, READY_S, ROOT, Case, Load, alive, stays_away, wait_for

ASYNC = {"Prefer": "respond-async"}
# Of a lease of 3 s: until it has run out, the others' grace, until one of them looks, and 2 s for the rest.
TAKEOVER_S = 3 + 0.6 + 0.45 + 2


def ask(node, method, path, **kw):
    """Status and body; 0 when the connection broke."""
    try:
        status, _, body = node.http(method, path, **kw)
        return status, body
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error).encode()


def number(node, path):
    """What a GET answers, as a number; None while the node cannot say."""
    with contextlib.suppress(ValueError):
        status, body = ask(node, "GET", path)
        return int(body) if status == 200 else None
    return None


def add(node, actor, ident, headers=None, **kw):
    return ask(node, "POST", f"/actor/ledger/{actor}/add", headers={**(headers or {}), "x-request-id": f"{ident:016d}"}, **kw)


def times(node, actor, ident):
    """How often the ledger applied that id; None while it cannot say."""
    return number(node, f"/actor/ledger/{actor}/id?{ident:016d}")


def until_200(node, path, seconds, patience=None):
    """POSTs until the node answers 200: the body, the seconds that took, and what came before. `patience`: of one request."""
    begun, before = time.monotonic(), []

    def served():
        status, body = ask(node, "POST", path, timeout=patience or seconds)
        if status == 200:
            return [body]
        before.append((status, body[:200]))
        return None
    body = wait_for(f"{path} is answered 200", served, seconds, 0.05)[0]
    return body, time.monotonic() - begun, before


class Cluster(Case):
    def nobody_wrong(self, *nodes):
        for node in nodes:
            self.assertIsNone(node.process.poll(), "holdfastd is alive")

    def owner_is(self, node, others, path="/actor/counter/alice"):
        """The first POST of an actor, which its asker then holds."""
        body, _, _ = until_200(node, path, READY_S)
        self.assertEqual(body, b"1\n")
        self.assertEqual([a["name"] for a in node.cli("actors")["actors"]], ["alice"])
        for other in others:
            self.assertEqual(other.cli("actors")["actors"], [])


class Serves(Cluster):
    def test_a_counter_counts_through_any_node(self):
        nodes = self.cluster()
        for expected in range(1, 61):
            body, _, before = until_200(nodes[expected % 3], "/actor/counter/alice", 10)
            self.assertFalse([b for b in before if b[0] != 503], "a 503 took no effect, all else may have")
            self.assertEqual(body, b"%d\n" % expected)
        rows = [node.cli("actors")["actors"] for node in nodes]
        self.assertEqual([len(row) for row in rows], [1, 1, 1])
        self.assertEqual([row[0]["state"] for row in rows], ["elsewhere", "resident", "elsewhere"])
        self.assertEqual([row[0]["node"] for row in rows], ["n2"] * 3)
        self.nobody_wrong(*nodes)

    def test_what_any_node_answered_is_applied_once(self):
        nodes = self.cluster(classes=("counter", "ledger"))
        loads = []
        for index, node in enumerate(nodes):
            load = Load(node, actors=8, threads=2)
            load.next_id = (index + 1) * 1_000_000
            loads.append(load.start())
        wait_for("all three are answered", lambda: all(load.count() > 200 for load in loads), 60)
        for load in loads:
            load.stop()
        for load in loads:
            load.verify(self, allow=(200, 503))
        self.nobody_wrong(*nodes)

    def test_large_bodies_go_to_the_owner_and_back(self):
        nodes = self.cluster(2, {"plugin.gateway": {"body_bytes_max": "1MiB"},
                                 "class.vault": {"body_max": "1MiB", "cpu_limit": "500ms"}}, classes=("counter", "vault"))
        body = os.urandom(600_000)
        for node in nodes:
            wait_for("the vault answers", lambda node=node: node.post("/actor/vault/v/echo", body=body)[2] == body, 20, 0.2)
        for node in nodes:
            wait_for("nothing of it stays", lambda node=node: node.status()["bulk"] == {"bodies": 0, "bytes": 0}, 10)

    def test_each_node_sees_the_others(self):
        nodes = self.cluster()

        def seen(node):
            return {row["id"]: row["view"] for row in node.cli("cluster", "status")["nodes"]}
        for node in nodes:
            wait_for("it sees all three alive", lambda node=node: seen(node) == {"n1": "alive", "n2": "alive", "n3": "alive"}, 10)
        status = nodes[0].status()
        self.assertEqual(status["lease"], "3s")
        self.assertGreater(status["lease_left_ms"], 0)
        self.assertLessEqual(status["lease_left_ms"], 3000)
        rows = {row["id"]: row for row in nodes[0].cli("cluster", "status")["nodes"]}
        self.assertEqual([row["address"] for row in rows.values()], [node.address for node in nodes])
        self.assertEqual(rows["n2"]["incarnation"], nodes[1].status()["incarnation"])
        nodes[2].process.kill()
        nodes[2].process.wait()
        wait_for("it is gone", lambda: seen(nodes[0])["n3"] == "gone", TAKEOVER_S)
        nodes[2].start()
        wait_for("it is back", lambda: seen(nodes[0])["n3"] == "alive", 10)
        self.assertEqual({row["id"]: row["incarnation"] for row in nodes[0].cli("cluster", "status")["nodes"]}["n3"],
                         rows["n3"]["incarnation"] + 1)


class Ends(Cluster):
    def test_the_owner_is_killed_and_another_serves_within_the_lease(self):
        nodes = self.cluster()
        self.owner_is(nodes[0], nodes[1:])
        begun = time.monotonic()
        nodes[0].process.kill()
        nodes[0].process.wait()
        body, _, before = until_200(nodes[1], "/actor/counter/alice", TAKEOVER_S + 5)
        took = time.monotonic() - begun
        self.assertLessEqual(took, TAKEOVER_S, before)
        # Of what was asked in between, only what is not known may have counted.
        unknown = sum(1 for status, _ in before if status != 503)
        self.assertIn(int(body), range(2, 3 + unknown), before)
        # The one that was killed comes back and asks its successor.
        nodes[0].start()
        again, _, _ = until_200(nodes[0], "/actor/counter/alice", 10)
        self.assertEqual(int(again), int(body) + 1)
        self.nobody_wrong(*nodes)

    def test_under_load_nothing_is_lost_when_a_node_is_killed(self):
        nodes = self.cluster(classes=("counter", "ledger"))
        loads = []
        for index, node in enumerate(nodes[1:]):
            load = Load(node, actors=8, threads=2)
            load.next_id = (index + 1) * 1_000_000
            loads.append(load.start())
        first = Load(nodes[0], actors=8, threads=2).start()
        try:
            wait_for("all are answered", lambda: all(load.count() > 100 for load in (*loads, first)), 60)
            nodes[0].process.kill()
            nodes[0].process.wait()
            first.stop()
            seen = [load.count() for load in loads]
            wait_for("the others go on", lambda: all(load.count() > was + 200 for load, was in zip(loads, seen)), 40)
        finally:
            for load in (*loads, first):
                load.stop()
        for load in loads:
            load.verify(self)
        first.node = nodes[1]   # the one that can still say
        first.verify(self, allow=(0, 200, 503, 504))
        self.nobody_wrong(*nodes[1:])

    def test_a_clean_stop_hands_over_at_once(self):
        nodes = self.cluster(2, lease="30s")
        self.owner_is(nodes[0], nodes[1:])
        self.assertEqual(nodes[0].stop(), 0)
        # Within a look at the other's record (4.5 s), far below the lease.
        body, took, before = until_200(nodes[1], "/actor/counter/alice", 20)
        self.assertEqual(body, b"2\n", before)
        self.assertLess(took, 7, before)

    def test_a_suspended_node_wakes_up_without_its_lease(self):
        """SIGSTOP of all its processes; what it had taken in and what it was asked meanwhile does not count."""
        nodes = self.cluster(2, classes=("counter", "ledger"))
        self.owner_is(nodes[0], nodes[1:])
        self.assertEqual(add(nodes[0], "late", 1)[0], 200)
        incarnation = nodes[0].status()["incarnation"]
        load = Load(nodes[0], actors=4, threads=4).start()
        wait_for("it is at work", lambda: load.count() > 50)
        stopped = nodes[0].halt()
        late = []
        # It waits in the socket of the node that sleeps.
        asker = threading.Thread(target=lambda: late.append(add(nodes[0], "late", 2, timeout=60)))
        asker.start()
        try:
            # What was passed on to it hangs there; whoever asks again is served by the other, in time.
            body, took, before = until_200(nodes[1], "/actor/counter/alice", TAKEOVER_S + 10, patience=0.5)
            self.assertEqual(body, b"2\n", before)
            self.assertLessEqual(took, TAKEOVER_S + 0.5, before)
            wait_for("the ledger is taken over", lambda: add(nodes[1], "late", 3)[0] == 200, 10)
        finally:
            for pid in reversed(stopped):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        wait_for("it comes back as a new incarnation", lambda: nodes[0].status()["incarnation"] > incarnation, 20)
        asker.join(60)
        load.stop()
        # Passed on to the new owner, or refused: never written by the one that slept.
        self.assertIn(late[0][0], (200, 503), late)
        self.assertEqual(times(nodes[1], "late", 2), 1 if late[0][0] == 200 else 0)
        self.assertEqual(times(nodes[1], "late", 3), 1)
        load.node = nodes[1]
        load.verify(self)
        body, _, _ = until_200(nodes[0], "/actor/counter/alice", 10)
        self.assertEqual(body, b"3\n")
        self.assertEqual(nodes[0].status()["stats"]["leases_lost"], 1)
        self.nobody_wrong(*nodes)

    def test_a_node_that_is_alone_goes_on_after_its_own_kill(self):
        """Nobody is there to take over, and nobody has to be waited for: the record is its own."""
        node, = self.cluster(1, lease="60s")
        self.assertEqual(node.post("/actor/counter/alice")[2], b"1\n")
        node.stop(signal.SIGKILL)
        node.start()
        body, took, _ = until_200(node, "/actor/counter/alice", 20)
        self.assertEqual(body, b"2\n")
        self.assertLess(took, 5)


class Refuses(Cluster):
    def refused(self, node, *words, seconds=20):
        node.start(wait=False)
        self.assertEqual(node.process.wait(timeout=seconds), 1)
        for word in words:
            self.assertIn(word, node.stderr())

    def shared(self, name, **node):
        store = os.path.join(self.dir, "store")
        return self.node({"node": {"id": name, **node}, "plugin.storage": {"path": store}}, name=name, start=False), store

    def test_a_store_is_one_nodes_or_has_nodes_with_leases(self):
        alone, store = self.shared("n1")
        alone.start()
        self.assertEqual(alone.post("/actor/counter/alice")[2], b"1\n")
        second, _ = self.shared("n2", lease="3s")
        self.refused(second, store, "has it for itself", "this one has a lease")
        third, _ = self.shared("n3")
        self.refused(third, store, "has it for itself", 'lease = "none"')
        self.common_checks(alone)
        self.assertEqual(alone.stop(), 0)
        # What was one node's becomes a bucket of several.
        second.start()
        self.assertEqual(until_200(second, "/actor/counter/alice", 10)[0], b"2\n")
        self.refused(third, store, "in use by nodes with a lease", 'this one has lease = "none"')
        self.common_checks(second)

    def test_one_id_is_one_node(self):
        node, = self.cluster(1)
        twin, _ = self.shared("twin", id="n1", lease="3s")
        self.refused(twin, "node id 'n1' is in use")
        self.common_checks(node)

    def test_a_secret_that_no_gateway_could_use_is_refused_by_name(self):
        secret = os.path.join(self.dir, "secret")
        node = self.node({"node": {"lease": "3s"}, "plugin.gateway": {"peer_secret_file": secret}}, start=False)
        self.refused(node, "peer_secret_file = " + secret, "No such file")
        with open(secret, "w", encoding="ascii") as file:
            file.write("short")
        self.refused(node, "peer_secret_file = " + secret, "has 5 bytes")

    def test_another_secret_keeps_nodes_apart_and_loses_nothing(self):
        nodes = self.cluster(2, secrets=("a" * 40, "b" * 40))
        self.owner_is(nodes[0], nodes[1:])
        status, body = ask(nodes[1], "POST", "/actor/counter/alice")
        self.assertEqual(status, 503, body)
        self.assertRegex(body.decode(), "secret|signature")
        self.assertEqual(nodes[0].post("/actor/counter/alice")[2], b"2\n")
        # Its own actors it serves.
        self.assertEqual(nodes[1].post("/actor/counter/bob")[2], b"1\n")
        self.nobody_wrong(*nodes)

    def test_what_only_nodes_may_say_is_taken_from_nobody_else(self):
        nodes = self.cluster(2)
        self.owner_is(nodes[0], nodes[1:])
        forged = {"x-wasmkeep-forwarded": "1", "x-wasmkeep-node": "n2", "x-wasmkeep-target": "n1",
                  "x-wasmkeep-signature": "v1=" + "0" * 64}
        status, body = ask(nodes[0], "POST", "/actor/counter/alice", headers=forged)
        self.assertIn(status, (200, 403), body)
        if status == 200:   # taken for a client's, without those headers
            self.assertEqual(body, b"2\n")
        expected = 2 if status == 200 else 1
        self.assertEqual(until_200(nodes[1], "/actor/counter/alice", 10)[0], b"%d\n" % (expected + 1))


class Drains(Cluster):
    def state_of(self, node, ident):
        return {row["id"]: row["state"] for row in node.cli("cluster", "status")["nodes"]}[ident]

    def test_a_node_gives_its_actors_away_under_load_and_takes_some_again(self):
        nodes = self.cluster(3, classes=("counter", "ledger"))
        names = [f"/actor/counter/c{i}" for i in range(60)]
        for name in names:
            self.assertEqual(until_200(nodes[0], name, READY_S)[0], b"1\n")
        load = Load(nodes[0], actors=8, threads=2).start()
        try:
            wait_for("the load is answered", lambda: load.count() > 100, 60)
            nodes[1].cli("cluster", "drain", "n1")
            wait_for("n1 is drained", lambda: self.state_of(nodes[1], "n1") == "drained", 60)
            was = load.count()
            wait_for("the load goes on through it", lambda: load.count() > was + 100, 60)
        finally:
            load.stop()
        load.verify(self, allow=(200, 503))
        for name in names:
            self.assertEqual(until_200(nodes[0], name, 20)[0], b"2\n")
        self.assertEqual([a for a in nodes[0].cli("actors", "--all")["actors"] if a["state"] == "resident"], [])
        nodes[2].cli("cluster", "undrain", "n1")
        wait_for("n1 serves", lambda: self.state_of(nodes[1], "n1") == "serving", 30)
        self.owner_is_among(nodes[0], "/actor/counter/fresh")
        self.nobody_wrong(*nodes)

    def owner_is_among(self, node, path):
        until_200(node, path, READY_S)
        name = path.rsplit("/", 1)[1]
        self.assertIn((name, "resident"), [(a["name"], a["state"]) for a in node.cli("actors", "--all")["actors"]])

    def test_who_has_nobody_to_give_them_to_is_stuck_and_serves(self):
        node, = self.cluster(1)
        until_200(node, "/actor/counter/alice", READY_S)
        node.cli("cluster", "drain", "n1")
        wait_for("it is stuck", lambda: self.state_of(node, "n1") == "stuck", 20)
        self.assertEqual(until_200(node, "/actor/counter/alice", 5)[0], b"2\n")
        self.assertEqual(until_200(node, "/actor/counter/bob", 5)[0], b"1\n")


class Between(Cluster):
    CLASSES = ("counter", "teller", "account", "ledger")

    def test_calls_and_messages_reach_actors_of_other_nodes(self):
        nodes = self.cluster(2, classes=self.CLASSES)
        # The accounts become the second node's, the teller the first one's.
        for name in ("ann", "bob"):
            wait_for("the account answers", lambda name=name: number(nodes[1], f"/actor/account/{name}") == 0)
        for name in ("ann", "bob"):
            self.assertEqual(nodes[0].post(f"/actor/teller/t/deposit?{name},100")[0], 200)
        wait_for("the deposits arrived", lambda: [number(nodes[1], f"/actor/account/{n}") for n in ("ann", "bob")] == [100, 100])
        self.assertEqual(sorted(a["name"] for a in nodes[1].cli("actors")["actors"]), ["ann", "bob"])
        status, _, body = nodes[0].post("/actor/teller/t/transfer?ann,bob,30")
        self.assertEqual((status, body), (200, b"3\n"))
        wait_for("the money arrived", lambda: number(nodes[1], "/actor/account/bob") == 130)
        self.assertEqual(number(nodes[0], "/actor/account/ann"), 70)
        self.assertEqual(nodes[0].post("/actor/teller/t/transfer?ann,bob,71")[0], 402, "the callee's no comes back")
        # From the other side, while the teller is elsewhere.
        self.assertEqual(nodes[1].post("/actor/teller/t/transfer?bob,ann,130")[0], 200)
        wait_for("the money arrived", lambda: number(nodes[0], "/actor/account/ann") == 200)
        self.nobody_wrong(*nodes)

    def test_messages_are_applied_once_though_their_receivers_node_is_killed(self):
        nodes = self.cluster(2, classes=self.CLASSES)
        wait_for("the pot answers", lambda: number(nodes[1], "/actor/account/pot") == 0)
        for _ in range(40):
            self.assertEqual(nodes[0].post("/actor/teller/t/deposit?pot,1")[0], 200)
        nodes[1].process.kill()
        nodes[1].process.wait()
        for _ in range(40):
            self.assertEqual(nodes[0].post("/actor/teller/t/deposit?pot,1")[0], 200)
        wait_for("all of them are in the pot", lambda: number(nodes[0], "/actor/account/pot") == 80, 60)
        nodes[1].start()
        self.assertEqual(wait_for("the pot is reached from there", lambda: number(nodes[1], "/actor/account/pot")), 80)
        self.assertTrue(stays_away(lambda: number(nodes[0], "/actor/account/pot") != 80, 3), "a message was applied twice")

    def test_what_another_node_accepted_for_later_reaches_the_owner_once(self):
        nodes = self.cluster(2, classes=self.CLASSES)
        self.assertEqual(add(nodes[0], "a", 1)[0], 200)
        for ident in range(2, 42):
            self.assertEqual(add(nodes[1], "a", ident, ASYNC)[0], 202)
        for ident in range(1, 42):
            wait_for(f"{ident} is applied", lambda ident=ident: times(nodes[0], "a", ident) == 1)
        wait_for("the journal forgets them", lambda: nodes[1].status()["journal"]["waiting"] == 0)
        # And over the death of the owner: they wait in the other's journal.
        nodes[0].process.kill()
        nodes[0].process.wait()
        for ident in range(42, 52):
            self.assertEqual(add(nodes[1], "a", ident, ASYNC)[0], 202)
        for ident in range(42, 52):
            wait_for(f"{ident} is applied", lambda ident=ident: times(nodes[1], "a", ident) == 1)
        self.assertEqual([times(nodes[1], "a", ident) for ident in range(1, 52)], [1] * 51)


class Apart(Cluster):
    @staticmethod
    def free_port():
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            return one.getsockname()[1]

    def test_a_socket_for_nodes_takes_nothing_else(self):
        ports = [self.free_port() for _ in range(2)]
        nodes = self.cluster(2, toml=None)
        for node, port in zip(nodes, ports):
            self.assertEqual(node.stop(), 0)
            node.tables["plugin.gateway"]["cluster_listen"] = f"127.0.0.1:{port}"
            node.write_config()
        for node in nodes:
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        self.owner_is(nodes[0], nodes[1:])
        self.assertEqual(until_200(nodes[1], "/actor/counter/alice", 10)[0], b"2\n")
        rows = {row["id"]: row for row in nodes[0].cli("cluster", "status")["nodes"]}
        self.assertEqual(rows["n1"]["peer_address"], f"127.0.0.1:{ports[0]}")
        self.assertEqual(rows["n1"]["address"], nodes[0].address)
        self.assertEqual(nodes[0].status()["listen"], [nodes[0].address])
        connection = http.client.HTTPConnection("127.0.0.1", ports[0], timeout=10)
        connection.request("POST", "/actor/counter/alice")
        self.assertEqual(connection.getresponse().status, 403)
        connection.close()
        self.assertEqual(until_200(nodes[1], "/actor/counter/alice", 10)[0], b"3\n")


    def test_others_are_told_the_address_that_the_file_says(self):
        nodes = self.cluster(2)
        for node in nodes:
            self.assertEqual(node.stop(), 0)
            port = self.free_port()
            node.tables["plugin.gateway"]["listen"] = f"0.0.0.0:{port}"
            node.write_config()
            refused = subprocess.run([os.path.join(BIN, "holdfastd"), "--config", node.config], capture_output=True, text=True,
                                     timeout=20, check=False)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("'node.advertise' is missing", refused.stderr)
            node.tables["node"]["advertise"] = f"localhost:{port}"
            node.write_config()
            node.start()
        told = {node.tables["node"]["id"]: node.tables["node"]["advertise"] for node in nodes}
        wait_for("each is told so", lambda: told == {
            row["id"]: row["address"] for row in nodes[1].cli("cluster", "status")["nodes"] if "address" in row}, 10)
        for node in nodes:
            node.host = "127.0.0.1"
        self.owner_is(nodes[0], nodes[1:])
        self.assertEqual(until_200(nodes[1], "/actor/counter/alice", 10)[0], b"2\n")


class Example(Cluster):
    def test_up_and_down(self):
        data = os.path.join(self.dir, "cluster")
        example = os.path.join(ROOT, "examples", "cluster")
        environment = {**os.environ, "HOLDFAST_BIN": BIN}

        def run(*words):
            return subprocess.run([os.path.join(example, words[0]), *words[1:], "--data", data], env=environment, text=True,
                                  capture_output=True, timeout=180, check=False)
        self.addCleanup(run, "down", "--kill")
        up = run("up", "--nodes", "2", "--lease", "3s")
        self.assertEqual(up.returncode, 0, up.stderr)
        rows = [line.split(" ", 3) for line in up.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows], ["n1", "n2"])
        pids = [int(row[2]) for row in rows]
        self.assertTrue(all(alive(pid) for pid in pids))

        def count(url):
            host, port = url.removeprefix("http://").split(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=20)
            try:
                connection.request("POST", "/actor/counter/alice")
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()
        self.assertEqual(count(rows[0][1]), (200, b"1\n"))
        self.assertEqual(wait_for("the other node passes it on", lambda: count(rows[1][1])[0] == 200 and True, 10), True)
        again = run("up", "--nodes", "2")
        self.assertEqual(again.stdout, up.stdout, "what runs is left alone")
        os.kill(pids[0], signal.SIGKILL)
        wait_for("it is dead", lambda: not alive(pids[0]), 5)
        third = run("up", "--nodes", "2", "--lease", "3s")
        self.assertEqual(third.returncode, 0, third.stderr)
        self.assertNotEqual(third.stdout, up.stdout)
        down = run("down")
        self.assertEqual(down.returncode, 0, down.stderr)
        for line in third.stdout.splitlines():
            self.assertFalse(alive(int(line.split(" ", 3)[2])))
