#!/usr/bin/env python3
"""Broken variants of what a WebSocket and a large body may rely on, each of which a case of the process tests must catch.

  mutants.py list                      names, one a line
  mutants.py file NAME                 the file it changes
  mutants.py make NAME ROOT OUT        writes the changed copy
  mutants.py run TEST DIR              TEST passes each case with the gateway itself and fails it with the mutant in DIR

A mutant is exact text of one file and what stands there instead. When the text is not found exactly once, the build fails:
whoever changes a rule's code decides anew what its broken variant looks like.
"""
import os
import subprocess
import sys
from pathlib import Path

ROOM = "plugins/gateway-http/"
TIMEOUT_S = 60

# name: (why it is wrong, file, old, new, the case that must fail)
MUTANTS = {
    "two-messages": (
        "a second message goes to the actor before the first one is taken", "socket.cpp",
        "    if (asked_)\n        message_waits_ = true;\n    else\n        ask();",
        "    server_.requests().let_go(*this);\n    ask();",
        "one message at a time*"),
    "told-twice": (
        "the end of a socket is told again", "socket.cpp",
        "    if (state_ == State::Told) return;\n    state_ = State::Told;",
        "    if (state_ == State::Told) (void)server_.requests().take_socket();\n    state_ = State::Told;",
        "the client closes"),
    "told-never": (
        "an accepted socket whose client had left is not told to be closed", "requests.cpp",
        "    tell_closed(socket, kCloseBroken, \"the client was gone before it was accepted\");",
        "    give_back_socket();",
        "client_leaves_before_it_is_accepted"),
    "any-text": (
        "text need not be UTF-8", "frames.cpp",
        "if (!binary && !is_utf8(as_text(message)))", "if (false)",
        "hostile frames*"),
    "unmasked": (
        "a client need not mask", "frames.cpp",
        "if (frame.mask == 0)", "if (false)",
        "hostile frames*"),
    "endless-buffer": (
        "a client that does not read is kept", "socket.cpp",
        "+ kFrameExtra <= most", "+ kFrameExtra <= most + (std::size_t{1} << 40U)",
        "client_does_not_read_what_its_actor_says"),
    "endless-memory": (
        "all sockets together have no bound", "socket.cpp",
        "server_.charge(charged_, now);", "server_.charge(charged_, charged_);",
        "all sockets together*"),
    "no-back-pressure": (
        "a client is read while its message waits", "connection.cpp",
        "phase_ == Phase::Socket ? !socket_->can_take()", "phase_ == Phase::Socket ? false",
        "client_sends_without_end*"),
    "any-pong": (
        "a pong need not answer a ping", "frames.cpp",
        "(!expected_pong.empty() && control == expected_pong)", "true",
        "client_is_silent"),
    "end-overtakes": (
        "the end of a socket overtakes its last message", "requests.cpp",
        "    queue_.push_back({nullptr, std::move(draft)});\n    if (queue_.size() == 1) retry();",
        "    queue_.push_front({nullptr, std::move(draft)});\n    retry();",
        "supervisor_takes_nothing_more"),
    "uploads-count-for-ever": (
        "an upload that is answered makes no room", "requests.cpp",
        "    give_back_upload(asked.reserved);\n", "",
        "uploads together*"),
    "download-never-given-back": (
        "nobody hears that a large answer is not needed any more", "connection_end.cpp",
        "    server_.requests().tell_released(download_->request_id);\n", "",
        "a client that leaves in the middle of a download*"),
    "all-at-once": (
        "a large answer is read before its client takes it", "connection_end.cpp",
        "std::min<std::uint64_t>(kPieceBytes, download.bytes - download.at)", "download.bytes - download.at",
        "neither way is a body kept*"),
}


def make(name, root, out):
    _, file, old, new, _ = MUTANTS[name]
    text = (Path(root) / ROOM / file).read_text()
    found = text.count(old)
    if found != 1:
        sys.exit(f"mutant {name}: its text is found {found} times in {ROOM}{file}, must be once:\n{old}")
    Path(out).write_text(text.replace(old, new))


def passes(test, case, gateway=None):
    env = {**os.environ, **({"HOLDFAST_TEST_GATEWAY": str(gateway)} if gateway else {})}
    try:
        done = subprocess.run([test, f"--test-case={case}", "--abort-after=1"], env=env, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False)
    except subprocess.TimeoutExpired:
        return False
    if "test cases: 0" in " ".join(done.stdout.split()):
        sys.exit(f"there is no case '{case}'")
    return done.returncode == 0


def run(test, directory):
    missed = []
    for case in sorted({mutant[4] for mutant in MUTANTS.values()}):
        if not passes(test, case):
            sys.exit(f"the gateway itself fails '{case}'")
    for name, (why, _, _, _, case) in MUTANTS.items():
        if passes(test, case, Path(directory) / f"gateway-mutant-{name}"):
            print(f"{name}: NOT CAUGHT by '{case}': {why}")
            missed.append(name)
        else:
            print(f"{name}: caught by '{case}'")
    if missed:
        sys.exit(f"{len(missed)} of {len(MUTANTS)} mutants live: {', '.join(missed)}")
    print(f"all {len(MUTANTS)} mutants caught")


def main():
    match sys.argv[1:]:
        case ["list"]:
            print("\n".join(MUTANTS))
        case ["file", name]:
            print(MUTANTS[name][1])
        case ["make", name, root, out]:
            make(name, root, out)
        case ["run", test, directory]:
            run(test, directory)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
