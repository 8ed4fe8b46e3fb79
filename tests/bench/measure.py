"""What the rows of the benchmark table share: a node of their own, load, JSON lines of other programs, medians."""
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.join(ROOT, "build")
os.environ.setdefault("HOLDFAST_TEST_BIN", os.path.join(BUILD, "bin"))
sys.path.insert(0, os.path.join(ROOT, "tests", "system"))
import harness  # noqa: E402


def json_lines(*command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})
    out = {}
    for line in done.stdout.splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            row = json.loads(line)
            out[row.get("name", "")] = row
    if not out:
        print(f"{command[0]} gave no rows: {done.stderr[-500:]}")
    return out


def wrk(url, seconds, connections=64, script=None):
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", url]
    if script:
        command[1:1] = ["-s", script]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1))
    unit = {"us": 1e-3, "ms": 1.0, "s": 1e3}
    p50 = re.search(r"50%\s+([\d.]+)(us|ms|s)", text)
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", text)
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return {"rate": rate, "p50_ms": float(p50.group(1)) * unit[p50.group(2)], "p99_ms": float(p99.group(1)) * unit[p99.group(2)],
            "bad": int(bad.group(1)) if bad else 0}


def start_node(directory, name, toml=None, classes=("counter",)):
    path = os.path.join(directory, name)
    os.makedirs(path)
    return harness.Node(path, toml, classes).start()


def median(values):
    return statistics.median(values)


class Judge:
    """What harness.Load.verify asks of a test, for a benchmark."""

    def fail(self, why):
        raise AssertionError(why)

    def assertFalse(self, value, why=""):
        if value:
            self.fail(f"{why}: {value}")

    def assertEqual(self, a, b, why=""):
        if a != b:
            self.fail(why)

    def assertLessEqual(self, a, b, why=""):
        if a > b:
            self.fail(why)
