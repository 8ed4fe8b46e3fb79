#!/usr/bin/python3
"""Every source file is as clang-format writes it (`./dev fmt`). Prints the files that are not and exits 1."""
import shutil
import subprocess
import sys

from sources import ROOT, SKIP_EXIT, tracked


def main():
    if shutil.which("clang-format") is None:
        print("skipped: there is no clang-format here")
        return SKIP_EXIT
    files = tracked("*.cpp", "*.hpp", "*.h", "*.c")
    if not files:
        print("skipped: this is no git checkout, the files are not known")
        return SKIP_EXIT
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1", *files], cwd=ROOT, capture_output=True,
                          text=True, check=False)
    bad = sorted({line.split(":")[0] for line in done.stderr.splitlines() if ": error: " in line})
    for name in bad:
        print(f"{name}: not formatted; ./dev fmt does it")
    if done.returncode != 0 and not bad:
        print(done.stderr[-2000:])
    return 1 if done.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
