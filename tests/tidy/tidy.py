#!/usr/bin/python3
"""Rules of the tree that a compiler does not check: who may include whom, one library per room, file length, dead files,
unfinished marks, sleeps in tests. Prints one line per broken rule and exits 1.
"""
import os
import re
import sys

from sources import ROOT, tracked, walked

LENGTH_MAX = 600   # lines; past it a file is two rooms

# Which project folders a file of a room may include, besides its own. Longest prefix wins.
MAY = {
    "abi/base": [], "abi/layout": ["abi/base"], "abi/ring": ["abi/base", "abi/layout"],
    "abi/verify": ["abi/base", "abi/layout"], "abi/tools": ["abi/base"], "abi/sdk": ["abi"], "abi/capi": ["abi"],
    "agent/core": ["abi/base"], "agent/loop": ["abi/base"], "agent/log": ["abi/base"], "agent/metrics": ["abi/base"],
    "agent/base": [], "agent/config": ["abi/base"], "agent/records": ["abi/base", "agent/base", "agent/core"],
    "agent/control": ["abi/base", "agent/base"], "agent/store": ["abi/base", "agent/core", "agent/loop"],
    "agent/modules": ["abi/base", "agent/base"],
    "agent/process": ["abi/base", "abi/layout"], "agent/port": ["abi", "agent/core"],
    "agent/daemon": ["abi", "agent"], "agent/main.cpp": ["abi", "agent"],
    "jail": ["abi/base", "abi/layout"], "cli": ["abi/base"],
    "plugins/http-client": ["abi/base"], "plugins/gateway-http": ["abi", "plugins/http-client"], "plugins/storage-local": ["abi"],
    "plugins/storage-s3": ["abi", "plugins/http-client"], "plugins/runtime-wasm": ["abi"],
    "plugins/scheduler": ["abi"], "guest": [], "examples": ["abi", "guest"], "tests": ["abi", "agent", "plugins", "jail", "cli"],
}
# Tests and benches beside the code, and test helpers of a room, may reach further.
TEST_FILE = re.compile(r"(_test|_bench|_driver|test_[a-z]+|fake_[a-z]+|_probe)\.(cpp|hpp)$")
# The pure core: the standard library only.
CORE_BANNED = re.compile(r'#include <(sys/|unistd|fcntl|thread|mutex|chrono|ctime|atomic|random|fstream|iostream|uv|lmdb|nlohmann|fmt|spdlog)')
# A library is named in its own room only.
LIBRARY_ROOMS = {
    r"<tl/expected": ["abi/base/result.hpp"], r"<boost/interprocess": ["abi/ring"], r"<boost/beast": ["plugins/gateway-http"],
    r"<lmdb\.h>": ["plugins/storage-local", "agent/store"], r"<seccomp\.h>": ["jail", "abi/sdk/lockdown", "abi/layout/seccomp_filter.cpp"], r"<toml\+\+": ["agent/config"],
    r"<spdlog": ["agent/log"], r"<prometheus": ["agent/metrics"], r"[<\"]wabt": ["plugins/runtime-wasm"],
    r"<openssl/ssl": ["plugins/gateway-http/tls.cpp"],
    r"<curl/": ["plugins/http-client/http.cpp"], r"<expat": ["plugins/storage-s3/xml.cpp"],
    r"<wslay/": ["plugins/gateway-http/frames.cpp"], r"<CLI/": ["cli", "agent/main.cpp", "plugins/runtime-wasm/build"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SLEEPS = re.compile(r"sleep_for|usleep\((?!static_cast<useconds_t>\(random)|\bnanosleep\(|[^_]sleep\(\d")


def room_of(path):
    best = ""
    for room in MAY:
        if (path == room or path.startswith(room + "/")) and len(room) > len(best):
            best = room
    return best


def check_file(path, text, problems):
    lines = text.count("\n")
    if lines > LENGTH_MAX:
        problems.append(f"{path}: {lines} lines, more than {LENGTH_MAX}")
    if MARKS.search(text):
        problems.append(f"{path}: an unfinished mark")
    room = room_of(path)
    if not room:
        problems.append(f"{path}: belongs to no room of tests/tidy")
        return
    is_test = bool(TEST_FILE.search(path)) or path.startswith("tests/") or "/testing/" in path
    # What plays a hostile plugin may be slow on purpose.
    if is_test and not path.startswith("tests/system/hostile/") and SLEEPS.search(text):
        problems.append(f"{path}: sleeps; wait for an event that is seen instead")
    for included in INCLUDE.findall(text):
        if "/" not in included or included.endswith("_generated.h"):
            continue
        if included.startswith(room + "/") or is_test:
            continue
        if not any(included.startswith(allowed + "/") for allowed in MAY[room]):
            problems.append(f"{path}: {room} may not include {included}")
    if room == "agent/core" and not is_test and CORE_BANNED.search(text):
        problems.append(f"{path}: the core is pure: {CORE_BANNED.search(text).group(0)}")
    for pattern, rooms in LIBRARY_ROOMS.items():
        if not is_test and re.search(r"#\s*include\s+" + pattern, text) and not any(path.startswith(r) for r in rooms):
            problems.append(f"{path}: {pattern} is named outside {', '.join(rooms)}")
    if path.endswith((".hpp", ".cpp")) and not is_test and path.endswith(".hpp") and not text.lstrip().startswith("//"):
        problems.append(f"{path}: a header starts with what its room is responsible for")


def check_dead(files, problems):
    """A source file that no meson.build names is dead."""
    listed = ""
    for path in files:
        if path.endswith("meson.build"):
            with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                listed += file.read()
    for path in files:
        if path.startswith("examples/actors/"):   # named by a loop over their folders
            continue
        if path.endswith((".cpp", ".c")) and not re.search(r"\b" + re.escape(os.path.basename(path)) + r"\b", listed):
            problems.append(f"{path}: no meson.build builds it")


# What a fuzzer leaves behind: an input under its hash.
LEFT_BEHIND = re.compile(r"(^|/)([0-9a-f]{40}|(crash|leak|oom|slow-unit|timeout)-[0-9a-f]{40})$")


def main():
    names = tracked() or walked()
    problems = [f"{path}: left behind by a fuzzer" for path in names if LEFT_BEHIND.search(path)]
    for path in names:
        full = os.path.join(ROOT, path)
        if path.endswith((".cpp", ".hpp", ".h", ".c")) and not path.startswith("guest/"):
            with open(full, encoding="utf-8") as file:
                check_file(path, file.read(), problems)
    check_dead(names, problems)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
