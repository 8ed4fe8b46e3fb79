#!/usr/bin/python3
"""The gateway and clients that others wrote: python3-websockets, curl, and node where it has a WebSocket.

Usage: clients_test.py <gateway-echo-driver> <gateway-http>. The actors are those of TestSupervisor.
"""
import asyncio
import contextlib
import http.client
import os
import re
import shutil
import socket as sockets
import ssl
import subprocess
import sys
import tempfile
import unittest

try:
    import websockets
except ImportError:
    websockets = None

DRIVER, GATEWAY = sys.argv[1:3] if len(sys.argv) > 2 else ("", "")
PATIENCE_S = 60   # a sanitizer build on a busy machine
KEY = "dGhlIHNhbXBsZSBub25jZQ=="


class Driver:
    """One gateway with its actors; what it has seen is known once it was ended."""

    def __init__(self, *settings):
        self.process = subprocess.Popen([DRIVER, GATEWAY, "0", *settings], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        line = self.process.stdout.readline()
        found = re.match(r"http://(127\.0\.0\.1:\d+)/\S* pid (\d+)", line)
        if not found:
            raise AssertionError(f"the gateway did not start: {line!r}")
        self.address = found.group(1)

        self.port = int(self.address.rsplit(":", 1)[1])

    def ws(self, path):
        return f"ws://{self.address}{path}"

    def wss(self, path):
        return f"wss://{self.address}{path}"

    def http(self, path):
        return f"http://{self.address}{path}"

    def https(self, path):
        return f"https://{self.address}{path}"

    def end(self):
        """Its last words as {name: value}; `closed` is the list of codes."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        if self.process.returncode != 0:
            raise AssertionError(f"the link was broken: {self.process.returncode}")
        seen = {"closed": []}
        for line in out.splitlines():
            name, value = line.split()
            if name == "closed":
                seen["closed"].append(int(value))
            else:
                seen[name] = int(value)
        return seen


@contextlib.contextmanager
def driver(*settings):
    made = Driver(*settings)
    try:
        yield made
    finally:
        if made.process.poll() is None:
            made.process.stdin.close()
            made.process.stdin = None
            made.process.wait(PATIENCE_S)
        made.process.stdout.close()


def curl(*words):
    """Status, headers in lower case, body."""
    ran = subprocess.run(["curl", "-s", "-i", "--http1.1", "--max-time", "10", *words], capture_output=True, check=False)
    head, _, body = ran.stdout.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


def upgrade(version="13", key=KEY):
    words = ["-H", "Connection: Upgrade", "-H", "Upgrade: websocket"]
    if version:
        words += ["-H", f"Sec-WebSocket-Version: {version}"]
    if key:
        words += ["-H", f"Sec-WebSocket-Key: {key}"]
    return words


@unittest.skipIf(websockets is None, "python3-websockets is not installed")
class PythonWebsockets(unittest.TestCase):
    def run_client(self, client, *settings, end=True):
        with driver(*settings) as made:
            asyncio.run(asyncio.wait_for(client(made), PATIENCE_S))
            return made.end() if end else None

    def test_a_client_and_its_actor_talk(self):
        async def client(made):
            async with websockets.connect(made.ws("/actor/chat/alice"), subprotocols=["x"]) as socket:
                self.assertIsNone(socket.subprotocol)
                self.assertEqual(socket.extensions, [])
                for message in ("hello", "", "\u20ac \U0001f419", b"\x00\xff", "x" * 49152, b"y" * 49152):
                    await socket.send(message)
                    self.assertEqual(await socket.recv(), message)
                await socket.send(["one ", "two ", "three"])
                self.assertEqual(await socket.recv(), "one two three")
                await (await socket.ping())
            self.assertEqual(socket.close_code, 1000)
        seen = self.run_client(client)
        self.assertEqual(seen["closed"], [1000])
        self.assertEqual(seen["messages"], 7)

    def test_the_subprotocol_is_the_actors_choice(self):
        async def client(made):
            async with websockets.connect(made.ws("/actor/choose/two"), subprotocols=["one", "two"]) as socket:
                self.assertEqual(socket.subprotocol, "two")
            with self.assertRaises(websockets.InvalidStatusCode) as raised:
                await websockets.connect(made.ws("/actor/choose/three"), subprotocols=["one", "two"])
            self.assertEqual(raised.exception.status_code, 502)
            with self.assertRaises(websockets.InvalidStatusCode) as raised:
                await websockets.connect(made.ws("/actor/status/403"))
            self.assertEqual(raised.exception.status_code, 403)
        self.assertEqual(sorted(self.run_client(client)["closed"]), [1000, 1011])

    def test_closes(self):
        async def closed_with(made, order, code, reason):
            async with websockets.connect(made.ws("/actor/chat/a"), max_size=None) as socket:
                await socket.send(order)
                with self.assertRaises(websockets.ConnectionClosed):
                    while True:
                        await socket.recv()
                self.assertEqual((socket.close_code, socket.close_reason), (code, reason))

        async def client(made):
            await closed_with(made, "!close 4001 enough", 4001, "enough")
            await closed_with(made, "!refuse 4002 not that", 4002, "not that")
            await closed_with(made, "x" * 49153, 1009, "a message may have 49152 bytes")
            await closed_with(made, "!garbage", 1011, "the actor's text is not UTF-8")
        self.assertEqual(self.run_client(client)["closed"], [4001, 4002, 1009, 1011])

    def test_many_clients_at_once(self):
        async def one(made, number):
            async with websockets.connect(made.ws(f"/actor/chat/{number}")) as socket:
                for i in range(20):
                    await socket.send(f"{number} {i}")
                for i in range(20):
                    self.assertEqual(await socket.recv(), f"{number} {i}")

        async def client(made):
            await asyncio.gather(*(one(made, number) for number in range(200)))
        seen = self.run_client(client)
        self.assertEqual(seen["closed"], [1000] * 200)
        self.assertEqual(seen["messages"], 4000)

    def test_pings_of_the_gateway_are_answered(self):
        async def client(made):
            async with websockets.connect(made.ws("/actor/chat/a"), ping_interval=None) as socket:
                # Longer than both together: without its pongs the client would be closed.
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(socket.recv(), 1)
                await socket.send("still here")
                self.assertEqual(await socket.recv(), "still here")
        self.assertEqual(self.run_client(client, "ping_interval=100", "pong_timeout=500")["closed"], [1000])


@unittest.skipIf(shutil.which("curl") is None, "curl is not installed")
class Curl(unittest.TestCase):
    def test_handshakes(self):
        with driver("close_timeout=100") as made:
            status, headers, _ = curl(*upgrade(), "--max-time", "1", made.http("/actor/chat/a"))
            self.assertEqual(status, 101)
            self.assertEqual(headers["sec-websocket-accept"], "s3pplmbitxaq9kygzzhzrbk+xoo=")
            status, headers, _ = curl(*upgrade(version="12"), made.http("/actor/chat/a"))
            self.assertEqual((status, headers["sec-websocket-version"]), (426, "13"))
            self.assertEqual(curl(*upgrade(key=None), made.http("/actor/chat/a"))[0], 400)
            self.assertEqual(curl(*upgrade(), "-X", "POST", made.http("/actor/chat/a"))[0], 400)
            self.assertEqual(curl(*upgrade(), made.http("/actor/status/403"))[0], 403)
            self.assertEqual(curl(*upgrade(), "--http1.0", made.http("/actor/status/200"))[0], 200)

    def test_respond_async(self):
        with driver() as made:
            status, headers, _ = curl("-H", "prefer: Respond-Async, wait=5", "-d", "x", made.http("/actor/status/202"))
            self.assertEqual((status, headers["preference-applied"]), (202, "respond-async"))
            self.assertNotIn("preference-applied", curl("-d", "x", made.http("/actor/status/202"))[1])

    def test_reserved_headers(self):
        with driver() as made:
            body = curl("-H", "X-Wasmkeep-Forwarded: 1", "-H", "X-Wasmkeep-Alarm-Handoff: 1", "-H", "X-Holdfast-Peer: n2",
                        "-H", "X-Mine: 1", made.http("/actor/echo/a"))[2]
            self.assertIn(b"x-mine=1|", body)
            self.assertNotIn(b"holdfast", body)
            self.assertNotIn(b"wasmkeep", body)


@unittest.skipIf(shutil.which("openssl") is None, "openssl is not installed")
class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.certificate = os.path.join(cls.directory.name, "certificate.pem")
        cls.key = os.path.join(cls.directory.name, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                        "-keyout", cls.key, "-out", cls.certificate], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def driver(self, *settings):
        return driver(f"tls_certificate={self.certificate}", f"tls_key={self.key}", *settings)

    def context(self, **attributes):
        made = ssl.create_default_context(cafile=self.certificate)
        for name, value in attributes.items():
            setattr(made, name, value)
        return made

    def connect(self, made, context):
        raw = sockets.create_connection(("127.0.0.1", made.port), timeout=PATIENCE_S)
        try:
            # An end without the peer's word for it is an error.
            return context.wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False)
        except Exception:
            raw.close()
            raise

    def test_curl(self):
        with self.driver() as made:
            self.assertEqual(curl("--cacert", self.certificate, made.https("/actor/fixed/a"))[0], 200)
            body = "b" * 49152
            answer = curl("--cacert", self.certificate, "-H", "Expect:", "-d", body, made.https("/actor/body/a"))
            self.assertEqual((answer[0], answer[2].decode()), (200, body))
            self.assertEqual(curl("--cacert", self.certificate, *upgrade(), made.https("/actor/status/403"))[0], 403)

    def test_large_bodies(self):
        with self.driver("body_bytes_max=16777216") as made:
            connection = http.client.HTTPSConnection("127.0.0.1", made.port, context=self.context(), timeout=PATIENCE_S)
            body = bytes(range(256)) * 32768 + b"end"
            connection.request("POST", "/actor/body/a", body=body)
            self.assertEqual(connection.getresponse().read(), body)
            connection.request("GET", "/actor/large/9000000")
            self.assertEqual(connection.getresponse().read(), (bytes(range(251)) * 36000)[:9000000])
            connection.close()

    @unittest.skipIf(websockets is None, "python3-websockets is not installed")
    def test_websockets(self):
        async def client(made):
            async with websockets.connect(made.wss("/actor/chat/a"), ssl=self.context(), max_size=None) as socket:
                for message in ("hello", "x" * 49152, b"y" * 49152):
                    await socket.send(message)
                    self.assertEqual(await socket.recv(), message)
                await socket.send("!flood 20 40000")
                for _ in range(20):
                    self.assertEqual(await socket.recv(), b"f" * 40000)
                await socket.send("!close 4001 bye")
                with self.assertRaises(websockets.ConnectionClosed):
                    await socket.recv()
                self.assertEqual(socket.close_code, 4001)
        with self.driver() as made:
            asyncio.run(asyncio.wait_for(client(made), PATIENCE_S))
            self.assertEqual(made.end()["closed"], [4001])

    def test_versions_protocols_and_tickets(self):
        with self.driver() as made:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = self.context(minimum_version=version, maximum_version=version)
                context.set_alpn_protocols(["h2", "http/1.1"])
                with self.connect(made, context) as client:
                    self.assertEqual(client.selected_alpn_protocol(), "http/1.1")
                    client.sendall(b"GET /actor/fixed/a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                    answer = b""
                    while piece := client.recv(65536):
                        answer += piece
                    # The end was said, or recv had raised.
                    self.assertTrue(answer.startswith(b"HTTP/1.1 200 "), answer)
                    self.assertFalse(client.session.has_ticket)
            context = self.context()
            context.set_alpn_protocols(["h2"])
            with self.assertRaisesRegex(ssl.SSLError, "(?i)no.application.protocol"):
                self.connect(made, context)
            old = self.context()
            old.set_ciphers("DEFAULT:@SECLEVEL=0")
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            with self.assertRaisesRegex(ssl.SSLError, "(?i)protocol.version"):
                self.connect(made, old)

    def test_handshakes_that_do_not_end(self):
        with self.driver("header_timeout=300") as made:
            for sent in (b"", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"):
                with sockets.create_connection(("127.0.0.1", made.port), timeout=PATIENCE_S) as client:
                    client.sendall(sent)
                    try:
                        while client.recv(65536):
                            pass
                    except ConnectionResetError:
                        pass
            self.assertEqual(curl("--cacert", self.certificate, made.https("/actor/fixed/a"))[0], 200)

    def test_byte_by_byte(self):
        with self.driver() as made:
            inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = self.context().wrap_bio(inside, outside, server_hostname="127.0.0.1")
            with sockets.create_connection(("127.0.0.1", made.port), timeout=PATIENCE_S) as raw:
                raw.setsockopt(sockets.IPPROTO_TCP, sockets.TCP_NODELAY, 1)

                def until_done(step):
                    while True:
                        try:
                            done = step()
                        except ssl.SSLWantReadError:
                            done = None
                        for byte in outside.read():
                            raw.sendall(bytes([byte]))
                        if done is not None:
                            return done
                        inside.write(raw.recv(65536))
                until_done(lambda: client.do_handshake() or True)
                until_done(lambda: client.write(b"GET /actor/fixed/a HTTP/1.1\r\nHost: h\r\n\r\n"))
                self.assertTrue(until_done(lambda: client.read(65536)).startswith(b"HTTP/1.1 200 "))

    def test_renegotiation(self):
        with self.driver() as made:
            ran = subprocess.run(["openssl", "s_client", "-connect", made.address, "-tls1_2", "-quiet", "-no_ign_eof"],
                                 input="R\n", capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            self.assertIn("no renegotiation", ran.stderr)

    def test_keys_that_are_none(self):
        for setting, text in ((f"tls_key={self.certificate}", "tls_key"), ("tls_key=/nowhere", "tls_key"),
                              (f"tls_certificate={self.key}", "tls_certificate")):
            settings = [f"tls_certificate={self.certificate}", f"tls_key={self.key}", setting]
            ran = subprocess.run([DRIVER, GATEWAY, "0", *settings], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                 timeout=PATIENCE_S, check=False)
            self.assertEqual(ran.returncode, 1)
            self.assertIn(text, ran.stderr)


NODE = """
const [url] = process.argv.slice(1);
const fail = (why) => { console.log("failed: " + why); process.exit(1); };
if (typeof WebSocket === "undefined") { console.log("none"); process.exit(0); }
const wanted = ["hello", "\\u20ac", "x".repeat(49152), "!close 4003 bye"];
let heard = 0;
const socket = new WebSocket(url);
socket.binaryType = "arraybuffer";
socket.onopen = () => socket.send(wanted[0]);
socket.onmessage = (event) => {
  if (event.data !== wanted[heard]) fail("message " + heard);
  heard += 1;
  socket.send(wanted[heard]);
};
socket.onclose = (event) => {
  if (event.code !== 4003 || event.reason !== "bye" || !event.wasClean || heard !== 3) fail("close " + event.code);
  console.log("good");
};
"""


@unittest.skipIf(shutil.which("node") is None, "node is not installed")
class Node(unittest.TestCase):
    def test_a_client_and_its_actor_talk(self):
        with driver() as made:
            # Older ones have it behind a flag, others do not know the flag.
            for flags in (["--experimental-websocket"], []):
                ran = subprocess.run(["node", *flags, "-e", NODE, made.ws("/actor/chat/a")], capture_output=True, text=True,
                                     timeout=PATIENCE_S, check=False)
                if "bad option" not in ran.stderr:
                    break
            if ran.stdout.strip() == "none":
                self.skipTest("this node has no WebSocket")
            self.assertEqual(ran.stdout.strip(), "good", ran.stderr)
            self.assertEqual(made.end()["closed"], [4003])


def main():
    loader = unittest.defaultTestLoader
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in (PythonWebsockets, Curl, Tls, Node))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, why in result.skipped:
        print(f"skipped: {test}: {why}")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    os.environ.pop("NODE_OPTIONS", None)
    sys.exit(main())
