"""The files of this tree, as its checks want them."""
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIP_EXIT = 77   # meson's word for a skipped test


def tracked(*patterns):
    """Paths below ROOT that git knows and that are there; [] outside of a checkout."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", *patterns], capture_output=True, text=True, check=False).stdout.split()
    return [name for name in listed if os.path.exists(os.path.join(ROOT, name))]


def walked():
    """The same from the file system, for a tree that is no checkout."""
    names = []
    for base, _, files in os.walk(ROOT):
        rel = os.path.relpath(base, ROOT)
        if not rel.split(os.sep)[0].startswith((".git", "build")):
            names += [os.path.normpath(os.path.join(rel, name)) for name in files]
    return names
