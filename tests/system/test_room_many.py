"""One message to many WebSockets: a room of 200 people, and what becomes of messages that a gateway has no room for."""
import asyncio
import contextlib
import http.client
import os
import signal
import unittest

from guests import UNRULY
from harness import Case, wait_for

try:
    import websockets
except ImportError:
    websockets = None

PAYLOAD = 48 * 1024


async def enter(stack, url, people, **options):
    """So many clients, ten at a time."""
    clients = []
    while len(clients) < people:
        some = [stack.enter_async_context(websockets.connect(url, **options)) for _ in range(min(10, people - len(clients)))]
        clients += await asyncio.gather(*some)
    return clients


async def hear(client, count):
    return [await asyncio.wait_for(client.recv(), 60) for _ in range(count)]


async def all_hear(clients, count):
    return await asyncio.gather(*(hear(client, count) for client in clients))


@unittest.skipIf(websockets is None, "python3-websockets is not here")
class Many(Case):
    PEOPLE = 200

    def test_a_room_of_200_hears_every_message_in_order_though_its_runtime_is_killed(self):
        node = self.node({"plugin.runtime": {"instances": 1}, "restart": {"intensity": "off"}}, classes=("counter", "chat"))
        asyncio.run(self.talk(node))
        wait_for("their closing was heard", lambda: node.http("GET", "/actor/chat/room")[2] == b"")
        self.common_checks(node)

    async def talk(self, node):
        gateway = node.plugin_pid("gateway")
        async with contextlib.AsyncExitStack() as stack:
            clients = await enter(stack, f"ws://{node.address}/actor/chat/room", self.PEOPLE)
            self.assertEqual(len(node.http("GET", "/actor/chat/room")[2].split()), self.PEOPLE)
            for turn in range(4):
                speaker = clients[turn * 61 % self.PEOPLE]
                said = [f"turn {turn}, {i}" for i in range(5)]
                for i, line in enumerate(said):
                    await speaker.send(line)
                    if turn % 2 == 1 and i == 2:
                        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
                for lines in await all_hear(clients, len(said)):
                    self.assertEqual(lines, ["somebody: " + line for line in said])
            # The order of two who speak at once is the actor's, and the same for all.
            await asyncio.gather(*(client.send(f"both {i}") for i, client in enumerate(clients[:2])))
            orders = {tuple(lines) for lines in await all_hear(clients, 2)}
            self.assertEqual(len(orders), 1, orders)
        self.assertEqual(node.plugin_pid("gateway"), gateway)

    def test_what_a_gateway_that_stands_still_has_no_room_for_waits_and_all_of_it_is_heard(self):
        """300 messages of the largest size to 5 people: 72 MB for a ring of 4, and more than may wait beside it."""
        node = self.node({"class.unruly": {"module": UNRULY}, "limits": {"stall_grace": "1m"}, "plugin.runtime": {"instances": 1},
                          "plugin.gateway": {"socket_buffer_max": "64MiB", "sockets_memory_max": "1GiB"}})
        asyncio.run(self.shout(node, 300, 5))
        self.common_checks(node)

    async def shout(self, node, shouts, people):
        loop = asyncio.get_running_loop()
        gateway, runtime = node.plugin_pid("gateway"), node.plugin_pid("runtime")
        async with contextlib.AsyncExitStack() as stack:
            clients = await enter(stack, f"ws://{node.address}/actor/unruly/loud", people, max_size=None, ping_interval=None)
            os.kill(runtime, signal.SIGSTOP)
            await loop.run_in_executor(None, self.accept, node, shouts)
            os.kill(gateway, signal.SIGSTOP)
            os.kill(runtime, signal.SIGCONT)
            try:
                await loop.run_in_executor(None, self.stands_still, node, shouts)
            finally:
                os.kill(gateway, signal.SIGCONT)
            for messages in await all_hear(clients, shouts):
                self.assertEqual([int(message[:8]) for message in messages], list(range(1, shouts + 1)))
                self.assertEqual({len(message) for message in messages}, {PAYLOAD})
        self.assertEqual(node.plugin_pid("gateway"), gateway)

    def accept(self, node, shouts):
        """Requests that wait in the journal for the runtime."""
        connection = http.client.HTTPConnection(node.host, node.port, timeout=40)
        for _ in range(shouts):
            connection.request("POST", f"/actor/unruly/loud/shout?{PAYLOAD}", headers={"Prefer": "respond-async"})
            answer = connection.getresponse()
            answer.read()
            self.assertEqual(answer.status, 202)
        connection.close()

    def stands_still(self, node, shouts):
        """The gateway's ring is full, and the actor runs no more."""
        last = [None]

        def same_twice():
            waiting = node.status()["journal"]["waiting"]
            before, last[0] = last[0], waiting
            return waiting == before and waiting < shouts
        wait_for("the room waits for the gateway", same_twice, 40, 0.5)
        self.assertGreater(last[0], shouts // 2, "most are not even run")
        link = next(link for link in node.status()["links"] if link["plugin"] == "gateway/0")
        self.assertGreater(link["queued_records"], 0)
        self.assertLess(link["queued_bytes"], 1 << 20)
