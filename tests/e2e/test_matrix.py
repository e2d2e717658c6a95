# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step (row Q5, invariants I1, I4, I5, I7).

One test per failpoint of host/core/failpoint.c. Each round arms it, lets clients run commands until the daemon dies there, checks
that the point reported the hit, starts the daemon again (at times armed at another point) and counts what is lost, ran twice or is
leaked (counting.py).
"""

import http.client
import random
import re
import threading
import time

import harness
import stored
from counting import Command, Counts, events_of, processes
from harness import Failure, Refused, check, equal, settled, wait_for

SOURCE = (harness.ROOT / "host" / "core" / "failpoint.c").read_text()
POINTS = re.findall(r'^\t"([a-z.]+)",$', SOURCE, re.M)
ROUNDS, ROUNDS_FULL = 5, 100
END_S = 60                                                                   # for what is open after the kill
POOLS = ("warm.", "assign.")  # reached only with a pool of warm sessions: test_warm.py
FLEETS = {"exec.shown.before"}  # reached only where other hosts may ask: test_fleet_matrix.py
CLIENTS, COMMANDS, TASKS = 6, 4, 3
TEARDOWNS = {"release.before", "release.after", "release.confirmed.before"}  # reached by a teardown
IDLE = {"gc.reclaim.before"}                                                 # reached by an idle lease that ends
RESTARTED = {"exec.started": "exec.begin.after"}                             # reached by the daemon after one that died there
# Where the store may be shared, nobody knows that the daemon is dead: what it had is waited for until its time is over, and a
# create that it may have sent until session.starting is. With the lives of production every round would take half a minute.
SHARED = harness.STORE == "redis"
LIVES = 'operation_ttl = "2s"; owner_ttl = "2s";' if SHARED else ""
OTHER_LIVES = 'execution: { claim_ttl = "2s"; };\nsession: { starting = "4s"; };\n' if SHARED else 'session: { starting = "10s"; };\n'
GONE = (OSError, http.client.HTTPException)                                  # what a client of a dying daemon sees


def idle_lease(point):
    return "150ms" if point in IDLE else "15m"


class Matrix:
    """One daemon directory in which many rounds happen. test_fleet_matrix.py has more hosts than b."""

    others_go_on = False

    takers = 1  # hosts of which any may do what the armed one is to die of

    def __init__(self, b, point, rng):
        self.b, self.point, self.rng = b, point, rng
        self.outside = b.dir / "outside"
        self.outside.touch()
        self.ended = {}
        self.late = None  # a point at which hosts may die that were disarmed in the same moment
        self.judged = Counts(self.outside)
        self.counts, self.faults, self.fault = self.judged.counts, self.judged.faults, self.judged.fault

    def asked(self):
        """Who gets the next request of a client."""
        return self.b

    # ---- clients ----
    def make_command(self, workspace, number):
        return Command(workspace, f"t{number % TASKS}", f"{workspace}-{number}", self.rng)

    def send(self, command):
        wait = self.rng.choice((None, "10s"))
        command.id = self.asked().request("POST", "/sandbox/executions", command.body(self.outside), wait=wait).expect(200, 202).json["id"]

    def client(self, commands, torn, mix):
        """Until every daemon is gone. What was answered is in the client's own list: command.id is set."""
        rng = self.rng
        for command in commands:
            try:
                self.send(command)
                if mix and rng.random() < 0.2:
                    command.cancelled = True
                    self.asked().request("DELETE", f"/sandbox/executions/{command.id}").expect(200, 202)
                if (mix or self.point in TEARDOWNS) and rng.random() < 0.15:
                    torn.add((command.workspace, command.task))
                    self.asked().teardown(command.task, command.workspace, force=rng.choice((None, "true"))).expect(202, 204)
            except GONE:
                if not self.others_go_on:
                    return
            except Failure as failure:
                if self.is_refusal(failure):
                    continue
                self.fault("lost", f"{command.key}: {failure}")
                return

    def is_refusal(self, failure):
        """Lives of a second run out on a busy machine, and then a host of a fleet does nothing before the store has confirmed it."""
        if not isinstance(failure, Refused) or not (SHARED or self.others_go_on):
            return False
        with self.judged.lock:
            self.counts["refused"] += 1
        return True

    def dead(self):
        return self.b.proc.poll() is not None

    def drive(self, name, mix):
        """Commands on fresh tasks until the armed daemon died. Returns them and the tasks that were torn down."""
        commands, torn = [], set()
        for batch in range(8 * self.takers):
            workspace = f"{name}.{batch}"
            mine = [[self.make_command(workspace, client * COMMANDS + i) for i in range(COMMANDS)] for client in range(CLIENTS)]
            commands += [command for one in mine for command in one]
            threads = [threading.Thread(target=self.client, args=(one, torn, mix)) for one in mine]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if self.point in TEARDOWNS:
                torn.add((workspace, "t0"))
                try:
                    self.b.teardown("t0", workspace)
                except GONE:
                    pass
            try:
                wait_for(self.dead, 0.7, "the kill")
                return commands, torn
            except Failure:
                continue
        raise Failure(f"{self.point}: not reached in {len(commands)} commands")

    # ---- the next daemon ----
    def start(self):
        """Starts until it is ready; a second armed point may kill it on the way, once."""
        while True:
            self.b.start(wait=False)
            try:
                self.b.wait_ready()
                return
            except Failure:
                if not self.dead():
                    raise
                self.note_second()

    def note_second(self):
        equal(self.b.wait_dead(), -9, "only a failpoint ends a daemon")
        hits = self.b.failpoint_hits()
        check(any(hit.startswith((f"{self.second} ", f"{self.late} ")) for hit in hits[self.seen:]),
              "the second kill was reported:", self.second, self.late)
        self.seen = len(hits)
        self.counts["second"] += 1
        self.b.failpoints()

    def surviving(self, function):
        """Runs function, again after a restart when the daemon dies under it, and again while it is refused."""
        end = time.monotonic() + END_S * harness.PATIENCE
        while True:
            try:
                return function()
            except (*GONE, Failure) as failure:
                if time.monotonic() < end and self.is_refusal(failure):
                    time.sleep(0.2)
                    continue
                try:
                    wait_for(self.dead, 1, "")
                except Failure:
                    pass
                if not self.dead():
                    raise
                self.note_second()
                self.start()

    # ---- judgement ----
    def listed(self, workspace):
        found, cursor = {}, None
        while True:
            page = self.b.get("/sandbox/executions", workspace_id=workspace, cursor=cursor).expect(200).json
            found.update((item["workflow_id"], item) for item in page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    def judge(self, commands, torn):
        """Every accepted one, and those whose answer the kill took: the store may hold them."""
        accepted, completed = set(), set()
        listed = {}
        for workspace in {command.workspace for command in commands}:
            listed.update(self.surviving(lambda: self.listed(workspace)))
        for command in commands:
            identity = command.id or listed.get(command.key, {}).get("id")
            if identity is None:
                continue
            accepted.add(command.key)
            self.counts["accepted"] += 1
            try:
                record = self.surviving(lambda: self.b.finish(identity, END_S))
            except Failure as failure:
                rows = (stored.doc(self.b, "claims", identity), stored.doc(self.b, "tasks", f"{command.workspace}/{command.task}"))
                self.fault("lost", f"{command.key}: {failure}; claim and task are {rows}")
                continue
            self.ended[identity] = record["status"]
            if self.surviving(lambda: self.judged.judge_record(command, torn, record, lambda stream: self.b.output(record["id"], stream))):
                completed.add(command.key)
        self.judged.judge_lines(commands, accepted, completed, self.b.mock)

    def clear(self, commands, seconds=15):
        """Everything is torn down; what the provider then still lists is leaked."""
        b = self.b
        for workspace, task in {(command.workspace, command.task) for command in commands}:
            self.surviving(lambda: b.teardown(task, workspace, force="true").expect(202, 204))
        try:
            self.surviving(lambda: settled(b, seconds))
            wait_for(lambda: not b.mock.sessions() and not processes(b), seconds, "the sessions to be gone")
        except Failure:
            for ref, session in b.mock.sessions().items():
                self.fault("leaked", f"session {ref} {session}")
            for pid, command in processes(b):
                self.fault("leaked", f"process {pid} {command}")
            if not b.mock.sessions() and not processes(b):
                self.fault("leaked", f"verify says {b.request('POST', '/admin/verify').text}")

    def check_killed(self, point, nth):
        equal(self.b.wait_dead(), -9, "the daemon's end")
        hits = self.b.failpoint_hits()[self.seen:]
        check(f"{point} {nth}" in hits, "the failpoint reported its hit:", hits)

    def round(self, number):
        b, rng = self.b, self.rng
        nth = rng.randint(1, 40) if self.point.startswith("store.") else rng.randint(1, 4)
        first = RESTARTED.get(self.point, self.point)
        b.failpoints(f"{first} kill {nth}")
        self.seen = len(b.failpoint_hits())
        if b.proc is None:
            b.start()
        commands, torn = self.drive(f"r{number}", mix=number % 2 == 1 and first == self.point)
        self.check_killed(first, nth)
        if first != self.point:
            b.failpoints(f"{self.point} kill 1")
            b.start(wait=False)
            wait_for(self.dead, 20, "the kill")
            self.check_killed(self.point, 1)
        self.counts["hits"] += 1
        self.seen = len(b.failpoint_hits())
        self.second = rng.choice(POINTS)
        b.failpoints(*([f"{self.second} kill 1"] if rng.random() < 0.4 else []))
        self.start()
        self.judge(commands, torn)
        b.failpoints()
        self.surviving(lambda: b.get("/health"))
        self.clear(commands)
        self.counts["rounds"] += 1


def run_matrix(matrix, name, rounds):
    begun = time.monotonic()
    wanted = ROUNDS_FULL if harness.FULL else rounds
    c = matrix.counts
    try:
        for number in range(wanted):
            matrix.round(number)
        matrix.judged.judge_events(matrix.ended, events_of(matrix.b))
    finally:
        print(f"     matrix {name}: rounds {c['rounds']}, hits {c['hits']}, second kills {c['second']}, refused {c['refused']}, accepted {c['accepted']}, "
              f"lost {c['lost']}, twice {c['twice']}, illegal {c['illegal']}, leaked {c['leaked']} ({time.monotonic() - begun:.1f} s)", flush=True)
        for text in matrix.faults[:20]:
            print(f"       {text}", flush=True)
    equal((c["rounds"], c["hits"]), (wanted, wanted), "rounds and hits")
    equal([c[what] for what in ("lost", "twice", "illegal", "leaked")], [0] * 4, "lost, twice, illegal, leaked: " + "; ".join(matrix.faults[:5]))


def make_matrix(make, point):
    b = make(conf=f'lease: {{ idle = "{idle_lease(point)}"; {LIVES} }};\ngc: {{ interval = "50ms"; }};\ntask: {{ concurrency = 2; }};\n'
                  f'{OTHER_LIVES}')
    b.failpoints()
    return Matrix(b, point, random.Random(point))


def define(point):
    def test(make):
        run_matrix(make_matrix(make, point), point, ROUNDS)
    test.__doc__ = f"kill -9 at {point}"
    globals()["test_Q5_kill_at_" + point.replace(".", "_")] = test


check(len(POINTS) >= 20, "the list of failpoints can be read:", POINTS)
for each in POINTS:
    if not each.startswith(POOLS) and each not in FLEETS:
        define(each)


def test_the_counts_can_fail(make):
    """The judgement itself: one command of four was lost, one ran twice, one without a record, a session and a process are left."""
    matrix = make_matrix(make, "exec.ended")
    b = matrix.b.start()
    commands = [matrix.make_command("w", number) for number in range(4)]
    matrix.second = None
    for command in commands:
        command.seconds = 0
        matrix.send(command)
        b.finish(command.id)
    lines = matrix.outside.read_text().splitlines()
    commands.append(matrix.make_command("w", 4))
    matrix.outside.write_text("\n".join([*lines[1:], lines[-1], commands[-1].key]) + "\n")
    kept = b.create("t9", "sleep 60 & echo kept", "other", keep_descendants=True, wait="20s").expect(200).json
    matrix.judge(commands, set())
    equal((matrix.counts["lost"], matrix.counts["twice"]), (2, 1), f"{kept['id']}: {matrix.faults}")
    matrix.clear(commands, seconds=1)  # which leaves t9 alone
    check(matrix.counts["leaked"] >= 2, "a session and a process are left:", matrix.faults)
    matrix.judged.judge_events({**matrix.ended, kept["id"]: "cancelled"}, events_of(b))
    equal(matrix.counts["illegal"], 1, matrix.faults)


def test_every_failpoint_stands_in_the_code(make):
    """A point that nothing hits would make its row of the matrix empty."""
    code = "".join(path.read_text() for path in (harness.ROOT / "host").rglob("*.c") if path.name != "failpoint.c")
    equal([point for point in POINTS if f'"{point}"' not in code], [], "points that stand in the list only")
