# SPDX-License-Identifier: Apache-2.0
"""What others do to the streams in Redis: groups of their own, and groups and streams that are destroyed. Runs with any --store."""

import contextlib
import signal
import time

from fleet import fleet
from harness import PATIENCE, check, equal, settled, wait_for
from redis_server import RedisServer

SHORT = ('lease: { operation_ttl = "3s"; owner_ttl = "3s"; };\ngc: { interval = "500ms"; };\n'
         'execution: { claim_ttl = "3s"; %s };\n')
GROUP = "agentarea-sandbox-runners"


@contextlib.contextmanager
def hosts_of(make, count, conf="", execution=""):
    redis = RedisServer("--appendfsync", "always").start()
    try:
        with fleet(make, count, SHORT % execution + conf, server=redis) as hosts:
            yield redis, hosts, hosts[0].store_name
    finally:
        redis.close()


def groups(redis, stream):
    return [info[1].decode() for info in redis.call("XINFO", "GROUPS", stream)]


def test_an_outside_group_loses_no_event_and_takes_no_request(make):
    with hosts_of(make, 1, execution='retention = "1s";') as (redis, (a,), name):
        redis.call("XGROUP", "CREATE", f"{name}.events", "billing", "0", "MKSTREAM")
        redis.call("XGROUP", "CREATE", f"{name}.requests", "audit", "0", "MKSTREAM")
        made = [a.create("t", f"echo {i}").expect(202).json["id"] for i in range(4)]
        taken = redis.call("XREADGROUP", "GROUP", "audit", "one", "COUNT", "100", "STREAMS", f"{name}.requests", ">")
        for execution in made:
            equal(a.finish(execution)["status"], "completed")
        check(taken is None or len(taken[0][1]) <= 4)
        equal(redis.call("XLEN", f"{name}.requests"), 0, "what has ended leaves the queue, whoever looked at it")
        # Records go after a second, events only when the group has got and acknowledged them.
        wait_for(lambda: a.get(f"/sandbox/executions/{made[0]}").status == 404, 20, "the record's retention to be over")
        equal(len(redis.call("XRANGE", f"{name}.events", "-", "+")), 16, "four events of each: requested to completed")
        got = redis.call("XREADGROUP", "GROUP", "billing", "one", "COUNT", "100", "STREAMS", f"{name}.events", ">")[0][1]
        equal(len(got), 16)
        redis.call("XACK", f"{name}.events", "billing", *[entry[0] for entry in got[:7]])
        wait_for(lambda: redis.call("XLEN", f"{name}.events") == 9, 20, "the acknowledged ones to be trimmed")
        equal(redis.call("XRANGE", f"{name}.events", "-", "+", "COUNT", "1")[0][0], got[7][0], "and no other")
        redis.call("XGROUP", "DESTROY", f"{name}.events", "billing")
        wait_for(lambda: redis.call("XLEN", f"{name}.events") == 0, 20, "the rest to be trimmed")
        settled(a)


def test_nothing_is_left_of_events_that_were_deleted(make):
    with hosts_of(make, 1, execution='retention = "1s";') as (redis, (a,), name):
        made = [a.run("t", "true")["id"] for _ in range(3)]
        check(redis.call("KEYS", f"{name}:of:events:*"), "events are found by their execution")
        redis.call("DEL", f"{name}.events")
        for execution in made:
            wait_for(lambda: a.get(f"/sandbox/executions/{execution}").status == 404, 20, "the record's retention to be over")
        equal(redis.call("KEYS", f"{name}:of:*"), [])
        settled(a)


def test_our_own_group_is_destroyed(make):
    with hosts_of(make, 2, "runner: { concurrency = 1; };\n") as (redis, (a, b), name):
        gate = a.dir / "gate"
        command = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo done"
        made = [host.create(f"t{i}", command).expect(202).json["id"] for i in range(3) for host in (a, b)]
        equal(groups(redis, f"{name}.requests"), [GROUP])
        redis.call("XGROUP", "DESTROY", f"{name}.requests", GROUP)
        made.append(a.create("more", command).expect(202).json["id"])
        gate.touch()
        for execution in made:
            equal(b.finish(execution)["status"], "completed")
            equal(a.output(execution), b"done\n")
        equal(redis.call("XLEN", f"{name}.requests"), 0)


def test_the_request_stream_is_deleted(make):
    """What every living host knows of goes on; new messages make the stream and its group anew."""
    with hosts_of(make, 2, "runner: { concurrency = 1; };\n") as (redis, (a, b), name):
        gate = a.dir / "gate"
        command = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo done"
        made = [a.create(f"t{i}", command).expect(202).json["id"] for i in range(6)]
        redis.call("DEL", f"{name}.requests")
        made.append(a.create("more", command).expect(202).json["id"])
        equal(groups(redis, f"{name}.requests"), [GROUP])
        gate.touch()
        for execution in made:
            equal(b.finish(execution)["status"], "completed")
            equal(a.output(execution), b"done\n")


def test_a_request_of_another_program_leaves_with_its_execution(make):
    with hosts_of(make, 2, "runner: { concurrency = 1; };\n") as (redis, (a, b), name):
        gate = a.dir / "gate"
        command = f"while [ ! -e {gate} ]; do sleep 0.05; done; echo done"
        made = []
        for i in range(6):
            made.append(a.create(f"t{i}", command).expect(202).json["id"])
            if i < 2:  # one that waits for its session has no slot yet, and the next one would be claimed, too
                wait_for(lambda: a.record(made[-1])["status"] == "running", 30, "both slots to be taken")
        waiting = redis.call("XRANGE", f"{name}.requests", "-", "+")
        for _, (field, doc) in waiting:
            redis.call("XADD", f"{name}.requests", "*", field, doc)
        length = redis.call("XLEN", f"{name}.requests")
        check(waiting and length > len(waiting), f"{len(waiting)} wait, and with their copies {length}")
        gate.touch()
        for execution in made:
            equal(b.finish(execution)["status"], "completed")
        wait_for(lambda: redis.call("XLEN", f"{name}.requests") == 0, 60, "the stream to be empty")
        equal(redis.call("XLEN", f"{name}.dead"), 0)
        settled(a)


def test_what_no_living_host_knows_of_is_found_without_a_restart(make):
    """Accepted by a host that died, while the other was frozen, and the stream was deleted before that one read it."""
    with hosts_of(make, 2, "runner: { concurrency = 1; };\n") as (redis, (a, b), name):
        # Its first look goes over all records and would find them, too.
        wait_for(lambda: "looked through for missing messages" in b.log(), 20, "the first look of the second host")
        b.proc.send_signal(signal.SIGSTOP)
        gate = a.dir / "gate"
        runs = a.create("t", f"echo x >> ran; while [ ! -e {gate} ]; do sleep 0.05; done").expect(202).json["id"]
        wait_for(lambda: a.record(runs)["status"] == "running", 20, "the first command to run")
        waits = [a.create(f"u{i}", "echo found").expect(202).json["id"] for i in range(3)]
        redis.call("DEL", f"{name}.requests")
        a.kill9()
        b.proc.send_signal(signal.SIGCONT)
        gate.touch()
        for execution in waits:
            equal(b.finish(execution, limit=60)["status"], "completed")
            equal(b.output(execution), b"found\n")
        equal(b.finish(runs)["status"], "completed")
        equal(b.sh("t", "cat ran"), b"x\n")
        check("an open execution had no message" in b.log(), "it was found by its record")
        equal(redis.call("XLEN", f"{name}.requests"), 0)


def lose_group(redis, name, hosts):
    redis.call("XGROUP", "DESTROY", f"{name}.requests", GROUP)


def lose_stream(redis, name, hosts):
    redis.call("DEL", f"{name}.requests")


def restart(redis, name, hosts):
    before = [h.log().count("the state store is away") for h in hosts]
    redis.kill()
    for host, count in zip(hosts, before):
        wait_for(lambda: host.log().count("the state store is away") > count, 30, "the outage to be noticed")
    redis.start()


def accepted(host, task, command):
    """As a client does it: what was refused for a store that is away is sent again."""
    made = []

    def create():
        answer = host.create(task, command)
        made.extend([answer.expect(202).json["id"]] if answer.status != 503 else [])
        return made
    wait_for(create, 60, "the command to be accepted")
    return made[0]


def harm(redis, name, hosts, how, number):
    """One accident, with a command that runs, one that waits for its place, and none."""
    a, b = hosts
    gate = a.dir / f"gate-{number}"
    command = f"echo $0 >> ran-{number}; while [ ! -e {gate} ]; do sleep 0.05; done; echo done"
    for busy in (False, True):
        made = [a.create(f"t{i}", command).expect(202).json["id"] for i in range(3)] if busy else []
        if busy:
            wait_for(lambda: any(a.record(m)["status"] == "running" for m in made), 30, "a command to run")
        before = [h.log().count("\n") for h in hosts]
        how(redis, name, hosts)
        over = time.monotonic()
        new = [accepted(host, f"n{i}", "echo new") for i, host in enumerate(hosts)] if not busy else []
        if busy:
            gate.touch()
        for execution in made + new:
            equal(b.finish(execution)["status"], "completed")
            equal(a.output(execution), b"done\n" if execution in made else b"new\n")
        check(time.monotonic() - over < 5 * PATIENCE, f"{how.__name__}: works again after {time.monotonic() - over:.1f} s")
        for host, lines in zip(hosts, before):
            check(host.log().count("\n") - lines < 400, how.__name__, "filled the log")
    for i in range(3):
        equal(a.sh(f"t{i}", f"cat ran-{number} | wc -l").strip(), b"1", "runs")


def test_Q1_group_stream_or_redis_lost_while_idle_and_busy(make):
    with hosts_of(make, 2, "runner: { concurrency = 4; };\n") as (redis, hosts, name):
        for number, how in enumerate((lose_group, lose_stream, restart)):
            harm(redis, name, hosts, how, number)
        equal(redis.call("XLEN", f"{name}.requests"), 0)
        settled(hosts[0], 60)
