"""kill -9 of each plugin under load: every accepted request is answered by its deadline, nothing doubled, nothing lost."""
import contextlib
import os
import signal

from harness import LONG, Case, Load, wait_for


class Deaths(Case):
    def storm(self, name, kills, toml=None):
        node = self.node({"restart": {"intensity": "off"}, **(toml or {})}, classes=("counter", "ledger"))
        pid, fds = node.pid, node.fds()
        load = Load(node, actors=16, threads=4).start()
        wait_for("the load runs", lambda: load.count() > 20)
        done = 0
        while done < kills:
            for instance in node.plugins()[name]["instances"]:
                if instance.get("state") == "serving" and done < kills:
                    seen = load.count()
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(instance["pid"], signal.SIGKILL)
                        done += 1
                    wait_for("answers go on", lambda: load.count() > seen, 35)
        load.stop()
        load.verify(self, allow=(200, 503, 504) if name != "gateway" else (200, 503, 504, 0))
        self.common_checks(node, pid, fds)
        return node, load

    def test_runtime_killed_under_load(self):
        _, load = self.storm("runtime", 200 if LONG else 20)
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "a runtime's death cost an answer")

    def test_storage_killed_under_load(self):
        _, load = self.storm("storage", 200 if LONG else 20)
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "storage's death cost an answer")

    def test_placement_killed_under_load(self):
        _, load = self.storm("placement", 20)
        self.assertFalse([e for e in load.results.values() if e[0] != 200][:3], "the policy's death cost an answer")

    def test_drain_killed_under_load(self):
        self.storm("drain", 5)

    def test_gateway_killed_under_load_the_port_never_refuses(self):
        _, load = self.storm("gateway", 20)
        refused = [e for e in load.results.values() if e[0] == 0 and b"refused" in str(e[1]).lower().encode()]
        self.assertFalse(refused[:3], "a connection was refused")
