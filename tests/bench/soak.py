# SPDX-License-Identifier: Apache-2.0
"""Hosts of one Redis that are killed and frozen for minutes while clients work, and a Redis that is killed under them.

Clients send each command until it is accepted, by the same idempotency key at whichever host answers, follow it to its end and read its
output. What is counted comes from them, from the provider's own folder, from the rows in Redis and from a file outside of all
sandboxes; see counting.py. BERTH_SOAK_SECONDS changes the length.
"""

import collections
import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time

from parts import Daemon, harness

import counting  # noqa: E402 - beside the harness
import stored  # noqa: E402
from fleet import claims, fleet, id_of, running_under  # noqa: E402
from redis_server import RedisError, RedisServer  # noqa: E402

SECONDS = float(os.environ.get("BERTH_SOAK_SECONDS", "600"))
WHOLE_S = 600
HOSTS = 4
KILL_EVERY_S, FREEZE_EVERY_S, REDIS_EVERY_S = 7.5, 14, 75
THAW_AFTER_S = 25   # at the latest, when Redis is away for a part of it
BAD_S = 3           # a host that did not answer is not asked again so soon
GENERATION_S = 20   # then other tasks are used, and the old ones' leases end
QUICK, SLOW, TASKS = 36, 8, 24
END_S = 120         # for what is open at the end
GONE = (OSError, http.client.HTTPException)
# A create that a dead host may have sent is looked for until session.starting is over: only then another one is sent.
CONF = '''execution: { claim_ttl = "2s"; };
lease: { operation_ttl = "2s"; owner_ttl = "2s"; idle = "8s"; };
gc: { interval = "500ms"; };
session: { starting = "4s"; };'''


class Soaked(counting.Command):
    """A command that is sent until it is accepted."""

    def __init__(self, workspace, number, slow, rng):
        super().__init__(workspace, f"t{number % TASKS}", f"{workspace}-{number}", rng)
        self.first = self.record = None  # as the answer to the create, and at its end
        self.trouble = ""
        if slow:
            self.seconds = round(rng.uniform(1, 9), 2)


class Soak:
    def __init__(self, hosts, redis, seconds):
        self.hosts, self.redis = hosts, redis
        self.rng = random.Random(5)
        self.outside = hosts[0].dir / "outside"
        self.outside.touch()
        self.judged = counting.Counts(self.outside)
        self.did = collections.Counter()
        self.lock = threading.Lock()
        self.busy = set()  # hosts that something is being done to
        self.bad = {}      # host: until when nobody asks it
        self.stop_at = time.monotonic() + seconds
        self.stop = threading.Event()
        self.commands, self.torn, self.completed = [], set(), set()
        self.errors = []

    # ---- hosts ----
    def take_host(self):
        """A host that nothing is being done to, for one thread; two are always left alone."""
        with self.lock:
            free = [host for host in self.hosts if host not in self.busy]
            if len(free) < 3:
                return None
            host = self.rng.choice(free)
            self.busy.add(host)
            return host

    def give_host(self, host):
        with self.lock:
            self.busy.discard(host)

    def any_host(self, rng):
        """As a balancer does it: one that did not answer is left out for a moment."""
        now = time.monotonic()
        good = [host for host in self.hosts if self.bad.get(host, 0) < now]
        return rng.choice(good or self.hosts)

    def start_host(self, host):
        """It starts only while Redis is there."""
        end = time.monotonic() + END_S
        while True:
            host.start(wait=False)
            try:
                host.wait_ready()
                return
            except harness.Failure as failure:
                if host.proc.poll() is None or time.monotonic() > end:
                    raise
                self.note_end(host, failure)

    def note_end(self, host, failure):
        code = host.wait_dead()
        if code not in (69, 75, 1) or "store" not in str(failure):
            self.judged.fault("crashed", f"{host.dir.name} ended with {code}: {str(failure)[-300:]}")

    def kill_one(self):
        host = self.take_host()
        if host is None:
            return
        try:
            if host.proc.poll() is not None:
                self.judged.fault("crashed", f"{host.dir.name} ended by itself with {host.proc.poll()}: {host.log()[-600:]}")
            else:
                self.did["kills"] += 1
            host.kill9()
            self.start_host(host)
        finally:
            self.give_host(host)

    def freeze_one(self):
        """Only one that owns a running command counts, and only when another host went on with it meanwhile."""
        host = self.take_host()
        if host is None:
            return
        try:
            if host.proc.poll() is None:
                self.freeze(host)
        except (*GONE, RedisError, harness.Failure):
            self.did["freezes given up"] += 1  # Redis is away
        finally:
            self.give_host(host)

    def freeze(self, host):
        name = id_of(host)
        host.proc.send_signal(signal.SIGSTOP)
        try:
            held = running_under(host, name)
            end = time.monotonic() + THAW_AFTER_S
            while held and time.monotonic() < end:
                now = claims(host)
                if all(now.get(one, {}).get("runner") != name for one in held):
                    self.did["freezes"] += 1
                    self.did["commands taken from a frozen host"] += len(held)
                    break
                time.sleep(0.2)
            else:
                self.did["freezes of a host without commands" if not held else "freezes in an outage"] += 1
        finally:
            host.proc.send_signal(signal.SIGCONT)

    def kill_redis(self):
        self.redis.kill()
        self.did["kills of Redis"] += 1
        time.sleep(self.rng.uniform(0, 2))
        self.redis.start()

    def repeat(self, every, function):
        """Until the end; a failure of the soak itself is one of its results."""
        due = time.monotonic() + every / 2
        while not self.stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + every, time.monotonic() + every / 4)
            try:
                function()
            except Exception as failure:  # noqa: B902 - told at the end
                self.errors.append(f"{function.__name__}: {failure!r}")

    # ---- clients ----
    def ask(self, rng, method, route, body=None, headers=None, seconds=2, **query):
        """The first answer of any host that is one; None when the time is over."""
        while time.monotonic() < self.stop_at + END_S:
            host = self.any_host(rng)
            try:
                answer = host.request(method, route, body, headers=headers, timeout=seconds, **query)
            except (*GONE, TypeError):  # no port yet
                answer = None
            if answer is None:
                self.bad[host] = time.monotonic() + BAD_S
            elif answer.status not in (429, 503):
                return answer
            time.sleep(0.05)
        return None

    def send(self, rng, command):
        answer = self.ask(rng, "POST", "/sandbox/executions", command.body(self.outside), {"Idempotency-Key": command.key},
                          seconds=3, wait=None if command.seconds > 1 else "1s")
        if answer is None or answer.status not in (200, 202):
            command.trouble = f"was answered {answer and (answer.status, answer.body[:300])}"
            return False
        command.id = answer.json["id"]
        command.first = answer.json
        return True

    def follow(self, rng, command):
        while True:
            answer = self.ask(rng, "GET", f"/sandbox/executions/{command.id}", wait="1s", seconds=3)
            if answer is None or answer.status != 200:
                command.trouble = f"has no end: {answer and (answer.status, answer.body[:300])}"
                return None
            if answer.json["status"] in counting.TERMINAL:
                return answer.json

    def read(self, rng, command, stream):
        answer = self.ask(rng, "GET", f"/sandbox/executions/{command.id}/{stream}")
        if answer is None or answer.status != 200:
            raise harness.Failure(f"{stream} was answered {answer and (answer.status, answer.headers, answer.body[:300])}")
        return answer.body

    def run_one(self, rng, command):
        if not self.send(rng, command):
            return
        if rng.random() < 0.03:
            command.cancelled = True
            time.sleep(rng.uniform(0, 0.2))
            self.ask(rng, "DELETE", f"/sandbox/executions/{command.id}")
        record = command.first if command.first["status"] in counting.TERMINAL else self.follow(rng, command)
        if record is None:
            return
        with self.lock:
            command.record = record
        if self.judged.judge_record(command, self.torn, record, lambda stream: self.read(rng, command, stream)):
            self.completed.add(command.key)

    def client(self, number, slow):
        rng = random.Random(number)
        count = 0
        while time.monotonic() < self.stop_at:
            workspace = f"w{int((self.stop_at - time.monotonic()) / GENERATION_S)}-{number % 2}"
            count += 1
            command = Soaked(workspace, number + 100 * count, slow, rng)
            self.commands.append(command)
            try:
                self.run_one(rng, command)
            except Exception as failure:  # noqa: B902 - told at the end
                command.trouble = repr(failure)

    def tear_down(self):
        """Some task that is used right now."""
        with self.lock:
            command = self.rng.choice(self.commands[-50:])
        self.torn.add((command.workspace, command.task))
        self.ask(self.rng, "DELETE", f"/sandbox/task/{command.task}", workspace_id=command.workspace, force=self.rng.choice((None, "true")))
        self.did["teardowns"] += 1

    # ---- the whole ----
    def run(self):
        disturbers = [threading.Thread(target=self.repeat, args=pair) for pair in
                      ((KILL_EVERY_S, self.kill_one), (FREEZE_EVERY_S, self.freeze_one), (REDIS_EVERY_S, self.kill_redis), (5, self.tear_down))]
        clients = [threading.Thread(target=self.client, args=(i, i >= QUICK)) for i in range(QUICK + SLOW)]
        for thread in clients + disturbers:
            thread.start()
        while time.monotonic() < self.stop_at:
            time.sleep(min(10, max(0.1, self.stop_at - time.monotonic())))
            told = {**self.did, **self.judged.counts}
            print(f"soak: {len(self.commands)} sent, {len(self.completed)} completed, {told}", file=sys.stderr, flush=True)
        self.stop.set()
        for thread in disturbers + clients:
            thread.join()

    def judge(self):
        for command in self.commands:
            if command.trouble:
                self.judged.fault("lost", f"{command.key} {command.id} {command.trouble}")
        accepted = {command.key for command in self.commands if command.id}
        self.judged.judge_lines(self.commands, accepted, self.completed, self.hosts[0].mock)
        ended = {command.id: command.record["status"] for command in self.commands if command.record}
        self.judged.judge_events(ended, counting.events_of(self.hosts[0]))
        for host in self.hosts:
            for line in host.log().splitlines():
                if "illegal transition" in line:
                    self.judged.fault("illegal", line)

    def sessions(self):
        """(the provider's, those of bindings, those that are warm): refs."""
        first = self.hosts[0]
        tasks = [json.loads(doc) for doc in stored.rows(first, "tasks").values()]
        warm = [json.loads(doc) for doc in stored.rows(first, "warm").values()]
        return (set(first.mock.sessions()), {row["ref"] for row in tasks if row.get("ref")},
                {entry["ref"] for entry in warm if entry.get("ref") and not entry.get("used")})

    def account(self):
        """sessions = bindings + warm: while the last bindings still live, and when their leases have ended."""
        def equal():
            held, bound, warm = self.sessions()
            return held == bound | warm and not bound & warm and (len(held), len(bound), len(warm))

        try:
            held, bound, warm = harness.wait_for(equal, 60, "sessions to equal bindings and warm ones")
            self.did["sessions at the end"], self.did["bindings at the end"], self.did["warm at the end"] = held, bound, warm
            harness.wait_for(lambda: (equal() or (0, 1))[1] == 0, 60, "the last leases to end")
            harness.wait_for(lambda: not claims(self.hosts[0]), 20, "the last claims to go")
        except harness.Failure as failure:
            held, bound, warm = self.sessions()
            self.judged.fault("leaked", f"{failure}: unknown {held - bound - warm}, missing {bound - held}")
        for pid, command in self.left():
            self.judged.fault("leaked", f"process {pid} {command}")

    def left(self):
        mine = {host.proc.pid for host in self.hosts}
        return [(pid, command) for pid, command in counting.processes(self.hosts[0]) if pid not in mine]


def keep(run):
    """What a run that counted something leaves: the hosts' folders with their logs, Redis' file, and what is known of each execution."""
    first = run.hosts[0]
    named = set(re.findall(r"sexec_[0-9a-f]{24}", " ".join(run.judged.faults)))
    known = {one: {"record": (stored.doc(first, "executions", one) or b"").decode(), "claim": (stored.doc(first, "claims", one) or b"").decode(),
                   "log": sorted(line for host in run.hosts for line in host.log().splitlines() if one in line)} for one in named}
    for one, events in counting.events_of(first).items():
        if one in named:
            known[one]["events"] = events
    path = first.dir / "evidence.json"
    path.write_text(json.dumps({"faults": run.judged.faults, "errors": run.errors, "executions": known}, indent=1))
    print(f"soak: kept {path}, {run.redis.dir} and " + ", ".join(str(host.dir) for host in run.hosts), file=sys.stderr, flush=True)


def soak(options, stack):
    kept = threading.Event()
    redis = RedisServer("--appendfsync", "always").start()
    stack.callback(lambda: redis.kill() if kept.is_set() else redis.close())

    def make(**kw):
        host = Daemon("soak", target="warm = 3;", **kw)
        stack.callback(lambda: host.close(keep=kept.is_set()))
        return host

    hosts = stack.enter_context(fleet(make, HOSTS, CONF, server=redis))

    def one_round(number):
        run = Soak(hosts, redis, SECONDS)
        run.run()
        for host in hosts:
            if host.proc is not None and host.proc.poll() is not None:
                run.judged.fault("crashed", f"{host.dir.name} ended by itself with {host.proc.poll()}: {host.log()[-600:]}")
                host.proc = None
            if host.proc is None:  # it could not be started again; the run's errors say why
                host.start()
        run.judge()
        run.account()
        if run.judged.faults or run.errors:
            kept.set()
            keep(run)
        for text in run.judged.faults[:50] + run.errors[:20]:
            print(f"soak: {text}", file=sys.stderr, flush=True)
        print(f"soak: {dict(run.did)}", file=sys.stderr, flush=True)
        counts = run.judged.counts
        found = {"executions": sum(1 for command in run.commands if command.id), "kills": run.did["kills"],
                 "freezes": run.did["freezes"], "redis_kills": run.did["kills of Redis"], "errors": len(run.errors)}
        found.update({what: counts[what] for what in ("lost", "twice", "illegal", "leaked", "crashed")})
        return {metric: (value, None) for metric, value in found.items()}
    return one_round
