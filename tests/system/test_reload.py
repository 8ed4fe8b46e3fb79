"""agent.toml read again by a node that serves: all of it or nothing."""
import os
import signal
import threading

from harness import BIN, Case, wait_for
import test_starts
from test_swap import refused


class ReloadCase(Case):
    def rewrite(self, node, tables):
        """The node's file with other values; None takes one out."""
        for table, values in tables.items():
            node.tables.setdefault(table, {}).update(values)
            for key in [key for key, value in values.items() if value is None]:
                del node.tables[table][key]
        node.write_config()

    def value(self, node, key):
        rows = node.cli("config", "show")["values"]
        return next((row["value"] for row in rows if f"{row['table']}.{row['key']}" == key), None)

    def reload(self, node):
        """What has changed, by key: from what to what."""
        return {row["key"]: (row["old"], row["new"]) for row in node.cli("config", "reload")["changed"]}


class Reload(ReloadCase):
    def test_live_keys_change_and_the_answer_says_from_what_to_what(self):
        node = self.node()
        pid, fds = node.pid, node.fds()
        plugins = {name: row["generation"] for name, row in node.plugins().items()}
        self.assertEqual(node.cli("config", "reload")["changed"], [])
        self.rewrite(node, {"limits": {"mailbox_events": 5, "hold_idle": "2h"}, "log": {"level": "debug"}, "swap": {"answers": 9}})
        said = node.cli("config", "reload")
        changed = {row["key"]: (row["old"], row["new"]) for row in said["changed"]}
        self.assertEqual(changed, {"limits.mailbox_events": ("128", "5"), "limits.hold_idle": ("1h", "2h"),
                                   "log.level": ("info", "debug"), "swap.answers": ("64", "9")})
        self.assertEqual(self.value(node, "limits.mailbox_events"), "5")
        self.assertTrue(node.status()["config"]["last_reload"]["ok"])
        self.assertEqual({name: row["generation"] for name, row in node.plugins().items()}, plugins, "nothing was started anew")
        self.common_checks(node, pid, fds)

    def test_a_bound_holds_from_the_reload_on(self):
        node = self.node(classes=("counter", "misfit"))
        self.rewrite(node, {"limits": {"accepted_events": 1}})
        statuses = []

        def ask(number):
            statuses.append(node.post(f"/actor/counter/a{number}")[0])

        def burst():
            del statuses[:]
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(40)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return set(statuses)
        self.assertEqual(burst(), {200})
        node.cli("config", "reload")
        wait_for("the node refuses what is beyond the bound", lambda: 503 in burst(), 20)
        self.assertEqual(node.post("/actor/counter/b")[0], 200)

    def test_limits_of_a_class_change_with_a_new_runtime(self):
        node = self.node(classes=("counter", "misfit"))
        self.assertEqual(node.post("/actor/counter/a")[2], b"1\n")
        old = [row["pid"] for row in node.plugins()["runtime"]["instances"]]
        self.rewrite(node, {"class.counter": {"cpu_limit": "200ms", "memory_max": "1MiB"}})
        said = node.cli("config", "reload")
        self.assertEqual({row["key"] for row in said["changed"]}, {"class.counter.cpu_limit", "class.counter.memory_max"})
        self.assertFalse(set(old) & {row["pid"] for row in node.plugins()["runtime"]["instances"]})
        self.assertEqual(node.post("/actor/counter/a")[2], b"2\n")
        self.assertFalse(node.status()["classes"][0]["deployed"])
        # A limit that its module does not fit leaves everything as it was, the other keys too.
        self.rewrite(node, {"class.misfit": {"memory_max": "64KiB"}, "limits": {"mailbox_events": 7}})
        said = refused(self, node, "config", "reload")
        self.assertIn("class misfit: memory_max is 1 pages", said)
        self.assertEqual(self.value(node, "limits.mailbox_events"), "128")
        self.assertEqual(self.value(node, "class.counter.memory_max"), "1MiB")
        self.assertEqual(node.post("/actor/counter/a")[2], b"3\n")
        self.common_checks(node, node.pid)

    def test_each_limit_of_a_class_changes_again_and_again(self):
        node = self.node({"plugin.gateway": {"body_bytes_max": "1MiB"}, "class.vault": {"memory_max": "4MiB"}},
                         classes=("counter", "vault"))

        def pids():
            return [row["pid"] for row in node.plugins()["runtime"]["instances"]]
        old = pids()
        # What no runtime is told changes in the core alone.
        self.rewrite(node, {"class.counter": {"mailbox": "volatile", "evict_after": "1s"}})
        said = node.cli("config", "reload")
        self.assertEqual({row["key"] for row in said["changed"]}, {"class.counter.mailbox", "class.counter.evict_after"})
        self.assertEqual(node.post("/actor/counter/a", headers={"Prefer": "respond-async"})[:1], (200,))
        wait_for("it leaves memory", lambda: node.cli("actors")["actors"][0]["state"] == "cold")
        self.assertEqual(pids(), old)
        for size in ("100KiB", "200KiB", "100KiB"):
            self.rewrite(node, {"class.vault": {"body_max": size}})
            node.cli("config", "reload")
            self.assertEqual(self.value(node, "class.vault.body_max"), size)
            for kib, status in ((90, 200), (150, 200 if size == "200KiB" else 413)):
                self.assertEqual(node.post("/actor/vault/v/echo", body=b"x" * (kib << 10))[0], status, size)
            self.rewrite(node, {"class.counter": {"mailbox": "buffered" if size == "200KiB" else "durable"}})
            node.cli("config", "reload")
        self.assertFalse(set(old) & set(pids()))
        self.common_checks(node, node.pid)

    def test_a_roll_back_of_the_runtime_takes_limits_back_and_a_reload_brings_the_files(self):
        node = self.node({"plugin.gateway": {"body_bytes_max": "1MiB"}, "class.vault": {"memory_max": "4MiB", "body_max": "100KiB"}},
                         classes=("counter", "vault"))

        def echo(kib):
            return node.post("/actor/vault/v/echo", body=b"x" * (kib << 10))[0]
        self.assertEqual((echo(90), echo(150)), (200, 413))
        self.rewrite(node, {"class.vault": {"body_max": "200KiB"}})
        node.cli("config", "reload")
        self.assertEqual((echo(150), echo(250)), (200, 413))
        node.cli("rollback", "runtime")
        self.assertEqual((echo(90), echo(150)), (200, 413))
        # The file is as it was, the runtime is not.
        self.assertEqual(self.reload(node), {})
        self.assertEqual(echo(150), 200)
        # And the file may go to what the runtime was taken back to.
        node.cli("rollback", "runtime")
        self.rewrite(node, {"class.vault": {"body_max": "100KiB"}})
        self.assertEqual(self.reload(node), {"class.vault.body_max": ("200KiB", "100KiB")})
        self.assertEqual((echo(90), echo(150)), (200, 413))
        self.assertEqual(self.reload(node), {})
        self.common_checks(node, node.pid)

    def test_keys_that_need_a_restart_refuse_all_of_it_by_name(self):
        node = self.node()
        self.rewrite(node, {"limits": {"mailbox_events": 5, "request_timeout": "9s"}, "plugin.runtime": {"instances": 3},
                            "node": {"id": "other"}})
        said = refused(self, node, "config", "reload")
        for key in ("limits.request_timeout", "plugin.gateway.request_timeout", "plugin.runtime.instances", "node.id"):
            self.assertIn(key, said)
        self.assertNotIn("mailbox_events", said)
        self.assertEqual(self.value(node, "limits.mailbox_events"), "128")
        self.assertFalse(node.status()["config"]["last_reload"]["ok"])
        self.rewrite(node, {"node": {"id": "n1"}, "limits": {"request_timeout": "30s"}, "plugin.runtime": {"instances": 2},
                            "class.another": {"module": node.tables["class.counter"]["module"]}})
        self.assertIn("class.another.module", refused(self, node, "config", "reload"))

    def test_a_bad_file_changes_nothing_and_says_where_it_is_wrong(self):
        node = self.node()
        pid = node.pid
        with open(node.config, encoding="utf-8") as file:
            good = file.read().replace("[node]\n", "[limits]\nmailbox_events = 5\n[node]\n", 1)
        bad = {
            "unknown key": (good + "[restart]\nintensty = \"on\"\n", "intensity"),
            "unknown table": (good + "[limitz]\nx = 1\n", "limitz"),
            "no unit": (good.replace("mailbox_events = 5", "hold_idle = 5"), "must be a duration"),
            "out of range": (good.replace("mailbox_events = 5", "mailbox_events = 0"), "mailbox_events"),
            "key twice": (good.replace("mailbox_events = 5", "mailbox_events = 5\nmailbox_events = 6"), "mailbox_events"),
            "no TOML": (good + "[[[\n", "not valid TOML"),
            "not UTF-8": (good.encode() + b"# \xff\n", "utf-8"),
            "a NUL": (good.encode() + b"# \0\n", "agent.toml"),
            "empty": ("", "plugin"),
            "too large": (good + "#" * (1 << 20), "larger than"),
            "no module": (good.replace("counter.wasm", "nothing.wasm"), "nothing.wasm"),
        }
        # And every file that no node starts with.
        bad.update({name: (text, "agent.toml:") for name, text in test_starts.BadConfigurations.BAD.items()})
        for name, (text, why) in bad.items():
            with open(node.config, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
            said = refused(self, node, "config", "reload")
            self.assertIn(why, said, name)
            self.assertIn(why, node.status()["config"]["last_reload"]["text"], name)
            self.assertEqual(self.value(node, "limits.mailbox_events"), "128", name)
            self.assertEqual(node.post("/actor/counter/a")[0], 200)
        os.unlink(node.config)
        self.assertIn("does not exist", refused(self, node, "config", "reload"))
        os.mkdir(node.config)
        self.assertIn("is a directory", refused(self, node, "config", "reload"))
        os.rmdir(node.config)
        os.mkfifo(node.config)
        self.assertIn("not a regular file", refused(self, node, "config", "reload"))
        os.unlink(node.config)
        with open(node.config, "w", encoding="utf-8") as file:
            file.write(good)
        self.assertEqual(len(node.cli("config", "reload")["changed"]), 1)
        self.common_checks(node, pid)

    def test_hangup_reads_it_again(self):
        node = self.node()
        self.rewrite(node, {"limits": {"mailbox_events": 5}})
        os.kill(node.pid, signal.SIGHUP)
        wait_for("it was read", lambda: self.value(node, "limits.mailbox_events") == "5")
        with open(node.config, "a", encoding="ascii") as file:
            file.write("[limitz]\n")
        os.kill(node.pid, signal.SIGHUP)
        wait_for("the trouble is told", lambda: not node.status()["config"]["last_reload"]["ok"])
        self.assertIn("limitz", node.stderr())
        self.common_checks(node, node.pid)


class Policies(ReloadCase):
    """Settings of a policy are judged by the policy: it is swapped to itself with the new ones."""
    KEY = "plugin.placement.settings.instance"

    def pinned(self, settings, plugin=None, **kw):
        return self.node({"plugin.placement": {"policy": "pinned", **(plugin or {})}, "plugin.placement.settings": settings,
                          "swap": {"window": "300ms"}}, **kw)

    def place(self, node, name):
        """On which runtime instance a new actor comes to live."""
        self.assertEqual(node.post(f"/actor/counter/{name}")[0], 200)
        return next(row["instance"] for row in node.cli("actors")["actors"] if row["name"] == name)

    def test_settings_of_a_policy_change_and_can_be_taken_back(self):
        node = self.pinned({"instance": 0})
        pid, fds = node.pid, node.fds()
        runtimes = [row["pid"] for row in node.plugins()["runtime"]["instances"]]
        self.assertEqual(self.place(node, "a"), 0)
        self.rewrite(node, {"plugin.placement.settings": {"instance": 1}, "plugin.drain.settings": {"in_flight_max": 3},
                            "limits": {"mailbox_events": 7}})
        self.assertEqual(self.reload(node), {self.KEY: ("0", "1"), "plugin.drain.settings.in_flight_max": (None, "3"),
                                             "limits.mailbox_events": ("128", "7")})
        self.assertEqual(self.place(node, "b"), 1)
        row = node.plugins()["placement"]
        self.assertEqual((row["policy"], row["settings"], row["state"]), ("pinned", {"instance": "1"}, "serving"))
        self.assertEqual(node.plugins()["drain"]["settings"], {"in_flight_max": "3"})
        self.assertEqual(self.value(node, self.KEY), "1")
        self.assertEqual([row["pid"] for row in node.plugins()["runtime"]["instances"]], runtimes, "they are not asked")
        self.assertEqual(self.reload(node), {})
        node.cli("rollback", "placement")
        self.assertEqual(self.place(node, "c"), 0)
        # A setting that is taken out, and the policy's name with it.
        self.rewrite(node, {"plugin.placement.settings": {"instance": None}, "plugin.placement": {"policy": "least-loaded"}})
        self.assertEqual(self.reload(node), {self.KEY: ("1", None), "plugin.placement.policy": ("pinned", "least-loaded")})
        self.assertEqual(node.plugins()["placement"]["settings"], {})
        self.assertEqual(node.status()["policies"]["placement"], "least-loaded")
        self.common_checks(node, pid, fds)

    def test_a_setting_that_the_policy_refuses_refuses_all_of_it_in_its_words(self):
        # As a plugin of somebody else's the node knows nothing of its settings.
        node = self.pinned({"instance": 0}, {"use": "mine", "binary": os.path.abspath(os.path.join(BIN, "scheduler"))})
        before = node.plugins()
        self.rewrite(node, {"plugin.placement.settings": {"instanz": 1}, "plugin.drain.settings": {"in_flight_max": 3},
                            "limits": {"mailbox_events": 7}, "class.counter": {"cpu_limit": "200ms"}, "log": {"level": "debug"}})
        said = refused(self, node, "config", "reload")
        for word in ("policy pinned has no setting", "instanz", "it has instance and node"):
            self.assertIn(word, said)
        self.assertIn("the placement policy does not run with its new settings", said)
        for key, value in ((self.KEY, "0"), ("plugin.placement.settings.instanz", None), ("limits.mailbox_events", "128"),
                           ("class.counter.cpu_limit", "100ms"), ("log.level", "info"), ("plugin.drain.settings.in_flight_max", None)):
            self.assertEqual(self.value(node, key), value, key)
        after = node.plugins()
        self.assertEqual(after["placement"]["pid"], before["placement"]["pid"], "it serves on")
        self.assertEqual([row["pid"] for row in after["runtime"]["instances"]], [row["pid"] for row in before["runtime"]["instances"]])
        self.assertEqual(after["drain"]["settings"], {})
        self.assertFalse(node.cli("plugins")["remembered_bad_builds"])
        self.assertEqual(self.place(node, "a"), 0)
        self.rewrite(node, {"plugin.placement.settings": {"instanz": None, "instance": 1}})
        self.assertEqual(len(self.reload(node)), 5)
        self.assertEqual(self.place(node, "b"), 1)
        self.common_checks(node, node.pid)

    def test_a_runtime_that_does_not_come_up_takes_the_policy_back(self):
        node = self.pinned({"instance": 0}, classes=("counter", "misfit"))
        self.rewrite(node, {"plugin.placement.settings": {"instance": 1}, "class.misfit": {"memory_max": "64KiB"}})
        self.assertIn("class misfit: memory_max is 1 pages", refused(self, node, "config", "reload"))
        row = node.plugins()["placement"]
        self.assertEqual((row["settings"], row["state"], row["previous"]), ({"instance": "0"}, "serving", None))
        self.assertEqual(self.value(node, self.KEY), "0")
        self.assertEqual(self.place(node, "a"), 0)
        self.assertIn("no earlier build", refused(self, node, "rollback", "placement"))
        self.rewrite(node, {"class.misfit": {"memory_max": None}})
        self.assertEqual(list(self.reload(node)), [self.KEY])
        self.assertEqual(self.place(node, "b"), 1)
        self.common_checks(node, node.pid)

    def test_a_policy_that_was_swapped_in_is_not_given_the_settings_of_the_files(self):
        node = self.pinned({"instance": 0})
        node.cli("swap", "placement", "--policy", "least-loaded")
        self.rewrite(node, {"plugin.placement.settings": {"instance": 1}, "limits": {"mailbox_events": 7}})
        said = refused(self, node, "config", "reload")
        self.assertIn("placement runs scheduler/least-loaded by a swap", said)
        self.assertEqual(node.status()["policies"]["placement"], "least-loaded")
        self.assertEqual(self.value(node, "limits.mailbox_events"), "128")
        node.cli("rollback", "placement")
        self.assertEqual(len(self.reload(node)), 2)
        self.assertEqual(self.place(node, "a"), 1)
        # What was swapped in and then written down runs already.
        node.cli("swap", "placement", "--policy", "least-loaded")
        generation = node.plugins()["placement"]["generation"]
        self.rewrite(node, {"plugin.placement.settings": {"instance": None}, "plugin.placement": {"policy": "least-loaded"}})
        self.assertEqual(len(self.reload(node)), 2)
        self.assertEqual(node.plugins()["placement"]["generation"], generation)
        self.common_checks(node, node.pid)
