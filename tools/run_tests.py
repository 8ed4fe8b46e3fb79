#!/usr/bin/python3
"""Runs the suites, prints the time of each, and ends with the plain line `N passed, N failed`.

Suites unit, abi, conformance, sim, tidy, long and lint are meson tests; `system` is tests/system. `fuzz`, tests/fuzz, wants a
build of its own and `s3`, tests/s3, a real store: they run with --all or by name only. A skipped test is printed with its
reason and counted apart. With --all the long suites, the sanitizers and lint run as well. Their compilers work beside the
other suites, in the idle scheduling class: the system suite waits for timers half of its time.
"""
import argparse
import concurrent.futures
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


def stand_back():
    """Before exec. Where the kernel groups processes by session, classes count within a group only: the group stands back too."""
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as group:
            group.write("19")
    except OSError:
        pass


def idly(command):
    """Runs it in the idle scheduling class: it gives way at once to whoever wants the processor. Its result, output kept."""
    return subprocess.run(["setpriv", "--pdeathsig", "TERM", "chrt", "--idle", "0", *command], text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                          start_new_session=True, preexec_fn=stand_back)


def make(set_up, build, targets):
    """Configures a build directory and makes what `targets` says is wanted; what was said if that fails, else None."""
    done = idly([os.path.join(ROOT, "dev"), *set_up])
    if done.returncode == 0:
        done = idly(["ninja", "-C", build, "--quiet", *targets()])
    return None if done.returncode == 0 else done.stdout[-6000:]


def make_sanitized(kind, tests):
    build = os.path.join(ROOT, "build-" + kind)
    return make(["setup-sanitized", kind], build, lambda: targets_of(build, tests))


def sanitized(tally, kind, tests, env, made):
    said = made.result()
    if said is not None:
        tally.add(0, 1)
        print(f"FAILED the build with {kind}:\n{said}")
        return
    meson_run(tally, os.path.join(ROOT, "build-" + kind), tests, "sanitizer " + kind, env, 8)


# Seconds of each fuzz target: enough for its seeds and what lies next to them, and for a look further.
FUZZ_SECONDS, FUZZ_SECONDS_LONG = 5, 60


FUZZ_BUILD = os.path.join(ROOT, "build-fuzz")
FUZZ_RUN = ["/usr/bin/python3", os.path.join(ROOT, "tests", "fuzz", "run.py"), "--build", FUZZ_BUILD]


def make_fuzz():
    listed = subprocess.run([*FUZZ_RUN, "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return make(["setup-fuzz"], FUZZ_BUILD, lambda: listed)


def fuzz_suite(tally, seconds, said):
    start = time.monotonic()
    result = os.path.join(FUZZ_BUILD, "fuzz-results.json")
    passed, failed, skipped = 0, 1, 0
    if said is None:
        if os.path.exists(result):
            os.unlink(result)
        subprocess.run([*FUZZ_RUN, "--seconds", str(seconds), "--results", result], stdin=subprocess.DEVNULL, check=False)
        if os.path.exists(result):
            with open(result, encoding="utf-8") as file:
                counts = json.load(file)
            passed, failed, skipped = counts["passed"], counts["failed"], counts["skipped"]
    else:
        print(f"FAILED the build of the fuzz targets:\n{said}")
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


def lint(build):
    start = time.monotonic()
    done = idly(["/usr/bin/python3", os.path.join(ROOT, "tests", "tidy", "lint.py"), build])
    return done.returncode, done.stdout, time.monotonic() - start


def lint_suite(tally, linted):
    code, said, seconds = linted.result()
    passed, failed, skipped = int(code == 0), int(code not in (0, SKIP_EXIT)), int(code == SKIP_EXIT)
    print(f"  lint: {said[-6000:]}")
    tally.add(passed, failed, skipped)
    tally.times.append(("lint (beside the others)", seconds, passed, failed))
    print(f"lint: {passed} passed, {failed} failed, {skipped} skipped in {seconds:.0f} s, beside the others", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="add sanitizer builds, long storms and thousands of seeds")
    parser.add_argument("suites", nargs="*", help="unit abi conformance sim tidy system fuzz s3 long lint; default: all but the last four")
    options = parser.parse_args()
    known = [*MESON_SUITES, "system", "fuzz", "s3", "long", "lint"]
    for suite in options.suites:
        if suite not in known:
            parser.error(f"there is no suite '{suite}'; there are: {' '.join(known)}")
    build = os.path.join(ROOT, "build")
    tally = Tally()
    everything = options.all and not options.suites
    if everything:
        beside = concurrent.futures.ThreadPoolExecutor(1)
        fuzz_made = beside.submit(make_fuzz)
        address_made = beside.submit(make_sanitized, "address,undefined", ADDRESS)
        thread_made = beside.submit(make_sanitized, "thread", THREAD)
        linted = beside.submit(lint, build)
    for suite in options.suites or [*MESON_SUITES, "system"]:
        if suite == "system":
            system_suite(tally, build, "system", ["--long"] if options.all else [])
        elif suite == "fuzz":
            fuzz_suite(tally, FUZZ_SECONDS_LONG if options.all else FUZZ_SECONDS, make_fuzz())
        elif suite == "s3":
            s3_suite(tally, build)
        else:
            meson_suite(tally, build, suite, suite, timeout_multiplier=3)
    if everything:
        s3_suite(tally, build)
        meson_suite(tally, build, "long", "long", timeout_multiplier=3)
        fuzz_suite(tally, FUZZ_SECONDS_LONG, fuzz_made.result())
        sanitized(tally, "address,undefined", ADDRESS,
                  {"ASAN_OPTIONS": "abort_on_error=1", "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}, address_made)
        sanitized(tally, "thread", THREAD, {"TSAN_OPTIONS": "halt_on_error=1"}, thread_made)
        lint_suite(tally, linted)
    elif not options.suites:
        print("skipped: ./dev test fuzz (a build of its own) and s3 (starts a real store); --all runs them too")
    print("\ntime per suite:")
    for label, seconds, passed, failed in tally.times:
        print(f"  {label:28} {seconds:6.0f} s   {passed} passed, {failed} failed")
    if tally.skipped:
        print(f"skipped, with the reasons above: {tally.skipped}")
    print(f"{tally.passed} passed, {tally.failed} failed", flush=True)
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
