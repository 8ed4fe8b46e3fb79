#!/usr/bin/env python3
"""Runs the commands of docs/policy-tutorial.md as they stand there.

  tutorial_test.py [--node] TUTORIAL BUILDDIR

Blocks marked `<!-- run: sdk -->` need the installed SDK only; it is installed from BUILDDIR unless HOLDFAST_SDK_PREFIX is set.
With --node, blocks marked `<!-- run: node -->` run too: HOLDFAST_BIN and HOLDFAST_DATA must then name a running node.
"""
import os
import re
import subprocess
import sys
import tempfile

# A compiler on a busy machine takes most of it; a swap ends by itself much sooner.
SECONDS_MAX = 300
BLOCK = re.compile(r"<!-- run: (sdk|node) -->\n```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main():
    words = sys.argv[1:]
    with_node = words[:1] == ["--node"]
    tutorial, build = words[1:] if with_node else words
    with open(tutorial, encoding="utf-8") as file:
        blocks = BLOCK.findall(file.read())
    kinds = [kind for kind, _ in blocks]
    if kinds.count("sdk") < 3 or kinds.count("node") < 3:
        sys.exit(f"{tutorial}: only {len(blocks)} marked blocks found, the marks are broken")
    with tempfile.TemporaryDirectory(prefix="holdfast-tutorial-") as directory:
        environment = dict(os.environ)
        if not environment.get("HOLDFAST_SDK_PREFIX"):
            prefix = os.path.join(directory, "sdk")
            source = os.path.dirname(os.path.dirname(os.path.abspath(tutorial)))
            subprocess.run([os.path.join(source, "packaging/install-sdk.sh"), build, prefix], check=True)
            environment["HOLDFAST_SDK_PREFIX"] = prefix
        script = "set -eux\n" + "\n".join(text for kind, text in blocks if with_node or kind == "sdk")
        return subprocess.run(["sh", "-c", script], cwd=directory, env=environment, timeout=SECONDS_MAX,
                              check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
