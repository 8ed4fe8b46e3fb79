"""The node serves: counts, keeps them over a restart, answers for what it does not know."""
import signal

from harness import Case, wait_for


class Serves(Case):
    def test_counter_counts_and_survives_a_restart(self):
        node = self.node()
        self.assertEqual(node.post("/actor/counter/alice")[2], b"1\n")
        self.assertEqual(node.post("/actor/counter/alice")[2], b"2\n")
        self.assertEqual(node.post("/actor/counter/bob")[2], b"1\n")
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(node.post("/actor/counter/alice")[2], b"3\n")
        self.assertEqual(node.http("GET", "/actor/counter/bob")[2], b"1\n")
        self.common_checks(node)

    def test_acknowledged_writes_are_there_after_kill_9_of_everything(self):
        node = self.node()
        for expected in range(1, 21):
            self.assertEqual(node.post("/actor/counter/alice")[2], b"%d\n" % expected)
        node.stop(signal.SIGKILL)
        node.start()
        self.assertEqual(node.post("/actor/counter/alice")[2], b"21\n")

    def test_five_plugins_each_in_its_own_jail(self):
        node = self.node()
        rows = node.plugins()
        self.assertEqual(set(rows), {"gateway", "storage", "runtime", "placement", "drain"})
        self.assertEqual(len(rows["runtime"]["instances"]), 2)
        uids = set()
        for row in rows.values():
            for key in ("name", "kind", "policy", "generation", "pid", "state", "restarts", "instances"):
                self.assertIn(key, row)
            for instance in row["instances"]:
                self.assertEqual(instance["state"], "serving", row)
                with open(f"/proc/{instance['pid']}/status", encoding="ascii") as file:
                    status = dict(line.split(":", 1) for line in file)
                self.assertEqual(status["Seccomp"].strip(), "2")
                self.assertEqual(status["NoNewPrivs"].strip(), "1")
                self.assertEqual(int(status["CapEff"], 16), 0)
                uids.add(status["Uid"].split()[0])
        self.assertEqual(len(uids), 6, "each instance has its own user")

    def test_unknown_class_is_404_and_a_bad_name_400(self):
        node = self.node()
        self.assertEqual(node.http("GET", "/actor/nothing/x")[0], 404)
        self.assertEqual(node.http("GET", "/nowhere")[0], 404)
        self.assertEqual(node.http("GET", "/actor/counter/" + "n" * 500)[0], 400)
        self.assertEqual(node.http("GET", "/actor/counter/%zz")[0], 400)

    def test_health_pages(self):
        node = self.node()
        self.assertEqual(node.http("GET", "/healthz")[0], 200)
        self.assertEqual(node.http("GET", "/readyz")[0], 200)
        node.post("/actor/counter/alice")
        status, headers, body = node.http("GET", "/metrics")
        self.assertEqual(status, 200)
        self.assertIn("text/plain", headers["content-type"])
        wait_for("the event is counted", lambda: b"holdfast_events_answered_total 1" in node.http("GET", "/metrics")[2], 5)
        self.assertIn(b"holdfast_ready 1", body)
