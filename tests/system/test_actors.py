"""Actors among themselves and with their clients' sockets, on a real node whose parts are killed with -9."""
import asyncio
import contextlib
import os
import random
import re
import signal
import threading
import time
import unittest

from harness import LONG, Case, wait_for

try:
    import websockets
except ImportError:
    websockets = None


def number(node, path):
    """What a GET answers, as a number; None while the node cannot say."""
    with contextlib.suppress(OSError, ValueError):
        status, _, body = node.http("GET", path)
        return int(body) if status == 200 else None
    return None


class Calls(Case):
    def test_two_actors_call_each_other_and_nobody_waits_for_himself(self):
        node = self.node(classes=("counter", "teller", "account"))
        for name in ("ann", "bob"):
            self.assertEqual(node.post(f"/actor/teller/t/deposit?{name},100")[0], 200)
        wait_for("the deposits arrived", lambda: (number(node, "/actor/account/ann"), number(node, "/actor/account/bob")) == (100, 100))
        status, _, body = node.post("/actor/teller/t/transfer?ann,bob,30")
        self.assertEqual((status, body), (200, b"3\n"))
        wait_for("the money arrived", lambda: number(node, "/actor/account/bob") == 130)
        self.assertEqual(number(node, "/actor/account/ann"), 70)
        self.assertEqual(node.post("/actor/teller/t/transfer?ann,bob,71")[0], 402, "the callee's no comes back")
        self.assertEqual(number(node, "/actor/account/ann"), 70)
        stats = node.status()["stats"]
        self.assertEqual((stats["calls"], stats["messages_sent"], stats["messages_applied"]), (2, 3, 3))
        self.common_checks(node)

    def test_many_callers_at_once_do_not_starve_those_they_wait_for(self):
        """One runtime: the callers' waiting events and the events they wait for share it."""
        # All of them may wait for one account at the same moment.
        node = self.node({"plugin.runtime": {"instances": 1}, "limits": {"mailbox_events": 256}},
                         classes=("counter", "teller", "account"))
        self.assertEqual(node.post("/actor/teller/bank/deposit?rich,100000")[0], 200)
        wait_for("it is there", lambda: number(node, "/actor/account/rich") == 100000)
        answers = []

        def one(teller):
            answers.append(node.post(f"/actor/teller/t{teller}/transfer?rich,pot,1")[0])
        threads = [threading.Thread(target=one, args=(i,)) for i in range(150)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, [200] * 150)
        wait_for("all arrived", lambda: number(node, "/actor/account/pot") == 150)
        self.assertEqual(number(node, "/actor/account/rich"), 100000 - 150)
        self.common_checks(node)


class Messages(Case):
    def test_each_message_accepted_is_applied_once_though_everything_is_killed(self):
        node = self.node({"restart": {"intensity": "off"}}, classes=("counter", "teller", "account"))
        tellers, kills, least = 8, 60 if LONG else 12, 1000
        over = threading.Event()

        def work(teller):
            """Deposits of 1, one after the other, whatever dies."""
            while not over.is_set():
                with contextlib.suppress(OSError):
                    node.http("POST", f"/actor/teller/t{teller}/deposit?pot,1", timeout=10)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(tellers)]
        for thread in threads:
            thread.start()

        def sent():
            """What the tellers' own logs say; a doubled or a lost deposit is seen in the pot."""
            return sum(wait_for(f"teller {i} answers", lambda i=i: number(node, f"/actor/teller/t{i}")) for i in range(tellers))
        try:
            dice = random.Random(7)
            for kill in range(kills):
                before = node.status()["stats"]["messages_sent"]
                wait_for("messages go on", lambda before=before: node.status()["stats"]["messages_sent"] > before + 20, 40)
                if kill % 4 == 3:
                    node.stop(signal.SIGKILL)
                    node.start()
                else:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(node.plugin_pid(dice.choice(("runtime", "storage"))), signal.SIGKILL)
            wait_for(f"{least} were sent", lambda: sent() >= least, 60)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        total = sent()
        wait_for(f"{total} deposits of 1 are in the pot", lambda: number(node, "/actor/account/pot") == total, 60)
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(number(node, "/actor/account/pot"), total)
        self.assertEqual(sent(), total)
        self.common_checks(node)

    def test_a_sender_nobody_asks_again_is_found_after_a_restart(self):
        """Its receiver's class is missing while it sends; later nobody touches the sender: the index finds it."""
        node = self.node(classes=("counter", "teller", "account"))
        storage = node.plugin_pid("storage")
        self.assertEqual(node.post("/actor/teller/t/deposit?ann,5")[0], 200)
        self.assertEqual(node.plugin_pid("storage"), storage)
        node.stop(signal.SIGKILL)
        node.start()
        wait_for("the deposit arrived", lambda: number(node, "/actor/account/ann") == 5)
        self.common_checks(node)


class Alarms(Case):
    def test_an_alarm_fires_once_though_the_node_is_killed_before_it_is_due(self):
        node = self.node(classes=("counter", "limiter"))
        self.assertEqual(node.http("PUT", "/actor/limiter/gate", body=b"3 3000")[0], 200)
        set_at = time.time()
        self.assertEqual(node.post("/actor/limiter/gate/take?ann")[2], b"2\n")
        self.assertEqual(node.http("GET", "/actor/limiter/gate")[2].split(), [b"ann", b"1"])
        node.stop(signal.SIGKILL)
        node.start()
        self.assertLess(time.time() - set_at, 3, "the node was back before the alarm was due")
        # Nobody asks the actor: what the node counts is the alarm alone.
        wait_for("it fired", lambda: node.status()["stats"]["alarms_fired"] >= 1, 20)
        self.assertGreater(time.time() - set_at, 2.9)
        self.assertEqual(node.http("GET", "/actor/limiter/gate")[2], b"", "its handler closed the window")
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.post("/actor/limiter/gate/take?bob")[2], b"2\n")
        wait_for("bob's fires", lambda: node.status()["stats"]["alarms_fired"] >= 1, 20)
        self.assertEqual(node.status()["stats"]["alarms_fired"], 1, "the first one did not fire again")
        self.common_checks(node)

    def test_alarms_survive_eviction_and_the_death_of_runtimes_and_storage(self):
        node = self.node({"plugin.runtime": {"instances": 1, "resident_units_max": 2}},
                         classes=("counter", "limiter"))
        gates = 20
        for i in range(gates):
            self.assertEqual(node.http("PUT", f"/actor/limiter/g{i}", body=b"3 1500")[0], 200)
            self.assertEqual(node.post(f"/actor/limiter/g{i}/take?k")[0], 200)
        for name in ("runtime", "storage"):
            os.kill(node.plugin_pid(name), signal.SIGKILL)
        wait_for("all fired", lambda: node.status()["stats"]["alarms_fired"] >= gates, 40)
        for i in range(gates):
            self.assertEqual(node.http("GET", f"/actor/limiter/g{i}")[2], b"", f"gate {i}")
        self.assertEqual(node.status()["stats"]["alarms_fired"], gates)
        self.common_checks(node)


@unittest.skipIf(websockets is None, "python3-websockets is not here")
class Chat(Case):
    def test_two_clients_talk_across_an_eviction_and_the_death_of_the_runtime(self):
        # Ten kills within seconds of each other would put a runtime down for good.
        node = self.node({"plugin.runtime": {"instances": 1, "resident_units_max": 1}, "restart": {"intensity": "off"}},
                         classes=("counter", "chat"))
        asyncio.run(self.talk(node))
        self.common_checks(node)

    async def talk(self, node):
        url = f"ws://{node.address}/actor/chat/room"

        async def hear(client, what):
            while True:
                line = await asyncio.wait_for(client.recv(), 30)
                if line == what:
                    return

        async with websockets.connect(url) as ann, websockets.connect(url) as bob:
            await ann.send("/name ann")
            await bob.send("/name bob")
            await ann.send("hello")
            for client in (ann, bob):
                await hear(client, "ann: hello")
            # Another actor takes the only place in memory: the room leaves it, its sockets stay.
            self.assertEqual(node.post("/actor/counter/other")[0], 200)
            await bob.send("still there?")
            for client in (ann, bob):
                await hear(client, "bob: still there?")
            gateway = node.plugin_pid("gateway")
            for round_ in range(10 if LONG else 3):
                os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
                await ann.send(f"after {round_}")
                for client in (ann, bob):
                    await hear(client, f"ann: after {round_}")
            self.assertEqual(node.plugin_pid("gateway"), gateway)
            self.assertEqual(sorted(node.http("GET", "/actor/chat/room")[2].split()), [b"ann", b"bob"])
            # Whoever comes later hears what was said: all of it was stored before anybody heard it.
            async with websockets.connect(url) as late:
                await hear(late, "ann: hello")
                await hear(late, "bob: still there?")
                await hear(late, "ann: after 0")
        await asyncio.get_running_loop().run_in_executor(None, lambda: wait_for(
            "their closing was heard", lambda: node.http("GET", "/actor/chat/room")[2] == b""))

    def test_a_node_that_dies_forgets_connections_and_keeps_what_was_said(self):
        node = self.node(classes=("counter", "chat"))

        async def before():
            client = await websockets.connect(f"ws://{node.address}/actor/chat/room")
            await client.send("/name ann")
            await client.send("kept")
            while await asyncio.wait_for(client.recv(), 30) != "ann: kept":
                pass
            node.process.send_signal(signal.SIGKILL)
            with contextlib.suppress(websockets.ConnectionClosed):
                await asyncio.wait_for(client.recv(), 30)
        asyncio.run(before())
        node.stop(signal.SIGKILL)
        node.start()

        async def after():
            async with websockets.connect(f"ws://{node.address}/actor/chat/room") as client:
                self.assertEqual(await asyncio.wait_for(client.recv(), 30), "ann: kept")
        asyncio.run(after())
        self.assertEqual(node.http("GET", "/actor/chat/room")[2], b"", "ann's old connection is not listed any more")
        self.common_checks(node)

    def test_a_swap_of_the_gateway_closes_sockets_with_1012_and_a_new_one_takes_over(self):
        node = self.node(classes=("counter", "chat"))

        async def swap():
            url = f"ws://{node.address}/actor/chat/room"
            client = await websockets.connect(url)
            await client.send("x")
            while not re.search("x$", await asyncio.wait_for(client.recv(), 30)):
                pass
            loop = asyncio.get_running_loop()
            swapped = loop.run_in_executor(None, lambda: node.cli("swap", "gateway", "--set", "idle_timeout=74000"))
            with self.assertRaises(websockets.ConnectionClosed):
                await asyncio.wait_for(client.recv(), 40)
            self.assertEqual(client.close_code, 1012)
            await swapped
            async with websockets.connect(url) as again:
                await asyncio.wait_for(again.recv(), 30)
        asyncio.run(swap())
        self.common_checks(node)
