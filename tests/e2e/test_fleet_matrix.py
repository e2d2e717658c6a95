# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every step with several hosts over one Redis, and cancels at random instants asked of another host (rows Q5, Q6).

A round arms a failpoint of one host, in turn, while clients ask all of them; when it has died the others must bring everything to its
end, and in four of ten rounds another one is armed, too. The counts are those of test_matrix.py. In every run a few points have five
rounds and the others one with two hosts; --full has a hundred of each with two and with four.
"""

import contextlib
import random
import time

import harness
import test_matrix
from counting import Counts, events_of
from fleet import fleet
from harness import check, equal, in_parallel, settled, wait_for
from test_matrix import POINTS, POOLS, RESTARTED, ROUNDS

# Where ownership begins, what must not be done twice, and what a successor finds half done.
OFTEN = ("exec.claimed", "exec.begin.after", "exec.running", "exec.terminal.before", "provision.created")
# A create that a dead host may have sent is looked for until session.starting is over: only then another one is sent.
CONF = '''execution: { claim_ttl = "1s"; };
lease: { operation_ttl = "1s"; owner_ttl = "1s"; idle = "%s"; };
gc: { interval = "100ms"; };
session: { starting = "3s"; };
task: { concurrency = 2; };
'''
CANCELS, CANCELS_FULL, AT_ONCE = 48, 1000, 8


class FleetMatrix(test_matrix.Matrix):
    others_go_on = True

    def __init__(self, hosts, point, rng):
        super().__init__(hosts[0], point, rng)
        self.hosts, self.takers = hosts, len(hosts)
        self.second = None

    def asked(self):
        """Any host that lives; the armed one more often, so that it gets to its point."""
        living = [host for host in self.hosts if host.proc is not None and host.proc.poll() is None]
        return self.b if self.rng.random() < 0.5 or not living else self.rng.choice(living)

    def reached(self, host):
        return f"{self.point} 1" in host.failpoint_hits()[self.hits[host]:]

    def check_successor(self, host):
        check(self.late, "a host ended that nothing was to end:", host.log()[-2000:])
        equal(host.wait_dead(), -9, "the successor's end")
        check(self.reached(host), "the failpoint reported its hit:", host.failpoint_hits())

    def start_dead(self):
        for host in self.hosts:
            if host.proc is not None and host.proc.poll() is not None:
                self.check_successor(host)
            if host.proc is None:
                host.failpoints()
                host.start()

    def kill_successor(self, others):
        """The point lies on the way of those who go on with the dead host's commands: all others are armed, and disarmed when one has
        reached it. Another one may in the same moment, with another command."""
        wait_for(lambda: any(host.proc.poll() is not None for host in others), 20, "the successor's kill")
        for host in others:
            if host.proc.poll() is None:
                host.failpoints()
        self.late = self.point
        for host in others:
            if host.proc.poll() is not None or self.reached(host):
                self.check_successor(host)

    def arm(self, victim, others):
        nth = self.rng.randint(1, 40) if self.point.startswith("store.") else self.rng.randint(1, 4)
        first = RESTARTED.get(self.point, self.point)
        victim.failpoints(f"{first} kill {nth}")
        if first != self.point:
            self.hits = {host: len(host.failpoint_hits()) for host in self.hosts}
            for host in others:
                host.failpoints(f"{self.point} kill 1")
        self.seen = len(victim.failpoint_hits())
        return first, nth

    def round(self, number):
        victim = self.b = self.hosts[number % len(self.hosts)]
        others = [host for host in self.hosts if host is not victim]
        first, nth = self.arm(victim, others)
        commands, torn = self.drive(f"r{number}", mix=number % 2 == 1 and first == self.point)
        self.check_killed(first, nth)
        if first != self.point:
            self.kill_successor(others)
        self.counts["hits"] += 1
        if self.rng.random() < 0.5 or all(host.proc is None for host in self.hosts):
            self.start_dead()
        self.b = self.rng.choice([host for host in self.hosts if host.proc is not None])
        self.seen = len(self.b.failpoint_hits())
        self.second = self.rng.choice(POINTS)
        self.b.failpoints(*([f"{self.second} kill 1"] if self.rng.random() < 0.4 else []))
        self.judge(commands, torn)
        self.b.failpoints()
        self.surviving(lambda: self.b.get("/health"))
        self.start_dead()
        self.clear(commands)
        self.counts["rounds"] += 1


@contextlib.contextmanager
def armed_fleet(make, count, idle):
    def make_armed(**kw):
        host = make(**kw)
        host.failpoints()
        return host

    with fleet(make_armed, count, CONF % idle) as hosts:
        yield hosts


def run_one(make, count, point, rounds):
    with armed_fleet(make, count, test_matrix.idle_lease(point)) as hosts:
        matrix = FleetMatrix(hosts, point, random.Random(f"{point} {count}"))
        test_matrix.run_matrix(matrix, f"{point}, {count} hosts", rounds)
        check(not any("illegal transition" in host.log() for host in hosts), "a host tried an illegal transition")


def define(count, point, rounds):
    def test(make):
        if not rounds and not harness.FULL:
            raise harness.Skipped(f"{count} hosts at {point} is for --full")
        run_one(make, count, point, rounds)
    test.__doc__ = f"kill -9 of one of {count} hosts at {point}"
    globals()[f"test_Q5_{count}_hosts_kill_at_{point.replace('.', '_')}"] = test


for each in POINTS:
    if not each.startswith(POOLS):
        define(2, each, ROUNDS if each in OFTEN else 1)
        define(4, each, ROUNDS if each in OFTEN else 0)


def cancel_one(hosts, judged, number, delay):
    """Created, cancelled and followed at three places, which are the same one at times."""
    ask = [hosts[(number * step) % len(hosts)] for step in (1, 3, 5)]
    key = f"cancel-{number}"
    command = f"echo {key} >> {judged.outside}; sleep 0.2; echo done"
    made = ask[0].create(f"t{number % AT_ONCE}", command).expect(202).json["id"]
    time.sleep(delay)
    ask[1].request("DELETE", f"/sandbox/executions/{made}").expect(200, 202)
    record = ask[2].finish(made)
    if record["status"] not in ("cancelled", "completed"):
        judged.fault("lost", f"{made} is {record['status']} {record.get('error')}")
    again = hosts[0].record(made)
    equal((again["status"], again["revision"]), (record["status"], record["revision"]), "a terminal state never changes")
    return made, record["status"]


def cancel_many(make, count):
    rounds = CANCELS_FULL if harness.FULL else CANCELS
    rng = random.Random(count)
    delays = [rng.uniform(0, 0.3) for _ in range(rounds)]
    with armed_fleet(make, count, "15m") as hosts:
        outside = hosts[0].dir / "outside"
        outside.touch()
        judged, ended = Counts(outside), {}
        for start in range(0, rounds, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, rounds))
            ended.update(in_parallel(len(numbers), lambda i: cancel_one(hosts, judged, numbers[i], delays[numbers[i]])))
        lines = outside.read_text().split()
        judged.judge_events(ended, events_of(hosts[0]))
        equal(len(lines), len(set(lines)), "commands that ran, and how often")
        equal(judged.faults, [])
        check(not any("illegal transition" in host.log() for host in hosts), "a host tried an illegal transition")
        settled(hosts[0])
        equal(hosts[0].processes(), [])


def test_Q6_2_hosts_cancel_at_random_instants(make):
    cancel_many(make, 2)


def test_Q6_4_hosts_cancel_at_random_instants(make):
    cancel_many(make, 4)
