"""A node whose store is a bucket at a real S3 server: it serves, it survives the death of everything, nothing is doubled."""
import os
import signal

from harness import Case, Load, wait_for


class OnS3(Case):
    store = None

    def on_s3(self, bucket, classes=("counter", "ledger"), **more):
        return self.node({"restart": {"intensity": "off"},
                          "plugin.storage": {"use": "storage-s3", "map_bytes": None, "endpoint": self.store.endpoint,
                                             "bucket": self.store.make_bucket(bucket), "prefix": "node/",
                                             "credentials_file": self.store.credentials, **more}}, classes=classes)

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
