#!/usr/bin/python3
"""Runs the suites, prints the time of each, and ends with the plain line `N passed, N failed`.

Suites unit, abi, conformance, sim, tidy and long are meson tests; `system` is tests/system. `fuzz`, tests/fuzz, wants a build of
its own and `s3`, tests/s3, a real store: they run with --all or by name only. A skipped
test is printed with its reason and counted apart. With --all the sanitizer builds and the long suites run as well.
"""
import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MESON_SUITES = ["unit", "abi", "conformance", "sim", "tidy"]
SKIP_EXIT = 77


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.times = []

    def add(self, passed, failed, skipped=0):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped


def meson_suite(tally, build, suite, label, timeout_multiplier=1):
    meson_run(tally, build, ["--suite", suite], label, None, timeout_multiplier)


def meson_run(tally, build, which, label, env, timeout_multiplier):
    log = os.path.join(build, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    start = time.monotonic()
    said = subprocess.run(["meson", "test", "-C", build, "--no-rebuild", "--num-processes", "2",
                           "--timeout-multiplier", str(timeout_multiplier), *which],
                          env={**os.environ, "PATH": "/usr/bin:/bin:" + os.environ["PATH"], **(env or {})}, text=True,
                          errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          check=False).stdout
    passed = failed = skipped = 0
    if os.path.exists(log):
        with open(log, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                test = json.loads(line)
                result = test["result"]
                output = test.get("stdout", "") or ""
                for text in output.splitlines():
                    if text.startswith("skipped:"):
                        print(f"  {test['name']}: {text}")
                if result in ("OK", "EXPECTEDFAIL"):
                    passed += 1
                elif result == "SKIP":
                    skipped += 1
                else:
                    failed += 1
                    print(f"FAILED {label} {test['name']}: {result}\n{output[-6000:]}\n{(test.get('stderr') or '')[-6000:]}")
    if passed + failed + skipped == 0:
        failed = 1
        print(f"FAILED {label}: no test ran\n{said[-6000:]}")
    seconds = time.monotonic() - start
    tally.add(passed, failed, skipped)
    tally.times.append((label, seconds, passed, failed))
    print(f"{label}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s", flush=True)


def system_suite(tally, build, label, extra, env=None):
    start = time.monotonic()
    result = os.path.join(build, "system-results.json")
    if os.path.exists(result):
        os.unlink(result)
    subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tests", "system", "run.py"), "--bin", os.path.join(build, "bin"),
                    "--results", result, *extra], env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, check=False)
    passed, failed, skipped = 0, 1, 0
    if os.path.exists(result):
        with open(result, encoding="utf-8") as file:
            counts = json.load(file)
        passed, failed, skipped = counts["passed"], counts["failed"], counts["skipped"]
    seconds = time.monotonic() - start
    tally.add(passed, failed, skipped)
    tally.times.append((label, seconds, passed, failed))
    print(f"{label}: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s", flush=True)


# What runs under sanitizers. Not those whose processes lay the real second filter on themselves (it forbids what a
# sanitizer's runtime does at the end), nor the mutants.
ADDRESS = ["ring", "verify", "channel", "core", "core_keys", "records", "log", "control", "metrics", "store", "agent_modules", "memory_room", "gateway-http",
           "gateway-http-process", "scheduler", "bucket", "s3", "wasm_engine", "wasm_state", "wasm_host", "wasm_waiting", "abi_echo",
           "abi_storm", "abi_golden", "sim"]
THREAD = ["ring", "channel", "store", "abi_threads"]


def targets_of(build, tests):
    """The files that these tests run: a sanitizer's build makes no others. A name that is no test is an error."""
    told = {}
    for what in ("tests", "targets"):
        told[what] = json.loads(subprocess.run(["meson", "introspect", build, "--" + what], stdout=subprocess.PIPE, check=True).stdout)
    files = {target["id"]: target["filename"] for target in told["targets"]}
    by_name = {test["name"]: test for test in told["tests"]}
    wanted = set()
    for name in tests:
        if name not in by_name:
            raise LookupError(f"there is no test '{name}'")
        for target in by_name[name]["depends"]:
            wanted.update(os.path.relpath(path, build) for path in files[target])
    return sorted(wanted)


def sanitized(tally, kind, tests, env):
    start = time.monotonic()
    build = os.path.join(ROOT, "build-" + kind)
    set_up = subprocess.run([os.path.join(ROOT, "dev"), "setup-sanitized", kind], stdin=subprocess.DEVNULL, check=False)
    if set_up.returncode != 0 or \
            subprocess.run(["ninja", "-C", build, "--quiet", *targets_of(build, tests)], stdin=subprocess.DEVNULL, check=False).returncode != 0:
        tally.add(0, 1)
        print(f"FAILED the build with {kind}")
        return
    print(f"built with {kind} in {time.monotonic() - start:.0f} s", flush=True)
    meson_run(tally, build, tests, "sanitizer " + kind, env, 8)


# Seconds of each fuzz target: enough for its seeds and what lies next to them, and for a look further.
FUZZ_SECONDS, FUZZ_SECONDS_LONG = 5, 60


def fuzz_suite(tally, seconds):
    start = time.monotonic()
    build = os.path.join(ROOT, "build-fuzz")
    result = os.path.join(build, "fuzz-results.json")
    run = [os.path.join(ROOT, "tests", "fuzz", "run.py"), "--build", build]
    listed = subprocess.run(["/usr/bin/python3", *run, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    passed, failed, skipped = 0, 1, 0
    if subprocess.run([os.path.join(ROOT, "dev"), "setup-fuzz"], stdin=subprocess.DEVNULL, check=False).returncode == 0 and \
            subprocess.run(["ninja", "-C", build, "--quiet", *listed], stdin=subprocess.DEVNULL, check=False).returncode == 0:
        if os.path.exists(result):
            os.unlink(result)
        subprocess.run(["/usr/bin/python3", *run, "--seconds", str(seconds), "--results", result], stdin=subprocess.DEVNULL, check=False)
        if os.path.exists(result):
            with open(result, encoding="utf-8") as file:
                counts = json.load(file)
            passed, failed, skipped = counts["passed"], counts["failed"], counts["skipped"]
    else:
        print("FAILED the build of the fuzz targets")
    took = time.monotonic() - start
    tally.add(passed, failed, skipped)
    tally.times.append(("fuzz", took, passed, failed))
    print(f"fuzz: {passed} passed, {failed} failed, {skipped} skipped in {took:.0f} s", flush=True)


def s3_suite(tally, build):
    start = time.monotonic()
    result = os.path.join(build, "s3-results.json")
    if os.path.exists(result):
        os.unlink(result)
    subprocess.run(["/usr/bin/python3", os.path.join(ROOT, "tests", "s3", "run.py"), "--build", build, "--results", result],
                   stdin=subprocess.DEVNULL, check=False)
    passed, failed, skipped = 0, 1, 0
    if os.path.exists(result):
        with open(result, encoding="utf-8") as file:
            counts = json.load(file)
        passed, failed, skipped = counts["passed"], counts["failed"], counts["skipped"]
    took = time.monotonic() - start
    tally.add(passed, failed, skipped)
    tally.times.append(("s3", took, passed, failed))
    print(f"s3: {passed} passed, {failed} failed, {skipped} skipped in {took:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="add sanitizer builds, long storms and thousands of seeds")
    parser.add_argument("suites", nargs="*", help="unit abi conformance sim tidy system fuzz long s3; default: all but the last three")
    options = parser.parse_args()
    known = [*MESON_SUITES, "system", "fuzz", "long", "s3"]
    for suite in options.suites:
        if suite not in known:
            parser.error(f"there is no suite '{suite}'; there are: {' '.join(known)}")
    build = os.path.join(ROOT, "build")
    tally = Tally()
    suites = options.suites or [*MESON_SUITES, "system", *(["fuzz"] if options.all else [])]
    for suite in suites:
        if suite == "system":
            system_suite(tally, build, "system", ["--long"] if options.all else [])
        elif suite == "fuzz":
            fuzz_suite(tally, FUZZ_SECONDS_LONG if options.all else FUZZ_SECONDS)
        elif suite == "s3":
            s3_suite(tally, build)
        else:
            meson_suite(tally, build, suite, suite, timeout_multiplier=3)
    if not options.suites:
        if options.all:
            s3_suite(tally, build)
        else:
            print("skipped: ./dev test fuzz (a build of its own) and s3 (starts a real store); --all runs them too")
    if options.all and not options.suites:
        meson_suite(tally, build, "long", "long", timeout_multiplier=3)
        sanitized(tally, "address,undefined", ADDRESS,
                  {"ASAN_OPTIONS": "abort_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"})
        sanitized(tally, "thread", THREAD, {"TSAN_OPTIONS": "halt_on_error=1"})
    print("\ntime per suite:")
    for label, seconds, passed, failed in tally.times:
        print(f"  {label:28} {seconds:6.0f} s   {passed} passed, {failed} failed")
    if tally.skipped:
        print(f"skipped, with the reasons above: {tally.skipped}")
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
