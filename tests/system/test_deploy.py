"""Another module for a class of a node that serves: nothing is lost or counted twice, what is bad leaves the old one in charge,
and what was deployed is still there after a restart."""
import json
import os
import shutil
import signal
import subprocess
import time

from harness import BIN, Case, Clients, children, descendants, wait_for
from modules import STEP, compiled, counter, parts
from test_swap import refused

V0 = os.path.join(os.path.dirname(os.path.abspath(BIN)), "examples", "actors", "counter.wasm")
# A window that no test outwaits: the swap stays undecided until something happens.
UNDECIDED = {"swap": {"answers": 100000, "window": "10m"}}


class Counting(Clients):
    """Each thread counts on actors of its own, so that a gap or a double shows."""

    def __init__(self, node, threads=4, actors=3, rate=80):
        super().__init__(node, threads, rate)
        self.actors, self.turns = actors, [0] * threads
        self.bad, self.seen, self.counts = [], [], {}

    def request(self, number):
        name = f"t{number}n{self.turns[number] % self.actors}"
        self.turns[number] += 1
        return name, "POST", f"/actor/counter/{name}", {}

    def heard(self, name, status, body):
        if status != 200:
            return self.bad.append((name, status, body))
        version, count = parts(body)
        self.seen.append(version)
        if count != self.counts.get(name, 0) + 1:
            self.bad.append((name, "after", self.counts.get(name, 0), "came", count))
        self.counts[name] = count
        return None

    def answered(self):
        with self.lock:
            return len(self.seen)

    def versions(self):
        with self.lock:
            return sorted(set(self.seen))

    def more(self, count=30):
        before = self.answered()
        wait_for("answers go on", lambda: self.answered() >= before + count or self.bad, 30)

    def stop(self, test):
        super().stop()
        test.assertFalse(self.bad[:5], "an answer was lost, doubled or no 200")
        return self


class Background:
    """A command that is still under way, and what it said."""

    def __init__(self, test, node, *args):
        self.process = subprocess.Popen([os.path.join(BIN, "holdfast"), "--node", node.data, *args, "--json"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        test.extra.append(self.process)

    def end(self):
        said, _ = self.process.communicate(timeout=60)
        return self.process.returncode, said


class Deploy(Case):
    def v(self, number, more=""):
        return counter(self.dir, number, more)

    def version(self, node, actor="probe"):
        status, _, body = node.http("GET", f"/actor/counter/{actor}")
        self.assertEqual(status, 200, body)
        return parts(body)[0]

    def row(self, node):
        return next(row for row in node.status()["classes"] if row["class"] == "counter")

    def runtimes(self, node):
        return [row["pid"] for row in node.plugins()["runtime"]["instances"]]

    def test_a_new_version_under_load_loses_and_doubles_nothing(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        load = Counting(node).start()
        load.more(100)
        begun = time.monotonic()
        before = load.answered()
        said = node.cli("deploy", "counter", self.v(1), timeout=120)
        rate = (load.answered() - before) / (time.monotonic() - begun)
        self.assertGreater(rate, 50, "requests a second while the new version came")
        self.assertEqual(said["module"], self.row(node)["module"])
        self.assertTrue(self.row(node)["deployed"])
        load.more(60)
        self.assertEqual(self.version(node), 1)
        said = node.cli("deploy", "counter", "--rollback", timeout=120)
        load.more(60)
        self.assertEqual(self.version(node), 0)
        load.stop(self)
        self.assertEqual(load.versions(), [0, 1])
        # Each actor says what its client saw last.
        for name, count in load.counts.items():
            self.assertEqual(parts(node.http("GET", f"/actor/counter/{name}")[2]), (0, count))
        wait_for("the old instances are gone", lambda: len(children(node.pid)) == 6, 40)
        self.common_checks(node, pid, fds)

    def test_what_was_deployed_is_there_after_a_restart_until_it_is_reset(self):
        node = self.node()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        module = self.v(1)
        node.cli("deploy", "counter", module, timeout=120)
        os.unlink(module)   # the node has its own copy
        self.assertEqual(int(node.post("/actor/counter/a")[2]), STEP + 2)
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(int(node.post("/actor/counter/a")[2]), STEP + 3)
        node.process.kill()
        node.process.wait()
        node.start()
        self.assertEqual(int(node.post("/actor/counter/a")[2]), STEP + 4)
        node.cli("deploy", "counter", self.v(2), timeout=120)
        node.cli("deploy", "counter", "--rollback", timeout=120)
        self.assertEqual(int(node.post("/actor/counter/a")[2]), STEP + 5)
        node.cli("deploy", "counter", "--reset", timeout=120)
        self.assertEqual(node.post("/actor/counter/a")[2], b"6\n")
        self.assertFalse(self.row(node)["deployed"])
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"7\n")
        # The runtime's last change was a deploy: its roll-back takes that back, for good.
        node.cli("deploy", "counter", self.v(2), timeout=120)
        node.cli("rollback", "runtime")
        self.assertEqual(node.post("/actor/counter/a")[2], b"8\n")
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"9\n")

    def test_a_deploy_that_could_not_be_written_down_is_by_the_next_one(self):
        node = self.node()
        draft = os.path.join(node.data, "state", "deployed.json.tmp")
        os.mkdir(draft)
        self.assertIn("was not written down", refused(self, node, "deploy", "counter", self.v(1)))
        self.assertEqual(self.version(node), 1)
        self.assertIn("deployed.json", refused(self, node, "deploy", "counter", self.v(1)))
        os.rmdir(draft)
        self.assertIn("already runs", node.cli("deploy", "counter", self.v(1))["text"])
        node.process.kill()
        node.process.wait()
        node.start()
        self.assertEqual(self.version(node), 1)
        self.common_checks(node)

    def test_what_a_power_cut_must_not_take_is_synced_with_the_name_by_which_it_is_found(self):
        node = self.node(start=False)
        trace = os.path.join(self.dir, "trace")
        # The tracer is no parent of the node: signals and exit codes are the node's own.
        node.start(wrapper=("strace", "-D", "-y", "-s", "4096", "-o", trace, "-e", "trace=fsync,fdatasync,rename"))
        node.cli("deploy", "counter", self.v(1), timeout=120)
        node.stop()
        with open(trace, encoding="utf-8", errors="replace") as file:
            done = [line for line in file if line.rstrip().endswith("= 0")]
        self.assertTrue(done, "strace may not trace here")

        def first(*words):
            return next((at for at, line in enumerate(done) if all(word in line for word in words)), None)
        journal = os.path.join(node.data, "journal")
        self.assertIsNotNone(first("fsync", f"<{journal}>"), "the journal's file has its name")
        self.assertIsNotNone(first("fsync", f"<{node.data}>"), "and its directory")
        wasm = self.row(node.start())["wasm_sha256"]
        modules = os.path.join(node.data, "modules")
        written = first("fsync", f"{wasm}.wasm.new")
        renamed = first("rename", f"{wasm}.wasm\"")
        named = next((at for at, line in enumerate(done) if at > (renamed or 0) and f"<{modules}>" in line), None)
        noted = next((at for at, line in enumerate(done) if at > (renamed or 0) and "deployed.json\"" in line), None)
        self.assertNotIn(None, (written, renamed, named, noted))
        self.assertEqual([written, renamed, named, noted], sorted([written, renamed, named, noted]))

    def test_a_newer_module_in_the_file_wins_over_an_older_deploy(self):
        own = os.path.join(self.dir, "own.wasm")
        shutil.copy(V0, own)
        node = self.node({"class.counter": {"module": own}})
        node.cli("deploy", "counter", self.v(1), timeout=120)
        node.stop()
        shutil.copy(self.v(2), own)
        node.start()
        self.assertEqual(self.version(node), 2)
        self.assertIn("agent.toml names another module", node.stderr())
        # And a deploy is newer again.
        node.cli("deploy", "counter", self.v(3), timeout=120)
        node.stop()
        node.start()
        self.assertEqual(self.version(node), 3)

    def test_broken_modules_leave_the_old_one_in_charge_and_say_why(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        load = Counting(node, threads=2, rate=40).start()
        load.more()
        runtimes = self.runtimes(node)
        garbage = os.path.join(self.dir, "garbage.wasm")
        with open(garbage, "wb") as file:
            file.write(b"\0asm\1\0\0\0 and then nothing that is one")
        trap = self.v(8, '\n__attribute__((export_name("actor_prepare"))) void actor_prepare(void) { __builtin_trap(); }\n')
        foreign = self.v(9, '\n__attribute__((import_module("env"), import_name("reboot"))) int reboot(void);\n'
                            '__attribute__((export_name("hf_unused"))) int unused(void) { return reboot(); }\n')
        for module, why in ((trap, "actor_prepare stopped: trap"), (foreign, 'import "env" "reboot"'), (garbage, "module refused")):
            said = refused(self, node, "deploy", "counter", module)
            self.assertIn("stays at module", said)
            self.assertIn(why, said)
        code, _, said = node.cli("deploy", "counter", os.path.join(self.dir, "no.wasm"), check=False)
        self.assertEqual(code, 2, said)
        self.assertIn("no earlier module", refused(self, node, "deploy", "counter", "--rollback"))
        self.assertIn("is not served here", refused(self, node, "deploy", "nobody", "--rollback"))
        self.assertEqual(self.runtimes(node), runtimes, "nobody was started or ended for them")
        load.more()
        load.stop(self)
        self.assertEqual(load.versions(), [0])
        self.assertFalse(os.path.exists(os.path.join(node.data, "state", "deployed.json")))
        self.common_checks(node, pid, fds)

    def test_a_module_that_the_limits_of_its_class_do_not_hold_is_refused(self):
        node = self.node({"class.counter": {"memory_max": "128KiB"}})
        said = refused(self, node, "deploy", "counter", self.v(1, "\nchar much[300000];\n"
                       '__attribute__((export_name("hf_much"))) char* use(void) { return much; }\n'))
        self.assertIn("memory_max is 2 pages", said)
        self.assertEqual(self.version(node), 0)
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        self.common_checks(node, node.pid)

    def test_a_new_instance_that_is_killed_before_it_has_lasted_gives_everything_back(self):
        node = self.node(UNDECIDED)
        load = Counting(node, threads=2, rate=40).start()
        load.more()
        old = self.runtimes(node)
        command = Background(self, node, "deploy", "counter", self.v(1))
        wait_for("actors run on the new version", lambda: 1 in load.versions())
        fresh = wait_for("the new ones are in charge", lambda: [p for p in self.runtimes(node) if p and p not in old])
        os.kill(fresh[0], signal.SIGKILL)
        code, said = command.end()
        self.assertEqual(code, 1, said)
        self.assertIn("stays at module", said)
        self.assertEqual(self.runtimes(node), old, "the old ones were there all the time")
        load.more()
        self.assertEqual(self.version(node), 0)
        load.stop(self)
        self.common_checks(node, node.pid)

    def test_a_class_that_was_not_there_is_served_until_it_is_taken_away(self):
        node = self.node()
        self.assertEqual(node.post("/actor/other/a")[0], 404)
        node.cli("deploy", "other", self.v(4), timeout=120)
        self.assertEqual(int(node.post("/actor/other/a")[2]), 4 * STEP + 1)
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        node.stop()
        node.start()
        self.assertEqual(int(node.post("/actor/other/a")[2]), 4 * STEP + 2)
        self.assertEqual([row["name"] for row in node.cli("actors", "--class", "other")["actors"]], ["a"])
        node.cli("deploy", "other", "--reset", timeout=120)
        self.assertEqual(node.post("/actor/other/a")[0], 404)
        self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
        node.stop()
        node.start()
        self.assertEqual(node.post("/actor/other/a")[0], 404)

    def test_kill_9_of_the_node_at_any_moment_of_a_deploy_leaves_one_version_whole(self):
        node = self.node(UNDECIDED)
        count = 0
        module = self.v(1)
        for moment in ("compiling", "starting", "undecided"):
            old = self.runtimes(node)
            Background(self, node, "deploy", "counter", module)
            if moment == "compiling":
                wait_for("the builder runs", lambda: len(children(node.pid)) > 6, step=0.002)
            elif moment == "starting":
                wait_for("a new runtime starts", lambda: len(children(node.pid)) > 7, step=0.002)
            else:
                wait_for("the new ones are in charge", lambda: set(self.runtimes(node)).isdisjoint(old))
            node.process.kill()
            node.process.wait()
            node.start()
            for _ in range(3):
                count += 1
                self.assertEqual(parts(node.post("/actor/counter/a")[2]), (0, count), moment)
            self.assertEqual(parts(node.post(f"/actor/counter/{moment}")[2]), (0, 1))
        self.assertEqual(node.stop(), 0)
        node.tables["swap"] = {"answers": 100000, "window": "10ms"}
        node.write_config()
        node.start()
        node.cli("deploy", "counter", module, timeout=120)
        node.process.kill()
        node.process.wait()
        node.start()
        self.assertEqual(parts(node.post("/actor/counter/a")[2]), (1, count + 1))

    def test_a_node_of_an_ordinary_user_deploys_as_well(self):
        if os.geteuid() != 0:
            self.skipTest("becoming another user needs root")
        node = self.node(start=False)
        os.chown(node.dir, 65534, 65534)
        node.start(wrapper=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"))
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        node.cli("deploy", "counter", self.v(1), timeout=120)
        self.assertEqual(int(node.post("/actor/counter/a")[2]), STEP + 2)
        self.assertEqual(node.stop(), 0)

    def test_more_classes_than_a_node_serves_are_refused_at_the_start_with_both_their_sources(self):
        node = self.node()
        wasm = self.row(node)["wasm_sha256"]
        node.stop()
        record = os.path.join(node.data, "state", "deployed.json")
        with open(record, "w", encoding="ascii") as file:
            json.dump({"classes": {f"c{i}": {"wasm": wasm, "before": "", "file": "", "source": ""} for i in range(100)}}, file)
        node.start(wait=False)
        self.assertEqual(node.process.wait(30), 1)
        for said in ("101 classes", "at most 100", "agent.toml", record):
            self.assertIn(said, node.stderr())
        os.unlink(record)
        node.start()
        self.common_checks(node)

    def test_one_deploy_at_a_time_and_a_damaged_record_is_set_aside(self):
        node = self.node(UNDECIDED)
        old = self.runtimes(node)
        first = Background(self, node, "deploy", "counter", self.v(1))
        wait_for("the new ones are in charge", lambda: set(self.runtimes(node)).isdisjoint(old))
        self.assertIn("a deploy is under way", refused(self, node, "deploy", "counter", self.v(2)))
        self.assertIn("a deploy is under way", refused(self, node, "config", "reload"))
        node.stop()
        self.assertNotEqual(first.end()[0], 0)
        record = os.path.join(node.data, "state", "deployed.json")
        with open(record, "w", encoding="ascii") as file:
            file.write('{"classes": {"counter": {"wasm": "../../etc/passwd", "before": "", "file": "", "source": ""}}}')
        node.start()
        self.assertEqual(self.version(node), 0)
        self.assertTrue(os.path.exists(record + ".bad-1"))


class Cache(Case):
    """Compiled modules are loaded only when this node vouches for them."""

    def entry(self, node, suffix):
        found = []
        for top, _, files in os.walk(os.path.join(node.data, "modules")):
            found += [os.path.join(top, name) for name in files if name.endswith(suffix) and "bad" not in top]
        return sorted(found)

    def test_code_that_was_exchanged_in_the_cache_is_made_anew_and_not_loaded(self):
        node = self.node(classes=("counter",))
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        node.stop()
        (meta,) = self.entry(node, ".meta")
        base = meta[:-len(".meta")]
        with open(base + ".so", "rb") as file:
            code = file.read()
        # Another actor's code, with a .meta that names its hashes: whole in itself, and not ours.
        evil = self.node(name="evil", start=False)
        evil.tables["class.counter"]["module"] = counter(self.dir, 7)
        evil.write_config()
        evil.start()
        evil.stop()
        (other,) = self.entry(evil, ".meta")
        with open(meta, encoding="ascii") as file:
            said = json.load(file)
        with open(other, encoding="ascii") as file:
            theirs = json.load(file)
        for key in ("so_sha256", "image_sha256"):
            said[key] = theirs[key]
        with open(meta, "w", encoding="ascii") as file:
            json.dump(said, file)
        for suffix in (".so", ".image"):
            shutil.copy(other[:-len(".meta")] + suffix, base + suffix)
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
        self.assertIn("is set aside and built anew", node.stderr())
        with open(base + ".so", "rb") as file:
            self.assertEqual(file.read(), code)
        self.common_checks(node)

    def test_a_flipped_byte_anywhere_is_made_anew(self):
        node = self.node(classes=("counter",))
        node.stop()
        base = self.entry(node, ".meta")[0][:-len(".meta")]
        for suffix in (".so", ".image", ".meta", ".mac"):
            with open(base + suffix, "rb") as file:
                good = file.read()
            at = len(good) // 2
            with open(base + suffix, "wb") as file:
                file.write(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
            node.start()
            self.assertEqual(node.post(f"/actor/counter/{suffix}")[2], b"1\n")
            with open(base + suffix, "rb") as file:
                self.assertEqual(file.read(), good, suffix)
            node.stop()

    def test_the_key_is_the_nodes_own_and_a_damaged_one_is_replaced(self):
        node = self.node(classes=("counter",))
        key = os.path.join(node.data, "state", "module_key.json")
        self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
        node.stop()
        with open(key, "w", encoding="ascii") as file:
            file.write("{}")
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        self.assertTrue(os.path.exists(key + ".bad-1"))
        self.assertIn("is set aside and built anew", node.stderr())

    def test_what_the_builder_and_the_runtimes_see_of_it_they_cannot_change(self):
        node = self.node(classes=("counter",))
        if os.geteuid() != 0:
            self.skipTest("users of their own need root")
        node.stop()
        # As it was when the builder wrote into the cache itself.
        for top, _, _ in os.walk(os.path.join(node.data, "modules")):
            os.chown(top, 901000, 901000)
        with open(os.path.join(node.data, "modules", "0" * 64 + ".so"), "wb") as file:
            file.write(b"of an earlier version")
        node.start()
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        self.assertFalse([name for name in os.listdir(os.path.join(node.data, "modules")) if name.endswith(".so")])
        for top, _, files in os.walk(os.path.join(node.data, "modules")):
            if top.endswith("incoming"):
                continue
            for name in [top, *(os.path.join(top, one) for one in files)]:
                about = os.stat(name)
                self.assertEqual((about.st_uid, about.st_mode & 0o022), (0, 0), name)
        mounts = [line.split() for pid in descendants(node.pid) if os.readlink(f"/proc/{pid}/exe").endswith("runtime-wasm")
                  for line in open(f"/proc/{pid}/mountinfo", encoding="ascii") if " /modules " in line]
        self.assertTrue(mounts)
        for mount in mounts:
            self.assertIn("ro", mount[5].split(","))
