"""Requests accepted for later: 202 once they are in the journal, applied once whatever is killed, bounded, shown."""
import contextlib
import http.client
import os
import random
import signal
import threading
import time

from harness import LONG, Case, wait_for

ASYNC = {"Prefer": "respond-async"}


def add(node, actor, ident):
    return node.http("POST", f"/actor/ledger/{actor}/add", headers={**ASYNC, "x-request-id": f"{ident:016d}"})


def applied(node, actor, ident):
    """As times(), once the ledger answers."""
    def answer():
        found = times(node, actor, ident)
        return None if found is None else [found]
    return wait_for("the ledger answers", answer)[0]


def times(node, actor, ident):
    """How often the ledger applied that id; None while it cannot say."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        status, _, body = node.http("GET", f"/actor/ledger/{actor}/id?{ident:016d}")
        return int(body) if status == 200 else None
    return None


class Later(Case):
    def test_a_request_is_accepted_then_applied_and_says_its_id(self):
        node = self.node(classes=("counter", "ledger"))
        status, headers, body = add(node, "a", 1)
        self.assertEqual(status, 202)
        self.assertEqual(headers.get("preference-applied"), "respond-async")
        self.assertRegex(body.decode(), r"^[0-9a-f]{16}-0{15}1\n$")
        wait_for("it is applied", lambda: times(node, "a", 1) == 1)
        wait_for("the journal forgets it", lambda: node.status()["journal"]["waiting"] == 0)
        self.assertEqual(node.post("/actor/ledger/a/add", headers={"x-request-id": f"{2:016d}"})[0], 200,
                         "without the preference the answer is the actor's own")
        self.common_checks(node)

    def test_depth_and_age_are_shown_and_the_bound_is_a_503(self):
        node = self.node({"limits": {"journal_events_per_actor": 5}, "plugin.runtime": {"instances": 1}},
                         classes=("counter", "ledger"))
        self.assertEqual(node.post("/actor/ledger/a/add", headers={"x-request-id": "first"})[0], 200)
        runtime = node.plugin_pid("runtime")
        os.kill(runtime, signal.SIGSTOP)
        try:
            for ident in range(1, 6):
                self.assertEqual(add(node, "a", ident)[0], 202)
            status, headers, body = add(node, "a", 6)
            self.assertEqual(status, 503)
            self.assertGreater(int(headers["retry-after"]), 0)
            self.assertIn(b"limits.journal_events_per_actor", body)
            shown = node.cli("actors", "show", "ledger/a")
            self.assertEqual(shown["journal"]["waiting"], 5)
            self.assertGreaterEqual(shown["journal"]["oldest_age_ms"], 0)
            self.assertEqual(node.status()["journal"]["waiting"], 5)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(runtime, signal.SIGCONT)
        wait_for("all five are applied", lambda: [times(node, "a", i) for i in range(1, 7)] == [1] * 5 + [0], 40)
        self.common_checks(node)

    def test_each_accepted_request_is_applied_once_though_everything_is_killed(self):
        node = self.node({"restart": {"intensity": "off"}}, classes=("counter", "ledger"))
        accepted, unknown, refused, lock = set(), set(), set(), threading.Lock()
        wanted, threads_max, actors = (4000, 8, 7) if LONG else (1000, 8, 7)
        over = threading.Event()
        counter = iter(range(1, 10**9))

        def work():
            while not over.is_set():
                with lock:
                    ident = next(counter)
                try:
                    status = add(node, f"a{ident % actors}", ident)[0]
                except (OSError, http.client.HTTPException):
                    status = 0
                with lock:
                    (accepted if status == 202 else refused if status == 503 else unknown).add(ident)
                if status != 202:
                    over.wait(0.01)
        threads = [threading.Thread(target=work) for _ in range(threads_max)]
        for thread in threads:
            thread.start()
        try:
            dice = random.Random(11)
            kills = 0
            while len(accepted) < wanted or kills < 12:
                before = len(accepted)
                more = dice.randrange(20, 150)
                wait_for("requests are accepted", lambda: len(accepted) >= before + more, 60)  # noqa: B023
                if kills % 3 == 2:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(node.plugin_pid(dice.choice(("runtime", "storage"))), signal.SIGKILL)
                else:
                    node.stop(signal.SIGKILL)
                    node.start()
                kills += 1
        finally:
            over.set()
            for thread in threads:
                thread.join()
        node.stop(signal.SIGKILL)
        node.start()
        wait_for("the journal is empty", lambda: node.status()["journal"]["waiting"] == 0, 60)
        for ident in accepted:
            self.assertEqual(applied(node, f"a{ident % actors}", ident), 1, f"id {ident} was accepted")
        for ident in refused:
            self.assertEqual(applied(node, f"a{ident % actors}", ident), 0, f"id {ident} was refused")
        for ident in unknown:
            self.assertLessEqual(applied(node, f"a{ident % actors}", ident), 1, f"id {ident}")
        self.assertGreaterEqual(len(accepted), wanted)
        self.common_checks(node)

    def test_a_stop_keeps_what_was_not_applied(self):
        node = self.node({"plugin.runtime": {"instances": 1}, "limits": {"shed_deadline": "1s"}}, classes=("counter", "ledger"))
        self.assertEqual(node.post("/actor/ledger/a/add", headers={"x-request-id": "first"})[0], 200)
        os.kill(node.plugin_pid("runtime"), signal.SIGSTOP)
        for ident in range(1, 21):
            self.assertEqual(add(node, "a", ident)[0], 202)
        node.stop(signal.SIGTERM, seconds=60)
        node.start()
        wait_for("all are applied", lambda: [times(node, "a", i) for i in range(1, 21)] == [1] * 20)
        self.common_checks(node)

    def test_a_damaged_journal_stops_the_start_by_name(self):
        node = self.node(classes=("counter", "ledger"))
        self.assertEqual(add(node, "a", 1)[0], 202)
        wait_for("it is applied", lambda: times(node, "a", 1) == 1)
        node.stop()
        data = os.path.join(node.data, "journal", "data.mdb")
        with open(data, "r+b") as file:
            file.write(b"x" * 8192)
        node.start(wait=False)
        self.assertEqual(node.process.wait(20), 1)
        self.assertIn(data, node.stderr())
        os.rename(os.path.dirname(data), os.path.dirname(data) + ".away")
        node.start()
        self.assertEqual(applied(node, "a", 1), 1)
        self.common_checks(node)


class Classes(Case):
    def test_buffered_and_volatile_do_what_they_say(self):
        node = self.node({"class.ledger": {"mailbox": "buffered"}, "class.counter": {"mailbox": "volatile"}},
                         classes=("counter", "ledger"))
        status, _, body = add(node, "a", 1)
        self.assertEqual((status, body), (202, b""))
        wait_for("it is applied", lambda: times(node, "a", 1) == 1)
        status, headers, body = node.http("POST", "/actor/counter/c", headers=ASYNC)
        self.assertEqual((status, body), (200, b"1\n"), "volatile accepts nothing for later")
        self.assertNotIn("preference-applied", headers)
        self.assertEqual(node.status()["stats"]["journalled"], 0)
        self.common_checks(node)
