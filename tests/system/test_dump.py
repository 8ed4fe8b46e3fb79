"""One bundle for a bug report: what helps is in it, what is nobody's business is not, and it is made of a dead node too."""
import json
import os
import signal
import subprocess
import tarfile

from harness import BIN, Case
from test_policies import FAULTY

SECRET = "hunter2-and-more"


class Dump(Case):
    def dump(self, node, target, **kw):
        done = subprocess.run([os.path.abspath(os.path.join(BIN, "holdfast")), "--node", node.data, "dump", target, "--json"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=90,
                              check=False, cwd=node.dir, **kw)
        return done.returncode, (json.loads(done.stdout) if done.stdout else None), done.stderr

    def contents(self, path):
        with tarfile.open(path) as tar:
            return {member.name.split("/", 1)[1]: tar.extractfile(member).read() for member in tar.getmembers() if member.isfile()}

    def nothing_private(self, files, node):
        with open(os.path.join(node.data, "state", "module_key.json"), encoding="ascii") as file:
            key = json.load(file)["key"]
        for name, text in files.items():
            for word in (SECRET, key, "what-a-tenant-wrote"):
                self.assertNotIn(word.encode(), text, name)

    def test_a_bundle_of_a_node_that_serves(self):
        node = self.node({"plugin.placement": {"use": "faulty-policy", "binary": FAULTY, "policy": "slow"},
                          "plugin.placement.settings": {"after": 1000000000, "token": SECRET}}, classes=("counter", "ledger"))
        self.assertEqual(node.post("/actor/ledger/a/add", body=b"what-a-tenant-wrote",
                                   headers={"x-request-id": f"{1:016d}"})[0], 200)
        os.kill(node.plugin_pid("runtime"), signal.SIGKILL)
        self.assertEqual(node.post("/actor/counter/a")[0], 200)
        target = os.path.join(self.dir, "report.tar.gz")
        code, said, err = self.dump(node, target)
        self.assertEqual(code, 0, err)
        self.assertEqual((said["node"], said["left_out"]), ("up", []))
        self.assertEqual(os.stat(target).st_mode & 0o077, 0)
        files = self.contents(target)
        self.assertEqual(sorted(files), sorted(said["files"]))
        for name in ("README.txt", "version.txt", "machine.txt", "files.txt", "status.json", "plugins.json", "actors.json",
                     "config.json", "exit_reports.json", "processes.txt", "log/holdfastd.log"):
            self.assertTrue(files[name], name)
        self.assertEqual(json.loads(files["status.json"])["node"], "n1")
        self.assertIn("signal 9", files["exit_reports.json"].decode())
        self.assertIn("Seccomp:", files["processes.txt"].decode())
        self.assertIn("seccomp", files["machine.txt"].decode())
        self.assertIn("ready", files["log/holdfastd.log"].decode())
        self.assertIn("placement.settings", files["config.json"].decode())
        self.nothing_private(files, node)
        self.assertEqual([name for name in os.listdir(self.dir) if "dump" in name], [], "nothing is left beside it")
        code, _, err = self.dump(node, target)
        self.assertEqual(code, 2)
        self.assertIn("exists already", err)
        self.common_checks(node, node.pid)

    def test_a_bundle_of_a_node_that_is_down(self):
        node = self.node()
        node.post("/actor/counter/a")
        node.process.kill()
        node.process.wait()
        target = os.path.join(self.dir, "report")
        code, said, err = self.dump(node, target)
        self.assertEqual(code, 0, err)
        self.assertEqual(said["node"], "down")
        files = {}
        for top, _, names in os.walk(target):
            for name in names:
                with open(os.path.join(top, name), "rb") as file:
                    files[os.path.relpath(os.path.join(top, name), target)] = file.read()
        self.assertIn("did not answer", files["README.txt"].decode())
        self.assertIn("mailbox_events", files["config.json"].decode(), "the file's, as this node's data is named in it")
        self.assertIn("ready", files["log/holdfastd.log"].decode())
        self.assertIn("data.mdb", files["files.txt"].decode())
        self.assertIn("--- journal\ndata.mdb", files["files.txt"].decode())
        self.assertNotIn("status.json", files)
        self.nothing_private(files, node)

    def test_without_a_data_directory_there_is_nothing_to_tell(self):
        done = subprocess.run([os.path.join(BIN, "holdfast"), "--node", os.path.join(self.dir, "none"), "dump"], text=True,
                              capture_output=True, timeout=30, check=False, cwd=self.dir)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no data directory", done.stderr)
        self.assertEqual(os.listdir(self.dir), [])
