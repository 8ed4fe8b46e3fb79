"""Too little of something: a /dev/shm of a page, limits below what a node needs, a disk that fills up under load, messages at
their largest. And leftovers that fit nobody: a plugin of another build, files of another user."""
import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time

from guests import UNRULY
from harness import BIN, LONG, Case, Load, wait_for

try:
    import websockets
except ImportError:
    websockets = None

PAYLOAD = 48 * 1024       # the inline limit of a body, a call's body, its answer, a state
SEND_MOST = PAYLOAD - 48 - len("unruly/peer") - len("keep")   # what a message costs beside its bytes (docs/guest-abi.md)
NEVER = (-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGXFSZ)


class Mounted(Case):
    """A file system of a fixed size at a place of the node's, gone after the test."""

    def setUp(self):
        super().setUp()
        self.mounts = []

    def tearDown(self):
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.stop(signal.SIGKILL)
            for stream in ("out", "err"):
                if hasattr(node, stream):
                    getattr(node, stream).close()
        for path in reversed(self.mounts):
            subprocess.run(["umount", path], check=True)
        super().tearDown()

    def mount(self, path, options):
        os.makedirs(path, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options + ",mode=755", "holdfast-test", path], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            self.skipTest("no file system of a fixed size may be mounted here: " + done.stderr.strip())
        self.mounts.append(path)

    @staticmethod
    def fill(directory):
        """The last byte of it; the file that took them."""
        ballast = os.path.join(directory, "ballast")
        with open(ballast, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while file.write(bytes(65536)):
                    pass
            with contextlib.suppress(OSError):
                while file.write(b"x"):
                    pass
        return ballast

    def ready_or_named(self, node, *names, stays=False, **kw):
        """Ready, or an end that is no crash with one of the names on stderr; `stays`: such a line will do."""
        node.start(wait=False, **kw)
        address = os.path.join(node.data, "run", "address")
        serves = re.compile(r"serves on http://(\S+)")

        def announced():
            with open(os.path.join(node.dir, "stdout"), encoding="utf-8") as file:
                return serves.search(file.read())

        def told():
            return any(name in node.stderr() for name in names)
        wait_for("it is ready or has ended", lambda: node.process.poll() is not None or announced() or (stays and told()), 20)
        if node.process.poll() is None and announced() is None:
            return False
        if node.process.poll() is None:
            node.address = announced().group(1)
            node.host, port = node.address.rsplit(":", 1)
            node.port = int(port)
            if not os.path.exists(address) or not os.path.getsize(address):
                self.assertTrue(told(), node.stderr()[-800:])
            return True
        code = node.process.returncode
        self.assertNotIn(code, (0, *NEVER), node.stderr()[-800:])
        self.assertGreater(code, 0, f"it was ended by a signal: {node.stderr()[-800:]}")
        self.assertTrue(told(), node.stderr()[-800:])
        return False


class SharedMemory(Mounted):
    """What a link needs is taken when it is made, from the kernel's own file system: /dev/shm plays no part."""

    def test_a_dev_shm_of_one_page_does_not_matter(self):
        size = "mount -t tmpfs -o size={} holdfast-test /dev/shm && exec \"$@\""
        probe = subprocess.run(["unshare", "-m", "sh", "-c", size.format("4k"), "sh", "true"], capture_output=True, text=True, check=False)
        if probe.returncode != 0:
            self.skipTest("no mount namespace here: " + probe.stderr.strip())
        for number, room in enumerate(("4k", "1m")):
            node = self.node(name=f"node{number}", wrapper=("unshare", "-m", "sh", "-c", size.format(room), "sh"))
            for count in range(1, 51):
                self.assertEqual(node.post("/actor/counter/a")[::2], (200, b"%d\n" % count))
            self.assertEqual(os.listdir(f"/proc/{node.pid}/root/dev/shm"), [])
            os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
            self.assertEqual(node.post("/actor/counter/a")[::2], (200, b"51\n"), "another link is made")
            self.common_checks(node)
            self.assertEqual(node.stop(), 0)

    def test_segments_have_no_name_that_could_be_left(self):
        node = self.node()
        segments = set()
        for fd in os.listdir(f"/proc/{node.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                target = os.readlink(f"/proc/{node.pid}/fd/{fd}")
                segments.update([target] if "memfd" in target else [])
        with open(f"/proc/{node.pid}/maps", encoding="utf-8") as file:
            segments.update(line.split(None, 5)[5].strip() for line in file if "memfd" in line)
        self.assertTrue([s for s in segments if "holdfast-p" in s], segments)
        self.assertFalse([s for s in segments if not s.startswith("/memfd:") or not s.endswith("(deleted)")], segments)

    def test_limits_below_its_need_are_told_and_kill_nothing(self):
        for number, (limit, sizes, names) in enumerate((
                ("--fsize", (4096, 65536, 1 << 20), ("File too large",)),
                ("--memlock", (0,), ()),
                ("--nofile", (8, 24, 63), ("needs at least 64",)))):
            for size in sizes:
                with self.subTest(limit=limit, size=size):
                    node = self.node(name=f"node{number}-{size}", start=False)
                    if self.ready_or_named(node, *names, wrapper=("prlimit", f"{limit}={size}:{size}")):
                        self.assertEqual(node.post("/actor/counter/a")[0], 200)
                        node.stop()

    def test_a_memory_group_below_its_need_refuses_the_start_with_both_figures(self):
        """Else the kernel ends it with SIGKILL while it takes memory for its links, and nobody is told."""
        top = "/sys/fs/cgroup/memory"
        if not os.path.exists(os.path.join(top, "memory.limit_in_bytes")):
            self.skipTest("no control groups v1 with memory here; the unit test has those of v2")
        for size in (16, 48, 60, 128):
            with self.subTest(mib=size):
                group = os.path.join(top, f"holdfast-test-{os.getpid()}-{size}")
                try:
                    os.mkdir(group)
                except OSError as error:
                    self.skipTest(f"no group may be made here: {error}")
                self.addCleanup(os.rmdir, group)
                with open(os.path.join(group, "memory.limit_in_bytes"), "w", encoding="ascii") as file:
                    file.write(str(size << 20))
                node = self.node(name=f"node{size}", start=False)
                enter = ("sh", "-c", f"echo $$ > {group}/cgroup.procs && exec \"$@\"", "sh")
                if self.ready_or_named(node, "of memory, and " + group, wrapper=enter):
                    self.assertEqual(size, 128)
                    self.assertEqual(node.post("/actor/counter/a")[0], 200)
                    self.assertEqual(node.stop(), 0)
                else:
                    self.assertLess(size, 128)
                    self.assertRegex(node.stderr(), r"take at least \d+ MiB of memory, and \S+ leaves \d+ MiB")

    def test_a_run_directory_without_room_is_told(self):
        """The address and the socket; 2 inodes are the directory and one of them."""
        for number, options in enumerate(("size=4k", "size=64k,nr_inodes=2")):
            with self.subTest(options=options):
                node = self.node(name=f"node{number}", start=False)
                run = os.path.join(node.data, "run")
                self.mount(run, options)
                if self.ready_or_named(node, run):
                    self.assertEqual(node.post("/actor/counter/a")[0], 200)
                    self.assertEqual(node.stop(), 0)


class Disk(Mounted):
    HOLD_S = 30 if LONG else 5
    SERVICE_S = 5   # from room on the disk to full service

    def test_the_data_directory_fills_up_under_load(self):
        """Store, state, logs, copies of builds: all on one disk without a byte left."""
        node = self.node(classes=("counter", "ledger"), start=False)
        self.mount(node.data, "size=96m")
        node.start()
        pid, fds = node.pid, node.fds()
        for name in ("kept", "written"):
            self.assertEqual(node.post(f"/actor/counter/{name}")[2], b"1\n")
        load = Load(node, actors=8, threads=3, rate=200).start()
        wait_for("the load runs", lambda: load.count() > 50)
        ballast = self.fill(node.data)
        full = time.monotonic()
        wait_for("writes are refused", lambda: load.count(503) > 20)
        os.kill(node.plugin_pid("placement"), signal.SIGKILL)   # what starts anew finds no room either
        while time.monotonic() < full + self.HOLD_S:
            self.assertEqual(node.http("GET", "/actor/counter/kept")[::2], (200, b"1\n"), "reads go on")
            status, headers, body = node.post("/actor/counter/written")
            if status == 200:
                continue   # pages that were freed within the store
            self.assertEqual(status, 503, body)
            self.assertIn("retry-after", headers)
            self.assertIn(b"full", body)
        self.assertEqual(node.plugins()["storage"]["restarts"], 0)
        answered = load.count()
        value = int(node.http("GET", "/actor/counter/written")[2])
        os.unlink(ballast)
        freed = time.monotonic()
        wait_for("writes go on", lambda: node.post("/actor/counter/written")[0] == 200, self.SERVICE_S)
        wait_for("the load is answered again", lambda: load.count() > answered + 20, max(0.5, freed + self.SERVICE_S - time.monotonic()))
        load.stop()
        load.verify(self, allow=(200, 503))
        self.assertEqual(int(node.http("GET", "/actor/counter/written")[2]), value + 1)
        wait_for("placement serves", lambda: node.plugins()["placement"]["state"] == "serving")
        self.common_checks(node, pid, fds)
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.post("/actor/counter/written")[::2], (200, b"%d\n" % (value + 2)))
        self.assertEqual(node.http("GET", "/actor/counter/kept")[2], b"1\n")
        self.common_checks(node)
        self.assertEqual(node.stop(), 0)

    def test_a_start_without_room_is_told(self):
        for number, size in enumerate(("4k", "256k", "2m", "8m")):
            with self.subTest(size=size):
                node = self.node(name=f"node{number}", start=False)
                self.mount(node.data, f"size={size}")
                self.assertFalse(self.ready_or_named(node, "No space left"))

    def test_a_part_of_the_data_directory_without_room_is_told(self):
        """Ready, ended by name, or, as with a damaged store, up and saying what is wrong."""
        for part, size in (("state", "4k"), ("log", "4k"), ("modules", "16k"), ("builds", "64k"), ("store", "4k"), ("store", "64k")):
            with self.subTest(part=part, size=size):
                node = self.node(name=f"node-{part}-{size}", start=False)
                self.mount(os.path.join(node.data, part), f"size={size}")
                if self.ready_or_named(node, "No space left", "full", stays=True):
                    self.assertIn(node.post("/actor/counter/a")[0], (200, 503))
                node.stop()


class Messages(Case):
    """Between actors: the same bounds as for clients, in both directions, intact up to the last byte."""

    def test_bodies_of_calls_answers_and_messages_at_their_limits(self):
        node = self.node({"class.unruly": {"module": UNRULY}})
        for size in (0, 1, 16 * 1024, PAYLOAD - 1, PAYLOAD):
            self.assertEqual(node.post(f"/actor/unruly/caller/carry?{size}")[::2], (200, b"same\n"), size)
            self.assertEqual(node.post(f"/actor/unruly/caller/fetch?{size}")[::2], (200, b"%d\n" % size), size)
        status, _, body = node.post(f"/actor/unruly/caller/carry?{PAYLOAD + 1}")
        self.assertEqual(status, 507, body)
        self.assertIn(b"call_bytes: 49152 allowed, 49153 asked for", body)
        self.assertEqual(node.post(f"/actor/unruly/caller/fetch?{PAYLOAD + 1}")[::2], (502, b"6\n"), "the callee failed")
        for size in (0, 1, SEND_MOST - 1, SEND_MOST):
            self.assertEqual(node.post(f"/actor/unruly/caller/mail?{size}")[0], 202)
            total = sum((i * 7 + size) & 0xFF for i in range(size))
            wait_for(f"{size} bytes arrived", lambda want=b"%d %d" % (size, total): node.http("GET", "/actor/unruly/peer/mailed")[2] == want)
        status, _, body = node.post(f"/actor/unruly/caller/mail?{SEND_MOST + 1}")
        self.assertEqual(status, 507, body)
        self.assertIn(b"send_bytes: 49152 allowed, 49153 asked for", body)
        self.assertEqual(node.status()["stats"]["messages_applied"], 4)
        self.common_checks(node)


    def test_messages_of_a_websocket_at_their_limits(self):
        if websockets is None:
            self.skipTest("python3-websockets is not here")
        node = self.node({"class.unruly": {"module": UNRULY}})
        gateway = node.plugin_pid("gateway")

        async def talk():
            url = f"ws://{node.address}/actor/unruly/socket"
            async with websockets.connect(url, max_size=None) as client:
                for size in (0, 1, 16 * 1024, PAYLOAD - 1, PAYLOAD):
                    for message in (os.urandom(size), "t" * size):
                        await client.send(message)
                        self.assertEqual(await asyncio.wait_for(client.recv(), 30), message, size)
                await client.send(bytes(PAYLOAD + 1))
                with self.assertRaises(websockets.ConnectionClosed):
                    await asyncio.wait_for(client.recv(), 30)
                self.assertEqual(client.close_code, 1009)
        asyncio.run(talk())
        self.assertEqual(node.plugin_pid("gateway"), gateway)
        self.common_checks(node)


class Strangers(Case):
    SEGMENT_MAGIC, ATTACH_MAGIC = b"HFSEGM01", b"HFATTACH"

    def of_another_build(self, magic):
        """The scheduler as a build with another layout would have it: the first word it expects is another one."""
        with open(os.path.join(BIN, "scheduler"), "rb") as file:
            program = file.read()
        self.assertIn(magic, program)
        path = os.path.join(self.dir, "scheduler-" + magic.decode())
        with open(path, "wb") as file:
            file.write(program.replace(magic, magic[:-1] + b"~"))
        os.chmod(path, 0o755)
        return path

    def test_a_plugin_of_another_layout_is_refused_by_name(self):
        for magic, says in ((self.SEGMENT_MAGIC, "segment of the link"), (self.ATTACH_MAGIC, "must be built together")):
            with self.subTest(magic=magic):
                other = self.of_another_build(magic)
                node = self.node(name="swapped-" + magic.decode())
                pid, fds = node.pid, node.fds()
                code, _, said = node.cli("swap", "placement", "--binary", other, "--policy", "least-loaded", check=False)
                self.assertEqual(code, 1, said)
                self.assertIn(says, said)
                self.assertEqual(node.plugins()["placement"]["policy"], "rendezvous")
                self.common_checks(node, pid, fds)
                node.stop()
                # As the configured one: the node serves, with the built-in policy, and says why.
                node = self.node({"plugin.placement": {"binary": other}}, name="configured-" + magic.decode())
                self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
                wait_for("it is told", lambda n=node, s=says: s in (n.plugins()["placement"]["last_exit"] or ""))
                self.assertEqual(node.status()["policies"]["placement"], "built-in default")
                node.stop()

    def test_files_of_another_user_are_named_and_left_alone(self):
        if os.getuid() != 0:
            self.skipTest("needs root to make another user's files")
        node = self.node()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        node.stop()
        bin_copy, module = os.path.join(self.dir, "bin"), os.path.join(self.dir, "counter.wasm")
        subprocess.run(["cp", "-r", BIN, bin_copy], check=True)
        shutil.copy(node.tables["class.counter"]["module"], module)
        node.tables["class.counter"]["module"] = module
        node.write_config()

        def as_nobody():
            node.out = open(os.path.join(node.dir, "stdout"), "ab")
            node.err = open(os.path.join(node.dir, "stderr-nobody"), "wb")
            node.process = subprocess.Popen(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                                             os.path.join(bin_copy, "holdfastd"), "--config", node.config],
                                            stdin=subprocess.DEVNULL, stdout=node.out, stderr=node.err, cwd=node.dir)

        def said():
            with open(os.path.join(node.dir, "stderr-nobody"), encoding="utf-8", errors="replace") as file:
                return file.read()
        # The directories are its own, what lies in them is root's with mode 0600.
        for base, directories, files in os.walk(node.data):
            for name in files:
                os.chmod(os.path.join(base, name), 0o600)
                os.chown(os.path.join(base, name), 0, 0)
            for path in (base, *(os.path.join(base, d) for d in directories)):
                shutil.chown(path, "nobody", "nogroup")
        before = sorted(os.path.join(base, name) for base, _, files in os.walk(node.data) for name in files)
        as_nobody()
        self.assertNotEqual(node.process.wait(timeout=10), 0)
        self.assertRegex(said(), re.escape(node.data) + r"/\S+")
        self.assertIn("Permission denied", said())
        self.assertEqual([p for p in before if not os.path.exists(p)], [], "what is another's is not deleted")
        subprocess.run(["chown", "-R", "nobody:nogroup", node.dir], check=True)
        as_nobody()
        node.wait_ready()
        self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
        self.assertEqual(node.stop(), 0)
