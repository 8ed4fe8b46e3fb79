"""What ./dev builds before it serves, and that it says where it stands when nobody watches a terminal."""
import os
import subprocess

from harness import BIN, ROOT, Case


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
