# SPDX-License-Identifier: Apache-2.0
"""The daemon on a Redis of its own that goes away, comes back, is lost or is not what it must be. Runs with any --store."""

import contextlib
import shutil
import threading
import time

import stored
from harness import check, equal, settled, wait_for
from redis_server import RedisServer

SHORT = 'lease: { operation_ttl = "3s"; };\nexecution: { claim_ttl = "3s"; };\ngc: { interval = "1s"; };'


@contextlib.contextmanager
def server(*words):
    redis = RedisServer(*words).start()
    try:
        yield redis
    finally:
        redis.close()


def round_trips(b):
    for line in b.get("/metrics").text.splitlines():
        if line.startswith("berth_store_round_trips_total"):
            return float(line.split()[-1])
    return 0.0


def test_requests_are_refused_while_redis_is_away(make):
    with server("--appendfsync", "always") as redis:
        b = make(redis=redis, conf=SHORT).start()
        b.sh("t", "true")
        known = b.run("t", "echo known")["id"]
        redis.kill()
        for answer in (b.create("t", "true"), b.get("/sandbox/executions", workspace_id="w"), b.task("t"), b.teardown("t")):
            answer.expect_error(503, "store_unavailable")
            check(1 <= int(answer.headers["retry-after"]) <= 10, answer.headers)
        check(b.get("/health").status == 200, "the daemon itself lives")
        equal(b.get("/ready").status, 503)
        began = time.monotonic()
        b.create("t", "true").expect(503)
        check(time.monotonic() - began < 3, "and says so at once")
        redis.start()
        wait_for(lambda: b.get("/ready").status == 200, 30, "the daemon to be ready again")
        equal(b.output(known), b"known\n")
        equal(b.sh("t", "echo again"), b"again\n")
        settled(b)


def test_running_commands_go_on_while_redis_is_away(make):
    with server("--appendfsync", "always") as redis:
        b = make(redis=redis, conf=SHORT).start()
        b.sh("t", "true")
        made = [b.create("t", f"echo $0 >> ran-{i}; while [ ! -e {b.dir}/gate ]; do sleep 0.05; done; echo out-{i}; exit {i}")
                .expect(202).json["id"] for i in range(3)]
        work = b.mock.work(next(iter(b.mock.sessions())))
        wait_for(lambda: all((work / f"ran-{i}").exists() for i in range(3)), 20, "the commands to run")
        wait_for(lambda: all(b.record(x)["status"] == "running" for x in made), 10, "their records")
        redis.kill()
        (b.dir / "gate").touch()
        wait_for(lambda: "the state store is away" in b.log(), 20, "the outage to be noticed")
        b.create("t", "true").expect(503)
        redis.start()
        wait_for(lambda: b.get("/ready").status == 200, 30, "the daemon to be ready again")
        for i, execution in enumerate(made):
            record = b.finish(execution)
            equal((record["status"], record["result"]["exit_code"]), ("completed", i), record.get("error"))
            equal(b.output(execution), f"out-{i}\n".encode())
            equal((work / f"ran-{i}").read_text().count("\n"), 1, "runs")
        settled(b)


def test_a_flickering_redis_runs_nothing_twice_and_loses_nothing(make):
    with server("--appendfsync", "always") as redis:
        b = make(redis=redis, conf=SHORT).start()
        b.sh("t", "true")
        end = threading.Event()

        def flicker():
            while not end.wait(0.7):
                redis.kill()
                redis.start()

        thread = threading.Thread(target=flicker)
        thread.start()
        accepted = []
        try:
            for i in range(60):
                key = f"key-{i}"
                answer = None
                while answer is None or answer.status == 503:
                    answer = b.create("t", f"echo x >> ran-{i}", headers={"Idempotency-Key": key})
                accepted.append(answer.expect(200, 202).json["id"])
        finally:
            end.set()
            thread.join()
        for execution in accepted:
            wait_for(lambda: b.get(f"/sandbox/executions/{execution}").status == 200, 20, "the record")
            equal(b.finish(execution)["status"], "completed")
        equal(len(set(accepted)), 60)
        work = b.mock.work(next(iter(b.mock.sessions())))
        for i in range(60):
            equal((work / f"ran-{i}").read_text(), "x\n", f"command {i}")
        settled(b)


def test_refusals_at_start(make):
    with server() as redis:
        redis.call("CONFIG", "SET", "appendonly", "no")
        b = make(redis=redis)
        b.start(expect_exit=78)
        check("set appendonly yes" in b.log(), b.log()[-500:])
        redis.call("CONFIG", "SET", "appendonly", "yes")
        redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        b.start(expect_exit=78)
        check("allkeys-lru" in b.log(), b.log()[-500:])
        redis.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
        b.env["REDIS_URL"] = "rediss://user:sesame@localhost"
        b.start(expect_exit=78)
        check("TLS tunnel" in b.log() and "sesame" not in b.log(), b.log()[-500:])
        b.env["REDIS_URL"] = f"unix://{redis.dir}/nothing-here"
        b.start(expect_exit=1)
        check("cannot be reached" in b.log(), b.log()[-500:])
        b.env["REDIS_URL"] = redis.url
        b.start()
        equal(b.sh("t", "echo hi"), b"hi\n")


def test_hosts_must_share_their_key_and_their_objects(make):
    with server() as redis:
        first = make(redis=redis).start()
        first.sh("t", "true")
        second = make(redis=redis)
        conf = (first.dir / "berth.conf").read_text().replace(str(first.state), str(second.state))
        (second.dir / "berth.conf").write_text(conf)
        second.start(expect_exit=78)
        check("state.key" in second.log() or "state key" in second.log(), second.log()[-500:])
        for path in second.state.glob("state.key*"):
            path.unlink()
        shutil.copy(first.state / "state.key", second.state / "state.key")
        second.start(expect_exit=78)
        check("objects.path is not the folder" in second.log(), second.log()[-500:])
        (second.dir / "berth.conf").write_text(conf + f'\nobjects: {{ path = "{first.state}/objects"; }};\n')
        second.start()
        equal(second.get("/health").status, 200)


def test_few_exchanges_for_a_command(make):
    with server() as redis:
        b = make(redis=redis).start()
        b.sh("t", "true")
        before, count = round_trips(b), 50
        for _ in range(count):
            record = b.create("t", "true", wait="10s").expect(200).json
            equal(record["status"], "completed")
        each = (round_trips(b) - before) / count
        print(f"exchanges for a command on a live session, create to terminal answer: {each:.2f}", flush=True)
        check(each <= 8, f"{each} exchanges for each command")


def test_a_full_redis_refuses_and_goes_on(make):
    with server() as redis:
        b = make(redis=redis, conf=SHORT).start()
        b.sh("t", "true")
        redis.call("CONFIG", "SET", "maxmemory", "1")
        b.create("t", "true").expect_error(503, "store_unavailable")
        redis.call("CONFIG", "SET", "maxmemory", "0")
        equal(b.sh("t", "echo again"), b"again\n")
        check(len(stored.entries(b, "events")) >= 4)
