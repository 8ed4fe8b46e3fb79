"""The pages a monitor reads, and what the operator's page says of them."""
import os
import re

from harness import ROOT, Case, wait_for


class Pages(Case):
    def test_every_series_is_explained_and_the_documented_ones_are_there(self):
        node = self.node()
        node.post("/actor/counter/a")

        def page():
            status, headers, body = node.http("GET", "/metrics")
            self.assertEqual(status, 200)
            self.assertIn("text/plain; version=0.0.4", headers["content-type"])
            text = body.decode()
            return text if "holdfast_plugin_counter{" in text else None
        text = wait_for("the plugins have told their counters", page)
        families = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}
        told = {line.split()[2] for line in text.splitlines() if re.match(r"# HELP \S+ \S", line)}
        self.assertFalse(families - told, "series without a word of help")
        with open(os.path.join(ROOT, "docs", "operations.md"), encoding="utf-8") as file:
            named = set(re.findall(r"holdfast_[a-z_]+", file.read()))
        self.assertGreaterEqual(len(named), 10)
        self.assertFalse(named - families, "documented and not there")

    def test_a_node_that_does_not_serve_is_healthy_and_not_ready(self):
        node = self.node({"plugin.runtime": {"use": "none", "binary": "/bin/false", "instances": None},
                          "limits": {"request_timeout": "1s"}}, start=False)
        node.start(wait=False)

        def listens():
            code, status, _ = node.cli("status", check=False)
            return code == 0 and status["listen"][0]
        node.host, port = wait_for("it listens", listens).rsplit(":", 1)
        node.port = int(port)
        self.assertEqual(node.http("GET", "/healthz")[::2], (200, b"ok\n"))
        wait_for("the store is known", lambda: b"runtime" in node.http("GET", "/readyz")[2])
        self.assertEqual(node.http("GET", "/readyz")[::2], (503, b"no runtime instance serves\n"))
        self.assertIn(b"\nholdfast_ready 0\n", node.http("GET", "/metrics")[2])
        self.assertNotEqual(node.post("/actor/counter/a", timeout=60)[0], 200)
