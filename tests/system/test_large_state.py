"""Actors whose state is many times what a record holds: every value, whoever dies, is evicted or finds no room."""
import contextlib
import os
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

from guests import UNRULY
from harness import Case, wait_for
from test_room import Mounted

KIB, MIB = 1024, 1024 * 1024
HOARD = os.path.join(os.path.dirname(UNRULY), "hoard.wasm")
VALUE = 40 * KIB
TOML = {
    "class.hoard": {"module": HOARD, "state_max": "4MiB", "cpu_limit": "2s"},
    "limits": {"checkpoint_bytes": "256KiB"},     # many bases on the way
    "plugin.runtime": {"instances": 1},
}


def value(number, version=0, size=VALUE):
    """Bytes that say whose they are, all over."""
    mark = b"%d/%d;" % (number, version)
    return (mark * (size // len(mark) + 1))[:size]


class Hoard:
    """One actor, and what it must hold: of each number the last value that was acknowledged, or one sent after it."""

    def __init__(self, case, node, name):
        self.case, self.node, self.path = case, node, f"/actor/hoard/{name}"
        self.kept = {}       # number -> the acknowledged version
        self.unsure = {}     # number -> versions sent since, whose end is not known
        self.size = {}       # (number, version) -> bytes
        self.version = 0

    def put(self, number, size=VALUE, allow=(200,)):
        self.version += 1
        version = self.version
        self.size[number, version] = size
        self.unsure.setdefault(number, []).append(version)
        status, body = 0, b""
        with contextlib.suppress(OSError):
            status, _, body = self.node.post(f"{self.path}/put?{number}", body=value(number, version, size))
        self.case.assertIn(status, allow, body[:300])
        if status == 200:
            self.kept[number], self.unsure[number] = version, []
        elif status in (503, 507):     # it did not happen
            self.unsure[number].remove(version)
        return status, body

    def check(self):
        for number in sorted(set(self.kept) | set(self.unsure)):
            allowed = [v for v in [self.kept.get(number), *self.unsure.get(number, [])] if v is not None]
            status, _, body = self.node.http("GET", f"{self.path}/get?{number}")
            if status == 404 and number not in self.kept:
                continue
            self.case.assertEqual(status, 200, body[:300])
            self.case.assertIn(body[:80], [value(number, v, self.size[number, v])[:80] for v in allowed], number)
            found = [v for v in allowed if body == value(number, v, self.size[number, v])]
            self.case.assertTrue(found, f"number {number} is none of the values that were sent")

    def bytes(self):
        status, _, body = self.node.http("GET", f"{self.path}/sum")
        self.case.assertEqual(status, 200, body[:300])
        return int(body.split()[1])


class LargeStates(Case):
    def hoard(self, toml=None, name="a"):
        tables = {table: dict(values) for table, values in TOML.items()}
        for table, values in (toml or {}).items():
            tables.setdefault(table, {}).update(values)
        node = self.node(tables)
        return node, Hoard(self, node, name)

    def test_every_value_is_there_after_every_death(self):
        node, hoard = self.hoard()
        pid, fds = node.pid, node.fds()
        for number in range(64):
            hoard.put(number)
        self.assertEqual(hoard.bytes(), 64 * VALUE)
        self.assertGreater(node.status()["stats"]["bases"], 2)
        hoard.check()
        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
        hoard.check()
        os.kill(node.plugin_pid("storage"), signal.SIGKILL)
        hoard.put(64)
        hoard.check()
        self.assertEqual(node.status()["bulk"], {"bodies": 0, "bytes": 0})
        wait_for("no state is on its way", lambda: node.status()["states"] == {"bytes": 0, "waiting": 0})
        self.common_checks(node, pid, fds)
        node.stop(signal.SIGKILL)
        node.start()
        hoard.check()
        hoard.put(65)
        self.assertEqual(node.stop(), 0)
        node.start()
        hoard.check()
        self.assertEqual(node.status()["stats"]["undone"], 0)
        self.common_checks(node)

    def test_deaths_while_bases_are_written(self):
        node, hoard = self.hoard({"restart": {"intensity": "off"}})
        for number in range(56):
            hoard.put(number)
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                hoard.put(number % 56, allow=(0, 200, 503, 504))
                number += 1
        for victim in ("runtime", "storage", "runtime", "storage", "node"):
            stop.clear()
            bases = node.status()["stats"]["bases"]
            writer = threading.Thread(target=write)
            writer.start()
            try:
                wait_for("another base is stored", lambda b=bases: node.status()["stats"]["bases"] > b, 40)
                if victim == "node":
                    node.stop(signal.SIGKILL)
                else:
                    os.kill(node.plugin_pid(victim), signal.SIGKILL)
                    wait_for("it serves again", lambda: node.status()["ready"], 20)
            finally:
                stop.set()
                writer.join(60)
            if victim == "node":
                node.start()
            hoard.check()
        self.assertEqual(hoard.bytes(), 56 * VALUE)
        self.common_checks(node)

    def test_a_full_state_names_its_limit(self):
        node, hoard = self.hoard({"class.hoard": {"state_max": "1MiB"}})
        number = 0
        while True:
            status, body = hoard.put(number, allow=(200, 507))
            if status == 507:
                break
            number += 1
        self.assertIn(b"limit state_max: 1048576 allowed", body)
        self.assertEqual(number, 25, "25 values of 40 KiB, and what each costs beside")
        hoard.check()
        self.assertEqual(hoard.bytes(), number * VALUE)
        self.assertEqual(node.post("/actor/hoard/a/drop?0")[0], 200)
        del hoard.kept[0], hoard.unsure[0]
        hoard.put(number)
        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
        hoard.check()
        self.common_checks(node)

    def test_four_MiB_are_kept_to_the_last_value(self):
        node, hoard = self.hoard()
        for number in range(102):     # 4 MiB hold 102 of 40 KiB
            hoard.put(number)
        status, body = hoard.put(102, allow=(507,))
        self.assertIn(b"limit state_max: 4194304 allowed", body)
        # Replacing them goes on for ever.
        for number in range(30):
            hoard.put(number)
        node.stop(signal.SIGKILL)
        node.start()
        hoard.check()
        self.assertEqual(hoard.bytes(), 102 * VALUE)
        self.common_checks(node)

    def test_it_survives_eviction(self):
        node, hoard = self.hoard({"class.hoard": {"evict_after": "1s"}})
        for number in range(56):
            hoard.put(number)

        def cold():
            row = [r for r in node.cli("actors", "--class", "hoard")["actors"] if r["unit"].endswith("/a")]
            return row and row[0]["state"] == "cold"
        wait_for("it has left memory", cold, 20)
        hoard.check()
        self.assertGreaterEqual(node.status()["stats"]["evicted"], 1)
        self.common_checks(node)

    def test_many_of_them_come_back_at_once(self):
        """More bytes than the supervisor keeps of states on their way: they come one after the other."""
        node, first = self.hoard()
        hoards = [first] + [Hoard(self, node, f"h{i}") for i in range(19)]
        with ThreadPoolExecutor(len(hoards)) as pool:
            list(pool.map(lambda hoard: [hoard.put(number) for number in range(52)], hoards))
        node.stop(signal.SIGKILL)
        node.start()
        wrong = []

        def look(hoard):
            try:
                hoard.check()
            except AssertionError as error:
                wrong.append(error)
        readers = [threading.Thread(target=look, args=(hoard,)) for hoard in hoards]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(120)
        self.assertEqual(wrong, [])
        self.common_checks(node)


class NoRoom(Mounted):
    def test_a_full_disk_loses_nothing_that_was_acknowledged(self):
        node = self.node(TOML, start=False)
        store = os.path.join(node.data, "store")
        self.mount(store, "size=40m")
        node.start()
        hoard = Hoard(self, node, "a")
        for number in range(60):
            hoard.put(number)
        pid, fds = node.pid, node.fds()
        ballast = self.fill(store)
        refused = 0
        for number in range(150):
            status, body = hoard.put(number % 60, allow=(200, 503))
            if status == 503:
                refused += 1
                self.assertTrue(re.search(rb"full|room|No space", body), body)
        self.assertGreater(refused, 0, "the disk is full")
        hoard.check()
        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
        hoard.check()
        os.unlink(ballast)
        wait_for("writes go on", lambda: hoard.put(0, allow=(200, 503))[0] == 200, 20)
        for number in range(60):
            hoard.put(number)
        hoard.check()
        self.assertEqual(node.plugins()["storage"]["restarts"], 0)
        self.common_checks(node, pid, fds)
        node.stop(signal.SIGKILL)
        node.start()
        hoard.check()
        self.common_checks(node)
        node.stop()

    def test_entries_go_on_where_a_base_finds_no_room(self):
        node = self.node({**TOML, "limits": {"checkpoint_bytes": "64KiB", "checkpoint_entries": 10}}, start=False)
        store = os.path.join(node.data, "store")
        self.mount(store, "size=40m")
        node.start()
        hoard = Hoard(self, node, "a")
        for number in range(60):
            hoard.put(number)
        ballast = self.fill(store)
        with open(ballast, "r+b") as file:
            file.truncate(max(0, os.path.getsize(ballast) - MIB))
        # Small values, until bases are due twice over by their number.
        for number in range(1400):
            hoard.put(number % 60 + 100, size=100, allow=(200, 503))
        hoard.check()
        node.stop(signal.SIGKILL)
        os.unlink(ballast)
        node.start()
        hoard.check()
        self.common_checks(node)
        node.stop()
