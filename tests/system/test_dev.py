"""What ./dev builds before it serves, that it says where it stands when nobody watches a terminal, and examples/chat/up."""
import os
import re
import signal
import subprocess
import threading
import urllib.request

from harness import BIN, ROOT, Case, alive, descendants, wait_for

try:
    import websockets
except ImportError:
    websockets = None


class Dev(Case):
    def functions(self, words, **kw):
        """Runs words after the definitions of ./dev, without its last part, which acts."""
        with open(os.path.join(ROOT, "dev"), encoding="utf-8") as file:
            definitions = file.read().split('\ncase "${1:-}" in\n')[0]
        return subprocess.run(["bash", "-c", definitions + "\n" + words, os.path.join(ROOT, "dev")], text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **kw)

    def test_run_builds_what_is_served_and_no_test(self):
        build = os.path.dirname(os.path.abspath(BIN))
        done = self.functions(f'ninja -C "{build}" -t inputs "${{product[@]}}"')
        self.assertEqual(done.returncode, 0, done.stderr)
        inputs = done.stdout.split()
        self.assertTrue([name for name in inputs if name.endswith("agent/main.cpp")])
        self.assertTrue([name for name in inputs if name.endswith("abi/sdk/libhf_sdk.a")], "authors link it")
        self.assertFalse([name for name in inputs if "_test" in name or "/tests/" in name or "mutant" in name])

    def test_without_a_terminal_it_says_where_it_stands_and_what_went_wrong(self):
        steps = "for i in 1 2 3; do echo \"[$i/9] Compiling C++ object x.o\"; done; echo 'FAILED: x.o'; echo 'x.cpp:1: error: no'"
        done = self.functions("{ " + steps + "; } | progress", env={**os.environ, "HOLDFAST_PROGRESS_SECONDS": "0"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, "FAILED: x.o\nx.cpp:1: error: no\n")
        self.assertIn("dev: still building [3/9]\n", done.stderr)
        quiet = self.functions("{ " + steps + "; exit 3; } | progress")
        self.assertEqual((quiet.returncode, quiet.stderr), (3, ""), "ninja's end is ours")


class ChatUp(Case):
    """As a user would: by its path, from a directory of his own, with Ctrl-C for all that the terminal runs."""

    def setUp(self):
        super().setUp()
        if os.path.realpath(BIN) != os.path.join(os.path.realpath(ROOT), "build", "bin"):
            self.skipTest("examples/chat/up serves what lies in build/bin")

    def up(self):
        out = os.path.join(self.dir, "out")
        with open(out, "wb") as file:
            process = subprocess.Popen([os.path.join(ROOT, "examples", "chat", "up")], cwd=self.dir, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                                       env={**os.environ, "HOLDFAST_LISTEN": "127.0.0.1:0", "HOLDFAST_DATA": "chat-data"})
        self.extra.append(process)

        def said():
            with open(out, encoding="utf-8", errors="replace") as file:
                text = file.read()
            self.assertIsNone(process.poll(), text)
            return text if "who is there" in text else None
        # What is not built yet is built first.
        return process, wait_for("it says how to enter", said, 600, 0.1)

    def interrupt(self, process):
        family = descendants(process.pid)
        self.assertGreater(len(family), 5)
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(process.wait(timeout=40), 0)
        wait_for("nothing is left", lambda: not [pid for pid in family if alive(pid)], 10)

    def enter(self, text, *lines):
        """The printed commands: what the first shows until the last of these lines comes back, and what the second answers."""
        command = re.search(r"to enter one \(.*\):  (.*)\n", text).group(1)
        who = re.search(r"who is there:  curl (http://\S+)\n", text).group(1)
        with subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              cwd=self.dir) as client:
            self.extra.append(client)
            late = threading.Timer(60, client.kill)
            late.start()
            client.stdin.write("".join(line + "\n" for line in lines).encode())
            client.stdin.flush()
            shown = b""
            while f"ann: {lines[-1]}".encode() not in shown:
                piece = client.stdout.read1()
                self.assertTrue(piece, shown)
                shown += piece
            there = urllib.request.urlopen(who, timeout=20).read()
            client.stdin.close()
            client.stdout.read()
            late.cancel()
        return shown, there

    def test_the_chat_example_says_how_to_enter_and_ends_at_ctrl_c(self):
        process, text = self.up()
        self.assertRegex(text, r"rooms are at ws://127\.0\.0\.1:[1-9]\d*/actor/chat/<room>\n")
        self.assertNotIn("-X POST", text, "a room does not know POST")
        self.assertTrue(os.path.isdir(os.path.join(self.dir, "chat-data")), "it counts from where it was called")
        if websockets is not None:
            self.assertEqual(self.enter(text, "/name ann", "hello")[1], b"ann\n")
        self.interrupt(process)
        # What was said is still there the next time, though the room has another address then.
        process, text = self.up()
        if websockets is not None:
            self.assertIn(b"ann: hello", self.enter(text, "/name ann", "again")[0])
        self.interrupt(process)
