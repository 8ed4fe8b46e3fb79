#!/usr/bin/python3
"""clang-tidy (.clang-tidy) over every source file of the product; tests are left out. usage: lint.py BUILD_DIR [FILE...]"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys

from sources import ROOT, SKIP_EXIT, tracked

ROOMS = ["abi", "agent", "cli", "jail", "plugins"]
NOT_PRODUCT = re.compile(r"(_test|_bench|_driver|_probe|_prober|/test_[a-z]+|/testing/.*)\.cpp$|/testing/|^abi/fuzz/")


def main():
    build, files = sys.argv[1], sys.argv[2:]
    if shutil.which("clang-tidy") is None:
        print("skipped: there is no clang-tidy here")
        return SKIP_EXIT
    if not files:
        files = [name for name in tracked(*[f"{room}/*.cpp" for room in ROOMS]) if not NOT_PRODUCT.search(name)]
    if not files:
        print("skipped: this is no git checkout, the files are not known")
        return SKIP_EXIT

    def check(name):
        done = subprocess.run(["clang-tidy", "-p", build, "--quiet", name], cwd=ROOT, capture_output=True, text=True, check=False)
        return name, done.returncode, done.stdout
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, code, said in pool.map(check, files):
            if code != 0:
                failed += 1
                print(f"{name}:\n{said[-3000:]}")
    print(f"{len(files)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
