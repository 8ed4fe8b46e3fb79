"""A node whose store is a bucket at a real S3 server: it serves, it survives the death of everything, nothing is doubled."""
import glob
import os
import signal
import time

from harness import Case, Load, wait_for


class OnS3(Case):
    store = None

    def on_s3(self, name, classes=("counter", "ledger"), start=True, **more):
        return self.node({"restart": {"intensity": "off"}, "node": {"lease": "30s"},
                          "plugin.storage": {"use": "storage-s3", "map_bytes": None, "endpoint": self.store.endpoint,
                                             "bucket": self.store.make_bucket(name), "prefix": "node/",
                                             "credentials_file": self.store.credentials, **more}}, classes=classes, name=name, start=start)

    def test_a_counter_counts_on_over_a_restart(self):
        node = self.on_s3("counter")
        for n in range(1, 4):
            self.assertEqual(node.post("/actor/counter/alice")[2], b"%d\n" % n)
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(node.post("/actor/counter/alice")[2], b"4\n")
        walls = node.plugins()["storage"]["instances"][0]
        with open(f"/proc/{walls['pid']}/status", encoding="ascii") as file:
            status = file.read()
        self.assertIn("Seccomp:\t2", status)
        node.stop(signal.SIGKILL)

    def test_everything_is_killed_under_load(self):
        node = self.on_s3("storm")
        load = Load(node, actors=8, threads=4).start()
        wait_for("the load runs", lambda: load.count() > 20)
        for round_ in range(6):
            seen = load.count()
            for name in ("storage", "runtime"):
                os.kill(node.plugin_pid(name), signal.SIGKILL)
            if round_ % 2 == 0:
                self.store.kill_rgw()
                if round_ == 2:   # storage starts while nobody answers, and must not be given up
                    os.kill(node.plugin_pid("storage"), signal.SIGKILL)
                self.store.start_rgw()
            wait_for("answers go on", lambda: load.count() > seen + 5, 40)
        load.stop()
        load.verify(self)
        # And the node itself, between two answers.
        node.stop(signal.SIGKILL)
        node.start()
        load.node = node
        if hasattr(load, "_asking"):
            del load._asking
        load.verify(self)
        self.common_checks(node)
        node.stop()

    def test_a_node_waits_for_its_store_and_says_so(self):
        node = self.on_s3("waits", classes=("counter",))
        self.assertEqual(node.post("/actor/counter/bob")[2], b"1\n")
        self.store.kill_rgw()
        try:
            node.stop(signal.SIGKILL)
            node.start(wait=False)
            wait_for("status names the store", lambda: self.store.endpoint in str(node.cli("status", check=False)), 20)
        finally:
            self.store.start_rgw()
        node.wait_ready()
        self.assertEqual(node.post("/actor/counter/bob")[2], b"2\n")
        node.stop()

    def test_keys_of_the_environment_and_no_setting_shows_them(self):
        node = self.on_s3("environment", classes=("counter",), start=False, credentials_file=None)
        node.start(env={"AWS_ACCESS_KEY_ID": self.store.facts["S3_ACCESS_KEY"],
                        "AWS_SECRET_ACCESS_KEY": self.store.facts["S3_SECRET_KEY"]})
        self.assertEqual(node.post("/actor/counter/carol")[2], b"1\n")
        self.assertNotIn(self.store.facts["S3_SECRET_KEY"], str(node.plugins()) + node.stderr())
        node.stop()

    def test_a_store_that_refuses_is_named(self):
        for more, part in (({"bucket": "not-there"}, "NoSuchBucket"), ({"credentials_file": None}, "there are no access keys")):
            node = self.on_s3("refuses-" + str(len(part)), classes=("counter",), start=False, **more)
            node.start(wait=False, env={"AWS_ACCESS_KEY_ID": ""})
            wait_for(f"{part} is told", lambda n=node, p=part: p in str(n.cli("plugins", check=False)), 20)
            node.stop(signal.SIGKILL)

    def test_idle_is_asleep(self):
        node = self.on_s3("idle", classes=("counter",))
        node.post("/actor/counter/dave")
        pid = node.plugin_pid("storage")

        def sleeps_that_ended():
            total = 0
            for path in glob.glob(f"/proc/{pid}/task/*/status"):
                with open(path, encoding="ascii") as file:
                    total += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
            return total
        seen = [0, 0.0]

        def quiet():
            now = sleeps_that_ended()
            if now != seen[0]:
                seen[:] = now, time.monotonic()
            return time.monotonic() - seen[1] > 3
        wait_for("storage does not wake for three seconds", quiet, 20)
        node.stop()
