#!/usr/bin/python3
"""Runs each fuzz target for some seconds over seeds made by code, in a directory of its own that goes away, and writes the
counts for the caller. What a target finds is printed with the input that shows it, in hex.

usage: run.py --build DIR [--seconds N] [--results FILE] [NAME...]     run.py --build DIR --list: what is to be built
"""
import argparse
import concurrent.futures
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

# Where it is built, and what beside the target's own seeds it starts from.
TARGETS = {
    "ring_fuzz": ("tests/fuzz", []),
    "message_fuzz": ("tests/fuzz", []),
    "guest_fuzz": ("tests/fuzz", []),
    "wasm_fuzz": ("tests/fuzz", []),
    "changes_fuzz": ("tests/fuzz", []),
    "records_fuzz": ("tests/fuzz", []),
    "config_fuzz": ("tests/fuzz", ["examples/*.toml"]),
    "http_fuzz": ("plugins/gateway-http", []),
    "sockets_fuzz": ("plugins/gateway-http", []),
}
OWN_SEEDS = ("ring_fuzz", "message_fuzz", "guest_fuzz", "wasm_fuzz", "changes_fuzz")
RSS_MB = 3072            # a module's translation takes hundreds of MB under the sanitizer
INPUT_SECONDS = 20       # one input; a build with sanitizers on a busy machine
INPUT_BYTES_MAX = 70_000 # a whole record


def run(build, name, seconds):
    """(good, what to print)"""
    folder, extra = TARGETS[name]
    program = os.path.join(build, folder, name)
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as directory:
        corpus = os.path.join(directory, "corpus")
        os.makedirs(corpus)
        if name in OWN_SEEDS:
            subprocess.run([program, "--seeds=" + corpus], check=True)
            if not os.listdir(corpus):
                return False, f"{name} wrote no seeds"
        for pattern in extra:
            for path in glob.glob(os.path.join(ROOT, pattern)):
                with open(path, "rb") as source, open(os.path.join(corpus, os.path.basename(path)), "wb") as target:
                    target.write(source.read())
        words = [program, corpus, f"-max_total_time={seconds}", f"-artifact_prefix={directory}/", f"-rss_limit_mb={RSS_MB}",
                 f"-timeout={INPUT_SECONDS}", f"-max_len={INPUT_BYTES_MAX}", "-print_final_stats=1"]
        dictionary = os.path.join(HERE, name.replace("_fuzz", ".dict"))
        if os.path.exists(dictionary):
            words.append("-dict=" + dictionary)
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False,
                              env={**os.environ, "UBSAN_OPTIONS": "print_stacktrace=1"}, cwd=directory)
        if done.returncode != 0:
            found = [path for path in glob.glob(directory + "/*-*") if os.path.isfile(path)]
            inputs = []
            for path in found:
                with open(path, "rb") as file:
                    inputs.append(f"{os.path.basename(path)}: {file.read(4096).hex()}")
            return False, f"{name} ended with {done.returncode}\n{done.stderr[-5000:]}\n" + "\n".join(inputs)
        units = re.search(r"stat::number_of_executed_units:\s+(\d+)", done.stderr)
        cover = re.findall(r"cov: (\d+)", done.stderr)
        return True, f"{name}: {units.group(1) if units else '?'} inputs, {cover[-1] if cover else '?'} edges"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--results")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("names", nargs="*", metavar="NAME", help=" ".join(TARGETS))
    options = parser.parse_args()
    for name in options.names:
        if name not in TARGETS:
            parser.error(f"there is no target '{name}'; there are: {' '.join(TARGETS)}")
    if options.list:
        print("\n".join(os.path.join(folder, name) for name, (folder, _) in TARGETS.items()))
        return 0
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for good, text in pool.map(lambda n: run(os.path.abspath(options.build), n, options.seconds), options.names or TARGETS):
            counts["passed" if good else "failed"] += 1
            print(text if good else "FAILED " + text, flush=True)
    if options.results:
        with open(options.results, "w", encoding="utf-8") as file:
            json.dump(counts, file)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
