"""Modules for the tests of deploys: the counter of the examples in several versions, compiled as its author would."""
import os
import subprocess

from harness import ROOT

COUNTER = os.path.join(ROOT, "examples", "actors", "counter", "counter.c")
CLANG = ["clang-14", "--target=wasm32", "-O2", "-nostdlib", "-std=c11", "-mbulk-memory", "-Wl,--no-entry", "-Wl,--stack-first",
         "-Wl,-z,stack-size=16384", "-I", os.path.join(ROOT, "guest", "include")]
STEP = 1000000   # what each version adds to the number it answers


def compiled(directory, name, source):
    path = os.path.join(directory, name)
    with open(path + ".c", "w", encoding="utf-8") as file:
        file.write(source)
    subprocess.run([*CLANG, "-o", path + ".wasm", path + ".c"], check=True)
    return path + ".wasm"


def counter(directory, version, more=""):
    """A counter that counts on from the same state and answers its number plus version x STEP; 0 is the example's own."""
    with open(COUNTER, encoding="utf-8") as file:
        source = file.read()
    assert source.count("hf_reply_number(200, n)") == 2
    return compiled(directory, f"counter{version}",
                    source.replace("hf_reply_number(200, n)", f"hf_reply_number(200, n + {version * STEP})") + more)


def parts(body):
    """(version, count) of an answer."""
    return divmod(int(body), STEP)
