#!/usr/bin/env python3
"""Broken variants of the core's rules, each of which the simulator must catch.

  mutants.py list                      names, one a line
  mutants.py files NAME                the core files it changes
  mutants.py make NAME ROOT OUT...     writes the changed copies, in the order of `files`
  mutants.py run SIM DIR               SIM must pass the seeds, every mutant in DIR must fail one of them

A mutant is exact text of one core file and what stands there instead. When the text is not found exactly once, the build
fails: whoever changes a rule's code decides anew what its broken variant looks like.
"""
import re
import subprocess
import sys
from pathlib import Path

CORE = "agent/core/"
# Enough for each mutant; the slowest needs about 5 000 runs of one node, most need ten. Every second seed is of the other kind.
SEEDS = 12000
CLUSTER_SEEDS = 2000
TIMEOUT_S = 180

# name: (why it is wrong, [(file, old, new), ...])
MUTANTS = {
    "output-before-store": (
        "an answer leaves before its change is stored",
        [("commit.cpp", "!unit.outputs.empty() && unit.outputs.front().needs <= unit.stored_ordinal",
          "!unit.outputs.empty()")]),
    "read-only-passes-the-gate": (
        "a read does not wait for what it has seen",
        [("run.cpp", "}  // namespace\n\nvoid Units::want_place",
          "bool g_read_only = false;\n}  // namespace\n\nvoid Units::want_place"),
         ("run.cpp", "            LogEntry part = entry_of(*unit, mail, event);",
          "            g_read_only = event.changes.empty() && event.sends.empty() && !event.alarm;\n"
          "            LogEntry part = entry_of(*unit, mail, event);"),
         ("run.cpp", "    Output output;\n    output.waiting = mail.waiting;",
          "    if (g_read_only && reply.reason == ReplyReason::Ok) {\n"
          "        Waiting waiting = mail.waiting;\n"
          "        answer(unit, waiting, std::move(reply));\n"
          "        forget_waiting(waiting);\n"
          "        return pump(unit);\n"
          "    }\n"
          "    Output output;\n    output.waiting = mail.waiting;")]),
    "compaction-drops-seals": (
        "a ghost may still try a seal's slot until its incarnation is reaped",
        [("commit.cpp", "(!slot.seal || slot.sealed_incarnation <= reaped_)", "true")]),
    "two-commits-open": (
        "a ghost would have more than one slot",
        [("commit.cpp", "if (unit.commit_op != 0 || unit.pending.empty()", "if (unit.pending.empty()")]),
    "retired-answer-accepted": (
        "an answer computed on undone state counts",
        [("run.cpp",
          "    if (unit == nullptr || unit->runtime_op != op || unit->activation != activation ||\n"
          "        unit->runtime != from) {",
          "    if (unit == nullptr) {")]),
    "unknown-is-applied": (
        "an unknown outcome is guessed",
        [("store_client.cpp", "    const bool undecided =",
          "    if (put && answer.outcome == Outcome::Unknown) answer.outcome = Outcome::Applied;\n"
          "    const bool undecided =")]),
    "unknown-is-failed": (
        "an unknown outcome is guessed",
        [("store_client.cpp", "    const bool undecided =",
          "    if (put && answer.outcome == Outcome::Unknown) answer.outcome = Outcome::Refused;\n"
          "    const bool undecided =")]),
    "refused-after-unknown-counts": (
        "a refusal says nothing of the write that was sent before",
        [("store_client.cpp", "(put && pending.uncertain && answer.outcome == Outcome::Refused)",
          "false")]),
    "death-decides-a-write": (
        "a write the dead storage had may be applied",
        [("store_client.cpp",
          "pending.uncertain = pending.request.verb == StoreVerb::Put;", "pending.uncertain = false;")]),
    "new-write-id-on-resend": (
        "the store cannot recognise its own write",
        [("store_client.cpp", "        pending.backoff.begin(env_.now);",
          "        pending.backoff.begin(env_.now);\n        pending.request.write_id = env_.new_write_id();")]),
    "no-seal": (
        "an old owner's write under way is not fenced",
        [("load.cpp", "    unit.next_seq = last + 1;\n    seal(unit);",
          "    unit.next_seq = last + 1;\n    unit.sealed = true;\n    fetch_more(unit);")]),
    "seal-forgets-the-ghost": (
        "an old owner's write that won the slot counts",
        [("load.cpp", "unit.to_fetch.push_back(unit.next_seq++);", "++unit.next_seq;")]),
    "load-without-settling": (
        "a load misses the write under way and what is merged behind it",
        [("admit.cpp", "if (unit.settled() && unit.store_op == 0) start_load(unit);",
          "if (unit.store_op == 0) start_load(unit);"),
         ("load.cpp",
          "    HF_CHECK(unit.settled(), \"a load with an undecided write of that unit would miss it\");\n",
          "")]),
    "base-before-its-changes": (
        "a base is stored before the changes it contains",
        [("commit.cpp",
          "next.entry.changes.push_back(std::move(base));\n    unit.pending.push_back(std::move(next));",
          "next.entry.changes.push_back(std::move(base));\n"
          "    unit.pending.insert(unit.pending.begin() + (unit.commit_op != 0 ? 1 : 0), "
          "std::move(next));")]),
    "epoch-stays": (
        "every turn to held is a new epoch",
        [("hold.cpp", "    ++record.epoch;", "    if (record.epoch == 0) ++record.epoch;")]),
    "undo-keeps-memory": (
        "the runtime still holds what was undone",
        [("commit.cpp", "    go_cold(unit, true);\n}", "}")]),
    "redelivery-loses-the-event": (
        "the event a dead runtime had is nowhere",
        [("run.cpp", "    unit.mailbox_bytes += mail.waiting.bytes;\n"
          "    unit.mailbox.push_front(std::move(mail));", "")]),
    "redelivery-is-a-first-attempt": (
        "the actor cannot know that it may have run before",
        [("run.cpp", "    ++mail.attempt;\n", "")]),
    "invalid-place-accepted": (
        "a policy that names no candidate stays in charge",
        [("placer.cpp", "answer.none ? !answer.reason.empty() : chosen != open.candidates.end()", "true"),
         ("placer.cpp", "done_(open.question.unit, chosen->handle, \"\");",
          "done_(open.question.unit, chosen == open.candidates.end() ? "
          "open.candidates.front().handle : chosen->handle, \"\");")]),
    "late-event-promises-no-effect": (
        "503 for an event that may still take effect",
        [("answers.cpp", "    reply.reason = ReplyReason::Deadline;",
          "    reply.reason = ReplyReason::Unavailable;")]),
    "alarm-without-a-hint": (
        "whoever starts next does not know that the alarm is set",
        [("commit.cpp", "    const bool alarm = entry.alarm && !first.hinted;",
          "    const bool alarm = false;")]),
    "alarm-hint-is-never-new": (
        "the hint of a replaced alarm still fires it",
        [("wakes.cpp", "return !unit.alarm || unit.alarm->nonce != alarm->nonce;", "return alarm == nullptr;")]),
    "alarm-failed-is-done": (
        "an alarm whose handler failed is forgotten",
        [("wakes.cpp", "return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Failed);",
          "return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Done);")]),
    "alarm-refused-is-done": (
        "an alarm that could not run is forgotten",
        [("wakes.cpp", "return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Refused);",
          "return alarms_.ended(unit.key, alarm.nonce, Alarms::End::Done);")]),
    "alarm-that-ran-stands": (
        "an alarm that has run is not over",
        [("run.cpp", "part.alarm_cleared = unit.alarm.has_value();  // an alarm that has run is over",
          "part.alarm_cleared = event.alarm.has_value();")]),
    "refused-base-is-stored": (
        "what a base would have covered is deleted, and the next entry leaves a hole",
        [("commit.cpp", "    if (answer.outcome != Outcome::Applied) {\n        // Everything in it",
          "    if (false) {\n        // Everything in it")]),
    "base-forgets-the-fold": (
        "what a base covers is lost with it: alarm, marks, messages",
        [("commit.cpp", "        unit.stored.give(entry);\n", "")]),
    "message-applied-each-time": (
        "a message that comes again is applied again",
        [("messages.cpp", "        if (it != marks->end() && it->second >= message.n) return true;", "        (void)it;")]),
    "message-not-announced": (
        "a unit whose only work is an undelivered message is not found after a restart",
        [("commit.cpp", "} else if (!entry.outbox.empty() && !unit.outbox_hint) {", "} else if (false) {")]),
    "message-refused-is-done": (
        "a sender forgets a message that its receiver refused",
        [("messages.cpp", "    if (reply.reason == ReplyReason::Ok) {\n        ++env_.stats.messages_applied;",
          "    {\n        ++env_.stats.messages_applied;")]),
    "deleted-hint-announces": (
        "an outbox is taken for announced by a hint whose deletion is under way",
        [("wakes.cpp", "    replace_hint(unit, std::move(seen));", "    unit.outbox_hint = std::move(seen);")]),
    "accepted-before-journalled": (
        "a client hears 202 and a crash forgets its request",
        [("journal.cpp", "    env_.emit(JournalAppend{op, item});",
          "    env_.emit(JournalAppend{op, item});\n"
          "    answer(Append{waiter, item, false}, ReplyReason::Ok, \"\");"),
         ("journal.cpp", "        if (!append.answered) answer(append, ReplyReason::Ok, \"\");", "")]),
    "journal-forgets-refused": (
        "a request leaves the journal though its actor did not apply it",
        [("journal.cpp", "    if (end != OfferEnd::Applied) return offer_some();",
          "    if (end == OfferEnd::Failed) return offer_some();")]),
    "journal-not-read": (
        "what was accepted before a crash is not offered after it",
        [("journal.cpp", "    for (JournalItem& item : event.items) {", "    for (JournalItem& item : event.items) {\n        break;")]),
    "journal-without-marks": (
        "a request that was applied before a crash is applied again after it",
        [("messages.cpp", "    for (const auto* marks : {&unit.applied, &unit.stored.applied}) {",
          "    if (message.kind == EventKind::Http) return false;\n"
          "    for (const auto* marks : {&unit.applied, &unit.stored.applied}) {")]),
    "journal-overtakes": (
        "a later request of an actor is offered before an earlier one is applied",
        [("journal.cpp", "    line.push_back(std::move(item));\n    offers_.add(name);",
          "    line.push_back(std::move(item));\n    if (line.size() > 1) std::swap(line.front(), line.back());\n"
          "    offers_.add(name);")]),
    "mark-dropped-early": (
        "a crash before the removal is on disk offers what was applied, and nobody remembers",
        [("journal.cpp", "    item.event.clear();\n    done_.push_back",
          "    if (line.empty()) hooks_.settled(item);\n    item.event.clear();\n    done_.push_back")]),
    "call-leaves-early": (
        "a callee sees what may still be undone",
        [("calls.cpp", " || unit.stored_ordinal < unit.parked->needs) return;", ") return;")]),
    "body-lost-at-a-death": (
        "an event that runs again has its large body still",
        [("run.cpp", "    deliver.attached = mail.attached;", "    if (mail.attempt == 1) deliver.attached = mail.attached;")]),
    "bodies-of-dead-gateways-count": (
        "what a gateway was sending when it died is open no more",
        [("socket_events.cpp", "    bulk_.gateway_gone(gateway);\n", "")]),
    "stop-not-stored": (
        "a unit leaves memory before what its Stop wrote is stored",
        [("leave.cpp", "        if (!unit.settled()) return;\n", "")]),
    "stop-skipped": (
        "a unit that wants to hear that it leaves is not told",
        [("leave.cpp", "unit.memory == Memory::Resident && unit.wants_stop &&", "unit.memory == Memory::Sealing &&")]),
    "event-after-stop": (
        "an event runs in memory that has said goodbye",
        [("run.cpp", "if (unit.memory != Memory::Resident || unit.stop_over) return;",
          "if (unit.memory != Memory::Resident) return;"),
         ("admit.cpp", "if (unit.memory != Memory::Resident || unit.stop_over) return;",
          "if (unit.memory != Memory::Resident) return;")]),
    "stop-of-a-dead-activation-runs": (
        "a fresh activation hears the Stop of the one before",
        [("run.cpp", "    if (std::holds_alternative<FromStop>(mail.waiting.origin)) return stop_lost(unit, mail);\n",
          "")]),
    "idle-units-stay": (
        "memory is never given back",
        [("leave.cpp", "            if (pausing(unit)) ask_to_leave(unit, StopReason::Evict);", "")]),
    "old-retired-before-the-new-is-ready": (
        "a runtime leaves while some of its successors still start",
        [("swap.cpp", "    if (++slot.swap->ready < slot.swap->candidates.size() || !candidates_live(*slot.swap)) return;",
          "    ++slot.swap->ready;\n    if (!candidates_live(*slot.swap)) return;")]),
    "runtime-stops-before-the-swap-is-decided": (
        "there is nobody to go back to",
        [("supervision.cpp", "instance->part != Instance::Part::Retiring || !instance->ending ||",
          "instance->part != Instance::Part::Retiring ||")]),
}

# Of several nodes on one bucket.
CLUSTER_MUTANTS = {
    "lease-counts-from-the-answer": (
        "others count from when they saw the renewal, which may be long before its answer",
        [("lease.cpp", "        etag_ = answer.etag;\n        valid_until_ = asked + spec.ttl",
          "        etag_ = answer.etag;\n        valid_until_ = env_.lease_now() + spec.ttl")]),
    "lapsed-lease-serves": (
        "a node acts on a lease that it could not renew",
        [("lease.cpp", "    if (!valid())\n        return lose(", "    if (false)\n        return lose("),
         ("lease.cpp", "op_ == 0 ? std::min(renew_at_, valid_until_) : valid_until_;", "op_ == 0 ? renew_at_ : kNever;")]),
    "suspend-does-not-count": (
        "a lease runs out while the host sleeps",
        [("core.cpp", "    lease_.tick();\n    std::visit", "    env_.slept = 0;\n    lease_.tick();\n    std::visit")]),
    "silent-is-dead": (
        "a node that is only thought dead may still renew, and serve",
        [("peers.cpp", "        bury(id, peer, peer.readable ? peer.record.incarnation : peer.wanted);",
          "        peer.record.dead = peer.record.incarnation;")]),
    "no-grace": (
        "a lease that is counted by a slow clock is still good",
        [("peers.cpp", "return peer.since + ttl + env_.config.lease.grace;", "return peer.since + ttl;")]),
    "taken-from-the-living": (
        "a hold is taken from a node that lives",
        [("hold.cpp", "            elsewhere(unit, record.owner, To::Owner);\n            return false;", "            return true;")]),
    "takeover-without-a-seal": (
        "the old owner's write under way is not fenced",
        [("hold.cpp", "    unit.restored = unit.epoch > 1;\n    unit.sealed = false;",
          "    unit.restored = unit.epoch > 1;\n    unit.sealed = !unit.prior_node.empty();")]),
    "passed-on-again": (
        "an event goes in circles between nodes that each think another has it",
        [("pass_on.cpp", "    if (mail.passed_on) {", "    if (false) {")]),
    "unanswered-is-not-sent": (
        "503 for an event that another node may have run",
        [("pass_on.cpp", "    if (outcome == PeerOutcome::NotSent) {", "    if (outcome != PeerOutcome::Answered) {")]),
    "in-doubt-is-undone": (
        "503 for an event whose entry may be stored after all",
        [("hold.cpp", "entry_open ? unit.pending.front().ordinal : 0;", "entry_open ? 0 : 0;")]),
    "lost-write-is-sent-again": (
        "a write goes to the store for which the node has no lease any more",
        [("hold.cpp", "    store_.abandon(std::exchange(unit.commit_op, 0));", "    unit.commit_op = 0;")]),
    "id-of-another-taken": (
        "a second data directory takes the id of a node that lives",
        [("boot.cpp", "    if (lease.none() || own || dead) return true;", "    if (lease.none() || own || dead || record.incarnation != 0) return true;")]),
    "stop-keeps-the-lease": (
        "others wait for a node that has stopped",
        [("core.cpp", "        lease_.resign();\n", "")]),
}
ALL = MUTANTS | CLUSTER_MUTANTS


def files(name):
    return list(dict.fromkeys(file for file, _, _ in ALL[name][1]))


def make(name, root, outs):
    texts = {}
    for file, old, new in ALL[name][1]:
        text = texts.get(file) or (Path(root) / CORE / file).read_text()
        found = text.count(old)
        if found != 1:
            sys.exit(f"mutant {name}: its text is found {found} times in {CORE}{file}, must be once:\n{old}")
        texts[file] = text.replace(old, new)
    for file, out in zip(files(name), outs, strict=True):
        Path(out).write_text(texts[file])


def seeds(binary, cluster):
    count, kind = (CLUSTER_SEEDS, "--clusters") if cluster else (SEEDS, "--single")
    return subprocess.run([binary, "--seeds", str(count), "--from", "1", kind], capture_output=True,
                          text=True, timeout=TIMEOUT_S, check=False)


def run(sim, directory):
    for cluster in (False, True):
        healthy = seeds(sim, cluster)
        if healthy.returncode != 0:
            sys.exit("the core itself fails these seeds:\n" + healthy.stdout[-3000:] + healthy.stderr[-500:])
    missed = []
    for name, (why, _) in ALL.items():
        binary = Path(directory) / f"mutant-{name}"
        try:
            done = seeds(binary, name in CLUSTER_MUTANTS)
        except subprocess.TimeoutExpired:
            print(f"{name}: ran out of time")
            missed.append(name)
            continue
        said = re.findall(r"^(?:seed \d+: .*|CHECK failed.*|the core aborted.*)$",
                          done.stdout + done.stderr, re.MULTILINE)
        if done.returncode in (1, -6) and said:  # a Failure, or a CHECK of the core
            print(f"{name}: caught, {said[-1]}")
        else:
            print(f"{name}: NOT CAUGHT (code {done.returncode}): {why}")
            missed.append(name)
    if missed:
        sys.exit(f"{len(missed)} of {len(ALL)} mutants live: {', '.join(missed)}")
    print(f"all {len(ALL)} mutants caught")


def main():
    match sys.argv[1:]:
        case ["list"]:
            print("\n".join(ALL))
        case ["files", name]:
            print("\n".join(files(name)))
        case ["make", name, root, *outs]:
            make(name, root, outs)
        case ["run", sim, directory]:
            run(sim, directory)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
