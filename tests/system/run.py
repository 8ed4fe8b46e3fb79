#!/usr/bin/python3
"""Runs the system tests one by one, a line each, and writes the counts for the caller.

usage: run.py [--bin DIR] [--results FILE] [--long] [PATTERN...]   a pattern is a part of `file.Class.test`
"""
import argparse
import json
import os
import sys
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def flatten(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from flatten(item)
        else:
            yield item


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "bin"))
    parser.add_argument("--results")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()
    os.environ["HOLDFAST_TEST_BIN"] = os.path.abspath(options.bin)
    if options.long:
        os.environ["HOLDFAST_LONG"] = "1"
    sys.path.insert(0, HERE)
    tests = [t for t in flatten(unittest.defaultTestLoader.discover(HERE, "test_*.py"))
             if not options.patterns or any(p in t.id() for p in options.patterns)]
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for test in tests:
        start = time.monotonic()
        result = unittest.TestResult()
        try:
            test.run(result)
        except Exception:  # pylint: disable=broad-except
            result.addError(test, sys.exc_info())
            traceback.print_exc()
        seconds = time.monotonic() - start
        if result.failures or result.errors:
            counts["failed"] += 1
            print(f"FAILED {test.id()} ({seconds:.1f} s)")
            for _, text in result.failures + result.errors:
                print("    " + text.replace("\n", "\n    "))
        elif result.skipped:
            counts["skipped"] += 1
            print(f"skipped: {test.id()}: {result.skipped[0][1]}")
        else:
            counts["passed"] += 1
            print(f"ok {test.id()} ({seconds:.1f} s)")
        sys.stdout.flush()
    if options.results:
        with open(options.results, "w", encoding="utf-8") as file:
            json.dump(counts, file)
    print(f"system: {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not tests else 0


if __name__ == "__main__":
    sys.exit(main())
