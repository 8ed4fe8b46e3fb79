"""Rows about requests accepted for later, and about how long a deploy takes."""
import os
import tempfile

from measure import ROOT, Judge, harness, median, start_node, wrk
import guests  # of tests/system

# Nothing is refused because it is not applied yet: what is measured is acceptance.
ROOMY = {"limits": {"journal_events": 1_000_000, "journal_events_per_actor": 1_000_000, "journal_bytes": "1GiB"}}


def post(directory, name, headers):
    """wrk's requests go round 64 counters."""
    script = os.path.join(directory, name)
    with open(script, "w", encoding="ascii") as file:
        file.write("local n = 0\nrequest = function()\n  n = (n + 1) % 64\n"
                   f'  return wrk.format("POST", "/actor/counter/a" .. n, {{{headers}}})\nend\n')
    return script


def bench_later(table, quick):
    """Accepted (202, in the journal on disk) against done (200, in the actor's log): the same requests, the same disk."""
    seconds, rounds = (1, 3) if quick else (3, 11)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=ROOT) as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "later", ROOMY)
        try:
            for i in range(64):
                node.post(f"/actor/counter/a{i}")
            now = post(directory, "now.lua", "")
            later = post(directory, "later.lua", '["prefer"] = "respond-async"')
            for clients in (1, 64):
                ratios, rates = [], []
                for _ in range(rounds):
                    done = wrk(f"http://{node.address}/", seconds, clients, now)
                    accepted = wrk(f"http://{node.address}/", seconds, clients, later)
                    assert done["bad"] == 0 and accepted["bad"] == 0, (done, accepted)
                    harness.wait_for("all of them are applied", lambda: node.status()["journal"]["waiting"] == 0, 120)
                    ratios.append(accepted["rate"] / done["rate"])
                    rates.append(accepted["rate"])
                table.add(f"accepted for later, {clients} client{'s' if clients > 1 else ''} on 64 actors, against durable writes",
                          f"{median(ratios):.2f}× ({median(rates):.0f}/s)", "–", None)
        finally:
            node.stop()


def bench_deploy(table, quick):
    """`holdfast deploy` of modules that the node has not seen, until they serve every actor: compiled, started, moved over."""
    deploys = 3 if quick else 11
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        os.chmod(directory, 0o755)
        node = start_node(directory, "deploy", classes=("counter", "ledger"))
        try:
            with open(node.tables["class.ledger"]["module"], "rb") as file:
                first = file.read()
            load = harness.Load(node, actors=32, threads=4, rate=400).start()
            harness.wait_for("the load runs", lambda: load.count() > 100)
            times = []
            for number in range(deploys):
                module = os.path.join(directory, f"ledger-{number}.wasm")
                with open(module, "wb") as file:
                    file.write(guests.with_custom_section(first, 1 + number))
                times.append(node.cli("deploy", "ledger", module)["millis"])
            load.stop()
            load.verify(Judge(), allow=(200,))
            table.add(f"deploy of a module, compiled, until it serves, {deploys} under load, p50",
                      f"{median(times) / 1000:.2f} s, {load.count()} answered, 0 lost", "0 lost", True)
        finally:
            node.stop()
