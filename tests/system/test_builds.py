"""What a build is: its content and its settings. A file rebuilt at its path changes nothing that runs, what goes wrong is
remembered per slot, and the operator sees and can take back what a policy was given."""
import os
import shutil
import signal
import subprocess

from harness import BIN, Case, FreshActors, wait_for
from test_policies import FAULTY, dumps, running, swap_args
from test_swap import refused

SCHEDULER = os.path.abspath(os.path.join(BIN, "scheduler"))
LEAST_BUSY = os.path.join(os.path.dirname(os.path.abspath(BIN)), "examples", "policies", "least-busy")
WELL = 1000000000   # questions that faulty-policy answers well


class Content(Case):
    def build(self, mark, path=None):
        """The faulty policy as a linker would put it there: a new file under the old name."""
        path = path or os.path.join(self.dir, "mine")
        shutil.copy(FAULTY, path + ".new")
        with open(path + ".new", "ab") as file:
            file.write(mark)
        os.replace(path + ".new", path)
        return path

    def runs(self, node):
        """The last bytes of the program that serves now, as the kernel runs it."""
        with open(f"/proc/{node.plugin_pid('placement')}/exe", "rb") as file:
            file.seek(-3, os.SEEK_END)
            return file.read()

    def kill(self, node):
        pid = node.plugin_pid("placement")
        os.kill(pid, signal.SIGKILL)
        wait_for("it is another process", lambda: node.plugin_pid("placement") != pid)

    def kept(self, node):
        top = os.path.join(node.data, "builds")
        return sorted(name for _, _, files in os.walk(top) for name in files)

    def test_a_rebuilt_file_changes_nothing_until_it_is_swapped_in(self):
        node = self.node()
        mine = self.build(b"one")
        swap = ("swap", "placement", "--binary", mine, "--policy", "slow")
        first = node.cli(*swap, "--set", f"after={WELL}")
        self.assertEqual(self.runs(node), b"one")
        self.build(b"two")
        self.kill(node)
        self.assertEqual(self.runs(node), b"one", "a restart runs what was swapped in")
        second = node.cli(*swap)
        self.assertEqual(self.runs(node), b"two")
        self.assertNotEqual(first["build"], second["build"])
        self.assertEqual(second["settings"], {"after": str(WELL)}, "the same program and policy keep theirs")
        self.build(b"six")
        node.cli("rollback", "placement")
        self.assertEqual(self.runs(node), b"one", "the build before it comes back")
        node.cli("rollback", "placement")
        self.assertEqual(self.runs(node), b"two")
        # Other settings for what serves: its content stays.
        node.cli("swap", "placement", "--set", "every=7")
        self.assertEqual(self.runs(node), b"two")
        self.common_checks(node, node.pid)

    def test_copies_are_bounded_and_a_lost_one_is_made_again(self):
        node = self.node()
        at_first = self.kept(node)
        self.assertEqual(len(at_first), 4, "gateway, storage, runtime, and one for both policies")
        for number in range(4):
            mine = self.build(b"%03d" % number, os.path.join(self.dir, f"mine{number}"))
            node.cli("swap", "placement", "--binary", mine, "--policy", "slow", "--set", f"after={WELL}")
        self.assertEqual(self.kept(node), sorted([*at_first, "mine2", "mine3"]), "in charge and the one before")
        shutil.rmtree(os.path.join(node.data, "builds"))
        self.kill(node)
        self.assertEqual(self.runs(node), b"003", "its file has not changed")
        shutil.rmtree(os.path.join(node.data, "builds"))
        self.build(b"xyz", mine)
        os.kill(node.plugin_pid("placement"), signal.SIGKILL)
        wait_for("it is told apart", lambda: "has changed since" in (node.plugins()["placement"]["last_exit"] or ""))
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        self.build(b"003", mine)
        self.assertEqual(self.runs(node), b"003")
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(self.kept(node), at_first)

    def test_a_configured_binary_that_is_upgraded_is_used_after_the_nodes_next_start(self):
        mine = self.build(b"one")
        node = self.node({"plugin.placement": {"use": "ours", "binary": mine, "policy": "slow"},
                          "plugin.placement.settings": {"after": WELL}})
        self.build(b"two")
        self.kill(node)
        self.assertEqual(self.runs(node), b"one")
        before = node.plugins()["placement"]["build"]
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertEqual(self.runs(node), b"two")
        self.assertNotEqual(node.plugins()["placement"]["build"], before)
        self.build(b"six")
        said = node.cli("swap", "placement", "--binary", mine)
        self.assertEqual((said["use"], said["settings"]), ("ours", {"after": str(WELL)}), "the same program under its own name")
        self.assertEqual(self.runs(node), b"six")


class Memory(Case):
    def test_a_policy_that_crashes_after_one_revert_is_not_kept(self):
        node = self.node()
        fresh = FreshActors(node, threads=2)
        node.cli(*swap_args("crash", after=300))
        node.cli(*swap_args("stall", after=300))
        fresh.start()
        row = wait_for("the configured one serves", lambda: (
            lambda r: r if r["policy"] == "rendezvous" and r["state"] == "serving" else None)(node.plugins()["placement"]), 30)
        fresh.stop(self)
        self.assertIn("reverted from faulty-policy/crash to scheduler/rendezvous", row["reason"])
        self.assertEqual(len(row["bad_builds"]), 2, row)
        self.assertIn("faulty-policy/crash (build ", row["last_exit_build"])
        self.assertFalse(running(node, "faulty-policy"))
        said = node.cli("plugin", "reset", "placement")
        self.assertIn("2 bad builds forgotten", said["text"])
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        self.assertEqual(node.stop(), 0)
        node.start()
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        self.common_checks(node)

    def test_a_wrong_answer_to_a_real_question_leaves_a_dump(self):
        node = self.node({"swap": {"answers": 16}})
        node.cli(*swap_args("lie", after=60))
        fresh = FreshActors(node, threads=2).start()
        wait_for("it lied", lambda: node.status()["stats"]["place_invalid"] == 1, 30)
        fresh.stop(self)
        self.assertIn("which is no candidate", "".join(dumps(node)))


class Settings(Case):
    def test_they_are_shown_kept_with_their_policy_and_taken_out(self):
        node = self.node()
        said = node.cli(*swap_args("slow", after=WELL, every=7))
        self.assertRegex(said["text"], rf"faulty-policy/slow \(build [0-9a-f]{{8}}, after={WELL}, every=7\)$")
        self.assertEqual(said["settings"], {"after": str(WELL), "every": "7"})
        row = node.plugins()["placement"]
        self.assertEqual((row["build"], row["settings"]), (said["build"], said["settings"]))
        again = refused(self, node, *swap_args("slow", after=WELL))
        self.assertIn(f"already runs faulty-policy/slow (build {row['build']}, after={WELL}, every=7)", again)
        text = subprocess.run([os.path.join(BIN, "holdfast"), "--node", node.data, "plugins"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
        self.assertIn(f"placement  settings: after={WELL}, every=7", text)
        self.assertEqual(node.cli("swap", "placement", "--unset", "every")["settings"], {"after": str(WELL)})
        self.assertIn("no setting 'every' to take out; there is after",
                      refused(self, node, "swap", "placement", "--unset", "every"))
        self.assertEqual(node.cli("swap", "placement", "--fresh", "--set", "every=9")["settings"], {"every": "9"})
        other = node.cli("swap", "placement", "--policy", "rendezvous", "--binary", SCHEDULER)
        self.assertEqual(other["settings"], {}, "another program starts without")
        self.assertIn("has no policy", refused(self, node, "swap", "gateway", "--fresh"))
        self.common_checks(node, node.pid)

    def test_config_check_and_the_policy_agree(self):
        node = self.node(start=False)
        cases = (("placement", "rendezvous", {"in_flight_max": 3}, False), ("placement", "pinned", {"instance": 4294967295}, True),
                 ("placement", "pinned", {"instance": 4294967296}, False), ("placement", "pinned", {"node": "n1"}, True),
                 ("placement", "least-loaded", {"node": "n1"}, False), ("placement", "two-choices", {"a": 1}, False),
                 ("drain", "paced", {"in_flight_max": 1}, True), ("drain", "paced", {"in_flight_max": 1024}, True),
                 ("drain", "paced", {"in_flight_max": 1025}, False), ("drain", "paced", {"in_flight_max": 0}, False))
        judged = []
        for slot, policy, settings, good in cases:
            node.tables[f"plugin.{slot}"]["policy"] = policy
            node.tables[f"plugin.{slot}.settings"] = settings
            node.write_config()
            code, _, said = node.cli("config", "check", node.config, check=False)
            self.assertEqual(code, 0 if good else 2, said)
            judged.append((slot, policy, settings, good))
            del node.tables[f"plugin.{slot}.settings"]
            node.tables["plugin.placement"]["policy"] = "rendezvous"
        node.write_config()
        node.start()
        for slot, policy, settings, good in judged:
            sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
            code, _, said = node.cli("swap", slot, "--policy", policy, *sets, check=False)
            self.assertEqual(code, 0 if good else 1, said)

    def test_a_policy_that_refuses_what_the_file_says_is_down_with_its_reason(self):
        node = self.node({"plugin.placement": {"use": "faulty-policy", "binary": FAULTY, "policy": "slow"},
                          "plugin.placement.settings": {"aftr": 5}})
        row = wait_for("it is down", lambda: (lambda r: r if r["state"] == "failed" else None)(node.plugins()["placement"]), 5)
        self.assertIn('refused its configuration: no setting "aftr"', row["reason"])
        self.assertEqual(row["restarts"], 0)
        self.assertFalse(row["bad_builds"])
        self.assertEqual(node.status()["policies"]["placement"], "built-in default")
        self.common_checks(node, node.pid)


class Words(Case):
    def test_slips_are_answered_with_what_there_is(self):
        node = self.node({"plugin.placement": None})
        said = refused(self, node, "swap", "placement", "--policy", "least-loaded")
        self.assertIn("no [plugin.placement] and the built-in policy decides; add the table", said)
        self.assertIn("this node has: gateway, storage, runtime, drain", refused(self, node, "rollback", "nonsense"))
        self.assertIn("this node has: ", refused(self, node, "plugin", "reset", "placment"))
        said = refused(self, node, "swap", "drain", "--binary", LEAST_BUSY)
        self.assertIn("offers no drain policy", said)
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        said = refused(self, node, "actors", "--class", "nope")
        self.assertIn("class 'nope' is not deployed on this node; there is counter", said)
        self.common_checks(node, node.pid)

    def test_a_wrong_command_line_of_holdfastd_ends_with_2(self):
        for words in (["--nonsense"], ["serve"], ["--config"]):
            done = subprocess.run([os.path.join(BIN, "holdfastd"), *words], capture_output=True, text=True, timeout=10, check=False)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
        done = subprocess.run([os.path.join(BIN, "holdfastd"), "--help"], capture_output=True, text=True, timeout=10, check=False)
        self.assertEqual(done.returncode, 0)

    def test_without_a_file_both_programs_take_the_one_here(self):
        node = self.node(start=False)
        with open(node.config, "a", encoding="ascii") as file:
            file.write("[limitz]\nx = 1\n")
        for words in (["holdfastd"], ["holdfast", "config", "check"]):
            done = subprocess.run([os.path.join(os.path.abspath(BIN), words[0]), *words[1:]], capture_output=True, text=True,
                                  timeout=10, check=False, cwd=node.dir)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("limitz", done.stderr)
