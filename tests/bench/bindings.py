# SPDX-License-Identifier: Apache-2.0
"""What 100,000 bindings cost a daemon in which nothing happens: memory, lease rounds, sweeps, and its start.

The rows are copies of one that the daemon made, written into its database while it is stopped; the provider is many.c, which lists
the same sessions from a loop."""

import json
import sqlite3
import time

from parts import PROGRAMS, daemon, harness, seconds_until

BINDINGS = 100000
ROUND_S = 1
ROUNDS = 5  # per measurement
# Short deadlines, so that rounds come fast; nothing may become due while it is measured, and the sweep starts soon.
CONF = f"""lease: {{ active = "1s"; idle = "24h"; operation_ttl = "{3 * ROUND_S}s"; owner_ttl = "{3 * ROUND_S}s"; }};
gc: {{ interval = "{ROUND_S}s"; }};
execution: {{ claim_ttl = "{3 * ROUND_S}s"; }};"""
LEASES = ("keeper", "gc", "store-writer")  # the threads of a lease round; all others' time is the sweep's


def add_bindings(path):
    db = sqlite3.connect(path)
    group, due, rev, doc = db.execute("SELECT grp, due, rev, doc FROM tasks WHERE key = 'w/first'").fetchone()
    base = json.loads(doc)

    def row(i):
        own = dict(base, ref=f"s-{i:06d}", intent=f"{i:032x}", fence=base["fence"] + 2 * i + 10,
                   incarnation=base["incarnation"] + 2 * i + 10)
        return f"w/t{i:06d}", group, due, rev, json.dumps(own, separators=(",", ":"))

    with db:
        db.executemany("INSERT INTO tasks(key, grp, due, rev, doc) VALUES(?, ?, ?, ?, ?)", map(row, range(BINDINGS)))
        db.execute("UPDATE counters SET value = value + ? WHERE name = 'sessions:many'", (BINDINGS,))
        db.execute("UPDATE counters SET value = value + ? WHERE name = 'store.next'", (2 * BINDINGS + 20,))
    db.close()


def start(berth):
    """Seconds until it says that it is ready."""
    begin = time.monotonic()
    berth.start(wait=False)
    port = berth.state / "port"
    seconds_until(lambda: berth.proc.poll() is not None or port.exists() and port.read_text().strip())
    harness.check(berth.proc.poll() is None, "berthd ended:", berth.log()[-1000:])
    berth.port = int(port.read_text())
    seconds_until(lambda: berth.get("/ready").status == 200)
    return time.monotonic() - begin


def calls(berth):
    return int(next(line.split()[1] for line in berth.get("/metrics").text.splitlines()
                    if line.startswith("berth_target_calls_total{")))


def look_seldom(condition):
    """What a look costs the daemon would count as a sweep's time."""
    seconds_until(condition, 120, 0.25)


def settled_resident(berth, sweeps):
    """Resident bytes once that many sweeps are over and the last one's memory is given back."""
    pages = BINDINGS // 1000
    look_seldom(lambda: calls(berth) >= sweeps * pages)
    seen = [calls(berth), berth.status("VmRSS")]

    def quiet():
        found = [calls(berth), berth.status("VmRSS")]
        same, seen[:] = found[0] == seen[0] and found[0] % pages == 0, found
        return same
    harness.wait_for(quiet, 60, "the end of a sweep")
    return seen[1]


def bindings(options, stack):
    berth = daemon(stack, "bindings", conf=CONF, plugin_dir=PROGRAMS / "plugins")
    (berth.dir / "providers.d" / "10-mock.conf").write_text('provider = "many";\nname = "many";\n')
    start(berth)
    berth.run("first", "true")
    berth.stop()
    start(berth)
    empty = berth.status("VmRSS")
    berth.stop()
    add_bindings(berth.state / "berth.db")

    def one_round(number):
        ready = start(berth)
        resident = settled_resident(berth, 2)
        before, first, begin = berth.thread_seconds(), calls(berth), time.monotonic()
        look_seldom(lambda: calls(berth) >= first + ROUNDS * (BINDINGS // 1000))
        took, swept = time.monotonic() - begin, (calls(berth) - first) / (BINDINGS / 1000)
        spent = {name: seconds - before.get(name, 0) for name, seconds in berth.thread_seconds().items()}
        leases = sum(spent.get(name, 0) for name in LEASES)
        berth.stop()
        return {"ready": (ready, None), "resident_each": ((resident - empty) / BINDINGS, None),
                "lease_round": (leases / (took / ROUND_S) * 1000, None),
                "sweep": ((sum(spent.values()) - leases) / swept, None)}
    return one_round
