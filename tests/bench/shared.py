# SPDX-License-Identifier: Apache-2.0
"""Benches of a Redis that several hosts may share: executions against a bare client, and how soon another host goes on."""

import concurrent.futures
import json
import sys
import time

from parts import TOKEN, Daemon, daemon, harness, in_turn, run_reference, wrk

import stored  # noqa: E402 - beside the harness
from fleet import claims, fleet, id_of, running_under  # noqa: E402
from redis_server import RedisServer  # noqa: E402

CLIENTS = 64
LOOK_S = 2       # how often a host looks for claims that ended: with the claim's time the redelivery window
FOREVER = "i=0; while :; do echo $i; i=$((i+1)); sleep 0.1; done"


def server(stack, name):
    redis = RedisServer("--appendfsync", name).start()
    stack.callback(redis.close)
    return redis


def commandstats(redis):
    """{command: calls}"""
    found = {}
    for line in redis.call("INFO", "commandstats").decode().splitlines():
        if line.startswith("cmdstat_"):
            name, _, fields = line[len("cmdstat_"):].partition(":calls=")
            found[name] = int(fields.partition(",")[0])
    return found


def exec_redis(options, stack):
    redis = server(stack, "everysec")
    berth = daemon(stack, "exec-redis", mock='runtime = "null";', redis=redis).start()
    for i in range(1, CLIENTS + 1):
        berth.run(f"c{CLIENTS}-{i}", "true", workspace="bench")
    trips = []

    def ours():
        before, calls = berth.metrics(), commandstats(redis)
        rate = wrk(berth.url("/"), options.seconds, connections=CLIENTS, script="exec.lua", token=False,
                   arguments=(TOKEN, str(CLIENTS), f"c{CLIENTS}-", "true"))[0]
        after, called = berth.metrics(), commandstats(redis)
        count = after["berth_executions_accepted_total"] - before["berth_executions_accepted_total"]
        trips.append((after["berth_store_round_trips_total"] - before["berth_store_round_trips_total"]) / count)
        per = {name: round((called[name] - calls.get(name, 0)) / count, 2) for name in called}
        print("exec-redis: INFO commandstats, calls per execution:", {name: n for name, n in per.items() if n >= 0.01},
              file=sys.stderr, flush=True)
        return rate

    def reference():
        other = RedisServer("--appendfsync", "everysec").start()
        try:
            return run_reference("ref_redis", other.socket, CLIENTS, options.seconds)
        finally:
            other.close()

    def one_round(number):
        return {"executions": in_turn(number, ours, reference), "round_trips": (trips[-1], None)}
    return one_round


def now_ms():
    return time.time() * 1000


def ms_of(text):
    """A moment of a row: RFC 3339 or milliseconds."""
    if isinstance(text, int):
        return text
    return time.mktime(time.strptime(text[:19] + " UTC", "%Y-%m-%dT%H:%M:%S %Z")) * 1000 - time.timezone * 1000 + int(text[20:23])


def row_of(host, table, key):
    return json.loads(stored.doc(host, table, key) or b"{}")


def wait_provisioning(host, task):
    """Until the provider has made the session, which is not ready yet."""
    name = id_of(host)

    def made():
        row = row_of(host, "tasks", f"bench/{task}")
        return row.get("state") == "provisioning" and row.get("owner") == name and host.sessions_of(task, "bench")
    harness.wait_for(made, 20, "the session to be made")


def served_at(host, task):
    record = host.run(task, "true", workspace="bench", limit=120)
    harness.check(record["status"] == "completed", "the command after the takeover:", record)
    return now_ms()


def continued_at(host, execution, before):
    """When another host has claimed it and its output grows again."""
    harness.wait_for(lambda: host.record(execution)["attempt"] == 2, 120, "another host to claim the command")
    harness.wait_for(lambda: len(host.output(execution)) > before, 60, "its output to go on")
    return now_ms()


def recovery(options, stack):
    redis = server(stack, "everysec")

    def make(**kw):
        host = Daemon("recovery", mock='ready_delay = "2s";', **kw)
        stack.callback(host.close)
        return host

    hosts = stack.enter_context(fleet(make, 2, server=redis))

    def one_round(number):
        dies, lives = hosts[number % 2], hosts[1 - number % 2]
        runs = dies.create(f"runs-{number}", FOREVER, workspace="bench", timeout_seconds=600).expect(202).json["id"]
        harness.wait_for(lambda: runs in running_under(dies, id_of(dies)), 30, "the command to run")
        harness.wait_for(lambda: lives.output(runs), 30, "its output to be shared")
        dies.create(f"made-{number}", "true", workspace="bench").expect(202)
        wait_provisioning(dies, f"made-{number}")
        dies.kill9()
        owner_until = ms_of(row_of(lives, "tasks", f"bench/made-{number}")["owner_until"])
        claim_until = ms_of(claims(lives)[runs]["claim_until"])
        before = len(lives.output(runs))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            served = pool.submit(served_at, lives, f"made-{number}")
            continued = pool.submit(continued_at, lives, runs, before)
            found = {"served": ((served.result() - owner_until) / 1000, None),
                     "continued": ((continued.result() - claim_until) / 1000 - LOOK_S, None)}
        lives.request("DELETE", f"/sandbox/executions/{runs}").expect(200, 202)
        lives.finish(runs)
        dies.start()
        return found
    return one_round
