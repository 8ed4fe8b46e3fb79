"""Starts, stops, leftovers and descriptors: what a supervisor must never leave behind or trip over."""
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

from harness import BIN, LONG, Case, Load, alive, descendants, wait_for


class Orphans(Case):
    def family(self, node):
        out = descendants(node.pid)
        self.assertGreaterEqual(len(out), 6)
        return out

    def test_kill_9_of_the_supervisor_leaves_no_process(self):
        node = self.node()
        family = self.family(node)
        node.process.kill()
        node.process.wait()
        wait_for(f"all of {family} end", lambda: not [p for p in family if alive(p)], 5)

    def test_term_and_interrupt_end_everything_with_exit_code_0(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            node = self.node(name=f"node{number}")
            node.post("/actor/counter/alice")
            self.assertEqual(node.stop(number), 0)

    def test_interrupt_to_the_whole_group_still_stops_in_order(self):
        node = self.node(start=False)
        node.start(wrapper=("setsid",))   # a group of its own, as a terminal gives
        family = descendants(node.pid)
        self.assertEqual(node.post("/actor/counter/alice")[2], b"1\n")
        os.killpg(os.getpgid(node.pid), signal.SIGINT)
        node.process.wait(timeout=30)
        wait_for("all end", lambda: not [p for p in family if alive(p)], 5)
        node.start()
        self.assertEqual(node.post("/actor/counter/alice")[2], b"2\n")

    def test_as_pid_1_it_gathers_no_zombies(self):
        node = self.node({"restart": {"intensity": "off"}}, start=False)
        node.start(wrapper=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
        inner = wait_for("holdfastd runs", lambda: descendants(node.pid))[0]
        kills = 0
        while kills < 50:
            # From outside the pid namespace: the plugins are grandchildren of holdfastd.
            for jail in [p for p in descendants(inner)]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(jail, signal.SIGKILL)
                    kills += 1
            wait_for("the node serves again", lambda: self.counts(node))

        def zombies():
            out = []
            for pid in descendants(inner):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                        if file.read().rsplit(")", 1)[1].split()[0] == "Z":
                            out.append(pid)
            return out
        wait_for("no zombie is left", lambda: not zombies(), 2)

    def counts(self, node):
        with contextlib.suppress(OSError, Exception):
            return node.post("/actor/counter/zombies", timeout=5)[0] == 200
        return False

    def test_a_second_daemon_on_one_data_directory_is_refused_and_hurts_nothing(self):
        node = self.node()
        node.post("/actor/counter/alice")
        second = subprocess.run([os.path.join(BIN, "holdfastd"), "--config", node.config], capture_output=True, text=True,
                                timeout=10, check=False)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(str(node.pid), second.stderr)
        self.assertIn(node.data, second.stderr)
        self.common_checks(node, node.pid)

    def test_two_nodes_on_one_exclusive_store_the_second_is_refused_by_name(self):
        node = self.node()
        store = os.path.join(node.data, "store")
        other = self.node({"plugin.storage": {"path": store}, "node": {"id": "n2"}}, name="other", start=False)
        other.start(wait=False)
        self.assertNotEqual(other.process.wait(timeout=10), 0)
        self.assertIn(store, other.stderr())
        self.common_checks(node, node.pid)


class Inherited(Case):
    def test_what_its_starter_left_it_does_not_matter(self):
        """Standard streams closed, signals ignored and blocked, a umask that forbids everything."""
        careless = ("import os, signal, sys\n"
                    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\n"
                    "for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):\n"
                    "    signal.signal(number, signal.SIG_IGN)\n"
                    "os.umask(0o777)\n"
                    "os.closerange(0, 3)\n"
                    "os.execv(sys.argv[1], sys.argv[1:])\n")
        node = self.node(wrapper=(sys.executable, "-c", careless))
        for name in (0, 1, 2):
            self.assertEqual(os.readlink(f"/proc/{node.pid}/fd/{name}"), "/dev/null")
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
        self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
        self.common_checks(node)
        self.assertEqual(node.stop(), 0)


class Leftovers(Case):
    def test_kill_of_everything_at_once_then_start(self):
        node = self.node()
        for expected in range(1, 6):
            self.assertEqual(node.post("/actor/counter/a")[2], b"%d\n" % expected)
        for _ in range(3):
            for pid in [*descendants(node.pid), node.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            node.process.wait()
            node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"6\n")

    def start_or_one_line(self, node, names):
        """Ready in 10 s, or an end at once with a line that names the file."""
        node.start(wait=False)
        address = os.path.join(node.data, "run", "address")

        def decided():
            return node.process.poll() is not None or os.path.exists(address)
        wait_for("it is ready or has ended", decided, 10)
        if node.process.poll() is None:
            node.wait_ready()
            return True
        self.assertNotEqual(node.process.returncode, 0)
        self.assertTrue(any(name in node.stderr() for name in names), node.stderr()[-800:])
        return False

    def test_sockets_replaced_by_a_file_a_dangling_link_a_dead_socket(self):
        node = self.node()
        control = os.path.join(node.data, "run", "control.sock")
        node.stop(signal.SIGKILL)
        # A socket of ours that nobody listens on is replaced.
        self.assertTrue(self.start_or_one_line(node, [control]))
        node.stop()
        with open(control, "w", encoding="ascii") as file:
            file.write("precious")
        self.assertFalse(self.start_or_one_line(node, [control]))
        with open(control, encoding="ascii") as file:
            self.assertEqual(file.read(), "precious", "a foreign file is reported, not deleted")
        os.unlink(control)
        os.symlink("/nowhere/at/all", control)
        self.assertFalse(self.start_or_one_line(node, [control]))
        os.unlink(control)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(control)
        self.assertTrue(self.start_or_one_line(node, [control]))

    def test_state_files_damaged_in_three_ways(self):
        node = self.node()
        node.post("/actor/counter/a")
        node.stop(signal.SIGKILL)
        state = os.path.join(node.data, "state")
        names = sorted(name for name in os.listdir(state) if os.path.isfile(os.path.join(state, name)))
        self.assertTrue(names)
        expected = 1
        for name in names:
            path = os.path.join(state, name)
            if not os.path.exists(path):
                continue
            with open(path, "rb") as file:
                good = file.read()
            for bad in (b"", os.urandom(300), good[:len(good) // 2]):
                with open(path, "wb") as file:
                    file.write(bad)
                node.start()
                expected += 1
                self.assertEqual(node.post("/actor/counter/a")[2], b"%d\n" % expected, name)
                node.stop(signal.SIGKILL)
                copies = [n for n in os.listdir(state) if n.startswith(name + ".bad")]
                if bad:
                    self.assertTrue(copies, f"{name}: bad state is set aside with a copy kept")

    def test_stopped_in_start_up_and_killed(self):
        node = self.node(start=False)
        for delay in (0.0, 0.01, 0.05, 0.2):
            node.start(wait=False)
            time.sleep(delay)   # a moment within start-up, not synchronisation
            node.process.send_signal(signal.SIGSTOP)
            node.process.kill()
            node.process.wait()
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")

    def test_a_damaged_store_is_refused_and_kept(self):
        node = self.node()
        node.post("/actor/counter/a")
        node.stop()
        path = os.path.join(node.data, "store", "data.mdb")
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            file.truncate(8192 + 100)
        node.start(wait=False)
        wait_for("the damage is named", lambda: "data.mdb" in node.stderr(), 10)
        self.assertIsNone(node.process.poll(), "the node stays up to say so")
        wait_for("readyz says no", lambda: not os.path.exists(os.path.join(node.data, "run", "address")), 2)
        node.stop()
        self.assertTrue(os.path.exists(path))
        self.assertLess(os.path.getsize(path), size)


class Descriptors(Case):
    def test_restarts_leak_no_descriptor_and_no_mapping(self):
        node = self.node({"restart": {"intensity": "off"}}, classes=("counter", "ledger"))
        load = Load(node, actors=4, threads=2, rate=100).start()
        wait_for("the load runs", lambda: load.count() > 10)

        def maps():
            with open(f"/proc/{node.pid}/maps", encoding="ascii") as file:
                return sum(1 for _ in file)
        kills = 500 if LONG else 60

        def kill(count):
            for _ in range(count):
                pid = node.plugin_pid("placement")
                os.kill(pid, signal.SIGKILL)
                wait_for("another one serves", lambda: node.plugin_pid("placement") != pid)
        kill(20)
        fds_before, maps_before = node.fds(), maps()
        kill(kills)
        load.stop()
        wait_for("descriptors as before", lambda: abs(node.fds() - fds_before) <= 5)
        self.assertLessEqual(abs(maps() - maps_before), 15)
        load.verify(self)

    def test_a_plugin_holds_only_its_own(self):
        node = self.node()
        listeners = set()
        for row in node.plugins().values():
            for instance in row["instances"]:
                pid, kinds = instance["pid"], {}
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    with contextlib.suppress(FileNotFoundError):
                        kinds[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
                text = " ".join(kinds.values())
                if row["name"] != "storage":
                    self.assertNotIn("data.mdb", text)
                    self.assertNotIn("lock", text.replace("clock", ""))
                memory = [k for k in kinds.values() if "memfd" in k]
                self.assertLessEqual(len(memory), 2 if row["name"] != "runtime" else 6, (row["name"], kinds))
                sockets = {k for k in kinds.values() if k.startswith("socket:")}
                self.assertLessEqual(len(sockets), 2 if row["name"] == "gateway" else 1, (row["name"], kinds))
                listeners.add(row["name"]) if len(sockets) > 1 else None
        self.assertEqual(listeners, {"gateway"})

    def test_the_port_is_free_at_once_after_the_end(self):
        node = self.node()
        node.post("/actor/counter/a")
        host, port = node.host, node.port
        node.stop(signal.SIGKILL)
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, port))
            other.listen()

    def test_a_low_descriptor_limit_gives_clean_errors(self):
        node = self.node({"plugin.runtime": {"instances": 64}}, start=False)
        node.start(wait=False, wrapper=("prlimit", "--nofile=64:64"))
        wait_for("the trouble is named", lambda: "Too many open files" in node.stderr() or "could not be started" in
                 node.stderr(), 20)
        self.assertIsNone(node.process.poll(), "it neither crashes nor hangs")
        node.stop()


class BadConfigurations(Case):
    BAD = {
        "mistyped table": '[plugin.storge]\nuse = "storage-local"\n',
        "mistyped key": '[node]\nstroage = "s3"\n',
        "wrong case": '[plugin.storage]\nuse = "Storage-Local"\n',
        "hyphen for underscore": '[plugin.storage]\nuse = "storage-local"\nmap-bytes = "1GiB"\n',
        "key in the wrong table": '[node]\nmap_bytes = "1GiB"\n',
        "same key twice": '[node]\nid = "a"\nid = "b"\n',
        "same table twice": '[node]\nid = "a"\n[node]\ntenant = "b"\n',
        "dotted key re-opens": '[node]\nid = "a"\n[limits]\n[node.limits]\nx = 1\n',
        "text for a duration": '[limits]\nrequest_timeout = "10"\n',
        "number for a duration": '[limits]\nrequest_timeout = 10\n',
        "float": '[limits]\nmailbox_events = 10.5\n',
        "negative": '[limits]\nmailbox_events = -1\n',
        "zero": '[limits]\nmailbox_events = 0\n',
        "leading zero": '[limits]\nmailbox_events = 01\n',
        "double underscore": '[limits]\nmailbox_events = 1__0\n',
        "date": '[limits]\nmailbox_events = 1979-05-27\n',
        "trailing comma": '[plugin.storage]\nuse = "storage-local"\nsettings = { a = 1, }\n',
        "nul byte": '[node]\nid = "a\0b"\n',
        "two plugins for a slot": '[plugin.storage]\nuse = "storage-local"\n[plugin.storage]\nuse = "storage-local"\n',
    }

    def check(self, content, path=None):
        path = path or os.path.join(self.dir, "bad.toml")
        if content is not None:
            with open(path, "wb") as file:
                file.write(content if isinstance(content, bytes) else content.encode())
        return subprocess.run([os.path.join(BIN, "holdfast"), "config", "check", path], capture_output=True, text=True,
                              timeout=20, check=False)

    def test_each_bad_file_is_refused_with_its_place(self):
        for name, content in self.BAD.items():
            with self.subTest(name):
                done = self.check(content)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertRegex(done.stdout + done.stderr, r"bad\.toml:\d+:\d+")

    def test_nearest_names_are_told(self):
        for content, nearest in (('[plugin.storge]\nuse = "storage-local"\n', "storage"),
                                 ('[limits]\nmailbox_event = 3\n', "mailbox_events"),
                                 ('[plugin.storage]\nuse = "storage_local"\n', "storage-local")):
            done = self.check(content)
            self.assertIn(nearest, done.stdout + done.stderr)

    def test_files_that_are_none(self):
        cases = {"missing": os.path.join(self.dir, "nope.toml"), "directory": self.dir}
        for name, path in cases.items():
            with self.subTest(name):
                done = self.check(None, path)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(path, done.stdout + done.stderr)
        for name, content in (("empty", b""), ("utf-8", b'[node]\nid = "\xff\xfe"\n'), ("10 MB", b"# x\n" * 2_500_000)):
            with self.subTest(name):
                self.assertEqual(self.check(content).returncode, 2)

    def test_good_odd_files_work(self):
        node = self.node(start=False, name="näme with spaces ü")
        with open(node.config, "rb") as file:
            good = file.read()
        for name, content in (("crlf", good.replace(b"\n", b"\r\n")), ("bom", b"\xef\xbb\xbf" + good)):
            with self.subTest(name):
                path = os.path.join(node.dir, "ü file.toml")
                done = self.check(content, path)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")

    def test_the_daemon_refuses_the_same_and_starts_nothing(self):
        node = self.node(start=False)
        with open(node.config, "a", encoding="ascii") as file:
            file.write("[limitz]\nx = 1\n")
        node.start(wait=False)
        self.assertEqual(node.process.wait(timeout=10), 2)
        self.assertIn("limitz", node.stderr())
        self.assertFalse(os.path.exists(node.data), "nothing was started or made")

    def test_show_tells_origins(self):
        node = self.node()
        shown = node.cli("config", "show")
        rows = {(v["table"], v["key"]): v for v in shown["values"]}
        self.assertEqual(rows[("plugin.runtime", "instances")]["origin"], "file")
        self.assertIn("default", json.dumps(rows[("limits", "mailbox_events")]))


class OrdinaryUser(Case):
    def test_it_serves_without_root_and_lists_the_missing_walls(self):
        if os.getuid() != 0:
            self.skipTest("this machine's user is an ordinary one already: every other test shows it")
        node = self.node(start=False)
        bin_copy = os.path.join(self.dir, "bin")
        subprocess.run(["cp", "-r", BIN, bin_copy], check=True)
        actors = os.path.join(self.dir, "actors")
        os.makedirs(actors)
        for name in ("counter",):
            subprocess.run(["cp", node.tables[f"class.{name}"]["module"], actors], check=True)
            node.tables[f"class.{name}"]["module"] = os.path.join(actors, name + ".wasm")
        node.write_config()
        subprocess.run(["chown", "-R", "nobody", node.dir], check=True)
        node.out = open(os.path.join(node.dir, "stdout"), "ab")
        node.err = open(os.path.join(node.dir, "stderr"), "ab")
        node.process = subprocess.Popen(["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
                                         os.path.join(bin_copy, "holdfastd"), "--config", node.config],
                                        stdin=subprocess.DEVNULL, stdout=node.out, stderr=node.err, cwd=node.dir)
        node.wait_ready()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        walls = node.status()["missing_walls"]
        self.assertTrue(walls, "an ordinary user has fewer walls, and status says which")
        node.stop()
