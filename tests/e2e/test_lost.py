# SPDX-License-Identifier: Apache-2.0
"""Redis loses everything under hosts that run: what they run goes on, what only waited is gone. Runs with any --store."""

import contextlib
import shutil
import threading

from fleet import fleet
from harness import check, equal, wait_for
from redis_server import RedisServer

# Patience with a store that is gone: twice operation_ttl.
SHORT = ('lease: { operation_ttl = "3s"; owner_ttl = "3s"; };\ngc: { interval = "1s"; };\n'
         'execution: { claim_ttl = "3s"; };\n')


@contextlib.contextmanager
def hosts_of(make, count=2, conf=""):
    redis = RedisServer("--appendfsync", "always").start()
    try:
        with fleet(make, count, SHORT + conf, server=redis) as hosts:
            yield redis, hosts
    finally:
        redis.close()


def flush(redis):
    redis.call("FLUSHALL")


def replace(redis):
    """Another server, with an empty disk, where the former one was."""
    redis.kill()
    for path in redis.dir.glob("appendonly*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    redis.start()


def gated(host, gate, name):
    return f"echo x >> ran-{name}; echo before; echo noise >&2; while [ ! -e {gate} ]; do sleep 0.05; done; echo after; exit 7"


def survive(make, lose):
    with hosts_of(make) as (redis, (a, b)):
        gate = a.dir / "gate"
        old = a.run("t", "echo old")["id"]
        a.put_file("t", "kept", b"in the sandbox").expect(200, 201, 204)
        runs = [host.create("t", gated(host, gate, name), headers={"Idempotency-Key": f"key-{name}"}).expect(202).json["id"]
                for name, host in (("a", a), ("b", b))]
        other = b.create("u", gated(b, gate, "u")).expect(202).json["id"]
        wait_for(lambda: all(a.output(i) == b"before\n" for i in runs + [other]), 30, "the commands to be in their middle")
        before = {ref for ref in a.mock.sessions()}
        answers = []  # of clients that wait on the other host all the time

        def wait_on(execution):
            """503 says to come again; 404 would say that it never ran."""
            answer = None
            while answer is None or answer.status == 503 or (answer.status == 200 and answer.json["status"] == "running"):
                answer = b.get(f"/sandbox/executions/{execution}", wait="30s")
            answers.append((answer.status, answer.json.get("status") or answer.text))

        waiters = [threading.Thread(target=wait_on, args=(i,)) for i in runs]
        for waiter in waiters:
            waiter.start()
        lose(redis)
        wait_for(lambda: a.get("/ready").status == 503 and b.get("/ready").status == 503, 20, "the loss to be noticed")
        a.get(f"/sandbox/executions/{runs[0]}").expect_error(503, "store_unavailable")
        b.create("t", "true").expect_error(503, "store_unavailable")
        a.task("t").expect_error(503, "store_unavailable")

        # Nobody restarts anything.
        for host in (a, b):
            wait_for(lambda: host.get("/sandbox/executions", workspace_id="w").status == 200, 40, "a new store to be served")
        check("is begun anew" in a.log() + b.log(), "who made it")
        for host in (a, b):
            equal(host.get(f"/sandbox/executions/{old}").status, 404, "what had ended is gone")
            equal([host.record(i)["status"] for i in runs + [other]], ["running"] * 3)
        # The key still leads to the command that runs: a client that asks again does not run it twice.
        again = b.create("t", gated(a, gate, "a"), headers={"Idempotency-Key": "key-a"})
        equal(again.expect(200, 202).json["id"], runs[0])
        gate.touch()
        for execution in runs + [other]:
            record = a.finish(execution)
            equal((record["status"], record["result"]["exit_code"]), ("completed", 7), record.get("error"))
            equal(b.output(execution), b"before\nafter\n")
            equal(b.output(execution, "stderr"), b"noise\n")
        for waiter in waiters:
            waiter.join()
        equal(answers, [(200, "completed")] * 2, "who waited")
        equal(b.sh("t", "cat ran-a ran-b kept"), b"x\nx\nin the sandbox")
        equal({ref for ref in a.mock.sessions()}, before, "the sandboxes")
        check("illegal transition" not in a.log() + b.log(), "an illegal transition")
        # The folder of objects went over to the new store.
        equal(a.stop(), 0)
        a.start()
        equal(a.record(runs[0])["status"], "completed")
        equal(a.sh("u", "cat ran-u"), b"x\n")


def test_a_flushed_redis_under_running_hosts(make):
    survive(make, flush)


def test_an_empty_redis_in_the_place_of_the_former(make):
    survive(make, replace)


def test_the_former_store_comes_back(make):
    """It was only away behind another, empty one: nothing was begun, nothing is lost."""
    with hosts_of(make, conf='session: { begin_wait = "5s"; };\n') as (redis, (a, b)):
        known = a.run("t", "echo known")["id"]
        redis.call("SAVE")
        runs = b.create("t", "echo before; sleep 4; echo after").expect(202).json["id"]
        wait_for(lambda: a.output(runs) == b"before\n", 20, "the command to be in its middle")
        redis.kill()
        away = redis.dir / "away"
        away.mkdir()
        for path in [p for p in redis.dir.iterdir() if p.name.startswith(("appendonly", "dump"))]:
            shutil.move(path, away)
        redis.start()
        wait_for(lambda: "is another one than before" in a.log() and "is another one than before" in b.log(), 20, "the loss")
        redis.kill()
        for path in [p for p in redis.dir.iterdir() if p.name.startswith(("appendonly", "dump"))]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in away.iterdir():
            shutil.move(path, redis.dir)
        redis.start()
        for host in (a, b):
            wait_for(lambda: host.get("/sandbox/executions", workspace_id="w").status == 200, 40, "the store to be served")
            check("begun anew" not in host.log(), "a store was begun")
        equal(a.output(known), b"known\n")
        equal(a.finish(runs)["status"], "completed")
        equal(a.output(runs), b"before\nafter\n")


def test_what_waits_is_lost_with_its_store(make):
    with hosts_of(make, 1, "runner: { concurrency = 1; };\n") as (redis, (a,)):
        gate = a.dir / "gate"
        runs = a.create("t", gated(a, gate, "t")).expect(202).json["id"]
        wait_for(lambda: a.output(runs) == b"before\n", 20, "the command to be in its middle")
        waits = a.create("t", "echo never >> ran-t", headers={"Idempotency-Key": "waits"}).expect(202).json["id"]
        flush(redis)
        wait_for(lambda: a.get("/sandbox/executions", workspace_id="w").status == 503, 20, "the loss to be noticed")
        wait_for(lambda: a.get("/sandbox/executions", workspace_id="w").status == 200, 40, "a new store to be served")
        check("sessions=1 running=1 waiting=1" in a.log(), "what was told, and what was lost")
        equal(a.get(f"/sandbox/executions/{waits}").status, 404)
        check(a.create("t", "echo again >> ran-t", headers={"Idempotency-Key": "waits"}).expect(202).json["id"] != waits)
        gate.touch()
        equal(a.finish(runs)["status"], "completed")
        wait_for(lambda: a.sh("t", "cat ran-t") == b"x\nagain\n", 20, "what was asked again to run")
        equal(len(a.mock.sessions()), 1)


def test_a_host_stops_while_its_store_is_away(make):
    """Though something in its line is over its time, whose end cannot be written."""
    redis = RedisServer("--appendfsync", "always").start()
    conf = SHORT.replace("execution: {", 'execution: { queue_timeout = "2s";') + 'runner: { concurrency = 1; };\nstop_grace = "200ms";\n'
    try:
        with fleet(make, 1, conf, server=redis) as (a,):
            runs = a.create("t", "echo begun; sleep 100").expect(202).json["id"]
            wait_for(lambda: a.output(runs) == b"begun\n", 20, "the command to run")
            a.create("u", "true").expect(202)
            redis.kill()
            # A look every two seconds: by the third one it was over its time, and the thread that looks goes on.
            wait_for(lambda: a.log().count("the request stream could not be read") > 2, 20, "looks at the line without a store")
            equal(a.stop(), 0)
    finally:
        redis.close()
