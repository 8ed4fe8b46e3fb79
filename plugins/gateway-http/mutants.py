#!/usr/bin/env python3
"""Broken variants of what WebSockets, large bodies and calls between nodes rely on, each of which a case of the process tests must
catch.

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
    "any-signature": (
        "a call need not be signed by who knows the secret", "peer_door.cpp",
        "if (claim.twice_ || !is_signature(claim.signature_, facts_.secret, text))", "if (claim.twice_)",
        "the_call_is_not_as_it_was_signed"),
    "any-header": (
        "a client's header may be changed on the way", "peer_door.cpp",
        "if (!facts.fields_sha256.empty() && facts.fields_sha256 != claim.fields_sha256_)", "if (false)",
        "the_call_is_not_as_it_was_signed"),
    "any-target": (
        "a call for another node is taken", "peer_door.cpp",
        "if (facts.target != facts_.node)", "if (false)",
        "the_call_is_for_somebody_else*"),
    "any-app": (
        "a call for another app is taken", "peer_door.cpp",
        "if (facts.tenant != facts_.tenant || facts.app != facts_.app)", "if (facts.tenant != facts_.tenant)",
        "the_call_is_for_somebody_else*"),
    "any-time": (
        "a call of whatever time is taken", "peer_door.cpp",
        "if (skew > kSkewMs)", "if (false)",
        "the_call_is_for_somebody_else*"),
    "before-the-start": (
        "a call that an earlier process may have taken is taken", "peer_door.cpp",
        "if (facts.time_ms < facts_.started_ms)", "if (false)",
        "the_call_is_for_somebody_else*"),
    "used-again": (
        "a call is taken as often as it comes", "peer_door.cpp",
        "switch (used_.use(facts.once, now_ns)) {", "switch (OnceTable::Seen::First) {",
        "the_call_comes_again"),
    "nodes-at-the-front": (
        "calls are taken where clients come, beside a socket for nodes", "peer_door.cpp",
        "if (claims && door == DoorFor::Clients)", "if (false)",
        "with a socket for nodes*"),
    "clients-at-the-back": (
        "the socket for nodes takes clients", "peer_door.cpp",
        "if (!claims && door == DoorFor::Nodes)", "if (false)",
        "with a socket for nodes*"),
    "claims-pass": (
        "a client's fields of nodes reach the actor", "event.cpp",
        '{"x-wasmkeep-", "x-holdfast-"}', '{"x-wasmkeep-forwarded", "x-holdfast-"}',
        "a client claims to be a node"),
    "room-for-all": (
        "a client gets the room that nodes need", "connection_peer.cpp",
        "} else if (parser_.narrow(head) == Parsed::Refused) {", "} else if (false) {",
        "a client gets no more room*"),
    "sent-twice": (
        "a call that may have been read is sent again", "peer_client.cpp",
        "    out.once = true;\n", "",
        "peer_closes_a_kept_connection_under_a_call"),
    "sent-is-not-sent": (
        "a call that was sent is said not to be", "peer_client.cpp",
        "} else if (!answer.sent) {", "} else if (true) {",
        "peer_breaks_after_the_call_was_sent"),
    "no-deadline": (
        "a call waits longer than its deadline", "peer_client.cpp",
        "    call.timer = loop_->after(left_ms, [this, id] { time_is_up(id); });\n", "",
        "peer_is_slower_than_the_deadline"),
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
