#!/usr/bin/python3
"""The benchmark table: ratios within one run, interleaved, medians. Writes docs/benchmarks.md and prints it.

usage: run.py [--quick] [--no-write] [ROW...]      rows: link grpc wasm idle http write actors density guests
later crash swap deploy
Absolute figures on a virtual machine say little; each row names what it is a ratio to, measured in the same minutes.
"""
import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import BUILD, ROOT, Judge, harness, json_lines, median, start_node, wrk  # noqa: E402
import rows_actors  # noqa: E402
import rows_grpc  # noqa: E402
import rows_later  # noqa: E402


class Table:
    def __init__(self):
        self.rows = []

    def add(self, figure, measured, target, met):
        self.rows.append((figure, measured, target, {True: "met", False: "**missed**", None: "–"}[met]))
        print(f"{figure}: {measured} (target {target}) {self.rows[-1][3]}", flush=True)


class Nginx:
    """nginx with two workers: a 100-byte file and a constant, on a port of its own."""

    def __init__(self, directory):
        self.dir = directory
        os.makedirs(os.path.join(directory, "www"))
        os.chmod(directory, 0o755)
        with open(os.path.join(directory, "www", "file"), "w", encoding="ascii") as file:
            file.write("x" * 99 + "\n")
        import socket
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open(os.path.join(directory, "nginx.conf"), "w", encoding="ascii") as file:
            file.write(f"""daemon off; worker_processes 2; pid {directory}/pid; error_log {directory}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {directory}/b; proxy_temp_path {directory}/p;
fastcgi_temp_path {directory}/f; uwsgi_temp_path {directory}/u; scgi_temp_path {directory}/s;
server {{ listen 127.0.0.1:{self.port}; root {directory}/www;
location = /return {{ return 200 "{'x' * 99}"; }} }} }}
""")
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-c", os.path.join(directory, "nginx.conf"), "-p", directory],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        harness.wait_for("nginx answers", self._answers)

    def _answers(self):
        import urllib.request
        with contextlib.suppress(OSError):
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/file", timeout=1).status == 200
        return False

    def stop(self):
        self.process.terminate()
        self.process.wait()


def bench_link(table, quick):
    rows = json_lines(os.path.join(BUILD, "tests", "bench", "link_bench"), *(["--quick"] if quick else []))
    for row in rows.values():
        if "figure" in row:
            table.add(row["figure"], row["measured"], row["target"], row.get("met"))


WASM_FIGURES = {   # of wasm_bench: words, target (None: stated only)
    "activate_and_first_event_us": ("wasm: activation with state in memory and its first event, in the runtime", 20),
    "event_us": ("wasm: one event, in the runtime", 1),
    "event_spread_us": ("wasm: one event, spread over all resident actors", None),
    "resident_kib": ("wasm: memory of a resident actor, page tables included", 25),
}


def bench_wasm(table, quick):
    actors = 2000 if quick else 10_000
    text = subprocess.run([os.path.join(BUILD, "plugins", "runtime-wasm", "wasm_bench"), str(actors)], capture_output=True,
                          text=True, check=True).stdout
    for row in map(json.loads, text.splitlines()):
        if row["figure"] in WASM_FIGURES:
            words, most = WASM_FIGURES[row["figure"]]
            table.add(f"{words} ({actors} actors)", f"{row['value']:.2f} {row['unit']}", f"≤ {most} {row['unit']}" if most else "–",
                      row["value"] <= most if most else None)


def wakeups(pid):
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            with open(f"/proc/{pid}/task/{task}/status", encoding="ascii") as file:
                for line in file:
                    if "ctxt_switches" in line:
                        total += int(line.split()[1])
    return total


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="ascii") as file:
        return file.read().strip()


def pss_kb(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def bench_idle(table, quick):
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "idle")
        try:
            for i in range(5):
                node.post(f"/actor/counter/a{i}")
            family = [node.pid, *harness.descendants(node.pid)]
            time.sleep(7)   # past the wall deadline of the last events, 5 s, whose timers fire once; a measurement, not a wait
            before = {pid: wakeups(pid) for pid in family}
            seconds = 10 if quick else 60
            time.sleep(seconds)
            woken = {pid: wakeups(pid) - before[pid] for pid in family}
            who = ", ".join(f"{name_of(pid)} {count}" for pid, count in woken.items() if count)
            pss = sum(pss_kb(pid) for pid in family)
            table.add(f"idle {seconds} s: wake-ups of all {len(family)} processes",
                      str(sum(woken.values())) + (f" ({who})" if who else ""), "0",
                      sum(woken.values()) == 0)
            table.add("PSS of all processes together", f"{pss / 1024:.0f} MB", "≤ 80 MB", pss <= 80 * 1024)
        finally:
            node.stop()


def bench_http(table, quick):
    seconds, rounds = (2, 3) if quick else (3, 11)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        nginx = Nginx(os.path.join(directory, "nginx"))
        node = start_node(directory, "http")
        try:
            script = os.path.join(directory, "actors.lua")
            with open(script, "w", encoding="ascii") as file:
                file.write('local n = 0\nrequest = function()\n  n = (n + 1) % 64\n  return wrk.format("GET", "/actor/counter/a" .. n)\nend\n')
            for i in range(64):
                node.post(f"/actor/counter/a{i}")
            runs = {"file": [], "return": [], "holdfast": []}
            for _ in range(rounds):
                runs["file"].append(wrk(f"http://127.0.0.1:{nginx.port}/file", seconds))
                runs["holdfast"].append(wrk(f"http://{node.address}/", seconds, script=script))
                runs["return"].append(wrk(f"http://127.0.0.1:{nginx.port}/return", seconds))
            assert sum(r["bad"] for r in runs["holdfast"]) == 0, "answers other than 200"
            rate = {k: median([r["rate"] for r in v]) for k, v in runs.items()}
            p99 = {k: median([r["p99_ms"] for r in v]) for k, v in runs.items()}
            to_file, to_return = rate["holdfast"] / rate["file"], rate["holdfast"] / rate["return"]
            table.add("HTTP to warm wasm actors, no write, 64 connections", f"{to_file:.2f}× nginx file ({rate['holdfast']:.0f}/s)",
                      "≥ 1.0×", to_file >= 1.0)
            table.add("the same against nginx `return 200`", f"{to_return:.2f}×", "≥ 0.4×", to_return >= 0.4)
            table.add("the same, p99", f"{p99['holdfast']:.2f} ms, nginx file {p99['file']:.2f} ms", "≤ nginx's",
                      p99["holdfast"] <= p99["file"])
        finally:
            node.stop()
            nginx.stop()


def bench_write(table, quick):
    seconds, rounds = (2, 3) if quick else (3, 11)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=ROOT) as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "write")
        try:
            for i in range(64):
                node.post(f"/actor/counter/a{i}")
            post = os.path.join(directory, "post.lua")
            with open(post, "w", encoding="ascii") as file:
                file.write('local n = 0\nrequest = function()\n  n = (n + 1) % 64\n  return wrk.format("POST", "/actor/counter/a" .. n)\nend\n')
            get = os.path.join(directory, "get.lua")
            with open(get, "w", encoding="ascii") as file:
                file.write('local n = 0\nrequest = function()\n  n = (n + 1) % 64\n  return wrk.format("GET", "/actor/counter/a" .. n)\nend\n')
            one, none, many, plain, puts = [], [], [], [], []
            bench = os.path.join(BUILD, "plugins", "storage-local", "bucket_bench")
            for _ in range(rounds):
                none.append(wrk(f"http://{node.address}/actor/counter/a0", seconds, 1)["p50_ms"])
                one.append(wrk(f"http://{node.address}/", seconds, 1, post)["p50_ms"])
                rows = json_lines(bench, "--dir", directory, "--quick")
                puts.append(rows.get("put_1", {}).get("us", 0) / 1000)
                plain.append(wrk(f"http://{node.address}/", seconds, 64, get)["rate"])
                many.append(wrk(f"http://{node.address}/", seconds, 64, post)["rate"])
            if median(puts) > 0:
                ratio = median(one) / (median(puts) + median(none))
                table.add("HTTP with a durable write, depth 1, p50",
                          f"{ratio:.2f}× (sync put {median(puts):.3f} ms + round trip {median(none):.3f} ms)", "≤ 1.2×", ratio <= 1.2)
            share = median(many) / median(plain)
            table.add("64 clients on 64 actors, durable write, against no write", f"{share:.2f}× ({median(many):.0f}/s)", "≥ 0.4×",
                      share >= 0.4)
        finally:
            node.stop()


def bench_crash(table, quick):
    """kill -9 of a runtime instance until the first answer of one of its actors, jail included; and a storm of kills."""
    kills = 30 if quick else 200
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "crash", {"plugin.runtime": {"instances": 1}, "restart": {"intensity": "off"}}, ("counter", "ledger"))
        try:
            node.post("/actor/counter/a")
            times = []
            for _ in range(kills):
                pid = node.plugin_pid("runtime")
                begun = time.monotonic()
                os.kill(pid, 9)
                status, _, body = node.post("/actor/counter/a")
                times.append((time.monotonic() - begun) * 1000)
                assert status == 200, body
            times.sort()
            p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99) - 1]
            table.add(f"kill -9 of the runtime → first answer, {kills} kills, p50", f"{p50:.1f} ms (p99 {p99:.1f} ms)", "≤ 10 ms",
                      p50 <= 10)
            storm = 100 if quick else int(os.environ.get("HOLDFAST_STORM", "2000"))
            load = harness.Load(node, actors=32, threads=4, class_prefix="storm").start()
            done = 0
            names = ["runtime", "storage", "placement", "drain"]
            while done < storm:
                answered = load.count()
                rows = node.plugins()
                for name in names:
                    pid = rows[name]["pid"]
                    if pid:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, 9)
                            done += 1
                harness.wait_for("the node serves between the kills", lambda least=answered: load.count() > least, 60)
            load.stop()

            load.verify(Judge())
            table.add(f"storm of {done} kills under load", f"{load.count()} answered, 0 lost, 0 double effects", "0 lost, 0 double", True)
        finally:
            node.stop()


def bench_swap(table, quick):
    """Swaps of the placement policy under new actors; each second with a swap is compared with its two neighbours."""
    swaps, rate = (5 if quick else 20), 250
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "swap", {"swap": {"window": "500ms"}}, ("ledger",))
        try:
            load = harness.Load(node, actors=1_000_000_000, threads=8, rate=rate, class_prefix="new").start()
            time.sleep(2)   # a measurement: seconds without a swap
            policies, at = ["least-loaded", "rendezvous"], []
            for i in range(swaps):
                at.append(time.monotonic())
                node.cli("swap", "placement", "--policy", policies[i % 2])
                time.sleep(max(0.0, at[-1] + 3 - time.monotonic()))
            load.stop()
            load.verify(Judge(), allow=(200,))

            def p99(begin):
                times = sorted(took for begun, took in load.latencies if begin <= begun < begin + 1)
                return times[int(len(times) * 0.99)]
            ratio = median([p99(t) / median([p99(t - 1), p99(t + 1)]) for t in at])
            table.add(f"{swaps} swaps under {rate} new actors/s: p99 of the swap's second to its neighbours', median",
                      f"{ratio:.2f}×, {load.count()} answered, 0 lost", "< 2×, 0 lost", ratio < 2)
        finally:
            node.stop()


BENCHES = {"link": bench_link, "grpc": rows_grpc.bench_grpc, "wasm": bench_wasm, "idle": bench_idle, "http": bench_http,
           "write": bench_write, "actors": rows_actors.bench_actors, "density": rows_actors.bench_density,
           "guests": rows_actors.bench_guests, "later": rows_later.bench_later, "crash": bench_crash, "swap": bench_swap,
           "deploy": rows_later.bench_deploy}


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*:\s*(.*)", file.read())
    return f"{os.cpu_count()} cores, {model.group(1) if model else '?'}, Linux {os.uname().release}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="few, short rounds: for a look, not for the table")
    parser.add_argument("--no-write", action="store_true", help="print only, leave docs/benchmarks.md alone")
    parser.add_argument("rows", nargs="*", help=" ".join(BENCHES))
    options = parser.parse_args()
    table = Table()
    for name in options.rows or BENCHES:
        BENCHES[name](table, options.quick)
    lines = ["# Benchmarks", "",
             "Written by `./dev bench`. Ratios within one run, interleaved, medians; absolute figures are of one machine on one day.",
             "", f"Machine: {machine()}.", "", "| figure | measured | target | |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for row in table.rows]
    missed = [row[0] for row in table.rows if "missed" in row[3]]
    lines += ["", "Missed: " + ("; ".join(missed) if missed else "none") + ".", ""]
    print("\n".join(lines))
    if not options.quick and not options.no_write and not options.rows:
        with open(os.path.join(ROOT, "docs", "benchmarks.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines))


if __name__ == "__main__":
    main()
