"""Actors in memory and out of it: idle ones leave and come back, those that want to hear of it do; and the wall around all
of them together."""
import asyncio
import os
import signal
import subprocess
import unittest

from harness import BIN, Case, descendants, wait_for

try:
    import websockets
except ImportError:
    websockets = None

SHORT = {"evict_after": "1s"}


def rows(node, class_name):
    return {row["name"]: row for row in node.cli("actors", "--class", class_name)["actors"]}


def cold(node, class_name, name):
    return wait_for(f"{class_name}/{name} is out of memory",
                    lambda: rows(node, class_name)[name]["state"] == "cold")


def diary(node, name="d"):
    status, _, body = node.http("GET", f"/actor/diary/{name}")
    return body.decode().split("\n")[:-1] if status == 200 else None


class Residency(Case):
    def test_an_idle_actor_leaves_memory_after_its_stop_which_is_stored(self):
        node = self.node({"class.diary": SHORT}, classes=("counter", "diary"))
        for visit in range(3):
            self.assertEqual(node.post("/actor/diary/d")[2], f"{visit + 1}\n".encode())
        self.assertEqual(node.post("/actor/counter/c")[2], b"1\n")
        self.assertEqual(rows(node, "diary")["d"]["state"], "resident")
        cold(node, "diary", "d")
        self.assertEqual(rows(node, "counter")["c"]["state"], "resident", "that class keeps its actors for longer")
        stats = node.status()["stats"]
        self.assertEqual((stats["stops"], stats["stops_failed"], stats["evicted"], stats["acquires"]), (1, 0, 1, 2))
        self.assertEqual(diary(node), ["evict 3"])
        self.assertEqual(node.post("/actor/diary/d/leave")[2], b"1\n", "its memory began anew")
        wait_for("it left at its own wish", lambda: node.status()["stats"]["stops"] == 2)
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(diary(node), ["evict 3", "passivate 1"], "what it wrote was stored before it left")
        self.common_checks(node)

    def test_a_stop_that_fails_writes_nothing_and_the_actor_leaves_all_the_same(self):
        node = self.node({"class.diary": SHORT}, classes=("counter", "diary"))
        self.assertEqual(node.post("/actor/diary/d/tear")[0], 200)
        cold(node, "diary", "d")
        stats = node.status()["stats"]
        self.assertEqual((stats["stops"], stats["stops_failed"]), (0, 1))
        self.assertIn("holdfast_stops_failed_total 1", node.http("GET", "/metrics")[2].decode())
        self.assertEqual(diary(node), [])
        self.common_checks(node)

    def test_the_end_of_the_node_is_heard_by_all_who_want_it(self):
        actors = 150   # more than are asked at once
        node = self.node(classes=("counter", "diary"))
        for i in range(actors):
            self.assertEqual(node.post(f"/actor/diary/d{i}")[0], 200)
        self.assertEqual(node.stop(signal.SIGTERM), 0)
        node.start()
        for i in range(actors):
            self.assertEqual(diary(node, f"d{i}"), ["drain 1"], f"diary {i}")
        self.common_checks(node)

    def test_a_new_runtime_gets_the_actors_after_their_stop(self):
        node = self.node({"plugin.runtime": {"instances": 1}}, classes=("counter", "diary"))
        self.assertEqual(node.post("/actor/diary/d")[0], 200)
        node.cli("swap", "runtime", "--set", "parked_events_max=255")
        self.assertEqual(diary(node), ["move 1"])
        self.common_checks(node)

    def test_a_full_runtime_takes_a_newcomer_after_the_stop_of_another(self):
        node = self.node({"plugin.runtime": {"instances": 1, "resident_units_max": 2}}, classes=("counter", "diary"))
        for i in range(6):
            self.assertEqual(node.post(f"/actor/diary/d{i}")[0], 200)
        for i in range(4):
            self.assertEqual(diary(node, f"d{i}"), ["evict 1"])
        self.common_checks(node)


@unittest.skipIf(websockets is None, "python3-websockets is not here")
class Sockets(Case):
    def test_a_room_out_of_memory_goes_on_when_one_of_its_sockets_speaks(self):
        node = self.node({"class.chat": SHORT}, classes=("counter", "chat"))

        async def talk():
            url = f"ws://{node.address}/actor/chat/room"

            async def hear(client, what):
                while await asyncio.wait_for(client.recv(), 30) != what:
                    pass

            async with websockets.connect(url) as ann, websockets.connect(url) as bob:
                await ann.send("/name ann")
                await ann.send("hello")
                for client in (ann, bob):
                    await hear(client, "ann: hello")
                gone = asyncio.get_running_loop().run_in_executor(None, lambda: cold(node, "chat", "room"))
                await gone
                await ann.send("still there?")
                for client in (ann, bob):
                    await hear(client, "ann: still there?")
        asyncio.run(talk())
        self.assertGreaterEqual(node.status()["stats"]["evicted"], 1)
        wait_for("their closing was heard", lambda: node.http("GET", "/actor/chat/room")[2] == b"")
        self.common_checks(node)


class Memory(Case):
    LIMIT = "64MiB"

    def greedy_node(self):
        node = self.node({"plugin.runtime": {"instances": 1, "memory_max": self.LIMIT},
                          "class.misfit": {"memory_max": "32MiB", "cpu_limit": "5s"}}, classes=("counter", "misfit"))
        if "memory" not in (node.status()["control_groups"] or ""):
            self.skipTest("no memory group on this machine: " + "; ".join(node.status()["missing_walls"]))
        return node

    def test_actors_that_fill_memory_end_their_runtime_by_name_and_the_node_goes_on(self):
        node = self.greedy_node()
        self.assertEqual(node.post("/actor/counter/c")[2], b"1\n")
        for i in range(8):
            status = node.post(f"/actor/misfit/m{i}/hold?400")[0]
            if status != 200:
                break
        exit_ = wait_for("the runtime was ended", lambda: node.plugins()["runtime"]["instances"][0].get("last_exit"))
        self.assertEqual(exit_, f"killed: out of memory (limit {self.LIMIT})")
        wait_for("the counter counts on", lambda: node.post("/actor/counter/c")[2] == b"2\n")
        text = subprocess.run([os.path.join(BIN, "holdfast"), "--node", node.data, "status"], text=True,
                              stdout=subprocess.PIPE, check=True).stdout
        self.assertRegex(text, "control groups +memory")
        self.assertTrue(node.control_groups())
        self.common_checks(node)
        node.stop(signal.SIGTERM)
        self.assertEqual(node.control_groups(), [], "nothing of the node is left among the control groups")

    def test_every_process_of_an_instance_is_inside_and_a_killed_nodes_groups_go_at_the_next_start(self):
        node = self.greedy_node()
        inside = set()
        for group in node.control_groups():
            for top, _, _ in os.walk(group):
                with open(os.path.join(top, "cgroup.procs"), encoding="ascii") as file:
                    inside |= {int(line) for line in file if line.strip() != "0"}
        family = set(descendants(node.pid))
        self.assertTrue(family)
        self.assertEqual(family - inside, set(), "processes outside of every group")
        node.stop(signal.SIGKILL)
        before = {os.path.join(top, d) for group in node.control_groups() for top, dirs, _ in os.walk(group) for d in dirs}
        self.assertTrue(before, "nobody was left to remove them")
        node.start()
        self.common_checks(node)
        node.stop(signal.SIGTERM)
        self.assertEqual(node.control_groups(), [])
